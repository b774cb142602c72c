// SPDX-License-Identifier: GPL-2.0-only
//! The preflight on machines that lack something: each lack has its own message, and its exit code.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fixtures;

use fixtures::Tree;
use fixtures::machine::{CONFIG, RELEASE, btf, capabilities, healthy, memlock, preflight};
use flate2::{Compression, write::GzEncoder};
use hearth::doctor::{Exit, ExtState, Finding, Preflight, Report, Roots, Severity, explain_load_error};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output};

const BTF: &str = "sys/kernel/btf/vmlinux";

fn obstacles(report: &Report) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| finding.severity >= Severity::Missing).collect()
}

/// The one thing that stands in the way.
fn obstacle(report: &Report) -> &Finding {
    let found = obstacles(report);
    assert_eq!(found.len(), 1, "{report}");
    found[0]
}

fn notes<'a>(report: &'a Report, id: &str) -> Vec<&'a Finding> {
    report.findings.iter().filter(|finding| finding.severity == Severity::Note && finding.id == id).collect()
}

fn doctor(tree: &Tree, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
    command.arg("doctor").args(args);
    for (flag, dir) in [("--sysfs", "sys"), ("--proc", "proc"), ("--boot", "boot")] {
        command.arg(flag).arg(tree.join(dir));
    }
    command.output().unwrap()
}

#[test]
fn nothing_is_missing_on_a_healthy_machine() {
    let tree = healthy();
    let report = preflight(&tree);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Ok), "{report}");
    assert!(report.can_attach() && report.refusal().is_none());
    let output = doctor(&tree, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("can attach"));
}

#[test]
fn c34_three_kinds_of_kernel_three_messages() {
    let tree = healthy();
    tree.write(BTF, btf(true, |name| name != "scx_bpf_dsq_move", |_| false));
    let required = preflight(&tree);
    assert_eq!(obstacle(&required).id, "kfuncs");
    assert!(obstacle(&required).what.contains("scx_bpf_dsq_move"), "{required}");
    assert_eq!(doctor(&tree, &[]).status.code(), Some(3));

    tree.write(BTF, btf(true, |name| name != "scx_bpf_dsq_peek", |_| false));
    let optional = preflight(&tree);
    assert!(optional.can_attach(), "{optional}");
    let note = notes(&optional, "feature");
    assert!(note[0].what.contains("scx_bpf_dsq_peek (since 6.19)"), "{optional}");
    assert!(note[0].why.contains("iterating"), "{optional}");
    assert_eq!(doctor(&tree, &[]).status.code(), Some(0));

    tree.write(BTF, btf(false, |_| false, |_| false));
    let none = preflight(&tree);
    assert_eq!(obstacle(&none).id, "btf");
    assert!(obstacle(&none).what.contains("no sched_ext"), "{none}");
    assert_eq!(doctor(&tree, &[]).status.code(), Some(3));
}

#[test]
fn c34_every_required_function_is_looked_for() {
    let tree = healthy();
    for name in ["scx_bpf_create_dsq", "scx_bpf_kick_cpu", "bpf_task_from_pid", "bpf_iter_scx_dsq_new"] {
        tree.write(BTF, btf(true, |other| other != name, |_| false));
        let report = preflight(&tree);
        assert!(obstacle(&report).what.contains(name), "{report}");
    }
    // The newer form of a function is enough, and so is the older one.
    for name in ["scx_bpf_dsq_insert", "scx_bpf_dsq_insert___v2", "scx_bpf_dsq_move_to_local"] {
        tree.write(BTF, btf(true, |other| other != name, |_| false));
        assert!(preflight(&tree).can_attach(), "{name}");
    }
    tree.write(BTF, btf(true, |name| !name.starts_with("scx_bpf_dsq_insert"), |_| false));
    assert!(obstacle(&preflight(&tree)).what.ends_with(": scx_bpf_dsq_insert"));
}

#[test]
fn c34_the_first_names_of_6_12_are_enough() {
    let tree = healthy();
    let mut writer = fixtures::btf::Writer::new();
    writer.structure("sched_ext_ops", &fixtures::machine::OPS_MEMBERS);
    let renamed = [
        ("scx_bpf_dsq_insert", "scx_bpf_dispatch"),
        ("scx_bpf_dsq_move", "scx_bpf_dispatch_from_dsq"),
        ("scx_bpf_dsq_move_set_slice", "scx_bpf_dispatch_from_dsq_set_slice"),
        ("scx_bpf_dsq_move_to_local", "scx_bpf_consume"),
    ];
    let later = ["scx_bpf_dsq_peek", "scx_bpf_task_set_slice"];
    for (name, args) in fixtures::machine::FUNCTIONS {
        if !name.ends_with("___v2") && !later.contains(&name) {
            let old = renamed.iter().find(|(new, _)| *new == name).map_or(name, |(_, old)| *old);
            writer.function(old, args, false);
        }
    }
    tree.write(BTF, writer.finish()).write("proc/sys/kernel/osrelease", "6.12.3\n");
    let report = preflight(&tree);
    assert!(report.can_attach(), "{report}");
    assert_eq!(notes(&report, "feature").len(), 5, "two functions and three changes came later: {report}");
}

