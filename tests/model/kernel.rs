// SPDX-License-Identifier: GPL-2.0-only
//! A model of the kernel side: tasks that run and sleep, HOLD queues, CPUs' own queues, FALLBACK, status words, a ring.
//!
//! It follows the shim's rules (see DESIGN section 3): a stale move fails, a CPU that runs dry asks if asks are wanted, a
//! lone task's slice is extended. It panics when a task runs where it may not.

use hearth::cpuset::CpuSet;
use hearth::event::{Command, CpuStatus, Event, NO_ROW, Outcome, Runnable, Why};
use hearth::ids::{CpuId, LlcId, Nanos, TaskId};
use hearth::topology::Topology;
use std::collections::{BTreeMap, VecDeque};

/// What a task does with its life: run, sleep, and again.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    pub run_ns: Nanos,
    /// 0: it never sleeps.
    pub sleep_ns: Nanos,
    /// Bursts until it exits (0: it never does).
    pub bursts: u32,
    pub weight: u32,
}

pub const HOG: Habit = Habit { run_ns: u64::MAX / 4, sleep_ns: 0, bursts: 0, weight: 100 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Hold(LlcId),
    Own(CpuId),
    Fallback,
    On(CpuId),
    Asleep,
    Dead,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub id: TaskId,
    pub habit: Habit,
    pub allowed: Option<CpuSet>,
    pub place: Place,
    pub seq: u32,
    pub prev_cpu: CpuId,
    pub burst_left_ns: Nanos,
    pub slice_ns: Nanos,
    pub ran_since_record_ns: Nanos,
    pub asleep_since_ns: Nanos,
    pub runnable_since_ns: Nanos,
    /// What the oracle looks at.
    pub total_ran_ns: Nanos,
    pub max_wait_ns: Nanos,
    pub runs: u64,
    pub mask_told: bool,
}

#[derive(Clone, Debug)]
pub struct Cpu {
    pub curr: Option<usize>,
    pub since_ns: Nanos,
    pub slice_end_ns: Nanos,
    pub queue: VecDeque<usize>,
    pub held: bool,
    /// A task that a higher class put aside, to go on when the CPU is free again.
    pub aside: Option<usize>,
    pub busy_ns: Nanos,
    pub told: Option<CpuStatus>,
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
enum Alarm {
    Wake(usize),
    Stop(CpuId, u64),
}

/// Chances in 1000 of things going wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A RUNNABLE record is lost (and the loss is known).
    pub lose_record: u64,
    /// A commit finds the insertion into HOLD still under way.
    pub retry: u64,
    /// The kernel side serves a task from HOLD by itself when a CPU runs dry.
    pub takeover: u64,
    /// An exit record is lost, and the loss is not known.
    pub lose_exit: u64,
}

pub struct Kernel {
    pub topology: Topology,
    pub now: Nanos,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    pub hold: Vec<VecDeque<usize>>,
    pub fallback: VecDeque<usize>,
    pub ring: VecDeque<Event>,
    pub lost: bool,
    pub wants_asks: bool,
    pub faults: Faults,
    pub rng: Rng,
    alarms: BTreeMap<(Nanos, u64), Alarm>,
    alarm_count: u64,
    free_rows: Vec<TaskId>,
    next_row: u32,
    /// The latest task of each row.
    task_of_row: Vec<usize>,
}

/// SplitMix64: a seeded stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

impl Kernel {
    pub fn new(topology: Topology, seed: u64) -> Self {
        let cpu = Cpu {
            curr: None,
            since_ns: 0,
            slice_end_ns: 0,
            queue: VecDeque::new(),
            held: false,
            aside: None,
            busy_ns: 0,
            told: None,
            epoch: 0,
        };
        Self {
            cpus: vec![cpu; topology.id_limit as usize],
            hold: vec![VecDeque::new(); topology.llcs.len()],
            topology,
            now: 1_000_000_000,
            tasks: Vec::new(),
            fallback: VecDeque::new(),
            ring: VecDeque::new(),
            lost: false,
            wants_asks: false,
            faults: Faults::default(),
            rng: Rng(seed),
            alarms: BTreeMap::new(),
            alarm_count: 0,
            free_rows: Vec::new(),
            next_row: 0,
            task_of_row: Vec::new(),
        }
    }

