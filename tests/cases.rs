// SPDX-License-Identifier: GPL-2.0-only
//! Failures that similar systems had, as inputs to survive. Each test carries the number of its case.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod model;

use hearth::cpuset::CpuSet;
use hearth::dispatcher::{Config, Dispatcher};
use hearth::event::{CpuStatus, Event, Outcome, Runnable, Why};
use hearth::ids::{CpuId, Nanos};
use hearth::lifecycle::State;
use hearth::limits::{MAX_CHARGE_SLICES, RESCUE_NS, WATCHDOG_NS};
use hearth::policy::{Policy, vtime::Vtime};
use hearth::reason::Reason;
use hearth::topology::Topology;
use model::facts::{MS, SECOND, SLICE, config, dispatcher, poll_all, status, task, wakeup};
use model::{HOG, Habit, Place, set_of, sim};

#[test]
fn c08_a_cpu_goes_away() {
    // CPU 23 was there when the tasks last ran; the machine now has CPUs 0 to 7.
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 8, 1), policy, config(64));
        for (i, prev) in [23, u32::MAX, u32::MAX - 1, 8].into_iter().enumerate() {
            let id = task(i as u32, 1);
            // Its affinity names CPUs that are gone, too.
            d.handle(1, &Event::Affinity(id, CpuSet::of(64, [CpuId(23), CpuId(i as u32)])));
            d.handle(1, &Event::Runnable(wakeup(id, 1, prev)));
        }
        // A mask without any CPU that is left: as in the kernel, it may run anywhere.
        d.handle(1, &Event::Affinity(task(9, 1), CpuSet::of(64, [CpuId(40)])));
        d.handle(1, &Event::Runnable(wakeup(task(9, 1), 1, 40)));
        for cpu in [8, 23, 63, u32::MAX] {
            d.handle(2, &Event::Cpu(status(cpu, None, 0)));
            d.handle(2, &Event::Ask(CpuId(cpu)));
        }
        let commands = poll_all(&mut d, 3);
        assert_eq!(commands.len(), 5, "{policy}");
        assert!(commands.iter().all(|c| c.cpu.0 < 8));
        let pinned = commands.iter().filter(|c| c.task.idx < 4);
        assert!(pinned.clone().count() == 4 && pinned.clone().all(|c| c.cpu.0 == c.task.idx), "{commands:?}");
    }
}

#[test]
fn c07_gaps_in_cpu_numbers() {
    // SMT is off: CPUs 0, 2, ... 14 are online. Eight tasks use all eight, by their own numbers.
    let mut builder = Topology::builder().llc();
    for _ in 0..8 {
        builder = builder.cores(1, 1, 1024).offline(1);
    }
    let topology = builder.build().unwrap();
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(topology.clone(), policy, config(16));
        for i in 0..8 {
            d.handle(1, &Event::Runnable(wakeup(task(i, 1), 1, 0)));
        }
        let mut cpus: Vec<u32> = poll_all(&mut d, 1).iter().map(|c| c.cpu.0).collect();
        cpus.sort_unstable();
        assert_eq!(cpus, [0, 2, 4, 6, 8, 10, 12, 14]);
    }
}

