// SPDX-License-Identifier: GPL-2.0-only
//! A report as text: the verdict first, then a table with a row a figure and a column a policy.

use super::figures::{Better, GROUP_METRICS, METRICS, Unit, describe};
use super::{Cell, Plan, Report, notes::notes, verdict};
use crate::sim::compare::{Estimate, Says};

/// How text is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// With colours (ANSI).
    pub colour: bool,
    /// Columns of the terminal; none: as wide as it needs to be.
    pub columns: Option<usize>,
}

/// Reasons that are shown of each policy.
const TOP_REASONS: usize = 4;

/// Bold, green, red, dim, and back.
const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

impl Look {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("{code}{text}{RESET}") } else { text.into() }
    }
}

/// A piece of text with its colour, padded by what is seen of it.
pub(crate) struct Tile {
    text: String,
    code: &'static str,
}

impl Tile {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: "" }
    }
}

/// The whole report.
#[must_use]
pub fn render(report: &Report, figure: &str, look: Look) -> String {
    let mut out: Vec<String> =
        verdict::lines(report, figure).iter().map(|line| look.paint(BOLD, line)).collect();
    out.push(String::new());
    out.extend(about(&report.plan));
    out.push(String::new());
    if report.plan.axes.is_empty() {
        let cells: Vec<&Cell> = report.cells.iter().collect();
        out.extend(comparison(report, &cells, look));
    } else {
        out.extend(super::super::sweep::tables(report, figure, look));
    }
    for note in notes(report) {
        out.push(format!("note: {note}"));
    }
    out.push(format!("again: {}", report.plan.command));
    out.join("\n")
}

/// What was simulated, in three lines.
fn about(plan: &Plan) -> Vec<String> {
    let s = &plan.scenario;
    let machine = s.machine.topology(&[]).map_or_else(|e| e.to_string(), |t| t.to_string());
    let last = plan.seed.wrapping_add(plan.runs.saturating_sub(1));
    let seeds = if plan.runs == 1 { format!("seed {last}") } else { format!("seeds {} to {last}", plan.seed) };
    let runs = if plan.runs == 1 { "1 run".into() } else { format!("{} runs", plan.runs) };
    let mut lines = vec![format!("{}: {}", s.name, s.about)];
    if !s.lesson.is_empty() {
        lines.push(format!("lesson: {}", s.lesson));
    }
    lines.push(format!("machine: {machine}"));
    lines.push(format!("{runs} a policy, {} ms each after {} ms of warm-up, {seeds}", s.duration_ms, s.warmup_ms));
    if !plan.sets.is_empty() {
        lines.push(format!("changed: {}", plan.sets.join("  ")));
    }
    lines
}

/// The comparison table: in several parts, if the terminal is narrow.
fn comparison(report: &Report, cells: &[&Cell], look: Look) -> Vec<String> {
    let Some((base, others)) = cells.split_first() else { return vec!["no run has ended".into()] };
    let rows = rows(base);
    let titles: Vec<String> = rows.iter().map(|row| row.title.clone()).collect();
    let first = column(report, base, &rows);
    let mut parts: Vec<Vec<Vec<Tile>>> = vec![Vec::new()];
    let left = width(&titles) + 2 + tile_width(&first);
    let mut used = left;
    for cell in others {
        let tiles = column(report, cell, &rows);
        let wide = tile_width(&tiles) + 2;
        if look.columns.is_some_and(|columns| used + wide > columns) && parts.last().is_some_and(|p| !p.is_empty()) {
            parts.push(Vec::new());
            used = left;
        }
        used += wide;
        if let Some(part) = parts.last_mut() {
            part.push(tiles);
        }
    }
    let mut out = Vec::new();
    for part in &parts {
        let columns: Vec<&Vec<Tile>> = std::iter::once(&first).chain(part).collect();
        out.extend(grid(&titles, &columns, look));
        out.push(String::new());
    }
    if !others.is_empty() && cells.iter().any(|cell| cell.runs.len() > 1) {
        out.push(look.paint(DIM, &format!("0.80x: of {}'s, mean over pairs of runs; ~: within noise (1 is in the 95 % interval)", base.policy)));
    }
    out.extend(reasons(cells));
    out.push(String::new());
    out
}

/// A row of the table: a figure.
struct Row {
    figure: String,
    title: String,
    unit: Unit,
    better: Better,
}

fn rows(base: &Cell) -> Vec<Row> {
    let mut names: Vec<String> = METRICS.iter().map(|m| m.name.to_string()).collect();
    if base.merged.groups.len() > 1 {
        for group in &base.merged.groups {
            names.extend(GROUP_METRICS.iter().map(|m| format!("{}.{}", group.name, m.name)));
        }
    }
    let present = names.into_iter().filter(|name| base.figure(name).is_some());
    let row = |figure: String| {
        let (title, unit, better) = describe(&figure)?;
        let sign = if unit.sign().is_empty() { String::new() } else { format!(" {}", unit.sign()) };
        Some(Row { title: format!("{title}{sign}"), figure, unit, better })
    };
    present.filter_map(row).collect()
}

