// SPDX-License-Identifier: GPL-2.0-only
//! Measures what losing cached state costs on this machine, and writes it as a profile for the scheduler and the simulator.
//!
//! In reading order: `memory` (what is walked, and how), `probe` (one measurement), `plan` (which ones, in turns),
//! `stats` (medians and fits), `levels` (constants of a profile), `profile` (the file), `report` (table and JSON).
//! What the numbers mean to a user: `docs/calibrate.md`.

mod levels;
mod machine;
mod memory;
mod options;
mod pingpong;
mod plan;
mod probe;
mod profile;
mod report;
mod stats;

pub use options::Options;

use crate::schbench::Outcome;
use crate::{Failure, sys};
use anyhow::Context;
use hearth::profile::Profile;
use indicatif::{ProgressBar, ProgressStyle};
use levels::Costs;
use machine::{CpuTimes, Machine};
use plan::Results;
use probe::Lab;
use profile::Target;
use report::Report;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

/// Measures, prints what was seen, and writes the profile.
///
/// # Errors
/// A file that may not or cannot be written, CPUs that may not be used, no memory, output that cannot be written.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let target = Target::new(&options.out, options.force)?;
    let machine = Machine::read(options)?;
    let built_in = profile::stand_in(&machine)?;
    sys::catch_end_signals().context("cannot handle Ctrl-C")?;

    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let before = CpuTimes::read(machine.cpus.home);
    let Some(Measured { results, huge_pages, clock_ns }) = measure(options, &machine)? else {
        complain("ended early: nothing was written")?;
        return Ok(Outcome::Interrupted);
    };
    let after = CpuTimes::read(machine.cpus.home);

    let costs = Costs::of(&results, &machine);
    let text = profile::text(&costs, &machine, &built_in, &date, options.seconds);
    let profile = Profile::parse(&text).context("what was measured makes no profile (a defect)")?;
    let out = target.write(&text)?;
    let report = Report {
        machine: &machine,
        results: &results,
        costs: &costs,
        profile: &profile,
        seconds: options.seconds,
        huge_pages,
        clock_ns,
        steal_pct: before.zip(after).map(|(before, after)| after.steal_pct(before)),
        short: !options.has_time_for_llc(),
    };
    for warning in report.warnings() {
        complain(&format!("warning: {warning}"))?;
    }
    if options.json {
        let json = report.json(&out.to_string_lossy());
        print(&serde_json::to_string_pretty(&json).context("cannot write JSON")?)?;
    } else {
        print(&format!("{}\nwrote {}", report.text(), out.display()))?;
    }
    Ok(Outcome::Complete)
}

/// The samples, and under what circumstances they were taken.
struct Measured {
    results: Results,
    huge_pages: bool,
    clock_ns: f64,
}

/// Takes the samples; `None` if the user ended it.
fn measure(options: &Options, machine: &Machine) -> Result<Option<Measured>, Failure> {
    let probes = plan::probes(machine, options.has_time_for_llc());
    let mut lab = Lab::new(machine.caches, machine.cpus, &probes)
        .map_err(|e| Failure::machine(format!("cannot prepare the measurement: {e}")))?;
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let range = lab.huge_set();
    let huge_pages = memory::huge_bytes(&smaps, range.start, range.end) > 0;
    let bar = progress_bar(options.time());
    let progress = |elapsed: Duration| bar.set_position(as_ms(elapsed));
    let results = plan::measure(&mut lab, &probes, options.time(), progress)
        .map_err(|e| Failure::machine(format!("a CPU cannot be used any more: {e}")))?;
    bar.finish_and_clear();
    Ok(results.map(|results| Measured { results, huge_pages, clock_ns: lab.clock_ns() }))
}

/// A bar on standard error; invisible if that is no terminal.
fn progress_bar(time: Duration) -> ProgressBar {
    // The template is a constant that is known to be right; without it the bar is only plainer.
    let style = ProgressStyle::with_template("calibrating {bar:40} {percent:>3} %, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(as_ms(time)).with_style(style)
}

fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn complain(line: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stderr(), "{line}").context("cannot write to standard error")?)
}

/// A reader that has gone away (`| head`) has seen enough: no error.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result.context("cannot write to standard output")?),
    }
}
