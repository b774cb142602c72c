// SPDX-License-Identifier: GPL-2.0-only
//! The kernel side of a decision: a task is queued and told of; a decision moves it, or finds that the world moved on.
//! (`takeover` has the timer, `cpu` what a CPU does.)

use super::agenda::Alarm;
use super::engine::Engine;
use super::lists::NONE;
use super::result::Observer;
use super::sabotage::Sabotage;
use super::task::Place;
use crate::dispatcher::Config;
use crate::event::{Command, Outcome, Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::{TAKEOVER_SLICE_NS, TIMER_PERIOD_NS};
use crate::policy::Policy;

/// A record in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    /// A task wants a CPU; (`true`) its mask is to be read.
    Runnable(Runnable, bool),
    Ask(u32),
    Exit(TaskId),
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    /// A task wants a CPU: onto HOLD with a record; into FALLBACK if nobody leads or the ring is full.
    pub fn enqueue(&mut self, task: u32, why: Why) {
        let now = self.now;
        let t = &mut self.tasks[task as usize];
        t.seq = t.seq.wrapping_add(1);
        t.queued_ns = now;
        t.place = Place::Asleep; // in no queue yet
        self.arm_tick();
        if self.takeover_since.is_some() || self.dispatcher.is_none() {
            return self.put_on_fallback(task);
        }
        if self.ring.len() >= self.scenario.dispatcher.ring_records as usize {
            self.metrics.counts.ring_full += 1;
            if self.sabotaged(Sabotage::RingFullForgotten) {
                self.tasks[task as usize].place = Place::Fallback;
                return;
            }
            return self.put_on_fallback(task);
        }
        let faults = &self.scenario.faults;
        if self.faults_on && faults.bypass_pct > 0.0 && self.fault_stream.chance(faults.bypass_pct) {
            let idle =
                (0..self.cpus.len() as u32).find(|&cpu| self.is_vacant(cpu) && self.may_use(task, cpu));
            if let Some(cpu) = idle {
                self.metrics.counts.faults += 1;
                self.tasks[task as usize].slice_ns = TAKEOVER_SLICE_NS;
                return self.start(task, cpu);
            }
        }
        let lost = self.faults_on
            && self.scenario.faults.lose_record_pct > 0.0
            && self.fault_stream.chance(self.scenario.faults.lose_record_pct);
        self.put_on_hold(task);
        if lost {
            self.metrics.counts.faults += 1;
            self.driver.lost = true;
            self.notice();
        } else {
            self.tell(task, why);
        }
    }

    fn is_vacant(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].is_idle() && !self.cpus[cpu as usize].look_pending
    }

    /// Into the HOLD queue of the domain where it ran last.
    fn put_on_hold(&mut self, task: u32) {
        let llc = self.machine.cpus[self.tasks[task as usize].prev_cpu as usize].llc.0;
        self.tasks[task as usize].place = Place::Hold(llc);
        self.links.push_back(&mut self.hold[llc as usize], task);
        self.held_tasks += 1;
    }

    /// Into FALLBACK; an idle CPU comes for it.
    pub fn put_on_fallback(&mut self, task: u32) {
        let t = &mut self.tasks[task as usize];
        t.place = Place::Fallback;
        t.slice_ns = TAKEOVER_SLICE_NS;
        self.links.push_back(&mut self.fallback, task);
        let idle = (0..self.cpus.len() as u32).find(|&cpu| self.is_vacant(cpu) && self.may_use(task, cpu));
        if let Some(cpu) = idle {
            self.kick(cpu);
        }
    }

    /// A record about a waiting task. Run and sleep times are told once.
    pub fn tell(&mut self, task: u32, why: Why) {
        let t = &mut self.tasks[task as usize];
        let rescan = why == Why::Rescan;
        let runnable = Runnable {
            task: t.id,
            pid: t.pid(),
            seq: t.seq,
            why,
            prev_cpu: CpuId(t.prev_cpu),
            ran_ns: t.ran_ns,
            slept_ns: if why == Why::Woken { t.slept_ns } else { 0 },
            waited_ns: t.told_wait_ns,
            left_busy_ns: t.left_busy_ns,
            waker_row: t.waker_row,
            weight: t.weight,
            cgroup: t.cgroup,
        };
        let mask = t.mask_dirty;
        if !rescan {
            t.told_ns = self.now;
            t.has_run = false;
            t.told_wait_ns = 0;
            t.ran_ns = 0;
            t.slept_ns = 0;
            t.mask_dirty = false;
        }
        self.metrics.counts.records += 1;
        self.ring.push_back(Record::Runnable(runnable, mask && !self.sabotaged(Sabotage::AffinityIgnored)));
        self.notice();
    }

    /// A CPU has run dry.
    pub fn ask(&mut self, cpu: u32) {
        let room = self.ring.len() < self.scenario.dispatcher.ring_records as usize;
        if room && !self.sabotaged(Sabotage::LostAsk) {
            self.metrics.counts.records += 1;
            self.ring.push_back(Record::Ask(cpu));
            self.notice();
        }
    }

    /// An idle CPU is told to look at its queue.
    pub fn kick(&mut self, cpu: u32) {
        if self.sabotaged(Sabotage::LostKick) {
            return;
        }
        let ipi_ns = self.driver.ipi_ns;
        let c = &mut self.cpus[cpu as usize];
        if ipi_ns == 0 {
            self.look(cpu);
        } else if !c.look_pending {
            c.look_pending = true;
            self.agenda.add(self.now + ipi_ns, Alarm::Look { cpu });
        }
    }

    /// Takes a waiting task out of the queue it is in.
    pub fn take_out(&mut self, task: u32) {
        match self.tasks[task as usize].place {
            Place::Hold(llc) => {
                self.links.remove(&mut self.hold[llc as usize], task);
                self.held_tasks -= 1;
            }
            Place::Own(cpu) => {
                self.links.remove(&mut self.cpus[cpu as usize].own, task);
                self.mark(cpu);
            }
            Place::Fallback => self.links.remove(&mut self.fallback, task),
            place => self.finding(format!("task {task} is to be taken out of a queue and is {place:?}")),
        }
        self.tasks[task as usize].place = Place::Asleep;
    }

    /// Carries out one decision.
    pub fn commit(&mut self, command: &Command) -> Outcome {
        self.metrics.counts.events += 1;
        let row = command.task.idx;
        let Some(t) = self.tasks.get(row as usize).filter(|t| t.alive && t.id == command.task) else {
            return Outcome::Gone;
        };
        let there = match command.recalled_from {
            None => matches!(t.place, Place::Hold(_)),
            Some(from) => t.place == Place::Own(from.0),
        };
        let lax = self.sabotaged(Sabotage::StaleCommitAccepted);
        if !(t.seq == command.seq && there || lax && t.waits()) {
            return Outcome::Stale;
        }
        let cpu = command.cpu.0;
        let allowed = self.cpus[cpu as usize].online && self.may_use(row, cpu);
        if !allowed && !self.sabotaged(Sabotage::AffinityIgnored) {
            return Outcome::NotAllowed;
        }
        if self.faults_on && self.fault_stream.chance(self.scenario.faults.retry_pct) {
            self.metrics.counts.faults += 1;
            return Outcome::Retry;
        }
        self.audit_commit(row, command);
        self.take_out(row);
        self.tasks[row as usize].slice_ns = command.slice_ns;
        self.move_to(row, cpu, command.preempt);
        Outcome::Done
    }

    fn move_to(&mut self, task: u32, cpu: u32, preempt: bool) {
        let t = &mut self.tasks[task as usize];
        t.place = Place::Own(cpu);
        t.queued_ns = self.now;
        if self.sabotaged(Sabotage::LostTask) && self.fault_stream.below(50) == 0 {
            return;
        }
        let c = &mut self.cpus[cpu as usize];
        let busy = c.curr != NONE;
        if preempt && busy {
            self.links.push_front(&mut c.own, task);
            self.mark(cpu);
            self.preempt(cpu);
            return self.look(cpu);
        }
        self.links.push_back(&mut c.own, task);
        self.mark(cpu);
        if !busy {
            self.kick(cpu);
        }
    }

    /// Notes that a CPU's status words changed.
    #[inline]
    pub fn mark(&mut self, cpu: u32) {
        self.driver.dirty[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// The shim's timer runs while anything waits.
    #[inline]
    pub fn arm_tick(&mut self) {
        if !self.tick_on {
            self.tick_on = true;
            self.tick_epoch = self.tick_epoch.wrapping_add(1);
            self.agenda.add(self.now + TIMER_PERIOD_NS, Alarm::Tick { epoch: self.tick_epoch });
        }
    }

    /// How long the oldest of a queue has waited there.
    pub fn head_age(&self, list: super::lists::List) -> Option<(u32, Nanos)> {
        (list.head != NONE).then(|| (list.head, self.now - self.tasks[list.head as usize].queued_ns))
    }
}