    /// A new task, runnable at once. Rows of dead tasks are used again, with a new generation.
    pub fn spawn(&mut self, habit: Habit, allowed: Option<CpuSet>, prev_cpu: CpuId) -> usize {
        let id = match self.free_rows.pop() {
            Some(old) => TaskId { idx: old.idx, generation: old.generation.wrapping_add(1) },
            None => {
                self.next_row += 1;
                self.task_of_row.push(0);
                TaskId { idx: self.next_row - 1, generation: 1 }
            }
        };
        self.tasks.push(Task {
            id,
            habit,
            mask_told: allowed.is_none(),
            allowed,
            place: Place::Asleep,
            seq: 0,
            prev_cpu,
            burst_left_ns: habit.run_ns,
            slice_ns: 0,
            ran_since_record_ns: 0,
            asleep_since_ns: self.now,
            runnable_since_ns: self.now,
            total_ran_ns: 0,
            max_wait_ns: 0,
            runs: 0,
        });
        let task = self.tasks.len() - 1;
        self.task_of_row[id.row()] = task;
        self.enqueue(task, Why::New);
        task
    }

    fn alarm(&mut self, at: Nanos, alarm: Alarm) {
        self.alarm_count += 1;
        self.alarms.insert((at, self.alarm_count), alarm);
    }

    pub fn next_alarm(&self) -> Option<Nanos> {
        self.alarms.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Lets time pass up to `until`, with everything that happens on the way.
    pub fn run_alarm(&mut self, until: Nanos) -> bool {
        match self.alarms.first_key_value() {
            Some((&(at, _), _)) if at <= until => {}
            _ => {
                self.now = self.now.max(until);
                return false;
            }
        }
        let Some(((at, _), alarm)) = self.alarms.pop_first() else { return false };
        self.now = self.now.max(at);
        match alarm {
            Alarm::Wake(task) if self.tasks[task].place == Place::Asleep => self.wake(task),
            Alarm::Stop(cpu, epoch) if self.cpus[cpu.idx()].epoch == epoch => self.stop_due(cpu),
            _ => {}
        }
        true
    }

    pub fn wake(&mut self, task: usize) {
        self.tasks[task].burst_left_ns = self.tasks[task].habit.run_ns;
        self.enqueue(task, Why::Woken);
    }

    fn llc_of(&self, cpu: CpuId) -> LlcId {
        self.topology.llc_of(cpu).unwrap_or(LlcId(0))
    }

    pub fn may_use(&self, task: usize, cpu: CpuId) -> bool {
        self.tasks[task].allowed.as_ref().is_none_or(|set| set.contains(cpu))
    }

    /// Puts a task on HOLD and tells the dispatcher.
    fn enqueue(&mut self, task: usize, why: Why) {
        let now = self.now;
        let llc = self.llc_of(self.tasks[task].prev_cpu);
        let t = &mut self.tasks[task];
        t.seq = t.seq.wrapping_add(1);
        t.place = Place::Hold(llc);
        t.runnable_since_ns = now;
        let slept_ns = if why == Why::Woken { now - t.asleep_since_ns } else { 0 };
        let ran_ns = t.ran_since_record_ns;
        if self.faults.lose_record > 0 && self.rng.chance(self.faults.lose_record) {
            self.lost = true;
        } else {
            self.tell(task, why, ran_ns, slept_ns);
        }
        self.tasks[task].ran_since_record_ns = 0;
        self.hold[llc.idx()].push_back(task);
        if self.faults.takeover > 0 && self.rng.chance(self.faults.takeover) {
            let idle = self.idle_cpus().find(|&cpu| self.may_use(task, cpu));
            if let Some(cpu) = idle {
                self.take_out(task);
                self.start(task, cpu, 2_000_000);
            }
        }
    }

    fn tell(&mut self, task: usize, why: Why, ran_ns: Nanos, slept_ns: Nanos) {
        let t = &mut self.tasks[task];
        if let (false, Some(set)) = (t.mask_told, &t.allowed) {
            self.ring.push_back(Event::Affinity(t.id, set.clone()));
            t.mask_told = true;
        }
        self.ring.push_back(Event::Runnable(Runnable {
            task: t.id,
            pid: t.id.idx + 100,
            seq: t.seq,
            why,
            prev_cpu: t.prev_cpu,
            ran_ns,
            slept_ns,
            waited_ns: 0,
            left_busy_ns: 0,
            waker_row: NO_ROW,
            weight: t.habit.weight,
            cgroup: 1,
        }));
    }

    /// Tells of everything that is on HOLD, as after a takeover or a lost record.
    pub fn rescan(&mut self) {
        // What the ring says of waiting tasks is stale: all of it is told anew.
        self.ring.retain(|event| !matches!(event, Event::Runnable(_) | Event::Affinity(..)));
        self.ring.push_back(Event::Resync);
        for llc in 0..self.hold.len() {
            for i in 0..self.hold[llc].len() {
                let task = self.hold[llc][i];
                self.tasks[task].mask_told = self.tasks[task].allowed.is_none();
                self.tell(task, Why::Rescan, 0, 0);
            }
        }
        self.lost = false;
    }

    /// Tells again of a task that has been on HOLD for long.
    pub fn ping(&mut self, task: usize) {
        self.tell(task, Why::Rescan, 0, 0);
    }

    pub fn idle_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.topology.cpus.iter().map(|cpu| cpu.id).filter(|id| {
            let cpu = &self.cpus[id.idx()];
            cpu.curr.is_none() && !cpu.held && cpu.queue.is_empty() && cpu.aside.is_none()
        })
    }

