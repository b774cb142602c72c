// SPDX-License-Identifier: GPL-2.0-only
//! Many runs at once. Which thread does what is left to chance; what comes out is not: results are put in the order of the
//! jobs.

use super::experiment::Experiment;
use anyhow::{Context, Result};
use hearth::doctor::Exit;
use hearth::sim::report::Job;
use hearth::sim::result::{RunResult, Unobserved};
use indicatif::{ProgressBar, ProgressStyle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What was done.
pub struct Done {
    /// In the order of the jobs.
    pub results: Vec<(Job, RunResult)>,
    /// What went wrong, in the order of the jobs, and the exit code for it.
    pub failures: Vec<(usize, Exit, String)>,
    /// Jobs there were.
    pub asked: usize,
    /// Was it stopped by a signal?
    pub interrupted: bool,
}

/// How often the interrupt is looked for while nothing ends.
const LOOK: Duration = Duration::from_millis(50);

/// Does the jobs on `threads` (none: all CPUs that this process may use).
pub fn run(experiment: Experiment, jobs: Vec<Job>, threads: Option<u16>) -> Result<Done> {
    let interrupted = on_interrupt()?;
    let asked = jobs.len();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or(cpus, usize::from).min(asked.max(1));
    let bar = progress(asked);
    let (sender, receiver) = channel();
    let shared = Arc::new((experiment, jobs, AtomicUsize::new(0)));
    for _ in 0..threads {
        let (sender, shared) = (sender.clone(), Arc::clone(&shared));
        let work = move || {
            let (experiment, jobs, next) = &*shared;
            while !interrupted.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(number) else { break };
                let result = one(experiment, job);
                if sender.send((number, result)).is_err() {
                    break;
                }
            }
        };
        // Not joined: after an interrupt nobody waits for runs that are still under way.
        std::thread::Builder::new().name("sim".into()).spawn(work).context("cannot start a thread")?;
    }
    drop(sender);
    let mut done: Vec<(usize, RunResult)> = Vec::new();
    let mut failures = Vec::new();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok((number, Ok(result))) => done.push((number, result)),
            Ok((number, Err((exit, text)))) => failures.push((number, exit, text)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if interrupted.load(Ordering::Relaxed) {
                    break;
                }
                continue;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    done.sort_by_key(|(number, _)| *number);
    failures.sort_by_key(|(number, ..)| *number);
    let results = done.into_iter().map(|(number, result)| (shared.1[number].clone(), result)).collect();
    Ok(Done { results, failures, asked, interrupted: interrupted.load(Ordering::Relaxed) })
}

/// One run; a panic of the policy is an error like others.
fn one(experiment: &Experiment, job: &Job) -> Result<RunResult, (Exit, String)> {
    let run = AssertUnwindSafe(|| experiment.run(job, &mut Unobserved));
    match catch_unwind(run) {
        Ok(result) => result.map_err(|e| (Exit::Failed, e.to_string())),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            let policy = &experiment.plan.policies[job.policy];
            Err((Exit::Policy, format!("policy {policy}, seed {}: panic: {words}", job.seed)))
        }
    }
}

/// A flag that the first Ctrl-C (or SIGTERM) sets.
fn on_interrupt() -> Result<&'static AtomicBool> {
    static FLAG: OnceLock<AtomicBool> = OnceLock::new();
    if FLAG.set(AtomicBool::new(false)).is_ok() {
        ctrlc::set_handler(|| {
            if let Some(flag) = FLAG.get() {
                flag.store(true, Ordering::Relaxed);
            }
        })
        .context("cannot watch for Ctrl-C")?;
    }
    let flag = FLAG.get().context("a flag that was just set")?;
    Ok(flag)
}

/// On a terminal: how far it is, and how long it will take. Else nothing.
fn progress(jobs: usize) -> ProgressBar {
    if jobs < 2 {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(jobs as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed} gone, {eta} left") {
        bar.set_style(style);
    }
    bar
}
