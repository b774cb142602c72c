// SPDX-License-Identifier: GPL-2.0-only
//! Many runs as one thing: what `hearth sim` and `hearth sim sweep` print, write as JSON, read back and merge.
//!
//! A report has a cell for every policy at every point of a sweep (a plain comparison has one point). A cell holds the runs'
//! figures one by one (for intervals and pairs), and all runs merged: histograms are added up, percentiles never averaged.
//! Merging is exact and does not depend on the order, so shards give the same bytes as one run of everything.

pub mod figures;
pub mod notes;
pub mod text;
pub mod verdict;

use super::compare::{self, Estimate};
use super::result::{CpuResult, GroupResult, RunResult};
use super::scenario::Scenario;
use crate::profile::Profile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the file format, in every file.
pub const FORMAT: u32 = 1;

/// What varies in a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// A key of the scenario, or `POLICY:PARAMETER`.
    pub key: String,
    /// Its values, as they were given.
    pub values: Vec<String>,
}

/// What was asked for. Two reports with the same plan can be merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The command that repeats all of it.
    pub command: String,
    /// The scenario's text as it was read.
    pub source: String,
    /// Changes to it from the command line.
    pub sets: Vec<String>,
    /// The scenario with those changes (and without those of the axes).
    pub scenario: Scenario,
    /// What the policies believe that losing cached state costs.
    pub profile: Profile,
    /// The policies, as `NAME:key=value`; the first is what the others are compared with.
    pub policies: Vec<String>,
    /// What varies; none: a plain comparison.
    pub axes: Vec<Axis>,
    /// The first seed.
    pub seed: u64,
    /// Runs of each policy at each point.
    pub runs: u64,
}

/// One run's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Its seed.
    pub seed: u64,
    /// See [`figures::METRICS`].
    pub figures: BTreeMap<String, f64>,
}

/// All runs of one policy at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The point: a value of each axis.
    pub at: Vec<String>,
    /// The policy, as in [`Plan::policies`].
    pub policy: String,
    /// By seed.
    pub runs: Vec<RunFigures>,
    /// All runs merged: histograms and counters added up, the longest wait of all; its seed is the first.
    pub merged: RunResult,
}

/// What was asked for, and what is there of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The program's version.
    pub hearth: String,
    /// What was asked for.
    pub plan: Plan,
    /// In the order of the points (the last axis varies fastest), then of the policies; those with at least one run.
    pub cells: Vec<Cell>,
}

/// Why a report cannot be read or merged.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Not JSON, or not a report.
    #[error("not a report of `hearth sim --json`: {0}")]
    Json(#[from] serde_json::Error),
    /// Another format.
    #[error("a report of format {0}; this program reads format {FORMAT}")]
    Format(u32),
    /// They do not belong together.
    #[error("the reports are of different experiments: {0} differs")]
    Different(&'static str),
    /// The same run in both.
    #[error("the run with seed {seed} of {policy}{at} is in more than one file")]
    Twice {
        /// Its seed.
        seed: u64,
        /// Its policy.
        policy: String,
        /// Its point, in words.
        at: String,
    },
}

/// One run that a plan asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which value of each axis.
    pub point: Vec<usize>,
    /// Which policy.
    pub policy: usize,
    /// With which seed.
    pub seed: u64,
}

impl Plan {
    /// The points of the sweep, the last axis fastest; one without axes.
    #[must_use]
    pub fn points(&self) -> Vec<Vec<usize>> {
        let mut points = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |point: &Vec<usize>| {
                (0..axis.values.len()).map(|i| point.iter().copied().chain([i]).collect()).collect::<Vec<_>>()
            };
            points = points.iter().flat_map(longer).collect();
        }
        points
    }

    /// All runs, the most useful first: seed by seed, so that an interrupted experiment has whole pairs.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        let points = self.points();
        let mut jobs = Vec::new();
        for run in 0..self.runs {
            for point in &points {
                for policy in 0..self.policies.len() {
                    jobs.push(Job { point: point.clone(), policy, seed: self.seed.wrapping_add(run) });
                }
            }
        }
        jobs
    }

    /// The values at a point.
    #[must_use]
    pub fn values_at(&self, point: &[usize]) -> Vec<String> {
        self.axes.iter().zip(point).map(|(axis, &i)| axis.values[i].clone()).collect()
    }
}