    /// Takes a waiting task out of the queue it is in.
    fn take_out(&mut self, task: usize) {
        let queue = match self.tasks[task].place {
            Place::Hold(llc) => &mut self.hold[llc.idx()],
            Place::Own(cpu) => &mut self.cpus[cpu.idx()].queue,
            Place::Fallback => &mut self.fallback,
            place => panic!("task {task} waits nowhere: {place:?}"),
        };
        let at = queue.iter().position(|&t| t == task).unwrap();
        queue.remove(at);
    }

    fn start(&mut self, task: usize, cpu: CpuId, slice_ns: Nanos) {
        assert!(self.may_use(task, cpu), "task {task} on forbidden {cpu:?}");
        assert!(self.cpus[cpu.idx()].curr.is_none() && !self.cpus[cpu.idx()].held);
        let now = self.now;
        let t = &mut self.tasks[task];
        t.place = Place::On(cpu);
        t.max_wait_ns = t.max_wait_ns.max(now - t.runnable_since_ns);
        t.runs += 1;
        t.prev_cpu = cpu;
        let until = now + slice_ns.min(t.burst_left_ns);
        let c = &mut self.cpus[cpu.idx()];
        c.curr = Some(task);
        c.since_ns = now;
        c.slice_end_ns = now + slice_ns;
        c.epoch += 1;
        let epoch = c.epoch;
        self.alarm(until, Alarm::Stop(cpu, epoch));
    }

    /// Takes the running task off a CPU, with its time accounted.
    fn stop(&mut self, cpu: CpuId) -> usize {
        let c = &mut self.cpus[cpu.idx()];
        let task = c.curr.take().unwrap();
        let ran = self.now - c.since_ns;
        c.busy_ns += ran;
        c.epoch += 1;
        let t = &mut self.tasks[task];
        t.burst_left_ns -= ran.min(t.burst_left_ns);
        t.ran_since_record_ns += ran;
        t.total_ran_ns += ran;
        task
    }

    /// A burst or a slice has ended.
    fn stop_due(&mut self, cpu: CpuId) {
        let slice_end_ns = self.cpus[cpu.idx()].slice_end_ns;
        let task = self.stop(cpu);
        if self.tasks[task].burst_left_ns == 0 {
            self.burst_done(task);
        } else if self.now >= slice_end_ns && self.alone(cpu) {
            // The slice of a lone task is extended in the kernel.
            self.tasks[task].runnable_since_ns = self.now;
            self.start(task, cpu, 5_000_000);
            self.cpus[cpu.idx()].told = None;
            return;
        } else {
            self.enqueue(task, Why::SliceUsed);
        }
        self.dispatch(cpu);
    }

