// SPDX-License-Identifier: GPL-2.0-only
//! What a CPU costs a task: wait and refill; and which few CPUs are worth asking about.

use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::REMEMBERED_CPUS;
use crate::view::View;
use crate::warmth::Paid;

/// The previous CPU, the remembered ones, two idle ones, an idle one in a remembered domain, the one with the shortest line.
const MAX_CANDIDATES: usize = REMEMBERED_CPUS + 5;
/// Idle CPUs that are considered, nearest first.
const IDLE_CANDIDATES: usize = 2;

/// What a CPU costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Which CPU.
    pub cpu: CpuId,
    /// Is it idle, so that the task starts at once?
    pub idle: bool,
    /// Expected time until it is free.
    pub wait_ns: Nanos,
    /// What the task loses by fetching its state again.
    pub refill_ns: Nanos,
    /// Everything: wait, refill, the weighted costs to others, and waking or switching the CPU.
    pub total_ns: Nanos,
}

/// How costs are made.
#[derive(Clone, Debug)]
pub struct Model {
    /// Is the rest of a run judged by how long it has lasted?
    pub conditional: bool,
    /// Remembered CPUs that are considered.
    pub remember: usize,
    /// Weight of the cost to others, in percent of the profile's.
    pub neighbour_pct: u64,
    /// Weight of the delay of those who wait, in percent.
    pub crowd_pct: u64,
    /// Does a refill count as far as the next run pays it, or in full?
    pub within_run: bool,
}

impl Model {
    /// How much of a refill counts for the task.
    #[inline]
    pub fn paid(&self, task: TaskId, view: &View) -> Paid {
        if self.within_run { view.paid_within(view.service_ns(task)) } else { Paid::ALL }
    }

    /// What `cpu` costs the task now.
    #[inline]
    pub fn cost(&self, task: TaskId, cpu: CpuId, paid: &Paid, view: &View) -> Cost {
        let idle = view.is_idle(cpu);
        let wait_ns = if idle { 0 } else { self.wait_ns(cpu, view) };
        let wait_ns = wait_ns + domain_wait_ns(cpu, view);
        self.cost_after(task, cpu, wait_ns, paid, view)
    }

    /// What `cpu` costs the task if it starts there after `wait_ns`.
    #[inline]
    pub fn cost_after(&self, task: TaskId, cpu: CpuId, wait_ns: Nanos, paid: &Paid, view: &View) -> Cost {
        let idle = view.is_idle(cpu);
        let refill = view.refill_within(task, cpu, wait_ns, paid);
        let profile = view.profile();
        let start_ns = if idle { profile.wake_ns } else { profile.switch_ns };
        let refill_ns = refill.own_ns();
        let others_ns = (refill.neighbour_ns * self.neighbour_pct
            + refill_ns * self.crowd_pct * crowd(view) / CROWD)
            / 100;
        let total_ns = wait_ns.saturating_add(refill_ns + others_ns + start_ns);
        Cost { cpu, idle, wait_ns, refill_ns, total_ns }
    }

    #[inline]
    fn wait_ns(&self, cpu: CpuId, view: &View) -> Nanos {
        if self.conditional {
            return view.wait_ns(cpu);
        }
        // What an average run would have left, nothing once it is over.
        let rest_ns = view.running(cpu).map_or(0, |(task, since_ns)| {
            view.service_ns(task).saturating_sub(view.now().saturating_sub(since_ns))
        });
        rest_ns + view.queued_ns(cpu)
    }
}

/// Those who wait in the queue of the CPU's domain come first; all its CPUs serve them.
#[inline]
fn domain_wait_ns(cpu: CpuId, view: &View) -> Nanos {
    view.llc_of(cpu).map_or(0, |llc| view.queued_llc_ns(llc) / u64::from(view.llc_cpus(llc).max(1)))
}

/// One waiting task per CPU.
const CROWD: u64 = 256;

/// How many wait for each CPU, in units of 1/[`CROWD`], at most four: so many are delayed by each nanosecond that somebody fetches
/// state instead of working.
#[inline]
fn crowd(view: &View) -> u64 {
    let cpus = view.topology().cpus.len() as u64;
    (u64::from(view.waiting()) * CROWD / cpus.max(1)).min(4 * CROWD)
}

/// The few CPUs that are worth asking about; none twice.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    cpus: [CpuId; MAX_CANDIDATES],
    len: usize,
}

impl Candidates {
    /// For a task that was woken: the previous CPU first, so that it wins ties.
    #[inline]
    pub fn of(task: &Runnable, remember: usize, view: &View) -> Self {
        let mut all = Self { cpus: [CpuId(u32::MAX); MAX_CANDIDATES], len: 0 };
        if view.is_usable(task.task, task.prev_cpu) {
            all.add(task.prev_cpu);
        }
        let mut far = None;
        for cpu in view.remembered(task.task).take(remember) {
            if view.is_usable(task.task, cpu) {
                all.add(cpu);
            }
            let llc = view.llc_of(cpu);
            far = far.or(llc.filter(|_| llc != view.llc_of(task.prev_cpu)));
        }
        for cpu in view.idle_cpus(task).take(IDLE_CANDIDATES) {
            all.add(cpu);
        }
        if let Some(cpu) = far.and_then(|llc| view.idle_in(llc, task).next()) {
            all.add(cpu);
        }
        all.add(view.shortest_line(task).0);
        all
    }

    #[inline]
    fn add(&mut self, cpu: CpuId) {
        if self.len < MAX_CANDIDATES && !self.cpus[..self.len].contains(&cpu) {
            self.cpus[self.len] = cpu;
            self.len += 1;
        }
    }

    /// The candidates, the previous CPU first if it is one.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus[..self.len].iter().copied()
    }
}
