// SPDX-License-Identifier: GPL-2.0-only
//! Policies by name.

use super::{Placement, Policy, fifo::Fifo, vtime::Vtime};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::view::View;

/// A policy of any kind. `Send`: it is made where options are read, and runs in the dispatcher's thread.
pub type AnyPolicy = Box<dyn Policy + Send>;

/// A policy that can be asked for by name.
pub struct PolicySpec {
    /// What `--policy` takes.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// For fault tests only: not shown in lists.
    pub hidden: bool,
    /// Makes one.
    pub build: fn(&Config) -> AnyPolicy,
}

/// All policies. A new one gets a line here.
static POLICIES: &[PolicySpec] = &[
    PolicySpec {
        name: "fifo",
        about: "first come, first served: an idle CPU near the previous one, or else the shortest line",
        hidden: false,
        build: |config| Box::new(Fifo::new(config)),
    },
    PolicySpec {
        name: "vtime",
        about: "weighted fair sharing: whoever has used least CPU time for its weight runs next",
        hidden: false,
        build: |config| Box::new(Vtime::new(config)),
    },
    PolicySpec {
        name: "panic-after",
        about: "for fault tests: fifo that panics after 1000 placements",
        hidden: true,
        build: |config| Box::new(PanicAfter { inner: Fifo::new(config), placements_left: 1000 }),
    },
];

/// The policies that are shown to people, in the order of a learner's interest.
pub fn list() -> impl Iterator<Item = &'static PolicySpec> {
    POLICIES.iter().filter(|spec| !spec.hidden)
}

/// The policy of that name, hidden ones included.
#[must_use]
pub fn find(name: &str) -> Option<&'static PolicySpec> {
    POLICIES.iter().find(|spec| spec.name == name)
}

impl Policy for AnyPolicy {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        (**self).place(now, task, view)
    }
    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> (usize, Nanos) {
        (**self).pick(now, cpu, waiting, view)
    }
    fn look_ahead(&self) -> usize {
        (**self).look_ahead()
    }
    fn work_conserving(&self) -> bool {
        (**self).work_conserving()
    }
    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        (**self).charge(now, task, view);
    }
    fn forget(&mut self, task: TaskId) {
        (**self).forget(task);
    }
}

/// A policy with a fault in it.
struct PanicAfter {
    inner: Fifo,
    placements_left: u32,
}

impl Policy for PanicAfter {
    fn name(&self) -> &'static str {
        "panic-after"
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        assert!(self.placements_left > 0, "policy panic-after: this is the panic that was asked for");
        self.placements_left -= 1;
        self.inner.place(now, task, view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_carries_the_name_it_is_found_by() {
        let config = Config { max_tasks: 4, ..Config::default() };
        for spec in POLICIES {
            assert_eq!((spec.build)(&config).name(), spec.name);
            assert!(std::ptr::eq(find(spec.name).unwrap(), spec));
        }
    }

    #[test]
    fn faulty_policies_are_found_but_not_listed() {
        assert!(list().all(|spec| spec.name != "panic-after"));
        assert!(find("panic-after").is_some() && find("no-such").is_none());
    }
}
