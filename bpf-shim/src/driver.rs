// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher thread: carries facts from the shim to the core and decisions back.
//!
//! One turn: read the status words that changed, drain the ring, let the core decide, commit the batch in one system
//! call, hand the outcomes back. When a turn had nothing to do the thread looks at the ring for a short while more
//! (a wakeup seldom comes alone, and being woken costs more than deciding), then blocks on it.
//!
//! Nothing here allocates or takes a lock after [`Driver::new`]; the only system calls are the commit and the wait.

use crate::loader::Shared;
use crate::sys;
use crate::wire::{self, kind};
use anyhow::Result;
use hdrhistogram::Histogram;
use hearth::cpuset::CpuSet;
use hearth::dispatcher::Dispatcher;
use hearth::event::{Command, Event, Outcome};
use hearth::ids::{CpuId, Nanos};
use hearth::limits::MAX_BATCH;
use hearth::policy::Policy;
use std::hint::spin_loop;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Longest sleep, so that a signal or the end of the scheduler is noticed even if its notice is lost.
const NAP_NS: Nanos = 250_000_000;

/// A real-time thread must block now and then: kernel threads of its CPU wait behind it.
const BREATHE_AFTER_NS: Nanos = 100_000_000;
/// The same while a task is known to wait for its CPU.
const GIVE_WAY_AFTER_NS: Nanos = 2_000_000;
const BREATH_NS: Nanos = 200_000;

/// A CPU in the middle of an insertion is done in a microsecond, unless it is a virtual one that its host has put
/// aside. After so many commits with no other answer than "retry", wait a breath instead of asking at full speed.
const MAX_IDLE_RETRIES: u32 = 16;

/// Why [`Driver::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody asked us to stop.
    Asked,
    /// The kernel ended the scheduler.
    Detached,
}

/// One of so many commits and records is timed: enough for percentiles, and the clock costs more than a look-up.
const SAMPLE: u64 = 8;

/// What the driver counts about itself.
#[derive(Clone, Debug)]
pub struct Counts {
    /// From a task's enqueue until the dispatcher began the turn that read its record, in nanoseconds; a sample.
    pub notice_ns: Histogram<u64>,
    /// Length of a commit call, in nanoseconds; a sample.
    pub commit_ns: Histogram<u64>,
    /// Times it blocked.
    pub sleeps: u64,
    /// Turns that found work.
    pub turns: u64,
    /// Commit calls.
    pub commits: u64,
    /// Takeovers that it ended.
    pub resumes: u64,
    /// Longest time from noticing a takeover to leading again.
    pub resume_max_ns: Nanos,
    /// Records taken from the ring.
    pub records: u64,
}

impl Counts {
    /// Nothing counted yet. Two digits, 16 ns to 10 s: a few KiB, allocated here once.
    pub fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(16, 10_000_000_000, 2)?;
        Ok(Self {
            notice_ns: histogram.clone(),
            commit_ns: histogram,
            sleeps: 0,
            turns: 0,
            commits: 0,
            resumes: 0,
            resume_max_ns: 0,
            records: 0,
        })
    }
}

/// The dispatcher thread's state.
pub struct Driver<'a, P: Policy> {
    core: Dispatcher<P>,
    shared: Shared,
    cpus: Vec<CpuId>,
    all_cpus: CpuSet,
    /// Reused for every affinity event: sets do not allocate once they have their size.
    affinity: Event,
    pending: Vec<Command>,
    spin_ns: Nanos,
    late_us: u64,
    seed: u64,
    awake_since: Nanos,
    /// When the turn under way began.
    now: Nanos,
    idle_retries: u32,
    stop: &'a AtomicBool,
    detached: bool,
    counts: Counts,
}

impl<'a, P: Policy> Driver<'a, P> {
    /// A driver for an attached shim.
    pub fn new(
        core: Dispatcher<P>,
        shared: Shared,
        spin_ns: Nanos,
        late_us: u64,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let topology = core.view().topology().clone();
        let limit = topology.id_limit;
        let cpus: Vec<CpuId> = topology.cpus.iter().map(|c| c.id).collect();
        let nobody = hearth::ids::TaskId { idx: 0, generation: 0 };
        Ok(Self {
            all_cpus: CpuSet::of(limit, cpus.iter().copied()),
            affinity: Event::Affinity(nobody, CpuSet::with_limit(limit)),
            pending: Vec::with_capacity(MAX_BATCH),
            awake_since: sys::now_ns(),
            now: 0,
            idle_retries: 0,
            seed: 0x9e37_79b9_7f4a_7c15,
            detached: false,
            counts: Counts::new()?,
            core,
            shared,
            cpus,
            spin_ns,
            late_us,
            stop,
        })
    }

