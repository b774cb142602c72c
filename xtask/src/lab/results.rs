// SPDX-License-Identifier: GPL-2.0-only
//! What a guest says on its second serial port, and what its kernel log must not say.

use serde_json::{Map, Value};

/// Texts in a kernel log that fail a boot unless the scenario allowed them. Matched as they are written by the kernel.
const FAULTS: &[&str] = &[
    "Kernel panic",
    "BUG:",
    "Oops:",
    "WARNING:",
    "general protection fault",
    "rcu: INFO:",
    "self-detected stall",
    "detected stalls on",
    "starved for",
    "blocked for more than",
    "watchdog failed to check in",
    "failed to run for",
    "runnable task stall",
    "hard LOCKUP",
    "soft lockup",
    "Out of memory",
];

/// One pass or fail.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What was checked: one word.
    pub name: String,
    /// Whether it held.
    pub ok: bool,
    /// What was seen.
    pub text: String,
}

/// Everything that one guest reported.
#[derive(Debug, Default, PartialEq)]
pub struct Parsed {
    /// `uname -r` of the guest; empty when it never got that far.
    pub kernel: String,
    /// Measurements, with the keys in the order in which the scenario wrote them.
    pub results: Vec<Map<String, Value>>,
    /// Checks of the scenario and of this parser.
    pub checks: Vec<Check>,
    /// Names and reasons of what the guest could not check.
    pub skips: Vec<(String, String)>,
    /// Free text for the reader.
    pub notes: Vec<String>,
    /// Lines of the guest's kernel log that look interesting.
    pub log: Vec<String>,
    /// Texts in the kernel log that the scenario provokes on purpose.
    pub allowed: Vec<String>,
    /// The script's exit status; absent when the guest died or hung before.
    pub end: Option<i32>,
}

/// Reads the lines of the second serial port. An unreadable line becomes a failed check, so that no result is lost
/// without a word.
pub fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if parsed.take(line).is_none() {
            let text = format!("unreadable line: {}", line.chars().take(120).collect::<String>());
            parsed.checks.push(Check { name: "protocol".to_string(), ok: false, text });
        }
    }
    parsed
}

impl Parsed {
    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let split = |text: &str| {
            let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
            (!first.is_empty()).then(|| (first.to_string(), rest.trim().to_string()))
        };
        match word {
            "BEGIN" => self.kernel = rest.to_string(),
            "RESULT" => self.results.push(serde_json::from_str(rest).ok()?),
            "CHECK" => {
                let (name, rest) = split(rest)?;
                let (verdict, text) = split(&rest)?;
                let ok = match verdict.as_str() {
                    "ok" => true,
                    "fail" => false,
                    _ => return None,
                };
                self.checks.push(Check { name, ok, text });
            }
            "SKIP" => self.skips.push(split(rest)?),
            "NOTE" => self.notes.push(rest.to_string()),
            "KLOG" => self.log.push(rest.to_string()),
            "ALLOW" if !rest.is_empty() => self.allowed.push(rest.to_string()),
            "END" => self.end = Some(rest.parse().ok()?),
            _ => return None,
        }
        Some(())
    }

    /// The lines of the kernel log and the console that no healthy run has.
    pub fn faults(&self, console: &str) -> Vec<String> {
        let is_fault = |line: &&str| {
            FAULTS.iter().any(|fault| line.contains(fault))
                && !self.allowed.iter().any(|text| line.contains(text.as_str()))
        };
        let lines = self.log.iter().map(String::as_str).chain(console.lines());
        let mut found: Vec<String> = lines.filter(is_fault).map(|line| line.trim().to_string()).collect();
        // Errors are on the console and in the log.
        let mut seen = std::collections::BTreeSet::new();
        found.retain(|line| seen.insert(line.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_run() {
        let parsed = parse(
            "BEGIN 7.3.4\r\nRESULT {\"p50_us\":18,\"sched\":\"default\",\"a\":1.5}\r\nCHECK detached ok state is disabled\r\n\
             CHECK stalls fail 2 lines\r\nSKIP peers none given\r\nNOTE hello world\r\nALLOW failed to run for\r\nEND 0\r\n",
        );
        assert_eq!(parsed.kernel, "7.3.4");
        assert_eq!(parsed.results[0].keys().collect::<Vec<_>>(), ["p50_us", "sched", "a"]);
        assert_eq!(parsed.checks.iter().map(|check| check.ok).collect::<Vec<_>>(), [true, false]);
        assert_eq!(parsed.checks[0].text, "state is disabled");
        assert_eq!(parsed.skips, [("peers".to_string(), "none given".to_string())]);
        assert_eq!((parsed.end, parsed.notes.len()), (Some(0), 1));
    }

    #[test]
    fn unreadable_lines_fail() {
        for line in
            ["RESULT {", "RESULT [1]", "CHECK", "CHECK x", "CHECK x maybe", "SKIP", "END x", "ALLOW ", "what"]
        {
            let parsed = parse(line);
            assert!(!parsed.checks[0].ok && parsed.checks[0].name == "protocol", "{line}");
        }
        assert_eq!(parse("\r\n\n"), Parsed::default());
    }

    #[test]
    fn faults_of_kernels() {
        for line in [
            "[   12.3] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "[   12.3] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [stress-ng:71]",
            "[   40.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[    9.2] sched_ext: BPF scheduler \"hearth\" disabled (runnable task stall)",
            "[    9.2] sched_ext: hearth: rcu_preempt[15] failed to run for 5.8s",
            "[    1.0] Kernel panic - not syncing: Attempted to kill init!",
            "[    1.0] WARNING: CPU: 0 PID: 1 at kernel/sched/ext.c:1234",
        ] {
            assert_eq!(Parsed::default().faults(line).len(), 1, "{line}");
        }
        for line in [
            "[    9.2] sched_ext: BPF scheduler \"hearth\" disabled (unregistered from user space)",
            "stress-ng: info: [71] 2 failures reached, aborting stress process",
        ] {
            assert!(Parsed::default().faults(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn provoked_faults_are_allowed_and_duplicates_merge() {
        let line = "[ 9.2] sched_ext: x[15] failed to run for 5.8s";
        let mut parsed = parse(&format!("KLOG {line}\n"));
        assert_eq!(parsed.faults(line), [line]);
        parsed.allowed.push("failed to run for".to_string());
        assert!(parsed.faults(line).is_empty());
    }
}
