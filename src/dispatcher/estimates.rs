// SPDX-License-Identifier: GPL-2.0-only
//! Warmth and completion beside the dispatcher's tables: fed by the facts that it takes in and the decisions that it hands
//! out, and scored when the truth arrives. Whatever the policy does not need is not there and costs a branch.

use super::Dispatcher;
use crate::completion::{Completion, Occupant, Prediction};
use crate::event::{CpuStatus, Runnable};
use crate::ids::{CpuId, Nanos};
use crate::lifecycle::State;
use crate::machine::Machine;
use crate::ordered::NONE;
use crate::policy::{Needs, Policy};
use crate::profile::Profile;
use crate::tasks::Tasks;
use crate::topology::Topology;
use crate::warmth::Warmth;

/// What is kept for the policy.
#[derive(Debug)]
pub(crate) struct Estimates {
    pub profile: Profile,
    pub warmth: Option<Warmth>,
    pub completion: Option<Completion>,
}

impl Estimates {
    pub fn new(needs: Needs, profile: Profile, topology: &Topology, max_tasks: usize) -> Self {
        Self {
            warmth: needs.warmth.then(|| Warmth::new(topology, &profile, max_tasks)),
            completion: needs.completion.then(|| Completion::new(topology, max_tasks)),
            profile,
        }
    }

    fn is_off(&self) -> bool {
        self.warmth.is_none() && self.completion.is_none()
    }

    /// A new reading of an online CPU's status words.
    #[inline]
    pub fn read(&mut self, status: &CpuStatus) {
        if let Some(warmth) = &mut self.warmth {
            warmth.clocks_mut().read(status);
        }
        if let Some(completion) = &mut self.completion {
            completion.read(status);
        }
    }

    /// A row was handed out anew, or its task is gone.
    pub fn clear(&mut self, row: u32) {
        if let Some(warmth) = &mut self.warmth {
            warmth.clear(row as usize);
        }
        if let Some(completion) = &mut self.completion {
            completion.clear(row as usize);
        }
    }

    /// The task runs another program.
    pub fn exec(&mut self, row: u32) {
        if let Some(warmth) = &mut self.warmth {
            warmth.clear(row as usize);
        }
        if let Some(completion) = &mut self.completion {
            completion.exec(row as usize);
        }
    }

    /// Records may have been lost.
    pub fn resync(&mut self) {
        if let Some(completion) = &mut self.completion {
            completion.resync();
        }
    }

    /// The task waits in an ordered queue, or for one CPU; the numbers of places are those of the queues.
    #[inline]
    pub fn join(&mut self, row: u32, place: usize, slice_ns: Nanos) {
        if let Some(completion) = &mut self.completion {
            completion.join(row as usize, place, slice_ns);
        }
    }

    /// The task does not wait any more.
    #[inline]
    pub fn leave(&mut self, row: u32) {
        if let Some(completion) = &mut self.completion {
            completion.leave(row as usize);
        }
    }
}

/// What runs on a CPU, as far as it is known at this moment.
#[inline]
pub(crate) fn occupant(cpu: CpuId, machine: &Machine, tasks: &Tasks) -> Occupant {
    let Some(row) = machine.cpus.get(cpu.idx()) else { return Occupant::Nobody };
    if machine.is_held(cpu) {
        return Occupant::Held;
    }
    match row.curr {
        // A task whose record came after the reading of the status words is not on any more.
        Some(task) => match tasks.find(task) {
            Some(r) if r.state == State::Running && r.cpu == cpu.0 => Occupant::Task(task.idx),
            Some(_) => Occupant::Nobody,
            None => Occupant::Other,
        },
        None if row.is_occupied() => Occupant::Other,
        None => Occupant::Nobody,
    }
}

/// How long a task that joins now waits for a CPU.
#[inline]
pub(crate) fn wait_ns(
    completion: &Completion,
    cpu: CpuId,
    machine: &Machine,
    tasks: &Tasks,
    now: Nanos,
) -> Nanos {
    let Some(row) = machine.cpus.get(cpu.idx()) else { return 0 };
    let strangers = row.depth.saturating_sub(row.line.len());
    completion.wait_ns(cpu, occupant(cpu, machine, tasks), strangers, now)
}

impl<P: Policy> Dispatcher<P> {
    /// A task's record, before the policy is asked what to do with it. `counts`: it tells something new.
    #[inline]
    pub(super) fn estimate_run(&mut self, index: u32, record: &Runnable, counts: bool) {
        if self.estimates.is_off() {
            return;
        }
        let wait_ns = record.waited_ns;
        if wait_ns > 0 {
            let since_ns = self.tasks.rows[index as usize].told_ns;
            self.score_start(index, record.prev_cpu, since_ns.saturating_add(wait_ns));
        } else if let Some(completion) = &mut self.estimates.completion {
            completion.predict(index as usize, None);
        }
        if !counts {
            return;
        }
        let fact = &self.tasks.rows[index as usize].fact;
        if let Some(warmth) = &mut self.estimates.warmth {
            warmth.ran(index as usize, self.now, fact);
        }
        if let Some(completion) = &mut self.estimates.completion {
            completion.ran(index as usize, fact, fact.ran_ns != record.ran_ns);
        }
    }

    /// A decision is handed out: it is counted for its CPU, and what it expects is kept.
    #[inline]
    pub(super) fn estimate_decision(&mut self, row: u32, cpu: CpuId, slice_ns: Nanos, preempt: bool) {
        let Some(completion) = &mut self.estimates.completion else { return };
        completion.leave(row as usize);
        let wait_ns = wait_ns(completion, cpu, &self.machine, &self.tasks, self.now);
        let busy = !self.machine.is_idle(cpu);
        let prediction = Prediction { made_ns: self.now, cpu, wait_ns, busy };
        completion.predict(row as usize, (!preempt).then_some(prediction));
        let place = completion.place_of_cpu(cpu);
        completion.join(row as usize, place, slice_ns);
    }

    /// A decision was not carried out; the task waits where it did before: in the line of a CPU, or nowhere that counts.
    #[inline]
    pub(super) fn estimate_refusal(&mut self, row: u32) {
        let Some(completion) = &mut self.estimates.completion else { return };
        completion.predict(row as usize, None);
        completion.leave(row as usize);
        let r = &self.tasks.rows[row as usize];
        if r.state == State::Committed && r.cpu != NONE {
            completion.join(row as usize, completion.place_of_cpu(CpuId(r.cpu)), r.slice_ns);
        }
    }

    /// A task has started on a CPU: what was predicted of it is compared.
    #[inline]
    pub(super) fn score_start(&mut self, row: u32, cpu: CpuId, started_ns: Nanos) {
        let Some(completion) = &mut self.estimates.completion else { return };
        let Some(prediction) = completion.predicted(row as usize) else { return };
        if prediction.cpu == cpu {
            let waited_ns = started_ns.saturating_sub(prediction.made_ns);
            let error =
                if prediction.busy { &mut self.stats.wait_error } else { &mut self.stats.start_error };
            error.add(prediction.wait_ns, waited_ns);
        }
    }
}
