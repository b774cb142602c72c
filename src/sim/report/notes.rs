// SPDX-License-Identifier: GPL-2.0-only
//! What a reader of a report should know before believing it: each note names its cause and what to do.

use super::{Cell, Report};
use crate::sim::result::RunResult;

/// Utilisation from which an open loop's queue no longer settles within a run.
const SATURATED_PCT: f64 = 97.0;

/// A percentile needs this many values beyond it to mean something.
const VALUES_BEYOND: u64 = 10;

/// The notes, a line each.
#[must_use]
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let (done, asked) = report.progress();
    if done < asked {
        notes.push(format!(
            "{} of {asked} runs are missing (interrupted, or shards not merged)",
            asked - done
        ));
    }
    if report.plan.runs == 1 && report.plan.policies.len() > 1 {
        notes.push("one run of each policy says nothing about chance: --runs 10 or more".into());
    }
    let checks: [fn(&RunResult) -> Option<String>; 6] =
        [few_values, saturated, clamped, takeovers, promises, lost];
    for check in checks {
        let found: Vec<(&Cell, String)> =
            report.cells.iter().filter_map(|cell| Some((cell, check(&cell.merged)?))).collect();
        let Some((first, text)) = found.first() else { continue };
        let at = if first.at.is_empty() { String::new() } else { format!(" at {}", first.at.join(", ")) };
        let more = if found.len() > 1 { format!(" and {} more", found.len() - 1) } else { String::new() };
        notes.push(format!("{}{at}{more}: {text}", first.policy));
    }
    notes
}

fn few_values(run: &RunResult) -> Option<String> {
    let latency = if run.total.request.count() > 0 { &run.total.request } else { &run.total.wakeup };
    let n = latency.count();
    (n < 1000 * VALUES_BEYOND).then(|| {
        format!(
            "{n} latencies in all: p99.9 needs {} to mean something (longer duration_ms, more --runs)",
            1000 * VALUES_BEYOND
        )
    })
}

fn saturated(run: &RunResult) -> Option<String> {
    let busy = 100.0 * run.utilisation();
    (busy > SATURATED_PCT && run.total.requests > 0).then(|| {
        format!("CPUs {busy:.1} % busy: an open loop diverges, its latencies grow with duration_ms (closed or paced clients do not)")
    })
}

fn clamped(run: &RunResult) -> Option<String> {
    let n = run.total.request.clamped + run.total.wakeup.clamped;
    (n > 0).then(|| format!("{n} latencies beyond 100 s are counted as 100 s"))
}

fn takeovers(run: &RunResult) -> Option<String> {
    let c = &run.counts;
    (c.takeovers + c.ring_full + c.rescued > 0).then(|| {
        format!(
            "the kernel side led for a while: {} takeovers, {} tasks past a full ring, {} rescued",
            c.takeovers, c.ring_full, c.rescued
        )
    })
}

fn promises(run: &RunResult) -> Option<String> {
    let p = &run.promises;
    (p.total > 0).then(|| {
        format!(
            "the policy broke its promises {} times (CPU {}, bounds {}, not idle {}, idle CPU left {}, pick {})",
            p.total, p.cpu, p.bounds, p.not_idle, p.idle_left, p.pick
        )
    })
}

fn lost(run: &RunResult) -> Option<String> {
    let out: u64 = run.work_out_ns.iter().sum();
    (run.stats.anomalies > 0 || out != run.work_in_ns).then(|| {
        format!(
            "{} facts that cannot be, work of {} ns in and {out} ns out: a bug of the simulator, please report it",
            run.stats.anomalies, run.work_in_ns
        )
    })
}
