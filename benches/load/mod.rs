// SPDX-License-Identifier: GPL-2.0-only
//! A machine that keeps a dispatcher busy: tasks that always want to run, in rounds of a batch.
//!
//! In each round the next few busy CPUs stop their task and start the next of their own queue; the statuses that changed and
//! the stopped tasks' wakeups are handled; every decision is carried out and answered. So one decision costs a wakeup,
//! two statuses at most, a poll and an outcome, as in the live daemon.

mod estimating;

use estimating::Estimating;
use hearth::cpuset::CpuSet;
use hearth::dispatcher::{Config, Dispatcher};
use hearth::event::{Command, CpuStatus, Event, NO_ROW, Outcome, Runnable, Why};
use hearth::ids::{CpuId, Nanos, TaskId};
use hearth::policy::registry::{self, AnyPolicy};
use hearth::topology::Topology;
use std::collections::VecDeque;

/// CPUs of an LLC domain.
const DOMAIN_CPUS: u32 = 8;
const SLICE_NS: Nanos = 1_000_000;

struct Cpu {
    running: Option<u32>,
    queue: VecDeque<u32>,
    since_ns: Nanos,
    busy_ns: Nanos,
    changed: bool,
}

pub struct Load {
    dispatcher: Dispatcher<AnyPolicy>,
    cpus: Vec<Cpu>,
    seqs: Vec<u32>,
    generation: Vec<u32>,
    batch: usize,
    now: Nanos,
    /// CPUs that run something, the longest-running first.
    busy: VecDeque<u32>,
    changed: Vec<u32>,
    /// To half of the CPUs; made once, used with other tasks.
    restriction: Event,
    stopped: Vec<(u32, u32)>,
    /// Why a task that stopped is runnable again.
    why: Why,
    commands: Vec<Command>,
}

impl Load {
    /// `cpus` is 8 or a multiple of it. The policy is one of the registry, or `estimates` ([`Estimating`]), whose tasks wake
    /// instead of using up their slices.
    pub fn new(cpus: u32, tasks: u32, policy: &str, batch: usize) -> Self {
        let topology = Topology::grid(cpus / DOMAIN_CPUS, DOMAIN_CPUS, 1);
        let config = Config { max_tasks: tasks as usize, slice_ns: SLICE_NS, ..Config::default() };
        let estimates = policy == Estimating::NAME;
        let policy: AnyPolicy = match registry::find(policy) {
            Some(spec) => (spec.build)(&config),
            None if estimates => Box::new(Estimating::new(&config)),
            None => panic!("no policy {policy}"),
        };
        let cpu = |_| Cpu {
            running: None,
            queue: VecDeque::with_capacity(tasks as usize),
            since_ns: 0,
            busy_ns: 0,
            changed: false,
        };
        let mut load = Self {
            dispatcher: Dispatcher::new(topology, config, policy),
            cpus: (0..cpus).map(cpu).collect(),
            seqs: vec![0; tasks as usize],
            generation: vec![1; tasks as usize],
            batch: batch.min(tasks as usize).min(cpus as usize),
            now: 1,
            busy: VecDeque::with_capacity(2 * cpus as usize),
            changed: Vec::with_capacity(cpus as usize),
            restriction: Event::Affinity(
                TaskId { idx: 0, generation: 0 },
                CpuSet::of(cpus, (0..cpus).step_by(2).map(CpuId)),
            ),
            stopped: Vec::with_capacity(tasks as usize),
            why: if estimates { Why::Woken } else { Why::SliceUsed },
            commands: Vec::with_capacity(tasks as usize),
        };
        load.stopped.extend((0..tasks).map(|task| (task, task % cpus)));
        load.dispatch(0);
        load
    }

