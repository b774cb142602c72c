// SPDX-License-Identifier: GPL-2.0-only
//! A policy under observation: [`Checked`] wraps any policy and holds each answer against what was promised.
//!
//! The dispatcher puts a wrong answer right in any case; this wrapper says that it was wrong. Tests let it panic, the
//! daemon may let it count.

use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::limits::{RESCUE_NS, SLICE_NS};
use crate::policy::{At, Needs, Pick, Placement, Policy};
use crate::view::View;

/// What to do about a broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnViolation {
    /// Count it.
    Count,
    /// Panic with a description.
    Panic,
}

/// Broken promises, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// A CPU that is not online.
    pub unknown_cpu: u64,
    /// A CPU that the task may not use.
    pub not_allowed: u64,
    /// A slice outside [`SLICE_NS`].
    pub slice: u64,
    /// A wait without bound, or with one beyond [`RESCUE_NS`].
    pub unbounded_wait: u64,
    /// Run without preemption on a CPU that is not idle.
    pub not_idle: u64,
    /// Wait in a line while an allowed CPU is idle, by a policy that promises not to.
    pub idle_left: u64,
    /// A pick that is not among the tasks offered.
    pub pick: u64,
    /// The tasks offered for a pick were not in order (the dispatcher's fault, not the policy's).
    pub order: u64,
}

impl Violations {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { unknown_cpu, not_allowed, slice, unbounded_wait, not_idle, idle_left, pick, order } = self;
        unknown_cpu + not_allowed + slice + unbounded_wait + not_idle + idle_left + pick + order
    }
}

/// A policy whose answers are checked. See [`Violations`] for what is checked.
///
/// [`Placement::Queue`] while a CPU is idle breaks no promise: the dispatcher offers what waits to every idle CPU before
/// `poll` ends.
#[derive(Clone, Debug)]
pub struct Checked<P> {
    inner: P,
    mode: OnViolation,
    violations: Violations,
}

impl<P: Policy> Checked<P> {
    /// Wraps a policy.
    #[must_use]
    pub fn new(inner: P, mode: OnViolation) -> Self {
        Self { inner, mode, violations: Violations::default() }
    }

    /// What was seen so far.
    #[must_use]
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// The policy inside.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.inner
    }

    fn expect(&mut self, holds: bool, counter: fn(&mut Violations) -> &mut u64, what: &dyn std::fmt::Debug) {
        if holds {
            return;
        }
        let count = counter(&mut self.violations);
        *count += 1;
        let name = self.inner.name();
        assert!(
            self.mode == OnViolation::Count,
            "policy {name} broke a promise: {what:?}; counts: {:?}",
            self.violations
        );
    }

    fn check_cpu(&mut self, cpu: CpuId, task: &Runnable, view: &View, placement: &Placement) {
        let online = view.llc_of(cpu).is_some();
        self.expect(online, |v| &mut v.unknown_cpu, placement);
        self.expect(!online || view.is_allowed(task.task, cpu), |v| &mut v.not_allowed, placement);
    }
}

