// SPDX-License-Identifier: GPL-2.0-only
//! Does the kernel have the types and functions that the shim is built on?
//!
//! Read from the kernel's type information (BTF) before anything is loaded, since the kernel itself answers with a bare
//! number. Reading is left to the crate btf-rs: kept by the authors of retis, LGPL-2.1-or-later (which may be used
//! under the GPL 2), and it follows new kinds of BTF records, which a reader of our own would have to.

use super::Finding;
use btf_rs::{Btf, Type};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A function of the kernel: its name, and how many arguments a program passes.
type Function = (&'static str, usize);

/// What the shim calls on every path. Of each row one is enough: the newest name first, then what the same function
/// was called before (6.13 renamed them; 6.19 and 7.1 gave two of them a second form). The shim picks likewise.
const REQUIRED: [&[Function]; 13] = [
    &[("scx_bpf_dsq_insert___v2", 4), ("scx_bpf_dsq_insert", 4), ("scx_bpf_dispatch", 4)],
    &[("scx_bpf_dsq_move", 4), ("scx_bpf_dispatch_from_dsq", 4)],
    &[("scx_bpf_dsq_move_set_slice", 2), ("scx_bpf_dispatch_from_dsq_set_slice", 2)],
    &[("scx_bpf_dsq_move_to_local___v2", 2), ("scx_bpf_dsq_move_to_local", 1), ("scx_bpf_consume", 1)],
    &[("scx_bpf_create_dsq", 2)],
    &[("scx_bpf_dsq_nr_queued", 1)],
    &[("scx_bpf_kick_cpu", 2)],
    &[("scx_bpf_pick_idle_cpu", 2)],
    &[("scx_bpf_test_and_clear_cpu_idle", 1)],
    &[("scx_bpf_task_cpu", 1)],
    &[("bpf_task_from_pid", 1)],
    &[("bpf_task_release", 1)],
    &[("bpf_iter_scx_dsq_new", 3)],
];

/// What the shim calls if it is there: function, first kernel, and what happens without.
const OPTIONAL: [(Function, &str, &str); 2] = [
    (("scx_bpf_dsq_peek", 1), "6.19", "the age of waiting tasks is found by iterating"),
    (("scx_bpf_task_set_slice", 2), "6.19", "slices are written into the task directly"),
];

/// Members of `struct sched_ext_ops` that the shim fills.
const OPS_MEMBERS: [&str; 16] = [
    "select_cpu",
    "enqueue",
    "dispatch",
    "runnable",
    "running",
    "stopping",
    "quiescent",
    "yield",
    "set_cpumask",
    "init_task",
    "exit_task",
    "init",
    "exit",
    "dump",
    "dump_cpu",
    "dump_task",
];

const NEWER_KERNEL: &str =
    "boot a newer kernel (6.12 at least, 7.1 for everything), or use `cargo xtask lab`";

/// How the kernel's version of a function compares with ours.
enum Match {
    Absent,
    Same,
    /// One pointer more than a program passes: an argument that the kernel means to fill in by itself.
    Implicit,
    Other(usize),
}

/// Compares the kernel's type information at `path` with what the shim needs.
pub(super) fn check(path: &Path) -> Vec<Finding> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => return vec![absent(path, &e)],
    };
    match Btf::from_bytes(&bytes) {
        Ok(btf) => compare(&btf),
        Err(e) => vec![Finding::note(
            "btf",
            "the kernel's type information cannot be understood: it is not compared",
            e.to_string(),
            "",
        )],
    }
}

/// Only whether there is type information at all.
pub(super) fn check_present(path: &Path) -> Vec<Finding> {
    match fs::File::open(path) {
        Ok(_) => vec![],
        Err(e) => vec![absent(path, &e)],
    }
}

fn absent(path: &Path, e: &std::io::Error) -> Finding {
    Finding::missing(
        "btf",
        "the kernel shows no type information (BTF)",
        format!("{}: {e}", path.display()),
        "boot a kernel built with CONFIG_DEBUG_INFO_BTF, or use `cargo xtask lab`",
    )
}

