// SPDX-License-Identifier: GPL-2.0-only
//! The verdict on boots, for people and as JSON.

use super::boot::{Boot, End};
use super::results::{self, Check};
use super::scenario::Scenario;
use super::table;
use super::topology::Topology;
use crate::daemon::Stats;
use crate::proc;
use serde::Serialize;
use serde_json::{Map, Value};

/// Lines of the console that a failed boot shows.
const CONSOLE_LINES: usize = 30;

/// Everything known about one boot.
#[derive(Debug, Serialize)]
pub struct BootReport {
    /// Name of the scenario.
    pub scenario: String,
    /// `LLCS x CORES x THREADS`.
    pub topology: String,
    /// `virtual` or `real`.
    pub clock: &'static str,
    /// `emulation` or `kvm`.
    pub accel: &'static str,
    /// Counted from 1 on each topology.
    pub boot: u32,
    /// `uname -r` of the guest.
    pub kernel: String,
    /// Wall-clock time on the host.
    pub wall_s: f64,
    /// Checks of the scenario, and those that every boot gets.
    pub checks: Vec<Check>,
    /// What could not be checked, and why.
    pub skips: Vec<(String, String)>,
    /// Free text of the scenario.
    pub notes: Vec<String>,
    /// Measurements.
    pub results: Vec<Map<String, Value>>,
    /// The end of the console, if the boot failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<String>,
}

impl BootReport {
    /// Judges a boot.
    pub fn new(scenario: &Scenario, topology: Topology, kvm: bool, number: u32, boot: &Boot) -> Self {
        let parsed = results::parse(&boot.results);
        let faults = parsed.faults(&boot.console);
        let mut checks = parsed.checks;
        checks.push(end_check(&boot.end, parsed.end, boot.wall.as_secs()));
        let log =
            if faults.is_empty() { "no fault in the kernel log".to_string() } else { faults.join(" / ") };
        checks.push(Check { name: "kernel-log".to_string(), ok: faults.is_empty(), text: log });
        let failed = checks.iter().any(|check| !check.ok);
        Self {
            scenario: scenario.name.clone(),
            topology: topology.to_string(),
            clock: scenario.clock.name(),
            accel: if kvm { "kvm" } else { "emulation" },
            boot: number,
            kernel: parsed.kernel,
            wall_s: (boot.wall.as_secs_f64() * 10.0).round() / 10.0,
            checks,
            skips: parsed.skips,
            notes: parsed.notes,
            results: parsed.results,
            console: failed.then(|| proc::tail(&boot.console, CONSOLE_LINES)),
        }
    }

    /// The checks that did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.ok)
    }

    fn print(&self) {
        println!(
            "{} on {} CPUs ({}), {} clock, {}, boot {}, kernel {}, {:.1} s",
            self.scenario,
            self.topology.split('x').filter_map(|part| part.parse::<u32>().ok()).product::<u32>(),
            self.topology,
            self.clock,
            self.accel,
            self.boot,
            if self.kernel.is_empty() { "unknown" } else { &self.kernel },
            self.wall_s
        );
        for check in &self.checks {
            println!("  {} {:<24} {}", if check.ok { "ok  " } else { "FAIL" }, check.name, check.text);
        }
        for (name, reason) in &self.skips {
            println!("  skip {name:<24} {reason}");
        }
        for note in &self.notes {
            println!("  {note}");
        }
        if let Some(console) = &self.console {
            println!("  the console's last lines:");
            console.lines().for_each(|line| println!("  | {line}"));
        }
    }
}

/// Whether the script came to its end, and if not, why.
fn end_check(end: &End, script: Option<i32>, wall_s: u64) -> Check {
    let (ok, text) = match (end, script) {
        (End::ByItself, Some(0)) => (true, "the script ended".to_string()),
        (_, Some(status)) if status != 0 => (false, format!("the script ended with status {status}")),
        (End::TimedOut, _) => (false, format!("the guest hung: ended by the watchdog after {wall_s} s")),
        (End::Emulator(words), _) => (false, format!("QEMU failed: {words}")),
        (End::ByItself, _) => (false, "the guest died before the script ended (a panic?)".to_string()),
    };
    Check { name: "end".to_string(), ok, text }
}

