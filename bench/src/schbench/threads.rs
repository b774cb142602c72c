// SPDX-License-Identifier: GPL-2.0-only
//! The two kinds of threads, and how they wake each other.
//!
//! A worker arms its gate, puts itself in front of its message thread's list, posts the message thread's gate and waits. The
//! message thread takes the whole list, reads the clock once, writes that time to every worker on it and posts them all. So
//! a worker's wakeup latency includes the time the message thread needed for those before it, also when a woken worker
//! preempts it.

use super::work::{CpuLocks, Footprint};
use crate::clock::Clock;
use crate::gate::Gate;
use crate::hist::{Histogram, Recorder};
use crate::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads are still being started; those that are there wait.
const STARTING: u32 = 0;
/// Requests and wakeups go on.
const RUNNING: u32 = 1;
/// Requests under way are finished and counted, no new ones start.
const ENDING: u32 = 2;
/// Requests under way are broken off.
const ABORTING: u32 = 3;

/// How long requests under way may go on after the end of the run.
const GRACE: Duration = Duration::from_secs(2);
/// How often the end of the threads is looked for.
const END_POLL: Duration = Duration::from_millis(1);
/// Longest sleep that cannot be broken off.
const SLEEP_STEP_US: u64 = 100_000;
/// The threads need little; the default of 2 MiB would make thousands of workers costly.
const STACK_BYTES: usize = 128 * 1024;

/// What every request does.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Sleep before the work, us.
    pub sleep_us: u64,
    /// Matrix multiplications.
    pub operations: u64,
    /// Rows of each matrix.
    pub matrix_side: usize,
    /// Hold the current CPU's lock while working.
    pub locking: bool,
}

/// A list of workers: many put themselves in front, one takes all. Links are worker index + 1; 0 ends the list.
///
/// Since nobody ever takes a single node, a stale head cannot be confused with a current one.
#[derive(Debug, Default)]
struct WakeList(AtomicU32);

