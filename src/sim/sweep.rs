// SPDX-License-Identifier: GPL-2.0-only
//! Sweeps: what varies, and the tables of what came out.

use super::report::figures::describe;
use super::report::text::{Column, Look, Table, entry};
use super::report::{Axis, Report};
use super::scenario::Problem;

/// One or two things can vary: tables and charts of more cannot be read.
pub const MAX_AXES: usize = 2;

/// Values on an axis.
const MAX_VALUES: usize = 1000;

/// Reads `KEY=VALUE,VALUE,...`. Commas inside brackets, braces or quotes do not separate.
///
/// # Errors
/// If it has another form, or names a value twice.
pub fn parse_axis(text: &str) -> Result<Axis, Problem> {
    let form = "give it as KEY=VALUE,VALUE,... (a key of the scenario, or POLICY:PARAMETER)";
    let (key, list) = text.split_once('=').ok_or_else(|| Problem::new(text, form))?;
    let values: Vec<String> = split(list).iter().map(|value| value.trim().to_string()).collect();
    if key.trim().is_empty() || values.iter().any(String::is_empty) {
        return Err(Problem::new(text, form));
    }
    if values.len() > MAX_VALUES {
        return Err(Problem::new(key, format!("{} values: give at most {MAX_VALUES}", values.len())));
    }
    if let Some((i, value)) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        return Err(Problem::new(
            key,
            format!("{value} is given twice (the second time as number {})", i + 1),
        ));
    }
    Ok(Axis { key: key.trim().into(), values })
}

/// Splits at commas that are not inside brackets, braces or quotes.
fn split(list: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quoted) = (vec![String::new()], 0i32, false);
    for c in list.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// A policy parameter that an axis varies: `POLICY:PARAMETER`. None: it is a key of the scenario.
#[must_use]
pub fn policy_param(key: &str) -> Option<(&str, &str)> {
    key.split_once(':')
}

/// Which part of an experiment is to be done: `i/n`, i from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(i, n)| Some((i.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
        match parts {
            Some((i, n)) if (1..=n).contains(&i) => Ok(Self { index: i - 1, of: n }),
            _ => Err("give it as I/N, I from 1 to N (a job array: --shard $ID/$COUNT)".into()),
        }
    }
}

impl Shard {
    /// Is the job with this number in it? Neighbours go to different shards, so that all take about as long.
    #[must_use]
    pub fn has(self, job: usize) -> bool {
        job % self.of == self.index
    }
}

/// The tables of a sweep: with one axis, policies side by side; with two, a heat map a policy.
#[must_use]
pub fn tables(report: &Report, figure: &str, look: Look) -> Vec<String> {
    let Some((title, unit, _)) = describe(figure) else { return Vec::new() };
    let sign = if unit.sign().is_empty() { String::new() } else { format!(" in {}", unit.sign()) };
    let mut out = vec![format!("{title}{sign}, all runs of a point together")];
    match report.plan.axes.as_slice() {
        [axis] => out.extend(side_by_side(report, axis, figure, look)),
        [rows, columns] => {
            for policy in &report.plan.policies {
                out.push(String::new());
                out.push(format!("{policy}: {} down, {} across", rows.key, columns.key));
                out.extend(heat_map(report, policy, (rows, columns), figure, look));
            }
        }
        _ => {}
    }
    out.push(String::new());
    out
}

fn side_by_side(report: &Report, axis: &Axis, figure: &str, look: Look) -> Vec<String> {
    let column = |policy: &String| {
        let cells = axis.values.iter().map(|value| report.cell(std::slice::from_ref(value), policy));
        Column { head: policy.clone(), entries: cells.map(|cell| entry(report, cell, figure)).collect() }
    };
    let columns = report.plan.policies.iter().map(column).collect();
    Table { corner: axis.key.clone(), titles: axis.values.clone(), columns }.lines(look)
}

fn heat_map(
    report: &Report,
    policy: &str,
    (down, across): (&Axis, &Axis),
    figure: &str,
    look: Look,
) -> Vec<String> {
    let column = |value: &String| {
        let cells = down.values.iter().map(|row| report.cell(&[row.clone(), value.clone()], policy));
        Column { head: value.clone(), entries: cells.map(|cell| entry(report, cell, figure)).collect() }
    };
    let columns = across.values.iter().map(column).collect();
    Table { corner: String::new(), titles: down.values.clone(), columns }.lines(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_split_where_a_value_ends() {
        let values = |text: &str| parse_axis(text).map(|axis| axis.values);
        assert_eq!(values("machine.llcs=1, 2,4").unwrap(), ["1", "2", "4"]);
        assert_eq!(
            values("a={ exp_us = 1, b = 2 },[1,2],\"0-3,8\"").unwrap(),
            ["{ exp_us = 1, b = 2 }", "[1,2]", "\"0-3,8\""]
        );
        for (text, words) in [
            ("a", "KEY=VALUE"),
            ("a=1,,2", "KEY=VALUE"),
            ("=1", "KEY=VALUE"),
            ("a=1,2,1", "1 is given twice"),
        ] {
            assert!(parse_axis(text).unwrap_err().to_string().contains(words), "{text}");
        }
        assert_eq!(policy_param("warm:warm_cpu_us"), Some(("warm", "warm_cpu_us")));
        assert_eq!(policy_param("machine.llcs"), None);
    }

    #[test]
    fn shards_take_every_job_once() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 1, of: 3 }));
        for text in ["0/3", "4/3", "1", "1/0", "a/b", "-1/2"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        for job in 0..20 {
            assert_eq!((0..3).filter(|&index| Shard { index, of: 3 }.has(job)).count(), 1);
        }
    }
}
