// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher's loop, as the daemon's: a turn reads the status words that changed, then records, then the timer; then
//! decisions are polled and committed in one call at the turn's end, and the outcomes handed back.

use super::agenda::Alarm;
use super::engine::Engine;
use super::kernel::Record;
use super::lists::NONE;
use super::result::Observer;
use super::rng::{Purpose, Stream};
use super::scenario::Scenario;
use crate::cpuset::CpuSet;
use crate::dispatcher::Config;
use crate::event::{Command, CpuStatus, Event, Runnable};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::MAX_BATCH;
use crate::policy::Policy;
use crate::topology::Topology;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Asleep,
    /// Looks at the ring.
    Awake,
    /// In a turn, until its commits.
    Busy,
}

const NEVER: Nanos = u64::MAX;

/// The dispatcher thread.
#[derive(Debug)]
pub(crate) struct DriverState {
    mood: Mood,
    /// When the next turn is due.
    due_ns: Nanos,
    round_ns: Nanos,
    doze_epoch: u32,
    batch: Vec<Command>,
    pub dirty: Vec<u64>,
    pub wants_asks: bool,
    /// A record was lost: rescan.
    pub lost: bool,
    pub records_read: u64,
    pub records_read_at_tick: u64,
    pub progress_ns: Nanos,
    pub rounds_at_takeover: u64,
    pub late_until_ns: Nanos,
    /// Since when nothing has disturbed the order (a takeover, a held CPU, a restart).
    pub quiet_since_ns: Nanos,
    pub late_stream: Stream,
    pub attach_epoch: u32,
    /// Costs, 0 if the dispatcher is ideal.
    message_ns: Nanos,
    notice_ns: Nanos,
    spin_ns: Nanos,
    status_ns: Nanos,
    record_ns: Nanos,
    decision_ns: Nanos,
    commit_ns: Nanos,
    per_commit_ns: Nanos,
    pub switch_ns: Nanos,
    pub ipi_ns: Nanos,
    pub wake_call_ns: Nanos,
    affinity: Event,
    all: CpuSet,
    /// What was read last of each task, while somebody watches.
    facts: Vec<Option<Runnable>>,
    /// Counts wakeups; one of so many is compared with the best.
    pub sample: u64,
}

impl DriverState {
    pub fn new(scenario: &Scenario, machine: &Topology, seed: u64) -> Self {
        let (d, c) = (&scenario.dispatcher, &scenario.costs);
        let cost = |ns: Nanos| if d.ideal { 0 } else { ns };
        let nobody = TaskId { idx: 0, generation: 0 };
        Self {
            mood: Mood::Asleep,
            due_ns: NEVER,
            round_ns: 0,
            doze_epoch: 0,
            batch: Vec::with_capacity(MAX_BATCH),
            dirty: vec![0; machine.id_limit as usize / 64 + 1],
            wants_asks: false,
            lost: false,
            records_read: 0,
            records_read_at_tick: 0,
            progress_ns: 0,
            rounds_at_takeover: 0,
            late_until_ns: 0,
            quiet_since_ns: 0,
            late_stream: Stream::new(seed, Purpose::Late, 0, 0),
            attach_epoch: 0,
            message_ns: cost(d.message_ns),
            notice_ns: cost(d.notice_ns),
            spin_ns: cost(d.spin_us * 1000),
            status_ns: cost(d.per_status_ns),
            record_ns: cost(d.per_record_ns),
            decision_ns: cost(d.per_decision_ns),
            commit_ns: cost(d.commit_ns),
            per_commit_ns: cost(d.per_commit_ns),
            switch_ns: cost(c.switch_ns),
            ipi_ns: cost(c.wake_ipi_ns),
            wake_call_ns: cost(c.wake_call_ns),
            affinity: Event::Affinity(nobody, CpuSet::with_limit(machine.id_limit)),
            all: CpuSet::of(machine.id_limit, machine.cpus.iter().map(|cpu| cpu.id)),
            facts: Vec::new(),
            sample: 0,
        }
    }