/// A policy's column: its name, then a value a row, with the ratio to the first policy's.
fn column(report: &Report, cell: &Cell, rows: &[Row]) -> Vec<Tile> {
    let is_base = report.plan.policies.first() == Some(&cell.policy);
    let figures = super::figures::figures(&cell.merged);
    let values: Vec<String> =
        rows.iter().map(|row| figures.get(&row.figure).map_or("-".into(), |v| row.unit.show(*v))).collect();
    let wide = width(&values);
    let head = Tile { text: cell.policy.clone(), code: BOLD };
    let tile = |(row, value): (&Row, &String)| {
        if is_base {
            return Tile::plain(format!("{value:>wide$}"));
        }
        match report.ratio(cell, &row.figure) {
            Some(ratio) => Tile { text: format!("{value:>wide$} {:>7}", short(&ratio)), code: colour(&ratio, row.better) },
            None => Tile::plain(format!("{value:>wide$} {:7}", "")),
        }
    };
    std::iter::once(head).chain(rows.iter().zip(&values).map(tile)).collect()
}

/// A ratio in a table: `0.82x`, `0.98x~` within noise.
pub(crate) fn short(ratio: &Estimate) -> String {
    let noise = if ratio.says() == Says::WithinNoise { "~" } else { " " };
    if ratio.mean >= 99.5 { format!("{:.0}x{noise}", ratio.mean) } else { format!("{:.2}x{noise}", ratio.mean) }
}

/// The colour of a ratio: green for better, red for worse, beyond noise.
pub(crate) fn colour(ratio: &Estimate, better: Better) -> &'static str {
    match (ratio.says(), better) {
        (Says::Less, Better::Lower) | (Says::More, Better::Higher) => GREEN,
        (Says::More, Better::Lower) | (Says::Less, Better::Higher) => RED,
        (Says::WithinNoise, _) => DIM,
        _ => "",
    }
}

/// Lines of a grid: titles to the left, then columns with their heads, aligned to the right.
pub(crate) fn grid(titles: &[String], columns: &[&Vec<Tile>], look: Look) -> Vec<String> {
    let left = width(titles);
    let widths: Vec<usize> = columns.iter().map(|column| tile_width(column)).collect();
    let line = |title: &str, row: usize| {
        let mut line = format!("{title:left$}");
        for (column, wide) in columns.iter().zip(&widths) {
            let tile = &column[row];
            let pad = " ".repeat(wide.saturating_sub(tile.text.chars().count()) + 2);
            line += &pad;
            line += &if tile.code.is_empty() { tile.text.clone() } else { look.paint(tile.code, &tile.text) };
        }
        line.trim_end().to_string()
    };
    let head = std::iter::once(line("", 0));
    head.chain(titles.iter().enumerate().map(|(i, title)| line(title, i + 1))).collect()
}

pub(crate) fn tile(text: impl Into<String>, code: &'static str) -> Tile {
    Tile { text: text.into(), code }
}

fn width(texts: &[String]) -> usize {
    texts.iter().map(|text| text.chars().count()).max().unwrap_or(0)
}

fn tile_width(tiles: &[Tile]) -> usize {
    tiles.iter().map(|tile| tile.text.chars().count()).max().unwrap_or(0)
}

/// Why tasks went where they went: the commonest reasons of each policy.
fn reasons(cells: &[&Cell]) -> Vec<String> {
    let wide = cells.iter().map(|cell| cell.policy.chars().count()).max().unwrap_or(0);
    let line = |cell: &&Cell| {
        let shares = shares_by_reason(cell);
        let top: Vec<String> =
            shares.iter().take(TOP_REASONS).map(|(name, pct)| format!("{} {pct:.1} %", name.replace('_', " "))).collect();
        let rest: f64 = shares.iter().skip(TOP_REASONS).map(|(_, pct)| pct).sum();
        let rest = if rest >= 0.05 { format!(", other {rest:.1} %") } else { String::new() };
        (!top.is_empty()).then(|| format!("  {:wide$}  {}{rest}", cell.policy, top.join(", ")))
    };
    let lines: Vec<String> = cells.iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { std::iter::once("decisions by reason:".to_string()).chain(lines).collect() }
}

/// The share of decisions by reason, in percent, the largest first.
#[must_use]
pub fn shares_by_reason(cell: &Cell) -> Vec<(String, f64)> {
    let Ok(serde_json::Value::Object(counts)) = serde_json::to_value(&cell.merged.stats.reasons) else {
        return Vec::new();
    };
    let mut counts: Vec<(String, u64)> =
        counts.into_iter().filter_map(|(name, n)| Some((name, n.as_u64().filter(|n| *n > 0)?))).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let all: u64 = counts.iter().map(|(_, n)| n).sum();
    counts.into_iter().map(|(name, n)| (name, 100.0 * n as f64 / all as f64)).collect()
}
