// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's command line: options, help, exit codes. Nothing here needs root or sched_ext, and nothing attaches.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output, Stdio};

const DAEMON: &str = env!("CARGO_BIN_EXE_scx_hearth");

/// Options with a number, and numbers that each of them refuses.
const NUMERIC: [&str; 10] = [
    "--slice-us",
    "--stats",
    "--monitor",
    "--exit-dump-len",
    "--dispatcher-cpu",
    "--spin-us",
    "--share-cpu",
    "--takeover-us",
    "--ring-kib",
    "--fault-late-us",
];

fn daemon(args: &[&str]) -> Output {
    Command::new(DAEMON).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn c39_odd_numbers_are_usage_errors() {
    for option in NUMERIC {
        for number in
            ["-1", "18446744073709551616", "1e9", "nan", "inf", "", " ", "0x10", "1_000", "10%", "1.5", "+-1"]
        {
            // --list-policies: what is taken for a number by mistake must not attach anything.
            let output = daemon(&["--list-policies", option, number]);
            assert_eq!(output.status.code(), Some(2), "{option} {number:?}");
            assert!(stderr(&output).starts_with("error: "), "{option} {number:?}: {}", stderr(&output));
            assert!(output.stdout.is_empty(), "{option} {number:?}");
        }
    }
}

#[test]
fn c39_bounds_are_kept_and_named() {
    for (option, number) in [
        ("--slice-us", "0"),
        ("--slice-us", "18446744073709551615"),
        ("--stats", "0"),
        ("--stats", "86401"),
        ("--monitor", "0"),
        ("--exit-dump-len", "16777217"),
        ("--spin-us", "1001"),
        ("--share-cpu", "1001"),
        ("--takeover-us", "999"),
        ("--ring-kib", "3"),
        ("--ring-kib", "131072"),
        ("--dispatcher-cpu", "4294967296"),
    ] {
        let output = daemon(&["--list-policies", option, number]);
        assert_eq!(output.status.code(), Some(2), "{option} {number}");
        assert!(stderr(&output).contains(option), "{option} {number}: {}", stderr(&output));
    }
}

#[test]
fn help_says_how_to_get_out_and_what_exit_codes_mean() {
    let help = stdout(&daemon(&["--help"]));
    for part in [
        "SysRq-S",
        "0  ok",
        "3  this machine cannot",
        "4  ejected",
        "5  someone else",
        "6  the policy failed",
        "--policy",
        "--list-policies",
        "--slice-us",
        "--stats",
        "--monitor",
        "--exit-dump-len",
        "--partial",
        "--check",
        "--log-level",
        "-V, --version",
    ] {
        assert!(help.contains(part), "{part:?} is not in\n{help}");
    }
    assert!(!help.contains("--fault"), "fault injection is not for everybody:\n{help}");
}

#[test]
fn version_names_the_build() {
    for flag in ["-V", "--version"] {
        let text = stdout(&daemon(&[flag]));
        assert!(text.starts_with(&format!("scx_hearth {} (", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(text.contains("shim by clang "), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn policies_are_listed() {
    let output = daemon(&["--list-policies"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("fifo "), "{}", stdout(&output));
    assert!(!stdout(&output).contains("panic"), "faulty policies are for tests: {}", stdout(&output));
}

#[test]
fn an_unknown_policy_or_level_is_a_usage_error() {
    let output = daemon(&["--policy", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("known are: fifo"), "{}", stderr(&output));
    assert_eq!(daemon(&["--log-level", "loud"]).status.code(), Some(2));
    assert_eq!(daemon(&["--monitor", "1", "--check"]).status.code(), Some(2));
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["--help"][..], &["-V"], &["--list-policies"]] {
        let mut child =
            Command::new(DAEMON).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args:?}");
    }
}

#[test]
fn c59_a_machine_that_cannot_attach_is_refused_in_one_message() {
    // In a user namespace nobody has the rights; --check would not attach even if they did.
    let output = Command::new("unshare").args(["-Ur", DAEMON, "--check"]).output();
    let Ok(output) = output else { return eprintln!("unshare is not there: not tested") };
    if stderr(&output).starts_with("unshare:") {
        return eprintln!("no user namespaces here: not tested");
    }
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.starts_with("error: this machine cannot attach a scheduler"), "{message}");
    assert!(message.contains("namespace") && message.contains("hearth doctor"), "{message}");
    assert!(output.stdout.is_empty());
}