impl<P: Policy> Policy for Checked<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        let placement = self.inner.place(now, task, view);
        match placement {
            Placement::Run { cpu, slice_ns, preempt, .. } => {
                self.check_cpu(cpu, task, view, &placement);
                self.expect(SLICE_NS.contains(&slice_ns), |v| &mut v.slice, &placement);
                self.expect(preempt || view.is_idle(cpu), |v| &mut v.not_idle, &placement);
            }
            Placement::Wait { cpu, slice_ns, at_most_ns, .. } => {
                self.check_cpu(cpu, task, view, &placement);
                self.expect(SLICE_NS.contains(&slice_ns), |v| &mut v.slice, &placement);
                self.expect((1..=RESCUE_NS).contains(&at_most_ns), |v| &mut v.unbounded_wait, &placement);
                let idle_left = self.inner.work_conserving() && view.idle_near(task).is_some();
                self.expect(!idle_left, |v| &mut v.idle_left, &placement);
            }
            Placement::Queue { at: At::Cpu { cpu, at_most_ns }, .. } => {
                self.check_cpu(cpu, task, view, &placement);
                self.expect((1..=RESCUE_NS).contains(&at_most_ns), |v| &mut v.unbounded_wait, &placement);
            }
            Placement::Queue { .. } => {}
        }
        placement
    }

    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        let sorted = waiting.is_sorted_by_key(|&task| view.order_of(task));
        self.expect(sorted && !waiting.is_empty(), |v| &mut v.order, &waiting);
        let pick = self.inner.pick(now, cpu, waiting, view);
        let Pick { index, slice_ns, .. } = pick;
        self.expect(index < waiting.len(), |v| &mut v.pick, &(index, waiting));
        let allowed = waiting.get(index).is_none_or(|&task| view.is_allowed(task, cpu));
        self.expect(allowed, |v| &mut v.not_allowed, &(index, waiting));
        self.expect(SLICE_NS.contains(&slice_ns), |v| &mut v.slice, &slice_ns);
        pick
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

    fn needs(&self) -> Needs {
        self.inner.needs()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuset::CpuSet;
    use crate::dispatcher::{Config, Dispatcher};
    use crate::event::{CpuStatus, Event, NO_ROW, Why};
    use crate::reason::Reason;
    use crate::topology::Topology;

    /// A policy that always gives the same answer.
    struct Always(Placement);

    impl Policy for Always {
        fn name(&self) -> &'static str {
            "always"
        }
        fn place(&mut self, _now: Nanos, _task: &Runnable, _view: &View) -> Placement {
            self.0
        }
    }

    /// Two CPUs, the second busy; the task may use the first only if `pinned`.
    fn violations(placement: Placement, pinned: bool) -> Violations {
        let config = Config { max_tasks: 4, ..Config::default() };
        let policy = Checked::new(Always(placement), OnViolation::Count);
        let mut d = Dispatcher::new(Topology::grid(1, 2, 1), config, policy);
        let (task, cpu) = (TaskId { idx: 0, generation: 1 }, CpuId(1));
        let (curr, other, held) = (None, true, false);
        let status = CpuStatus { cpu, curr, other, held, since_ns: 0, slice_ns: 0, busy_ns: 0, depth: 0 };
        d.handle(1, &Event::Cpu(status));
        if pinned {
            d.handle(1, &Event::Affinity(task, CpuSet::of(2, [CpuId(0)])));
        }
        d.handle(
            1,
            &Event::Runnable(Runnable {
                task,
                pid: 7,
                seq: 1,
                why: Why::New,
                prev_cpu: CpuId(0),
                ran_ns: 0,
                slept_ns: 0,
                waited_ns: 0,
                left_busy_ns: 0,
                waker_row: NO_ROW,
                weight: 100,
                cgroup: 0,
            }),
        );
        // Whatever the policy says, the task gets a CPU that it may use.
        let command = d.poll(1).unwrap();
        assert!(command.cpu == CpuId(0) || command.cpu == CpuId(1) && !pinned);
        assert!(SLICE_NS.contains(&command.slice_ns));
        d.policy().violations().clone()
    }

    fn run(cpu: u32, slice_ns: Nanos) -> Placement {
        Placement::Run { cpu: CpuId(cpu), slice_ns, preempt: false, reason: Reason::PrevIdle }
    }

    fn wait(cpu: u32, at_most_ns: Nanos) -> Placement {
        Placement::Wait { cpu: CpuId(cpu), slice_ns: 1_000_000, at_most_ns, reason: Reason::PrevIdle }
    }

    #[test]
    fn every_broken_promise_is_counted_under_its_name() {
        let none = Violations::default();
        assert_eq!(violations(run(0, 1_000_000), true), none);
        let unknown = Violations { unknown_cpu: 1, not_idle: 1, ..none.clone() };
        assert_eq!(violations(run(9, 1_000_000), false), unknown);
        let forbidden = Violations { not_allowed: 1, not_idle: 1, ..none.clone() };
        assert_eq!(violations(run(1, 1_000_000), true), forbidden);
        assert_eq!(violations(run(1, 1_000_000), false), Violations { not_idle: 1, ..none.clone() });
        assert_eq!(violations(run(0, 1), false), Violations { slice: 1, ..none.clone() });
        assert_eq!(violations(wait(1, 1), false), Violations { idle_left: 1, ..none.clone() });
        let endless = Violations { idle_left: 1, unbounded_wait: 1, ..none };
        assert_eq!(violations(wait(1, u64::MAX), false), endless);
    }

    #[test]
    #[should_panic(expected = "policy always broke a promise")]
    fn in_tests_a_broken_promise_panics() {
        let config = Config { max_tasks: 4, ..Config::default() };
        let mut policy = Checked::new(Always(run(0, 1)), OnViolation::Panic);
        let d = Dispatcher::new(Topology::grid(1, 1, 1), config, Always(run(0, 1)));
        let task = crate::tasks::Row::born(TaskId { idx: 0, generation: 1 }).fact;
        policy.place(1, &task, &d.view());
    }
}
