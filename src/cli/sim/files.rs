// SPDX-License-Identifier: GPL-2.0-only
//! Where results go: the terminal, and the files that were asked for.

use super::experiment::{Experiment, Fault};
use super::runner::Done;
use super::watch;
use crate::cli::{complain, print};
use anyhow::{Context, Result};
use hearth::doctor::Exit;
use hearth::sim::html;
use hearth::sim::report::{Job, Report, text, verdict};
use hearth::sim::timeline::Window;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Where results go.
#[derive(clap::Args, Clone, Default)]
pub struct Outputs {
    /// Write everything as JSON to this file (`-`: to standard output, instead of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one self-contained page with curves, timeline and reasons
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Judge by this figure (request_p99_ns, wakeup_p50_ns, requests_per_s, GROUP.request_p99_ns ...)
    #[arg(long, value_name = "FIGURE")]
    pub metric: Option<String>,
    #[command(flatten)]
    pub one: OneRun,
}

/// What needs a closer look at one run of each policy (that of the first seed).
#[derive(clap::Args, Clone, Default)]
pub struct OneRun {
    /// Write a trace for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write every call of the dispatcher, as the daemon's recorder does (one policy)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The part of the run that the page's timeline and the trace show, in ms since the run's start (default: the first 20 ms, in
    /// a trace 200 ms, after the warm-up)
    #[arg(long, value_name = "A..B")]
    timeline_ms: Option<Window>,
}

impl Outputs {
    /// Refuses what cannot work before anything runs.
    pub fn check(&self, experiment: &Experiment) -> Result<(), Fault> {
        let plan = &experiment.plan;
        let one = &self.one;
        if one.record.is_some() && (plan.policies.len() > 1 || !plan.axes.is_empty()) {
            return Err(Fault::usage("--record takes one policy and no sweep: give one with --policy"));
        }
        if one.trace.is_some() && !plan.axes.is_empty() {
            return Err(Fault::usage(
                "--trace shows one run of each policy, not a sweep: use it with `hearth sim`",
            ));
        }
        let end_ms = plan.scenario.warmup_ms + plan.scenario.duration_ms;
        if let Some(window) = one.timeline_ms.filter(|window| window.from_ms >= end_ms) {
            return Err(Fault::usage(format!("--timeline-ms {window}: the run ends after {end_ms} ms")));
        }
        let files = [&self.json, &self.html, &one.trace, &one.record];
        files.into_iter().flatten().filter(|path| !is_stdout(path)).try_for_each(|path| writable(path))
    }

    /// Prints and writes what was done.
    pub fn deliver(&self, experiment: &Experiment, done: Done) -> Result<Exit> {
        let mut report = Report::new(experiment.plan.clone());
        let (ended, failed) = (done.results.len(), done.failures.len());
        for (job, result) in done.results {
            report.add(&job, result)?;
        }
        for (_, _, text) in &done.failures {
            complain(text);
        }
        let exit = done.failures.iter().map(|(_, exit, _)| *exit).max_by_key(|exit| exit.code());
        let stop = done.interrupted && ended + failed < done.asked;
        if stop {
            complain(&format!("interrupted: {ended} of {} runs were done", done.asked));
        }
        if report.cells.is_empty() {
            return Ok(exit.unwrap_or(Exit::Failed));
        }
        // Files last: what a full disk takes is at least on the terminal.
        let written = self.write(&report, if stop { &[] } else { std::slice::from_ref(experiment) })?;
        Ok(exit.unwrap_or(if stop { Exit::Failed } else { written }))
    }

    /// Prints a report and writes its files; `experiment` has the runs to look at more closely, if there are any.
    pub fn write(&self, report: &Report, experiment: &[Experiment]) -> Result<Exit> {
        let figure = self.metric.as_deref().unwrap_or_else(|| verdict::headline(report));
        let to_stdout = self.json.as_deref().is_some_and(is_stdout);
        if !to_stdout {
            print(&text::render(report, figure, look()))?;
        }
        if let Some(path) = &self.json {
            let json = report.to_json()?;
            if to_stdout { print(json.trim_end())? } else { write(path, json.as_bytes())? }
        }
        let first = |policy: usize| Job { point: Vec::new(), policy, seed: report.plan.seed };
        let plain = experiment.iter().filter(|e| e.plan.axes.is_empty());
        if let Some(path) = &self.html {
            let mut timelines = Vec::new();
            for experiment in plain.clone() {
                timelines = watch::timelines(experiment, first, self.one.timeline_ms, html::TIMELINE_MS)?;
            }
            write(path, html::page(report, figure, &timelines)?.as_bytes())?;
        }
        for experiment in plain {
            if let Some(path) = &self.one.trace {
                let timelines = watch::timelines(experiment, first, self.one.timeline_ms, html::TRACE_MS)?;
                write(path, hearth::sim::trace::chrome(&report.plan.scenario, &timelines)?.as_bytes())?;
            }
            if let Some(path) = &self.one.record {
                watch::record(experiment, &first(0), path)?;
            }
        }
        Ok(Exit::Ok)
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Colours and width only for people.
pub fn look() -> text::Look {
    if !std::io::stdout().is_terminal() {
        return text::Look::default();
    }
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    text::Look { colour, columns: terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)) }
}

/// Can this file be written? Found out before a long run rather than after it.
fn writable(path: &Path) -> Result<(), Fault> {
    let existed = path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|e| Fault::usage(format!("cannot write {}: {e}", path.display())))?;
    if !existed {
        // Nothing was written yet: a run that fails leaves no empty file behind.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes a file. A failed write leaves no half file where there was none.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let existed = path.exists();
    let result = std::fs::File::create(path).and_then(|mut file| file.write_all(content));
    if result.is_err() && !existed {
        let _ = std::fs::remove_file(path);
    }
    result.with_context(|| format!("cannot write {}", path.display()))
}
