// SPDX-License-Identifier: GPL-2.0-only
//! Explanations for people.

use super::{Candidate, Explanation};
use crate::event::{Outcome, Why};
use crate::ids::Nanos;

/// Candidates that are listed of each wakeup.
const MOST_CANDIDATES: usize = 6;

/// Waits from here on only say "not to be had".
const NEVER_NS: Nanos = 100_000_000;

/// All of them, numbered. `groups` are the names of groups by row.
#[must_use]
pub fn render(explanations: &[Explanation], groups: &[String]) -> String {
    if explanations.is_empty() {
        return "no wakeup fits".into();
    }
    let parts = explanations.iter().enumerate().map(|(i, e)| one(i + 1, e, groups));
    parts.collect::<Vec<_>>().join("\n\n")
}

fn us(ns: Nanos) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

fn one(number: usize, e: &Explanation, groups: &[String]) -> String {
    let group = groups.get(e.group as usize).map_or("task", String::as_str);
    let cause = match e.why {
        Why::New => "is new",
        Why::Woken => "woke up",
        Why::Preempted => "was preempted",
        Why::SliceUsed => "had used up its slice",
        Why::Yielded => "gave the CPU away",
        Why::Rescan => "was found waiting",
    };
    let mut lines = vec![format!(
        "{number}. {group}/{} at {:.4} ms: {cause}; before on CPU {}",
        e.task.idx,
        e.at_ns as f64 / 1e6,
        e.prev_cpu
    )];
    lines.extend(e.steps.iter().map(|step| {
        let outcome = match step.outcome {
            Outcome::Done => "",
            Outcome::Stale => " (too late: the world had moved on)",
            Outcome::Gone => " (too late: it was gone)",
            Outcome::NotAllowed => " (no longer allowed there)",
            Outcome::Retry => " (not ready: asked again)",
        };
        let recalled = step.recalled_from.map_or_else(String::new, |cpu| format!(" (back from CPU {cpu})"));
        let later = us(step.at_ns.saturating_sub(e.at_ns));
        format!("   {later} us later: to CPU {}{recalled}: {}{outcome}", step.cpu, step.reason)
    }));
    if e.steps.is_empty() {
        lines.push("   no decision: the kernel side served it".into());
    }
    lines.push(came_true(e));
    lines.extend(table(e));
    lines.join("\n")
}

fn came_true(e: &Explanation) -> String {
    let expected = |ns: fn(&Candidate) -> Nanos| {
        e.expected().map_or_else(String::new, |c| format!(" (expected {})", us(ns(c).min(NEVER_NS))))
    };
    let best = e.best().filter(|_| e.regret_ns() > 0);
    let regret = best.map_or_else(
        || "no regret".into(),
        |c| format!("regret {} us against CPU {}", us(e.regret_ns()), c.cpu),
    );
    format!(
        "   it ran on CPU {}: waited {} us{}, refill {} us{}, {:.0} % warm, ran {} us; {regret}",
        e.cpu,
        us(e.decided_wait_ns),
        expected(|c| c.wait_ns),
        us(e.refill_ns),
        expected(|c| c.refill_ns),
        100.0 * e.warmth,
        us(e.ran_ns),
    )
}

/// The CPU where it ran, the one before, and the cheapest others.
fn table(e: &Explanation) -> Vec<String> {
    let mut order: Vec<&Candidate> = e.candidates.iter().collect();
    order.sort_by_key(|c| (c.cpu != e.cpu, c.cpu != e.prev_cpu, c.taken, c.cost_ns(), c.cpu));
    let mut lines = vec![format!("   {:>14} {:>9} {:>10} {:>9}", "CPU", "wait us", "refill us", "both us")];
    lines.extend(order.iter().take(MOST_CANDIDATES).map(|c| {
        let mark = match (c.cpu == e.cpu, c.cpu == e.prev_cpu) {
            (true, true) => "ran, before",
            (true, false) => "ran",
            (false, true) => "before",
            (false, false) => "",
        };
        let wait = if c.wait_ns >= NEVER_NS { "-".into() } else { us(c.wait_ns) };
        let both = if c.wait_ns >= NEVER_NS { "-".into() } else { us(c.cost_ns()) };
        let state = match (c.taken, c.idle) {
            (true, _) => "  taken",
            (false, true) => "  idle",
            (false, false) => "",
        };
        let near = if c.near { "" } else { "  other LLC" };
        format!("   {mark:>11}{:>3} {wait:>9} {:>10} {both:>9}{state}{near}", c.cpu, us(c.refill_ns))
    }));
    if order.len() > MOST_CANDIDATES {
        lines.push(format!("   and {} dearer ones", order.len() - MOST_CANDIDATES));
    }
    lines
}
