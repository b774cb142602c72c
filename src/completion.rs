// SPDX-License-Identifier: GPL-2.0-only
//! When will a CPU be free: what its running task has left, and the service of all that wait for it, over its capacity.
//!
//! A task's *run* is the CPU time from a wakeup until it sleeps; slices add up. Its length is known only when it sleeps: a run
//! that was cut by a slice's end or a preemption is not a sample, it goes on. Every task has a [`Histogram`] of its run lengths,
//! which answers how long a run goes on, given how long it has lasted. A task without a history borrows that of its cgroup, or
//! else of the machine; before anything is known of anybody, a run is taken to last [`PRIOR_RUN_NS`].
//!
//! Times of runs are those of a CPU of full capacity; what is answered about a CPU is time on its clock.
//!
//! - **Residual**: expected remainder of the run on a CPU.
//! - **Occupancy**: how much of it the task can take before others get their turn: the expected smaller one of the remainder
//!   and what is left of its slice. (A lone task gets its slice again and again, so the slice's end is the next multiple.)
//! - **Service**: the same for a task that waits: the expected smaller one of its remaining run and a slice. It is computed when
//!   the task joins a queue, and kept in sums per CPU and per domain.
//! - **Wait**: occupancy + services of the CPU's line, its ordered queue and what is on its way there.
//!
//! [`published`] holds the published forms.
//!
//! # What is approximate
//!
//! - A task is taken to be served after all that wait for the CPU now, whatever the policy's order says, and to run without
//!   being preempted. Tasks of the domain's queue are not ahead of it.
//! - Tasks in the CPU's own queue that are not tracked count as an average run of the machine.
//! - A CPU that a higher class holds is not free for [`HELD_WAIT_NS`]: nobody knows.

pub mod histogram;
pub mod published;

pub use histogram::Histogram;

use self::histogram::MAX_RUN_NS;
use crate::event::{CpuStatus, Runnable, Why};
use crate::ids::{CpuId, LlcId, Nanos};
use crate::limits::{GROUP_SLOTS, HELD_WAIT_NS, PRIOR_RUN_NS};
use crate::ordered::NONE;
use crate::topology::{FULL_CAPACITY, Topology};

/// A task that has a history feeds those of its cgroup and the machine with one run in so many.
const FEED_EVERY: u32 = 8;

/// Bits behind the point of a CPU's slowness.
const SLOWNESS_BITS: u32 = 16;

/// What runs on a CPU, for a question about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nothing.
    Nobody,
    /// A higher scheduling class.
    Held,
    /// This row's task.
    Task(u32),
    /// Something that is not tracked.
    Other,
}

/// One task.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// How long its present run has lasted, up to its last record.
    run_ns: Nanos,
    /// Its part of the sums of the place where it waits.
    service_ns: Nanos,
    cgroup: u64,
    /// Where it waits: a place, or [`NONE`].
    place: u32,
    /// Of the resyncs when it last told of itself.
    epoch: u32,
    /// Runs that were completed.
    completed: u32,
    /// Something of the present run was not seen: it is no sample.
    torn: bool,
    prediction: Option<Prediction>,
}

const NEW_ROW: Row = Row {
    run_ns: 0,
    service_ns: 0,
    cgroup: 0,
    place: NONE,
    epoch: 0,
    completed: 0,
    torn: true,
    prediction: None,
};

/// A start that was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// When that was.
    pub made_ns: Nanos,
    /// Where the task was to start.
    pub cpu: CpuId,
    /// How much later.
    pub wait_ns: Nanos,
    /// There was something to wait for.
    pub busy: bool,
}

/// One CPU.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    since_ns: Nanos,
    slice_ns: Nanos,
    /// 1 to 1024.
    capacity: u32,
    /// 1024 / capacity.
    slowness: u64,
}

/// Sums over those who wait in a place.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    service_ns: Nanos,
    tasks: u32,
}

/// Run lengths of a cgroup.
#[derive(Clone, Debug)]
struct Group {
    id: u64,
    runs: Histogram,
}

