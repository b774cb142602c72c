// SPDX-License-Identifier: GPL-2.0-only
//! What the policies of the lavd family share: statistics of tasks, latency criticality, deadlines, slices.
//!
//! A task's *criticality* ([`criticality`]) grows with how often it sleeps and wakes others, and the shorter its runs are. Its
//! deadline is a logical clock plus a length that shrinks with it. Whoever has the earliest deadline runs next; the clock moves
//! on towards the deadline of each task that starts, so that everybody's turn comes.
//!
//! # What is simplified against scx_lavd
//!
//! - No preemption of a less critical running task, no core compaction, no lock holder's boost, no big and little cores.
//! - Criticality is inherited from the waker only, not from those that a task wakes; a synchronous wakeup counts as any other.
//! - The greedy penalty compares service since the task was first seen with the average of those that stop.
//! - A run's length becomes known with the next record of the task, so averages lag by one sleep.

pub mod criticality;
pub mod sticky;

use super::{At, Pick, Placement};
use crate::dispatcher::Config;
use crate::event::{Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::reason::Reason;
use crate::view::View;
use criticality::{Behaviour, deadline_in, eighth, frequency, threshold};

/// Averages over all tasks are made this often.
const PERIOD_NS: Nanos = 10_000_000;
/// Everyone who is queued shall get a turn in this time, as far as slices allow.
const TURN_NS: Nanos = 10_000_000;
/// The shortest slice, and the interval below which two wakeups by one waker count as one.
const MIN_SLICE_NS: Nanos = 500_000;
/// How far before the clock a deadline may lie: 5 ms / 2^16.
const WINDOW_NS: Nanos = 76;
/// Where the clock starts.
const START_NS: u64 = 1 << 20;

#[derive(Clone, Debug)]
struct Row {
    avg_run_ns: Nanos,
    since_sleep_ns: Nanos,
    blocked_ns: Nanos,
    woke_ns: Nanos,
    served_ns: Nanos,
    block_hz: u32,
    wake_hz: u32,
    criticality: u32,
    known: bool,
}

const NEW: Row = Row {
    avg_run_ns: 0,
    since_sleep_ns: 0,
    blocked_ns: 0,
    woke_ns: 0,
    served_ns: 0,
    block_hz: 0,
    wake_hz: 0,
    criticality: 0,
    known: false,
};

/// Averages over all tasks, and what the next ones are made of.
#[derive(Clone, Debug, Default)]
struct Period {
    since_ns: Nanos,
    count: u64,
    criticality_sum: u64,
    criticality_max: u64,
    served_sum_ns: u64,
    avg_criticality: u64,
    max_criticality: u64,
    avg_served_ns: Nanos,
}

/// The memory that the policies of the family share.
#[derive(Clone, Debug)]
pub struct Lavd {
    max_slice_ns: Nanos,
    slice_ns: Nanos,
    clock: u64,
    rows: Vec<Row>,
    period: Period,
}

impl Lavd {
    /// With a row for each task of `config`, whose slice is the longest one given.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            max_slice_ns: config.slice_ns,
            slice_ns: config.slice_ns,
            clock: START_NS,
            rows: vec![NEW; config.max_tasks],
            period: Period::default(),
        }
    }

    /// For [`Policy::charge`](super::Policy::charge): the task stopped and is runnable again.
    pub fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.count_wakeup(now, task.waker_row);
        let (avg_served_ns, slice_ns) = (self.period.avg_served_ns, self.slice_ns);
        let row = &mut self.rows[task.task.row()];
        if !row.known {
            *row = Row { known: true, avg_run_ns: slice_ns, served_ns: avg_served_ns, ..NEW };
        }
        if task.ran_ns > 0 {
            row.since_sleep_ns += task.ran_ns;
            row.avg_run_ns = eighth(row.avg_run_ns, row.since_sleep_ns);
            row.served_ns += task.ran_ns * 100 / u64::from(task.weight);
        }
        if task.why == Why::Woken {
            let blocked_ns = now.saturating_sub(task.slept_ns);
            if row.blocked_ns > 0 && blocked_ns > row.blocked_ns {
                row.block_hz = frequency(row.block_hz, blocked_ns - row.blocked_ns);
            }
            row.blocked_ns = blocked_ns;
            row.since_sleep_ns = 0;
        }
        self.period.count += 1;
        self.period.served_sum_ns += row.served_ns;
        if now.saturating_sub(self.period.since_ns) >= PERIOD_NS {
            self.end_period(now, view);
        }
    }

    fn count_wakeup(&mut self, now: Nanos, waker: u32) {
        let Some(row) = self.rows.get_mut(waker as usize) else { return };
        let interval_ns = now.saturating_sub(row.woke_ns);
        if interval_ns >= MIN_SLICE_NS {
            if row.woke_ns > 0 {
                row.wake_hz = frequency(row.wake_hz, interval_ns);
            }
            row.woke_ns = now;
        }
    }

    fn end_period(&mut self, now: Nanos, view: &View) {
        let p = &mut self.period;
        let average = |sum: u64| sum / p.count.max(1);
        p.avg_criticality = eighth(8 * p.avg_criticality, 8 * average(p.criticality_sum)) / 8;
        p.max_criticality = eighth(8 * p.max_criticality, 8 * p.criticality_max) / 8;
        p.avg_served_ns = if p.avg_served_ns == 0 {
            average(p.served_sum_ns)
        } else {
            eighth(p.avg_served_ns, average(p.served_sum_ns))
        };
        (p.since_ns, p.count, p.criticality_sum, p.criticality_max, p.served_sum_ns) = (now, 0, 0, 0, 0);
        let cpus = view.topology().cpus.len() as u64;
        let turn_ns = TURN_NS * cpus / u64::from(view.waiting()).max(1);
        let wanted_ns = turn_ns.clamp(MIN_SLICE_NS.min(self.max_slice_ns), self.max_slice_ns);
        self.slice_ns = eighth(self.slice_ns, wanted_ns).min(self.max_slice_ns);
    }

    /// The task's place in an ordered queue: its deadline. To be called once for each placement.
    pub fn order(&mut self, task: &Runnable, view: &View) -> u64 {
        let waker = self.rows.get(task.waker_row as usize).map_or(0, |row| row.criticality);
        let (pinned, restricted) = view.narrowness(task.task);
        let row = &mut self.rows[task.task.row()];
        let behaviour = Behaviour {
            block_hz: row.block_hz,
            wake_hz: row.wake_hz,
            avg_run_ns: row.avg_run_ns,
            weight: task.weight,
            woken: task.why == Why::Woken,
            restricted,
            pinned,
        };
        row.criticality = criticality::criticality(&behaviour, waker);
        self.period.criticality_sum += u64::from(row.criticality);
        self.period.criticality_max = self.period.criticality_max.max(u64::from(row.criticality));
        let in_ns =
            deadline_in(row.criticality, row.since_sleep_ns, row.served_ns, self.period.avg_served_ns);
        self.clock - WINDOW_NS + in_ns
    }

    /// Does a delay of the task not matter much?
    #[must_use]
    pub fn is_tolerant(&self, task: TaskId) -> bool {
        let (avg, max) = (self.period.avg_criticality as u32, self.period.max_criticality as u32);
        self.rows[task.row()].criticality < threshold(avg, max)
    }

    /// The task's criticality at its latest placement.
    #[must_use]
    pub fn criticality(&self, task: TaskId) -> u32 {
        self.rows[task.row()].criticality
    }

    /// The average length of the task's runs; never longer than a slice.
    #[must_use]
    pub fn run_ns(&self, task: TaskId) -> Nanos {
        self.rows.get(task.row()).map_or(0, |row| row.avg_run_ns.min(self.slice_ns))
    }

    /// The slice that everybody gets at present.
    #[must_use]
    pub fn slice_ns(&self) -> Nanos {
        self.slice_ns
    }

    /// When the running task was expected to stop, judged when it started, and when that was; none: nobody known runs there.
    #[must_use]
    pub fn expected_stop(&self, cpu: CpuId, view: &View) -> Option<(Nanos, Nanos)> {
        let (task, since_ns) = view.running(cpu)?;
        Some((since_ns + self.run_ns(task), since_ns))
    }

    /// Starts the task on an idle CPU.
    pub fn run(&mut self, cpu: CpuId, order: u64, reason: Reason, view: &View) -> Placement {
        self.started(order, view);
        Placement::Run { cpu, slice_ns: self.slice_ns, preempt: false, reason }
    }

    /// The work-conserving placement: its previous CPU if the whole core is idle, any other idle one, or the domain's queue.
    pub fn place(&mut self, task: &Runnable, order: u64, view: &View) -> Placement {
        match view.idle_core_near(task).filter(|&(cpu, _)| !view.has_waiters(cpu)) {
            Some((cpu, reason)) => self.run(cpu, order, reason, view),
            None => Placement::Queue { at: At::Home, order, reason: None },
        }
    }

    /// A CPU takes this one of those that wait.
    pub fn pick(&mut self, index: usize, waiting: &[TaskId], reason: Option<Reason>, view: &View) -> Pick {
        let order = waiting.get(index).and_then(|&task| view.order_of(task)).unwrap_or(self.clock);
        self.started(order, view);
        Pick { index, slice_ns: self.slice_ns, reason }
    }

    /// A task with this deadline starts: the clock follows, slower if many wait.
    fn started(&mut self, order: u64, view: &View) {
        self.clock += order.saturating_sub(self.clock) / u64::from(view.waiting()).max(1);
    }

    /// For [`Policy::forget`](super::Policy::forget).
    pub fn forget(&mut self, task: TaskId) {
        self.rows[task.row()] = NEW;
    }
}
