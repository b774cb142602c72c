// SPDX-License-Identifier: GPL-2.0-only
//! Warmth and completion times inside the dispatcher: fed by its facts, asked through the view, scored when the truth comes.
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../benches/load/estimating.rs"]
mod estimating;
mod model;

use estimating::Estimating;
use hearth::checked::{Checked, OnViolation};
use hearth::dispatcher::{Config, Dispatcher};
use hearth::event::{CpuStatus, Event, Runnable, Why};
use hearth::ids::{CpuId, LlcId, Nanos, TaskId};
use hearth::limits::{HELD_WAIT_NS, PRIOR_RUN_NS};
use hearth::policy::Policy;
use hearth::policy::fifo::Fifo;
use hearth::topology::Topology;
use model::facts::{MS, SECOND, config, poll_all, status, task, wakeup};
use model::{Faults, HOG, Habit, Sim, set_of};

const A: u32 = 0;
const US: Nanos = 1_000;

fn estimating(topology: Topology, config: Config) -> Dispatcher<Checked<Estimating>> {
    let policy = Estimating::new(&config);
    Dispatcher::new(topology, config, Checked::new(policy, OnViolation::Panic))
}

/// A machine of one CPU or more, driven by hand: tasks that run on a CPU one after the other.
struct Hand {
    d: Dispatcher<Checked<Estimating>>,
    now: Nanos,
    busy_ns: Vec<Nanos>,
    seqs: Vec<u32>,
}

impl Hand {
    fn new(topology: Topology) -> Self {
        let cpus = topology.cpus.len();
        Self { d: estimating(topology, config(8)), now: SECOND, busy_ns: vec![0; cpus], seqs: vec![0; 8] }
    }

    fn status(&mut self, cpu: u32, curr: Option<u32>, depth: u32) {
        let curr = curr.map(|t| task(t, 1));
        let busy_ns = self.busy_ns[cpu as usize];
        let status = CpuStatus { since_ns: self.now, busy_ns, ..status(cpu, curr, depth) };
        self.d.handle(self.now, &Event::Cpu(status));
    }

    fn wake(&mut self, idx: u32, cpu: u32, ran_ns: Nanos, why: Why) {
        self.seqs[idx as usize] += 1;
        let left_busy_ns = self.busy_ns[cpu as usize];
        let fact =
            Runnable { why, ran_ns, left_busy_ns, ..wakeup(task(idx, 1), self.seqs[idx as usize], cpu) };
        self.d.handle(self.now, &Event::Runnable(fact));
    }

    /// The task wakes, is placed, runs on `cpu` for `ran_ns` and sleeps; its record comes with its next wakeup.
    fn live(&mut self, idx: u32, cpu: u32, ran_ns: Nanos) {
        poll_all(&mut self.d, self.now);
        self.status(cpu, Some(idx), 0);
        self.now += ran_ns;
        self.busy_ns[cpu as usize] += ran_ns;
        self.status(cpu, None, 0);
        self.wake(idx, cpu, ran_ns, Why::Woken);
    }

    fn refill_ns(&self, idx: u32, cpu: u32) -> Nanos {
        self.d.view().refill_ns(task(idx, 1), CpuId(cpu), 0)
    }
}

#[test]
fn the_view_answers_from_what_the_facts_told() {
    let mut hand = Hand::new(Topology::grid(1, 2, 1));
    hand.wake(A, 0, 0, Why::New);
    let cold_ns: Nanos = hand.d.view().profile().levels.iter().map(|level| level.refill_ns).sum();
    assert_eq!((hand.refill_ns(A, 0), hand.d.view().service_ns(task(A, 1))), (cold_ns, PRIOR_RUN_NS));
    for _ in 0..10 {
        hand.live(A, 0, 300 * US);
    }
    let view = hand.d.view();
    assert_eq!(view.remembered(task(A, 1)).collect::<Vec<_>>(), [CpuId(0)]);
    assert_eq!(view.service_ns(task(A, 1)), 300 * US);
    assert!(hand.refill_ns(A, 0) < hand.refill_ns(A, 1));
    assert_eq!(view.refill_here_ns(task(A, 1), CpuId(0)), hand.refill_ns(A, 0));
    // An unknown task and an unknown CPU are no panic.
    assert_eq!(view.refill_ns(task(7, 9), CpuId(99), 5), 0);
    assert_eq!((view.wait_ns(CpuId(99)), view.queued(CpuId(99)), view.llc_cpus(LlcId(9))), (0, 0, 0));
}

