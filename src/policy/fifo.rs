// SPDX-License-Identifier: GPL-2.0-only
//! First come, first served.

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
