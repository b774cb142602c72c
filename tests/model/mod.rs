// SPDX-License-Identifier: GPL-2.0-only
//! The model kernel and a driver that runs a dispatcher against it, in the order of the live daemon: status words,
//! records, timer, decisions, one commit call, outcomes.
#![allow(dead_code, unused_imports)] // each test program uses a part of it
#![allow(clippy::unwrap_used)] // a test fails by panicking

pub mod facts;
pub mod kernel;

pub use kernel::{Faults, HOG, Habit, Kernel, Place, Rng};

use hearth::checked::Checked;
use hearth::cpuset::CpuSet;
use hearth::dispatcher::{Config, Dispatcher};
use hearth::event::{Command, Event};
use hearth::ids::{CpuId, Nanos, TaskId};
use hearth::policy::Policy;
use hearth::policy::registry::AnyPolicy;
use hearth::record::Entry;
use hearth::topology::Topology;
use std::collections::BTreeSet;

/// The kernel side's own limit for HOLD, from where the shim's timer tells again of what waits there.
const PING_AFTER_NS: Nanos = 2_500_000;

pub struct Sim<P> {
    pub kernel: Kernel,
    pub dispatcher: Dispatcher<P>,
    /// From a record to its being read, and from a decision to its commit.
    pub wake_ns: Nanos,
    pub commit_ns: Nanos,
    /// Every call of the dispatcher, if wanted.
    pub log: Option<Vec<Entry>>,
    pub commands: Vec<Command>,
    pub keep_commands: bool,
    next_round: Option<Nanos>,
    next_ping: Nanos,
}

pub fn all_cpus(topology: &Topology) -> Vec<CpuId> {
    topology.cpus.iter().map(|cpu| cpu.id).collect()
}

pub fn set_of(topology: &Topology, cpus: &[u32]) -> CpuSet {
    CpuSet::of(topology.id_limit, cpus.iter().map(|&c| CpuId(c)))
}

/// A model kernel under a dispatcher with a policy by name, checked, that panics when a promise is broken.
pub fn sim(topology: Topology, policy: &str, config: Config, seed: u64) -> Sim<Checked<AnyPolicy>> {
    Sim::new(topology.clone(), facts::dispatcher(topology, policy, config), seed)
}

impl<P: Policy> Sim<P> {
    pub fn new(topology: Topology, dispatcher: Dispatcher<P>, seed: u64) -> Self {
        Self {
            kernel: Kernel::new(topology, seed),
            dispatcher,
            wake_ns: 2_000,
            commit_ns: 1_000,
            log: None,
            commands: Vec::new(),
            keep_commands: false,
            next_round: None,
            next_ping: 0,
        }
    }

    fn tell(&mut self, event: &Event) {
        let now = self.kernel.now;
        if let Some(log) = &mut self.log {
            log.push(Entry::Event(now, event.clone()));
        }
        self.dispatcher.handle(now, event);
    }

    /// One round of the dispatcher's loop.
    fn round(&mut self) {
        for cpu in all_cpus(&self.kernel.topology) {
            let status = self.kernel.status(cpu);
            if self.kernel.cpus[cpu.idx()].told != Some(status) {
                self.kernel.cpus[cpu.idx()].told = Some(status);
                self.tell(&Event::Cpu(status));
            }
        }
        if self.kernel.lost {
            self.kernel.rescan();
        }
        while let Some(event) = self.kernel.ring.pop_front() {
            self.tell(&event);
        }
        if self.dispatcher.deadline().is_some_and(|at| at <= self.kernel.now) {
            self.tell(&Event::Timer);
        }
        let mut batch = Vec::new();
        loop {
            let now = self.kernel.now;
            let command = self.dispatcher.poll(now);
            if let Some(log) = &mut self.log {
                log.push(Entry::Poll(now, command));
            }
            let Some(command) = command else { break };
            batch.push(command);
            assert!(batch.len() <= 100_000, "poll does not end");
        }
        self.kernel.wants_asks = self.dispatcher.wants_asks();
        let once: BTreeSet<(TaskId, u32)> = batch.iter().map(|c| (c.task, c.seq)).collect();
        assert_eq!(once.len(), batch.len(), "a task decided twice in one batch");
        // The world moves on while the batch is under way.
        let at = self.kernel.now + self.commit_ns;
        while self.kernel.run_alarm(at) {}
        let outcomes: Vec<_> = batch.iter().map(|c| self.kernel.commit(c)).collect();
        for (command, outcome) in batch.iter().zip(outcomes) {
            let now = self.kernel.now;
            if let Some(log) = &mut self.log {
                log.push(Entry::Outcome(now, *command, outcome));
            }
            self.dispatcher.committed(now, command, outcome);
        }
        if self.keep_commands {
            self.commands.extend(batch);
        }
    }

    fn schedule(&mut self) {
        let at = if self.kernel.ring.is_empty() && !self.kernel.lost {
            self.dispatcher.deadline().map(|at| at.max(self.kernel.now + 1))
        } else {
            Some(self.kernel.now + self.wake_ns)
        };
        self.next_round = match (self.next_round, at) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
    }

    /// The shim's timer: tells again of the oldest task on HOLD if nothing is unread.
    fn ping(&mut self) {
        if self.kernel.now < self.next_ping {
            return;
        }
        self.next_ping = self.kernel.now + 1_000_000;
        let old = self
            .kernel
            .hold
            .iter()
            .filter_map(|q| q.front().copied())
            .find(|&task| self.kernel.now - self.kernel.tasks[task].runnable_since_ns > PING_AFTER_NS);
        if let Some(task) = old.filter(|_| self.kernel.ring.is_empty()) {
            self.kernel.ping(task);
        }
    }

    /// Runs for `ns` of simulated time.
    pub fn run(&mut self, ns: Nanos) {
        let end = self.kernel.now + ns;
        loop {
            self.ping();
            self.schedule();
            let next = self.next_round.unwrap_or(u64::MAX).min(self.next_ping.max(self.kernel.now + 1));
            let alarm = self.kernel.next_alarm().unwrap_or(u64::MAX);
            if next.min(alarm) > end {
                self.kernel.now = self.kernel.now.max(end);
                return;
            }
            if alarm < next {
                self.kernel.run_alarm(alarm);
                continue;
            }
            self.kernel.now = self.kernel.now.max(next);
            if self.next_round.is_some_and(|at| at <= self.kernel.now) {
                self.next_round = None;
                self.round();
            }
        }
    }

    /// The longest that any task has waited or still waits.
    pub fn max_wait_ns(&self) -> Nanos {
        let now = self.kernel.now;
        let past = self.kernel.tasks.iter().map(|t| t.max_wait_ns).max().unwrap_or(0);
        let present = self.kernel.waiting().map(|t| now - self.kernel.tasks[t].runnable_since_ns).max();
        past.max(present.unwrap_or(0))
    }

    /// Forgets the waits seen so far.
    pub fn reset_waits(&mut self) {
        let now = self.kernel.now;
        for task in &mut self.kernel.tasks {
            task.max_wait_ns = 0;
            task.runnable_since_ns = now;
        }
    }
}
