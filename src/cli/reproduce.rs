// SPDX-License-Identifier: GPL-2.0-only
//! `hearth reproduce`: published experiments, run in the simulator and held against what was published.

use super::sim::{Fault, Input, Outcome, What, experiment, write_file};
use super::{complain, print};
use anyhow::Result;
use hearth::doctor::Exit;
use hearth::sim::report::Report;
use hearth::sim::reproduce::{LOADS, POLICIES, judge, render};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `hearth reproduce`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: Published,
}

#[derive(clap::Subcommand)]
enum Published {
    /// The LAVD stickiness talk (LPC 2026): waiting for a warm CPU, look-ahead, at four load levels
    Stickiness(Stickiness),
}

/// Arguments of `hearth reproduce stickiness`.
#[derive(clap::Args)]
struct Stickiness {
    /// Only these load levels (default: all four)
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', value_parser = ["light", "moderate", "heavy", "overcommit"])]
    load: Vec<String>,
    /// Runs of each policy at each load, with seeds one after the other
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    runs: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Change a key of all scenarios, as in duration_ms=500
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Runs at once (default: as many as this process may use CPUs)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    /// Write claims and reports as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs an experiment and prints what came of it: 0, whatever became of the claims.
pub fn run(args: &Args) -> Result<Exit> {
    let Published::Stickiness(args) = &args.what;
    let mut reports: Vec<Option<Report>> = Vec::new();
    for load in LOADS {
        let wanted = args.load.is_empty() || args.load.iter().any(|name| name == load.name);
        if !wanted {
            reports.push(None);
            continue;
        }
        match one_load(args, load.scenario)? {
            Ok(outcome) => {
                let stop = outcome.interrupted;
                reports.push(Some(outcome.report));
                if stop {
                    complain("interrupted: what follows is of the runs that were done");
                    finish(args, &reports)?;
                    return Ok(Exit::Failed);
                }
            }
            Err(fault) => return Ok(fault.complain()),
        }
    }
    finish(args, &reports)?;
    Ok(Exit::Ok)
}

fn one_load(args: &Stickiness, scenario: &str) -> Result<Result<Outcome, Fault>> {
    let what = What {
        input: Input::shipped(scenario, &args.sets, args.seed),
        policy: POLICIES.iter().map(ToString::to_string).collect(),
        runs: args.runs,
        jobs: args.jobs,
    };
    experiment(&what)
}

fn finish(args: &Stickiness, reports: &[Option<Report>]) -> Result<()> {
    let judged = judge(reports);
    print(&render(reports, &judged))?;
    if let Some(path) = &args.json {
        let value = json!({ "format": 1, "claims": judged, "reports": reports });
        write_file(path, format!("{value}\n").as_bytes())?;
    }
    Ok(())
}
