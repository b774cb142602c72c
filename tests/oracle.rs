// SPDX-License-Identifier: GPL-2.0-only
//! Random loads and random faults against the model kernel: no task is lost, decided twice or run where it may not be,
//! and once the faults end, every runnable task runs within a bound.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod model;

use hearth::dispatcher::Config;
use hearth::ids::CpuId;
use hearth::limits::STARVING_NS;
use hearth::policy::{Policy, registry};
use hearth::topology::Topology;
use model::{Faults, Habit, Place, Rng, Sim, sim};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct Plan {
    llcs: u32,
    cores: u32,
    threads: u32,
    tasks: u64,
    policy: &'static str,
    seed: u64,
    faults: Faults,
    dispatcher_cpu: bool,
    penalty: Option<u32>,
    /// Things done to the kernel while it runs: affinity changes, exits, forks, a higher class taking CPUs.
    meddle: u64,
}

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (1u32..=3, 1u32..=3, 1u32..=2, 1u64..24, any::<u64>(), any::<bool>());
    let faults = (0u64..4, 0u64..4, 0u64..4, 0u64..4, 0u64..60);
    let names: Vec<&'static str> = registry::list().map(|spec| spec.name).collect();
    let policy = prop::sample::select(names);
    (shape, faults, policy, prop::option::of(0u32..3)).prop_map(|(shape, faults, policy, penalty)| {
        let (llcs, cores, threads, tasks, seed, dispatcher_cpu) = shape;
        // A quarter of the runs goes without each kind of fault.
        let faults_per_mille = Faults {
            lose_record: faults.0 * 10,
            retry: faults.1 * 60,
            takeover: faults.2 * 50,
            lose_exit: faults.3 * 100,
        };
        Plan {
            llcs,
            cores,
            threads,
            tasks,
            policy,
            seed,
            faults: faults_per_mille,
            dispatcher_cpu,
            penalty,
            meddle: faults.4,
        }
    })
}

fn random_habit(rng: &mut Rng) -> Habit {
    let run_ns = 1_000 + rng.below(8 * MS);
    let sleep_ns = if rng.chance(300) { 0 } else { rng.below(10 * MS) };
    let bursts = if rng.chance(300) { 1 + rng.below(20) as u32 } else { 0 };
    Habit { run_ns, sleep_ns, bursts, weight: 1 + rng.below(400) as u32 }
}

fn random_set(topology: &Topology, rng: &mut Rng) -> Option<hearth::cpuset::CpuSet> {
    if rng.chance(500) {
        return None;
    }
    let cpus: Vec<u32> = topology.cpus.iter().map(|c| c.id.0).filter(|_| rng.chance(500)).collect();
    let one = [topology.cpus[rng.below(topology.cpus.len() as u64) as usize].id.0];
    Some(model::set_of(topology, if cpus.is_empty() { &one } else { &cpus }))
}

/// One random thing done to the kernel.
fn meddle<P: Policy>(sim: &mut Sim<P>, rng: &mut Rng) {
    let topology = sim.kernel.topology.clone();
    let task = rng.below(sim.kernel.tasks.len() as u64) as usize;
    match rng.below(6) {
        0 | 1 if sim.kernel.tasks[task].place != Place::Dead => {
            let set = random_set(&topology, rng);
            sim.kernel.set_affinity(task, set);
        }
        2 => sim.kernel.exit(task),
        3 if sim.kernel.tasks.len() < 60 => {
            let set = random_set(&topology, rng);
            let prev = topology.cpus[rng.below(topology.cpus.len() as u64) as usize].id;
            let habit = random_habit(rng);
            sim.kernel.spawn(habit, set, prev);
        }
        4 => {
            let cpu = topology.cpus[rng.below(topology.cpus.len() as u64) as usize].id;
            let held = sim.kernel.cpus[cpu.idx()].held;
            sim.kernel.hold_cpu(cpu, !held);
        }
        _ => {}
    }
}

fn run(plan: &Plan) {
    let topology = Topology::grid(plan.llcs, plan.cores, plan.threads);
    let config = Config {
        max_tasks: 128,
        dispatcher_cpu: plan.dispatcher_cpu.then_some(CpuId(0)),
        dispatcher_cpu_penalty: plan.penalty,
        ..Config::default()
    };
    let mut sim = sim(topology.clone(), plan.policy, config, plan.seed);
    let mut rng = Rng(plan.seed ^ 0xabcd);
    sim.kernel.faults = plan.faults;
    for _ in 0..plan.tasks {
        let (habit, set) = (random_habit(&mut rng), random_set(&topology, &mut rng));
        sim.kernel.spawn(habit, set, CpuId(rng.below(topology.cpus.len() as u64) as u32));
    }
    for _ in 0..200 {
        sim.run(MS);
        if rng.chance(plan.meddle * 10) {
            meddle(&mut sim, &mut rng);
        }
    }
    // The faults end. What they left is rescanned once, as the daemon does after a takeover.
    sim.kernel.faults = Faults::default();
    for cpu in &topology.cpus {
        sim.kernel.hold_cpu(cpu.id, false);
    }
    sim.kernel.lost = true;
    sim.run(200 * MS);
    sim.reset_waits();
    // Policies that order by weight or deadline let some wait until the aging rule of the dispatcher.
    let ordered = plan.policy != "fifo";
    sim.run(if ordered { 1500 * MS } else { 400 * MS });
    // Everybody in one line, each with a full slice (20 ms in nest), twice over for slack; and the aging rule.
    let alive = sim.kernel.tasks.iter().filter(|t| t.place != Place::Dead).count() as u64;
    let slice = if plan.policy == "nest" { 20 * MS } else { 5 * MS };
    let bound = (alive + 2) * slice * 2 + if ordered { STARVING_NS } else { 0 };
    let (longest, waited) = (sim.max_wait_ns(), sim.dispatcher.stats());
    assert!(longest <= bound, "waited {} us of at most {}; {waited:?}", longest / 1000, bound / 1000);
    if plan.faults.lose_record + plan.faults.takeover + plan.faults.lose_exit == 0 {
        assert_eq!(waited.anomalies, 0, "{waited:?}");
    }
}

proptest! {
    #[test]
    fn every_runnable_task_runs(plan in plans()) {
        run(&plan);
    }
}