#[test]
fn c11_every_interleaving_of_idle_insert_and_ask() {
    // Two CPUs, busy; one task wakes. CPU 1 becomes idle at some moment: the facts of that (its status, its ask) and the wakeup
    // and the rounds of the dispatcher come in every order. The task must be on its way to CPU 1 after the last round.
    let events = ["idle", "wakeup", "ask", "round", "round"];
    for policy in ["fifo", "vtime"] {
        for order in permutations(events.len()) {
            let mut d = dispatcher(Topology::grid(1, 2, 1), policy, config(8));
            for cpu in 0..2 {
                d.handle(1, &Event::Cpu(status(cpu, Some(task(cpu, 1)), 0)));
            }
            let mut commands = Vec::new();
            for &i in &order {
                match events[i] {
                    "idle" => d.handle(2, &Event::Cpu(status(1, None, 0))),
                    "wakeup" => d.handle(2, &Event::Runnable(wakeup(task(2, 1), 1, 0))),
                    "ask" => d.handle(2, &Event::Ask(CpuId(1))),
                    _ => commands.extend(poll_all(&mut d, 2)),
                }
            }
            // The driver comes back as long as the deadline has passed, with fresh status words.
            commands.extend(poll_all(&mut d, 3));
            let names: Vec<&str> = order.iter().map(|&i| events[i]).collect();
            let last = commands.last().unwrap_or_else(|| panic!("{policy} {names:?}: never decided"));
            assert_eq!(last.cpu, CpuId(1), "{policy} {names:?}: {commands:?}");
        }
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    (0..n)
        .flat_map(|at| {
            shorter.iter().map(move |p| {
                let mut p = p.clone();
                p.insert(at, n - 1);
                p
            })
        })
        .collect()
}

#[test]
fn c11_as_many_hogs_as_cpus_and_a_sleeper() {
    for policy in ["fifo", "vtime"] {
        let mut sim = sim(Topology::grid(2, 2, 1), policy, config(16), 1);
        for i in 0..4 {
            sim.kernel.spawn(HOG, None, CpuId(i));
        }
        let habit = Habit { run_ns: 50_000, sleep_ns: 3 * MS, bursts: 0, weight: 100 };
        sim.kernel.spawn(habit, None, CpuId(0));
        sim.run(5 * SECOND);
        assert!(sim.max_wait_ns() <= 2 * SLICE, "{policy}: {} us", sim.max_wait_ns() / 1000);
    }
}

#[test]
fn c13_two_thousand_hogs() {
    for policy in ["fifo", "vtime"] {
        let mut sim = sim(Topology::grid(2, 2, 1), policy, config(4096), 1);
        for i in 0..2000 {
            sim.kernel.spawn(HOG, None, CpuId(i % 4));
        }
        let interactive = Habit { run_ns: 200_000, sleep_ns: 30 * MS, bursts: 0, weight: 100 };
        for i in 0..4 {
            sim.kernel.spawn(interactive, None, CpuId(i));
        }
        sim.run(20 * SECOND);
        let waited_ns = sim.max_wait_ns();
        assert!(waited_ns < WATCHDOG_NS / 2, "{policy}: {} ms", waited_ns / MS);
        assert!(waited_ns < RESCUE_NS, "{policy}: the kernel side had to rescue: {} ms", waited_ns / MS);
    }
}

#[test]
fn c20_the_dispatchers_cpu_is_not_idle() {
    for (policy, penalty) in [("fifo", None), ("vtime", None), ("fifo", Some(3)), ("vtime", Some(3))] {
        let config = Config { dispatcher_cpu: Some(CpuId(0)), dispatcher_cpu_penalty: penalty, ..config(64) };
        let mut sim = sim(Topology::grid(1, 4, 1), policy, config, 1);
        sim.keep_commands = true;
        for _ in 0..3 {
            sim.kernel.spawn(HOG, None, CpuId(0));
        }
        sim.run(SECOND);
        assert!(sim.commands.iter().all(|c| c.cpu != CpuId(0)), "{policy} {penalty:?}");
        // With more tasks than the other CPUs: never, or when its handicap is outweighed.
        for _ in 0..20 {
            sim.kernel.spawn(HOG, None, CpuId(0));
        }
        sim.run(SECOND);
        let used = sim.commands.iter().any(|c| c.cpu == CpuId(0));
        assert_eq!(used, penalty.is_some(), "{policy} {penalty:?}");
    }
}

#[test]
fn c20_the_dispatchers_cpu_is_used_where_there_is_no_other() {
    for policy in ["fifo", "vtime"] {
        // By a task that may use no other, and by all on a machine of one CPU.
        let config = Config { dispatcher_cpu: Some(CpuId(0)), ..config(64) };
        let topology = Topology::grid(1, 4, 1);
        let mut pinned = sim(topology.clone(), policy, config.clone(), 1);
        for _ in 0..3 {
            pinned.kernel.spawn(HOG, Some(set_of(&topology, &[0])), CpuId(0));
        }
        let mut single = sim(Topology::grid(1, 1, 1), policy, config, 1);
        for _ in 0..3 {
            single.kernel.spawn(HOG, None, CpuId(0));
        }
        for mut sim in [pinned, single] {
            sim.run(SECOND);
            assert!(sim.max_wait_ns() <= 4 * SLICE, "{policy}: {} us", sim.max_wait_ns() / 1000);
        }
    }
}

#[test]
fn c20_the_dispatchers_own_class_is_not_a_hog() {
    // While the dispatcher runs, a real-time task is on its CPU: itself.
    let config = Config { dispatcher_cpu: Some(CpuId(0)), ..config(8) };
    let mut d = dispatcher(Topology::grid(1, 2, 1), "fifo", config);
    d.handle(1, &Event::Cpu(CpuStatus { held: true, ..status(0, None, 0) }));
    d.handle(1, &Event::Affinity(task(0, 1), CpuSet::of(2, [CpuId(0)])));
    d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    let commands = poll_all(&mut d, 1);
    assert_eq!((commands.len(), commands[0].cpu, commands[0].reason), (1, CpuId(0), Reason::OnlyAllowed));
}

#[test]
fn c21_affinity_shrinks_in_flight() {
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 24, 1), policy, config(8));
        for cpu in 0..23 {
            d.handle(1, &Event::Cpu(CpuStatus { other: true, ..status(cpu, None, 0) }));
        }
        let id = task(0, 1);
        d.handle(1, &Event::Runnable(wakeup(id, 1, 23)));
        let command = d.poll(1).unwrap();
        assert_eq!(command.cpu, CpuId(23));
        // The mask shrinks to 0-3 while the decision is on its way, and the fact of it comes only later.
        d.committed(2, &command, Outcome::NotAllowed);
        match d.poll(2) {
            Some(again) => {
                assert_ne!(again.cpu, CpuId(23), "{policy}: another CPU than the refused one");
                d.committed(3, &again, Outcome::NotAllowed);
            }
            // The others are busy: it waits in its domain until one asks.
            None => assert!(policy == "vtime" && d.wants_asks()),
        }
        d.handle(4, &Event::Affinity(id, CpuSet::of(24, (0..4).map(CpuId))));
        // It shrinks again before it runs.
        d.handle(5, &Event::Affinity(id, CpuSet::of(24, [CpuId(2)])));
        d.handle(5, &Event::Cpu(status(2, None, 0)));
        let commands = poll_all(&mut d, 6);
        assert_eq!(
            commands.iter().map(|c| (c.task, c.cpu)).collect::<Vec<_>>(),
            [(id, CpuId(2))],
            "{policy}"
        );
    }
}

