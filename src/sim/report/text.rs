// SPDX-License-Identifier: GPL-2.0-only
//! A report as text: the verdict first, then a table with a row a figure and a column a policy.

use super::figures::{Better, GROUP_METRICS, METRICS, describe};
use super::{Cell, Plan, Report, notes::notes, verdict};
use crate::sim::compare::{Estimate, Says};
use crate::sim::sweep;

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

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

impl Look {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && !code.is_empty() { format!("{code}{text}{RESET}") } else { text.into() }
    }
}

/// What is to be thought of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Nothing.
    #[default]
    Plain,
    /// Better than the first policy's, beyond noise.
    Good,
    /// Worse, beyond noise.
    Bad,
    /// Not different beyond noise.
    Noise,
}

/// One value of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: String,
    /// Its ratio to the first policy's, if there is one.
    pub ratio: String,
    /// What is to be thought of it.
    pub class: Class,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub head: String,
    /// Its values, one for each title.
    pub entries: Vec<Entry>,
}

/// A table: titles to the left, columns beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What is in the upper left corner.
    pub corner: String,
    /// One for each row.
    pub titles: Vec<String>,
    /// The columns.
    pub columns: Vec<Column>,
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
        out.extend(table(report).lines(look));
        if report.cells.len() > 1 && report.cells.iter().any(|cell| cell.runs.len() > 1) {
            let base = &report.cells[0].policy;
            let legend = format!(
                "0.80x: of {base}'s, mean over pairs of runs; ~: within noise (1 is in the 95 % interval)"
            );
            out.push(look.paint(DIM, &legend));
        }
        out.push(String::new());
        out.extend(reasons(&report.cells));
        out.push(String::new());
    } else {
        out.extend(sweep::tables(report, figure, look));
    }
    out.extend(notes(report).into_iter().map(|note| format!("note: {note}")));
    out.push(format!("again: {}", report.plan.command));
    out.join("\n")
}

/// What was simulated, in a few lines.
#[must_use]
pub fn about(plan: &Plan) -> Vec<String> {
    let s = &plan.scenario;
    let machine = s.machine.topology(&[]).map_or_else(|e| e.to_string(), |t| t.to_string());
    let last = plan.seed.wrapping_add(plan.runs.saturating_sub(1));
    let seeds =
        if plan.runs == 1 { format!("seed {last}") } else { format!("seeds {} to {last}", plan.seed) };
    let runs = if plan.runs == 1 { "1 run".into() } else { format!("{} runs", plan.runs) };
    let mut lines = vec![format!("{}: {}", s.name, s.about)];
    if !s.lesson.is_empty() {
        lines.push(format!("lesson: {}", s.lesson));
    }
    lines.push(format!("machine: {machine}"));
    lines.push(format!(
        "{runs} a policy, {} ms each after {} ms of warm-up, {seeds}",
        s.duration_ms, s.warmup_ms
    ));
    if !plan.sets.is_empty() {
        lines.push(format!("changed: {}", plan.sets.join("  ")));
    }
    lines
}

/// The figures of a comparison, a column a policy.
#[must_use]
pub fn table(report: &Report) -> Table {
    let Some(base) = report.cells.first() else { return Table::default() };
    let mut names: Vec<String> = METRICS.iter().map(|m| m.name.to_string()).collect();
    if base.merged.groups.len() > 1 {
        for group in &base.merged.groups {
            names.extend(GROUP_METRICS.iter().map(|m| format!("{}.{}", group.name, m.name)));
        }
    }
    let has = |name: &&String| report.cells.iter().any(|cell| cell.figure(name).is_some());
    let names: Vec<String> = names.iter().filter(has).cloned().collect();
    let title = |name: &String| {
        describe(name)
            .map_or_else(String::new, |(title, unit, _)| format!("{title} {}", unit.sign()).trim_end().into())
    };
    let column = |cell: &Cell| Column {
        head: cell.policy.clone(),
        entries: names.iter().map(|name| entry(report, Some(cell), name)).collect(),
    };
    Table {
        corner: String::new(),
        titles: names.iter().map(title).collect(),
        columns: report.cells.iter().map(column).collect(),
    }
}

/// A figure of a cell, with its ratio to the first policy's at the same point.
#[must_use]
pub fn entry(report: &Report, cell: Option<&Cell>, figure: &str) -> Entry {
    let found = cell.and_then(|cell| Some((cell, cell.figure(figure)?, describe(figure)?)));
    let Some((cell, value, (_, unit, better))) = found else {
        return Entry { value: "-".into(), ..Entry::default() };
    };
    let is_base = report.plan.policies.first() == Some(&cell.policy);
    let ratio = if is_base { None } else { report.ratio(cell, figure) };
    Entry {
        value: unit.show(value),
        ratio: ratio.map_or_else(String::new, |ratio| short(&ratio)),
        class: ratio.map_or(Class::Plain, |ratio| class(&ratio, better)),
    }
}

/// A ratio in a table: `0.82x`, `0.98x~` within noise.
fn short(ratio: &Estimate) -> String {
    let noise = if ratio.says() == Says::WithinNoise { "~" } else { "" };
    if ratio.mean >= 99.5 {
        format!("{:.0}x{noise}", ratio.mean)
    } else {
        format!("{:.2}x{noise}", ratio.mean)
    }
}

