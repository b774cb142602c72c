// SPDX-License-Identifier: GPL-2.0-only
//! What must hold in every run, whatever the policy and the faults. A broken rule ends the run without a result.

use super::engine::{EPOCH_NS, Engine};
use super::lists::NONE;
use super::result::Observer;
use super::task::Place;
use crate::dispatcher::Config;
use crate::event::Command;
use crate::ids::Nanos;
use crate::limits::{STARVING_NS, TAKEOVER_SLICE_NS, WATCHDOG_NS};
use crate::policy::Policy;

/// More findings than this help nobody.
const MAX_FINDINGS: usize = 8;

/// A task may wait beside an idle CPU for so long: the CPU asks at once, and is answered in a turn of the dispatcher.
const IDLE_BESIDE_NS: Nanos = 1_200_000;

/// Turns of the dispatcher after which a takeover has ended.
const TAKEOVER_ROUNDS: u64 = 3;

/// Broken rules.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub findings: Vec<String>,
}

impl Audit {
    pub fn note(&mut self, at: Nanos, what: &str) {
        if self.findings.len() < MAX_FINDINGS {
            let us = (at - EPOCH_NS) as f64 / 1000.0;
            self.findings.push(format!("at {us} us: {what}"));
        }
    }

    pub fn is_hopeless(&self) -> bool {
        self.findings.len() >= MAX_FINDINGS
    }
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    /// A task is about to get a CPU.
    #[inline]
    pub fn audit_start(&mut self, task: u32, cpu: u32) {
        let (t, c) = (&self.tasks[task as usize], &self.cpus[cpu as usize]);
        if c.curr != NONE || c.held || !c.online {
            return self.finding(format!("task {task} starts on CPU {cpu}, which is not free"));
        }
        if !t.alive || matches!(t.place, Place::On(_) | Place::Dead) {
            return self.finding(format!("task {task} starts on CPU {cpu} and is {:?}", t.place));
        }
        if !self.may_use(task, cpu) {
            return self.finding(format!("task {task} starts on CPU {cpu}, which it may not use"));
        }
        let waited = self.now - t.runnable_since_ns;
        self.audit_wait(task, waited, t.runnable_since_ns);
    }

    fn audit_wait(&mut self, task: u32, waited: Nanos, since: Nanos) {
        let bounded = self.options.bounded_from_ns.is_some_and(|from| since >= EPOCH_NS + from);
        if waited < self.config.slice_ns {
            return;
        }
        let bound = if bounded { self.turn_ns() } else { WATCHDOG_NS };
        if waited > bound {
            self.finding(format!(
                "task {task} waits for {} us, at most {} are right",
                waited / 1000,
                bound / 1000
            ));
        }
    }

    /// Everybody in one line, each with a full slice, twice over for slack; in a queue with an order, the aging rule
    /// may have to come first.
    fn turn_ns(&self) -> Nanos {
        let ordered = self.dispatcher.as_ref().is_none_or(|d| d.policy().name() != "fifo");
        let slice_ns = self.config.slice_ns.max(TAKEOVER_SLICE_NS);
        u64::from(self.alive + 2) * slice_ns * 2 + if ordered { STARVING_NS } else { 0 }
    }

    /// A task has left a CPU.
    #[inline]
    pub fn audit_leave(&mut self, task: u32, cpu: u32, ran_ns: Nanos) {
        let t = &self.tasks[task as usize];
        if t.place != Place::On(cpu) {
            let place = t.place;
            self.finding(format!("task {task} leaves CPU {cpu} and is {place:?}"));
        }
        let c = &self.cpus[cpu as usize];
        let slice_ns = c.slice_ns + c.dispatcher_ns;
        // Those who wait there came at the end of an extended slice at the earliest.
        let waiter = c.own.head;
        if waiter != NONE
            && ran_ns > slice_ns
            && self.now - self.tasks[waiter as usize].queued_ns > 2 * slice_ns + 1000
        {
            self.finding(format!("task {task} ran for {ran_ns} ns on CPU {cpu} beside a waiting task"));
        }
    }

    /// A decision is about to be carried out.
    pub fn audit_commit(&mut self, row: u32, command: &Command) {
        let t = &self.tasks[row as usize];
        if t.seq != command.seq || t.id != command.task {
            self.finding(format!("a stale decision moves task {row}"));
        }
    }

    /// Once a millisecond while anything waits.
    pub fn audit_tick(&mut self) {
        if let Some(since) = self.takeover_since {
            let rounds = self.metrics.counts.rounds - self.driver.rounds_at_takeover;
            if rounds >= TAKEOVER_ROUNDS {
                self.finding(format!(
                    "the takeover goes on for {} us although the dispatcher is there",
                    (self.now - since) / 1000
                ));
            }
        }
        self.audit_idle();
        self.audit_waiting();
    }