#[test]
fn c21_a_refusal_lasts_until_the_mask_is_told_again() {
    let mut d = dispatcher(Topology::grid(1, 2, 1), "fifo", config(8));
    d.handle(1, &Event::Cpu(CpuStatus { other: true, ..status(0, None, 0) }));
    let id = task(0, 1);
    d.handle(1, &Event::Runnable(wakeup(id, 1, 1)));
    let command = d.poll(1).unwrap();
    assert_eq!(command.cpu, CpuId(1));
    d.committed(2, &command, Outcome::NotAllowed);
    assert_ne!(d.poll(2).map(|again| again.cpu), Some(CpuId(1)), "the refused CPU is not asked for again");
    // The shim marks the task: its next record comes with the mask, which allowed the CPU all the time.
    d.handle(3, &Event::Affinity(id, CpuSet::of(2, (0..2).map(CpuId))));
    d.handle(3, &Event::Runnable(wakeup(id, 2, 1)));
    assert_eq!(d.poll(3).map(|command| command.cpu), Some(CpuId(1)));
}

#[test]
fn c21_a_refusal_for_ever_ends() {
    // A kernel that refuses every CPU does not keep the dispatcher busy: the task is left to the next rescan.
    let mut d = dispatcher(Topology::grid(1, 4, 1), "fifo", config(8));
    d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    let mut commands = 0;
    while let Some(command) = d.poll(1) {
        d.committed(1, &command, Outcome::NotAllowed);
        commands += 1;
        assert!(commands < 1000, "never ends");
    }
    assert_eq!((d.stats().left_to_rescan, d.deadline()), (1, None));
    let rescan = Runnable { why: Why::Rescan, ..wakeup(task(0, 1), 1, 0) };
    d.handle(2, &Event::Runnable(rescan));
    assert!(d.poll(2).is_some(), "the rescan brings it back");
}

#[test]
fn c21_masks_change_while_everything_moves() {
    for policy in ["fifo", "vtime"] {
        let topology = Topology::grid(2, 4, 1);
        let mut sim = sim(topology.clone(), policy, config(64), 7);
        for i in 0..16 {
            let habit = Habit { run_ns: 300_000, sleep_ns: 200_000, bursts: 0, weight: 100 };
            sim.kernel.spawn(habit, None, CpuId(i % 8));
        }
        for round in 0..2000u32 {
            sim.run(200_000);
            let low = round * 7 % 8;
            let set = set_of(&topology, &[low, (low + round % 3) % 8]);
            sim.kernel.set_affinity((round % 16) as usize, Some(set));
        }
        sim.run(100 * MS); // the model panics if a task runs where it may not
        assert!(sim.max_wait_ns() < 100 * MS, "{policy}: {} us", sim.max_wait_ns() / 1000);
    }
}