impl Report {
    /// A report without any run.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { format: FORMAT, hearth: env!("CARGO_PKG_VERSION").into(), plan, cells: Vec::new() }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If it is not one, or of another format.
    pub fn from_json(text: &str) -> Result<Self, ReportError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.format != FORMAT {
            return Err(ReportError::Format(head.format));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// As it is written: JSON, a cell a line.
    ///
    /// # Errors
    /// If a number has no JSON form.
    pub fn to_json(&self) -> Result<String, ReportError> {
        let cells: Result<Vec<String>, _> = self.cells.iter().map(serde_json::to_string).collect();
        Ok(format!(
            "{{\"format\":{},\"hearth\":{},\n\"plan\":{},\n\"cells\":[\n{}\n]}}\n",
            self.format,
            serde_json::to_string(&self.hearth)?,
            serde_json::to_string(&self.plan)?,
            cells?.join(",\n")
        ))
    }

    /// Takes in a run.
    ///
    /// # Errors
    /// If it is there already.
    pub fn add(&mut self, job: &Job, result: RunResult) -> Result<(), ReportError> {
        let runs = vec![RunFigures { seed: job.seed, figures: figures::figures(&result) }];
        let at = self.plan.values_at(&job.point);
        let policy = self.plan.policies[job.policy].clone();
        let merged = RunResult { policy: policy.clone(), ..result };
        self.add_cell(Cell { at, policy, runs, merged })
    }

    /// Takes in another report of the same plan.
    ///
    /// # Errors
    /// If it is of another plan, or holds a run that is here already.
    pub fn merge(&mut self, other: Report) -> Result<(), ReportError> {
        let (a, b) = (&self.plan, &other.plan);
        let same = [
            ("the program's version", self.hearth == other.hearth),
            ("the scenario", a.source == b.source && a.sets == b.sets && a.scenario == b.scenario),
            ("the profile", a.profile == b.profile),
            ("the list of policies", a.policies == b.policies),
            ("what varies", a.axes == b.axes),
            ("the seed or the number of runs", (a.seed, a.runs) == (b.seed, b.runs)),
        ];
        if let Some((what, _)) = same.iter().find(|(_, same)| !same) {
            return Err(ReportError::Different(what));
        }
        other.cells.into_iter().try_for_each(|cell| self.add_cell(cell))
    }

    fn add_cell(&mut self, new: Cell) -> Result<(), ReportError> {
        let place = self.place(&new);
        let at = match self.cells.binary_search_by_key(&place, |cell| self.place(cell)) {
            Ok(at) => at,
            Err(at) => {
                self.cells.insert(at, new);
                return Ok(());
            }
        };
        let cell = &mut self.cells[at];
        if let Some(run) = new.runs.iter().find(|run| cell.runs.iter().any(|r| r.seed == run.seed)) {
            let at = if new.at.is_empty() { String::new() } else { format!(" at {}", new.at.join(", ")) };
            return Err(ReportError::Twice { seed: run.seed, policy: new.policy, at });
        }
        cell.runs.extend(new.runs);
        cell.runs.sort_by_key(|run| run.seed);
        merge_runs(&mut cell.merged, &new.merged)
    }

    /// Where a cell stands: its values' places on the axes, then its policy's.
    fn place(&self, cell: &Cell) -> Vec<usize> {
        let plan = &self.plan;
        let values = plan.axes.iter().zip(&cell.at).map(|(axis, value)| index(&axis.values, value));
        values.chain([index(&plan.policies, &cell.policy)]).collect()
    }

    /// The runs of a policy at a point.
    #[must_use]
    pub fn cell(&self, at: &[String], policy: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.at == at && cell.policy == policy)
    }

    /// How many runs there are, and how many were asked for.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let done = self.cells.iter().map(|cell| cell.runs.len() as u64).sum();
        let points: u64 = self.plan.axes.iter().map(|axis| axis.values.len() as u64).product();
        (done, points * self.plan.policies.len() as u64 * self.plan.runs)
    }

    /// The ratio of a figure to the first policy's at the same point, over the runs that both have.
    #[must_use]
    pub fn ratio(&self, cell: &Cell, figure: &str) -> Option<Estimate> {
        let base = self.cell(&cell.at, self.plan.policies.first()?)?;
        compare::ratio(&pairs(base, cell, figure))
    }
}