#[test]
fn waiting_tasks_are_counted_where_they_wait() {
    let mut hand = Hand::new(Topology::grid(1, 1, 1));
    for idx in 0..2 {
        hand.wake(idx, 0, 0, Why::New);
        (0..10).for_each(|_| hand.live(idx, 0, 40 * US));
    }
    hand.wake(0, 0, 0, Why::Woken);
    poll_all(&mut hand.d, hand.now);
    let cpu = CpuId(0);
    assert_eq!((hand.d.view().queued(cpu), hand.d.view().queued_ns(cpu)), (2, 80 * US));
    assert_eq!(hand.d.view().wait_ns(cpu), 80 * US);
    hand.status(0, Some(0), 1);
    hand.now += 30 * US;
    hand.d.handle(hand.now, &Event::Timer);
    let view = hand.d.view();
    assert_eq!((view.queued(cpu), view.residual_ns(cpu), view.wait_ns(cpu)), (1, 10 * US, 50 * US));
    assert_eq!((view.median_residual_ns(cpu), view.wait_left_ns(task(1, 1))), (10 * US, Some(10 * US)));
    assert_eq!((view.wait_left_ns(task(0, 1)), view.burst_age_ns(task(0, 1))), (None, 0));
    hand.d.handle(hand.now, &Event::Exit(task(1, 1)));
    assert_eq!((hand.d.view().queued(cpu), hand.d.view().queued_ns(cpu)), (0, 0));
}

#[test]
fn a_held_cpu_is_not_free() {
    let mut hand = Hand::new(Topology::grid(1, 2, 1));
    let held = CpuStatus { held: true, ..status(0, None, 0) };
    hand.d.handle(hand.now, &Event::Cpu(held));
    assert_eq!(hand.d.view().wait_ns(CpuId(0)), HELD_WAIT_NS);
    assert_eq!(hand.d.view().wait_ns(CpuId(1)), 0);
}

#[test]
fn c25_a_long_run_on_the_warm_cpu_makes_the_waiter_leave() {
    // Task 0 is warm on CPU 0, where a hog or a short task runs; CPU 1 is idle and cold.
    let place = |other_ns: Nanos| {
        let mut hand = Hand::new(Topology::grid(1, 2, 1));
        for (idx, ran_ns) in [(1, other_ns), (A, 300 * US)] {
            hand.wake(idx, 0, 0, Why::New);
            (0..10).for_each(|_| hand.live(idx, 0, ran_ns));
        }
        poll_all(&mut hand.d, hand.now);
        hand.status(0, Some(1), 0);
        hand.status(1, None, 0);
        hand.wake(A, 0, 0, Why::Woken);
        poll_all(&mut hand.d, hand.now)[0].cpu
    };
    assert_eq!(place(5 * US), CpuId(0), "5 us are less than a refill");
    assert_eq!(place(4 * MS), CpuId(1), "4 ms are more");
}

