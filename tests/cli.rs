// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `hearth`: exit codes, help, JSON, pipes, and the programs that it starts.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fixtures;

use fixtures::{Tree, f1_phantom_cpus, f6_smt_off};
use hearth::topology::{Topology, parse_cpu_list};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const HEARTH: &str = env!("CARGO_BIN_EXE_hearth");

fn hearth(args: &[&str]) -> Output {
    Command::new(HEARTH).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_documents_every_exit_code() {
    let output = hearth(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    for part in [
        "0  ok",
        "1  a check failed",
        "2  usage",
        "3  this machine",
        "4  ejected",
        "5  someone",
        "6  the policy",
    ] {
        assert!(help.contains(part), "{part:?} is not in\n{help}");
    }
    for command in ["run", "status", "monitor", "bench", "calibrate", "doctor", "topology", "policies"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in\n{help}");
    }
    assert_eq!(stdout(&hearth(&["-V"])), format!("hearth {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn usage_errors_are_2_and_go_to_standard_error() {
    for args in
        [&[][..], &["nonsense"], &["doctor", "--nonsense"], &["topology", "--root"], &["policies", "a", "b"]]
    {
        let output = hearth(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["--help"][..], &["policies"], &["policies", "--json"], &["topology", "--json"]] {
        let mut child =
            Command::new(HEARTH).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The reader goes away before the first byte is read.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(HEARTH).arg("policies").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: cannot write to standard output: "), "{}", stderr(&output));
}

#[test]
fn policies_are_listed_and_described() {
    let output = hearth(&["policies"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("fifo "), "{}", stdout(&output));

    let rows: serde_json::Value = serde_json::from_slice(&hearth(&["policies", "--json"]).stdout).unwrap();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fifo") && names.contains(&"vtime"), "{names:?}");

    let one = stdout(&hearth(&["policies", "vtime"]));
    assert!(one.starts_with("vtime  ") && one.contains("no parameters"), "{one}");

    let output = hearth(&["policies", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("fifo, vtime"), "{}", stderr(&output));
}

#[test]
fn topology_of_another_machine() {
    let tree = f1_phantom_cpus();
    let root = tree.path().to_str().unwrap();
    let text = stdout(&hearth(&["topology", "--root", root]));
    assert!(text.contains("1 LLC domain x 8 cores x 2 threads: [0,8 1,9"), "{text}");
    assert!(text.contains("0-15 (16 of 32 possible)"), "{text}");
    assert!(!text.contains("allowed"), "this process does not run there: {text}");

    let value: serde_json::Value =
        serde_json::from_slice(&hearth(&["topology", "--json", "--root", root]).stdout).unwrap();
    let machine: Topology = serde_json::from_value(value["machine"].clone()).unwrap();
    assert_eq!(machine, Topology::from_sysfs(tree.path()).unwrap());
    assert!(value["allowed"].is_null() && value["picture"].is_string());
}

#[test]
fn c07_ids_are_printed_as_the_kernel_numbers_them() {
    let tree = f6_smt_off();
    let text = stdout(&hearth(&["topology", "--root", tree.path().to_str().unwrap()]));
    assert!(text.contains("[0 2 4 6 8 10 12 14]"), "{text}");
}

#[test]
fn topology_errors_name_the_file() {
    let tree = Tree::new();
    let root = tree.path().to_str().unwrap();
    let output = hearth(&["topology", "--root", root]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cpu/online"), "{}", stderr(&output));

    tree.lists("0-9999", "0-1");
    let output = hearth(&["topology", "--root", root]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("4096 CPUs are supported"), "{}", stderr(&output));
}

#[test]
fn c23_a_pinned_process_still_sees_the_whole_machine() {
    let ask = |pinned_to: Option<u32>| -> serde_json::Value {
        let mut command = match pinned_to {
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &cpu.to_string(), HEARTH]);
                command
            }
            None => Command::new(HEARTH),
        };
        let output = command.args(["topology", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let free = ask(None);
    let last = free["allowed"].as_array().unwrap().last().unwrap().as_u64().unwrap();
    let pinned = ask(Some(u32::try_from(last).unwrap()));
    assert_eq!(pinned["machine"], free["machine"], "the machine does not shrink");
    assert_eq!(pinned["allowed"], serde_json::json!([last]), "the share does, and has the kernel's id");

    let online = parse_cpu_list(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap()).unwrap();
    assert_eq!(pinned["machine"]["cpus"].as_array().unwrap().len(), online.len());
}

#[test]
fn c23_isolated_cpus_are_still_cpus() {
    let tree = Tree::new();
    tree.lists("0-3", "0-3").write("cpu/isolated", "3\n");
    let text = stdout(&hearth(&["topology", "--root", tree.path().to_str().unwrap()]));
    assert!(text.contains("[0 1 2 3]") && text.contains("isolated  3 "), "{text}");
    tree.write("cpu/isolated", "\n");
    assert!(!stdout(&hearth(&["topology", "--root", tree.path().to_str().unwrap()])).contains("isolated"));
}

/// Puts a program into the tree. Another process writes it: a file that this one still holds open for writing, if only
/// in a child that another test is just starting, cannot be started ("text file busy").
fn install(tree: &Tree, path: &str, command: &str, content: &str) -> PathBuf {
    let program = tree.join(path);
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let command = format!("{command} > \"$2\" && chmod 755 \"$2\"");
    let status = Command::new("sh").args(["-c", &command, "sh", content]).arg(&program).status().unwrap();
    assert!(status.success());
    program
}

/// A copy of `hearth` in a directory of its own: siblings are looked for beside it.
fn copy_of_hearth(tree: &Tree) -> PathBuf {
    install(tree, "bin/hearth", "cat \"$1\"", HEARTH)
}

fn script(tree: &Tree, path: &str, content: &str) {
    install(tree, path, "printf %s \"$1\"", content);
}

#[test]
fn run_and_bench_become_their_siblings() {
    let tree = Tree::new();
    let copy = copy_of_hearth(&tree);
    for (command, sibling) in [("run", "scx_hearth"), ("bench", "hearth-bench")] {
        // Far from it first, then beside it.
        for dir in ["path", "bin"] {
            script(&tree, &format!("{dir}/{sibling}"), &format!("#!/bin/sh\necho {dir} \"$@\"\nexit 41\n"));
            let output = Command::new(&copy)
                .args([command, "--help", "-V", "--policy", "fifo", "--", "x y"])
                .env("PATH", format!("{}:/usr/bin:/bin", tree.join("path").display()))
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(41), "{}", stderr(&output));
            assert_eq!(stdout(&output), format!("{dir} --help -V --policy fifo -- x y\n"));
        }
    }
}

#[test]
fn a_missing_or_broken_sibling_is_3() {
    let tree = Tree::new();
    let copy = copy_of_hearth(&tree);
    let run = || Command::new(&copy).args(["run"]).env("PATH", "").output().unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(3));
    let message = stderr(&output);
    assert!(
        message.contains("scx_hearth") && message.contains("cargo build --release -p scx_hearth"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");

    tree.write("bin/scx_hearth", "not a program");
    let output = run();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).starts_with("error: cannot start "), "{}", stderr(&output));
}
