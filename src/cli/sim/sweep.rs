// SPDX-License-Identifier: GPL-2.0-only
//! `hearth sim sweep` and `hearth sim merge`.

use super::experiment::{Experiment, Fault};
use super::files::Outputs;
use super::{What, runner};
use anyhow::Result;
use hearth::doctor::Exit;
use hearth::sim::report::Report;
use hearth::sim::sweep::{MAX_AXES, Shard, parse_axis};
use std::path::PathBuf;

/// Arguments of `hearth sim sweep`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// What varies: a key of the scenario, or POLICY:PARAMETER; once or twice
    #[arg(long, value_name = "KEY=V,V,...", required = true)]
    vary: Vec<String>,
    /// Do only part I of N of the runs; `hearth sim merge` puts the parts together
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    #[command(flatten)]
    outputs: Outputs,
}

/// Arguments of `hearth sim merge`.
#[derive(clap::Args)]
pub struct MergeArgs {
    /// Files that `--json` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

/// Runs a sweep, or a part of it.
pub fn run(args: &Args) -> Result<Exit> {
    let experiment = match experiment(args) {
        Ok(experiment) => experiment,
        Err(fault) => return Ok(fault.complain()),
    };
    let jobs = experiment.plan.jobs().into_iter().enumerate();
    let mine = jobs.filter(|(number, _)| args.shard.is_none_or(|shard| shard.has(*number)));
    let done = runner::run(experiment.clone(), mine.map(|(_, job)| job).collect(), args.what.jobs)?;
    args.outputs.deliver(&experiment, done)
}

fn experiment(args: &Args) -> Result<Experiment, Fault> {
    if args.vary.len() > MAX_AXES {
        return Err(Fault::usage(format!(
            "--vary is given {} times: at most {MAX_AXES} are possible",
            args.vary.len()
        )));
    }
    let axes: Result<Vec<_>, _> = args.vary.iter().map(|text| parse_axis(text)).collect();
    let axes = axes.map_err(|e| Fault::usage(format!("--vary {e}")))?;
    if let [a, b] = axes.as_slice()
        && a.key == b.key
    {
        return Err(Fault::usage(format!("--vary {} is given twice", a.key)));
    }
    let experiment = Experiment::new(&args.what, &axes, args.outputs.metric.as_deref())?;
    args.outputs.check(&experiment)?;
    Ok(experiment)
}

/// Puts shards together.
pub fn merge(args: &MergeArgs) -> Result<Exit> {
    match merged(args) {
        Ok(report) => args.outputs.write(&report, &[]),
        Err(fault) => Ok(fault.complain()),
    }
}

fn merged(args: &MergeArgs) -> Result<Report, Fault> {
    let mut all: Option<Report> = None;
    for file in &args.files {
        let wrong = |e: &dyn std::fmt::Display| Fault::usage(format!("{}: {e}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|e| wrong(&format!("cannot read: {e}")))?;
        let report = Report::from_json(&text).map_err(|e| wrong(&e))?;
        match &mut all {
            None => all = Some(report),
            Some(all) => all.merge(report).map_err(|e| wrong(&e))?,
        }
    }
    all.ok_or_else(|| Fault::usage("no file"))
}