impl Report {
    /// The ratio of a figure of `policy` to that of `than` in a plain comparison, over the runs that both have.
    #[must_use]
    pub fn between(&self, than: &str, policy: &str, figure: &str) -> Option<Estimate> {
        compare::ratio(&pairs(self.cell(&[], than)?, self.cell(&[], policy)?, figure))
    }
}

/// The figure in the runs that both have, by seed.
fn pairs(base: &Cell, other: &Cell, figure: &str) -> Vec<(f64, f64)> {
    let of = |cell: &Cell, seed: u64| {
        let run = cell.runs.binary_search_by_key(&seed, |run| run.seed).ok()?;
        cell.runs[run].figures.get(figure).copied()
    };
    base.runs.iter().filter_map(|run| Some((of(base, run.seed)?, of(other, run.seed)?))).collect()
}

impl Cell {
    /// The mean of a figure over the runs.
    #[must_use]
    pub fn mean(&self, figure: &str) -> Option<Estimate> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| run.figures.get(figure).copied()).collect();
        compare::mean(&values)
    }

    /// A figure of all runs together.
    #[must_use]
    pub fn figure(&self, figure: &str) -> Option<f64> {
        figures::figures(&self.merged).get(figure).copied()
    }
}

fn index(list: &[String], value: &str) -> usize {
    list.iter().position(|v| v == value).unwrap_or(list.len())
}

fn merge_group(into: &mut GroupResult, from: &GroupResult) {
    into.wakeup.merge(&from.wakeup);
    into.request.merge(&from.request);
    into.requests += from.requests;
    into.rejected += from.rejected;
    into.runs += from.runs;
    into.work_ns += from.work_ns;
    into.cpu_ns += from.cpu_ns;
    into.refill_ns += from.refill_ns;
    into.exits += from.exits;
}

/// Adds a run to others of the same cell.
fn merge_runs(into: &mut RunResult, from: &RunResult) -> Result<(), ReportError> {
    into.seed = into.seed.min(from.seed);
    into.measured_ns += from.measured_ns;
    merge_group(&mut into.total, &from.total);
    for (a, b) in into.groups.iter_mut().zip(&from.groups) {
        merge_group(a, b);
    }
    for (a, b) in into.cpus.iter_mut().zip(&from.cpus) {
        let CpuResult { cpu: _, busy_ns, held_ns, dispatcher_ns } = b;
        a.busy_ns += busy_ns;
        a.held_ns += held_ns;
        a.dispatcher_ns += dispatcher_ns;
    }
    into.max_wait_ns = into.max_wait_ns.max(from.max_wait_ns);
    into.migrations = sum(&into.migrations, &from.migrations)?;
    into.regret = sum(&into.regret, &from.regret)?;
    into.counts = sum(&into.counts, &from.counts)?;
    into.promises = sum(&into.promises, &from.promises)?;
    into.stats = sum(&into.stats, &from.stats)?;
    into.work_in_ns += from.work_in_ns;
    for (a, b) in into.work_out_ns.iter_mut().zip(&from.work_out_ns) {
        *a += b;
    }
    Ok(())
}

/// The sum of two sets of counters, member by member.
fn sum<T: Serialize + DeserializeOwned>(a: &T, b: &T) -> Result<T, ReportError> {
    let mut total = serde_json::to_value(a)?;
    add_numbers(&mut total, &serde_json::to_value(b)?);
    Ok(serde_json::from_value(total)?)
}

fn add_numbers(into: &mut serde_json::Value, from: &serde_json::Value) {
    use serde_json::Value;
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(key) {
                    Some(mine) => add_numbers(mine, value),
                    None => {
                        into.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => {
            into.iter_mut().zip(from).for_each(|(mine, value)| add_numbers(mine, value));
        }
        (Value::Number(mine), Value::Number(value)) => {
            *mine = match (mine.as_u64(), value.as_u64()) {
                (Some(a), Some(b)) => a.saturating_add(b).into(),
                _ => match (mine.as_i64(), value.as_i64()) {
                    (Some(a), Some(b)) => a.saturating_add(b).into(),
                    _ => {
                        let total = mine.as_f64().unwrap_or(0.0) + value.as_f64().unwrap_or(0.0);
                        serde_json::Number::from_f64(total).unwrap_or_else(|| 0.into())
                    }
                },
            };
        }
        _ => {}
    }
}