    /// Forgets everything: a new daemon is attached.
    pub fn restart(&mut self) {
        self.mood = Mood::Asleep;
        self.due_ns = NEVER;
        self.doze_epoch = self.doze_epoch.wrapping_add(1);
        self.batch.clear();
        self.wants_asks = false;
        self.lost = false;
    }
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    /// Something is in the ring.
    #[inline]
    pub fn notice(&mut self) {
        let delay = match self.driver.mood {
            Mood::Busy => return,
            Mood::Awake => self.driver.notice_ns,
            Mood::Asleep => self.driver.message_ns,
        };
        self.turn_at(self.now + delay);
    }

    #[inline]
    fn turn_at(&mut self, at: Nanos) {
        if at < self.driver.due_ns {
            self.driver.due_ns = at;
            self.agenda.add(at, Alarm::Round);
        }
    }

    pub fn round_due(&mut self) {
        if self.driver.due_ns != self.now {
            return;
        }
        self.driver.due_ns = NEVER;
        if self.driver.mood == Mood::Busy || self.dispatcher.is_none() {
            return;
        }
        if self.now < self.driver.late_until_ns {
            let until = self.driver.late_until_ns;
            return self.turn_at(until);
        }
        self.turn();
    }

    /// One turn, up to its commit call.
    fn turn(&mut self) {
        let now = self.now;
        self.driver.round_ns = now;
        self.metrics.counts.rounds += 1;
        let mut cost = 0;
        if self.takeover_since.is_some() || self.driver.lost {
            self.resume();
        }
        cost += self.read_status() * self.driver.status_ns;
        let mut records = 0;
        while records < MAX_BATCH as u64 && self.read_record() {
            records += 1;
        }
        cost += records * self.driver.record_ns;
        let Some(d) = &mut self.dispatcher else { return };
        if d.deadline().is_some_and(|at| at <= now) {
            self.observer.handed(now, &Event::Timer);
            d.handle(now, &Event::Timer);
        }
        while self.driver.batch.len() < MAX_BATCH {
            let command = d.poll(now);
            self.observer.asked(now, command.as_ref());
            let Some(command) = command else { break };
            if O::ACTIVE {
                self.observer.polled(now, &command, &d.view());
            }
            self.driver.batch.push(command);
        }
        let decisions = self.driver.batch.len() as u64;
        cost += decisions * self.driver.decision_ns;
        let wants = d.wants_asks();
        if wants != std::mem::replace(&mut self.driver.wants_asks, wants) && wants {
            cost += self.read_status() * self.driver.status_ns;
        }
        if decisions > 0 {
            cost += self.driver.commit_ns + decisions * self.driver.per_commit_ns;
        }
        if let Some(cpu) = self.scenario.dispatcher.cpu
            && cost > 0
        {
            self.steal(cpu, cost);
        }
        if cost == 0 {
            return self.finish_turn();
        }
        self.driver.mood = Mood::Busy;
        self.agenda.add(now + cost, Alarm::RoundEnd);
    }

    pub fn round_end(&mut self) {
        if self.driver.mood == Mood::Busy {
            self.finish_turn();
        }
    }

    /// Commits, outcomes, and what comes next.
    fn finish_turn(&mut self) {
        self.driver.mood = Mood::Busy; // records of the commits themselves are seen below
        let round = self.driver.round_ns;
        let full = self.driver.batch.len() == MAX_BATCH;
        let mut batch = std::mem::take(&mut self.driver.batch);
        // All moves are one call; their outcomes are read after it.
        for command in &mut batch {
            let outcome = self.commit(command);
            let row = command.task.idx as usize;
            if O::ACTIVE
                && let Some(fact) = self.driver_fact(row)
            {
                self.observer.decided(self.now, &fact, command, outcome);
            }
            if let Some(d) = &mut self.dispatcher {
                self.observer.settled(round, command, outcome);
                d.committed(round, command, outcome);
            }
        }
        batch.clear();
        self.driver.batch = batch;
        self.driver.mood = if self.driver.spin_ns > 0 { Mood::Awake } else { Mood::Asleep };
        let due = self.dispatcher.as_ref().and_then(|d| d.deadline());
        if !self.ring.is_empty() || full || self.driver.lost {
            self.turn_at(self.now);
        } else if due.is_some_and(|at| at <= self.now) {
            self.turn_at(self.now + self.driver.notice_ns.max(1));
        } else {
            if let Some(at) = due {
                self.turn_at(at);
            }
            if self.driver.spin_ns > 0 {
                self.driver.doze_epoch = self.driver.doze_epoch.wrapping_add(1);
                let epoch = self.driver.doze_epoch;
                self.agenda.add(self.now + self.driver.spin_ns, Alarm::Doze { epoch });
            }
        }
    }

