// SPDX-License-Identifier: GPL-2.0-only
//! Policy vtime shares by weight: checked against the model kernel.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod model;

use hearth::dispatcher::Config;
use hearth::ids::CpuId;
use hearth::topology::Topology;
use model::{HOG, Habit, set_of, sim};

const SECOND: u64 = 1_000_000_000;
const SLICE: u64 = 5_000_000;

fn config() -> Config {
    Config { max_tasks: 256, ..Config::default() }
}

fn hog(weight: u32) -> Habit {
    Habit { weight, ..HOG }
}

/// Runs hogs of these weights, and compares each one's share with what its weight says.
fn check_shares(topology: Topology, weights: &[u32], allowed: Option<&[u32]>, tolerance: f64) {
    let cpus = allowed.map_or(topology.cpus.len(), <[u32]>::len) as f64;
    let set = allowed.map(|cpus| set_of(&topology, cpus));
    let mut sim = sim(topology, "vtime", config(), 1);
    for &weight in weights {
        sim.kernel.spawn(hog(weight), set.clone(), CpuId(0));
    }
    sim.run(10 * SECOND);
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    for (task, &weight) in sim.kernel.tasks.iter().zip(weights) {
        let share = task.total_ran_ns as f64 / (10 * SECOND) as f64;
        let fair = f64::from(weight) / total * cpus;
        assert!((share / fair - 1.0).abs() < tolerance, "weight {weight}: {share:.3} of {fair:.3} CPUs");
    }
    assert_eq!(sim.dispatcher.stats().anomalies, 0);
}

#[test]
fn weights_1_and_3_share_a_cpu_1_to_3() {
    check_shares(Topology::grid(1, 1, 1), &[100, 300], None, 0.05);
}

#[test]
fn many_weights_share_a_cpu() {
    check_shares(Topology::grid(1, 1, 1), &[100, 300, 200, 50, 100, 25], None, 0.05);
}

#[test]
fn weights_1_and_3_share_two_cpus() {
    check_shares(Topology::grid(1, 2, 1), &[100, 300, 100, 300, 100, 300], None, 0.05);
}

#[test]
fn pinned_tasks_share_their_cpu_by_weight() {
    check_shares(Topology::grid(1, 4, 1), &[100, 300, 100], Some(&[2]), 0.05);
}

#[test]
fn equal_hogs_share_two_domains() {
    check_shares(Topology::grid(2, 2, 1), &[100; 8], None, 0.05);
}

#[test]
fn pinned_and_free_tasks_both_get_their_share() {
    // Two pinned to CPU 0 and two free ones on two CPUs: half a CPU each.
    let topology = Topology::grid(1, 2, 1);
    let pinned = set_of(&topology, &[0]);
    let mut sim = sim(topology, "vtime", config(), 1);
    for i in 0..4 {
        sim.kernel.spawn(HOG, (i < 2).then(|| pinned.clone()), CpuId(0));
    }
    sim.run(10 * SECOND);
    for task in &sim.kernel.tasks {
        let share = task.total_ran_ns as f64 / (10 * SECOND) as f64;
        assert!((share - 0.5).abs() < 0.05, "{share}");
    }
}

#[test]
fn a_sleeper_waits_at_most_a_slice_among_hogs() {
    for cpus in [1, 2] {
        let mut sim = sim(Topology::grid(1, cpus, 1), "vtime", config(), 1);
        for _ in 0..6 {
            sim.kernel.spawn(HOG, None, CpuId(0));
        }
        sim.run(SECOND);
        let sleeper = Habit { run_ns: 100_000, sleep_ns: 20_000_000, bursts: 0, weight: 100 };
        let task = sim.kernel.spawn(sleeper, None, CpuId(0));
        sim.run(SECOND); // a new task queues up behind all others, once
        sim.reset_waits();
        sim.run(5 * SECOND);
        let task = &sim.kernel.tasks[task];
        assert!(task.runs > 200, "{} runs", task.runs);
        assert!(task.max_wait_ns <= SLICE + 100_000, "waited {} us", task.max_wait_ns / 1000);
    }
}

#[test]
fn a_pinned_sleeper_is_not_starved_by_pinned_hogs() {
    let topology = Topology::grid(1, 4, 1);
    let pinned = set_of(&topology, &[0]);
    let mut sim = sim(topology, "vtime", config(), 1);
    for i in 0..7 {
        sim.kernel.spawn(HOG, (i < 3).then(|| pinned.clone()), CpuId(0));
    }
    sim.run(3 * SECOND);
    let sleeper = Habit { run_ns: 100_000, sleep_ns: 20_000_000, bursts: 0, weight: 100 };
    let task = sim.kernel.spawn(sleeper, Some(pinned), CpuId(0));
    sim.run(SECOND); // a new task queues up behind all others, once
    assert!(sim.kernel.tasks[task].max_wait_ns <= 4 * SLICE, "{}", sim.kernel.tasks[task].max_wait_ns);
    sim.reset_waits();
    sim.run(3 * SECOND);
    assert!(sim.kernel.tasks[task].max_wait_ns <= SLICE + 100_000, "{}", sim.kernel.tasks[task].max_wait_ns);
}

#[test]
fn a_long_sleep_earns_no_more_than_a_slice() {
    let mut sim = sim(Topology::grid(1, 1, 1), "vtime", config(), 1);
    let hog = sim.kernel.spawn(HOG, None, CpuId(0));
    let late = Habit { run_ns: 1_000_000, sleep_ns: 5 * SECOND, bursts: 0, weight: 100 };
    let sleeper = sim.kernel.spawn(late, None, CpuId(0));
    sim.run(5 * SECOND);
    // It wakes after five seconds and wants the CPU for good.
    sim.kernel.tasks[sleeper].habit = HOG;
    sim.run(100_000_000);
    sim.reset_waits();
    sim.run(SECOND);
    assert!(sim.kernel.tasks[hog].max_wait_ns <= 2 * SLICE + 100_000);
}