/// All boots of one scenario, or the reason why there was none.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Why it did not run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// One entry per boot.
    pub boots: Vec<BootReport>,
}

impl Report {
    /// Whether all checks of all boots held.
    pub fn passed(&self) -> bool {
        self.boots.iter().all(|boot| boot.failures().next().is_none())
    }

    /// Prints checks, then measurements.
    pub fn print(&self) {
        if let Some(reason) = &self.skipped {
            println!("{} skipped: {reason}", self.scenario);
        }
        self.boots.iter().for_each(BootReport::print);
        let (stats, rows): (Vec<_>, Vec<_>) =
            self.rows().into_iter().partition(|row| Stats::of(row).is_some());
        let (load, other): (Vec<_>, Vec<_>) = rows.into_iter().partition(table::is_schbench);
        for table in table::plain(&other).iter().chain(&table::schbench(&load)) {
            println!("\n{table}");
        }
        for stats in stats.iter().filter_map(Stats::of) {
            println!("\n  hearth, {}:", stats.policy());
            stats.lines().iter().for_each(|line| println!("  {line}"));
        }
    }

    /// Measurements with where they were taken in front.
    pub fn rows(&self) -> Vec<Map<String, Value>> {
        let place = |boot: &BootReport| {
            let mut map = Map::new();
            map.insert("kernel".to_string(), boot.kernel.clone().into());
            map.insert("topology".to_string(), boot.topology.clone().into());
            map.insert("clock".to_string(), boot.clock.into());
            map.insert("boot".to_string(), boot.boot.into());
            map
        };
        let row = |boot, result: &Map<String, Value>| {
            let mut row: Map<String, Value> = place(boot);
            row.extend(result.clone());
            row
        };
        self.boots.iter().flat_map(|boot| boot.results.iter().map(move |result| row(boot, result))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn judge(end: End, console: &str, results: &str) -> BootReport {
        let scenario = Scenario::parse("x", "true\n").unwrap();
        let boot =
            Boot { end, console: console.into(), results: results.into(), wall: Duration::from_secs(7) };
        BootReport::new(&scenario, "2x2".parse().unwrap(), false, 1, &boot)
    }

    #[test]
    fn a_healthy_boot_passes() {
        let report = judge(End::ByItself, "hello\n", "BEGIN 7.3\nCHECK a ok fine\nEND 0\n");
        assert_eq!((report.failures().count(), report.console), (0, None));
    }

    #[test]
    fn every_bad_end_fails_with_the_console() {
        let lines: String = (0..40).map(|n| format!("line {n}\n")).collect();
        for (end, results, word) in [
            (End::TimedOut, "BEGIN 7.3\n", "watchdog after 7 s"),
            (End::ByItself, "BEGIN 7.3\n", "died"),
            (End::ByItself, "", "died"),
            (End::ByItself, "END 3\n", "status 3"),
            (End::TimedOut, "END 0\n", "hung"),
            (End::Emulator("no such file".into()), "", "no such file"),
        ] {
            let report = judge(end, &lines, results);
            let failure = report.failures().next().unwrap();
            assert!(failure.name == "end" && failure.text.contains(word), "{failure:?}");
            assert_eq!(report.console.unwrap().lines().count(), CONSOLE_LINES);
        }
    }

    #[test]
    fn a_fault_on_the_console_fails() {
        let report = judge(End::ByItself, "[1.0] BUG: soft lockup\n", "END 0\n");
        assert_eq!(report.failures().map(|check| check.name.as_str()).collect::<Vec<_>>(), ["kernel-log"]);
    }

    #[test]
    fn rows_say_where_they_were_taken() {
        let boot = judge(End::ByItself, "", "BEGIN 7.3\nRESULT {\"p50_us\":18}\nEND 0\n");
        let report = Report { scenario: "x".into(), skipped: None, boots: vec![boot] };
        let text = serde_json::to_string(&report.rows()).unwrap();
        assert_eq!(text, r#"[{"kernel":"7.3","topology":"2x2","clock":"virtual","boot":1,"p50_us":18}]"#);
    }
}
