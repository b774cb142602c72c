// SPDX-License-Identifier: GPL-2.0-only
//! The verdict: one line for each policy that says how it did against the first, and how sure that is.

use super::figures::{Better, Unit, describe};
use super::{Cell, Report};
use crate::sim::compare::{Estimate, Says};

/// The figure that a report is judged by if nobody says otherwise: the latency of requests, or else of wakeups.
#[must_use]
pub fn headline(report: &Report) -> &'static str {
    let requests = report.cells.iter().any(|cell| cell.merged.total.request.count() > 0);
    if requests { "request_p99_ns" } else { "wakeup_p99_ns" }
}

/// Loss of throughput that the verdict speaks of.
const THROUGHPUT_LOSS: f64 = 0.98;

/// The verdict on `figure`, a line each; empty without runs.
#[must_use]
pub fn lines(report: &Report, figure: &str) -> Vec<String> {
    let Some((title, unit, better)) = describe(figure) else { return Vec::new() };
    if !report.plan.axes.is_empty() {
        return best_point(report, figure, &title, unit, better).into_iter().collect();
    }
    let Some(base) = report.cells.first() else { return Vec::new() };
    if report.cells.len() == 1 || report.plan.policies.first() != Some(&base.policy) {
        let alone = report.cells.iter().filter_map(|cell| alone(cell, figure, &title, unit));
        return alone.collect();
    }
    let judged = report.cells.iter().skip(1).map(|cell| {
        let versus = versus(report, cell, base, figure, better);
        format!("{title}: {} {versus}", cell.policy)
    });
    judged.collect()
}

/// One policy, nothing to compare with.
fn alone(cell: &Cell, figure: &str, title: &str, unit: Unit) -> Option<String> {
    let value = unit.full(cell.figure(figure)?);
    let spread = cell.mean(figure).and_then(|mean| {
        let (low, high) = mean.interval?;
        let (low, high) = (unit.show(low), unit.full(high));
        Some(format!(", 95 % CI of a run's {low} to {high}, n = {}", mean.n))
    });
    Some(format!("{title}: {} {value}{}", cell.policy, spread.unwrap_or_default()))
}

fn versus(report: &Report, cell: &Cell, base: &Cell, figure: &str, better: Better) -> String {
    let Some(ratio) = report.ratio(cell, figure) else {
        return format!("cannot be compared with {} (no value, or 0, in some runs)", base.policy);
    };
    let mut text = format!("{:.2}x of {}{}", ratio.mean, base.policy, certainty(&ratio, better));
    let throughput = ["requests_per_s", "work_cpus"].iter().find_map(|name| report.ratio(cell, name));
    if let Some(throughput) = throughput.filter(|t| t.mean < THROUGHPUT_LOSS && figure != "requests_per_s") {
        text += &format!("; but throughput {:.3}x", throughput.mean);
    }
    text
}

/// The interval in words.
#[must_use]
pub fn certainty(ratio: &Estimate, better: Better) -> String {
    let Some((low, high)) = ratio.interval else {
        return " (one run: no interval; --runs 10 gives one)".into();
    };
    let word = match (ratio.says(), better) {
        (Says::WithinNoise | Says::Unknown, _) => "within noise",
        (Says::Less, Better::Lower) | (Says::More, Better::Higher) => "better",
        (Says::More, Better::Lower) | (Says::Less, Better::Higher) => "worse",
        (Says::Less, Better::Neither) => "less",
        (Says::More, Better::Neither) => "more",
    };
    format!(", 95 % CI {low:.2} to {high:.2}, n = {}: {word}", ratio.n)
}

/// Of a sweep: where it is best, and how that compares with the first policy there.
fn best_point(report: &Report, figure: &str, title: &str, unit: Unit, better: Better) -> Option<String> {
    let sign = if better == Better::Higher { -1.0 } else { 1.0 };
    let values = report.cells.iter().filter_map(|cell| Some((sign * cell.figure(figure)?, cell)));
    let (value, cell) = values.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let keys = report.plan.axes.iter().map(|axis| axis.key.as_str());
    let at: Vec<String> = keys.zip(&cell.at).map(|(key, value)| format!("{key}={value}")).collect();
    let mut text = format!("best {title}: {} at {}: {}", cell.policy, at.join(", "), unit.full(sign * value));
    let base = report.cell(&cell.at, report.plan.policies.first()?).filter(|base| base.policy != cell.policy);
    if let Some((base, ratio)) = base.zip(report.ratio(cell, figure)) {
        text += &format!(" ({:.2}x of {} there{})", ratio.mean, base.policy, certainty(&ratio, better));
    }
    Some(text)
}