    /// Dispatches until somebody asks us to stop or the kernel ends the scheduler. `each_pause` is called before
    /// every sleep, with the core and the counts: it must not block.
    pub fn run(&mut self, mut each_pause: impl FnMut(&Dispatcher<P>, &Counts)) -> Result<End> {
        loop {
            let worked = self.turn()?;
            if self.detached {
                return Ok(End::Detached);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(End::Asked);
            }
            self.counts.turns += u64::from(worked);
            if worked || self.spin() {
                if self.breathe() {
                    each_pause(&self.core, &self.counts);
                }
            } else {
                // The notice of the end may have found the ring full.
                if !self.shared.ctl.enabled() {
                    return Ok(End::Detached);
                }
                each_pause(&self.core, &self.counts);
                // What was committed to an idle CPU has started by now: then nothing is left to look after.
                self.read_status(sys::now_ns());
                if !self.sleep() {
                    self.breathe();
                }
            }
        }
    }

    /// The counters of the thread.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The core.
    pub fn core(&self) -> &Dispatcher<P> {
        &self.core
    }

    /// One turn; true if it found something to do.
    fn turn(&mut self) -> Result<bool> {
        if self.late_us > 0 {
            self.be_late();
        }
        let now = sys::now_ns();
        self.now = now;
        let epoch = self.shared.ctl.takeover().load(Ordering::Acquire);
        if epoch != 0 {
            self.resume(now, epoch)?;
        }
        let mut worked = self.read_status(now);
        worked |= self.drain(now, MAX_BATCH) > 0;
        if self.core.deadline().is_some_and(|at| at <= now) {
            self.core.handle(now, &Event::Timer);
        }
        loop {
            while self.pending.len() < MAX_BATCH {
                let Some(command) = self.core.poll(now) else { break };
                self.shared.batch.set(self.pending.len(), wire::txn(&command));
                self.pending.push(command);
            }
            if self.pending.is_empty() {
                break;
            }
            let full = self.pending.len() == MAX_BATCH;
            self.commit()?;
            worked = true;
            if !full {
                break;
            }
        }
        self.tell_wants_asks(now);
        Ok(worked)
    }

    fn read_status(&mut self, now: Nanos) -> bool {
        let mut any = false;
        for i in 0..self.cpus.len() {
            if let Some(status) = self.shared.cpus.changed(self.cpus[i]) {
                self.core.handle(now, &Event::Cpu(status));
                any = true;
            }
        }
        any
    }

    fn drain(&mut self, now: Nanos, most: usize) -> usize {
        let mut n = 0;
        while n < most {
            let Some(record) = self.shared.ring.next() else { break };
            n += 1;
            self.counts.records += 1;
            self.take(now, &record);
        }
        n
    }

    fn take(&mut self, now: Nanos, record: &wire::hearth_record) {
        match record.kind {
            kind::RUNNABLE => {
                let runnable = wire::runnable(record);
                if self.counts.records.is_multiple_of(SAMPLE) {
                    self.counts.notice_ns.saturating_record(now.saturating_sub(record.ts_ns));
                }
                if record.flags & wire::R_MASK != 0 {
                    self.take_mask(now, &runnable);
                }
                self.core.handle(now, &Event::Runnable(runnable));
            }
            kind::ASK => self.core.handle(now, &Event::Ask(CpuId(u32::try_from(record.cpu).unwrap_or(0)))),
            kind::EXIT => self.core.handle(now, &Event::Exit(wire::task(record))),
            kind::EXEC => self.core.handle(now, &Event::Exec(wire::task(record))),
            kind::DETACHED => self.detached = true,
            other => debug_assert!(false, "unknown record kind {other}"),
        }
    }

    /// The task's allowed CPUs changed. A new task that may run anywhere needs no event.
    fn take_mask(&mut self, now: Nanos, runnable: &hearth::event::Runnable) {
        let Event::Affinity(task, set) = &mut self.affinity else { return };
        *task = runnable.task;
        self.shared.masks.read(runnable.task, set.words_mut());
        if runnable.why == hearth::event::Why::New && set.is_superset(&self.all_cpus) {
            return;
        }
        self.core.handle(now, &self.affinity);
    }

