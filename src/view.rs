// SPDX-License-Identifier: GPL-2.0-only
//! What a policy sees: the machine and the tasks as the dispatcher knows them at one moment.
//!
//! A view answers questions and changes nothing. All answers respect the affinity of the task that is asked about,
//! and none is ever the dispatcher's own CPU while another one is allowed.

use crate::dispatcher::estimates::Estimates;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::machine::Machine;
use crate::queues::Queues;
use crate::reason::Reason;
use crate::tasks::Tasks;
use crate::topology::Topology;

mod places;

/// The machine at [`View::now`].
pub struct View<'a> {
    pub(crate) now: Nanos,
    pub(crate) machine: &'a Machine,
    pub(crate) tasks: &'a Tasks,
    pub(crate) queues: &'a Queues,
    pub(crate) estimates: &'a Estimates,
}

mod estimate;
mod idle;

pub use idle::IdleCpus;

impl View<'_> {
    /// The time of this view.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The machine's shape.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.machine.topology
    }

    /// The LLC domain of a CPU; none if it is not online (the previous CPU of a task may have gone).
    #[inline]
    #[must_use]
    pub fn llc_of(&self, cpu: CpuId) -> Option<LlcId> {
        self.machine.llc_of(cpu)
    }

    /// Has this CPU nothing to do, so that a task placed there starts at once?
    #[inline]
    #[must_use]
    pub fn is_idle(&self, cpu: CpuId) -> bool {
        self.machine.is_idle(cpu)
    }

    /// May the task run on this CPU?
    #[must_use]
    pub fn is_allowed(&self, task: TaskId, cpu: CpuId) -> bool {
        let unrestricted = self.tasks.find(task).is_none_or(|row| !row.restricted);
        self.machine.is_online(cpu) && (unrestricted || self.tasks.is_allowed(task.idx, cpu, self.machine))
    }

    /// Is this a CPU that the task may be placed on now: allowed, not held by a higher class, not the dispatcher's own?
    #[must_use]
    pub fn is_usable(&self, task: TaskId, cpu: CpuId) -> bool {
        self.is_allowed(task, cpu) && !self.machine.is_held(cpu) && !self.machine.is_dispatcher(cpu)
    }

    /// Does anybody wait in an ordered queue that this CPU serves first: its own, or its domain's?
    #[inline]
    #[must_use]
    pub fn has_waiters(&self, cpu: CpuId) -> bool {
        self.machine.llc_of(cpu).is_some_and(|llc| {
            self.queues.ordered.len(Queues::of_llc(llc)) + self.queues.ordered.len(self.queues.of_cpu(cpu))
                > 0
        })
    }

    /// The nearest idle CPU that the task may use, and why that one: its previous CPU; else one in the same LLC
    /// domain; else any. Of several, one whose SMT siblings are idle too.
    #[inline]
    #[must_use]
    pub fn idle_near(&self, task: &Runnable) -> Option<(CpuId, Reason)> {
        if self.machine.is_busy() {
            return None;
        }
        match self.restricted(task.task) {
            None => self.machine.idle_near(task.prev_cpu, &self.machine.idle),
            Some((allowed, only)) => {
                let (cpu, reason) = self.machine.idle_near(task.prev_cpu, allowed)?;
                Some((cpu, if only { Reason::OnlyAllowed } else { reason }))
            }
        }
    }

    /// The CPU with the shortest line that the task may use, how many are ahead of it there (the running one
    /// included), and why. On a tie: the previous CPU, then its LLC domain.
    #[inline]
    #[must_use]
    pub fn shortest_line(&self, task: &Runnable) -> (CpuId, u32, Reason) {
        let restricted = self.restricted(task.task);
        let (cpu, ahead) = self.machine.shortest_line(task.prev_cpu, restricted.map(|(allowed, _)| allowed));
        let only = restricted.is_some_and(|(_, only)| only);
        (cpu, ahead, if only { Reason::OnlyAllowed } else { Reason::ShortestLine { ahead } })
    }

    /// Who runs on a CPU and since when, if it is a tracked task.
    #[must_use]
    pub fn running(&self, cpu: CpuId) -> Option<(TaskId, Nanos)> {
        let row = self.machine.cpus.get(cpu.idx())?;
        let task = row.curr.filter(|&task| self.tasks.find(task).is_some())?;
        Some((task, row.since_ns))
    }

    /// A task's scheduling weight (100 is nice 0, and is assumed of a task that is not known).
    #[must_use]
    pub fn weight(&self, task: TaskId) -> u32 {
        self.tasks.find(task).map_or(100, |row| row.fact.weight.max(1))
    }

    /// The sort key of a task that waits in an ordered queue.
    #[must_use]
    pub fn order_of(&self, task: TaskId) -> Option<u64> {
        let row = self.tasks.find(task)?;
        (row.queue != crate::ordered::NONE).then(|| self.queues.ordered.key(task.idx).order)
    }

    /// The ordered queue that this task would join.
    #[inline]
    #[must_use]
    pub fn queue_of(&self, task: &Runnable) -> QueueView<'_> {
        let known = self.tasks.find(task.task).is_some();
        let queue = if known { self.queues.home(task.task.idx, self.tasks, self.machine) } else { 0 };
        QueueView { queue, machine: self.machine, queues: self.queues }
    }

    /// The CPUs that a task is restricted to, and whether it is but one; none: it may run anywhere.
    #[inline]
    fn restricted(&self, task: TaskId) -> Option<(&[u64], bool)> {
        let row = self.tasks.find(task).filter(|row| row.restricted)?;
        Some((self.tasks.restriction(task.idx)?, row.allowed_cpus == 1))
    }
}

/// An ordered queue, as a task sees it that is about to join it.
pub struct QueueView<'a> {
    queue: usize,
    machine: &'a Machine,
    queues: &'a Queues,
}

impl QueueView<'_> {
    /// Its LLC domain.
    #[inline]
    #[must_use]
    pub fn llc(&self) -> LlcId {
        self.queues.llc_of(self.queue, self.machine).unwrap_or(LlcId(0))
    }

    /// How many wait there.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.queues.ordered.len(self.queue)
    }

    /// Does nobody wait there?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The smallest sort key there; none: nobody waits.
    #[inline]
    #[must_use]
    pub fn first_order(&self) -> Option<u64> {
        self.queues.ordered.first(self.queue).map(|row| self.queues.ordered.key(row).order)
    }

    /// The largest sort key there.
    #[must_use]
    pub fn last_order(&self) -> Option<u64> {
        self.queues.ordered.last(self.queue).map(|row| self.queues.ordered.key(row).order)
    }
}
