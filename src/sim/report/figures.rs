// SPDX-License-Identifier: GPL-2.0-only
//! The figures that runs are compared by: declared once, used by tables, sweeps, pages and files alike.

use crate::sim::result::{GroupResult, Latency, RunResult};
use std::collections::BTreeMap;

/// How a figure is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Kept in nanoseconds, printed in microseconds.
    Time,
    /// Per second.
    PerSecond,
    /// Of 100.
    Percent,
    /// A plain number.
    Number,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Lower.
    Lower,
    /// Higher.
    Higher,
    /// Neither: it explains the others.
    Neither,
}

/// A figure of a run.
pub struct Metric {
    /// Its name in files and options, the unit last.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How it is printed.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The figure; none: this run has none (a scenario without requests has no request latency).
    pub of: fn(&RunResult) -> Option<f64>,
}

fn percentile(latency: &Latency, percent: f64) -> Option<f64> {
    (latency.count() > 0).then(|| latency.percentile_ns(percent) as f64)
}

/// `part` for each of `whole`, if there is any.
fn per(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

const fn time(name: &'static str, title: &'static str, of: fn(&RunResult) -> Option<f64>) -> Metric {
    Metric { name, title, unit: Unit::Time, better: Better::Lower, of }
}

const fn other(
    name: &'static str,
    title: &'static str,
    unit: Unit,
    better: Better,
    of: fn(&RunResult) -> Option<f64>,
) -> Metric {
    Metric { name, title, unit, better, of }
}

/// All figures of a run, in the order of the table.
pub static METRICS: &[Metric] = &[
    time("request_p50_ns", "request p50", |r| percentile(&r.total.request, 50.0)),
    time("request_p90_ns", "request p90", |r| percentile(&r.total.request, 90.0)),
    time("request_p99_ns", "request p99", |r| percentile(&r.total.request, 99.0)),
    time("request_p99_9_ns", "request p99.9", |r| percentile(&r.total.request, 99.9)),
    time("request_max_ns", "request max", |r| percentile(&r.total.request, 100.0)),
    time("wakeup_p50_ns", "wakeup p50", |r| percentile(&r.total.wakeup, 50.0)),
    time("wakeup_p90_ns", "wakeup p90", |r| percentile(&r.total.wakeup, 90.0)),
    time("wakeup_p99_ns", "wakeup p99", |r| percentile(&r.total.wakeup, 99.0)),
    time("wakeup_p99_9_ns", "wakeup p99.9", |r| percentile(&r.total.wakeup, 99.9)),
    time("wakeup_max_ns", "wakeup max", |r| percentile(&r.total.wakeup, 100.0)),
    other("requests_per_s", "requests/s", Unit::PerSecond, Better::Higher, |r| {
        (r.total.requests > 0).then(|| r.requests_per_s())
    }),
    other("rejected_pct", "turned away", Unit::Percent, Better::Lower, |r| {
        let rejected = (r.total.rejected > 0).then_some(r.total.rejected)?;
        per(100 * rejected, rejected + r.total.requests)
    }),
    other("work_cpus", "work done", Unit::Number, Better::Higher, |r| per(r.total.work_ns, r.measured_ns)),
    other("utilisation_pct", "CPUs busy", Unit::Percent, Better::Neither, |r| {
        (!r.cpus.is_empty()).then(|| 100.0 * r.utilisation())
    }),
    other("within_llc_per_wakeup", "moves in LLC/wakeup", Unit::Number, Better::Neither, |r| {
        per(r.migrations.within_llc, r.total.wakeup.count())
    }),
    other("across_llc_per_wakeup", "moves across/wakeup", Unit::Number, Better::Neither, |r| {
        per(r.migrations.across_llc, r.total.wakeup.count())
    }),
    time("refill_per_wakeup_ns", "refill/wakeup", |r| {
        (r.total.wakeup.count() > 0).then(|| r.refill_per_wakeup_ns())
    }),
    time("regret_per_wakeup_ns", "regret/wakeup", |r| (r.regret.samples > 0).then(|| r.regret.mean_ns())),
    time("wait_error_ns", "wait predicted, error", |r| {
        (r.stats.wait_error.count > 0).then(|| r.stats.wait_error.mean_distance_ns())
    }),
    Metric {
        better: Better::Neither,
        ..time("wait_bias_ns", "wait predicted, bias", |r| {
            (r.stats.wait_error.count > 0).then(|| r.stats.wait_error.bias_ns())
        })
    },
    time("longest_wait_ns", "longest wait", |r| Some(r.max_wait_ns as f64)),
];

/// A figure of a group or service; its name in files is `GROUP.name`.
pub struct GroupMetric {
    /// Its name, the unit last.
    pub name: &'static str,
    /// Its name for people, after the group's.
    pub title: &'static str,
    /// How it is printed.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The figure.
    pub of: fn(&GroupResult, measured_ns: u64) -> Option<f64>,
}

/// The figures of groups, shown when there are several.
pub static GROUP_METRICS: &[GroupMetric] = &[
    GroupMetric {
        name: "request_p50_ns",
        title: "request p50",
        unit: Unit::Time,
        better: Better::Lower,
        of: |g, _| percentile(&g.request, 50.0),
    },
    GroupMetric {
        name: "request_p99_ns",
        title: "request p99",
        unit: Unit::Time,
        better: Better::Lower,
        of: |g, _| percentile(&g.request, 99.0),
    },
    GroupMetric {
        name: "wakeup_p50_ns",
        title: "wakeup p50",
        unit: Unit::Time,
        better: Better::Lower,
        of: |g, _| percentile(&g.wakeup, 50.0),
    },
    GroupMetric {
        name: "wakeup_p99_ns",
        title: "wakeup p99",
        unit: Unit::Time,
        better: Better::Lower,
        of: |g, _| percentile(&g.wakeup, 99.0),
    },
    GroupMetric {
        name: "work_cpus",
        title: "work done",
        unit: Unit::Number,
        better: Better::Higher,
        of: |g, measured_ns| per(g.work_ns, measured_ns),
    },
];

/// The figures of a run by name: those that it has. Groups have their own only where there are several.
#[must_use]
pub fn figures(run: &RunResult) -> BTreeMap<String, f64> {
    let all = METRICS.iter().filter_map(|m| Some((m.name.to_string(), (m.of)(run)?)));
    let groups = run.groups.iter().filter(|_| run.groups.len() > 1).flat_map(|group| {
        GROUP_METRICS.iter().filter_map(move |m| {
            Some((format!("{}.{}", group.name, m.name), (m.of)(group, run.measured_ns)?))
        })
    });
    all.chain(groups).collect()
}

/// What a figure is called, how it is printed and which way is better; none: there is no such figure.
#[must_use]
pub fn describe(name: &str) -> Option<(String, Unit, Better)> {
    if let Some(m) = METRICS.iter().find(|m| m.name == name) {
        return Some((m.title.into(), m.unit, m.better));
    }
    let (group, rest) = name.rsplit_once('.')?;
    let m = GROUP_METRICS.iter().find(|m| m.name == rest)?;
    Some((format!("{group}: {}", m.title), m.unit, m.better))
}

impl Unit {
    /// The value as it is printed, without its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let value = if self == Unit::Time { value / 1000.0 } else { value };
        let digits = match (self, value.abs()) {
            (Unit::PerSecond, _) => 0,
            (Unit::Number, v) if v < 10.0 => 3,
            (_, v) if v >= 1000.0 => 0,
            (_, v) if v >= 10.0 => 1,
            _ => 2,
        };
        format!("{value:.digits$}")
    }

    /// The unit as it is printed.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Unit::Time => "us",
            Unit::Percent => "%",
            Unit::PerSecond | Unit::Number => "",
        }
    }

    /// Value and unit.
    #[must_use]
    pub fn full(self, value: f64) -> String {
        format!("{} {}", self.show(value), self.sign()).trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_their_unit_and_are_found_again() {
        for m in METRICS {
            assert_eq!(m.name.ends_with("_ns"), m.unit == Unit::Time, "{}", m.name);
            assert_eq!(m.name.ends_with("_pct"), m.unit == Unit::Percent, "{}", m.name);
            assert_eq!(describe(m.name).unwrap().0, m.title);
        }
        assert_eq!(describe("web.request_p99_ns").unwrap().0, "web: request p99");
        assert!(describe("request_p98_ns").is_none() && describe("web.colour").is_none());
    }

    #[test]
    fn a_run_without_requests_has_no_figures_of_them() {
        let mut run = RunResult { measured_ns: 1_000_000, ..RunResult::default() };
        assert!(figures(&run).keys().all(|name| !name.starts_with("request") && !name.contains("regret")));
        run.total.request.record(1_000);
        run.total.requests = 1;
        assert_eq!(figures(&run)["request_p99_ns"], 1_000.0);
        assert_eq!(figures(&run)["requests_per_s"], 1000.0);
    }

    #[test]
    fn values_are_printed_with_as_many_digits_as_they_have() {
        for (unit, value, text) in [
            (Unit::Time, 1_234_567.0, "1235 us"),
            (Unit::Time, 12_345.0, "12.3 us"),
            (Unit::Time, 1_234.0, "1.23 us"),
            (Unit::PerSecond, 12.4, "12"),
            (Unit::Percent, 99.84, "99.8 %"),
            (Unit::Number, 0.1234, "0.123"),
        ] {
            assert_eq!(unit.full(value), text);
        }
    }
}
