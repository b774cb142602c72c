// SPDX-License-Identifier: GPL-2.0-only
//! Curves (as data), bars and sweep charts (as HTML and SVG).

use super::{colour_of, direction, escape};
use crate::sim::report::figures::{Better, Unit, describe};
use crate::sim::report::{Axis, Cell, Report};
use crate::sim::result::Latency;
use serde_json::{Value, json};

/// Points of a curve for each factor of ten on the percentile axis.
const POINTS_PER_DECADE: u32 = 20;

/// Figures that are shown as bars.
const BARS: [&str; 8] = [
    "requests_per_s",
    "work_cpus",
    "utilisation_pct",
    "within_llc_per_wakeup",
    "across_llc_per_wakeup",
    "refill_per_wakeup_ns",
    "regret_per_wakeup_ns",
    "wait_error_ns",
];

/// The latency curves, for the script.
pub(super) fn curves(report: &Report) -> Vec<Value> {
    if !report.plan.axes.is_empty() {
        return Vec::new();
    }
    type Of = fn(&Cell) -> &Latency;
    let charts: [(&str, Of); 2] = [
        ("Requests: from intended start to answer", |cell| &cell.merged.total.request),
        ("Wakeups: from wakeup to running", |cell| &cell.merged.total.wakeup),
    ];
    let chart = |(title, of): (&str, Of)| {
        let lines: Vec<Value> = report
            .cells
            .iter()
            .filter(|cell| of(cell).count() > 0)
            .map(|cell| {
                let policy = report.plan.policies.iter().position(|name| *name == cell.policy);
                json!({ "policy": policy, "points": curve(of(cell)) })
            })
            .collect();
        (!lines.is_empty()).then(|| json!({ "title": title, "lines": lines }))
    };
    charts.into_iter().filter_map(chart).collect()
}

/// Points `[log10(1 / (1 - p)), microseconds]`, up to where one value is left beyond.
fn curve(latency: &Latency) -> Vec<Value> {
    let decades = libm::log10(latency.count() as f64).max(1.0);
    let last = (decades * f64::from(POINTS_PER_DECADE)).ceil() as u32;
    let point = |i: u32| {
        let x = f64::from(i) / f64::from(POINTS_PER_DECADE);
        let percent = 100.0 * (1.0 - libm::pow(10.0, -x));
        json!([x, latency.percentile_ns(percent) as f64 / 1000.0])
    };
    (0..=last).map(point).collect()
}

/// Throughput, migrations, refill, regret: a block a figure, a bar a policy.
pub(super) fn bars(report: &Report) -> String {
    let blocks = BARS.iter().filter_map(|name| {
        let (title, unit, better) = describe(name)?;
        let values: Vec<(&Cell, f64)> =
            report.cells.iter().filter_map(|cell| Some((cell, cell.figure(name)?))).collect();
        let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        if values.is_empty() {
            return None;
        }
        let bars: String = values
            .iter()
            .map(|(cell, value)| {
                let part = if most > 0.0 { 100.0 * value / most } else { 0.0 };
                format!(
                    "<div class=\"bar\">{} {}<div><div style=\"width:{part:.1}%;background:{}\"></div></div></div>\n",
                    escape(&cell.policy),
                    escape(&unit.full(*value)),
                    colour_of(report, &cell.policy)
                )
            })
            .collect();
        Some(format!("<div><h3>{} <span class=\"dim\">{}</span></h3>\n{bars}</div>\n", escape(&title), direction(better)))
    });
    format!("<div class=\"bars\">\n{}</div>\n", blocks.collect::<String>())
}