#[test]
fn exec_and_exit_and_fork_leave_nothing() {
    let mut hand = Hand::new(Topology::grid(1, 1, 1));
    hand.wake(A, 0, 0, Why::New);
    (0..10).for_each(|_| hand.live(A, 0, 300 * US));
    let (warm_ns, cold_ns) = (hand.refill_ns(A, 0), hand.refill_ns(1, 0));
    assert_eq!(cold_ns, 0, "not known yet");
    hand.wake(1, 0, 0, Why::New);
    let cold_ns = hand.refill_ns(1, 0);
    assert!(warm_ns < cold_ns / 2, "{warm_ns} {cold_ns}");
    hand.d.handle(hand.now, &Event::Exec(task(A, 1)));
    assert_eq!(hand.refill_ns(A, 0), cold_ns);
    (0..10).for_each(|_| hand.live(A, 0, 300 * US));
    assert_eq!(hand.d.view().service_ns(task(A, 1)), 300 * US);
    // The row goes to another task.
    hand.d.handle(hand.now, &Event::Exit(task(A, 1)));
    hand.d.handle(hand.now, &Event::Runnable(wakeup(task(A, 2), 1, 0)));
    assert_eq!(hand.d.view().refill_ns(task(A, 2), CpuId(0), 0), cold_ns);
    assert_eq!(hand.d.view().refill_ns(task(A, 1), CpuId(0), 0), 0);
}

#[test]
fn c65_estimates_recover_from_a_clock_jump_within_ten_runs() {
    let mut hand = Hand::new(Topology::grid(1, 1, 1));
    hand.wake(A, 0, 0, Why::New);
    (0..20).for_each(|_| hand.live(A, 0, 2 * MS));
    let (warm_ns, service_ns) = (hand.refill_ns(A, 0), hand.d.view().service_ns(task(A, 1)));
    assert_eq!(service_ns, 2 * MS);
    // It starts, the clock jumps by an hour, it stops. Then the clock steps back.
    hand.live(A, 0, 2 * MS + 3600 * SECOND);
    assert_eq!(hand.d.view().service_ns(task(A, 1)), 2 * MS, "no sample");
    poll_all(&mut hand.d, hand.now);
    hand.status(0, Some(A), 0);
    assert_eq!(hand.d.view().wait_ns(CpuId(0)), 2 * MS);
    hand.now -= 1800 * SECOND;
    hand.busy_ns[0] = 0;
    for _ in 0..10 {
        hand.live(A, 0, 2 * MS);
    }
    assert_eq!(hand.d.view().service_ns(task(A, 1)), 2 * MS);
    assert!(hand.refill_ns(A, 0) <= warm_ns + 100, "{} after, {warm_ns} before", hand.refill_ns(A, 0));
}

#[test]
fn a_prediction_is_scored_when_the_task_is_seen() {
    let mut hand = Hand::new(Topology::grid(1, 1, 1));
    for idx in 0..2 {
        hand.wake(idx, 0, 0, Why::New);
        (0..10).for_each(|_| hand.live(idx, 0, 40 * US));
    }
    hand.wake(0, 0, 0, Why::Woken);
    let (before, starts) = (hand.d.stats().wait_error.clone(), hand.d.stats().start_error.clone());
    assert!(starts.count > 0 && starts.predicted_ns == 0, "{starts:?}");
    poll_all(&mut hand.d, hand.now);
    // Task 0 (or 1) runs 50 us instead of 40; the other one had been promised 40.
    hand.now += 5 * US;
    hand.status(0, Some(1), 1);
    hand.now += 50 * US;
    hand.status(0, Some(0), 0);
    let after = &hand.d.stats().wait_error;
    assert_eq!(after.count, before.count + 1);
    assert_eq!(after.predicted_ns - before.predicted_ns, 40 * US);
    assert_eq!(after.actual_ns - before.actual_ns, 55 * US);
    assert_eq!(after.distance_ns - before.distance_ns, 15 * US);
    assert_eq!(after.by_distance.iter().sum::<u64>(), after.count);
}

#[test]
fn a_prediction_is_scored_by_the_next_record() {
    let mut hand = Hand::new(Topology::grid(1, 1, 1));
    hand.wake(A, 0, 0, Why::New);
    hand.now += 3 * US;
    poll_all(&mut hand.d, hand.now);
    // No status word showed the run. It had waited 7 us since its record, 4 since the decision.
    hand.now += 100 * US;
    let fact = Runnable { waited_ns: 7 * US, ran_ns: 20 * US, ..wakeup(task(A, 1), 2, 0) };
    hand.d.handle(hand.now, &Event::Runnable(fact));
    let error = &hand.d.stats().start_error;
    assert_eq!((error.count, error.predicted_ns, error.actual_ns), (1, 0, 4 * US));
    assert!((error.bias_ns() + 4e3).abs() < 1e-9 && (error.mean_distance_ns() - 4e3).abs() < 1e-9);
}

