// SPDX-License-Identifier: GPL-2.0-only
//! What a policy can ask about warmth and completion times.
//!
//! The answers are there for a policy that says so in [`Policy::needs`](crate::policy::Policy::needs); for others they are 0
//! or empty. All times are nanoseconds from [`View::now`]. [`crate::warmth`] and [`crate::completion`] say what is approximate.

use super::View;
use crate::dispatcher::estimates;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::limits::MAX_LOOK_AHEAD;
use crate::ordered::NONE;
use crate::profile::Profile;
use crate::warmth::{Paid, Refill};

impl View<'_> {
    /// The costs of this machine.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.estimates.profile
    }

    /// What it costs the task to fetch again all that it will lack on `cpu` when it starts there in `start_in_ns` from now.
    #[inline]
    #[must_use]
    pub fn refill(&self, task: TaskId, cpu: CpuId, start_in_ns: Nanos) -> Refill {
        self.refill_within(task, cpu, start_in_ns, &Paid::ALL)
    }

    /// The part of [`View::refill`] that the task pays within one run (made by [`View::paid_within`]): a short run does not touch
    /// all that it lacks.
    #[inline]
    #[must_use]
    pub fn refill_within(&self, task: TaskId, cpu: CpuId, start_in_ns: Nanos, paid: &Paid) -> Refill {
        match &self.estimates.warmth {
            Some(warmth) if self.tasks.find(task).is_some() => {
                warmth.refill(task.row(), self.now, cpu, start_in_ns, paid)
            }
            _ => Refill::default(),
        }
    }

    /// For [`View::refill_within`]: the parts of each level that a run of `run_ns` fetches.
    #[must_use]
    pub fn paid_within(&self, run_ns: Nanos) -> Paid {
        self.estimates.warmth.as_ref().map_or(Paid::ALL, |warmth| warmth.paid_within(run_ns))
    }

    /// The task's own time of [`View::refill`], without what it costs others.
    #[inline]
    #[must_use]
    pub fn refill_ns(&self, task: TaskId, cpu: CpuId, start_in_ns: Nanos) -> Nanos {
        self.refill(task, cpu, start_in_ns).own_ns()
    }

    /// [`View::refill_ns`] for the moment at which `cpu` is expected to be free.
    #[inline]
    #[must_use]
    pub fn refill_here_ns(&self, task: TaskId, cpu: CpuId) -> Nanos {
        self.refill_ns(task, cpu, self.wait_ns(cpu))
    }

    /// The CPUs that may still hold something of the task, the latest first.
    pub fn remembered(&self, task: TaskId) -> impl Iterator<Item = CpuId> + '_ {
        let warmth = self.estimates.warmth.as_ref().filter(|_| self.tasks.find(task).is_some());
        warmth.into_iter().flat_map(move |warmth| warmth.remembered(task.row()))
    }

    /// How long a task that joins now waits for `cpu`: what the running one has left (of its run or its slice), and all that
    /// wait there or are on their way. 0: it is idle. [`HELD_WAIT_NS`](crate::limits::HELD_WAIT_NS) and more: a higher class
    /// holds it.
    #[inline]
    #[must_use]
    pub fn wait_ns(&self, cpu: CpuId) -> Nanos {
        self.estimates
            .completion
            .as_ref()
            .map_or(0, |completion| estimates::wait_ns(completion, cpu, self.machine, self.tasks, self.now))
    }

    /// How long a task that waits in the line or the ordered queue of one CPU has still to wait there, as far as the first
    /// [`MAX_LOOK_AHEAD`] of it show. None: it waits for no CPU in particular.
    #[must_use]
    pub fn wait_left_ns(&self, task: TaskId) -> Option<Nanos> {
        let completion = self.estimates.completion.as_ref()?;
        let row = self.tasks.find(task)?;
        let counted_ns = |row: u32| completion.counted_ns(row as usize);
        let (cpu, ahead_ns): (CpuId, Nanos) = if row.queue != NONE {
            let queue = row.queue as usize;
            let cpu = self.queues.cpu_of(queue)?;
            let ordered = &self.queues.ordered;
            let queued =
                std::iter::successors(ordered.first(queue), |&at| ordered.next(queue, ordered.key(at)));
            let ahead = queued.take(MAX_LOOK_AHEAD).take_while(|&at| at != task.idx);
            let line = self.machine.cpus[cpu.idx()].line.iter(&self.tasks.rows).take(MAX_LOOK_AHEAD);
            (cpu, ahead.chain(line).map(counted_ns).sum())
        } else {
            let cpu = CpuId(if row.state == crate::lifecycle::State::Committed { row.cpu } else { NONE });
            let line = self.machine.cpus.get(cpu.idx())?.line.iter(&self.tasks.rows);
            (cpu, line.take(MAX_LOOK_AHEAD).take_while(|&at| at != task.idx).map(counted_ns).sum())
        };
        let occupant = estimates::occupant(cpu, self.machine, self.tasks);
        Some(completion.occupancy_ns(cpu, occupant, self.now) + completion.on_clock_of(cpu, ahead_ns))
    }

    /// How long the run on `cpu` is expected to go on, given how long it has lasted; its slice is not counted. 0: idle.
    #[must_use]
    pub fn residual_ns(&self, cpu: CpuId) -> Nanos {
        let occupant = estimates::occupant(cpu, self.machine, self.tasks);
        self.estimates
            .completion
            .as_ref()
            .map_or(0, |completion| completion.residual_ns(cpu, occupant, self.now))
    }

    /// The same as a median: as likely exceeded as not. The mean is for sums and comparisons of cost, the median is closest to
    /// the truth in a single case.
    #[must_use]
    pub fn median_residual_ns(&self, cpu: CpuId) -> Nanos {
        let occupant = estimates::occupant(cpu, self.machine, self.tasks);
        self.estimates
            .completion
            .as_ref()
            .map_or(0, |completion| completion.median_residual_ns(cpu, occupant, self.now))
    }

    /// CPU time (of a CPU of full capacity) that the task is expected to take when it is on next: the rest of its run, or a
    /// slice.
    #[inline]
    #[must_use]
    pub fn service_ns(&self, task: TaskId) -> Nanos {
        match &self.estimates.completion {
            Some(completion) => self.tasks.find(task).map_or(0, |row| {
                let slice_ns = if row.slice_ns == 0 { Nanos::MAX } else { row.slice_ns };
                completion.service_ns(task.row(), slice_ns)
            }),
            None => 0,
        }
    }

    /// CPU time (of a CPU of full capacity) since the task's present run began, at its last record: 0 after a wakeup.
    #[must_use]
    pub fn burst_age_ns(&self, task: TaskId) -> Nanos {
        match &self.estimates.completion {
            Some(completion) if self.tasks.find(task).is_some() => completion.run_age_ns(task.row()),
            _ => 0,
        }
    }

    /// Service (on a CPU of full capacity) of all that wait for `cpu`: its line, its ordered queue, what is on its way.
    #[inline]
    #[must_use]
    pub fn queued_ns(&self, cpu: CpuId) -> Nanos {
        self.waiting_for(cpu).1
    }

    /// How many these are.
    #[inline]
    #[must_use]
    pub fn queued(&self, cpu: CpuId) -> u32 {
        self.waiting_for(cpu).0
    }

    #[inline]
    fn waiting_for(&self, cpu: CpuId) -> (u32, Nanos) {
        match &self.estimates.completion {
            Some(completion) if self.machine.is_online(cpu) => {
                completion.waiting(completion.place_of_cpu(cpu))
            }
            _ => (0, 0),
        }
    }

    /// Service (on a CPU of full capacity) of all that wait in the ordered queue of a domain.
    #[must_use]
    pub fn queued_llc_ns(&self, llc: LlcId) -> Nanos {
        match &self.estimates.completion {
            Some(completion) if llc.idx() < self.machine.topology.llcs.len() => {
                completion.waiting(completion.place_of_llc(llc)).1
            }
            _ => 0,
        }
    }

    /// CPUs of a domain that tasks are placed on: all but the dispatcher's own.
    #[must_use]
    pub fn llc_cpus(&self, llc: LlcId) -> u32 {
        if llc.idx() < self.machine.topology.llcs.len() { self.machine.llc_cpus(llc) } else { 0 }
    }
}