#[test]
fn c34_prototypes_and_members_are_compared() {
    let tree = healthy();
    let mut writer = fixtures::btf::Writer::new();
    writer.structure("sched_ext_ops", &["enqueue", "dispatch"]);
    for (name, args) in fixtures::machine::FUNCTIONS {
        writer.function(name, if name == "scx_bpf_kick_cpu" { 5 } else { args }, false);
    }
    tree.write(BTF, writer.finish());
    let report = preflight(&tree);
    let ids: Vec<&str> = obstacles(&report).iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["ops", "kfuncs"], "{report}");
    assert!(report.to_string().contains("scx_bpf_kick_cpu (there with 5 arguments)"), "{report}");
    assert!(report.to_string().contains("init_task"), "{report}");
}

#[test]
fn c35_an_image_with_an_extra_argument_is_at_fault() {
    let tree = healthy();
    tree.write(BTF, btf(true, |_| true, |name| name == "scx_bpf_kick_cpu" || name == "scx_bpf_create_dsq"));
    let report = preflight(&tree);
    let finding = obstacle(&report);
    assert_eq!(finding.id, "kernel-image");
    assert!(finding.what.contains("kernel image is at fault"), "{report}");
    assert!(
        finding.why.contains("scx_bpf_create_dsq, scx_bpf_kick_cpu") && finding.why.contains("pahole"),
        "{report}"
    );
    assert!(!report.to_string().contains("EINVAL"), "{report}");
    assert_eq!(doctor(&tree, &[]).status.code(), Some(3));
}

#[test]
fn type_information_absent_or_unreadable() {
    let tree = healthy();
    tree.remove(BTF);
    let report = preflight(&tree);
    assert!(obstacle(&report).mend.contains("CONFIG_DEBUG_INFO_BTF"), "{report}");
    // What this program cannot read may still be right: the loader decides.
    for broken in [&b""[..], b"\x9f\xeb\x01\x00", b"not type information at all"] {
        tree.write(BTF, broken);
        let report = preflight(&tree);
        assert!(report.can_attach(), "{report}");
        assert_eq!(notes(&report, "btf").len(), 1, "{report}");
    }
}

#[test]
fn the_quick_preflight_only_looks_whether_there_is_type_information() {
    let tree = healthy();
    let quick = || {
        let (sysfs, proc, boot) = (tree.join("sys"), tree.join("proc"), tree.join("boot"));
        Preflight::quick(&Roots { sysfs, proc, boot })
    };
    assert!(quick().can_attach());
    tree.write(BTF, btf(true, |name| name != "scx_bpf_dsq_move", |_| false));
    assert!(quick().can_attach() && !preflight(&tree).can_attach());
    tree.remove(BTF);
    assert_eq!(obstacle(&quick()).id, "btf");
}

#[test]
fn c38_each_errno_in_each_state_has_its_hint() {
    let (plain, realtime) = ("#1 SMP PREEMPT_DYNAMIC", "#1 SMP PREEMPT_RT Debian 7.3.4-1");
    let states = [ExtState::Disabled, ExtState::Enabled("other_1.0".into()), ExtState::Absent];
    let explain = |errno, state: &ExtState, version| explain_load_error(errno, state, version);

    for errno in [16, 95, 22, 1, 7] {
        for state in &states {
            for version in [plain, realtime] {
                let hint = explain(errno, state, version);
                assert!(!hint.what.is_empty() && !hint.mend.is_empty());
                let others_fault = hint.exit == Exit::Busy || hint.what.contains("another scheduler,");
                let really = errno == 16 && matches!(state, ExtState::Enabled(_));
                assert_eq!(others_fault, really, "{errno} {state:?}: {hint}");
                assert_eq!(hint, explain(-errno, state, version), "the sign does not matter");
            }
        }
        let absent = explain(errno, &ExtState::Absent, plain);
        assert_eq!(absent.exit, Exit::Unsupported);
        assert_eq!(absent.what.contains("without sched_ext"), errno != 1, "{absent}");
    }
    let distinct: BTreeSet<String> =
        [16, 95, 22, 1, 7].iter().map(|&errno| explain(errno, &ExtState::Disabled, plain).what).collect();
    assert_eq!(distinct.len(), 5, "{distinct:?}");

    assert!(explain(16, &states[1], plain).what.contains("other_1.0"));
    assert!(explain(16, &states[0], plain).mend.contains("CONFIG_FUNCTION_TRACER"));
    assert!(explain(95, &states[0], realtime).what.contains("PREEMPT_RT"));
    assert!(!explain(95, &states[0], plain).what.contains("PREEMPT_RT"));
    assert!(explain(1, &states[2], plain).mend.contains("root"));
    assert_eq!(explain(5, &states[0], plain).exit, Exit::Failed);
}

