// SPDX-License-Identifier: GPL-2.0-only
//! `hearth status` and `hearth monitor`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const HEARTH: &str = env!("CARGO_BIN_EXE_hearth");

/// `hearth status` where /sys has these files below kernel/sched_ext.
fn status(files: &[(&str, &str)], more: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join("kernel/sched_ext").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    Command::new(HEARTH).args(["status", "--sysfs"]).arg(dir.path()).args(more).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn c56_the_kernel_says_who_is_in_charge() {
    for (files, code, text) in [
        (&[][..], 3, "no sched_ext"),
        (&[("state", "disabled\n")], 1, "own scheduler is in charge"),
        // An ejected scheduler's name may stay for a moment.
        (&[("state", "disabled\n"), ("root/ops", "hearth_0.1.0\n")], 1, "own scheduler is in charge"),
        (
            &[("state", "enabled\n"), ("root/ops", "hearth_0.1.0_x86_64\n")],
            0,
            "hearth_0.1.0_x86_64 is in charge (",
        ),
        (
            &[("state", "enabled\n"), ("root/ops", "other_1.0\n")],
            5,
            "other_1.0 is in charge, which is not Hearth",
        ),
        (&[("state", "enabled\n"), ("root/ops", "hearthside\n")], 5, "which is not Hearth"),
        (&[("state", "enabling\n")], 5, "without a name"),
        (
            &[("state", "enabled"), ("root/ops", "hearth"), ("switch_all", "0"), ("nr_rejected", "3")],
            0,
            "only tasks that ask for it (SCHED_EXT).\nIt refused 3 tasks.",
        ),
    ] {
        let output = status(files, &[]);
        assert_eq!(output.status.code(), Some(code), "{files:?}");
        assert!(stdout(&output).contains(text), "{files:?}: {}", stdout(&output));
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn status_for_scripts() {
    let output = status(
        &[
            ("state", "enabled\n"),
            ("root/ops", "hearth_0.1.0\n"),
            ("switch_all", "1\n"),
            ("enable_seq", "7\n"),
        ],
        &["--json"],
    );
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "state": "enabled", "ops": "hearth_0.1.0", "hearth": true, "all_tasks": true,
            "rejected": null, "attached_times": 7,
        })
    );
    let value: serde_json::Value = serde_json::from_slice(&status(&[], &["--json"]).stdout).unwrap();
    assert!(value["state"].is_null() && value["hearth"] == false);
}

/// Another process writes it: a file that this one still holds open for writing, if only in a child that another test
/// is just starting, cannot be started ("text file busy").
fn script(path: &Path, content: &str) {
    let command = ["-c", "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", content];
    assert!(Command::new("sh").args(command).arg(path).status().unwrap().success());
}

#[test]
fn monitor_becomes_the_daemons_own() {
    let dir = tempfile::tempdir().unwrap();
    // The daemon is looked for beside the program first, where the real one may be: use a copy elsewhere.
    script(&dir.path().join("scx_hearth"), "#!/bin/sh\necho \"$@\"\nexit 41\n");
    let bin = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg(HEARTH).arg(bin.path()).status().unwrap().success());
    let hearth = bin.path().join("hearth");
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    for (args, handed_on) in [
        (&[][..], "--monitor 1\n"),
        (&["5", "--json"], "--monitor 5 --json\n"),
        (&["--socket", "/x y"], "--monitor 1 --socket /x y\n"),
    ] {
        let output = Command::new(&hearth).arg("monitor").args(args).env("PATH", &path).output().unwrap();
        assert_eq!(output.status.code(), Some(41), "{args:?}");
        assert_eq!(stdout(&output), handed_on, "{args:?}");
    }
    for bad in ["0", "-1", "x", "86401"] {
        let output = Command::new(&hearth).args(["monitor", bad]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
}