    /// No task waits beside an idle CPU for long, if the policy promises that.
    fn audit_idle(&mut self) {
        let conserving = self.dispatcher.as_ref().is_some_and(|d| d.policy().work_conserving());
        let quiet = self.takeover_since.is_none() && self.now >= self.driver.late_until_ns;
        let settled = self.now.saturating_sub(self.driver.quiet_since_ns) > IDLE_BESIDE_NS;
        if !conserving || !quiet || !settled || self.faults_pending() {
            return;
        }
        let own = self.scenario.dispatcher.cpu;
        for cpu in 0..self.cpus.len() as u32 {
            let c = &self.cpus[cpu as usize];
            let free = c.online && !c.held && c.curr == NONE && c.aside == NONE;
            if !free || Some(cpu) == own || self.now - c.idle_since_ns < IDLE_BESIDE_NS {
                continue;
            }
            let waits = |&task: &u32| {
                let t = &self.tasks[task as usize];
                t.alive
                    && t.waits()
                    && self.now - t.queued_ns.max(t.runnable_since_ns) >= IDLE_BESIDE_NS
                    && self.may_use(task, cpu)
            };
            if let Some(task) = (0..self.tasks.len() as u32).find(waits) {
                let place = self.tasks[task as usize].place;
                return self.finding(format!("task {task} waits ({place:?}) beside idle CPU {cpu}"));
            }
        }
    }

    /// Are there faults that a task may suffer from?
    fn faults_pending(&self) -> bool {
        let f = &self.scenario.faults;
        self.faults_on && (f.lose_record_pct > 0.0 || f.retry_pct > 0.0)
            || self.scenario.dispatcher.dead_at_ms.is_some()
    }

    /// Whoever waits is in the queue where it is said to be, and does not wait for ever.
    fn audit_waiting(&mut self) {
        let (mut hold, mut own, mut fallback) = (0, 0, 0);
        for row in 0..self.tasks.len() as u32 {
            let t = &self.tasks[row as usize];
            if !t.alive {
                continue;
            }
            match t.place {
                Place::Hold(_) => hold += 1,
                Place::Own(_) => own += 1,
                Place::Fallback => fallback += 1,
                _ => continue,
            }
            let (waited, since) = (self.now - t.runnable_since_ns, t.runnable_since_ns);
            self.audit_wait(row, waited, since);
        }
        let in_own: u32 = self.cpus.iter().map(|cpu| cpu.own.len).sum();
        if (hold, own, fallback) != (self.held_tasks, in_own, self.fallback.len) {
            self.finding(format!(
                "{hold} tasks are on HOLD, {own} in own queues, {fallback} in FALLBACK; the queues have {}, {in_own}, {}",
                self.held_tasks, self.fallback.len
            ));
        }
    }

    /// At the end: nobody is lost, all work is accounted for, the dispatcher saw nothing impossible.
    pub fn audit_end(&mut self) {
        self.audit_waiting();
        let running = self.cpus.iter().filter(|cpu| cpu.curr != NONE).count();
        let on = self.tasks.iter().filter(|t| t.alive && matches!(t.place, Place::On(_))).count();
        if running != on {
            self.finding(format!("{running} CPUs run something, {on} tasks run"));
        }
        for row in 0..self.tasks.len() as u32 {
            let t = &self.tasks[row as usize];
            let stuck = t.alive && t.place == Place::Asleep && t.block == super::task::Block::No;
            if stuck {
                self.finding(format!("task {row} is nowhere"));
            }
        }
        let left: Nanos = self.tasks.iter().filter(|t| t.alive).map(|t| t.work_left_ns + t.debt_ns).sum();
        let out = self.work_done + left + self.work_lost;
        if self.work_in != out {
            self.finding(format!("{} ns of work came in, {out} are accounted for", self.work_in));
        }
        self.audit_dispatcher();
    }

    fn audit_dispatcher(&mut self) {
        let Some(d) = &self.dispatcher else { return };
        let (anomalies, broken) = (d.stats().anomalies, d.policy().violations().clone());
        if broken.total() > 0 {
            self.finding(format!("the policy broke promises: {broken:?}"));
        }
        let f = &self.scenario.faults;
        let doubtful = f.lose_record_pct + f.lose_exit_pct + f.bypass_pct > 0.0
            || self.metrics.counts.takeovers + self.metrics.counts.restarts + self.metrics.counts.rescued > 0
            || self.metrics.counts.ring_full > 0;
        if anomalies > 0 && !doubtful {
            self.finding(format!("the dispatcher saw {anomalies} impossible facts"));
        }
    }

    /// Waits that began before now do not count as idleness beside a waiting task.
    pub fn disturb(&mut self) {
        self.driver.quiet_since_ns = self.now;
    }
}