#[test]
fn c38_a_realtime_kernel_that_shows_sched_ext_is_noted() {
    let tree = healthy();
    tree.write("proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian\n");
    let report = preflight(&tree);
    assert!(report.can_attach(), "{report}");
    assert!(notes(&report, "sched_ext")[0].what.contains("PREEMPT_RT"), "{report}");
}

#[test]
fn c57_someone_else_is_attached() {
    let tree = healthy();
    tree.write("sys/kernel/sched_ext/state", "enabled\n")
        .write("sys/kernel/sched_ext/root/ops", "other_1.0\n");
    let report = preflight(&tree);
    assert_eq!(report.exit(), Exit::Busy);
    assert_eq!(report.scheduler.as_deref(), Some("other_1.0"));
    assert!(report.refusal().unwrap().contains("other_1.0"));
    let output = doctor(&tree, &[]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("the scheduler other_1.0 is attached"));
    // On its way in or out it is as much in the way, with or without a name.
    tree.write("sys/kernel/sched_ext/state", "disabling\n").remove("sys/kernel/sched_ext/root");
    assert_eq!(preflight(&tree).exit(), Exit::Busy);
}

#[test]
fn c59_unprivileged_everything_missing_in_one_message() {
    let tree = healthy();
    capabilities(&tree, "0000000000000000");
    memlock(&tree, "65536");
    let report = preflight(&tree);
    assert_eq!(report.exit(), Exit::Unsupported);
    let message = report.refusal().unwrap();
    for name in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_NICE", "CAP_SYS_RESOURCE"] {
        assert!(message.contains(name), "{message}");
    }
    assert_eq!(obstacles(&report).len(), 1, "one message, not one a capability: {report}");
    assert!(notes(&report, "memlock")[0].what.contains("only 64 KiB"), "{report}");
}

#[test]
fn c59_what_is_nice_to_have_is_not_fatal() {
    const ALL: u64 = 0x1ff_ffff_ffff;
    let tree = healthy();
    let without = |bits: &[u32]| {
        let lost: u64 = bits.iter().map(|bit| 1 << bit).sum();
        capabilities(&tree, &format!("{:016x}", ALL & !lost));
        preflight(&tree)
    };
    // CAP_SYS_ADMIN (21) stands for CAP_BPF (39) and CAP_PERFMON (38), as in the kernel.
    assert!(without(&[39]).can_attach());
    for (bits, name) in [([21, 39], "CAP_BPF"), ([21, 38], "CAP_PERFMON")] {
        let report = without(&bits);
        assert!(obstacle(&report).what.contains(name), "{report}");
    }
    for (bit, name) in [(23, "CAP_SYS_NICE"), (24, "CAP_SYS_RESOURCE")] {
        let report = without(&[bit]);
        assert!(report.can_attach() && notes(&report, "rights")[0].what.contains(name), "{report}");
    }
    memlock(&tree, "65536");
    assert_eq!(notes(&without(&[14, 24]), "memlock").len(), 1);
    assert_eq!(notes(&without(&[24]), "memlock").len(), 0, "CAP_IPC_LOCK is not bound by the limit");

    capabilities(&tree, &format!("{ALL:016x}"));
    tree.write("proc/sys/kernel/sched_rt_runtime_us", "0\n");
    let report = preflight(&tree);
    assert!(report.can_attach() && notes(&report, "real-time").len() == 1, "{report}");
}

#[test]
fn c59_root_inside_a_user_namespace_is_not_root() {
    let tree = healthy();
    tree.write("proc/self/uid_map", "         0     100000      65536\n");
    assert_eq!(obstacle(&preflight(&tree)).id, "namespace");
}

