// SPDX-License-Identifier: GPL-2.0-only
//! Tables and verdicts as text.

use super::{FIGURES, Figure, Judged, LOADS, POLICIES, Side, Verdict};
use crate::completion::published::{SCALE, counted_wait_ns, queued_wait_ns, residual_ns};
use crate::sim::report::Report;
use crate::sim::report::figures::describe;

/// Columns of the tables: the talk's names.
const HEADS: [&str; 6] = ["off", "warm 10", "warm 20", "warm 50", "d2", "d4"];

/// Everything: the verdict, the tables, the claims, and the two ways of timing a queue.
#[must_use]
pub fn render(reports: &[Option<Report>], judged: &[Judged]) -> String {
    let mut out = vec![summary(judged), String::new()];
    for (load, report) in LOADS.iter().zip(reports.iter().chain(std::iter::repeat(&None))) {
        out.push(format!("{} load ({}): milliseconds here, and (in the talk)", load.name, load.scenario));
        out.push(format!("  {:<14}{}", "", HEADS.map(|head| format!("{head:>17}")).concat()));
        let rows = FIGURES.iter().filter(|figure| figure.load == load.name);
        out.extend(rows.map(|figure| table_row(figure, report.as_ref())));
        out.push(String::new());
    }
    out.push("claims: ratio here with its 95 % interval, and the talk's".into());
    let mut what = "";
    for j in judged {
        if j.claim.what != what {
            what = j.claim.what;
            out.push(format!("  {what}:"));
        }
        out.push(claim_line(j));
    }
    out.push(String::new());
    out.extend(counting());
    out.join("\n")
}

fn summary(judged: &[Judged]) -> String {
    let count = |verdict| judged.iter().filter(|j| j.verdict == verdict).count();
    let strong = judged.iter().filter(|j| j.strong).count();
    format!(
        "{} of {} claims held ({strong} with an effect of 10 % or more, as in the talk), {} reversed, {} open, {} missing",
        count(Verdict::Held),
        judged.len(),
        count(Verdict::Reversed),
        count(Verdict::Open),
        count(Verdict::Missing)
    )
}

fn title(figure: &str) -> String {
    describe(figure).map_or_else(|| figure.to_string(), |(title, ..)| title)
}

fn table_row(figure: &Figure, report: Option<&Report>) -> String {
    let cells = POLICIES.iter().zip(figure.ms).map(|(policy, talk)| {
        let ours = report.and_then(|report| report.cell(&[], policy)?.figure(figure.figure));
        let ours = ours.map_or_else(|| "-".into(), |ns| format!("{:.3}", ns / 1e6));
        let talk = talk.map_or_else(String::new, |ms| format!("({ms:.3})"));
        format!("{ours:>8} {talk:<8}")
    });
    format!("  {:<14}{}", title(figure.figure), cells.collect::<String>())
}

fn claim_line(j: &Judged) -> String {
    let claim = j.claim;
    let ours = j.ours.map_or_else(
        || "-".into(),
        |e| match e.interval {
            Some((low, high)) => format!("{:.2} ({low:.2} to {high:.2}, n = {})", e.mean, e.n),
            None => format!("{:.2} (one run)", e.mean),
        },
    );
    let verdict = match j.verdict {
        Verdict::Held => "held",
        Verdict::Reversed => "REVERSED",
        Verdict::Open => "open",
        Verdict::Missing => "missing",
    };
    let side = match claim.side {
        Side::Lower => "below 1",
        Side::Higher => "above 1",
        Side::NoWorse => "below 1.07",
    };
    let head = |policy: &str| POLICIES.iter().position(|p| *p == policy).map_or("?", |at| HEADS[at]);
    format!(
        "    {verdict:<9}{:<11}{:<14}{:>8} / {:<8}{side:<11}{ours:<32} talk {:.2}",
        claim.load,
        title(claim.figure),
        head(claim.policy),
        head(claim.than),
        claim.talk
    )
}

/// The talk's queue examples, and the two cases in which counting errs low, by the published formulas.
fn counting() -> Vec<String> {
    const SLICE_NS: u64 = 5_000_000;
    let us = |ns: u64| format!("{} us", ns / 1000);
    let row = |what: &str, counted: u64, timed: u64, truth: u64| {
        format!("  {what:<62}{:>10}{:>10}{:>10}", us(counted), us(timed), us(truth))
    };
    // A task of 500 us on average runs since 800 us (it is over by 300), of a slice of 5 ms; truth: it goes on for 1 ms.
    let (start, est_stop, now) = (0, 500_000, 800_000);
    let over = residual_ns(now, start, est_stop, SLICE_NS - now);
    vec![
        format!(
            "{:<64}{:>10}{:>10}{:>10}",
            "the wait for a CPU, counted (#3714) and timed (#3806)", "counted", "timed", "true"
        ),
        row(
            "two tasks of 20 us wait",
            counted_wait_ns(0, 0, 2, SLICE_NS),
            queued_wait_ns(40_000, SCALE),
            40_000,
        ),
        row(
            "two tasks of 4 ms wait",
            counted_wait_ns(0, 0, 2, SLICE_NS),
            queued_wait_ns(8_000_000, SCALE),
            8_000_000,
        ),
        row(
            "a task of 4 ms in the local queue, which is not counted",
            counted_wait_ns(0, 0, 0, SLICE_NS),
            queued_wait_ns(4_000_000, SCALE),
            4_000_000,
        ),
        row(
            "runs since 800 us, 500 us on average, will go on for 1 ms",
            counted_wait_ns(now, est_stop, 0, SLICE_NS),
            over,
            1_000_000,
        ),
    ]
}
