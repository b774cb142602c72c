// SPDX-License-Identifier: GPL-2.0-only
//! `hearth sim`: scenarios in the simulator, under one or more policies.

mod experiment;
mod files;
mod runner;
mod swarm;
mod sweep;
mod watch;

pub use experiment::{Fault, Input, choose, simulate_with};
pub use files::write as write_file;

use super::{complain, print};
use anyhow::Result;
use experiment::Experiment;
use files::Outputs;
use hearth::doctor::Exit;
use hearth::sim::report::Report;
use hearth::sim::scenario::Scenario;
use hearth::sim::shipped;

/// Arguments of `hearth sim`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Exit codes: 0 ok, 1 a run failed, was interrupted or a file could not be written, 2 the scenario, a policy or \
                  a parameter makes no sense, 6 a policy panicked. What was done before is printed and written in any case."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    what: What,
    /// List the scenarios that are part of this program
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    outputs: Outputs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Vary one or two parameters, over all cores
    Sweep(sweep::Args),
    /// Put the JSON files of shards together
    Merge(sweep::MergeArgs),
    /// Run random scenarios under random faults, and print the seeds of those that find something
    Swarm(swarm::Args),
}

/// What to run: the same for a comparison and a sweep.
#[derive(clap::Args, Clone)]
pub struct What {
    #[command(flatten)]
    pub input: Input,
    /// Policies, the first is what the others are compared with: NAME or NAME:key=value:key=value (see `hearth policies`)
    #[arg(long, value_delimiter = ',', default_value = "fifo", value_name = "POLICY,...")]
    pub policy: Vec<String>,
    /// Runs of each policy, with seeds one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub runs: u64,
    /// Runs at once (default: as many as this process may use CPUs)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub jobs: Option<u16>,
}

/// Runs what was asked for.
pub fn run(args: &Args) -> Result<Exit> {
    match &args.command {
        Some(Command::Sweep(args)) => sweep::run(args),
        Some(Command::Merge(args)) => sweep::merge(args),
        Some(Command::Swarm(args)) => swarm::run(args),
        None if args.list => list(),
        None => compare(&args.what, &args.outputs),
    }
}

fn compare(what: &What, outputs: &Outputs) -> Result<Exit> {
    let experiment = match Experiment::new(what, &[], outputs.metric.as_deref()) {
        Ok(experiment) => experiment,
        Err(fault) => return Ok(fault.complain()),
    };
    if let Err(fault) = outputs.check(&experiment) {
        return Ok(fault.complain());
    }
    let jobs = experiment.plan.jobs();
    let done = runner::run(experiment.clone(), jobs, what.jobs)?;
    outputs.deliver(&experiment, done)
}

/// What came of an experiment.
pub struct Outcome {
    /// The runs that were done.
    pub report: Report,
    /// Ctrl-C came before all were.
    pub interrupted: bool,
}

/// Runs a comparison without printing it; runs that failed are complained about and left out.
pub fn experiment(what: &What) -> Result<Result<Outcome, Fault>> {
    let experiment = match Experiment::new(what, &[], None) {
        Ok(experiment) => experiment,
        Err(fault) => return Ok(Err(fault)),
    };
    let jobs = experiment.plan.jobs();
    let done = runner::run(experiment.clone(), jobs, what.jobs)?;
    let mut report = Report::new(experiment.plan);
    for (job, result) in done.results {
        report.add(&job, result)?;
    }
    done.failures.iter().for_each(|(_, _, text)| complain(text));
    Ok(Ok(Outcome { report, interrupted: done.interrupted }))
}

fn list() -> Result<Exit> {
    let width = shipped::all().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = shipped::all()
        .filter_map(|(name, text)| {
            let scenario = Scenario::parse(text, &[]).ok()?;
            Some(format!("{name:width$}  {}\n{:width$}  lesson: {}", scenario.about, "", scenario.lesson))
        })
        .collect();
    print(&lines.join("\n"))?;
    Ok(Exit::Ok)
}
