// SPDX-License-Identifier: GPL-2.0-only
//! Fair queues: virtual time, lag and deadlines, with an average virtual time per CPU.

use crate::event::{Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::MAX_CPUS;
use crate::view::View;

/// Where averages start: far enough from 0 that a lag can be subtracted.
const START_NS: u64 = 1 << 40;
/// The base slice is so much, times one more than the logarithm of the number of CPUs (8 at most).
const SLICE_UNIT_NS: Nanos = 700_000;
const NICE_0: u64 = 100;

#[derive(Clone, Copy, Debug)]
struct Row {
    virtual_ns: u64,
    deadline: u64,
    /// The CPU whose average `virtual_ns` belongs to.
    cpu: CpuId,
    weight: u64,
    new: bool,
}

const NEW: Row = Row { virtual_ns: START_NS, deadline: START_NS, cpu: CpuId(0), weight: NICE_0, new: true };

/// Virtual times of all tasks, and the average of each CPU.
#[derive(Clone, Debug)]
pub(super) struct Fair {
    slice_ns: Nanos,
    tick_ns: Nanos,
    rows: Vec<Row>,
    average_ns: Vec<u64>,
}

impl Fair {
    pub fn new(max_tasks: usize, slice_ns: Nanos, tick_ns: Nanos) -> Self {
        Self { slice_ns, tick_ns, rows: vec![NEW; max_tasks], average_ns: vec![START_NS; MAX_CPUS] }
    }

    fn base_ns(&self, view: &View) -> Nanos {
        if self.slice_ns > 0 {
            return self.slice_ns;
        }
        let cpus = view.topology().cpus.len().clamp(1, 8) as u32;
        SLICE_UNIT_NS * u64::from(1 + cpus.ilog2())
    }

    /// How long a task runs when others wait: its slice, to the next tick.
    pub fn slice_ns(&self, view: &View) -> Nanos {
        self.base_ns(view).next_multiple_of(self.tick_ns)
    }

    /// The task ran on its previous CPU: its virtual time advances, and the average there, which those who wait share.
    pub fn charge(&mut self, task: &Runnable, view: &View) {
        let row = &mut self.rows[task.task.row()];
        row.weight = u64::from(task.weight);
        row.virtual_ns += task.ran_ns * NICE_0 / row.weight;
        let others = u64::from(view.own_queue(task.prev_cpu)) * NICE_0;
        if let Some(average_ns) = self.average_ns.get_mut(task.prev_cpu.idx()) {
            *average_ns += task.ran_ns * NICE_0 / (row.weight + others);
        }
    }

    /// The task joins the queue of `cpu`, with what it lags behind the average; its deadline there. Negative lag is slept off.
    pub fn enter(&mut self, now: Nanos, task: &Runnable, cpu: CpuId, view: &View) -> u64 {
        let base_ns = self.base_ns(view) * NICE_0 / u64::from(task.weight);
        let row = &mut self.rows[task.task.row()];
        let slept = matches!(task.why, Why::Woken | Why::New);
        let lag_ns =
            if row.new { 0 } else { self.average_ns[row.cpu.idx()].wrapping_sub(row.virtual_ns) as i64 };
        let bound_ns = 2 * base_ns as i64;
        let lag_ns = lag_ns.clamp(if slept { 0 } else { -bound_ns }, bound_ns);
        // The running task has moved the average since it was charged last.
        let others = u64::from(view.own_queue(cpu)) + 1;
        let ahead_ns = view.running(cpu).map_or(0, |(_, since_ns)| now.saturating_sub(since_ns) / others);
        let virtual_ns = (self.average_ns[cpu.idx()] + ahead_ns).saturating_add_signed(-lag_ns);
        // A new task starts halfway through its slice.
        let slice_ns = if row.new { base_ns / 2 } else { base_ns };
        *row = Row {
            virtual_ns,
            deadline: virtual_ns + slice_ns,
            cpu,
            weight: u64::from(task.weight),
            new: false,
        };
        row.deadline
    }

    /// Would the woken task be picked, and has the running one had more than its share? By how much it has, then.
    pub fn preempts(&self, now: Nanos, task: TaskId, cpu: CpuId, view: &View) -> Option<Nanos> {
        let (running, since_ns) = view.running(cpu)?;
        let (woken, running) = (&self.rows[task.row()], &self.rows[running.row()]);
        let ran_ns = now.saturating_sub(since_ns);
        let running_ns = running.virtual_ns + ran_ns * NICE_0 / running.weight;
        let others = u64::from(view.own_queue(cpu)) + 1;
        let average_ns = self.average_ns[cpu.idx()] + ran_ns / others;
        let lag_ns = average_ns.saturating_sub(woken.virtual_ns);
        let lead_ns = (running_ns + lag_ns).checked_sub(average_ns).filter(|&lead_ns| lead_ns > 0)?;
        let eligible = woken.virtual_ns <= average_ns;
        let first = view.waiters_of(cpu).all(|other| self.rows[other.row()].deadline > woken.deadline);
        (eligible && first).then_some(lead_ns)
    }

    /// Of those that wait, by deadline: the first that is not ahead of the average; or else the first.
    pub fn pick(&self, cpu: CpuId, waiting: &[TaskId]) -> usize {
        let eligible = |task: &TaskId| {
            let row = &self.rows[task.row()];
            row.cpu != cpu || row.virtual_ns <= self.average_ns[cpu.idx()]
        };
        waiting.iter().position(eligible).unwrap_or(0)
    }

    /// The task starts on `cpu`: if it comes from another, it keeps its lag.
    pub fn starts(&mut self, task: TaskId, cpu: CpuId) {
        let row = &mut self.rows[task.row()];
        if row.cpu != cpu {
            let lag_ns = self.average_ns[row.cpu.idx()].wrapping_sub(row.virtual_ns) as i64;
            row.virtual_ns = self.average_ns[cpu.idx()].saturating_add_signed(-lag_ns);
            row.cpu = cpu;
        }
    }

    pub fn forget(&mut self, task: TaskId) {
        self.rows[task.row()] = NEW;
    }
}
