// SPDX-License-Identifier: GPL-2.0-only
//! What this process may do: capabilities, locked memory, real-time time.
//!
//! Only loading programs is essential. The rest makes the dispatcher prompt, and its lack is a note: a container or a
//! confined service must not be turned away for a setting that is nice to have.

use super::{Finding, Roots, Severity, read_text};
use std::fs;
use std::path::Path;

/// A capability: its bit (include/uapi/linux/capability.h), whether nothing works without, and what it is for.
struct Capability {
    bit: u32,
    name: &'static str,
    essential: bool,
    purpose: &'static str,
}

const CAP_SYS_ADMIN: u32 = 21;

const CAPABILITIES: [Capability; 4] = [
    Capability { bit: 39, name: "CAP_BPF", essential: true, purpose: "load programs" },
    Capability { bit: 38, name: "CAP_PERFMON", essential: true, purpose: "let them read kernel memory" },
    Capability { bit: 23, name: "CAP_SYS_NICE", essential: false, purpose: "a real-time dispatcher thread" },
    Capability {
        bit: 24,
        name: "CAP_SYS_RESOURCE",
        essential: false,
        purpose: "raise the locked-memory limit",
    },
];

const CAP_IPC_LOCK: u32 = 14;

/// What the daemon locks on a machine of common size: its arena of 64 MiB and its tables.
const LOCKED_BYTES: u64 = 256 << 20;

pub(super) fn check(proc: &Path) -> Vec<Finding> {
    let Some(effective) = effective_capabilities(proc) else {
        return vec![Finding::note(
            "rights",
            "the rights of this process are not known",
            "/proc/self/status cannot be read",
            "",
        )];
    };
    let mut findings = vec![check_capabilities(effective)];
    findings.extend(check_user_namespace(proc));
    findings.extend(check_memlock(proc, effective));
    findings
}

fn effective_capabilities(proc: &Path) -> Option<u64> {
    let status = fs::read_to_string(proc.join("self/status")).ok()?;
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn has(effective: u64, bit: u32) -> bool {
    effective >> bit & 1 == 1
}

fn check_capabilities(effective: u64) -> Finding {
    // The kernel accepts the older, wider capability for the two that were split off from it.
    let granted = |c: &Capability| has(effective, c.bit) || c.essential && has(effective, CAP_SYS_ADMIN);
    let lacking: Vec<&Capability> = CAPABILITIES.iter().filter(|c| !granted(c)).collect();
    if lacking.is_empty() {
        return Finding::ok("rights", "all needed capabilities");
    }
    let essential = lacking.iter().any(|c| c.essential);
    let names: Vec<String> = lacking.iter().map(|c| format!("{} ({})", c.name, c.purpose)).collect();
    let rest =
        if essential { "" } else { "attaches all the same, with longer tails under memory or CPU pressure" };
    Finding {
        id: "rights",
        severity: if essential { Severity::Missing } else { Severity::Note },
        what: format!("this process lacks {}", names.join(", ")),
        why: rest.into(),
        mend: "run it as root with all its rights (sudo), or give the service these capabilities".into(),
    }
}

/// Root in a container's user namespace holds every capability, and none that counts.
fn check_user_namespace(proc: &Path) -> Option<Finding> {
    let map = read_text(&proc.join("self/uid_map"))?;
    let whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!whole).then(|| {
        Finding::missing(
            "namespace",
            "this process is in a user namespace",
            "capabilities inside one do not reach the kernel's scheduler",
            "run it outside of the container, or in a privileged one",
        )
    })
}

fn check_memlock(proc: &Path, effective: u64) -> Option<Finding> {
    let limits = fs::read_to_string(proc.join("self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    // "unlimited" is no number.
    let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
    // CAP_IPC_LOCK is not bound by the limit, CAP_SYS_RESOURCE (24) raises it.
    if soft >= LOCKED_BYTES || has(effective, CAP_IPC_LOCK) || has(effective, 24) {
        return None;
    }
    Some(Finding::note(
        "memlock",
        format!("only {} KiB may be locked in memory, {} are wanted", soft >> 10, LOCKED_BYTES >> 10),
        "a page fault of the dispatcher delays every wakeup; the kernel side takes over meanwhile",
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service",
    ))
}

pub(super) fn check_lockdown(sysfs: &Path) -> Option<Finding> {
    let lockdown = read_text(&sysfs.join("kernel/security/lockdown"))?;
    lockdown.contains("[confidentiality]").then(|| {
        Finding::note(
            "lockdown",
            "the kernel is locked down (confidentiality)",
            "programs that read kernel memory may be refused (EPERM)",
            "boot with lockdown=integrity if loading fails",
        )
    })
}

/// Whether the dispatcher thread may be SCHED_FIFO. `groups`: the kernel has CONFIG_RT_GROUP_SCHED, if known.
pub(super) fn check_real_time(roots: &Roots, groups: Option<bool>) -> Option<Finding> {
    let off = read_text(&roots.proc.join("sys/kernel/sched_rt_runtime_us")).as_deref() == Some("0");
    let why = if off {
        "kernel.sched_rt_runtime_us is 0"
    } else if groups == Some(true) && !group_has_budget(roots) {
        "the control group of this process has no real-time budget (CONFIG_RT_GROUP_SCHED)"
    } else {
        return None;
    };
    Some(Finding::note(
        "real-time",
        "the dispatcher thread cannot be a real-time thread here",
        format!("{why}; it then runs as a task of Hearth's own, with longer tails"),
        if off {
            "sysctl -w kernel.sched_rt_runtime_us=1000000"
        } else {
            "start it from the root control group"
        },
    ))
}

/// The budget of the `cpu` controller's group in cgroup v1. Version 2 has no budget file: only its root group has one.
fn group_has_budget(roots: &Roots) -> bool {
    let groups = fs::read_to_string(roots.proc.join("self/cgroup")).unwrap_or_default();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if controllers.split(',').any(|controller| controller == "cpu") {
            let mount = roots.sysfs.join("fs/cgroup").join(controllers);
            let budget = mount.join(path.trim_start_matches('/')).join("cpu.rt_runtime_us");
            return read_text(&budget).as_deref() != Some("0");
        }
    }
    let v2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
    v2.is_none_or(|path| path == "/")
}
