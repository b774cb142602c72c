// SPDX-License-Identifier: GPL-2.0-only
//! The timeline's data, and the text around it.

use super::escape;
use crate::ids::Nanos;
use crate::sim::report::Report;
use crate::sim::scenario::Scenario;
use crate::sim::timeline::{Decided, Span, Timeline};
use crate::sim::trace::group_names;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Microseconds with three digits: enough for a picture, and short.
fn us(ns: Nanos) -> f64 {
    ns as f64 / 1000.0
}

/// The data of all timelines.
pub(super) fn timelines(scenario: &Scenario, timelines: &[(String, Timeline)]) -> Vec<Value> {
    timelines.iter().map(|(policy, timeline)| one(scenario, policy, timeline)).collect()
}

fn one(scenario: &Scenario, policy: &str, timeline: &Timeline) -> Value {
    let mut reasons = Reasons::default();
    let spans: Vec<Value> = timeline.spans.iter().map(|span| compact(span, &mut reasons)).collect();
    let held = timeline.held.iter().map(|(cpu, (from, to))| json!([cpu.0, us(*from), us(*to)]));
    let takeovers = timeline.takeovers.iter().map(|(from, to)| json!([us(*from), us(*to)]));
    let machine = scenario.machine.topology(&[]);
    let firsts: Vec<u32> = machine.map_or_else(
        |_| Vec::new(),
        |machine| machine.llcs.iter().filter_map(|llc| llc.cpus.first().map(|cpu| cpu.0)).collect(),
    );
    json!({
        "policy": policy,
        "from_us": us(timeline.from_ns),
        "to_us": us(timeline.to_ns),
        "cpus": scenario.machine.cpus(),
        "llcs": firsts,
        "groups": group_names(scenario),
        "spans": spans,
        "held": held.collect::<Vec<_>>(),
        "takeovers": takeovers.collect::<Vec<_>>(),
        "reasons": reasons.texts,
    })
}

/// Texts that occur often, by number.
#[derive(Default)]
struct Reasons {
    texts: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Reasons {
    fn number(&mut self, text: String) -> usize {
        if let Some(&number) = self.numbers.get(&text) {
            return number;
        }
        self.texts.push(text.clone());
        self.numbers.insert(text, self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// The order is that of the script's constants.
fn compact(span: &Span, reasons: &mut Reasons) -> Value {
    let run = &span.run;
    let d = span.decided.as_ref();
    let why = d.map_or_else(|| "no decision: the kernel side served it".into(), Decided::why);
    json!([
        run.cpu.0,
        us(run.start_ns),
        us(run.end_ns.saturating_sub(run.start_ns)),
        run.group,
        run.task.idx,
        us(run.waited_ns),
        (100.0 * run.warmth).round() as i64,
        us(run.refill_ns),
        reasons.number(why),
        d.map_or(-1, |d| i64::from(d.runnable.prev_cpu.0)),
        d.map_or(-1.0, |d| us(d.read_ns)),
        d.map_or(-1.0, |d| us(d.polled_ns)),
    ])
}

/// The section with an empty place for the script.
pub(super) fn section(report: &Report, timelines: &[(String, Timeline)]) -> String {
    let left_out: u64 = timelines.iter().map(|(_, timeline)| timeline.left_out).sum();
    let more = if left_out > 0 {
        format!(" {left_out} runs are left out: choose a shorter part with --timeline-ms.")
    } else {
        String::new()
    };
    format!(
        "<h2>What ran where, and why</h2>\n<p class=\"dim\">Seed {}. A lane a CPU; a block is a run of a task. Cold <span \
         class=\"scale\"></span> warm: how much of the task's state was there when it started. Grey: held by a higher class; yellow: \
         the kernel side leads. Wheel or +/-: zoom; drag: move; click a block: why.{}</p>\n<div id=\"timeline\"></div>\n",
        report.plan.seed,
        escape(&more),
    )
}
