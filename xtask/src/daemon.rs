// SPDX-License-Identifier: GPL-2.0-only
//! What `scx_hearth --json` prints at its end, as far as reports use it: the one place that knows the names.

use serde_json::{Map, Value};

/// The daemon's statistics.
pub struct Stats<'a>(&'a Map<String, Value>);

impl<'a> Stats<'a> {
    /// The statistics in a result row, if it is one of kind `hearth`.
    pub fn of(row: &'a Map<String, Value>) -> Option<Self> {
        (row.get("kind").and_then(Value::as_str) == Some("hearth")).then_some(Self(row))
    }

    /// Name of the policy.
    pub fn policy(&self) -> &str {
        self.0.get("policy").and_then(Value::as_str).unwrap_or("unknown policy")
    }

    fn count(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// CPUs and last-level-cache domains that the daemon saw.
    pub fn machine(&self) -> (u64, u64) {
        (self.count("cpus"), self.count("llcs"))
    }

    /// What became of wakeups, one line per fact.
    pub fn lines(&self) -> [String; 3] {
        let count = |key| grouped(self.count(key));
        [
            format!(
                "{} forwarded to the dispatcher, {} decided, {} committed ({} retried, {} stale)",
                count("forwarded"),
                count("decided"),
                count("committed"),
                count("retried"),
                count("stale")
            ),
            format!(
                "{} served without it: {} in the kernel by rule, {} by fallback, {} bypassed by the kernel; {} taken over",
                grouped(self.count("in_kernel") + self.count("fallback") + self.count("bypassed")),
                count("in_kernel"),
                count("fallback"),
                count("bypassed"),
                count("taken_over")
            ),
            format!(
                "{} within an LLC domain, {} across domains",
                count("migrations_llc"),
                count("migrations_cross_llc")
            ),
        ]
    }
}

/// A number with its thousands apart: `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn facts_of_a_row() {
        let text = r#"{"kind":"hearth","policy":"fifo","cpus":4,"llcs":2,"forwarded":1200,"decided":1199,"committed":1198,
            "retried":2,"stale":1,"fallback":3,"in_kernel":4,"bypassed":5,"taken_over":6,"migrations_llc":7,"migrations_cross_llc":8}"#;
        let row = serde_json::from_str(text).unwrap();
        let stats = Stats::of(&row).unwrap();
        assert_eq!((stats.policy(), stats.machine()), ("fifo", (4, 2)));
        let lines = stats.lines();
        assert!(lines[0].starts_with("1,200 forwarded") && lines[0].ends_with("(2 retried, 1 stale)"));
        assert!(lines[1].starts_with("12 served") && lines[1].ends_with("6 taken over"));
        assert!(Stats::of(&Map::new()).is_none());
    }
}
