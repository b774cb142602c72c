// SPDX-License-Identifier: GPL-2.0-only
//! `hearth explain`: why did this task go there?

use super::sim::{Fault, Input, choose, simulate_with};
use super::{print, print_json};
use anyhow::{Context, Result};
use hearth::doctor::Exit;
use hearth::sim::explain::{By, Explainer, Explanation, Spy, Wanted, render};
use hearth::sim::scenario::Scenario;
use hearth::sim::trace::group_names;
use serde_json::json;

/// Version of `--json`.
const FORMAT: u32 = 1;

/// Arguments of `hearth explain`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: Input,
    /// The policy: NAME or NAME:key=value:key=value
    #[arg(long, default_value = "fifo")]
    policy: String,
    /// Only this task: its group, its number, or GROUP/NUMBER as the output has it
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The wakeups closest to this moment (ms since the run's start, warm-up included), not the worst
    #[arg(long, value_name = "MS")]
    at: Option<f64>,
    /// How many wakeups
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    worst: u32,
    /// What makes a wakeup bad
    #[arg(long, value_enum, default_value_t = Measure::Regret)]
    by: Measure,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Measure {
    /// Wait and refill, compared with what the cheapest CPU was expected to cost
    Regret,
    /// Wakeup latency
    Wakeup,
}

/// Runs the scenario once and explains.
pub fn run(args: &Args) -> Result<Exit> {
    match explained(args) {
        Ok((scenario, found)) => output(args, &scenario, &found),
        Err(fault) => Ok(fault.complain()),
    }
}

fn explained(args: &Args) -> Result<(Scenario, Vec<Explanation>), Fault> {
    let scenario = args.input.parse(&args.input.text()?)?;
    let choice = choose(std::slice::from_ref(&args.policy))?.remove(0);
    let (mut explainer, notes) = Explainer::new(wanted(args, &scenario)?);
    let build = |policy| Spy::new(policy, notes.clone());
    simulate_with(&scenario, &choice, &args.input.profile()?, build, args.input.seed, &mut explainer)
        .map_err(Fault::failed)?;
    Ok((scenario, explainer.finish()))
}

fn wanted(args: &Args, scenario: &Scenario) -> Result<Wanted, Fault> {
    if let Some(at) = args.at.filter(|at| !(0.0..=scenario.warmup_ms + scenario.duration_ms).contains(at)) {
        let end = scenario.warmup_ms + scenario.duration_ms;
        return Err(Fault::usage(format!("--at {at}: the run lasts from 0 to {end} ms")));
    }
    let names = group_names(scenario);
    let (mut groups, mut task) = (Vec::new(), None);
    if let Some(text) = &args.task {
        let (group, number) = match text.rsplit_once('/') {
            Some((group, number)) => (Some(group), Some(number)),
            None if text.parse::<u32>().is_ok() => (None, Some(text.as_str())),
            None => (Some(text.as_str()), None),
        };
        let wrong = || {
            Fault::usage(format!(
                "--task {text}: give a number, or one of: {}, or NAME/NUMBER",
                names.join(", ")
            ))
        };
        if let Some(group) = group {
            groups.push(names.iter().position(|name| name == group).ok_or_else(wrong)? as u32);
        }
        if let Some(number) = number {
            task = Some(number.parse().map_err(|_| wrong())?);
        }
    }
    let by = match args.by {
        Measure::Regret => By::Regret,
        Measure::Wakeup => By::Wakeup,
    };
    let ns = |ms: f64| (ms * 1e6) as u64;
    let (at_ns, from_ns) = (args.at.map(ns), ns(scenario.warmup_ms));
    Ok(Wanted { groups, task, at_ns, from_ns, by, most: args.worst as usize })
}

fn output(args: &Args, scenario: &Scenario, found: &[Explanation]) -> Result<Exit> {
    let groups = group_names(scenario);
    if args.json {
        let mut list = serde_json::to_value(found).context("cannot write JSON")?;
        for (value, e) in list.as_array_mut().into_iter().flatten().zip(found) {
            value["name"] = json!(format!("{}/{}", groups[e.group as usize], e.task.idx));
            value["regret_ns"] = json!(e.regret_ns());
        }
        print_json(&json!({
            "format": FORMAT,
            "scenario": scenario.name,
            "policy": args.policy,
            "seed": args.input.seed,
            "wakeups": list,
        }))?;
        return Ok(Exit::Ok);
    }
    let which = match (args.at, args.by) {
        (Some(at), _) => format!("the wakeups closest to {at} ms"),
        (None, Measure::Regret) => "the wakeups with the largest regret".into(),
        (None, Measure::Wakeup) => "the wakeups with the longest wait".into(),
    };
    let head = format!("{}, policy {}, seed {}: {which}", scenario.name, args.policy, args.input.seed);
    print(&format!("{head}\n\n{}", render(found, &groups)))?;
    Ok(Exit::Ok)
}
