// SPDX-License-Identifier: GPL-2.0-only
//! Outcomes coming back: what became of a decision.

use super::Dispatcher;
use crate::event::{Command, Outcome};
use crate::ids::CpuId;
use crate::lifecycle::{Fact, State};
use crate::limits::MAX_RETRIES;
use crate::policy::Policy;
use crate::tasks::Pending;

impl<P: Policy> Dispatcher<P> {
    pub(super) fn settle(&mut self, command: &Command, outcome: Outcome) {
        self.stats.outcomes.count(outcome);
        let Some(cpu) = self.machine.cpus.get_mut(command.cpu.idx()) else {
            self.stats.anomalies += 1; // not a command of ours
            return;
        };
        cpu.in_flight = cpu.in_flight.saturating_sub(1);
        let ours = self.tasks.find(command.task).is_some_and(|row| {
            row.decided && row.has_seq && row.fact.seq == command.seq && row.state != State::Exited
        });
        if ours {
            self.row(command.task.idx).decided = false;
        }
        let moved = ours
            && match command.recalled_from {
                None => self.settle_hold(command, outcome),
                Some(_) => self.settle_recall(command, outcome),
            };
        if ours && !moved {
            self.estimate_refusal(command.task.idx);
        }
        // A task that was on its way is in the line now: nothing changed for those behind it. If it is not, the CPU may be
        // free after all, and someone else may have it.
        if !moved {
            self.cpu_changed(command.cpu);
        }
    }

    /// The task was to be moved out of its HOLD queue. Says whether it is in the CPU's line now.
    fn settle_hold(&mut self, command: &Command, outcome: Outcome) -> bool {
        let index = command.task.idx;
        match outcome {
            Outcome::Done => return self.moved(index, command),
            Outcome::Stale | Outcome::Gone => {
                self.step(index, Fact::Dropped);
            }
            Outcome::NotAllowed => {
                self.tasks.learn_refusal(index, command.cpu, &self.machine);
                self.again(index);
            }
            Outcome::Retry => self.again(index),
        }
        false
    }

    /// The task was to be moved from one CPU's own queue to another's. Says whether it is in the other line now.
    fn settle_recall(&mut self, command: &Command, outcome: Outcome) -> bool {
        let index = command.task.idx;
        match outcome {
            Outcome::Done => {
                self.leave_line(index);
                return self.moved(index, command);
            }
            // It has started there, or left for good.
            Outcome::Stale | Outcome::Gone => {
                self.leave_line(index);
                self.step(index, Fact::Dropped);
            }
            // It waits where it was.
            Outcome::NotAllowed => {
                self.tasks.learn_refusal(index, command.cpu, &self.machine);
                self.row(index).retries = self.row(index).retries.saturating_add(1);
            }
            Outcome::Retry => self.row(index).retries = self.row(index).retries.saturating_add(1),
        }
        false
    }

    fn leave_line(&mut self, index: u32) {
        if let Some(cpu) = self.unlink(index) {
            self.cpu_changed(cpu);
        }
    }

    /// The task is in the CPU's own queue now.
    fn moved(&mut self, index: u32, command: &Command) -> bool {
        if !self.step(index, Fact::Moved) {
            return false;
        }
        self.join_line(index, command.cpu);
        let now = self.now;
        let row = self.row(index);
        row.doubted = false;
        row.due_ns = now.saturating_add(row.at_most_ns);
        let prev = row.fact.prev_cpu;
        if prev == command.cpu {
            self.stats.to_same_cpu += 1;
        } else if self.same_llc(prev, command.cpu) {
            self.stats.within_llc += 1;
        } else {
            self.stats.across_llc += 1;
        }
        true
    }

    fn same_llc(&self, a: CpuId, b: CpuId) -> bool {
        self.machine.llc_of(a).is_some_and(|llc| self.machine.llc_of(b) == Some(llc))
    }

    /// The task still waits in its HOLD queue: decide again, unless that has gone on for too long.
    fn again(&mut self, index: u32) {
        let row = self.row(index);
        row.retries = row.retries.saturating_add(1);
        if row.retries > MAX_RETRIES {
            self.stats.left_to_rescan += 1;
            self.step(index, Fact::Dropped);
        } else {
            self.tasks.push_pending(index, Pending::Place);
        }
    }
}
