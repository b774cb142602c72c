// SPDX-License-Identifier: GPL-2.0-only
//! A wakeup and request latency load with the behaviour and the figures of schbench (as of December 2025).
//!
//! Written from a description of that program's behaviour and from its output, because no package registry or distribution
//! carries it. Where it is odd we are the same by default, so that figures compare; `--no-quirks` turns all of it off:
//!
//! | schbench | here |
//! |---|---|
//! | latencies of 0 us are not recorded | same; their number is in the summary |
//! | `min=` is the smallest value that is not 0 | same |
//! | the first rps sample is taken at second 0 and is 0 | same |
//! | average rps = all requests, warm-up included, over the run time asked for | same |
//! | `-w` is ignored when `-r` is below 30 | same, but a note says so |
//!
//! Different always, since nobody can want the original: `--cache_footprint` works (there it is accepted and ignored);
//! the end of the run adds no wakeup sample; the final report's "sched delay" is read before the threads are gone (there it
//! is always 0); without a sample there are no percentile lines, and the JSON has `null` (there it is not valid); a usage
//! error ends with 2 (there 1); the clock is monotonic; the run time begins when all threads are there, and they begin
//! together; `-i 0` means no interim report and `-s 0` no sleep; a request that would outlive the run by more than 2 s is
//! broken off, and a line says how many were.

mod course;
mod options;
mod report;
mod threads;
mod work;

pub use options::Options;

use crate::clock::Clock;
use crate::{Failure, host, sys};
use anyhow::Context;
use course::Course;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use threads::{Crew, Request};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ran for the time asked for.
    Complete,
    /// The user ended it early; what was measured has been printed and marked.
    Interrupted,
}

/// Runs the load and prints its report. `command_line` goes into the JSON file.
///
/// # Errors
/// Options that make no sense, too little memory or too few threads, or output that cannot be written.
pub fn run(options: &Options, command_line: &str) -> Result<Outcome, Failure> {
    options.check()?;
    // Opened first: a bad path must not show only after the run.
    let json_out = options.json.as_deref().map(open_output).transpose()?;
    sys::catch_end_signals().context("cannot handle Ctrl-C")?;
    let mut text_out = io::stderr();
    for note in options.notes() {
        writeln!(text_out, "note: {note}").context("cannot write to standard error")?;
    }

    let clock = Clock::start();
    let request = Request {
        sleep_us: options.sleep_us,
        operations: options.operations,
        matrix_side: options.matrix_side(),
        locking: !options.no_locking,
    };
    let (messengers, workers_each) = (options.message_threads as usize, options.workers_each() as usize);
    let mut crew =
        Crew::start(clock, request, messengers, workers_each, host::cpu_ids()).map_err(|error| {
            Failure::machine(format!(
                "cannot start {messengers} message threads with {workers_each} workers each: {error}; lower -m or -t, \
                 or raise the limit on processes (ulimit -u, pids.max)"
            ))
        })?;
    let mut course = Course::start(options, clock, crew.shared());
    let outcome = course.follow(&mut text_out)?;
    let delays = course.delays();
    let panicked = crew.end();
    if panicked > 0 {
        return Err(Failure::failed(format!(
            "{panicked} threads of the load panicked; the figures are void"
        )));
    }
    let report = course.finish(outcome, delays);
    text_out.write_all(report.text().as_bytes()).context("cannot write to standard error")?;
    if let Some(mut out) = json_out {
        let json = report.schbench_json(command_line, options.jobname.as_deref())?;
        out.write_all(json.as_bytes()).context("cannot write the JSON report")?;
    }
    if options.summary_json {
        let line = report.summary_json()?;
        io::stdout().write_all(line.as_bytes()).context("cannot write to standard output")?;
    }
    Ok(outcome)
}

fn open_output(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path).map_err(|error| {
        Failure::usage(format!("cannot write the file of -j, {}: {error}", path.display()))
    })?;
    Ok(Box::new(file))
}
