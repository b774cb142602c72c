// SPDX-License-Identifier: GPL-2.0-only
//! From the command line to an experiment that can be run: everything is checked before the first run starts.

use super::What;
use crate::cli::complain;
use hearth::dispatcher::Config;
use hearth::doctor::Exit;
use hearth::policy::Policy;
use hearth::policy::registry::{AnyPolicy, Choice};
use hearth::profile::Profile;
use hearth::sim::report::figures::describe;
use hearth::sim::report::{Axis, Job, Plan};
use hearth::sim::result::{Observer, RunResult};
use hearth::sim::scenario::Scenario;
use hearth::sim::sweep::policy_param;
use hearth::sim::{self, SimError, rtapp, shipped};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// Something on the command line makes no sense, or a file cannot be had: one line for the user.
pub struct Fault {
    exit: Exit,
    text: String,
}

impl Fault {
    /// A usage error.
    pub fn usage(text: impl Display) -> Self {
        Self { exit: Exit::Usage, text: text.to_string() }
    }

    /// Something that should have worked did not.
    pub fn failed(text: impl Display) -> Self {
        Self { exit: Exit::Failed, text: text.to_string() }
    }

    /// Says so. Returns the exit code.
    pub fn complain(&self) -> Exit {
        complain(&self.text);
        self.exit
    }
}

/// The scenario and what is changed in it.
#[derive(clap::Args, Clone)]
pub struct Input {
    /// A scenario: a TOML file, an rt-app JSON file, or the name of one that `hearth sim --list` shows
    #[arg(required = true)]
    scenario: Option<String>,
    /// Change a key of the scenario, as in machine.llcs=4 or service.web.arrivals.poisson.load_pct=55
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// What the policies believe that losing cached state costs: zen-chiplet, monolithic, or a file that `hearth calibrate` wrote
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Multiply each number of that profile by a factor between 0.5 and 2, drawn with this seed: how wrong may a profile be?
    #[arg(long, value_name = "SEED")]
    perturb: Option<u64>,
    /// The (first) seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Input {
    /// A scenario that is part of the program.
    pub fn shipped(name: &str, sets: &[String], seed: u64) -> Self {
        Self { scenario: Some(name.into()), sets: sets.to_vec(), profile: None, perturb: None, seed }
    }

    /// The file or the name.
    pub fn name(&self) -> &str {
        self.scenario.as_deref().unwrap_or_default()
    }

    /// The scenario's text as TOML.
    pub fn text(&self) -> Result<String, Fault> {
        let path = Path::new(self.name());
        let shipped = shipped::find(self.name()).filter(|_| !path.exists());
        if let Some(text) = shipped {
            return Ok(text.into());
        }
        let text = std::fs::read_to_string(path).map_err(|e| {
            let hint = if path.extension().is_none() { "; `hearth sim --list` shows the names" } else { "" };
            Fault::usage(format!("cannot read {}: {e}{hint}", self.name()))
        })?;
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            let scenario = rtapp::convert(&text, &name).map_err(|e| self.wrong(&e))?;
            return scenario.to_toml().map_err(|e| self.wrong(&e));
        }
        Ok(text)
    }

    /// The profile that the policies calculate with.
    pub fn profile(&self) -> Result<Profile, Fault> {
        let profile = self.named_profile()?;
        Ok(match self.perturb {
            Some(seed) => sim::perturbed(profile, seed),
            None => profile,
        })
    }

    fn named_profile(&self) -> Result<Profile, Fault> {
        let Some(name) = &self.profile else { return Ok(Profile::default()) };
        if let Some(profile) = Profile::built_in(name) {
            return Ok(profile);
        }
        let known: Vec<String> = Profile::all_built_in().map(|profile| profile.name).collect();
        let text = std::fs::read_to_string(name).map_err(|e| {
            Fault::usage(format!("--profile {name}: {e}; built in are: {}", known.join(", ")))
        })?;
        Profile::parse(&text)
            .map_err(|e| Fault::usage(format!("--profile {name}: {}", one_line(&e.to_string()))))
    }

    /// The scenario with its changes.
    pub fn parse(&self, text: &str) -> Result<Scenario, Fault> {
        Scenario::parse(text, &self.sets).map_err(|e| self.wrong(&e))
    }

    fn wrong(&self, what: &dyn Display) -> Fault {
        Fault::usage(format!("{}: {what}", self.name()))
    }
}

/// Policies by name and parameters.
pub fn choose(policies: &[String]) -> Result<Vec<Choice>, Fault> {
    let choices: Result<Vec<Choice>, _> = policies.iter().map(|text| Choice::parse(text)).collect();
    let choices = choices.map_err(Fault::usage)?;
    let labels: Vec<String> = choices.iter().map(Choice::label).collect();
    match labels.iter().enumerate().find(|(i, label)| labels[..*i].contains(label)) {
        Some((_, label)) => Err(Fault::usage(format!("policy {label} is given twice"))),
        None => Ok(choices),
    }
}

