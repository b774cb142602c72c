// SPDX-License-Identifier: GPL-2.0-only
//! What tasks do with their lives: programs, messages, births and exits. (`service` has requests.)

use super::agenda::Alarm;
use super::engine::Engine;
use super::kernel::Record;
use super::lists::{List, NONE};
use super::program::{Op, compile};
use super::result::Observer;
use super::rng::{Purpose, Stream};
use super::scenario::{Memory, Problem, Queueing, Scenario, TaskGroup, Who};
use super::service::ServiceState;
use super::task::{Block, MAX_DEPTH, Place, Task};
use crate::cpuset::CpuSet;
use crate::dispatcher::Config;
use crate::event::{NO_ROW, Why};
use crate::ids::{CpuId, Nanos};
use crate::limits::MAX_TASKS;
use crate::policy::Policy;
use crate::topology::Topology;
use std::sync::Arc;

/// Steps without time after which a program is at fault.
const MAX_STEPS: u32 = 100_000;

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Works.
    Run(Nanos),
    Sleep(Nanos),
    Block(Block),
    Yield,
    Exit,
}

/// Tasks of one kind: a task group of the scenario, or the workers of a service.
#[derive(Debug)]
pub(crate) struct Group {
    pub name: String,
    pub memory: Memory,
    pub program: Arc<[Op]>,
    pub weight: u32,
    pub cgroup: u64,
    /// Allowed CPUs; none: all.
    pub mask: Option<CpuSet>,
    pub cpus: Vec<u32>,
    /// One task bound to each CPU.
    pub per_cpu: bool,
    pub rounds: u32,
    pub inbox: u32,
    /// Members of each set.
    pub per_set: u32,
    /// The tasks that exist from the start, set by set: [`NONE`] once gone.
    pub members: Vec<u32>,
    /// How many were ever made: numbers their streams.
    pub born: u32,
    pub service: Option<u32>,
}

/// All of the load.
#[derive(Debug)]
pub(crate) struct Load {
    pub groups: Vec<Group>,
    pub services: Vec<ServiceState>,
    /// Tasks that could not be made because all rows were taken.
    pub refused: u64,
}

impl Load {
    pub fn new(scenario: &Scenario, machine: &Topology, seed: u64) -> Result<Self, Problem> {
        let mut groups = Vec::new();
        for (i, group) in scenario.task.iter().enumerate() {
            groups.push(task_group(&format!("task.{i}"), group, scenario)?);
        }
        let mut services = Vec::new();
        for (i, service) in scenario.service.iter().enumerate() {
            let cpus = scenario.cpus(&format!("service.{i}"), &service.cpus)?;
            let workers = match (service.queueing, service.workers) {
                (Queueing::TaskPerRequest, _) => 0,
                (_, 0) => cpus.len() as u32,
                (_, workers) => workers,
            };
            groups.push(Group {
                name: service.name.clone(),
                memory: service.memory.clone(),
                program: Arc::from([Op::Serve]),
                weight: service.weight,
                cgroup: service.cgroup,
                mask: (!service.cpus.is_empty()).then(|| mask_of(scenario, &cpus)),
                cpus: cpus.clone(),
                per_cpu: false,
                rounds: 0,
                inbox: 0,
                per_set: workers,
                members: vec![NONE; workers as usize],
                born: 0,
                service: Some(i as u32),
            });
            let group = groups.len() as u32 - 1;
            services.push(ServiceState::new(service, group, workers, &cpus, scenario, machine, seed));
        }
        Ok(Self { groups, services, refused: 0 })
    }

    pub fn memories(&self) -> impl Iterator<Item = &Memory> {
        self.groups.iter().map(|group| &group.memory)
    }

    pub fn names(&self) -> Vec<String> {
        self.groups.iter().map(|group| group.name.clone()).collect()
    }
}

fn mask_of(scenario: &Scenario, cpus: &[u32]) -> CpuSet {
    CpuSet::of(scenario.machine.cpus(), cpus.iter().map(|&cpu| CpuId(cpu)))
}

