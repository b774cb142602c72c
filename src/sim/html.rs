// SPDX-License-Identifier: GPL-2.0-only
//! A report as one page that needs nothing else: verdict, table, curves, bars, a timeline of CPU lanes with the reasons.
//!
//! Text, tables, bars and sweep charts are plain HTML and SVG; curves and timeline are drawn by a small script from data that
//! lies in the page as JSON.

mod charts;
mod lanes;

use super::report::figures::Better;
use super::report::text::{self, Class};
use super::report::{Report, notes, verdict};
use super::timeline::Timeline;
use serde_json::json;

/// How much of a run the timeline shows if nobody says otherwise, in milliseconds.
pub const TIMELINE_MS: f64 = 20.0;

/// The same for a trace.
pub const TRACE_MS: f64 = 200.0;

/// Colours of policies: told apart by most who see colours differently, too, on light and on dark.
const COLOURS: [&str; 8] =
    ["#4477aa", "#ee7733", "#228833", "#cc3377", "#8a63c9", "#b8860b", "#2ab7ca", "#888888"];

/// The page. `timelines` may be empty.
///
/// # Errors
/// If a number has no JSON form.
pub fn page(
    report: &Report,
    figure: &str,
    timelines: &[(String, Timeline)],
) -> Result<String, serde_json::Error> {
    let plan = &report.plan;
    let title = format!("{}: {}", plan.scenario.name, plan.policies.join(", "));
    let data = json!({
        "policies": plan.policies,
        "colours": COLOURS,
        "charts": charts::curves(report),
        "timelines": lanes::timelines(&plan.scenario, timelines),
    });
    let mut body = head(report, figure);
    if plan.axes.is_empty() {
        body += "<h2>Figures</h2>\n";
        body += &table(report);
        body += "<h2>Latency by percentile</h2>\n<div id=\"curves\"></div>\n";
        body += "<h2>Side by side</h2>\n";
        body += &charts::bars(report);
        if !timelines.is_empty() {
            body += &lanes::section(report, timelines);
        }
    } else {
        body += &charts::sweep(report, figure);
    }
    body += &tail(report);
    // No "<" in the data: nothing in it can end the script element.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n\
         <body>\n{body}<script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
        escape(&title),
        include_str!("html/page.css"),
        include_str!("html/page.js"),
    ))
}

/// Text as HTML takes it.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

/// The colour of a policy, by its place in the plan.
fn colour_of(report: &Report, policy: &str) -> &'static str {
    let place = report.plan.policies.iter().position(|name| name == policy).unwrap_or(0);
    COLOURS[place % COLOURS.len()]
}

fn head(report: &Report, figure: &str) -> String {
    let s = &report.plan.scenario;
    let mut out = format!("<h1>{}</h1>\n<p>{}</p>\n", escape(&s.name), escape(&s.about));
    let lines = verdict::lines(report, figure);
    if !lines.is_empty() {
        let lines: String = lines.iter().map(|line| format!("<p>{}</p>", escape(line))).collect();
        out += &format!("<div class=\"verdict\">{lines}</div>\n");
    }
    let facts = text::about(&report.plan);
    let facts: Vec<String> = facts.iter().skip(1).map(|line| escape(line)).collect();
    out += &format!("<p class=\"dim\">{}</p>\n", facts.join("<br>\n"));
    for note in notes::notes(report) {
        out += &format!("<p class=\"note\">Note: {}</p>\n", escape(&note));
    }
    out
}

fn table(report: &Report) -> String {
    let table = text::table(report);
    let heads: String = table.columns.iter().map(|c| format!("<th>{}</th>", escape(&c.head))).collect();
    let mut out = format!("<div class=\"wide\"><table>\n<tr><th></th>{heads}</tr>\n");
    for (row, title) in table.titles.iter().enumerate() {
        out += &format!("<tr><td>{}</td>", escape(title));
        for column in &table.columns {
            let entry = &column.entries[row];
            let class = match entry.class {
                Class::Plain => "",
                Class::Good => " class=\"good\"",
                Class::Bad => " class=\"bad\"",
                Class::Noise => " class=\"noise\"",
            };
            let ratio = if entry.ratio.is_empty() { String::new() } else { format!(" ({})", entry.ratio) };
            out += &format!("<td{class}>{}{}</td>", escape(&entry.value), escape(&ratio));
        }
        out += "</tr>\n";
    }
    out + "</table></div>\n<p class=\"dim\">In brackets: of the first policy's, mean over pairs of runs. ~: within noise (1 is in \
           the 95 % interval).</p>\n"
}

fn tail(report: &Report) -> String {
    let plan = &report.plan;
    let sets: String = plan.sets.iter().map(|set| format!("\n# --set {set}")).collect();
    format!(
        "<h2>Again</h2>\n<pre>{}</pre>\n<details><summary>The scenario</summary><pre>{}{}</pre></details>\n\
         <p class=\"dim\">hearth {}. A simulation: it models caches and scheduling, it is no measurement of hardware.</p>\n",
        escape(&plan.command),
        escape(plan.source.trim_end()),
        escape(&sets),
        escape(&report.hearth),
    )
}

/// Whether a figure's larger values are the better ones, in a word.
fn direction(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "",
    }
}