impl WakeList {
    fn push(&self, workers: &[Worker], index: usize) {
        let link = index as u32 + 1;
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            workers[index].next.store(head, Ordering::Relaxed);
            match self.0.compare_exchange_weak(head, link, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn take_all(&self) -> u32 {
        self.0.swap(0, Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct Messenger {
    gate: Gate,
    list: WakeList,
    tid: AtomicU32,
}

#[derive(Debug)]
struct Worker {
    gate: Gate,
    next: AtomicU32,
    /// Start of the wake walk that woke this worker last, us.
    woken_us: AtomicU64,
    wakeup: Recorder,
    request: Recorder,
    requests: AtomicU64,
    tid: AtomicU32,
}

/// Everything the threads of one run share.
#[derive(Debug)]
pub struct Shared {
    clock: Clock,
    request: Request,
    phase: AtomicU32,
    epoch: AtomicU32,
    locks: CpuLocks,
    messengers: Vec<Messenger>,
    workers: Vec<Worker>,
    workers_each: usize,
    broken_off: AtomicU64,
}

impl Shared {
    fn new(clock: Clock, request: Request, messengers: usize, workers_each: usize, cpu_ids: usize) -> Self {
        let messenger =
            |_| Messenger { gate: Gate::new(), list: WakeList::default(), tid: AtomicU32::new(0) };
        let worker = |_| Worker {
            gate: Gate::new(),
            next: AtomicU32::new(0),
            woken_us: AtomicU64::new(0),
            wakeup: Recorder::default(),
            request: Recorder::default(),
            requests: AtomicU64::new(0),
            tid: AtomicU32::new(0),
        };
        Self {
            clock,
            request,
            phase: AtomicU32::new(STARTING),
            epoch: AtomicU32::new(0),
            locks: CpuLocks::new(cpu_ids),
            messengers: (0..messengers).map(messenger).collect(),
            workers: (0..messengers * workers_each).map(worker).collect(),
            workers_each,
            broken_off: AtomicU64::new(0),
        }
    }

    fn set_phase(&self, phase: u32) {
        self.phase.store(phase, Ordering::SeqCst);
        // Only those in wait_for_start() sleep on it.
        sys::futex_wake(&self.phase, i32::MAX);
    }

    fn wait_for_start(&self) {
        while self.phase.load(Ordering::SeqCst) == STARTING {
            sys::futex_wait(&self.phase, STARTING, None);
        }
    }

    fn ending(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != RUNNING
    }

    fn aborting(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == ABORTING
    }

    fn run_messenger(&self, messenger: &Messenger) {
        messenger.tid.store(sys::thread_id(), Ordering::Relaxed);
        self.wait_for_start();
        while !self.ending() {
            messenger.gate.arm();
            self.wake_all(messenger.list.take_all());
            // Ended after the loop's own check: the post that goes with it may be the one that arm() forgot.
            if self.ending() {
                break;
            }
            messenger.gate.wait();
        }
    }

    fn wake_all(&self, mut link: u32) {
        let now_us = self.clock.now_us();
        while let Some(index) = link.checked_sub(1) {
            let worker = &self.workers[index as usize];
            // Read before the post: once woken, the worker may put itself on the list again.
            link = worker.next.load(Ordering::Relaxed);
            worker.woken_us.store(now_us, Ordering::Relaxed);
            worker.gate.post();
        }
    }

    fn run_worker(&self, index: usize) {
        let worker = &self.workers[index];
        let messenger = &self.messengers[index / self.workers_each];
        worker.tid.store(sys::thread_id(), Ordering::Relaxed);
        let memory = Footprint::new(self.request.matrix_side);
        self.wait_for_start();
        loop {
            worker.gate.arm();
            // After arm(): the post that ends the run comes after `phase` is set, so it cannot be missed.
            if self.ending() {
                break;
            }
            // Overwritten by the wake walk. It is here because schbench reads the clock here too.
            worker.woken_us.store(self.clock.now_us(), Ordering::Relaxed);
            messenger.list.push(&self.workers, index);
            messenger.gate.post();
            worker.gate.wait();
            let start_us = self.clock.now_us();
            if self.ending() {
                break;
            }
            let woken_us = worker.woken_us.load(Ordering::Relaxed);
            worker.wakeup.record_span(self.epoch(), woken_us, start_us);
            if !self.serve(&memory) {
                self.broken_off.fetch_add(1, Ordering::Relaxed);
                break;
            }
            worker.request.record_span(self.epoch(), start_us, self.clock.now_us());
            worker.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One request. False if it was broken off.
    fn serve(&self, memory: &Footprint) -> bool {
        let mut left_us = self.request.sleep_us;
        while left_us > 0 {
            let step_us = left_us.min(SLEEP_STEP_US);
            thread::sleep(Duration::from_micros(step_us));
            left_us -= step_us;
            if self.aborting() {
                return false;
            }
        }
        if self.request.operations == 0 {
            return true;
        }
        let give_up = || self.aborting();
        let _guard = if self.request.locking {
            let Some(guard) = self.locks.lock_current(give_up) else { return false };
            Some(guard)
        } else {
            None
        };
        (0..self.request.operations).all(|_| memory.multiply(give_up))
    }

    fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Starts all figures except the count of requests again from zero.
    pub fn reset(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Wakeup and request latencies (us) of all workers since the last reset.
    pub fn latencies(&self) -> (Histogram, Histogram) {
        let (mut wakeup, mut request) = (Histogram::default(), Histogram::default());
        for worker in &self.workers {
            wakeup.merge(&worker.wakeup.copy(self.epoch()));
            request.merge(&worker.request.copy(self.epoch()));
        }
        (wakeup, request)
    }

    /// Requests finished since the start, warm-up included.
    pub fn requests(&self) -> u64 {
        self.workers.iter().map(|worker| worker.requests.load(Ordering::Relaxed)).sum()
    }

    /// Requests that took too long to be waited for at the end: they are in no figure.
    pub fn broken_off(&self) -> u64 {
        self.broken_off.load(Ordering::Relaxed)
    }

    /// Kernel ids of the message threads.
    pub fn messenger_tids(&self) -> impl Iterator<Item = u32> {
        self.messengers.iter().map(|messenger| messenger.tid.load(Ordering::Relaxed)).filter(|&tid| tid != 0)
    }

    /// Kernel ids of the workers.
    pub fn worker_tids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(|worker| worker.tid.load(Ordering::Relaxed)).filter(|&tid| tid != 0)
    }
}

/// The running threads. Dropping it ends them.
#[derive(Debug)]
pub struct Crew {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts `messengers` message threads with `workers_each` workers each. They begin together, when all are
    /// there: thousands of them take seconds to start, which must not count as run time.
    ///
    /// # Errors
    /// When the system refuses a thread; those already started are ended first.
    pub fn start(
        clock: Clock,
        request: Request,
        messengers: usize,
        workers_each: usize,
        cpu_ids: usize,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(clock, request, messengers, workers_each, cpu_ids));
        let mut crew = Self { shared, handles: Vec::new() };
        for index in 0..messengers {
            crew.spawn("schbench-msg", move |shared| shared.run_messenger(&shared.messengers[index]))?;
        }
        for index in 0..messengers * workers_each {
            crew.spawn("schbench-worker", move |shared| shared.run_worker(index))?;
        }
        crew.shared.set_phase(RUNNING);
        Ok(crew)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce(&Shared) + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        self.handles.push(builder.spawn(move || body(&shared))?);
        Ok(())
    }

    /// What the threads share.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Ends the run: requests under way are finished if they can be soon. Returns when all threads are gone, with the number
    /// of those that panicked.
    pub fn end(&mut self) -> usize {
        self.shared.set_phase(ENDING);
        let gates = self.shared.workers.iter().map(|worker| &worker.gate);
        for gate in gates.chain(self.shared.messengers.iter().map(|messenger| &messenger.gate)) {
            gate.post();
        }
        let asked = Instant::now();
        while !self.handles.iter().all(JoinHandle::is_finished) {
            if asked.elapsed() > GRACE {
                self.shared.set_phase(ABORTING);
                break;
            }
            thread::sleep(END_POLL);
        }
        self.handles.drain(..).filter_map(|handle| handle.join().err()).count()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.end();
    }
}
