// SPDX-License-Identifier: GPL-2.0-only
//! What comes from outside: real-time tasks that take CPUs, CPUs that come and go, a dispatcher that stops, random changes.

use super::agenda::Alarm;
use super::cpu::Cpu;
use super::engine::{EPOCH_NS, Engine};
use super::lists::NONE;
use super::result::Observer;
use super::rng::{Purpose, Stream};
use super::scenario::Problem;
use super::task::Place;
use crate::checked::{Checked, OnViolation};
use crate::dispatcher::{Config, Dispatcher};
use crate::event::Why;
use crate::ids::{CpuId, Nanos};
use crate::policy::Policy;

/// A real-time task of one CPU.
#[derive(Debug)]
pub(crate) struct Hog {
    cpu: u32,
    entry: u32,
    stream: Stream,
    busy: bool,
}

/// Random changes, by [`Alarm::Meddle`]'s kind.
const MEDDLE_KINDS: u32 = 4;

fn at_ms(ms: f64) -> Nanos {
    EPOCH_NS + (ms * 1e6) as Nanos
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    pub fn begin_world(&mut self) {
        let scenario = self.scenario;
        for (entry, other) in scenario.interference.iter().enumerate() {
            for cpu in scenario.cpus("interference", &other.cpus).unwrap_or_default() {
                let stream = Stream::new(self.seed, Purpose::Interference, entry as u64, u64::from(cpu));
                let mut hog = Hog { cpu, entry: entry as u32, stream, busy: false };
                let at = self.now + hog.stream.draw(&other.idle);
                self.agenda.add(at, Alarm::Hog { hog: self.hogs.len() as u32 });
                self.hogs.push(hog);
            }
        }
        for (entry, plug) in scenario.hotplug.iter().enumerate() {
            self.agenda.add(at_ms(plug.at_ms), Alarm::Hotplug { entry: entry as u32 });
        }
        for (entry, late) in scenario.dispatcher.late.iter().enumerate() {
            self.agenda.add(at_ms(late.at_ms), Alarm::Late { entry: entry as u32 });
        }
        if let Some(dead) = scenario.dispatcher.dead_at_ms {
            self.agenda.add(at_ms(dead), Alarm::Late { entry: u32::MAX });
        }
        if scenario.dispatcher.late_every.is_some() {
            self.late_at_random();
        }
        for kind in 0..MEDDLE_KINDS {
            self.meddle_later(kind);
        }
        if scenario.faults.until_ms > 0.0 {
            self.agenda.add(at_ms(scenario.faults.until_ms), Alarm::Heal);
        }
    }

    /// A real-time task comes or goes.
    pub fn hog(&mut self, hog: u32) {
        let h = &mut self.hogs[hog as usize];
        let what = &self.scenario.interference[h.entry as usize];
        if h.busy || self.faults_on || self.scenario.faults.until_ms == 0.0 {
            h.busy = !h.busy;
            let next = if h.busy { &what.busy } else { &what.idle };
            let at = self.now + h.stream.draw(next).max(1);
            let (cpu, busy) = (h.cpu, h.busy);
            self.agenda.add(at, Alarm::Hog { hog });
            let held = busy || self.hogs.iter().any(|other| other.cpu == cpu && other.busy);
            self.hold_cpu(cpu, held);
        }
    }

    /// A higher class takes a CPU, or gives it back.
    fn hold_cpu(&mut self, cpu: u32, held: bool) {
        let now = self.now;
        if self.cpus[cpu as usize].held == held || !self.cpus[cpu as usize].online {
            return;
        }
        if held && self.cpus[cpu as usize].curr != NONE {
            let task = self.leave(cpu);
            self.metrics.counts.preempted += 1;
            self.tasks[task as usize].place = Place::Aside(cpu);
            self.cpus[cpu as usize].aside = task;
            self.cpus[cpu as usize].aside_since_ns = now;
            self.arm_tick();
        }
        let c = &mut self.cpus[cpu as usize];
        c.held = held;
        c.since_ns = now;
        c.idle_since_ns = now;
        if let Some(since) = c.held_since_ns.take() {
            c.held_total_ns += now - since;
        }
        c.held_since_ns = held.then_some(now);
        self.mark(cpu);
        self.observer.held(now, CpuId(cpu), held);
        self.disturb();
        if !held {
            self.look(cpu);
        }
    }

    pub fn late(&mut self, entry: u32) {
        let until = match self.scenario.dispatcher.late.get(entry as usize) {
            Some(late) => self.now + (late.for_ms * 1e6) as Nanos,
            None => Nanos::MAX / 2,
        };
        self.driver.late_until_ns = self.driver.late_until_ns.max(until);
        self.disturb();
    }

    pub fn late_at_random(&mut self) {
        let d = &self.scenario.dispatcher;
        let Some(every) = d.late_every.as_ref().filter(|_| self.faults_on) else { return };
        if self.now > EPOCH_NS {
            let until = self.now + self.driver.late_stream.draw(&d.late_for);
            self.driver.late_until_ns = self.driver.late_until_ns.max(until);
            self.disturb();
        }
        let at = self.now + self.driver.late_stream.draw(every).max(1);
        self.agenda.add(at, Alarm::LateAtRandom);
    }

    /// A CPU comes or goes. The kernel ends the scheduler; its own takes over until the daemon is attached again.
    pub fn hotplug(&mut self, entry: u32) {
        let plug = self.scenario.hotplug[entry as usize];
        let cpu = plug.cpu;
        self.offline.retain(|&other| other != cpu);
        if !plug.online {
            self.offline.push(cpu);
        }
        if self.cpus[cpu as usize].online == plug.online {
            return;
        }
        self.dispatcher = None;
        self.driver.restart();
        self.driver.attach_epoch = self.driver.attach_epoch.wrapping_add(1);
        self.ring.clear();
        self.end_takeover();
        if plug.online {
            let held = self.hogs.iter().any(|hog| hog.cpu == cpu && hog.busy);
            let c: &mut Cpu = &mut self.cpus[cpu as usize];
            c.online = true;
            c.held = held;
            c.since_ns = self.now;
            c.idle_since_ns = self.now;
        } else {
            self.go_offline(cpu);
        }
        self.all_to_fallback();
        self.wake_idle_cpus();
        let at = self.now + (self.scenario.dispatcher.restart_ms * 1e6) as Nanos;
        self.agenda.add(at, Alarm::Attach { epoch: self.driver.attach_epoch });
        self.disturb();
    }

    fn end_takeover(&mut self) {
        if self.takeover_since.take().is_some() {
            self.observer.takeover(self.now, false);
        }
    }

    fn go_offline(&mut self, cpu: u32) {
        if self.cpus[cpu as usize].curr != NONE {
            self.preempt_quietly(cpu);
        }
        let now = self.now;
        let c = &mut self.cpus[cpu as usize];
        let aside = std::mem::replace(&mut c.aside, NONE);
        c.online = false;
        c.held = false;
        if let Some(since) = c.held_since_ns.take() {
            c.held_total_ns += now - since;
        }
        if aside != NONE {
            self.tasks[aside as usize].queued_ns = now;
            self.put_on_fallback(aside);
        }
        // Who could run only there may run anywhere from now on, as the kernel does it.
        for task in 0..self.tasks.len() as u32 {
            let usable = |cpu: &crate::topology::Cpu| {
                self.cpus[cpu.id.idx()].online && self.masks[task as usize].contains(cpu.id)
            };
            let t = &self.tasks[task as usize];
            if t.alive && t.restricted && !self.machine.cpus.iter().any(usable) {
                self.tasks[task as usize].restricted = false;
            }
        }
    }

    /// Nobody is there to be told: straight to FALLBACK.
    fn preempt_quietly(&mut self, cpu: u32) {
        let task = self.leave(cpu);
        self.tasks[task as usize].queued_ns = self.now;
        self.put_on_fallback(task);
    }

    /// Everything that waits goes to FALLBACK, the oldest first.
    fn all_to_fallback(&mut self) {
        let mut waiting: Vec<u32> = (0..self.tasks.len() as u32)
            .filter(|&task| matches!(self.tasks[task as usize].place, Place::Hold(_) | Place::Own(_)))
            .collect();
        waiting.sort_by_key(|&task| (self.tasks[task as usize].queued_ns, task));
        for task in waiting {
            self.take_out(task);
            self.put_on_fallback(task);
        }
    }

    /// The daemon has read the machine and attaches: a new dispatcher, to whom all tasks are new.
    pub fn attach(&mut self, epoch: u32) {
        if epoch != self.driver.attach_epoch {
            return;
        }
        let topology = match self.scenario.machine.topology(&self.offline) {
            Ok(topology) => topology,
            Err(Problem { what, .. }) => return self.finding(what),
        };
        self.metrics.counts.restarts += 1;
        let mut config = self.config.clone();
        config.dispatcher_cpu = config.dispatcher_cpu.filter(|cpu| topology.cpu(*cpu).is_some());
        let policy = Checked::new((self.build)(&mut config), OnViolation::Count);
        self.observer.attached(&config, &topology);
        self.dispatcher = Some(Dispatcher::new(topology, config, policy));
        for cpu in 0..self.cpus.len() as u32 {
            self.mark(cpu);
        }
        for task in 0..self.tasks.len() {
            self.tasks[task].mask_dirty = self.tasks[task].restricted;
        }
        // A full ring sends them back there: each is told of once.
        for _ in 0..self.fallback.len {
            let task = self.fallback.head;
            self.take_out(task);
            self.enqueue(task, Why::New);
        }
        self.disturb();
        self.notice();
    }

    /// Faults end. What they left behind is rescanned, as after a takeover.
    pub fn heal(&mut self) {
        self.faults_on = false;
        self.driver.lost = true;
        self.disturb();
        self.notice();
    }

    fn meddle_later(&mut self, kind: u32) {
        let f = &self.scenario.faults;
        let per_s = [f.affinity_per_s, f.weight_per_s, f.exits_per_s, f.forks_per_s][kind as usize];
        if per_s > 0.0 && self.faults_on {
            let gap = self.fault_stream.exp(1e9 / per_s);
            self.agenda.add(self.now + gap as Nanos + 1, Alarm::Meddle { kind });
        }
    }

    /// One random change.
    pub fn meddle(&mut self, kind: u32) {
        self.meddle_later(kind);
        if !self.faults_on {
            return;
        }
        self.metrics.counts.meddled += 1;
        let row = self.fault_stream.below(self.tasks.len() as u64) as u32;
        let alive = self.tasks.iter().filter(|t| t.alive).count() as u64;
        if kind == 3 {
            return self.fork_any();
        }
        if alive == 0 {
            return;
        }
        // The first living task from a random row on.
        let rows = self.tasks.len() as u32;
        let Some(task) = (0..rows).map(|i| (row + i) % rows).find(|&task| self.tasks[task as usize].alive)
        else {
            return;
        };
        match kind {
            0 => self.change_affinity(task),
            1 => {
                let weight = 1 + self.fault_stream.below(300) as u32;
                self.tasks[task as usize].weight = weight;
            }
            _ => {
                self.worker_is_lost(task);
                let on = match self.tasks[task as usize].place {
                    Place::On(cpu) => Some(cpu),
                    _ => None,
                };
                self.unqueue(task);
                self.exit(task);
                if let Some(cpu) = on {
                    self.look(cpu);
                }
            }
        }
    }

    fn fork_any(&mut self) {
        let groups = self.scenario.task.len() as u64;
        if groups == 0 || self.alive >= MAX_MEDDLED {
            return;
        }
        let group = self.fault_stream.below(groups) as u32;
        let number = self.load.groups[group as usize].born;
        if let Some(task) = self.spawn(group, number) {
            self.tasks[task as usize].woken_ns = self.now;
            self.wake_now(task);
        }
    }

    /// A task's allowed CPUs change: it is queued anew if it waits, or runs where it no longer may.
    fn change_affinity(&mut self, task: u32) {
        let mut any = false;
        let free = self.fault_stream.below(3) == 0;
        self.masks[task as usize].words_mut().fill(0);
        for cpu in 0..self.cpus.len() as u32 {
            if self.cpus[cpu as usize].online && self.fault_stream.below(2) == 0 {
                self.masks[task as usize].insert(CpuId(cpu));
                any = true;
            }
        }
        let t = &mut self.tasks[task as usize];
        t.restricted = any && !free;
        t.mask_dirty = true;
        match self.tasks[task as usize].place {
            Place::On(cpu) if !self.may_use(task, cpu) => {
                self.preempt(cpu);
                self.look(cpu);
            }
            Place::Hold(_) | Place::Own(_) | Place::Fallback => {
                self.take_out(task);
                self.enqueue(task, Why::Preempted);
            }
            Place::Aside(cpu) if !self.may_use(task, cpu) => {
                self.cpus[cpu as usize].aside = NONE;
                self.enqueue(task, Why::Preempted);
            }
            _ => {}
        }
    }
}

/// Forked by chance up to so many living tasks.
const MAX_MEDDLED: u32 = 80;