    fn commit(&mut self) -> Result<()> {
        self.shared.batch.set_len(self.pending.len());
        self.counts.commits += 1;
        let began = (self.counts.commits.is_multiple_of(SAMPLE)).then(sys::now_ns);
        if let Err(error) = sys::run_program(self.shared.commit.as_fd()) {
            // Ended by the kernel between two turns: its record says so, or will. Not an error of ours.
            if self.shared.ctl.enabled() {
                return Err(error);
            }
            self.pending.clear();
            self.detached = true;
            return Ok(());
        }
        if let Some(began) = began {
            self.counts.commit_ns.saturating_record(sys::now_ns() - began);
        }
        let now = self.now;
        let mut only_retries = true;
        for (i, command) in self.pending.iter().enumerate() {
            if let Some(outcome) = wire::outcome(self.shared.batch.outcome(i)) {
                only_retries &= outcome == Outcome::Retry;
                self.core.committed(now, command, outcome);
            }
        }
        self.pending.clear();
        self.idle_retries = if only_retries { self.idle_retries + 1 } else { 0 };
        if self.idle_retries >= MAX_IDLE_RETRIES {
            self.idle_retries = 0;
            std::thread::sleep(std::time::Duration::from_nanos(BREATH_NS));
        }
        Ok(())
    }

    /// The kernel side took over because we were late: catch up, lead again, and have everything that is held told
    /// anew. Records in the ring still carry run times and exits, so they are read, but nothing in them is decided.
    fn resume(&mut self, now: Nanos, epoch: u32) -> Result<()> {
        while self.drain(now, MAX_BATCH) > 0 {}
        self.core.handle(now, &Event::Resync);
        let led = self.shared.ctl.takeover().compare_exchange(epoch, 0, Ordering::AcqRel, Ordering::Relaxed);
        if led.is_ok() {
            sys::run_program(self.shared.rescan.as_fd())?;
            self.counts.resumes += 1;
            self.counts.resume_max_ns = self.counts.resume_max_ns.max(sys::now_ns() - now);
        }
        Ok(())
    }

    /// Tells the shim whether a CPU that runs dry should say so. After turning it on the status words are read once
    /// more: a CPU may have gone idle just before, and said nothing.
    fn tell_wants_asks(&mut self, now: Nanos) {
        let word = self.shared.ctl.wants_asks();
        let wants = u32::from(self.core.wants_asks());
        if word.load(Ordering::Relaxed) == wants {
            return;
        }
        word.store(wants, Ordering::Relaxed);
        if wants == 1 {
            fence(Ordering::SeqCst);
            self.read_status(now);
        }
    }

    /// Does a task wait for the dispatcher's own CPU?
    fn is_in_the_way(&self) -> bool {
        self.core.config().dispatcher_cpu.is_some_and(|cpu| self.shared.cpus.is_wanted(cpu))
    }

    /// Looks at the ring a little longer; true if something came.
    fn spin(&mut self) -> bool {
        if self.spin_ns == 0 || self.core.deadline().is_some_and(|at| at <= self.now) {
            return self.spin_ns > 0 && self.shared.ring.has_data();
        }
        let until = self.now + self.spin_ns;
        loop {
            for _ in 0..16 {
                if self.shared.ring.has_data() {
                    return true;
                }
                spin_loop();
            }
            if sys::now_ns() >= until {
                return false;
            }
        }
    }

    /// Blocks until a record comes or the core wants to be asked again; false if that is already so.
    fn sleep(&mut self) -> bool {
        let asleep = self.shared.ctl.asleep();
        asleep.store(1, Ordering::Relaxed);
        // The shim reserves a record and then looks at `asleep`; we set it and then look at the ring.
        fence(Ordering::SeqCst);
        let mut slept = false;
        if !self.shared.ring.has_data() && self.shared.ctl.takeover().load(Ordering::Relaxed) == 0 {
            let now = sys::now_ns();
            let nap = self.core.deadline().map_or(NAP_NS, |at| at.saturating_sub(now).min(NAP_NS));
            if nap > 0 {
                self.counts.sleeps += 1;
                sys::wait_readable(self.shared.ring_fd.as_fd(), nap);
                self.awake_since = sys::now_ns();
                slept = true;
            }
        }
        self.shared.ctl.asleep().store(0, Ordering::Relaxed);
        slept
    }

    /// Under endless load there is no idle moment to block in: take one. True if it was time.
    fn breathe(&mut self) -> bool {
        let most_ns = if self.is_in_the_way() { GIVE_WAY_AFTER_NS } else { BREATHE_AFTER_NS };
        if self.now.saturating_sub(self.awake_since) <= most_ns {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_nanos(BREATH_NS));
        self.awake_since = sys::now_ns();
        true
    }

    /// Fault injection: a dispatcher that is late at random.
    fn be_late(&mut self) {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        std::thread::sleep(std::time::Duration::from_micros(self.seed % (self.late_us + 1)));
    }
}
