// SPDX-License-Identifier: GPL-2.0-only
//! One CPU: a task gets it, works for a stretch, goes on or leaves.
//!
//! A *run* is from getting the CPU until leaving it; it consists of *stretches* of work (a phase, a request). A stretch's
//! length is fixed when it begins (see `cache`); the slice's end or a preemption may cut it short.

use super::agenda::Alarm;
use super::cache::Course;
use super::engine::Engine;
use super::lists::{List, NONE};
use super::load::Next;
use super::result::{Observer, Run};
use super::sabotage::Sabotage;
use super::task::{Block, Place};
use crate::dispatcher::Config;
use crate::event::Why;
use crate::ids::{CpuId, Nanos};
use crate::limits::TAKEOVER_SLICE_NS;
use crate::policy::Policy;

/// One CPU.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub online: bool,
    /// A higher class holds it.
    pub held: bool,
    /// A look at its queue is on the way.
    pub look_pending: bool,
    pub curr: u32,
    pub last_task: u32,
    /// Put aside by a higher class, and since when.
    pub aside: u32,
    pub aside_since_ns: Nanos,
    pub own: List,
    pub epoch: u32,
    /// Speed of a full CPU: 1.
    pub speed: f64,
    /// Status words.
    pub since_ns: Nanos,
    pub slice_ns: Nanos,
    pub busy_ns: Nanos,
    /// The present run.
    pub slice_end_ns: Nanos,
    pub run_work_ns: Nanos,
    pub run_refill_ns: Nanos,
    pub run_warmth: f64,
    /// The present stretch: planned work (0: none under way), when it began and will be done.
    pub work_ns: Nanos,
    pub course: Course,
    pub stretch_ns: Nanos,
    pub cache_since_ns: Nanos,
    pub done_ns: Nanos,
    /// The dispatcher has it until then.
    pub taken_until_ns: Nanos,
    pub idle_since_ns: Nanos,
    pub held_since_ns: Option<Nanos>,
    pub held_total_ns: Nanos,
    pub dispatcher_ns: Nanos,
}

impl Cpu {
    pub fn new(capacity: u32) -> Self {
        Self {
            online: true,
            held: false,
            look_pending: false,
            curr: NONE,
            last_task: NONE,
            aside: NONE,
            aside_since_ns: 0,
            own: List::EMPTY,
            epoch: 0,
            speed: f64::from(capacity) / f64::from(crate::topology::FULL_CAPACITY),
            since_ns: 0,
            slice_ns: 0,
            busy_ns: 0,
            slice_end_ns: 0,
            run_work_ns: 0,
            run_refill_ns: 0,
            run_warmth: 1.0,
            work_ns: 0,
            course: Course::default(),
            stretch_ns: 0,
            cache_since_ns: 0,
            done_ns: 0,
            taken_until_ns: 0,
            idle_since_ns: 0,
            held_since_ns: None,
            held_total_ns: 0,
            dispatcher_ns: 0,
        }
    }

    /// Busy time up to `now`.
    pub fn busy_until(&self, now: Nanos) -> Nanos {
        self.busy_ns + if self.curr == NONE { 0 } else { now - self.since_ns }
    }