/// Run lengths of all tasks, and what waits for every CPU.
///
/// A *place* is where a task waits: the queue of a domain (the domain's number) or whatever leads to one CPU (the number of
/// domains + the CPU's), as in the dispatcher's ordered queues.
#[derive(Clone, Debug)]
pub struct Completion {
    rows: Vec<Row>,
    runs: Vec<Histogram>,
    /// Found by a hash of the cgroup's id; a newcomer takes the place of another.
    groups: Vec<Group>,
    machine: Histogram,
    cpus: Vec<Cpu>,
    waiting: Vec<Waiting>,
    llcs: usize,
    epoch: u32,
}

impl Completion {
    /// No history, nobody waits. Rows for `max_tasks` tasks.
    #[must_use]
    pub fn new(topology: &Topology, max_tasks: usize) -> Self {
        let idle = Cpu { since_ns: 0, slice_ns: 0, capacity: FULL_CAPACITY, slowness: 1 << SLOWNESS_BITS };
        let mut cpus = vec![idle; topology.id_limit as usize];
        for cpu in &topology.cpus {
            let capacity = cpu.capacity.clamp(1, FULL_CAPACITY);
            let slowness = (u64::from(FULL_CAPACITY) << SLOWNESS_BITS) / u64::from(capacity);
            cpus[cpu.id.idx()] = Cpu { capacity, slowness, ..idle };
        }
        Self {
            rows: vec![NEW_ROW; max_tasks],
            runs: vec![Histogram::EMPTY; max_tasks],
            groups: vec![Group { id: 0, runs: Histogram::EMPTY }; GROUP_SLOTS],
            machine: Histogram::EMPTY,
            waiting: vec![Waiting::default(); topology.llcs.len() + cpus.len()],
            llcs: topology.llcs.len(),
            cpus,
            epoch: 0,
        }
    }

    /// The place of a domain's queue.
    #[inline]
    #[must_use]
    pub fn place_of_llc(&self, llc: LlcId) -> usize {
        llc.idx()
    }

    /// The place of all that waits for one CPU.
    #[inline]
    #[must_use]
    pub fn place_of_cpu(&self, cpu: CpuId) -> usize {
        self.llcs + cpu.idx()
    }

    /// A new reading of a CPU's status words.
    #[inline]
    pub fn read(&mut self, status: &CpuStatus) {
        if let Some(cpu) = self.cpus.get_mut(status.cpu.idx()) {
            cpu.since_ns = status.since_ns;
            cpu.slice_ns = status.slice_ns;
        }
    }

    /// The task in this row is new or gone: nothing is known about it. (It must wait nowhere.)
    pub fn clear(&mut self, row: usize) {
        self.leave(row);
        self.rows[row] = NEW_ROW;
        self.runs[row] = Histogram::EMPTY;
    }

    /// The task runs another program: its history does not count any more.
    pub fn exec(&mut self, row: usize) {
        self.rows[row].torn = true;
        self.rows[row].completed = 0;
        self.runs[row] = Histogram::EMPTY;
    }

