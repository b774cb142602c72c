// SPDX-License-Identifier: GPL-2.0-only
//! A closer look at single runs: simulated once more (same seed, same run), with somebody watching.

use super::experiment::Experiment;
use anyhow::{Context, Result};
use hearth::sim::record::RunRecorder;
use hearth::sim::report::Job;
use hearth::sim::timeline::{Timeline, TimelineWatch, Window};
use std::io::BufWriter;
use std::path::Path;

/// Runs of tasks in a timeline beyond which a page or trace becomes too slow to look at.
const MOST_SPANS: usize = 400_000;

/// The timelines of the first run of each policy, with the policies' names.
pub fn timelines(
    experiment: &Experiment,
    job: impl Fn(usize) -> Job,
    window: Option<Window>,
    default_ms: f64,
) -> Result<Vec<(String, Timeline)>> {
    let s = &experiment.plan.scenario;
    let end_ms = s.warmup_ms + s.duration_ms;
    let window = window.unwrap_or(Window { from_ms: s.warmup_ms, to_ms: s.warmup_ms + default_ms });
    let window = Window { to_ms: window.to_ms.min(end_ms), ..window };
    let policies = experiment.plan.policies.iter().enumerate();
    let watched = policies.map(|(number, policy)| {
        let mut watch = TimelineWatch::new(window, MOST_SPANS);
        experiment.run(&job(number), &mut watch)?;
        Ok((policy.clone(), watch.finish()))
    });
    watched.collect()
}

/// Writes every call of the dispatcher in a run.
pub fn record(experiment: &Experiment, job: &Job, path: &Path) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let file = std::fs::File::create(path).with_context(context)?;
    let mut recorder = RunRecorder::new(BufWriter::new(file), &experiment.plan.policies[job.policy]);
    experiment.run(job, &mut recorder)?;
    recorder.finish().with_context(context)?;
    Ok(())
}
