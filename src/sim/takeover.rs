// SPDX-License-Identifier: GPL-2.0-only
//! The shim's timer: pings, takeover, rescue; and the dispatcher leading again.

use super::agenda::Alarm;
use super::engine::Engine;
use super::lists::NONE;
use super::result::Observer;
use super::sabotage::Sabotage;
use super::task::Place;
use crate::dispatcher::Config;
use crate::event::{Event, Why};
use crate::ids::Nanos;
use crate::limits::{RESCUE_NS, TIMER_PERIOD_NS};
use crate::policy::Policy;

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    pub fn tick(&mut self) {
        self.tick_on = false;
        let limit_ns = self.scenario.dispatcher.takeover_us * 1000;
        if self.ring.is_empty() || self.driver.records_read != self.driver.records_read_at_tick {
            self.driver.progress_ns = self.now;
        }
        self.driver.records_read_at_tick = self.driver.records_read;
        let mut oldest = None;
        for llc in 0..self.hold.len() {
            let Some((task, age)) = self.head_age(self.hold[llc]) else { continue };
            oldest = oldest.max(Some(age));
            let quiet = self.ring.is_empty() && self.takeover_since.is_none();
            if quiet && age >= limit_ns / 2 && !self.sabotaged(Sabotage::RescanForgotten) {
                self.metrics.counts.pings += 1;
                self.tell(task, Why::Rescan);
            }
        }
        let late = !self.ring.is_empty() && self.driver.progress_ns + limit_ns / 2 <= self.now;
        let old = oldest.is_some_and(|age| age >= limit_ns);
        if late && old && self.takeover_since.is_none() && self.dispatcher.is_some() {
            self.take_over();
        }
        self.rescue();
        self.leave_held_cpus();
        if self.takeover_since.is_some() && oldest.is_some() || self.fallback.len > 0 {
            self.wake_idle_cpus();
        }
        self.audit_tick();
        let waiting = self.held_tasks > 0
            || self.fallback.len > 0
            || self.takeover_since.is_some()
            || !self.ring.is_empty()
            || self.cpus.iter().any(|cpu| cpu.own.len > 0 || cpu.aside != NONE);
        if waiting {
            self.tick_on = true;
            self.agenda.add(self.now + TIMER_PERIOD_NS, Alarm::Tick { epoch: self.tick_epoch });
        }
    }

    fn take_over(&mut self) {
        self.takeover_since = Some(self.now);
        self.metrics.counts.takeovers += 1;
        self.driver.rounds_at_takeover = self.metrics.counts.rounds;
        self.observer.takeover(self.now, true);
        self.wake_idle_cpus();
        self.notice();
    }

    /// Every CPU that is free looks for work.
    pub fn wake_idle_cpus(&mut self) {
        for cpu in 0..self.cpus.len() as u32 {
            let c = &self.cpus[cpu as usize];
            if c.online && !c.held && c.curr == NONE {
                self.kick(cpu);
            }
        }
    }

    /// The dispatcher leads again: what the ring says of waiting tasks is stale; all that is held is told anew.
    pub fn resume(&mut self) {
        if !self.sabotaged(Sabotage::TakeoverNeverEnded) && self.takeover_since.is_some() {
            self.takeover_since = None;
            self.observer.takeover(self.now, false);
        }
        self.driver.lost = false;
        self.metrics.counts.rescans += 1;
        self.disturb();
        while self.read_record() {}
        self.tell_core(&Event::Resync);
        if self.sabotaged(Sabotage::RescanForgotten) {
            return;
        }
        for llc in 0..self.hold.len() {
            let mut task = self.hold[llc].head;
            while task != NONE {
                let behind = self.links.behind(task);
                if self.ring.len() < self.scenario.dispatcher.ring_records as usize {
                    self.tasks[task as usize].mask_dirty = self.tasks[task as usize].restricted;
                    self.tell(task, Why::Rescan);
                } else {
                    self.take_out(task);
                    self.put_on_fallback(task);
                }
                task = behind;
            }
        }
    }

    /// What has waited for a third of the watchdog's limit goes to FALLBACK.
    fn rescue(&mut self) {
        for queue in 0..self.hold.len() + self.cpus.len() {
            let list = match queue.checked_sub(self.hold.len()) {
                None => self.hold[queue],
                Some(cpu) => self.cpus[cpu].own,
            };
            if let Some((task, age)) = self.head_age(list)
                && age >= RESCUE_NS
            {
                self.metrics.counts.rescued += 1;
                self.take_out(task);
                self.put_on_fallback(task);
            }
        }
    }

    /// Who was put aside by a higher class is decided anew after a millisecond.
    fn leave_held_cpus(&mut self) {
        for cpu in 0..self.cpus.len() {
            let c = &mut self.cpus[cpu];
            if c.aside != NONE && c.held && self.now - c.aside_since_ns >= LEAVE_HELD_NS {
                let task = std::mem::replace(&mut c.aside, NONE);
                self.enqueue(task, Why::Preempted);
            }
        }
    }

    /// A task has gone from wherever it waits.
    pub fn unqueue(&mut self, task: u32) {
        match self.tasks[task as usize].place {
            Place::Hold(_) | Place::Own(_) | Place::Fallback => self.take_out(task),
            Place::Aside(cpu) => {
                let c = &mut self.cpus[cpu as usize];
                if c.aside == task {
                    c.aside = NONE;
                }
            }
            Place::On(cpu) => {
                self.leave(cpu);
            }
            Place::Asleep | Place::Dead => {}
        }
    }
}

/// How long a real-time task may hold a CPU before what it interrupted is decided anew.
const LEAVE_HELD_NS: Nanos = 1_000_000;
