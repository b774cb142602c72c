// SPDX-License-Identifier: GPL-2.0-only
//! A policy that asks everything that is to be known about warmth and completion times: for tests of what that costs.

use hearth::dispatcher::Config;
use hearth::event::Runnable;
use hearth::ids::{CpuId, Nanos};
use hearth::policy::{Needs, Placement, Policy};
use hearth::reason::Reason;
use hearth::view::View;

/// Least wait + refill among the idle CPU that is nearest, the shortest line and all CPUs that are remembered.
pub struct Estimating {
    slice_ns: Nanos,
}

impl Estimating {
    pub const NAME: &str = "estimates";

    pub fn new(config: &Config) -> Self {
        Self { slice_ns: config.slice_ns }
    }
}

impl Policy for Estimating {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs { warmth: true, completion: true }
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        let (shortest, ahead, _) = view.shortest_line(task);
        let mut best = (Nanos::MAX, shortest);
        let mut consider = |cpu: CpuId| {
            if view.is_usable(task.task, cpu) {
                let wait_ns = view.wait_ns(cpu);
                let cost_ns = wait_ns + view.refill(task.task, cpu, wait_ns).total_ns();
                best = best.min((cost_ns, cpu));
            }
        };
        consider(shortest);
        view.idle_cpus(task).take(1).for_each(&mut consider);
        view.remembered(task.task).for_each(&mut consider);
        let (cpu, slice_ns) = (best.1, self.slice_ns);
        let at_most_ns = 2 * view.service_ns(task.task) + self.slice_ns;
        let reason = Reason::ShortestLine { ahead };
        if view.is_idle(cpu) {
            return Placement::Run { cpu, slice_ns, preempt: false, reason };
        }
        Placement::Wait { cpu, slice_ns, at_most_ns, reason }
    }

    fn work_conserving(&self) -> bool {
        false
    }
}