#[test]
fn c25_a_waiter_behind_a_long_run_moves_within_its_bound() {
    // A task waits for its CPU, with a bound of 1 ms, behind one that runs for a second. Another CPU is idle by then.
    struct Stubborn(Config);
    impl Policy for Stubborn {
        fn name(&self) -> &'static str {
            "stubborn"
        }
        fn place(
            &mut self,
            _now: Nanos,
            task: &Runnable,
            _view: &hearth::view::View,
        ) -> hearth::policy::Placement {
            hearth::policy::Placement::Wait {
                cpu: task.prev_cpu,
                slice_ns: self.0.slice_ns,
                at_most_ns: MS,
                reason: Reason::ShortestLine { ahead: 1 },
            }
        }
        fn work_conserving(&self) -> bool {
            false
        }
    }
    let topology = Topology::grid(1, 2, 1);
    let config = Config { slice_ns: SECOND, ..config(8) };
    let d = Dispatcher::new(topology.clone(), config.clone(), Stubborn(config));
    let mut sim = model::Sim::new(topology, d, 1);
    let long = Habit { run_ns: SECOND, sleep_ns: 0, bursts: 1, weight: 100 };
    sim.kernel.spawn(long, None, CpuId(0));
    sim.run(MS);
    let waiter = sim.kernel.spawn(Habit { run_ns: MS, sleep_ns: 0, bursts: 1, weight: 100 }, None, CpuId(0));
    sim.run(20 * MS);
    assert_eq!(sim.kernel.tasks[waiter].prev_cpu, CpuId(1), "it ran elsewhere");
    let waited_ns = sim.kernel.tasks[waiter].max_wait_ns;
    assert!((MS..2 * MS).contains(&waited_ns), "{} us", waited_ns / 1000);
    assert_eq!(sim.dispatcher.stats().reasons.overdue, 1);
}

#[test]
fn c15_what_waits_for_a_held_cpu_moves() {
    for policy in ["fifo", "vtime"] {
        let mut sim = sim(Topology::grid(1, 2, 1), policy, config(32), 1);
        let habit = Habit { run_ns: 2 * MS, sleep_ns: MS, bursts: 0, weight: 100 };
        for i in 0..6 {
            sim.kernel.spawn(habit, None, CpuId(i % 2));
        }
        sim.run(100 * MS);
        sim.kernel.hold_cpu(CpuId(0), true);
        sim.run(50 * MS);
        sim.reset_waits();
        sim.run(SECOND);
        let aside = sim.kernel.cpus[0].aside;
        for (i, task) in sim.kernel.tasks.iter().enumerate() {
            let waits = matches!(task.place, Place::Hold(_) | Place::Own(_));
            let waited_ns =
                task.max_wait_ns.max(if waits { sim.kernel.now - task.runnable_since_ns } else { 0 });
            assert!(
                waited_ns < 50 * MS || aside == Some(i),
                "{policy}: task {i} waited {} us",
                waited_ns / 1000
            );
            assert_ne!(task.place, Place::Own(CpuId(0)), "{policy}: task {i} waits for the held CPU");
        }
    }
}

#[test]
fn c52_untracked_tasks_are_counted_and_ignored() {
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 2, 1), policy, config(4));
        for idx in [4, 5, 1_000_000, u32::MAX] {
            let id = task(idx, 1);
            d.handle(1, &Event::Affinity(id, CpuSet::of(2, [CpuId(1)])));
            d.handle(1, &Event::Runnable(wakeup(id, 1, 0)));
            d.handle(1, &Event::Weight(id, 300));
            d.handle(1, &Event::Cpu(status(0, Some(id), 0)));
            d.handle(1, &Event::Exec(id));
            d.handle(1, &Event::Exit(id));
        }
        assert_eq!(d.poll(2), None);
        assert_eq!(d.stats().untracked, 4 * 6);
        // A tracked one is served beside them.
        d.handle(3, &Event::Runnable(wakeup(task(3, 1), 1, 0)));
        assert_eq!(poll_all(&mut d, 3).len(), 1);
    }
}

