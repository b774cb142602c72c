// SPDX-License-Identifier: GPL-2.0-only
//! Why did this task go there? For single wakeups of a run: what every CPU would have cost as the dispatcher saw it at that
//! moment, what was decided and why, and what came true.
//!
//! It works for every policy: [`Spy`] wraps the policy and looks at the view just before the policy does, and has warmth and
//! completion times kept even if the policy needs neither. The decisions are the policy's own and do not change.

mod spy;
mod text;

pub use spy::Spy;
pub use text::render;

use super::result::{Observer, Run};
use super::timeline::since_start;
use crate::event::{Command, Outcome, Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::view::View;
use serde::{Deserialize, Serialize};
use spy::Notes;
use std::collections::BTreeMap;

/// What a CPU would have cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which.
    pub cpu: u32,
    /// Nothing runs or waits there.
    pub idle: bool,
    /// Held by a higher class, or the dispatcher's own: not to be had now.
    pub taken: bool,
    /// It is in the LLC domain of the CPU that the task ran on before.
    pub near: bool,
    /// The expected wait.
    pub wait_ns: Nanos,
    /// What fetching its state again is expected to take within the run.
    pub refill_ns: Nanos,
}

impl Candidate {
    /// Wait and refill.
    #[must_use]
    pub fn cost_ns(&self) -> Nanos {
        self.wait_ns.saturating_add(self.refill_ns)
    }
}

/// A decision about the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When it was taken, since the run's start.
    pub at_ns: Nanos,
    /// Where to.
    pub cpu: u32,
    /// Called back from the line of this CPU.
    pub recalled_from: Option<u32>,
    /// Why, in words.
    pub reason: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// A wakeup from its record to the end of the run that it led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The task's row and generation.
    pub task: TaskId,
    /// Row in [`super::result::RunResult::groups`].
    pub group: u32,
    /// Why it became runnable.
    pub why: Why,
    /// Where it ran before.
    pub prev_cpu: u32,
    /// When the dispatcher looked at it, since the run's start.
    pub at_ns: Nanos,
    /// What the CPUs that it may use would have cost then.
    pub candidates: Vec<Candidate>,
    /// What was decided; empty: the kernel side served it.
    pub steps: Vec<Step>,
    /// Where it ran.
    pub cpu: u32,
    /// How long it had to wait, from waking up.
    pub waited_ns: Nanos,
    /// The same from [`Explanation::at_ns`] on.
    pub decided_wait_ns: Nanos,
    /// What fetching its state again took.
    pub refill_ns: Nanos,
    /// Share of its state that was there when it started.
    pub warmth: f64,
    /// How long it then ran.
    pub ran_ns: Nanos,
}

impl Explanation {
    /// The cheapest candidate.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.iter().filter(|c| !c.taken).min_by_key(|c| c.cost_ns())
    }

    /// What the CPU where it ran was expected to cost.
    #[must_use]
    pub fn expected(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.cpu == self.cpu)
    }

    /// How much longer wait and refill took than was expected of the cheapest candidate.
    #[must_use]
    pub fn regret_ns(&self) -> Nanos {
        let best = self.best().map_or(u64::MAX, Candidate::cost_ns);
        (self.decided_wait_ns + self.refill_ns).saturating_sub(best)
    }
}

/// What makes a wakeup bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Regret.
    Regret,
    /// How long it had to wait.
    Wakeup,
}

/// Which wakeups are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Of these groups only (rows); empty: all.
    pub groups: Vec<u32>,
    /// Of this task only (its row).
    pub task: Option<u32>,
    /// Closest to this time since the run's start; none: the worst.
    pub at_ns: Option<Nanos>,
    /// From when on the worst are looked for.
    pub from_ns: Nanos,
    /// What is bad.
    pub by: By,
    /// How many.
    pub most: usize,
}

/// Watches a run and keeps the wakeups that are wanted.
pub struct Explainer {
    wanted: Wanted,
    notes: Notes,
    open: BTreeMap<u32, Explanation>,
    /// Started, by CPU.
    running: BTreeMap<u32, Explanation>,
    /// The best first, with what they are ranked by.
    kept: Vec<(u64, Explanation)>,
}

