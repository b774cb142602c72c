// SPDX-License-Identifier: GPL-2.0-only
//! Measurements as plain text tables.

use serde_json::{Map, Value};
use std::fmt;

type Row = Map<String, Value>;

/// Percentiles of `schbench` rows that are compared.
const PERCENTILES: [&str; 3] = ["p50_us", "p99_us", "p999_us"];
/// The scheduler that others are compared with.
const BASELINE: &str = "default";

/// Column heads and rows of equal length.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.heads).chain(&self.rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        for line in lines {
            // Numbers line up at the right, words at the left.
            let cell = |(text, width): (&String, &usize)| {
                let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                if is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
            };
            let cells: Vec<String> = line.iter().zip(&widths).map(cell).collect();
            writeln!(f, "  {}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// One table for each set of keys, in the order of first appearance; places that do not vary are left out.
pub fn plain(rows: &[Row]) -> Vec<Table> {
    let fixed = |key: &str| {
        matches!(key, "kernel" | "topology" | "clock" | "boot")
            && rows.iter().all(|row| row.get(key) == rows[0].get(key))
    };
    let mut tables: Vec<Table> = Vec::new();
    for row in rows {
        let heads: Vec<String> = row.keys().filter(|key| !fixed(key)).cloned().collect();
        let cells = heads.iter().map(|key| text(row.get(key))).collect();
        match tables.iter_mut().find(|table| table.heads == heads) {
            Some(table) => table.rows.push(cells),
            None => tables.push(Table { heads, rows: vec![cells] }),
        }
    }
    tables
}

/// Whether a row is a wakeup-latency measurement as `schbench_run` of the guest library writes it.
pub fn is_schbench(row: &Row) -> bool {
    row.get("kind").and_then(Value::as_str) == Some("schbench")
}

/// Medians over boots and runs for each scheduler and thread count, beside the kernel's default.
pub fn schbench(rows: &[Row]) -> Option<Table> {
    let cells = medians(rows);
    if cells.is_empty() {
        return None;
    }
    let heads = [
        "topology",
        "threads",
        "scheduler",
        "runs",
        "p50_us",
        "p99_us",
        "p99.9_us",
        "p50/default",
        "p99/default",
    ];
    let mut table = Table { heads: heads.map(str::to_string).to_vec(), rows: Vec::new() };
    for cell in &cells {
        let base = cells.iter().find(|other| {
            other.sched == BASELINE && (&other.topology, other.threads) == (&cell.topology, cell.threads)
        });
        let relative = |index: usize| match base.map(|base| base.median[index]) {
            Some(base) if base > 0.0 => format!("{:.2}", cell.median[index] / base),
            _ => "-".to_string(),
        };
        let mut row =
            vec![cell.topology.clone(), cell.threads.to_string(), cell.sched.clone(), cell.runs.to_string()];
        row.extend(cell.median.iter().map(|value| format!("{value:.0}")));
        row.extend([relative(0), relative(1)]);
        table.rows.push(row);
    }
    Some(table)
}

/// The median latencies of one scheduler under one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Where.
    pub topology: String,
    /// Worker threads.
    pub threads: u64,
    /// Who.
    pub sched: String,
    /// How many runs the medians are over.
    pub runs: usize,
    /// p50, p99 and p99.9 in microseconds.
    pub median: [f64; 3],
}

/// Medians of the `schbench` rows among these; run 0 is the warm-up and is left out. Sorted by topology and threads; schedulers keep the
/// order of the run.
pub fn medians(rows: &[Row]) -> Vec<Cell> {
    let key = |row: &Row| {
        let threads = row.get("threads").and_then(Value::as_u64).unwrap_or(0);
        (text(row.get("topology")), threads, text(row.get("sched")))
    };
    let measured: Vec<&Row> = rows
        .iter()
        .filter(|row| is_schbench(row) && row.get("run").and_then(Value::as_u64) != Some(0))
        .collect();
    let mut keys = Vec::new();
    for row in &measured {
        if !keys.contains(&key(row)) {
            keys.push(key(row));
        }
    }
    keys.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let cell = |key_of_cell: (String, u64, String)| {
        let here: Vec<&&Row> = measured.iter().filter(|row| key(row) == key_of_cell).collect();
        let values =
            |name: &str| here.iter().filter_map(|row| row.get(name).and_then(Value::as_f64)).collect();
        let (topology, threads, sched) = key_of_cell;
        Cell {
            topology,
            threads,
            sched,
            runs: here.len(),
            median: PERCENTILES.map(|name| median(values(name))),
        }
    };
    keys.into_iter().map(cell).collect()
}

/// The middle value; the mean of the two middle ones of an even count; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Row> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn medians_leave_the_warm_up_out() {
        let rows = rows(
            r#"{"kind":"schbench","topology":"2x2","sched":"default","threads":16,"run":1,"p50_us":20,"p99_us":40,"p999_us":9}
{"kind":"schbench","topology":"2x2","sched":"default","threads":1,"run":0,"p50_us":900,"p99_us":900,"p999_us":900}
{"kind":"schbench","topology":"2x2","sched":"default","threads":1,"run":1,"p50_us":10,"p99_us":40,"p999_us":70}
{"kind":"schbench","topology":"2x2","sched":"default","threads":1,"run":2,"p50_us":20,"p99_us":30,"p999_us":50}
{"kind":"schbench","topology":"2x2","sched":"hearth","threads":1,"run":1,"p50_us":30,"p99_us":70,"p999_us":80}"#,
        );
        let cells = medians(&rows);
        assert_eq!(cells[0].median, [15.0, 35.0, 60.0]);
        assert_eq!((cells[1].sched.as_str(), cells[2].threads), ("hearth", 16));
        let shown = schbench(&rows).unwrap().to_string();
        let line = shown.lines().find(|line| line.contains("hearth")).unwrap();
        assert!(line.ends_with("2.00         2.00"), "{shown}");
    }

    #[test]
    fn plain_tables_follow_the_keys() {
        let rows = rows(
            "{\"boot\":1,\"kind\":\"a\",\"n\":1}\n{\"boot\":1,\"kind\":\"b\",\"n\":22}\n{\"boot\":1,\"m\":null}",
        );
        let tables = plain(&rows);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].to_string(), "  kind  n\n  a      1\n  b     22\n");
        assert_eq!(tables[1].rows, [["-"]]);
        assert!(plain(&[]).is_empty() && schbench(&[]).is_none());
    }

    #[test]
    fn middle_of_lists() {
        assert_eq!([median(vec![]), median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])], [0.0, 2.0, 2.5]);
    }
}
