// SPDX-License-Identifier: GPL-2.0-only
//! The report: schbench's text and JSON, and a line of JSON for scripts.

use super::Outcome;
use crate::hist::{Histogram, Percentile, SATURATION};
use crate::host;
use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The percentiles that schbench computes, in tenths of a percent. It prints some and writes all to JSON.
const PER_MILLE: [u32; 5] = [200, 500, 900, 990, 999];

/// One measured quantity.
#[derive(Debug)]
pub struct Metric {
    hist: Histogram,
    min: Option<u64>,
    /// Zeros that were measured and are not among the samples.
    zeros_left_out: u64,
}

impl Metric {
    /// A latency in us; schbench leaves zeros out.
    pub fn latency(mut hist: Histogram, keep_zeros: bool) -> Self {
        let zeros_left_out = if keep_zeros { 0 } else { hist.take_zeros() };
        Self { min: hist.min(), hist, zeros_left_out }
    }

    /// A rate per second; schbench keeps zeros, but not as the minimum.
    pub fn rate(hist: Histogram, zero_is_minimum: bool) -> Self {
        let min = if zero_is_minimum { hist.min() } else { hist.min_nonzero() };
        Self { hist, min, zeros_left_out: 0 }
    }

    fn percentiles(&self) -> Vec<Percentile> {
        self.hist.percentiles(&PER_MILLE)
    }

    /// Value of one of the percentiles; `None` without samples.
    fn value_at(&self, per_mille: u32) -> Option<u64> {
        self.hist.percentiles(&[per_mille]).first().map(|line| line.value)
    }

    fn max(&self) -> Option<u64> {
        (self.hist.samples() > 0).then_some(self.hist.max())
    }

    fn summary(&self) -> Value {
        json!({
            "p50": self.value_at(500),
            "p90": self.value_at(900),
            "p99": self.value_at(990),
            "p99_9": self.value_at(999),
            "min": self.min,
            "max": self.max(),
            "samples": self.hist.samples(),
            "zeros_left_out": self.zeros_left_out,
            "clamped": self.hist.clamped(),
            "negative": self.hist.negative(),
        })
    }
}

/// How one metric is printed.
struct Table<'a> {
    heading: &'a str,
    unit: &'a str,
    shown: &'a [u32],
    starred: u32,
    elapsed_s: u64,
    metric: &'a Metric,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { heading, unit, elapsed_s, metric, .. } = self;
        let samples = metric.hist.samples();
        writeln!(f, "{heading} percentiles ({unit}) runtime {elapsed_s} (s) ({samples} total samples)")?;
        for line in metric.percentiles() {
            let Percentile { per_mille, value, samples_since_previous } = line;
            if !self.shown.contains(&per_mille) {
                continue;
            }
            let star = if per_mille == self.starred { "* " } else { "  " };
            let percent = format!("{}.{}", per_mille / 10, per_mille % 10);
            writeln!(f, "\t{star}{percent}th: {value:<10} ({samples_since_previous} samples)")?;
        }
        writeln!(f, "\t  min={}, max={}", metric.min.unwrap_or(0), metric.max().unwrap_or(0))?;
        // Never in schbench, and only where the lines above would mislead.
        let (clamped, negative) = (metric.hist.clamped(), metric.hist.negative());
        if clamped > 0 {
            writeln!(f, "\t  clamped={clamped} (above {})", SATURATION - 1)?;
        }
        if negative > 0 {
            writeln!(f, "\t  negative={negative} (not among the samples)")?;
        }
        Ok(())
    }
}

/// What was measured up to some point. Displays as the three tables of schbench.
#[derive(Debug)]
pub struct Figures {
    /// Whole seconds since the start.
    pub elapsed_s: u64,
    /// Wakeup latency, us.
    pub wakeup: Metric,
    /// Request latency, us.
    pub request: Metric,
    /// Requests per second, one sample a second.
    pub rps: Metric,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = [500, 900, 990, 999];
        let elapsed_s = self.elapsed_s;
        let table = |heading, unit, shown, starred, metric| Table {
            heading,
            unit,
            shown,
            starred,
            elapsed_s,
            metric,
        };
        table("Wakeup Latencies", "usec", &latency, 990, &self.wakeup).fmt(f)?;
        table("Request Latencies", "usec", &latency, 990, &self.request).fmt(f)?;
        table("RPS", "requests", &[200, 500, 900], 500, &self.rps).fmt(f)
    }
}

/// Average wait for a CPU, us. Displays as a line of schbench.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    /// Of the message threads.
    pub messengers_us: u64,
    /// Of the workers.
    pub workers_us: u64,
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messengers_us, workers_us } = self;
        writeln!(f, "sched delay: message {messengers_us} (usec) worker {workers_us} (usec)")
    }
}

/// The final report of a run.
#[derive(Debug)]
pub struct Report {
    /// Everything measured since the last reset.
    pub figures: Figures,
    /// Waits for a CPU over the whole run.
    pub delays: Delays,
    /// Requests per second.
    pub average_rps: f64,
    /// Requests that were not waited for.
    pub broken_off: u64,
    /// Seconds asked for.
    pub runtime_s: u64,
    /// Whether it ran that long.
    pub outcome: Outcome,
}