    fn alone(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.idx()].queue.is_empty()
            && self.fallback.is_empty()
            && self.hold.iter().all(VecDeque::is_empty)
    }

    fn burst_done(&mut self, task: usize) {
        let now = self.now;
        let t = &mut self.tasks[task];
        t.place = Place::Asleep;
        t.asleep_since_ns = now;
        if t.habit.bursts == 1 {
            self.exit(task);
            return;
        }
        t.habit.bursts = t.habit.bursts.saturating_sub(1);
        let at = now + t.habit.sleep_ns;
        self.alarm(at, Alarm::Wake(task));
    }

    /// A task exits, wherever it is.
    pub fn exit(&mut self, task: usize) {
        match self.tasks[task].place {
            Place::On(cpu) => {
                self.stop(cpu);
                self.tasks[task].place = Place::Dead;
                self.dispatch(cpu);
            }
            Place::Asleep => {
                let put_aside = self.cpus.iter_mut().filter(|c| c.aside == Some(task));
                put_aside.for_each(|c| c.aside = None);
            }
            Place::Dead => return,
            _ => self.take_out(task),
        }
        self.tasks[task].place = Place::Dead;
        let id = self.tasks[task].id;
        self.free_rows.push(id);
        if !(self.faults.lose_exit > 0 && self.rng.chance(self.faults.lose_exit)) {
            self.ring.push_back(Event::Exit(id));
        }
    }

    /// A CPU looks for work.
    pub fn dispatch(&mut self, cpu: CpuId) {
        let c = &mut self.cpus[cpu.idx()];
        if c.curr.is_some() || c.held {
            return;
        }
        if let Some(task) = c.aside.take() {
            let slice_ns = self.tasks[task].slice_ns.max(1_000_000);
            self.start(task, cpu, slice_ns);
            return;
        }
        let own = c.queue.front().copied();
        let fallback = self.fallback.iter().copied().find(|&t| self.may_use(t, cpu));
        let since = |t: Option<usize>| t.map_or(u64::MAX, |t| self.tasks[t].runnable_since_ns);
        match if since(own) <= since(fallback) { own.or(fallback) } else { fallback } {
            Some(task) => {
                self.take_out(task);
                let slice_ns = self.tasks[task].slice_ns.max(50_000);
                self.start(task, cpu, slice_ns);
            }
            None if self.wants_asks => self.ring.push_back(Event::Ask(cpu)),
            None => {}
        }
    }

    /// A higher class takes a CPU, or gives it back.
    pub fn hold_cpu(&mut self, cpu: CpuId, held: bool) {
        if self.cpus[cpu.idx()].held == held {
            return;
        }
        if held && self.cpus[cpu.idx()].curr.is_some() {
            let task = self.stop(cpu);
            self.tasks[task].runnable_since_ns = self.now;
            self.tasks[task].burst_left_ns = self.tasks[task].burst_left_ns.max(1);
            self.tasks[task].place = Place::Asleep; // put aside: in no queue of ours
            self.cpus[cpu.idx()].aside = Some(task);
        }
        self.cpus[cpu.idx()].held = held;
        if !held {
            self.dispatch(cpu);
        }
    }

    /// A task's allowed CPUs change: it is queued anew if it waits or runs where it no longer may.
    pub fn set_affinity(&mut self, task: usize, allowed: Option<CpuSet>) {
        self.tasks[task].mask_told = false;
        let all = CpuSet::of(self.topology.id_limit, self.topology.cpus.iter().map(|c| c.id));
        self.tasks[task].allowed = Some(allowed.unwrap_or(all));
        match self.tasks[task].place {
            Place::On(cpu) if !self.may_use(task, cpu) => {
                self.stop(cpu);
                self.enqueue(task, Why::Preempted);
                self.dispatch(cpu);
            }
            Place::Hold(_) | Place::Own(_) | Place::Fallback => {
                let since = self.tasks[task].runnable_since_ns;
                self.take_out(task);
                self.enqueue(task, Why::Preempted);
                self.tasks[task].runnable_since_ns = since;
            }
            _ => {
                if let Some(aside) = self.cpus.iter_mut().find(|c| c.aside == Some(task)) {
                    aside.aside = None;
                    self.enqueue(task, Why::Preempted);
                }
            }
        }
    }

    /// Carries out one decision, as the commit program does.
    pub fn commit(&mut self, command: &Command) -> Outcome {
        let Some(task) = self.tasks.iter().rposition(|t| t.id == command.task && t.place != Place::Dead)
        else {
            return Outcome::Gone;
        };
        let t = &self.tasks[task];
        let there = match command.recalled_from {
            None => matches!(t.place, Place::Hold(_)),
            Some(from) => t.place == Place::Own(from),
        };
        if t.seq != command.seq || !there {
            return Outcome::Stale;
        }
        if !self.may_use(task, command.cpu) {
            return Outcome::NotAllowed;
        }
        if self.faults.retry > 0 && self.rng.chance(self.faults.retry) {
            return Outcome::Retry;
        }
        self.take_out(task);
        self.tasks[task].place = Place::Own(command.cpu);
        self.tasks[task].slice_ns = command.slice_ns;
        if command.preempt && self.cpus[command.cpu.idx()].curr.is_some() {
            self.cpus[command.cpu.idx()].queue.push_front(task);
            let running = self.stop(command.cpu);
            if self.tasks[running].burst_left_ns == 0 {
                self.burst_done(running);
            } else {
                self.enqueue(running, Why::Preempted);
            }
        } else {
            self.cpus[command.cpu.idx()].queue.push_back(task);
        }
        self.dispatch(command.cpu);
        Outcome::Done
    }

    /// The status words of a CPU.
    pub fn status(&self, id: CpuId) -> CpuStatus {
        let cpu = &self.cpus[id.idx()];
        CpuStatus {
            cpu: id,
            curr: cpu.curr.map(|task| self.tasks[task].id),
            other: false,
            held: cpu.held,
            since_ns: cpu.since_ns,
            slice_ns: cpu.slice_end_ns.saturating_sub(cpu.since_ns),
            busy_ns: cpu.busy_ns,
            depth: cpu.queue.len() as u32,
        }
    }

    /// Tasks that want to run and do not.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.tasks.len())
            .filter(|&t| matches!(self.tasks[t].place, Place::Hold(_) | Place::Own(_) | Place::Fallback))
    }
}