#[test]
fn c53_a_million_short_tasks_in_bounded_rows() {
    // One in a hundred exits is never told. The tables cannot grow; what is checked is that rows stay usable.
    const ROWS: u32 = 64;
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 4, 1), policy, config(ROWS as usize));
        let mut missed = 0;
        for n in 0..1_000_000u32 {
            let id = task(n % ROWS, n / ROWS);
            let now = u64::from(n) * 50_000;
            d.handle(now, &Event::Runnable(wakeup(id, 0, n % 4)));
            let command = d.poll(now).unwrap_or_else(|| panic!("{policy}: task {n} is not served"));
            assert_eq!(command.task, id);
            d.committed(now, &command, Outcome::Done);
            let since_ns = now + 1;
            d.handle(now + 1, &Event::Cpu(CpuStatus { since_ns, ..status(command.cpu.0, Some(id), 0) }));
            if n % 100 == 0 {
                missed += u64::from(n + ROWS < 1_000_000);
            } else {
                d.handle(now + 2, &Event::Exit(id));
            }
            d.handle(now + 3, &Event::Cpu(status(command.cpu.0, None, 0)));
        }
        assert_eq!((d.stats().exits_missed, d.stats().anomalies), (missed, 0), "{policy}");
        assert!(!d.wants_asks() && d.deadline().is_none());
    }
}

#[test]
fn c53_a_late_fact_about_an_old_task_touches_nothing() {
    let mut d = dispatcher(Topology::grid(1, 2, 1), "fifo", config(4));
    d.handle(1, &Event::Runnable(wakeup(task(0, 7), 1, 0)));
    for old in
        [Event::Exit(task(0, 6)), Event::Runnable(wakeup(task(0, 6), 9, 0)), Event::Weight(task(0, 6), 5)]
    {
        d.handle(1, &old);
    }
    assert_eq!((d.stats().outdated, d.state_of(task(0, 7))), (3, Some(State::Queued)));
    // Generations and sequence numbers wrap around.
    d.handle(2, &Event::Runnable(wakeup(task(1, u32::MAX), u32::MAX, 0)));
    d.handle(2, &Event::Runnable(wakeup(task(1, u32::MAX), 0, 0)));
    d.handle(2, &Event::Exit(task(1, u32::MAX)));
    d.handle(2, &Event::Runnable(wakeup(task(1, 0), 1, 0)));
    assert_eq!((d.stats().outdated, d.stats().anomalies), (3, 0));
    assert_eq!(poll_all(&mut d, 2).len(), 2);
}

#[test]
fn c65_a_clock_jump_is_not_charged() {
    let topology = Topology::grid(1, 1, 1);
    let config = config(8);
    let mut d = Dispatcher::new(topology, config.clone(), Vtime::new(&config));
    let (suspended, other) = (task(0, 1), task(1, 1));
    for id in [suspended, other] {
        d.handle(1, &Event::Runnable(wakeup(id, 1, 0)));
    }
    poll_all(&mut d, 1);
    let before = d.policy().virtual_ns(suspended);
    // It was on the CPU when the machine was suspended for an hour, or the clock stepped back.
    for (seq, ran_ns) in [(2, 3600 * SECOND), (3, 2 * MS), (4, u64::MAX - 5)] {
        let stop = Runnable { ran_ns, why: Why::SliceUsed, ..wakeup(suspended, seq, 0) };
        d.handle(3600 * SECOND * u64::from(seq), &Event::Runnable(stop));
        poll_all(&mut d, 3600 * SECOND * u64::from(seq));
    }
    let charged_ns = d.policy().virtual_ns(suspended) - before;
    assert!(charged_ns <= 2 * MAX_CHARGE_SLICES * SLICE + 2 * MS, "charged {} ms", charged_ns / MS);
    assert_eq!(d.stats().charges_capped, 2);
}

#[test]
fn c65_time_that_runs_backwards_stands_still() {
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 2, 1), policy, config(8));
        let mut served = 0;
        for (i, now) in [1000 * SECOND, 5, 999 * SECOND, 0, 1001 * SECOND].into_iter().enumerate() {
            d.handle(now, &Event::Runnable(wakeup(task(i as u32, 1), 1, 0)));
            d.handle(now, &Event::Cpu(status(i as u32 % 2, None, 0)));
            d.handle(now, &Event::Timer);
            served += poll_all(&mut d, now).len();
        }
        assert_eq!(served, 5, "{policy}");
    }
}