    /// Nothing to do and free for tasks.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.online && !self.held && self.curr == NONE && self.aside == NONE && self.own.len == 0
    }
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    /// A CPU looks for work: of its own queue and FALLBACK the older head; in a takeover HOLD queues too.
    pub fn look(&mut self, cpu: u32) {
        let c = &self.cpus[cpu as usize];
        if c.curr != NONE || c.held || !c.online {
            return;
        }
        if c.aside != NONE {
            let task = c.aside;
            self.cpus[cpu as usize].aside = NONE;
            return self.start(task, cpu);
        }
        let own = if self.sabotaged(Sabotage::Starvation) { c.own.tail } else { c.own.head };
        let mut best = own;
        if self.fallback.len > 0 && !self.sabotaged(Sabotage::FallbackForgotten) {
            let found = self.first_usable(self.fallback, cpu);
            best = self.older(best, found);
        }
        if self.takeover_since.is_some() && self.held_tasks > 0 {
            let llc = self.machine.cpus[cpu as usize].llc.idx();
            let near = self.first_usable(self.hold[llc], cpu);
            best = self.older(best, near);
            if best == NONE {
                let llcs = self.hold.len();
                let far = (1..llcs).map(|i| self.first_usable(self.hold[(llc + i) % llcs], cpu));
                best = far.into_iter().find(|&task| task != NONE).unwrap_or(NONE);
            }
        }
        if best != NONE {
            self.take_out(best);
            self.start(best, cpu);
        } else if self.driver.wants_asks && self.takeover_since.is_none() && self.dispatcher.is_some() {
            self.ask(cpu);
        }
    }

    fn first_usable(&self, list: List, cpu: u32) -> u32 {
        self.links.iter(&list).find(|&task| self.may_use(task, cpu)).unwrap_or(NONE)
    }

    fn older(&self, a: u32, b: u32) -> u32 {
        let age = |task: u32| if task == NONE { u64::MAX } else { self.tasks[task as usize].queued_ns };
        if age(b) < age(a) { b } else { a }
    }

    /// A task gets a CPU.
    pub fn start(&mut self, task: u32, cpu: u32) {
        self.audit_start(task, cpu);
        let now = self.now;
        self.metrics.counts.events += 1;
        let c = &self.cpus[cpu as usize];
        let begin = now.max(c.taken_until_ns) + if c.last_task == task { 0 } else { self.driver.switch_ns };
        let sibling_busy = self.sibling_busy(cpu);
        let t = &mut self.tasks[task as usize];
        t.place = Place::On(cpu);
        let slice_ns = if self.takeover_since.is_some() { TAKEOVER_SLICE_NS } else { t.slice_ns };
        t.waited_ns = now - t.runnable_since_ns;
        let waited_ns = t.waited_ns;
        if !t.has_run && t.told_ns > 0 {
            t.told_wait_ns = now - t.told_ns;
        }
        t.has_run = true;
        self.metrics.started(t, cpu, &self.machine, begin);
        t.woken = false;
        t.fresh = false;
        t.prev_cpu = cpu;
        let smt = if sibling_busy { f64::from(self.scenario.costs.smt_speed_pct) / 100.0 } else { 1.0 };
        let c = &mut self.cpus[cpu as usize];
        c.curr = task;
        c.last_task = task;
        c.since_ns = now;
        c.slice_ns = slice_ns;
        c.slice_end_ns = now + slice_ns;
        c.run_work_ns = 0;
        c.run_refill_ns = 0;
        c.work_ns = 0;
        let course = self.caches.course(task, self.tasks[task as usize].group, cpu, now, c.speed * smt);
        c.run_warmth = course.warmth;
        self.mark(cpu);
        if O::ACTIVE {
            let (id, group) = (self.tasks[task as usize].id, self.tasks[task as usize].group);
            self.observer.started(now, id, group, CpuId(cpu), waited_ns, course.warmth);
        }
        self.settle_regret(task, &course);
        self.stretch(cpu, begin, course);
        if self.sabotaged(Sabotage::DoubledTask) && self.fault_stream.below(50) == 0 {
            self.start_twice(task);
        }
    }

    /// A planted bug: another CPU that is idle believes that it runs the task too.
    #[cold]
    fn start_twice(&mut self, task: u32) {
        if let Some(other) = (0..self.cpus.len() as u32).find(|&cpu| self.cpus[cpu as usize].is_idle()) {
            let c = &mut self.cpus[other as usize];
            c.curr = task;
            c.since_ns = self.now;
            c.done_ns = self.now + 1000;
            c.slice_end_ns = Nanos::MAX;
            c.work_ns = 0;
            self.arm(other);
        }
    }

    fn sibling_busy(&self, cpu: u32) -> bool {
        self.scenario.machine.threads_per_core > 1
            && self
                .machine
                .siblings(CpuId(cpu))
                .iter()
                .any(|&other| other.0 != cpu && self.cpus[other.idx()].curr != NONE)
    }

    /// Begins a stretch with what is left of the task's work (perhaps nothing: then its program goes on).
    fn stretch(&mut self, cpu: u32, begin: Nanos, course: Course) {
        let task = self.cpus[cpu as usize].curr;
        let t = &self.tasks[task as usize];
        let (work, group) = (t.work_left_ns, t.group);
        let c = &mut self.cpus[cpu as usize];
        c.work_ns = work;
        c.stretch_ns = begin;
        c.course = course;
        c.cache_since_ns = self.now;
        c.done_ns = begin;
        if work > 0 {
            c.done_ns += libm::ceil(course.wall_ns(work)) as Nanos;
            self.caches.begin(task, group, cpu, self.now, &course, work);
        }
        self.arm(cpu);
    }

    /// Sets the alarm for the end of the stretch or the slice.
    fn arm(&mut self, cpu: u32) {
        let c = &mut self.cpus[cpu as usize];
        c.epoch = c.epoch.wrapping_add(1);
        let at = c.done_ns.min(c.slice_end_ns).max(self.now);
        self.agenda.add(at, Alarm::Stop { cpu, epoch: c.epoch });
    }

    /// Ends the stretch under way, with what was done of it.
    fn end_stretch(&mut self, cpu: u32) {
        let c = &self.cpus[cpu as usize];
        let (task, planned) = (c.curr, c.work_ns);
        if planned == 0 {
            return;
        }
        let ran_ns = self.now.saturating_sub(c.stretch_ns);
        let done =
            if self.now >= c.done_ns { planned } else { (c.course.work_in(ran_ns) as Nanos).min(planned) };
        let refill = (c.course.refill_ns(done) as Nanos).min(ran_ns);
        let since = c.cache_since_ns;
        let group = self.tasks[task as usize].group;
        self.caches.end(task, group, cpu, since, self.now, done);
        let t = &mut self.tasks[task as usize];
        t.work_left_ns = planned - done;
        self.work_done += done;
        let c = &mut self.cpus[cpu as usize];
        c.work_ns = 0;
        c.run_work_ns += done;
        c.run_refill_ns += refill;
    }

    /// The alarm of a CPU: its stretch is done, or its slice.
    pub fn stop_due(&mut self, cpu: u32) {
        let c = &self.cpus[cpu as usize];
        let task = c.curr;
        if self.now < c.done_ns {
            return self.slice_used(cpu);
        }
        self.end_stretch(cpu);
        self.work_is_done(task);
        self.go_on(task, cpu);
    }

    /// The task on a CPU does what its program says next.
    fn go_on(&mut self, task: u32, cpu: u32) {
        match self.advance(task) {
            Next::Run(work) => {
                self.tasks[task as usize].work_left_ns = work;
                if self.now >= self.cpus[cpu as usize].slice_end_ns {
                    return self.slice_used(cpu);
                }
                self.next_stretch(task, cpu);
            }
            next => {
                self.leave(cpu);
                self.after_leaving(task, next);
                self.look(cpu);
            }
        }
    }

    fn next_stretch(&mut self, task: u32, cpu: u32) {
        let speed = self.cpus[cpu as usize].speed
            * if self.sibling_busy(cpu) { f64::from(self.scenario.costs.smt_speed_pct) / 100.0 } else { 1.0 };
        let course = self.caches.course(task, self.tasks[task as usize].group, cpu, self.now, speed);
        self.stretch(cpu, self.now, course);
    }

    fn after_leaving(&mut self, task: u32, next: Next) {
        let now = self.now;
        let t = &mut self.tasks[task as usize];
        match next {
            Next::Run(_) => {}
            Next::Sleep(ns) => {
                t.place = Place::Asleep;
                t.block = Block::Time;
                t.asleep_since_ns = now;
                t.wake_epoch = t.wake_epoch.wrapping_add(1);
                t.woken_ns = now + ns;
                self.agenda.add(now + ns, Alarm::Wake { task, epoch: t.wake_epoch });
            }
            Next::Block(block) => {
                t.place = Place::Asleep;
                t.block = block;
                t.asleep_since_ns = now;
                self.blocked(task);
            }
            Next::Yield => self.enqueue(task, Why::Yielded),
            Next::Exit => self.exit(task),
        }
    }

    /// The slice is used up: who is alone goes on, without a round trip.
    fn slice_used(&mut self, cpu: u32) {
        let c = &self.cpus[cpu as usize];
        let task = c.curr;
        let alone = c.own.len == 0
            && self.held_tasks == 0
            && self.takeover_since.is_none()
            && (self.fallback.len == 0 || self.first_usable(self.fallback, cpu) == NONE);
        if alone || self.sabotaged(Sabotage::SliceIgnored) {
            self.metrics.counts.extended += 1;
            let c = &mut self.cpus[cpu as usize];
            c.slice_end_ns = self.now + c.slice_ns.max(1);
            if c.work_ns == 0 {
                return self.next_stretch(task, cpu);
            }
            return self.arm(cpu);
        }
        self.end_stretch(cpu);
        if self.sabotaged(Sabotage::WorkForgotten) {
            self.tasks[task as usize].work_left_ns = 0;
        }
        self.leave(cpu);
        self.enqueue(task, Why::SliceUsed);
        self.look(cpu);
    }

    /// Takes the task off a CPU, with its time accounted. It is in no queue then.
    pub fn leave(&mut self, cpu: u32) -> u32 {
        self.end_stretch(cpu);
        self.metrics.counts.events += 1;
        let now = self.now;
        let c = &mut self.cpus[cpu as usize];
        let task = c.curr;
        let ran_ns = now - c.since_ns;
        c.busy_ns += ran_ns;
        c.epoch = c.epoch.wrapping_add(1);
        c.curr = NONE;
        c.idle_since_ns = now;
        let t = &mut self.tasks[task as usize];
        t.ran_ns += ran_ns;
        t.left_busy_ns = c.busy_ns;
        t.runnable_since_ns = now;
        self.metrics.stopped(t.group, ran_ns, c.run_work_ns, c.run_refill_ns);
        if O::ACTIVE {
            let run = Run {
                task: t.id,
                group: t.group,
                cpu: CpuId(cpu),
                start_ns: c.since_ns,
                end_ns: now,
                waited_ns: t.waited_ns,
                warmth: c.run_warmth,
                refill_ns: c.run_refill_ns,
                work_ns: c.run_work_ns,
            };
            self.observer.stopped(&run);
        }
        c.since_ns = now;
        if !self.sabotaged(Sabotage::StaleStatus) {
            self.mark(cpu);
        }
        self.audit_leave(task, cpu, ran_ns);
        task
    }

    /// A decision or another class takes the CPU from its task, which is queued anew.
    pub fn preempt(&mut self, cpu: u32) {
        self.metrics.counts.preempted += 1;
        let task = self.leave(cpu);
        if !self.sabotaged(Sabotage::PreemptedForgotten) {
            self.enqueue(task, Why::Preempted);
        }
    }

    /// The dispatcher runs on this CPU for `ns`: whoever is there is delayed.
    pub fn steal(&mut self, cpu: u32, ns: Nanos) {
        let c = &mut self.cpus[cpu as usize];
        c.dispatcher_ns += ns;
        c.taken_until_ns = self.now + ns;
        if c.curr != NONE {
            c.stretch_ns += ns;
            c.done_ns += ns;
            c.slice_end_ns += ns;
            self.arm(cpu);
        }
    }
}
