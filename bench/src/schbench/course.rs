// SPDX-License-Identifier: GPL-2.0-only
//! The course of a run: one tick a second that counts requests, resets and reports in between, until the time is over.

use super::report::{Delays, Figures, Metric, Report};
use super::threads::Shared;
use super::{Options, Outcome};
use crate::clock::Clock;
use crate::hist::Histogram;
use crate::{host, sys};
use anyhow::Context;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

const SECOND_US: u64 = 1_000_000;

/// Requests finished by a point in time.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at_us: u64,
    requests: u64,
}

impl Mark {
    /// Requests per second from `earlier` to here.
    fn rate_since(&self, earlier: Mark) -> f64 {
        let time_us = (self.at_us - earlier.at_us).max(1);
        (self.requests - earlier.requests) as f64 * SECOND_US as f64 / time_us as f64
    }
}

/// State of a run, seen from the main thread.
pub struct Course<'a> {
    options: &'a Options,
    clock: Clock,
    shared: Arc<Shared>,
    rps: Histogram,
    start: Mark,
    last: Mark,
    /// Where the figures began: the start, or the last reset.
    counted_from: Mark,
}

impl<'a> Course<'a> {
    /// The run's time begins here.
    pub fn start(options: &'a Options, clock: Clock, shared: Arc<Shared>) -> Self {
        let start = Mark { at_us: clock.now_us(), requests: 0 };
        let mut rps = Histogram::default();
        if !options.no_quirks {
            // The first sample of schbench, taken before anything ran.
            rps.record(0);
        }
        Self { options, clock, shared, rps, start, last: start, counted_from: start }
    }

    /// Waits for the end of the run; interim reports go to `out`.
    pub fn follow(&mut self, out: &mut impl Write) -> anyhow::Result<Outcome> {
        let mut warming = self.options.warmup_s() > 0;
        let mut reported_us = self.start.at_us;
        loop {
            let planned_us = self.last.at_us + SECOND_US;
            self.sleep_until(planned_us);
            let previous = self.last;
            self.last = self.mark();
            if self.last.at_us < planned_us {
                return Ok(Outcome::Interrupted);
            }
            let rate = self.last.rate_since(previous);
            self.rps.record(rate as u64);
            if warming && self.passed(self.start.at_us, self.options.warmup_s()) {
                warming = false;
                self.reset();
            }
            if self.options.interval > 0 && self.passed(reported_us, self.options.interval) {
                reported_us = self.last.at_us;
                let text = self.interim(rate);
                out.write_all(text.as_bytes()).context("cannot write to standard error")?;
            }
            if self.passed(self.start.at_us, self.options.runtime) {
                return Ok(Outcome::Complete);
            }
            if self.options.zero > 0 && self.passed(self.counted_from.at_us, self.options.zero) {
                self.reset();
            }
        }
    }

    fn sleep_until(&self, planned_us: u64) {
        while !sys::end_requested() {
            let left_us = planned_us.saturating_sub(self.clock.now_us());
            if left_us == 0 {
                return;
            }
            sys::sleep_unless_ended(Duration::from_micros(left_us));
        }
    }

    fn mark(&self) -> Mark {
        Mark { at_us: self.clock.now_us(), requests: self.shared.requests() }
    }

    fn passed(&self, since_us: u64, seconds: u64) -> bool {
        self.last.at_us - since_us >= seconds * SECOND_US
    }

    fn reset(&mut self) {
        self.shared.reset();
        self.rps = Histogram::default();
        self.counted_from = self.last;
    }

    /// Average time that the threads waited for a CPU; all 0 once they are gone.
    pub fn delays(&self) -> Delays {
        Delays {
            messengers_us: host::average_run_delay_us(self.shared.messenger_tids()),
            workers_us: host::average_run_delay_us(self.shared.worker_tids()),
        }
    }

    fn elapsed_s(&self) -> u64 {
        (self.last.at_us - self.start.at_us) / SECOND_US
    }

    fn figures(&self) -> Figures {
        let keep_zeros = self.options.no_quirks;
        let (wakeup, request) = self.shared.latencies();
        Figures {
            elapsed_s: self.elapsed_s(),
            wakeup: Metric::latency(wakeup, keep_zeros),
            request: Metric::latency(request, keep_zeros),
            rps: Metric::rate(self.rps.clone(), keep_zeros),
        }
    }

    fn interim(&self, rate: f64) -> String {
        let delays = self.delays();
        format!("{}{delays}current rps: {rate:.2}\n", self.figures())
    }

    /// The final report. Call it when the threads are gone, so that the last requests are in it.
    pub fn finish(self, outcome: Outcome, delays: Delays) -> Report {
        let requests = self.shared.requests();
        let end = Mark { requests, ..self.last };
        let average_rps = match outcome {
            _ if self.options.no_quirks => end.rate_since(self.counted_from),
            Outcome::Complete => requests as f64 / self.options.runtime as f64,
            Outcome::Interrupted => end.rate_since(self.start),
        };
        Report {
            figures: self.figures(),
            delays,
            average_rps,
            broken_off: self.shared.broken_off(),
            runtime_s: self.options.runtime,
            outcome,
        }
    }
}