fn compare(btf: &Btf) -> Vec<Finding> {
    let Some(members) = ops_members(btf) else {
        return vec![Finding::missing(
            "btf",
            "the kernel's type information has no sched_ext",
            "struct sched_ext_ops is not in it: the kernel was built without CONFIG_SCHED_CLASS_EXT",
            NEWER_KERNEL,
        )];
    };
    let mut findings = Vec::new();
    let lacking: Vec<&str> = OPS_MEMBERS.into_iter().filter(|name| !members.contains(*name)).collect();
    if !lacking.is_empty() {
        findings.push(Finding::missing(
            "ops",
            format!("the kernel's sched_ext_ops has no {}", lacking.join(", ")),
            "its sched_ext is older than the one in mainline",
            NEWER_KERNEL,
        ));
    }
    findings.extend(check_image(btf));
    findings.extend(check_required(btf));
    if findings.is_empty() {
        findings.push(Finding::ok("btf", "all needed types and functions"));
    }
    findings.extend(check_optional(btf));
    findings
}

fn ops_members(btf: &Btf) -> Option<BTreeSet<String>> {
    let types = btf.resolve_types_by_name("sched_ext_ops").ok()?;
    types.iter().find_map(|found| {
        let Type::Struct(ops) = found else { return None };
        Some(ops.members.iter().filter_map(|member| btf.resolve_name(member).ok()).collect())
    })
}

/// Some functions have a last argument that the kernel fills in. Tools older than pahole 1.26 leave it in the
/// prototype that programs are checked against, and then no program fits any more.
fn check_image(btf: &Btf) -> Option<Finding> {
    let known = REQUIRED.iter().copied().flatten().chain(OPTIONAL.iter().map(|(function, ..)| function));
    let broken: Vec<&str> = known
        .filter(|function| matches!(look_up(btf, function), Match::Implicit))
        .map(|(name, _)| *name)
        .collect();
    if broken.is_empty() {
        return None;
    }
    Some(Finding::missing(
        "kernel-image",
        "the kernel image is at fault: its type information shows an argument that only the kernel may fill in",
        format!(
            "one pointer too many in {}; the image was built with a pahole older than 1.26",
            broken.join(", ")
        ),
        "boot another build of the kernel, and report this one to whoever built it; no scheduler can load here",
    ))
}

fn check_required(btf: &Btf) -> Option<Finding> {
    let mut absent = Vec::new();
    for names in REQUIRED {
        let found: Vec<Match> = names.iter().map(|function| look_up(btf, function)).collect();
        // What the image spoils is reported as that.
        if found.iter().any(|found| matches!(found, Match::Same | Match::Implicit)) {
            continue;
        }
        // People know it by the name without the version suffix.
        let name = names.iter().map(|(name, _)| *name).find(|name| !name.contains("___")).unwrap_or_default();
        let other =
            found.iter().find_map(|found| if let Match::Other(args) = found { Some(*args) } else { None });
        absent.push(other.map_or(name.to_string(), |args| format!("{name} (there with {args} arguments)")));
    }
    if absent.is_empty() {
        return None;
    }
    Some(Finding::missing(
        "kfuncs",
        format!("the kernel lacks functions that Hearth calls: {}", absent.join(", ")),
        "they came with another kernel version",
        NEWER_KERNEL,
    ))
}

fn check_optional(btf: &Btf) -> Vec<Finding> {
    let absent = OPTIONAL
        .iter()
        .filter(|(function, ..)| matches!(look_up(btf, function), Match::Absent | Match::Other(_)));
    absent
        .map(|((name, _), since, without)| {
            Finding::note(
                "feature",
                format!("not in this kernel: {name} (since {since})"),
                format!("without: {without}"),
                "",
            )
        })
        .collect()
}

fn look_up(btf: &Btf, (name, args): &Function) -> Match {
    let types = btf.resolve_types_by_name(name).unwrap_or_default();
    let prototype = types.iter().find_map(|found| match found {
        Type::Func(function) => match btf.resolve_chained_type(function) {
            Ok(Type::FuncProto(prototype)) => Some(prototype),
            _ => None,
        },
        _ => None,
    });
    let Some(prototype) = prototype else { return Match::Absent };
    let parameters = &prototype.parameters;
    if parameters.len() == *args {
        return Match::Same;
    }
    let last = parameters.last().map(|last| btf.resolve_chained_type(last));
    let last_is_pointer = matches!(last, Some(Ok(Type::Ptr(_))));
    if parameters.len() == args + 1 && last_is_pointer {
        Match::Implicit
    } else {
        Match::Other(parameters.len())
    }
}