#[test]
fn predictions_are_close_on_a_machine_that_behaves() {
    // Twelve tasks of four kinds on four CPUs, 90 % busy: waits of some hundred microseconds.
    let mut sim = Sim::new(Topology::grid(1, 4, 1), estimating(Topology::grid(1, 4, 1), config(64)), 3);
    for i in 0..12u64 {
        let run_ns = (100 + 100 * (i % 4)) * US;
        let habit = Habit { run_ns, sleep_ns: 600 * US + 7 * US * i, bursts: 0, weight: 100 };
        sim.kernel.spawn(habit, None, CpuId(0));
    }
    sim.run(SECOND / 5);
    let warm_up = sim.dispatcher.stats().wait_error.clone();
    sim.run(SECOND);
    let error = &sim.dispatcher.stats().wait_error;
    let count = (error.count - warm_up.count) as f64;
    let mean = |all: u64, before: u64| (all - before) as f64 / count;
    let (predicted, actual) =
        (mean(error.predicted_ns, warm_up.predicted_ns), mean(error.actual_ns, warm_up.actual_ns));
    let distance = mean(error.distance_ns, warm_up.distance_ns);
    println!("{count} waits: predicted {predicted:.0} ns, actual {actual:.0}, mean distance {distance:.0}");
    assert!(count > 1_000.0);
    assert!((predicted / actual - 1.0).abs() < 0.1, "predicted {predicted}, actual {actual}");
    assert!(distance < 0.15 * actual, "distance {distance}, actual {actual}");
}

#[test]
fn nothing_is_counted_for_ever_whatever_goes_wrong() {
    let topology = Topology::grid(2, 2, 1);
    for seed in 0..20 {
        let mut sim = Sim::new(topology.clone(), estimating(topology.clone(), config(64)), seed);
        sim.kernel.faults = Faults { lose_record: 5, retry: 50, takeover: 20, lose_exit: 0 };
        for i in 0..24u32 {
            let habit =
                Habit { run_ns: 150 * US, sleep_ns: 100 * US * u64::from(i % 5), bursts: 40, weight: 100 };
            let allowed = (i % 3 == 0).then(|| set_of(&topology, &[i % 4, (i + 1) % 4]));
            sim.kernel.spawn(habit, allowed, CpuId(i % 4));
        }
        sim.kernel.spawn(HOG, None, CpuId(0));
        sim.run(SECOND / 2);
        let view = sim.dispatcher.view();
        for cpu in 0..4 {
            let cpu = CpuId(cpu);
            assert_eq!((view.queued(cpu), view.queued_ns(cpu)), (0, 0), "seed {seed}, {cpu:?}");
        }
        assert_eq!((view.queued_llc_ns(LlcId(0)), view.queued_llc_ns(LlcId(1))), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_policy_that_needs_nothing_gets_nothing() {
    let config = config(8);
    let policy = Fifo::new(&config);
    let mut d = Dispatcher::new(Topology::grid(1, 1, 1), config, policy);
    d.handle(1, &Event::Runnable(wakeup(task(A, 1), 1, 0)));
    let id: TaskId = task(A, 1);
    let view = d.view();
    assert_eq!((view.wait_ns(CpuId(0)), view.refill_ns(id, CpuId(0), 0), view.service_ns(id)), (0, 0, 0));
    assert_eq!(
        (view.residual_ns(CpuId(0)), view.median_residual_ns(CpuId(0)), view.wait_left_ns(id)),
        (0, 0, None)
    );
    assert_eq!(view.remembered(id).count(), 0);
    assert_eq!(d.policy().needs(), hearth::policy::Needs::default());
}
