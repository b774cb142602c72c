// SPDX-License-Identifier: GPL-2.0-only
//! The statistics thread: prints for `--stats`, serves the socket, says that we are attached.
//!
//! It is an ordinary thread that the shim schedules by itself, so it may be late, stopped, or blocked on a terminal;
//! the dispatcher must never wait for it. Numbers come over a queue with room for two of which one is used: the
//! dispatcher pushes only when it finds the queue empty, and the slot it then writes is never the one that this thread
//! may be in the middle of emptying. (With room for one, a push can spin until the other side has finished, for ever
//! if the other side needs the same CPU.)

use crate::line;
use crate::output::{self, Reader};
use crate::report::{self, Counters, Facts, Snapshot};
use crate::stats_server::Server;
use crossbeam::queue::ArrayQueue;
use libbpf_rs::MapHandle;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often clients of the socket get a line, and how soon a new one is noticed.
const TICK: Duration = Duration::from_secs(1);

/// How long the end of the daemon waits for this thread, which may be blocked on a terminal that nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the dispatcher and the statistics thread share.
pub struct Exchange {
    queue: ArrayQueue<Snapshot>,
    wanted: AtomicBool,
    attached: AtomicBool,
    stop: AtomicBool,
}

impl Exchange {
    fn new() -> Self {
        Self {
            queue: ArrayQueue::new(2),
            wanted: AtomicBool::new(false),
            attached: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    /// For the dispatcher: leaves numbers if somebody wants them and none are there. Never waits, never allocates.
    pub fn offer(&self, make: impl FnOnce() -> Snapshot) {
        if self.wanted.load(Ordering::Relaxed) && self.queue.is_empty() {
            // There is room: nobody else pushes.
            drop(self.queue.push(make()));
        }
    }
}

/// What the thread works with.
pub struct Work {
    /// The shim's counters.
    pub counters: MapHandle,
    /// What does not change.
    pub facts: Facts,
    /// Where to serve; none where no socket could be made.
    pub server: Option<Server>,
    /// Print every so many seconds.
    pub print_every: Option<u64>,
    /// Print JSON.
    pub json: bool,
    /// To be said once attached. Not by the dispatcher: standard error may be a terminal that somebody has stopped.
    pub greeting: String,
}

/// The running thread.
pub struct Statistics {
    exchange: Arc<Exchange>,
    thread: JoinHandle<Value>,
}

impl Statistics {
    /// Starts it.
    pub fn start(work: Work) -> io::Result<Self> {
        let exchange = Arc::new(Exchange::new());
        let theirs = Arc::clone(&exchange);
        let thread = thread::Builder::new().name("statistics".into()).spawn(move || run(work, &theirs))?;
        Ok(Self { exchange, thread })
    }

    /// Where the dispatcher leaves its numbers.
    pub fn exchange(&self) -> Arc<Exchange> {
        Arc::clone(&self.exchange)
    }

    /// Has the greeting said.
    pub fn attached(&self) {
        self.exchange.attached.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }

    /// Ends it; the kernel's events as it saw them last.
    pub fn stop(self) -> Value {
        self.exchange.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let until = Instant::now() + PATIENCE;
        while !self.thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        if !self.thread.is_finished() {
            warn!("the statistics thread is blocked: goes on without it");
            return Value::Null;
        }
        self.thread.join().unwrap_or(Value::Null)
    }
}

fn run(mut work: Work, exchange: &Exchange) -> Value {
    let mut snapshot = Snapshot::default();
    let mut events = Value::Null;
    let mut before = report(&work, &snapshot, &events);
    let mut greeted = false;
    let mut next_tick = Instant::now() + TICK;
    let mut ticks = 0u64;
    loop {
        if !greeted && exchange.attached.load(Ordering::Acquire) {
            greeted = true;
            info!("{}", work.greeting);
        }
        if exchange.stop.load(Ordering::Acquire) {
            return events;
        }
        let now = Instant::now();
        if now < next_tick {
            thread::park_timeout(next_tick - now);
            continue;
        }
        // After a long stop go on from now instead of catching up.
        next_tick = (next_tick + TICK).max(now);
        ticks += 1;
        let listened_to = work.server.as_mut().is_some_and(Server::accept);
        exchange.wanted.store(listened_to || work.print_every.is_some(), Ordering::Relaxed);
        snapshot = exchange.queue.pop().unwrap_or(snapshot);
        let seen = report::events();
        events = if seen.is_null() { events } else { seen };
        let due = work.print_every.is_some_and(|every| ticks.is_multiple_of(every));
        if !due && !listened_to {
            continue;
        }
        let report = report(&work, &snapshot, &events);
        if let Some(server) = work.server.as_mut().filter(|_| listened_to) {
            server.send(&report.to_string());
        }
        if due {
            let line = if work.json { report.to_string() } else { line::rates(&report, &before) };
            if !matches!(output::print(&line), Ok(Reader::There)) {
                work.print_every = None;
            }
            before = report;
        }
    }
}

fn report(work: &Work, snapshot: &Snapshot, events: &Value) -> Value {
    // The map lives as long as the handle: this fails only where memory is short, and then for a moment.
    Counters::read(&work.counters)
        .map_or(Value::Null, |counters| report::json(&work.facts, &counters, snapshot, events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c19_a_stopped_consumer_costs_samples_and_never_time() {
        let exchange = Exchange::new();
        let mut made = 0;
        exchange.offer(|| unreachable!("nobody wants them"));
        exchange.wanted.store(true, Ordering::Relaxed);
        for _ in 0..1_000_000 {
            exchange.offer(|| {
                made += 1;
                Snapshot::default()
            });
        }
        assert_eq!(made, 1);
        assert!(exchange.queue.pop().is_some() && exchange.queue.pop().is_none());
        exchange.offer(Snapshot::default);
        assert_eq!(exchange.queue.len(), 1);
    }
}