/// The chart of a sweep: lines over one axis, a heat map a policy over two.
pub(super) fn sweep(report: &Report, figure: &str) -> String {
    let Some((title, unit, better)) = describe(figure) else { return String::new() };
    let mut out = format!("<h2>{} <span class=\"dim\">{}</span></h2>\n", escape(&title), direction(better));
    match report.plan.axes.as_slice() {
        [axis] => out += &lines(report, axis, figure, unit),
        [down, across] => {
            for policy in &report.plan.policies {
                out += &format!(
                    "<h3>{}: {} down, {} across</h3>\n",
                    escape(policy),
                    escape(&down.key),
                    escape(&across.key)
                );
                out += &heat_map(report, policy, (down, across), figure, (unit, better));
            }
        }
        _ => {}
    }
    out
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 50.0;

/// Lines over one axis, with the 95 % interval of a run's figure at each point.
fn lines(report: &Report, axis: &Axis, figure: &str, unit: Unit) -> String {
    let most = report.cells.iter().filter_map(|cell| upper(cell, figure)).fold(0.0, f64::max);
    if most <= 0.0 {
        return "<p>No value.</p>\n".into();
    }
    let steps = axis.values.len().max(2) as f64 - 1.0;
    let x = |i: usize| LEFT + 20.0 + i as f64 / steps * (WIDTH - LEFT - 60.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - 15.0);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escape(figure));
    for part in 0..=4 {
        let value = most * f64::from(part) / 4.0;
        svg += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/><text x=\"{1}\" y=\"{2:.1}\" \
             text-anchor=\"end\">{3}</text>\n",
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            escape(&unit.full(value))
        );
    }
    for (i, value) in axis.values.iter().enumerate() {
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            x(i),
            HEIGHT - BOTTOM + 18.0,
            escape(value)
        );
    }
    svg += &format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        WIDTH / 2.0,
        HEIGHT - 8.0,
        escape(&axis.key)
    );
    for policy in &report.plan.policies {
        svg += &line(report, axis, figure, unit, policy, (&x, &y));
    }
    svg += "</svg>\n";
    let legend: String = report
        .plan
        .policies
        .iter()
        .map(|policy| {
            format!(
                "<span><i style=\"background:{}\"></i>{}</span>\n",
                colour_of(report, policy),
                escape(policy)
            )
        })
        .collect();
    format!("<div class=\"legend\">\n{legend}</div>\n{svg}")
}

/// The top of a cell's whisker.
fn upper(cell: &Cell, figure: &str) -> Option<f64> {
    let mean = cell.mean(figure)?;
    let top = mean.interval.map_or(mean.mean, |(_, high)| high);
    Some(top.max(cell.figure(figure)?))
}

type Scale<'a, T> = &'a dyn Fn(T) -> f64;

fn line(
    report: &Report,
    axis: &Axis,
    figure: &str,
    unit: Unit,
    policy: &str,
    (x, y): (Scale<usize>, Scale<f64>),
) -> String {
    let colour = colour_of(report, policy);
    let mut points = Vec::new();
    let mut marks = String::new();
    for (i, value) in axis.values.iter().enumerate() {
        let Some(cell) = report.cell(std::slice::from_ref(value), policy) else { continue };
        let Some(shown) = cell.figure(figure) else { continue };
        points.push(format!("{:.1},{:.1}", x(i), y(shown)));
        if let Some((low, high)) = cell.mean(figure).and_then(|mean| mean.interval) {
            marks += &format!(
                "<line class=\"whisker\" stroke=\"{colour}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>",
                x(i),
                y(low.max(0.0)),
                y(high)
            );
        }
        marks += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"><title>{}, {}={}: {}</title></circle>\n",
            x(i),
            y(shown),
            escape(policy),
            escape(&axis.key),
            escape(value),
            escape(&unit.full(shown))
        );
    }
    format!("<polyline class=\"curve\" stroke=\"{colour}\" points=\"{}\"/>\n{marks}", points.join(" "))
}

/// A table whose cells are shaded by value.
fn heat_map(
    report: &Report,
    policy: &str,
    (down, across): (&Axis, &Axis),
    figure: &str,
    (unit, better): (Unit, Better),
) -> String {
    let values: Vec<f64> = report.cells.iter().filter_map(|cell| cell.figure(figure)).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let heads: String = across.values.iter().map(|value| format!("<th>{}</th>", escape(value))).collect();
    let mut out = format!("<div class=\"wide\"><table>\n<tr><th></th>{heads}</tr>\n");
    for row in &down.values {
        out += &format!("<tr><td>{}</td>", escape(row));
        for column in &across.values {
            let value =
                report.cell(&[row.clone(), column.clone()], policy).and_then(|cell| cell.figure(figure));
            out += &value.map_or("<td>-</td>".into(), |value| {
                let part = if high > low { (value - low) / (high - low) } else { 0.0 };
                let hue = if better == Better::Higher { 120.0 * part } else { 120.0 * (1.0 - part) };
                format!(
                    "<td style=\"background:hsl({hue:.0} 60% 50% / .35)\">{}</td>",
                    escape(&unit.show(value))
                )
            });
        }
        out += "</tr>\n";
    }
    out + "</table></div>\n"
}
