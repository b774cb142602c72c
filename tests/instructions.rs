// SPDX-License-Identifier: GPL-2.0-only
//! What a decision costs, in instructions: counted by callgrind, so the same on every run and under any load.
//!
//! Needs valgrind, and `cargo build --release --example count` before (this test does not build it: an optimised build takes
//! minutes). Without either it says so and passes.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::path::PathBuf;
use std::process::Command;

/// At most this many instructions per decision, the load that makes the events (about 330) included: what was measured
/// (in benches/dispatch.rs), and a tenth for other compilers.
const LIMITS: [(&str, u32, u32, u64); 4] = [
    ("fifo", 8, 1_000, 1_650),
    ("fifo", 256, 1_000, 2_050),
    ("vtime", 8, 1_000, 3_450),
    ("vtime", 256, 10_000, 3_800),
];

/// Ten times ten times the tasks may cost at most this many instructions more: a few levels of a tree.
const TASKS_GROWTH: u64 = 450;

/// The program in the release directory beside the one that this test runs from.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let target = test.parent()?.parent()?.parent()?;
    let path = target.join("release/examples/count");
    path.exists().then_some(path)
}

/// Instructions and decisions of so many rounds.
fn count(program: &PathBuf, policy: &str, cpus: u32, tasks: u32, rounds: u32) -> (u64, u64) {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([policy.to_string(), cpus.to_string(), tasks.to_string(), rounds.to_string()])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    let total =
        log.lines().find_map(|line| line.split_once("Collected : ")).unwrap_or_else(|| panic!("{log}")).1;
    let decisions = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    (total.trim().parse().unwrap(), decisions)
}

/// Instructions of one decision: what 500 rounds more cost.
fn per_decision(program: &PathBuf, policy: &str, cpus: u32, tasks: u32) -> u64 {
    let warm_up = tasks / 8 + 200;
    let (less, few) = count(program, policy, cpus, tasks, warm_up);
    let (more, many) = count(program, policy, cpus, tasks, warm_up + 500);
    (more - less) / (many - few)
}

#[test]
fn a_decision_costs_no_more_instructions_than_it_should() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let Some(program) = program() else {
        println!("skipped: build the counted program first: cargo build --release --example count");
        return;
    };
    for (policy, cpus, tasks, limit) in LIMITS {
        let instructions = per_decision(&program, policy, cpus, tasks);
        println!(
            "{policy}, {cpus} CPUs, {tasks} tasks: {instructions} instructions a decision (at most {limit})"
        );
        assert!(instructions <= limit, "{policy}, {cpus} CPUs, {tasks} tasks: {instructions} > {limit}");
    }
    for policy in ["fifo", "vtime"] {
        let (few, many) = (per_decision(&program, policy, 8, 100), per_decision(&program, policy, 8, 10_000));
        println!("{policy}, 8 CPUs: {few} instructions with 100 tasks, {many} with 10,000");
        assert!(many <= few + TASKS_GROWTH, "{policy}: {few} with 100 tasks, {many} with 10,000");
    }
}