    /// Records may have been lost: no run that is under way is a sample.
    pub fn resync(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// A task's record: it has run, and perhaps slept. `doubtful`: the run time in it cannot be right.
    #[inline]
    pub fn ran(&mut self, index: usize, record: &Runnable, doubtful: bool) {
        let capacity = self.cpus.get(record.prev_cpu.idx()).map_or(FULL_CAPACITY, |cpu| cpu.capacity);
        let row = &mut self.rows[index];
        row.cgroup = record.cgroup;
        row.run_ns = row.run_ns.saturating_add(scaled(record.ran_ns, capacity));
        row.torn |= doubtful || row.epoch != self.epoch || record.why == Why::Rescan;
        row.epoch = self.epoch;
        if !matches!(record.why, Why::Woken | Why::New) {
            return;
        }
        let (run_ns, torn) = (row.run_ns, row.torn);
        row.run_ns = 0;
        row.torn = false;
        if record.why == Why::Woken && !torn && run_ns > 0 {
            row.completed = row.completed.wrapping_add(1);
            self.completed(index, run_ns);
        }
    }

    /// A run has come to its end.
    fn completed(&mut self, index: usize, run_ns: Nanos) {
        let Row { cgroup, completed, .. } = self.rows[index];
        let young = !self.runs[index].is_telling();
        self.runs[index].add(run_ns);
        if young || completed % FEED_EVERY == 0 {
            let group = &mut self.groups[group_slot(cgroup)];
            if group.id != cgroup {
                *group = Group { id: cgroup, runs: Histogram::EMPTY };
            }
            group.runs.add(run_ns);
            self.machine.add(run_ns);
        }
    }

    /// The run lengths that the task is judged by: its own, its cgroup's or the machine's.
    #[inline]
    #[must_use]
    pub fn runs_of(&self, row: usize) -> &Histogram {
        let own = &self.runs[row];
        if own.is_telling() {
            return own;
        }
        let cgroup = self.rows[row].cgroup;
        let group = &self.groups[group_slot(cgroup)];
        if group.id == cgroup && group.runs.is_telling() { &group.runs } else { &self.machine }
    }

    /// How long the task's present run had lasted at its last record (on a CPU of full capacity).
    #[inline]
    #[must_use]
    pub fn run_age_ns(&self, row: usize) -> Nanos {
        self.rows[row].run_ns
    }

    /// How much CPU time (of full capacity) the task is expected to take when it is on next, of `slice_ns` at most.
    #[inline]
    #[must_use]
    pub fn service_ns(&self, row: usize, slice_ns: Nanos) -> Nanos {
        rest_ns(self.runs_of(row), self.rows[row].run_ns, slice_ns)
    }

    /// The task waits in a place now, and will run for `slice_ns` at most.
    #[inline]
    pub fn join(&mut self, row: usize, place: usize, slice_ns: Nanos) {
        self.leave(row);
        let service_ns = self.service_ns(row, slice_ns);
        self.rows[row].place = place as u32;
        self.rows[row].service_ns = service_ns;
        self.waiting[place].service_ns += service_ns;
        self.waiting[place].tasks += 1;
    }

    /// The task does not wait any more.
    #[inline]
    pub fn leave(&mut self, row: usize) {
        let row = &mut self.rows[row];
        if row.place != NONE {
            let waiting = &mut self.waiting[row.place as usize];
            waiting.service_ns -= row.service_ns;
            waiting.tasks -= 1;
            row.place = NONE;
        }
    }

    /// What the task counts for in the place where it waits.
    #[inline]
    #[must_use]
    pub fn counted_ns(&self, row: usize) -> Nanos {
        if self.rows[row].place == NONE { 0 } else { self.rows[row].service_ns }
    }

    /// Tasks that wait in a place, and the CPU time (of full capacity) that they are expected to take.
    #[inline]
    #[must_use]
    pub fn waiting(&self, place: usize) -> (u32, Nanos) {
        let Waiting { service_ns, tasks } = self.waiting[place];
        (tasks, service_ns)
    }

    /// How long the run on a CPU has lasted, on a CPU of full capacity; and since when its occupant is on.
    #[inline]
    fn age_ns(&self, cpu: &Cpu, row: Option<u32>, now: Nanos) -> Nanos {
        let on_ns = scaled(now.saturating_sub(cpu.since_ns), cpu.capacity);
        row.map_or(0, |row| self.rows[row as usize].run_ns).saturating_add(on_ns)
    }

    /// How long the run on `cpu` goes on, on its clock: the expected remainder, the slice not counted.
    #[must_use]
    pub fn residual_ns(&self, cpu: CpuId, occupant: Occupant, now: Nanos) -> Nanos {
        let Some((runs, age_ns, cpu)) = self.run_on(cpu, occupant, now) else { return held_ns(occupant) };
        cpu.on_its_clock(rest_ns(runs, age_ns, Nanos::MAX))
    }

    /// The same, as likely exceeded as not: this one has the smallest expected error.
    #[must_use]
    pub fn median_residual_ns(&self, cpu: CpuId, occupant: Occupant, now: Nanos) -> Nanos {
        let Some((runs, age_ns, cpu)) = self.run_on(cpu, occupant, now) else { return held_ns(occupant) };
        cpu.on_its_clock(runs.median_rest_ns(age_ns).unwrap_or_else(|| prior_ns(age_ns)))
    }

    /// How long the occupant keeps those who wait from running.
    #[inline]
    #[must_use]
    pub fn occupancy_ns(&self, cpu: CpuId, occupant: Occupant, now: Nanos) -> Nanos {
        let Some((runs, age_ns, cpu)) = self.run_on(cpu, occupant, now) else { return held_ns(occupant) };
        let slice_ns = scaled(cpu.slice_left_ns(now), cpu.capacity);
        cpu.on_its_clock(rest_ns(runs, age_ns, slice_ns))
    }

    /// How long a task that joins now waits for `cpu`: occupancy, all that waits, and `strangers` tasks of which nothing is
    /// known.
    #[inline]
    #[must_use]
    pub fn wait_ns(&self, cpu: CpuId, occupant: Occupant, strangers: u32, now: Nanos) -> Nanos {
        let occupancy_ns = self.occupancy_ns(cpu, occupant, now);
        let mut queued_ns = self.waiting[self.place_of_cpu(cpu)].service_ns;
        if strangers > 0 {
            queued_ns += u64::from(strangers) * self.machine.mean_ns().unwrap_or(PRIOR_RUN_NS);
        }
        occupancy_ns + self.cpus[cpu.idx()].on_its_clock(queued_ns)
    }

    /// CPU time of full capacity as time on a CPU's clock.
    #[inline]
    #[must_use]
    pub fn on_clock_of(&self, cpu: CpuId, ns: Nanos) -> Nanos {
        self.cpus[cpu.idx()].on_its_clock(ns)
    }

    #[inline]
    fn run_on(&self, cpu: CpuId, occupant: Occupant, now: Nanos) -> Option<(&Histogram, Nanos, &Cpu)> {
        let cpu = self.cpus.get(cpu.idx())?;
        match occupant {
            Occupant::Nobody | Occupant::Held => None,
            Occupant::Task(row) => Some((self.runs_of(row as usize), self.age_ns(cpu, Some(row), now), cpu)),
            Occupant::Other => Some((&self.machine, self.age_ns(cpu, None, now), cpu)),
        }
    }

    /// Remembers what a decision expects.
    #[inline]
    pub fn predict(&mut self, row: usize, prediction: Option<Prediction>) {
        self.rows[row].prediction = prediction;
    }

    /// Takes out what was expected of the task's start, if anything was.
    #[inline]
    pub fn predicted(&mut self, row: usize) -> Option<Prediction> {
        self.rows[row].prediction.take()
    }
}

impl Cpu {
    #[inline]
    fn on_its_clock(&self, ns: Nanos) -> Nanos {
        if self.capacity == FULL_CAPACITY { ns } else { ns.saturating_mul(self.slowness) >> SLOWNESS_BITS }
    }

