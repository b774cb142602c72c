// SPDX-License-Identifier: GPL-2.0-only
//! `hearth sim`: a scenario under one or more policies.

use super::{complain, print};
use anyhow::{Context, Result};
use hearth::dispatcher::Config;
use hearth::doctor::Exit;
use hearth::policy::registry::Choice;
use hearth::sim;
use hearth::sim::result::{RunResult, Unobserved};
use hearth::sim::scenario::Scenario;
use std::path::PathBuf;

/// Arguments of `hearth sim`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario: a TOML file (the project's own are in scenarios/)
    scenario: PathBuf,
    /// Policies to compare, each as NAME or NAME:key=value:key=value
    #[arg(long, value_delimiter = ',', default_value = "fifo")]
    policy: Vec<String>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each policy, with seeds one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Change a key of the scenario, as in machine.llcs=4 or service.web.arrivals.poisson.load_pct=55
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs and prints a table.
pub fn run(args: &Args) -> Result<Exit> {
    let path = args.scenario.display();
    let text = std::fs::read_to_string(&args.scenario).with_context(|| format!("cannot read {path}"))?;
    let scenario = match Scenario::parse(&text, &args.sets) {
        Ok(scenario) => scenario,
        Err(problem) => {
            complain(&format!("{path}: {problem}"));
            return Ok(Exit::Usage);
        }
    };
    let choices: Result<Vec<Choice>, _> = args.policy.iter().map(|text| Choice::parse(text)).collect();
    let choices = match choices {
        Ok(choices) => choices,
        Err(error) => {
            complain(&error.to_string());
            return Ok(Exit::Usage);
        }
    };
    print(HEAD)?;
    let mut results = Vec::new();
    for choice in &choices {
        for seed in args.seed..args.seed + u64::from(args.runs) {
            let mut result = sim::run(&scenario, |c: &mut Config| choice.build(c), seed, &mut Unobserved)?;
            result.policy = choice.label();
            print(&line(&result))?;
            results.push(result);
        }
    }
    if let Some(file) = &args.json {
        let json = serde_json::to_string_pretty(&results).context("cannot write JSON")?;
        std::fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(Exit::Ok)
}

const HEAD: &str = "policy            seed  wakeup us: p50     p99   p99.9  request us: p50     p99   p99.9  requests/s  busy%  same%  \
                    llc%  cross%  refill us  regret us";

fn line(r: &RunResult) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    let p = |h: &sim::result::Latency, p| us(h.percentile_ns(p));
    let m = &r.migrations;
    let starts = (m.same_cpu + m.within_llc + m.across_llc).max(1) as f64 / 100.0;
    format!(
        "{:16} {:5}     {:9.1} {:7.1} {:7.1}      {:9.1} {:7.1} {:7.1}  {:10.0}  {:5.1}  {:5.1} {:5.1}  {:6.1}  {:9.2}  {:9.2}",
        r.policy,
        r.seed,
        p(&r.total.wakeup, 50.0),
        p(&r.total.wakeup, 99.0),
        p(&r.total.wakeup, 99.9),
        p(&r.total.request, 50.0),
        p(&r.total.request, 99.0),
        p(&r.total.request, 99.9),
        r.requests_per_s(),
        100.0 * r.utilisation(),
        m.same_cpu as f64 / starts,
        m.within_llc as f64 / starts,
        m.across_llc as f64 / starts,
        r.refill_per_wakeup_ns() / 1000.0,
        r.regret.mean_ns() / 1000.0,
    )
}