fn class(ratio: &Estimate, better: Better) -> Class {
    match (ratio.says(), better) {
        (Says::Less, Better::Lower) | (Says::More, Better::Higher) => Class::Good,
        (Says::More, Better::Lower) | (Says::Less, Better::Higher) => Class::Bad,
        (Says::WithinNoise, _) => Class::Noise,
        _ => Class::Plain,
    }
}

impl Table {
    /// As lines; in several parts, each beginning with the first column, if the terminal is too narrow for all columns.
    #[must_use]
    pub fn lines(&self, look: Look) -> Vec<String> {
        let Some((first, others)) = self.columns.split_first() else {
            return vec!["no run has ended".into()];
        };
        let left = self.titles.iter().chain([&self.corner]).map(|t| t.chars().count()).max().unwrap_or(0);
        let mut parts: Vec<Vec<&Column>> = vec![vec![first]];
        let mut used = left + first.width() + 2;
        for column in others {
            let wide = column.width() + 2;
            let full = look.columns.is_some_and(|columns| used + wide > columns);
            if full && parts.last().is_some_and(|part| part.len() > 1) {
                parts.push(vec![first]);
                used = left + first.width() + 2;
            }
            used += wide;
            if let Some(part) = parts.last_mut() {
                part.push(column);
            }
        }
        let mut out = Vec::new();
        for part in &parts {
            if !out.is_empty() {
                out.push(String::new());
            }
            let heads = part.iter().map(|c| format!("  {}", look.paint(BOLD, &pad(&c.head, c.width()))));
            out.push(format!("{:left$}{}", self.corner, heads.collect::<String>()));
            for (row, title) in self.titles.iter().enumerate() {
                let cells = part.iter().map(|c| format!("  {}", c.show(row, look)));
                out.push(format!("{title:left$}{}", cells.collect::<String>()).trim_end().into());
            }
        }
        out
    }
}

/// Right-aligned.
fn pad(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

impl Column {
    fn widths(&self) -> (usize, usize) {
        let most =
            |of: fn(&Entry) -> &str| self.entries.iter().map(|e| of(e).chars().count()).max().unwrap_or(0);
        (most(|e| &e.value), most(|e| &e.ratio))
    }

    fn width(&self) -> usize {
        let (value, ratio) = self.widths();
        let both = if ratio > 0 { value + 1 + ratio } else { value };
        both.max(self.head.chars().count())
    }

    fn show(&self, row: usize, look: Look) -> String {
        let (_, ratio) = self.widths();
        let Entry { value, ratio: text, class } = &self.entries[row];
        let code = match class {
            Class::Plain => "",
            Class::Good => GREEN,
            Class::Bad => RED,
            Class::Noise => DIM,
        };
        // "~" stands to the right of the digits of all rows.
        let digits = text.strip_suffix('~');
        let text = match digits {
            Some(_) => pad(text, ratio),
            None if ratio > 0 && self.entries.iter().any(|e| e.ratio.ends_with('~')) => {
                format!("{} ", pad(text, ratio - 1))
            }
            None => pad(text, ratio),
        };
        let both = if ratio > 0 { format!("{value} {text}") } else { value.clone() };
        look.paint(code, &pad(&both, self.width()))
    }
}

/// Why tasks went where they went: the commonest reasons of each policy.
fn reasons(cells: &[Cell]) -> Vec<String> {
    let wide = cells.iter().map(|cell| cell.policy.chars().count()).max().unwrap_or(0);
    let line = |cell: &Cell| {
        let shares = shares_by_reason(cell);
        let top = shares
            .iter()
            .take(TOP_REASONS)
            .map(|(name, pct)| format!("{} {pct:.1} %", name.replace('_', " ")));
        let top: Vec<String> = top.collect();
        let rest: f64 = shares.iter().skip(TOP_REASONS).map(|(_, pct)| pct).sum();
        let rest = if rest >= 0.05 { format!(", other {rest:.1} %") } else { String::new() };
        (!top.is_empty()).then(|| format!("  {:wide$}  {}{rest}", cell.policy, top.join(", ")))
    };
    let mut lines: Vec<String> = cells.iter().filter_map(line).collect();
    if !lines.is_empty() {
        lines.insert(0, "decisions by reason:".into());
    }
    lines
}

/// The share of decisions by reason, in percent, the largest first.
#[must_use]
pub fn shares_by_reason(cell: &Cell) -> Vec<(String, f64)> {
    let Ok(serde_json::Value::Object(counts)) = serde_json::to_value(&cell.merged.stats.reasons) else {
        return Vec::new();
    };
    let counts = counts.into_iter().filter_map(|(name, n)| Some((name, n.as_u64().filter(|n| *n > 0)?)));
    let mut counts: Vec<(String, u64)> = counts.collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let all: u64 = counts.iter().map(|(_, n)| n).sum();
    counts.into_iter().map(|(name, n)| (name, 100.0 * n as f64 / all as f64)).collect()
}
