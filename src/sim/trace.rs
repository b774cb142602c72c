// SPDX-License-Identifier: GPL-2.0-only
//! A timeline as a trace for ui.perfetto.dev or chrome://tracing: a process per policy, a lane per CPU, the dispatcher's
//! decisions as a lane of their own, and an arrow from every decision to the run that it caused.

use super::scenario::Scenario;
use super::timeline::{Decided, Span, Timeline};
use crate::ids::Nanos;
use serde_json::{Value, json};

/// Lanes that are no CPU, below all of them.
const DISPATCHER_LANE: u64 = 1_000_000;
const KERNEL_LANE: u64 = 1_000_001;

/// Held CPUs have a lane each beside the CPU's own: stretches of one lane must not overlap in part.
const HELD_LANES: u64 = 2_000_000;

/// The trace as JSON, an event a line.
///
/// # Errors
/// If a number has no JSON form.
pub fn chrome(scenario: &Scenario, timelines: &[(String, Timeline)]) -> Result<String, serde_json::Error> {
    let names = group_names(scenario);
    let mut events = Vec::new();
    for (process, (policy, timeline)) in timelines.iter().enumerate() {
        let trace = Trace { process: process as u64 + 1, names: &names };
        trace.lanes(scenario, policy, &mut events);
        for (number, span) in timeline.spans.iter().enumerate() {
            trace.run(number as u64, span, &mut events);
        }
        for (cpu, stretch) in &timeline.held {
            events.push(trace.slice(
                "held by a higher class",
                HELD_LANES + u64::from(cpu.0),
                *stretch,
                json!({}),
            ));
        }
        for stretch in &timeline.takeovers {
            events.push(trace.slice("takeover", KERNEL_LANE, *stretch, json!({})));
        }
    }
    let lines: Result<Vec<String>, _> = events.iter().map(serde_json::to_string).collect();
    Ok(format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines?.join(",\n")))
}

/// The names of groups and services, in the order of [`super::result::RunResult::groups`].
#[must_use]
pub fn group_names(scenario: &Scenario) -> Vec<String> {
    let tasks = scenario.task.iter().map(|group| group.name.clone());
    tasks.chain(scenario.service.iter().map(|service| service.name.clone())).collect()
}

struct Trace<'a> {
    process: u64,
    names: &'a [String],
}

/// Microseconds, the unit of the format.
fn us(ns: Nanos) -> f64 {
    ns as f64 / 1000.0
}

impl Trace<'_> {
    fn lanes(&self, scenario: &Scenario, policy: &str, events: &mut Vec<Value>) {
        let pid = self.process;
        events.push(json!({"ph":"M","pid":pid,"name":"process_name","args":{"name": format!("{} under {policy}", scenario.name)}}));
        let cpus = (0..u64::from(scenario.machine.cpus())).map(|cpu| (cpu, format!("CPU {cpu}")));
        let others = [(DISPATCHER_LANE, "dispatcher".to_string()), (KERNEL_LANE, "kernel side".to_string())];
        for (tid, name) in cpus.chain(others) {
            events.push(json!({"ph":"M","pid":pid,"tid":tid,"name":"thread_name","args":{"name":name}}));
            events.push(
                json!({"ph":"M","pid":pid,"tid":tid,"name":"thread_sort_index","args":{"sort_index":tid}}),
            );
        }
    }

    fn slice(&self, name: &str, lane: u64, (from, to): (Nanos, Nanos), args: Value) -> Value {
        json!({"ph":"X","pid":self.process,"tid":lane,"name":name,"ts":us(from),"dur":us(to.saturating_sub(from)),"args":args})
    }

    fn run(&self, number: u64, span: &Span, events: &mut Vec<Value>) {
        let run = &span.run;
        let group = self.names.get(run.group as usize).map_or("task", String::as_str);
        let name = format!("{group}/{}", run.task.idx);
        let why = span
            .decided
            .as_ref()
            .map_or_else(|| "no decision: served by the kernel side".into(), Decided::why);
        let args = json!({
            "why": why,
            "waited_us": us(run.waited_ns),
            "warmth_pct": (run.warmth * 1000.0).round() / 10.0,
            "refill_us": us(run.refill_ns),
            "work_us": us(run.work_ns),
        });
        let lane = u64::from(run.cpu.0);
        if let Some(d) = &span.decided {
            let place = json!({"task": &name, "to_cpu": d.command.cpu.0, "from_cpu": d.runnable.prev_cpu.0, "why": d.why()});
            events.push(self.slice("decide", DISPATCHER_LANE, (d.polled_ns, d.done_ns), place));
            let id = self.process << 32 | number;
            let flow = |ph: &str, lane: u64, ts: Nanos| json!({"ph":ph,"bp":"e","id":id,"pid":self.process,"tid":lane,"cat":"decision","name":"decision","ts":us(ts)});
            events.push(flow("s", DISPATCHER_LANE, d.polled_ns));
            events.push(flow("f", lane, run.start_ns));
        }
        events.push(self.slice(&name, lane, (run.start_ns, run.end_ns), args));
    }
}
