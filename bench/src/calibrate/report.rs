// SPDX-License-Identifier: GPL-2.0-only
//! What was measured, as a table and as JSON, and how far to trust it.

use super::levels::{self, Costs, Found, LevelCost};
use super::machine::Machine;
use super::memory::Pattern;
use super::plan::{self, Results};
use super::probe::{Level, Probe, Shape, State};
use super::stats::Summary;
use hearth::profile::Profile;
use serde_json::{Value, json};

/// A quantity whose p10 and p90 are further apart than this part of its median is uncertain.
const WIDE_SPREAD: f64 = 0.5;
/// More uncertain quantities than this (percent), and the run was noisy.
const MAX_WIDE_PCT: f64 = 15.0;
/// The thread lost its CPU in more samples than this (percent): something else runs there.
const MAX_DISTURBED_PCT: f64 = 5.0;
/// More of the CPU's time than this (percent) went to other guests.
const MAX_STEAL_PCT: f64 = 1.0;
/// A clock that needs a system call takes longer than this; one in user space 20 to 60 ns.
const SLOW_CLOCK_NS: f64 = 150.0;
/// Columns of the table of passes.
const STATES: [State; 5] = [State::Warm, State::OutOfL2, State::Moved, State::MovedFar, State::Dram];

/// A finished calibration.
#[derive(Debug)]
pub struct Report<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// All samples.
    pub results: &'a Results,
    /// What follows from them.
    pub costs: &'a Costs,
    /// The profile that was written.
    pub profile: &'a Profile,
    /// Seconds that were measured.
    pub seconds: u64,
    /// Whether the kernel gave huge pages.
    pub huge_pages: bool,
    /// What reading the clock around a walk costs (ns).
    pub clock_ns: f64,
    /// Percent of the home CPU's time that the hypervisor gave to others meanwhile.
    pub steal_pct: Option<f64>,
    /// Whether the largest sets and the eviction of the last level were left out.
    pub short: bool,
}

