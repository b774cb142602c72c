// SPDX-License-Identifier: GPL-2.0-only
//! First come, first served. The policy to read first, and to copy for one of your own.
//!
//! # What it does
//!
//! A task becomes runnable. If a CPU near its previous one is idle, it runs there. If none is, it waits in the shortest
//! line. That is all; the rest of this page is about how 30 lines can be enough.
//!
//! # What a policy need not do
//!
//! The [`Dispatcher`](crate::dispatcher::Dispatcher) keeps the tasks, their affinity and the lines, and talks to the kernel. It
//! calls the policy with a question and makes the answer legal: a task that may not use the CPU you name goes to the
//! nearest that it may use (reason [`Corrected`](crate::reason::Reason::Corrected), counted). When the world moves on before a decision reaches the
//! kernel, the question is asked again. So a policy cannot lose a task, run one twice, or hang the machine.
//!
//! # Line by line
//!
//! - `struct Fifo` holds what the policy needs from one question to the next: here only two settings. A policy with a memory
//!   has a table with a row per task (`config.max_tasks` rows, indexed by `task.task.row()`), made in `new`: nothing may be
//!   allocated later, since a page fault of the dispatcher could wait for a task that waits for the dispatcher.
//! - `place` is the question. `task` is the wakeup: who, why, where it ran before, how long it ran and slept. `view` is the
//!   machine at this moment. `now` is the time: never read a clock, or the run cannot be replayed.
//! - [`View::idle_near`] knows the idle CPUs, and takes a decision that is on its way into account: two tasks that wake
//!   together never get the same CPU. It returns the reason with the CPU.
//! - [`Placement::Run`] starts the task at once for `slice_ns`. `preempt: false`: nobody runs there.
//! - [`View::shortest_line`] counts the running task and those that wait. On a tie it prefers the previous CPU.
//! - [`Placement::Wait`] puts the task in that CPU's line. `at_most_ns` is a promise to the task: if it still waits then
//!   and another CPU is idle, the dispatcher calls it back and sends it there. A CPU that runs dry does not wait for that:
//!   it pulls the first waiter from the longest line at once.
//!
//! A third answer, [`Placement::Queue`], keeps the task in an ordered queue until a CPU asks, sorted by a key: see
//! [`vtime`](super::vtime), which is fair where this policy is not (a task that always has a short line runs more often).
//!
//! # A policy of your own
//!
//! 1. Copy this file to `src/policy/NAME.rs`, rename the struct, and add `pub mod NAME;` to `src/policy/mod.rs`.
//! 2. Add a line to the table in `src/policy/registry.rs`: now `--policy NAME` works.
//! 3. Change `place`. Give every answer an honest [`Reason`](crate::reason::Reason): it is counted in the statistics.
//! 4. Test it as below: wake tasks, look at the commands. Then let the model kernel loose on it: add the name to
//!    `plans()` in `tests/oracle.rs` (random loads and faults: does every task run?), and measure in `benches/dispatch.rs`.
//!    [`Checked`](crate::checked::Checked) around it says which promise is broken, and by which answer.

use super::{Placement, Policy};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::Nanos;
use crate::view::View;

/// First come, first served: an idle CPU near the previous one, or else the shortest line.
#[derive(Clone, Debug)]
pub struct Fifo {
    slice_ns: Nanos,
    at_most_ns: Nanos,
}

impl Fifo {
    /// With the slice and the bound on waiting of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { slice_ns: config.slice_ns, at_most_ns: config.line_wait_ns }
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        let slice_ns = self.slice_ns;
        if let Some((cpu, reason)) = view.idle_near(task) {
            return Placement::Run { cpu, slice_ns, preempt: false, reason };
        }
        let (cpu, _ahead, reason) = view.shortest_line(task);
        Placement::Wait { cpu, slice_ns, at_most_ns: self.at_most_ns, reason }
    }
}

#[cfg(test)]
mod tests {
    use crate::cpuset::CpuSet;
    use crate::dispatcher::{Config, Dispatcher};
    use crate::event::{Event, NO_ROW, Outcome, Runnable, Why};
    use crate::ids::{CpuId, TaskId};
    use crate::policy::fifo::Fifo;
    use crate::reason::Reason;
    use crate::topology::Topology;

    /// Tasks wake one after the other; each row says where: previous CPU, allowed CPUs (none: all), and what is
    /// expected: CPU, reason.
    type Wakeup<'a> = (u32, Option<&'a [u32]>, u32, Reason);

    fn check(topology: Topology, wakeups: &[Wakeup]) {
        let config = Config { max_tasks: 64, ..Config::default() };
        let policy = Fifo::new(&config);
        let limit = topology.id_limit;
        let mut d = Dispatcher::new(topology, config, policy);
        for (i, &(prev, allowed, cpu, reason)) in wakeups.iter().enumerate() {
            let task = TaskId { idx: i as u32, generation: 1 };
            if let Some(cpus) = allowed {
                let set = CpuSet::of(limit, cpus.iter().map(|&c| CpuId(c)));
                d.handle(1, &Event::Affinity(task, set));
            }
            d.handle(
                1,
                &Event::Runnable(Runnable {
                    task,
                    pid: 100 + i as u32,
                    seq: 1,
                    why: Why::Woken,
                    prev_cpu: CpuId(prev),
                    ran_ns: 0,
                    slept_ns: 0,
                    waited_ns: 0,
                    left_busy_ns: 0,
                    waker_row: NO_ROW,
                    weight: 100,
                    cgroup: 1,
                }),
            );
            let command = d.poll(1).unwrap();
            assert_eq!((command.cpu, command.reason), (CpuId(cpu), reason), "wakeup {i}");
            assert_eq!(d.poll(1), None);
            d.committed(1, &command, Outcome::Done);
        }
    }

    #[test]
    fn idle_cpus_first_the_nearest_of_them() {
        // Two domains of two CPUs.
        check(
            Topology::grid(2, 2, 1),
            &[
                (1, None, 1, Reason::PrevIdle),
                (1, None, 0, Reason::LlcIdle),
                (1, None, 2, Reason::RemoteIdle),
                (1, Some(&[0, 3]), 3, Reason::RemoteIdle),
                (3, None, 3, Reason::ShortestLine { ahead: 1 }),
            ],
        );
    }

    #[test]
    fn a_whole_core_goes_before_half_of_one() {
        // Two cores of two SMT siblings: 0 and 1, 2 and 3.
        check(
            Topology::grid(1, 2, 2),
            &[(0, None, 0, Reason::PrevIdle), (0, None, 2, Reason::LlcIdle), (0, None, 1, Reason::LlcIdle)],
        );
    }

    #[test]
    fn the_shortest_line_and_on_a_tie_the_previous_cpu() {
        check(
            Topology::grid(2, 1, 1),
            &[
                (1, None, 1, Reason::PrevIdle),
                (1, None, 0, Reason::RemoteIdle),
                (1, None, 1, Reason::ShortestLine { ahead: 1 }),
                (1, None, 0, Reason::ShortestLine { ahead: 1 }),
                (1, Some(&[1]), 1, Reason::OnlyAllowed),
                (1, None, 0, Reason::ShortestLine { ahead: 2 }),
            ],
        );
    }
}