    /// Until others may have the CPU.
    #[inline]
    fn slice_left_ns(&self, now: Nanos) -> Nanos {
        let on_ns = now.saturating_sub(self.since_ns);
        match self.slice_ns.checked_sub(on_ns) {
            Some(left_ns) => left_ns,
            None => self.slice_ns - on_ns.checked_rem(self.slice_ns).unwrap_or(0),
        }
    }
}

#[inline]
fn held_ns(occupant: Occupant) -> Nanos {
    if occupant == Occupant::Held { HELD_WAIT_NS } else { 0 }
}

#[inline]
fn rest_ns(runs: &Histogram, age_ns: Nanos, at_most_ns: Nanos) -> Nanos {
    runs.rest_ns(age_ns, at_most_ns).unwrap_or_else(|| prior_ns(age_ns).min(at_most_ns))
}

/// What a run has left if nothing is known of anybody's.
#[cold]
fn prior_ns(age_ns: Nanos) -> Nanos {
    age_ns.clamp(PRIOR_RUN_NS, MAX_RUN_NS)
}

/// Time on a CPU as time on one of full capacity.
#[inline]
fn scaled(ns: Nanos, capacity: u32) -> Nanos {
    if capacity == FULL_CAPACITY {
        ns
    } else {
        ns.saturating_mul(u64::from(capacity)) / u64::from(FULL_CAPACITY)
    }
}

#[inline]
fn group_slot(cgroup: u64) -> usize {
    // Fibonacci hashing: ids are small and dense, or inode numbers.
    let bits = GROUP_SLOTS.trailing_zeros();
    (cgroup.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
}

#[cfg(test)]
mod tests;