#[test]
fn real_time_budget_of_the_group() {
    let tree = healthy();
    let config = CONFIG.replace("# CONFIG_RT_GROUP_SCHED is not set", "CONFIG_RT_GROUP_SCHED=y");
    tree.write(&format!("boot/config-{RELEASE}"), config);
    let budget = "sys/fs/cgroup/cpu,cpuacct/svc/cpu.rt_runtime_us";
    for (group, runtime, notes_wanted) in [
        ("5:cpu,cpuacct:/svc\n0::/x\n", Some("0\n"), 1),
        ("5:cpu,cpuacct:/svc\n0::/x\n", Some("950000\n"), 0),
        ("0::/user.slice\n", None, 1),
        ("0::/\n", None, 0),
    ] {
        tree.write("proc/self/cgroup", group);
        if let Some(runtime) = runtime {
            tree.write(budget, runtime);
        }
        let report = preflight(&tree);
        assert!(report.can_attach(), "{report}");
        assert_eq!(notes(&report, "real-time").len(), notes_wanted, "{group:?}: {report}");
    }
}

#[test]
fn kernels_that_are_too_old_or_built_without() {
    let tree = healthy();
    tree.remove("sys/kernel/sched_ext").remove(BTF);
    tree.write("proc/sys/kernel/osrelease", "6.1.0-28-amd64\n");
    let report = preflight(&tree);
    let ids: Vec<&str> = obstacles(&report).iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["kernel", "sched_ext", "btf"], "{report}");
    assert_eq!(notes(&report, "config").len(), 1, "there is no configuration of that release: {report}");

    // A vendor's older kernel with sched_ext in it.
    let tree = healthy();
    tree.write("proc/sys/kernel/osrelease", "6.11.0-vendor\n");
    assert!(preflight(&tree).can_attach());

    let tree = healthy();
    tree.write("proc/sys/kernel/osrelease", "6.14.2\n");
    let report = preflight(&tree);
    assert!(report.can_attach(), "{report}");
    assert_eq!(notes(&report, "feature").len(), 3, "what 6.15, 7.0 and 7.1 added: {report}");

    let tree = healthy();
    tree.write("proc/sys/net/core/bpf_jit_enable", "0\n");
    assert_eq!(obstacle(&preflight(&tree)).id, "jit");

    let tree = healthy();
    tree.write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    assert_eq!(notes(&preflight(&tree), "lockdown").len(), 1);

    let tree = healthy();
    tree.write("sys/devices/system/cpu/possible", "0-8191\n");
    let report = preflight(&tree);
    assert!(obstacle(&report).why.contains("4096 CPUs are supported"), "{report}");
}

#[test]
fn the_configuration_comes_from_boot_or_packed_from_proc() {
    let tree = healthy();
    let boot = format!("boot/config-{RELEASE}");
    let broken = CONFIG.replace("CONFIG_BPF_JIT=y", "CONFIG_BPF_JIT=m");
    tree.write(&boot, &broken);
    assert!(obstacle(&preflight(&tree)).what.contains("without CONFIG_BPF_JIT"));

    tree.remove(&boot);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(CONFIG.replace("CONFIG_BPF_SYSCALL=y\n", "").as_bytes()).unwrap();
    tree.write("proc/config.gz", packed.finish().unwrap());
    assert!(obstacle(&preflight(&tree)).what.contains("without CONFIG_BPF_SYSCALL"));

    for unreadable in ["", "no gzip"] {
        tree.write("proc/config.gz", unreadable);
        let report = preflight(&tree);
        assert!(report.can_attach() && notes(&report, "config").len() == 1, "{report}");
    }
}

#[test]
fn json_has_the_verdict_and_every_finding() {
    let tree = healthy();
    tree.remove("sys/kernel/sched_ext");
    let output = doctor(&tree, &["--json"]);
    assert_eq!(output.status.code(), Some(3));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["can_attach"], false);
    assert_eq!(value["exit_code"], 3);
    assert_eq!(value["kernel"], RELEASE);
    assert_eq!(value["machine"], "1 LLC domain x 4 cores: [0 1 2 3]");
    assert!(value["scheduler"].is_null());
    let findings = value["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["id"] == "sched_ext").unwrap();
    assert_eq!(finding["severity"], "missing");
    for key in ["what", "why", "mend"] {
        assert!(!finding[key].as_str().unwrap().is_empty(), "{finding}");
    }
}

#[test]
fn an_empty_machine_is_described_not_a_panic() {
    let tree = Tree::new();
    let report = preflight(&tree);
    assert_eq!(report.exit(), Exit::Unsupported);
    assert!(report.refusal().unwrap().contains("no sched_ext"));
    assert_eq!(doctor(&tree, &[]).status.code(), Some(3));
}