fn task_group(key: &str, group: &TaskGroup, scenario: &Scenario) -> Result<Group, Problem> {
    let cpus = scenario.cpus(key, &group.cpus)?;
    let per_set = if group.per_cpu { cpus.len() as u32 } else { group.count };
    Ok(Group {
        name: group.name.clone(),
        memory: group.memory.clone(),
        program: Arc::from(compile(&group.phases, scenario)?),
        weight: group.weight,
        cgroup: group.cgroup,
        mask: (!group.cpus.is_empty()).then(|| mask_of(scenario, &cpus)),
        cpus,
        per_cpu: group.per_cpu,
        rounds: group.rounds,
        inbox: group.inbox,
        per_set,
        members: vec![NONE; (per_set * group.sets) as usize],
        born: 0,
        service: None,
    })
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    /// Makes the tasks that exist from the start, and sets the first alarms.
    pub fn begin_load(&mut self) {
        for group in 0..self.load.groups.len() as u32 {
            for member in 0..self.load.groups[group as usize].members.len() as u32 {
                let Some(task) = self.spawn(group, member) else { continue };
                self.load.groups[group as usize].members[member as usize] = task;
                if self.load.groups[group as usize].service.is_none() {
                    let start = &self.scenario.task[group as usize].start;
                    let at = self.now + self.tasks[task as usize].stream.draw(start);
                    self.wake_at(task, at);
                }
            }
        }
        self.begin_services();
    }

    /// A new task, asleep. None: there is no row left for it.
    pub fn spawn(&mut self, group: u32, number: u32) -> Option<u32> {
        let Some(row) = self.free_rows.pop() else {
            self.load.refused += 1;
            return None;
        };
        self.alive += 1;
        let now = self.now;
        let g = &mut self.load.groups[group as usize];
        let born = g.born;
        g.born += 1;
        let old = &self.tasks[row as usize];
        let (generation, seq) = (old.id.generation.wrapping_add(1), old.seq);
        let mut t = Task::free(row);
        t.id.generation = generation;
        t.seq = seq;
        t.group = group;
        t.member = number % g.per_set.max(1);
        t.set = number / g.per_set.max(1);
        t.alive = true;
        t.place = Place::Asleep;
        t.block = if g.service.is_some() { Block::Work } else { Block::Time };
        t.weight = g.weight;
        t.cgroup = g.cgroup;
        t.rounds_left = g.rounds;
        t.asleep_since_ns = now;
        t.wake_epoch = old.wake_epoch.wrapping_add(1);
        t.stream = Stream::new(self.seed, Purpose::Task, u64::from(group), u64::from(born));
        let home = g.cpus[born as usize % g.cpus.len()];
        t.prev_cpu = home;
        let mask = &mut self.masks[row as usize];
        t.restricted = g.per_cpu || g.mask.is_some();
        if g.per_cpu {
            mask.words_mut().fill(0);
            mask.insert(CpuId(home));
        } else if let Some(set) = &g.mask {
            mask.words_mut().copy_from_slice(set.words());
        }
        t.mask_dirty = t.restricted;
        let shared = g.memory.table_kb > 0.0;
        let key = if shared { group } else { self.load.groups.len() as u32 + row };
        self.tasks[row as usize] = t;
        self.caches.born(row, key, shared);
        Some(row)
    }

    /// A sleeping task wakes at that moment.
    pub fn wake_at(&mut self, task: u32, at: Nanos) {
        let t = &mut self.tasks[task as usize];
        t.wake_epoch = t.wake_epoch.wrapping_add(1);
        t.woken_ns = at;
        t.waker_row = NO_ROW;
        self.agenda.add(at, Alarm::Wake { task, epoch: t.wake_epoch });
    }

    /// Wakes a task for `waker`; `nth` of the wakeups that it makes in one go. The latency counts from now.
    fn wake(&mut self, task: u32, waker: u32, nth: u32) {
        let now = self.now;
        let delay = self.driver.wake_call_ns * u64::from(nth);
        let t = &mut self.tasks[task as usize];
        t.block = Block::Time;
        t.woken_ns = now;
        t.waker_row = if waker == NONE { NO_ROW } else { waker };
        if delay == 0 {
            return self.wake_now(task);
        }
        t.wake_epoch = t.wake_epoch.wrapping_add(1);
        self.agenda.add(now + delay, Alarm::Wake { task, epoch: t.wake_epoch });
    }

    /// The wakeup reaches the task: it wants a CPU.
    pub fn wake_now(&mut self, task: u32) {
        let now = self.now;
        if self.tasks[task as usize].place != Place::Asleep {
            return self.finding(format!("task {task} is woken and does not sleep"));
        }
        self.foresee(task);
        let t = &mut self.tasks[task as usize];
        t.block = Block::No;
        t.wake_epoch = t.wake_epoch.wrapping_add(1);
        t.slept_ns = now - t.asleep_since_ns;
        t.runnable_since_ns = now;
        t.woken = true;
        let why = if t.fresh { Why::New } else { Why::Woken };
        self.metrics.counts.wakeups += 1;
        self.enqueue(task, why);
    }

    /// Goes over steps that take no CPU, up to the next work: so its length is known before it begins.
    fn foresee(&mut self, task: u32) {
        if self.load.groups[self.tasks[task as usize].group as usize].service.is_some() {
            return self.foresee_request(task);
        }
        let program = self.load.groups[self.tasks[task as usize].group as usize].program.clone();
        for _ in 0..MAX_DEPTH * 4 {
            let t = &mut self.tasks[task as usize];
            match &program[t.pc as usize] {
                Op::LoopStart { .. } | Op::LoopEnd { .. } => jump(t, &program),
                Op::Wait { all } if t.work_left_ns == 0 && t.inbox + t.callers.len > 0 => {
                    let all = *all;
                    self.take(task, all);
                    self.tasks[task as usize].pc += 1;
                }
                Op::Run(dist) if t.work_left_ns == 0 && t.debt_ns == 0 => {
                    t.pc += 1;
                    t.work_left_ns = t.stream.draw(dist);
                    self.work_in += t.work_left_ns;
                    if t.work_left_ns > 0 {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Carries out steps of a task on a CPU until one takes time.
    pub fn advance(&mut self, task: u32) -> Next {
        if self.load.groups[self.tasks[task as usize].group as usize].service.is_some() {
            return self.advance_worker(task);
        }
        let program = self.load.groups[self.tasks[task as usize].group as usize].program.clone();
        for _ in 0..MAX_STEPS {
            if let Some(next) = self.step(task, &program) {
                return next;
            }
        }
        self.finding(format!("task {task} does {MAX_STEPS} steps that take no time"));
        Next::Exit
    }

    /// One step; none: it took no time.
    fn step(&mut self, task: u32, program: &[Op]) -> Option<Next> {
        let t = &mut self.tasks[task as usize];
        if t.debt_ns > 0 {
            return Some(Next::Run(std::mem::take(&mut t.debt_ns)));
        }
        let op = &program[t.pc as usize];
        match op {
            Op::Run(dist) => {
                t.pc += 1;
                let work = t.stream.draw(dist);
                self.work_in += work;
                (work > 0).then_some(Next::Run(work))
            }
            Op::Sleep(dist) => {
                t.pc += 1;
                Some(Next::Sleep(t.stream.draw(dist).max(1)))
            }
            Op::Wait { all } => {
                if t.inbox + t.callers.len == 0 {
                    return Some(Next::Block(Block::Inbox));
                }
                t.pc += 1;
                self.take(task, *all);
                None
            }
            Op::Send { group, who } => self.send(task, *group, *who),
            Op::Call { group, who } => {
                t.pc += 1;
                self.call(task, *group, *who)
            }
            Op::Reply => {
                t.pc += 1;
                self.reply(task);
                None
            }
            Op::LoopStart { .. } | Op::LoopEnd { .. } => {
                jump(t, program);
                None
            }
            Op::Fork { group, count } => {
                t.pc += 1;
                self.fork(*group, *count);
                None
            }
            Op::Yield => {
                t.pc += 1;
                t.yielded = true;
                Some(Next::Yield)
            }
            Op::Exit => Some(Next::Exit),
            Op::Again => {
                t.pc = 0;
                t.rounds_left = t.rounds_left.wrapping_sub(u32::from(t.rounds_left > 0));
                let last = t.rounds_left == 0 && self.load.groups[t.group as usize].rounds > 0;
                last.then_some(Next::Exit)
            }
            Op::Serve => None,
        }
    }

    /// Reads one message or all.
    fn take(&mut self, task: u32, all: bool) {
        loop {
            let t = &mut self.tasks[task as usize];
            let caller = t.callers.head;
            if caller != NONE {
                let (mut callers, mut taken) = (t.callers, t.taken);
                self.calls.remove(&mut callers, caller);
                self.calls.push_back(&mut taken, caller);
                let t = &mut self.tasks[task as usize];
                (t.callers, t.taken) = (callers, taken);
            } else if t.inbox > 0 {
                t.inbox -= 1;
                self.admit_sender(task);
            } else {
                return;
            }
            if !all {
                return;
            }
        }
    }

    /// There is room in an inbox: the sender that waits longest may send.
    fn admit_sender(&mut self, task: u32) {
        let mut senders = self.tasks[task as usize].senders;
        let sender = senders.head;
        if sender == NONE {
            return;
        }
        self.calls.remove(&mut senders, sender);
        self.tasks[task as usize].senders = senders;
        self.wake(sender, task, 1);
        self.owe(task, 1);
    }

    /// The task pays for so many wakeups.
    fn owe(&mut self, task: u32, wakeups: u32) {
        let debt = self.driver.wake_call_ns * u64::from(wakeups);
        self.tasks[task as usize].debt_ns += debt;
        self.work_in += debt;
    }

    /// The members of `group` in the sender's set: the first of them, how many, and which one it is for.
    fn targets(&mut self, task: u32, group: u32, who: Who) -> (u32, u32) {
        let per_set = self.load.groups[group as usize].per_set.max(1);
        let sets = (self.load.groups[group as usize].members.len() as u32 / per_set).max(1);
        let t = &mut self.tasks[task as usize];
        let first = t.set % sets * per_set;
        match who {
            Who::All => (first, per_set),
            Who::Pair => (first + t.member % per_set, 1),
            Who::Next => {
                let at = t.next_target % per_set;
                t.next_target = at + 1;
                (first + at, 1)
            }
        }
    }

    fn member(&self, group: u32, number: u32) -> Option<u32> {
        let members = &self.load.groups[group as usize].members;
        members.get(number as usize).copied().filter(|&task| task != NONE)
    }

    fn send(&mut self, task: u32, group: u32, who: Who) -> Option<Next> {
        let before = self.tasks[task as usize].next_target;
        let (first, count) = self.targets(task, group, who);
        let capacity = self.load.groups[group as usize].inbox;
        let mut wakeups = 0;
        for number in first..first + count {
            let Some(target) = self.member(group, number) else { continue };
            if count == 1 && capacity > 0 && self.tasks[target as usize].inbox >= capacity {
                self.tasks[task as usize].next_target = before;
                return Some(Next::Block(Block::Full(target)));
            }
            self.tasks[target as usize].inbox += 1;
            if self.tasks[target as usize].block == Block::Inbox {
                wakeups += 1;
                self.wake(target, task, wakeups);
            }
        }
        self.tasks[task as usize].pc += 1;
        self.owe(task, wakeups);
        None
    }

    fn call(&mut self, task: u32, group: u32, who: Who) -> Option<Next> {
        let (first, _) = self.targets(task, group, who);
        let target = self.member(group, first).filter(|&target| target != task)?;
        Some(Next::Block(Block::Reply(target)))
    }

    fn reply(&mut self, task: u32) {
        let mut taken = self.tasks[task as usize].taken;
        let mut wakeups = 0;
        while taken.head != NONE {
            let caller = taken.head;
            self.calls.remove(&mut taken, caller);
            wakeups += 1;
            self.wake(caller, task, wakeups);
        }
        self.tasks[task as usize].taken = taken;
        self.owe(task, wakeups);
    }

    /// A task sleeps now, until what it waits for comes; perhaps it has come already.
    pub fn blocked(&mut self, task: u32) {
        match self.tasks[task as usize].block {
            Block::Reply(target) => {
                let mut callers = self.tasks[target as usize].callers;
                self.calls.push_back(&mut callers, task);
                self.tasks[target as usize].callers = callers;
                if self.tasks[target as usize].block == Block::Inbox {
                    self.wake(target, task, 1);
                }
            }
            Block::Full(target) => {
                let mut senders = self.tasks[target as usize].senders;
                self.calls.push_back(&mut senders, task);
                self.tasks[target as usize].senders = senders;
            }
            _ => {}
        }
    }

    fn fork(&mut self, group: u32, count: u32) {
        for _ in 0..count.min(MAX_TASKS as u32) {
            let number = self.load.groups[group as usize].born;
            if let Some(task) = self.spawn(group, number) {
                self.tasks[task as usize].woken_ns = self.now;
                self.wake_now(task);
            }
        }
    }

    /// A task is gone. Whoever waits for it is told.
    pub fn exit(&mut self, task: u32) {
        let t = &self.tasks[task as usize];
        self.work_lost += t.work_left_ns + t.debt_ns;
        match t.block {
            Block::Reply(target) => self.forget_call(task, target),
            Block::Full(target) => {
                let mut senders = self.tasks[target as usize].senders;
                self.calls.remove(&mut senders, task);
                self.tasks[target as usize].senders = senders;
            }
            _ => {}
        }
        let t = &mut self.tasks[task as usize];
        let (group, id) = (t.group, t.id);
        t.work_left_ns = 0;
        t.debt_ns = 0;
        t.alive = false;
        t.place = Place::Dead;
        t.block = Block::No;
        let lists = [t.callers, t.taken, t.senders];
        (t.callers, t.taken, t.senders) = (List::EMPTY, List::EMPTY, List::EMPTY);
        for mut list in lists {
            while list.head != NONE {
                let other = list.head;
                self.calls.remove(&mut list, other);
                self.wake(other, NONE, 0);
            }
        }
        let members = &mut self.load.groups[group as usize].members;
        members.iter_mut().filter(|member| **member == task).for_each(|member| *member = NONE);
        self.alive -= 1;
        self.metrics.exited(group);
        self.free_rows.push(task);
        let lost = self.faults_on && self.fault_stream.chance(self.scenario.faults.lose_exit_pct);
        let room = self.ring.len() < self.scenario.dispatcher.ring_records as usize;
        if lost || !room {
            self.metrics.counts.faults += u64::from(lost);
        } else if self.dispatcher.is_some() {
            self.metrics.counts.records += 1;
            self.ring.push_back(Record::Exit(id));
            self.notice();
        }
    }

    /// A caller goes before it is answered.
    fn forget_call(&mut self, task: u32, target: u32) {
        let t = &self.tasks[target as usize];
        let (mut callers, mut taken) = (t.callers, t.taken);
        if self.calls.iter(&callers).any(|caller| caller == task) {
            self.calls.remove(&mut callers, task);
        } else {
            self.calls.remove(&mut taken, task);
        }
        (self.tasks[target as usize].callers, self.tasks[target as usize].taken) = (callers, taken);
    }
}

/// Goes over the beginning or the end of a loop, or from the end of an endless program to its top.
fn jump(t: &mut Task, program: &[Op]) {
    match program[t.pc as usize] {
        Op::LoopStart { count: 0, end, .. } => t.pc = end + 1,
        Op::LoopStart { count, depth, .. } => {
            t.counters[depth as usize] = count;
            t.pc += 1;
        }
        Op::LoopEnd { depth, start } => {
            t.counters[depth as usize] -= 1;
            t.pc = if t.counters[depth as usize] > 0 { start + 1 } else { t.pc + 1 };
        }
        _ => {}
    }
}