impl Explainer {
    /// For a run whose policy is wrapped in a [`Spy`] with the same notes.
    #[must_use]
    pub fn new(wanted: Wanted) -> (Self, Notes) {
        let notes = Notes::default();
        let explainer = Self {
            wanted,
            notes: notes.clone(),
            open: BTreeMap::new(),
            running: BTreeMap::new(),
            kept: Vec::new(),
        };
        (explainer, notes)
    }

    /// The wakeups that were wanted, the worst (or closest) first.
    #[must_use]
    pub fn finish(self) -> Vec<Explanation> {
        self.kept.into_iter().map(|(_, explanation)| explanation).collect()
    }

    fn wants(&self, task: TaskId, group: u32) -> bool {
        let w = &self.wanted;
        w.task.is_none_or(|row| row == task.idx) && (w.groups.is_empty() || w.groups.contains(&group))
    }

    fn keep(&mut self, explanation: Explanation) {
        let w = &self.wanted;
        let rank = match w.at_ns {
            Some(at_ns) => u64::MAX - explanation.at_ns.abs_diff(at_ns),
            None if explanation.at_ns < w.from_ns => return,
            None if w.by == By::Regret => explanation.regret_ns(),
            None => explanation.waited_ns,
        };
        // Ties stay in order of time.
        let place = self.kept.partition_point(|(other, _)| *other >= rank);
        if place < w.most {
            self.kept.insert(place, (rank, explanation));
            self.kept.truncate(w.most);
        }
    }
}

impl Observer for Explainer {
    fn runnable(&mut self, now: Nanos, runnable: &Runnable) {
        let known = self.open.get(&runnable.task.idx);
        // A reminder of a task that waits already starts nothing new.
        if runnable.why == Why::Rescan && known.is_some_and(|open| open.task == runnable.task) {
            return;
        }
        let explanation = Explanation {
            task: runnable.task,
            group: 0,
            why: runnable.why,
            prev_cpu: runnable.prev_cpu.0,
            at_ns: since_start(now),
            candidates: Vec::new(),
            steps: Vec::new(),
            cpu: 0,
            waited_ns: 0,
            decided_wait_ns: 0,
            refill_ns: 0,
            warmth: 0.0,
            ran_ns: 0,
        };
        self.open.insert(runnable.task.idx, explanation);
    }

    fn polled(&mut self, now: Nanos, command: &Command, view: &View) {
        let Some(open) = self.open.get_mut(&command.task.idx).filter(|open| open.task == command.task) else {
            return;
        };
        if open.candidates.is_empty() {
            // Decided without the policy: the view holds the decision already.
            open.candidates = spy::candidates(command.task, CpuId(open.prev_cpu), view);
        }
        open.steps.push(Step {
            at_ns: since_start(now),
            cpu: command.cpu.0,
            recalled_from: command.recalled_from.map(|cpu| cpu.0),
            reason: command.reason.to_string(),
            outcome: Outcome::Done,
        });
    }

    fn decided(&mut self, _now: Nanos, _runnable: &Runnable, command: &Command, outcome: Outcome) {
        if let Some(step) = self.open.get_mut(&command.task.idx).and_then(|open| open.steps.last_mut()) {
            step.outcome = outcome;
        }
    }

    fn asked(&mut self, _now: Nanos, _command: Option<&Command>) {
        // What the policy was asked since the last call, before the decision is looked at.
        for (task, at, candidates) in self.notes.take() {
            if let Some(open) = self.open.get_mut(&task.idx).filter(|open| open.task == task) {
                open.at_ns = since_start(at);
                open.candidates = candidates;
            }
        }
    }

    fn started(&mut self, now: Nanos, task: TaskId, group: u32, cpu: CpuId, waited_ns: Nanos, warmth: f64) {
        let Some(mut open) = self.open.remove(&task.idx).filter(|open| open.task == task) else { return };
        if !self.wants(task, group) {
            return;
        }
        open.group = group;
        open.cpu = cpu.0;
        open.waited_ns = waited_ns;
        open.decided_wait_ns = since_start(now).saturating_sub(open.at_ns);
        open.warmth = warmth;
        self.running.insert(cpu.0, open);
    }

    fn stopped(&mut self, run: &Run) {
        let Some(mut open) = self.running.remove(&run.cpu.0).filter(|open| open.task == run.task) else {
            return;
        };
        open.refill_ns = run.refill_ns;
        open.ran_ns = run.end_ns - run.start_ns;
        self.keep(open);
    }
}