impl Report {
    fn complete(&self) -> bool {
        self.outcome == Outcome::Complete
    }

    /// The text that schbench would print.
    pub fn text(&self) -> String {
        let Self { figures, delays, average_rps, broken_off, runtime_s, .. } = self;
        let mut text = String::new();
        if !self.complete() {
            let elapsed_s = figures.elapsed_s;
            text += &format!("incomplete: ended early, after {elapsed_s} of {runtime_s} s\n");
        }
        text += &format!("{figures}average rps: {average_rps:.2}\n{delays}");
        if *broken_off > 0 {
            text += &format!("{broken_off} requests were broken off at the end and are in no figure\n");
        }
        text
    }

    /// The JSON that schbench would write, as one line.
    ///
    /// # Errors
    /// Only if serialisation fails.
    pub fn schbench_json(&self, command_line: &str, job_name: Option<&str>) -> anyhow::Result<String> {
        let mut normal = vec![("version".to_owned(), Value::from(host::kernel_release()))];
        normal.extend(job_name.map(|name| ("jobname".to_owned(), name.into())));
        normal.push(("hostname".to_owned(), host::hostname().into()));
        normal.push(("sched_ext".to_owned(), host::sched_ext().into()));
        normal.push(("cmdline".to_owned(), command_line.into()));
        if !self.complete() {
            normal.push(("incomplete".to_owned(), true.into()));
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut int = vec![("time".to_owned(), Value::from(since_epoch.as_secs()))];
        let Figures { wakeup, request, rps, elapsed_s } = &self.figures;
        for (name, metric) in [("wakeup_latency", wakeup), ("request_latency", request), ("rps", rps)] {
            for per_mille in PER_MILLE {
                let key = format!("{name}_pct{}.{}", per_mille / 10, per_mille % 10);
                int.push((key, metric.value_at(per_mille).into()));
            }
            int.push((format!("{name}_min"), metric.min.into()));
            int.push((format!("{name}_max"), metric.max().into()));
        }
        int.push(("runtime".to_owned(), (*elapsed_s).into()));
        #[derive(Serialize)]
        struct Document {
            normal: Ordered,
            int: Ordered,
        }
        let document = Document { normal: Ordered(normal), int: Ordered(int) };
        json_line(&document)
    }

    /// The figures that scripts need, as one line of JSON; latencies in us.
    ///
    /// # Errors
    /// Only if serialisation fails.
    pub fn summary_json(&self) -> anyhow::Result<String> {
        json_line(&json!({
            "complete": self.complete(),
            "elapsed_s": self.figures.elapsed_s,
            "wakeup_us": self.figures.wakeup.summary(),
            "request_us": self.figures.request.summary(),
            "rps_average": self.average_rps,
            "requests_broken_off": self.broken_off,
            "sched_delay_us": { "message": self.delays.messengers_us, "worker": self.delays.workers_us },
            "sched_ext": host::sched_ext(),
        }))
    }
}

fn json_line(document: &impl Serialize) -> anyhow::Result<String> {
    let mut line = serde_json::to_string(document).context("cannot write the report as JSON")?;
    line.push('\n');
    Ok(line)
}

/// A JSON object that keeps the order of its members, for readers that scan schbench's line.
struct Ordered(Vec<(String, Value)>);

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(latencies: &[u64]) -> Figures {
        let hist = |values: &[u64]| {
            let mut hist = Histogram::default();
            values.iter().for_each(|&value| hist.record(value));
            hist
        };
        Figures {
            elapsed_s: 3,
            wakeup: Metric::latency(hist(latencies), false),
            request: Metric::latency(hist(&[]), false),
            rps: Metric::rate(hist(&[0, 613, 643, 643]), false),
        }
    }

    #[test]
    fn the_rps_table_is_that_of_a_real_run() {
        let real = include_str!("../../tests/fixtures/schbench-2025-12-stderr.txt");
        let start = real.find("RPS").unwrap();
        let table = &real[start..real.find("sched delay").unwrap()];
        assert!(figures(&[]).to_string().ends_with(table));
    }

    /// C47: samples beyond the bins show next to the figures that they spoil.
    #[test]
    fn c47_clamped_samples_show_next_to_the_maximum() {
        let text = figures(&[5, SATURATION, u64::MAX]).to_string();
        assert!(text.contains("\t  min=5, max=4294967295\n\t  clamped=2 (above 67108863)\n"), "{text}");
        assert!(!figures(&[5]).to_string().contains("clamped"));
    }

    #[test]
    fn zeros_are_left_out_of_latencies_and_counted() {
        let figures = figures(&[0, 0, 9]);
        let summary = figures.wakeup.summary();
        assert_eq!((&summary["samples"], &summary["zeros_left_out"]), (&json!(1), &json!(2)));
        assert_eq!((&summary["min"], &summary["p50"]), (&json!(9), &json!(9)));
        assert_eq!(figures.request.summary()["p50"], Value::Null);
    }
}