impl Report<'_> {
    /// Signs that neighbours disturbed the run; empty if it was quiet.
    pub fn noise(&self) -> Vec<String> {
        let mut signs = Vec::new();
        let disturbed_pct = self.results.disturbed_pct();
        if disturbed_pct > MAX_DISTURBED_PCT {
            signs.push(format!(
                "noisy: other tasks took the CPU during {disturbed_pct:.0} % of the samples (left out where enough others remain)"
            ));
        }
        let all = self.results.iter().count();
        let wide = self.results.iter().filter(|(_, summary)| summary.spread() > WIDE_SPREAD).count();
        let wide_pct = wide as f64 * 100.0 / all.max(1) as f64;
        if wide_pct > MAX_WIDE_PCT {
            signs.push(format!(
                "noisy: {wide} of {all} quantities spread by more than {:.0} % of their median (p10 to p90)",
                WIDE_SPREAD * 100.0
            ));
        }
        if let Some(steal_pct) = self.steal_pct.filter(|&pct| pct > MAX_STEAL_PCT) {
            signs.push(format!(
                "noisy: the hypervisor gave {steal_pct:.1} % of the CPU's time to other guests"
            ));
        }
        signs
    }

    /// Everything that the user should know before trusting the figures.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.noise();
        warnings.extend(self.machine.warnings.iter().cloned());
        if !self.huge_pages {
            warnings.push(
                "no huge pages (transparent_hugepage is off or memory is fragmented): large sets include TLB misses"
                    .to_owned(),
            );
        }
        if self.clock_ns > SLOW_CLOCK_NS {
            warnings.push(format!(
                "reading the clock takes {:.0} ns (clock source without user-space access): sets below 64 KB are uncertain",
                self.clock_ns
            ));
        }
        if self.short {
            warnings.push(
                "a short run: the largest sets and the time constants of the LLC are left out; --seconds 10 or more has them"
                    .to_owned(),
            );
        }
        warnings
    }

    /// The table.
    pub fn text(&self) -> String {
        let caches = &self.machine.caches;
        let mut out = format!(
            "{}; L1 {}, L2 {}, LLC {}; home CPU {}, near {}, far {}; huge pages {}\n",
            self.machine.model,
            size(caches.l1_bytes),
            size(caches.l2_bytes),
            size(caches.llc_bytes),
            self.machine.cpus.home,
            or_none(self.machine.cpus.near),
            or_none(self.machine.cpus.far),
            if self.huge_pages { "yes" } else { "no" },
        );
        out += "\nOne pass over a working set, us: median (p10..p90), samples\n\n";
        out += &self.passes();
        out += "\nTLB: one line on each of 512 pages, or the same lines packed\n\n";
        out += &self.pages();
        out += "\nSwitches and wakeups\n\n";
        out += &self.trips();
        out += "\nTime constants: own run time that fills 63 % of what is missing, foreign run time that evicts 63 %\n\n";
        out += &self.curves();
        out += "\nProfile (* built-in, not measured)\n\n";
        out += &self.levels();
        out
    }

    fn passes(&self) -> String {
        let measured = |state: &State| {
            self.results.iter().any(|(probe, _)| matches!(probe, Probe::Pass(_, _, seen) if seen == *state))
        };
        let states: Vec<State> = STATES.into_iter().filter(measured).collect();
        let mut rows = vec![["set", "pattern"].map(str::to_owned).to_vec()];
        rows[0].extend(states.iter().map(|state| state.name().to_owned()));
        for bytes in plan::set_sizes(&self.machine.caches, true) {
            for pattern in Pattern::ALL {
                let get = |state| self.results.get(Probe::Pass(Shape::packed(bytes), pattern, state));
                let cells: Vec<_> = states.iter().map(|&state| get(state)).collect();
                if cells.iter().any(Option::is_some) {
                    let mut row = vec![size(bytes), pattern.name().to_owned()];
                    row.extend(cells.into_iter().map(cell));
                    rows.push(row);
                }
            }
        }
        let l1 = Level::L1.shape(&self.machine.caches);
        let mut out = columns(&rows);
        if let Some(summary) = self.results.get(Probe::Pass(l1, Pattern::Chase, State::OutOfL1)) {
            out += &format!(
                "{} chase out of L1, in L2: {}\n",
                size(l1.lines * super::memory::LINE),
                cell(Some(summary))
            );
        }
        out
    }

    fn pages(&self) -> String {
        let packed = Shape { spread: false, huge: true, ..Shape::spread(false) };
        let mut rows = vec![["pages", "pattern", "warm", "out of TLB"].map(str::to_owned).to_vec()];
        for (name, shape) in
            [("packed", packed), ("4 KB", Shape::spread(false)), ("huge", Shape::spread(true))]
        {
            if shape.huge && shape.spread && !self.huge_pages {
                continue;
            }
            for pattern in [Pattern::Chase, Pattern::Scatter] {
                let get = |state| cell(self.results.get(Probe::Pass(shape, pattern, state)));
                rows.push(vec![
                    name.to_owned(),
                    pattern.name().to_owned(),
                    get(State::Warm),
                    get(State::OutOfTlb),
                ]);
            }
        }
        columns(&rows)
    }

    fn trips(&self) -> String {
        let rows = [
            ("futex round trip, same CPU", Probe::TripSame),
            ("futex round trip, two cores", Probe::TripNear),
            ("futex round trip, two LLC domains", Probe::TripFar),
            ("its system calls alone, one way", Probe::Syscalls),
            ("antagonist's read (misses L2)", Probe::Antagonist),
        ];
        let row =
            |(name, probe): (&str, Probe)| Some(vec![name.to_owned(), cell(Some(self.results.get(probe)?))]);
        columns(&rows.into_iter().filter_map(row).collect::<Vec<_>>())
    }

    fn curves(&self) -> String {
        let mut rows = vec![["level", "what", "us", "quality", "points"].map(str::to_owned).to_vec()];
        for cost in &self.costs.levels {
            for (what, curve) in ["fill", "evict"].into_iter().zip(&cost.curves) {
                let (tau, quality) = match curve.fit {
                    Some(fit) => (us(fit.tau), format!("{:.2}", fit.quality)),
                    None => ("-".to_owned(), "-".to_owned()),
                };
                let points = curve.points.len().to_string();
                rows.push(vec![cost.level.name().to_owned(), what.to_owned(), tau, quality, points]);
            }
        }
        columns(&rows)
    }

    fn levels(&self) -> String {
        let mut rows = vec![["level", "fill us", "evict us", "refill us"].map(str::to_owned).to_vec()];
        for level in &self.profile.levels {
            let cost = self.costs.levels.iter().find(|cost| cost.level.name() == level.name);
            let number = |ns: u64, pick: fn(&LevelCost) -> &Found| {
                let measured = cost.is_some_and(|cost| pick(cost).is_ok());
                format!("{}{}", us(ns as f64), if measured { " " } else { "*" })
            };
            rows.push(vec![
                level.name.clone(),
                number(level.fill_ns, |cost| &cost.fill_ns),
                number(level.evict_ns, |cost| &cost.evict_ns),
                number(level.refill_ns, |cost| &cost.refill_ns),
            ]);
        }
        let mark = |found: &Found| if found.is_ok() { "" } else { "*" };
        let switch = format!("{}{}", us(self.profile.switch_ns as f64), mark(&self.costs.switch_ns));
        let wake = format!("{}{}", us(self.profile.wake_ns as f64), mark(&self.costs.wake_ns));
        format!("{}switch {switch} us, wake {wake} us\n", columns(&rows))
    }

    /// The same for scripts.
    pub fn json(&self, out: &str) -> Value {
        json!({
            "program": "hearth calibrate",
            "version": env!("CARGO_PKG_VERSION"),
            "seconds": self.seconds,
            "machine": self.machine,
            "huge_pages": self.huge_pages,
            "clock_ns": self.clock_ns,
            "steal_pct": self.steal_pct,
            "disturbed_pct": self.results.disturbed_pct(),
            "noisy": !self.noise().is_empty(),
            "warnings": self.warnings(),
            "measured": self.results.iter().map(measured_json).collect::<Vec<_>>(),
            "levels": self.costs.levels.iter().map(|cost| self.level_json(cost)).collect::<Vec<_>>(),
            "profile": self.profile,
            "out": out,
        })
    }

    fn level_json(&self, cost: &LevelCost) -> Value {
        let [fill, evict] = &cost.curves;
        let constants =
            [("fill_ns", &cost.fill_ns), ("evict_ns", &cost.evict_ns), ("refill_ns", &cost.refill_ns)];
        let not_measured: Vec<Value> = constants
            .into_iter()
            .filter_map(|(key, found)| Some(json!({ "key": key, "why": found.err()? })))
            .collect();
        json!({
            "level": cost.level.name(),
            "set_lines": cost.level.shape(&self.machine.caches).lines,
            "lost_chase_ns": cost.lost_ns.map(|lost| lost.0),
            "lost_random_ns": cost.lost_ns.map(|lost| lost.1),
            "overlap": levels::OVERLAP,
            "antagonist_fill_interval_ns":
                levels::fill_interval_ns(self.results, self.machine, cost.level),
            "fill": fill,
            "evict": evict,
            "not_measured": not_measured,
        })
    }
}