    /// Nothing came for a while: a last look at the status words, then sleep.
    pub fn doze(&mut self, epoch: u32) {
        if self.driver.doze_epoch != epoch || self.driver.mood != Mood::Awake {
            return;
        }
        self.read_status();
        self.driver.mood = Mood::Asleep;
        if let Some(at) = self.dispatcher.as_ref().and_then(|d| d.deadline()) {
            self.turn_at(at.max(self.now + 1));
        }
    }

    /// The last wakeup of a task as the dispatcher knows it.
    fn driver_fact(&self, row: usize) -> Option<Runnable> {
        self.driver.facts.get(row).copied().flatten()
    }

    /// Hands every changed status word to the core. Returns how many.
    fn read_status(&mut self) -> u64 {
        let mut read = 0;
        for word in 0..self.driver.dirty.len() {
            let mut bits = std::mem::take(&mut self.driver.dirty[word]);
            while bits != 0 {
                let cpu = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if !self.cpus[cpu as usize].online {
                    continue;
                }
                read += 1;
                let status = self.status(cpu);
                self.tell_core(&Event::Cpu(status));
            }
        }
        self.metrics.counts.events += read;
        read
    }

    fn status(&self, cpu: u32) -> CpuStatus {
        let c = &self.cpus[cpu as usize];
        CpuStatus {
            cpu: CpuId(cpu),
            curr: (c.curr != NONE).then(|| self.tasks[c.curr as usize].id),
            other: false,
            held: c.held,
            since_ns: c.since_ns,
            slice_ns: c.slice_ns,
            busy_ns: c.busy_ns,
            depth: c.own.len,
        }
    }

    /// Hands the oldest record to the core; false: there is none.
    pub fn read_record(&mut self) -> bool {
        let Some(record) = self.ring.pop_front() else { return false };
        self.metrics.counts.events += 1;
        self.driver.records_read += 1;
        match record {
            Record::Runnable(runnable, mask) => {
                if mask {
                    self.tell_mask(runnable.task);
                }
                if O::ACTIVE {
                    self.observer.runnable(self.now, &runnable);
                    self.driver.facts.resize(self.tasks.len(), None);
                    self.driver.facts[runnable.task.row()] = Some(runnable);
                }
                self.sample_regret(&runnable);
                self.tell_core(&Event::Runnable(runnable));
            }
            Record::Ask(cpu) => self.tell_core(&Event::Ask(CpuId(cpu))),
            Record::Exit(task) => self.tell_core(&Event::Exit(task)),
        }
        true
    }

    fn tell_mask(&mut self, task: TaskId) {
        let t = &self.tasks[task.row()];
        let set = if t.restricted { &self.masks[task.row()] } else { &self.driver.all };
        if let Event::Affinity(who, words) = &mut self.driver.affinity {
            *who = task;
            words.words_mut().copy_from_slice(set.words());
        }
        if let Some(d) = &mut self.dispatcher {
            self.observer.handed(self.now, &self.driver.affinity);
            d.handle(self.now, &self.driver.affinity);
        }
    }

    #[inline]
    pub fn tell_core(&mut self, event: &Event) {
        if let Some(d) = &mut self.dispatcher {
            self.observer.handed(self.now, event);
            d.handle(self.now, event);
        }
    }
}