    /// One round. Returns how many decisions were made.
    pub fn round(&mut self) -> usize {
        self.now += SLICE_NS / self.cpus.len() as u64 * self.batch as u64;
        while self.stopped.len() < self.batch {
            let Some(cpu) = self.busy.pop_front() else { break };
            let c = &mut self.cpus[cpu as usize];
            if let Some(task) = c.running.take() {
                c.busy_ns += self.now - c.since_ns;
                self.stopped.push((task, cpu));
                self.start_next(cpu as usize);
            }
        }
        self.dispatch(SLICE_NS)
    }

    /// Ends a running task and lets a new one have its row and its place; every other one may not use all CPUs.
    #[allow(dead_code)] // not every user of this file replaces tasks
    pub fn replace_one(&mut self) {
        let Some(&cpu) = self.busy.front() else { return };
        if let Some(task) = self.cpus[cpu as usize].running {
            let exit = Event::Exit(self.id(task));
            self.dispatcher.handle(self.now, &exit);
            self.generation[task as usize] += 1;
            self.seqs[task as usize] = 0;
            if task % 2 == 0 {
                let id = self.id(task);
                if let Event::Affinity(whose, _) = &mut self.restriction {
                    *whose = id;
                }
                self.dispatcher.handle(self.now, &self.restriction);
            }
            self.change(cpu as usize);
        }
    }

    #[allow(dead_code)]
    pub fn dispatcher(&self) -> &Dispatcher<AnyPolicy> {
        &self.dispatcher
    }

    fn id(&self, task: u32) -> TaskId {
        TaskId { idx: task, generation: self.generation[task as usize] }
    }

    fn start_next(&mut self, cpu: usize) {
        let now = self.now;
        let c = &mut self.cpus[cpu];
        c.running = c.queue.pop_front();
        c.since_ns = now;
        if c.running.is_some() {
            self.busy.push_back(cpu as u32);
        }
        self.change(cpu);
    }

    fn change(&mut self, cpu: usize) {
        if !std::mem::replace(&mut self.cpus[cpu].changed, true) {
            self.changed.push(cpu as u32);
        }
    }

    fn tell_status(&mut self, cpu: usize) {
        let c = &self.cpus[cpu];
        let status = CpuStatus {
            cpu: CpuId(cpu as u32),
            curr: c.running.map(|task| self.id(task)),
            other: false,
            held: false,
            since_ns: c.since_ns,
            slice_ns: SLICE_NS,
            busy_ns: c.busy_ns,
            depth: c.queue.len() as u32,
        };
        self.dispatcher.handle(self.now, &Event::Cpu(status));
    }

    fn dispatch(&mut self, ran_ns: Nanos) -> usize {
        for i in 0..self.changed.len() {
            let cpu = self.changed[i] as usize;
            self.cpus[cpu].changed = false;
            self.tell_status(cpu);
        }
        self.changed.clear();
        for i in 0..self.stopped.len() {
            let (task, cpu) = self.stopped[i];
            self.seqs[task as usize] += 1;
            self.dispatcher.handle(
                self.now,
                &Event::Runnable(Runnable {
                    task: self.id(task),
                    pid: task + 1,
                    seq: self.seqs[task as usize],
                    why: self.why,
                    prev_cpu: CpuId(cpu),
                    ran_ns,
                    slept_ns: 0,
                    waited_ns: 0,
                    left_busy_ns: self.cpus[cpu as usize].busy_ns,
                    waker_row: NO_ROW,
                    weight: 100,
                    cgroup: 1,
                }),
            );
        }
        self.stopped.clear();
        while let Some(command) = self.dispatcher.poll(self.now) {
            self.commands.push(command);
        }
        for i in 0..self.commands.len() {
            let command = self.commands[i];
            let cpu = command.cpu.idx();
            self.cpus[cpu].queue.push_back(command.task.idx);
            self.change(cpu);
            if self.cpus[cpu].running.is_none() {
                self.start_next(cpu);
            }
            self.dispatcher.committed(self.now, &command, Outcome::Done);
        }
        let decided = self.commands.len();
        self.commands.clear();
        decided
    }
}