fn measured_json((probe, summary): (Probe, Summary)) -> Value {
    let what = match probe {
        Probe::Pass(shape, pattern, state) => json!({
            "what": "pass", "lines": shape.lines, "spread": shape.spread, "asked_for_huge_pages": shape.huge,
            "pattern": pattern.name(), "state": state.name(),
        }),
        Probe::Fill(level, reads, lost) => {
            json!({ "what": "fill", "level": level.name(), "reads": reads, "lost": lost })
        }
        Probe::Evict(level, lines) => json!({ "what": "evict", "level": level.name(), "lines": lines }),
        Probe::Antagonist => json!({ "what": "antagonist's read" }),
        Probe::Syscalls => json!({ "what": "system calls" }),
        Probe::TripSame => json!({ "what": "round trip", "cpus": "same" }),
        Probe::TripNear => json!({ "what": "round trip", "cpus": "near" }),
        Probe::TripFar => json!({ "what": "round trip", "cpus": "far" }),
    };
    json!({ "quantity": what, "ns": summary })
}

fn cell(summary: Option<Summary>) -> String {
    summary.map_or("-".to_owned(), |summary| {
        format!("{} ({}..{}) {}", us(summary.median), us(summary.p10), us(summary.p90), summary.count)
    })
}

/// Microseconds with about three digits.
fn us(ns: f64) -> String {
    let us = ns / 1000.0;
    let digits = match us {
        _ if us >= 100.0 => 0,
        _ if us >= 10.0 => 1,
        _ if us >= 1.0 => 2,
        _ => 3,
    };
    format!("{us:.digits$}")
}

fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MB", bytes >> 20)
    } else {
        format!("{} KB", bytes >> 10)
    }
}

fn or_none(cpu: Option<usize>) -> String {
    cpu.map_or("none".to_owned(), |cpu| cpu.to_string())
}

/// Aligned columns: the first two to the left, numbers to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < 2 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::levels::tests::{machine, results};
    use super::super::profile;
    use super::*;

    fn with_report<T>(steal_pct: f64, check: impl Fn(&Report<'_>) -> T) -> T {
        let machine = machine();
        let results = results(&machine);
        let costs = Costs::of(&results, &machine);
        let built_in = profile::stand_in(&machine).unwrap();
        let text = profile::text(&costs, &machine, &built_in, "now", 40);
        check(&Report {
            machine: &machine,
            results: &results,
            costs: &costs,
            profile: &Profile::parse(&text).unwrap(),
            seconds: 40,
            huge_pages: false,
            clock_ns: 40.0,
            steal_pct: Some(steal_pct),
            short: false,
        })
    }

    #[test]
    fn the_table_shows_median_spread_and_count() {
        let text = with_report(0.0, |report| report.text());
        let row = text.lines().find(|line| line.starts_with("512 KB  chase")).unwrap();
        assert!(row.contains("32.8 (32.8..32.8) 9"), "{row}");
        assert!(row.contains("197 (197..197) 9"), "moved: {row}");
        assert!(text.contains("\nL2         41.0         246       27.3\n"), "{text}");
        assert!(text.contains("\npredictor  50.0*        500*      5.00*\n"), "{text}");
        assert!(text.contains("switch 1.60 us, wake 4.50 us"), "{text}");
        assert!(!text.contains("across LLCs"), "a state that was not measured has no column");
    }

    #[test]
    fn noise_and_gaps_are_warned_about() {
        let quiet = with_report(0.5, |report| report.warnings());
        assert_eq!(quiet.len(), 1, "{quiet:?}");
        assert!(quiet[0].starts_with("no huge pages"), "{quiet:?}");
        let noisy = with_report(7.0, |report| report.warnings());
        assert_eq!(noisy[0], "noisy: the hypervisor gave 7.0 % of the CPU's time to other guests");
    }

    #[test]
    fn json_has_every_quantity_with_its_spread() {
        let value = with_report(7.0, |report| report.json("/p.toml"));
        assert_eq!(value["noisy"], true);
        assert_eq!(value["out"], "/p.toml");
        let measured = value["measured"].as_array().unwrap();
        assert_eq!(measured.len(), plan::probes(&machine(), true).len());
        assert!(measured.iter().all(|one| one["ns"]["count"] == 9 && one["ns"]["p10"].is_number()));
        assert_eq!(value["levels"][1]["fill"]["points"].as_array().unwrap().len(), 6);
        assert_eq!(value["profile"]["levels"][3]["name"], "predictor");
    }

    #[test]
    fn figures_have_three_digits_and_sizes_a_unit() {
        assert_eq!(
            [0.4, 12.0, 1_234.0, 12_345.0, 987_654.0].map(us),
            ["0.000", "0.012", "1.23", "12.3", "988"]
        );
        assert_eq!([size(16 << 10), size(2 << 20), size(36_608 << 10)], ["16 KB", "2 MB", "36608 KB"]);
    }
}