/// One run of one policy, wrapped by `wrap`, on one scenario.
pub fn simulate_with<P: Policy, O: Observer>(
    scenario: &Scenario,
    choice: &Choice,
    profile: &Profile,
    wrap: impl Fn(AnyPolicy) -> P,
    seed: u64,
    observer: &mut O,
) -> Result<RunResult, SimError> {
    let build = |config: &mut Config| {
        config.profile = profile.clone();
        wrap(choice.build(config))
    };
    let result = sim::run(scenario, build, seed, observer)?;
    Ok(RunResult { policy: choice.label(), ..result })
}

/// What runs at one point of a sweep.
pub struct Point {
    at: Vec<usize>,
    pub scenario: Scenario,
    pub choices: Vec<Choice>,
}

/// A plan, and everything that its runs need.
#[derive(Clone)]
pub struct Experiment {
    pub plan: Plan,
    points: Arc<Vec<Point>>,
}

impl Experiment {
    /// Checks everything.
    pub fn new(what: &What, axes: &[Axis], figure: Option<&str>) -> Result<Self, Fault> {
        let text = what.input.text()?;
        let choices = choose(&what.policy)?;
        let plan = Plan {
            command: command(what, axes),
            scenario: what.input.parse(&text)?,
            source: text,
            sets: what.input.sets.clone(),
            profile: what.input.profile()?,
            policies: choices.iter().map(Choice::label).collect(),
            axes: axes.to_vec(),
            seed: what.input.seed,
            runs: what.runs,
        };
        if let Some(name) = figure
            && describe(name).is_none()
        {
            let known: Vec<&str> = sim::report::figures::METRICS.iter().map(|m| m.name).collect();
            let text = format!(
                "there is no figure {name:?}; known are: {}, and some as GROUP.NAME",
                known.join(", ")
            );
            return Err(Fault::usage(text));
        }
        let points: Result<Vec<Point>, Fault> =
            plan.points().into_iter().map(|at| point(&plan, &choices, at, &what.input)).collect();
        Ok(Self { plan, points: Arc::new(points?) })
    }

    /// Does a job.
    pub fn run<O: Observer>(&self, job: &Job, observer: &mut O) -> Result<RunResult, SimError> {
        let point = self.point(job);
        let choice = &point.choices[job.policy];
        simulate_with(&point.scenario, choice, &self.plan.profile, |policy| policy, job.seed, observer)
    }

    /// Where a job belongs.
    pub fn point(&self, job: &Job) -> &Point {
        let at = self.points.binary_search_by(|point| point.at.cmp(&job.point));
        &self.points[at.unwrap_or(0)]
    }
}

fn point(plan: &Plan, choices: &[Choice], at: Vec<usize>, input: &Input) -> Result<Point, Fault> {
    let mut sets = plan.sets.clone();
    let mut choices = choices.to_vec();
    for (axis, value) in plan.axes.iter().zip(plan.values_at(&at)) {
        let Some((policy, param)) = policy_param(&axis.key) else {
            sets.push(format!("{}={value}", axis.key));
            continue;
        };
        let mut found = false;
        for choice in choices.iter_mut().filter(|choice| choice.spec.name == policy) {
            found = true;
            let spec = choice.spec;
            choice.params.set(spec.name, spec.params, param, &value).map_err(Fault::usage)?;
        }
        if !found {
            return Err(Fault::usage(format!(
                "--vary {}: policy {policy} is not among those of --policy",
                axis.key
            )));
        }
    }
    let scenario = Scenario::parse(&plan.source, &sets).map_err(|e| input.wrong(&e))?;
    Ok(Point { at, scenario, choices })
}

/// The command that repeats an experiment (files and shards left out).
fn command(what: &What, axes: &[Axis]) -> String {
    let mut words = vec!["hearth".to_string(), "sim".into()];
    if !axes.is_empty() {
        words.push("sweep".into());
    }
    words.push(what.input.name().into());
    words.extend(["--policy".into(), what.policy.join(",")]);
    words.extend(["--seed".into(), what.input.seed.to_string()]);
    words.extend(["--runs".into(), what.runs.to_string()]);
    if let Some(profile) = &what.input.profile {
        words.extend(["--profile".into(), profile.clone()]);
    }
    if let Some(seed) = what.input.perturb {
        words.extend(["--perturb".into(), seed.to_string()]);
    }
    for set in &what.input.sets {
        words.extend(["--set".into(), set.clone()]);
    }
    for axis in axes {
        words.extend(["--vary".into(), format!("{}={}", axis.key, axis.values.join(","))]);
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// A message of several lines (a picture of the place) as one.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
