// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's numbers as one line for people. Made from JSON, since a monitor may watch an older or a newer daemon:
//! what is absent is shown as `-`.

use serde_json::Value;

/// Columns that are always shown: label and key.
const COLUMNS: [(&str, &str); 9] = [
    ("forwarded", "forwarded"),
    ("committed", "committed"),
    ("retried", "retried"),
    ("stale", "stale"),
    ("recalled", "recalled"),
    ("fallback", "fallback"),
    ("in kernel", "in_kernel"),
    ("bypassed", "bypassed"),
    ("taken over", "taken_over"),
];

/// What happened per second between two reports.
#[must_use]
pub fn rates(now: &Value, before: &Value) -> String {
    let seconds = grown(now, before, "/at_ns").map(|ns| ns / 1e9).filter(|s| *s > 0.0);
    let rate = |pointer: &str| {
        let count = grown(now, before, pointer).zip(seconds).map(|(count, seconds)| count / seconds);
        count.map_or("-".into(), |rate| format!("{}/s", short(rate)))
    };
    let mut line = String::new();
    for (label, key) in COLUMNS {
        line += &format!("{label} {:>7}  ", rate(&format!("/{key}")));
    }
    let busy = grown(now, before, "/dispatcher/cpu_us").zip(seconds);
    let busy = busy.map_or("-".into(), |(us, seconds)| format!("{:.1}%", us / seconds / 1e4));
    let (near, far) = (rate("/migrations_llc"), rate("/migrations_cross_llc"));
    line + &format!("moved {near:>7} in LLC, {far:>7} across  dispatcher {busy:>5} of a CPU")
}

/// What happened in all.
#[must_use]
pub fn totals(report: &Value) -> String {
    let count = |key: &str| report.get(key).and_then(Value::as_f64).map_or("-".into(), short);
    let columns: Vec<String> = COLUMNS.iter().map(|(label, key)| format!("{label} {}", count(key))).collect();
    let (near, far) = (count("migrations_llc"), count("migrations_cross_llc"));
    format!("{}, moved {near} in LLC and {far} across", columns.join(", "))
}

/// By how much a counter has grown; none if it is not in both, or has gone back (another daemon).
fn grown(now: &Value, before: &Value, pointer: &str) -> Option<f64> {
    let number = |value: &Value| value.pointer(pointer).and_then(Value::as_f64).filter(|n| n.is_finite());
    let (now, before) = (number(now)?, number(before)?);
    (now >= before).then_some(now - before)
}

/// At most six characters: `0`, `0.3`, `42`, `9999`, `12.3k`, `18.4E`.
fn short(number: f64) -> String {
    if number > 0.0 && number < 9.95 && number.fract() != 0.0 {
        return format!("{:.1}", number.max(0.1));
    }
    if number < 9999.5 {
        return format!("{number:.0}");
    }
    let mut scaled = number;
    let mut unit = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if scaled < 999.5 {
            break;
        }
        scaled /= 1000.0;
        unit = next;
    }
    if scaled < 99.95 { format!("{scaled:.1}{unit}") } else { format!("{scaled:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_stay_short() {
        for (number, text) in [
            (0.0, "0"),
            (0.01, "0.1"),
            (1.0, "1"),
            (9.96, "10"),
            (9999.4, "9999"),
            (9999.6, "10.0k"),
            (123_456.0, "123k"),
            (999_700.0, "1.0M"),
            (18_446_744_073_709_551_615.0, "18.4E"),
        ] {
            assert_eq!(short(number), text, "{number}");
        }
    }

    #[test]
    fn rates_are_per_second() {
        let before = json!({"at_ns": 1_000_000_000u64, "forwarded": 100, "dispatcher": {"cpu_us": 0}});
        let now = json!({"at_ns": 3_000_000_000u64, "forwarded": 300, "dispatcher": {"cpu_us": 500_000}});
        let line = rates(&now, &before);
        assert!(line.starts_with("forwarded   100/s  committed       -  "), "{line}");
        assert!(line.ends_with("dispatcher 25.0% of a CPU"), "{line}");
    }

    #[test]
    fn c61_odd_frames_are_shown_with_dashes() {
        let good = json!({"at_ns": 1_000_000_000u64, "forwarded": 5, "stale": 1});
        for odd in [
            json!(null),
            json!([]),
            json!({}),
            json!({"at_ns": "NaN", "forwarded": null, "stale": {}}),
            json!({"at_ns": 1_000_000_000u64, "forwarded": 6, "unknown": 1}),
            json!({"at_ns": 0, "forwarded": 0}),
        ] {
            assert!(rates(&odd, &good).starts_with("forwarded       -  "), "{odd}");
            assert!(!rates(&good, &odd).contains("NaN"), "{odd}");
            assert!(totals(&odd).starts_with("forwarded "), "{odd}");
        }
        let huge = json!({"at_ns": 2_000_000_000u64, "forwarded": u64::MAX, "stale": 0});
        let line = rates(&huge, &good);
        assert!(line.starts_with("forwarded 18.4E/s") && line.contains("stale       -"), "{line}");
    }
}
