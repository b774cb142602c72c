// SPDX-License-Identifier: GPL-2.0-only
//! A policy with somebody looking over its shoulder.

use super::Candidate;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::policy::registry::AnyPolicy;
use crate::policy::{Needs, Pick, Placement, Policy};
use crate::view::View;
use std::cell::RefCell;
use std::rc::Rc;

/// What was seen when the policy was asked where a task goes.
type Note = (TaskId, Nanos, Vec<Candidate>);

/// What a [`Spy`] saw since somebody last asked.
#[derive(Clone, Default)]
pub struct Notes(Rc<RefCell<Vec<Note>>>);

impl Notes {
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

/// Wraps a policy: the same answers, and a note of what all CPUs would have cost whenever it is asked.
pub struct Spy {
    inner: AnyPolicy,
    notes: Notes,
}

impl Spy {
    /// Looks over the shoulder of `inner`.
    #[must_use]
    pub fn new(inner: AnyPolicy, notes: Notes) -> Self {
        Self { inner, notes }
    }
}

/// What every CPU that the task may use would cost now.
pub(super) fn candidates(task: TaskId, prev: CpuId, view: &View) -> Vec<Candidate> {
    let paid = view.paid_within(view.service_ns(task));
    let home = view.llc_of(prev);
    let allowed = view.topology().cpus.iter().filter(|cpu| view.is_allowed(task, cpu.id));
    let candidate = |cpu: &crate::topology::Cpu| {
        let wait_ns = view.wait_ns(cpu.id);
        Candidate {
            cpu: cpu.id.0,
            idle: view.is_idle(cpu.id),
            taken: !view.is_usable(task, cpu.id),
            near: Some(cpu.llc) == home,
            wait_ns,
            refill_ns: view.refill_within(task, cpu.id, wait_ns, &paid).own_ns(),
        }
    };
    allowed.map(candidate).collect()
}

impl Policy for Spy {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        self.notes.0.borrow_mut().push((task.task, now, candidates(task.task, task.prev_cpu, view)));
        self.inner.place(now, task, view)
    }

    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.inner.pick(now, cpu, waiting, view)
    }

    fn may_pull(&self, now: Nanos, task: TaskId, from: CpuId, to: CpuId, view: &View) -> bool {
        self.inner.may_pull(now, task, from, to, view)
    }

    fn may_steal(&self, now: Nanos, task: TaskId, from: LlcId, to: CpuId, view: &View) -> bool {
        self.inner.may_steal(now, task, from, to, view)
    }

    fn idled(&mut self, now: Nanos, cpu: CpuId, last: TaskId, since_ns: Nanos, view: &View) {
        self.inner.idled(now, cpu, last, since_ns, view);
    }

    /// Everything, so that every candidate has its costs.
    fn needs(&self) -> Needs {
        Needs { warmth: true, completion: true }
    }

    fn look_ahead(&self) -> usize {
        self.inner.look_ahead()
    }

    fn work_conserving(&self) -> bool {
        self.inner.work_conserving()
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.inner.charge(now, task, view);
    }

    fn forget(&mut self, task: TaskId) {
        self.inner.forget(task);
    }
}
