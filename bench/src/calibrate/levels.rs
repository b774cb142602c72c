// SPDX-License-Identifier: GPL-2.0-only
//! From samples to the constants of a profile. Every constant says how it came about; what could not be measured stays
//! empty, with the reason.

use super::machine::Machine;
use super::memory::Pattern;
use super::plan::{self, Results};
use super::probe::{Level, Probe, Shape, State};
use super::stats::{self, Fit};
use serde::Serialize;

/// Misses that a typical task has under way at a time (memory-level parallelism): between a pointer chase (1) and what
/// the CPU can have at most. It agrees with request-serving programs on several machines.
pub const OVERLAP: f64 = 6.0;
/// TLB misses of an antagonist: one in a microsecond. It depends on programs, not on the machine.
const TLB_MISS_INTERVAL_NS: f64 = 1000.0;
/// A fit below this says too little. A cache with true LRU order loses all at once: a step, which reaches about 0.5.
const MIN_QUALITY: f64 = 0.4;

/// A constant, or why there is none.
pub type Found = Result<f64, &'static str>;

/// What was found out about one level.
#[derive(Debug, Clone)]
pub struct LevelCost {
    /// Which.
    pub level: Level,
    /// Extra time (ns) of a pass over the level's set by dependent reads, and by independent ones.
    pub lost_ns: Option<(f64, f64)>,
    /// Own run time (ns) in which 63 % is filled.
    pub fill_ns: Found,
    /// Foreign run time (ns) in which 63 % is evicted.
    pub evict_ns: Found,
    /// Refill of all of the level by a typical task (ns).
    pub refill_ns: Found,
    /// The curves behind the two time constants.
    pub curves: [Curve; 2],
}

/// Points of a curve and what was fitted to them.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// Time (ns) against extra time of the walk (ns).
    pub points: Vec<(f64, f64)>,
    /// Time constant (ns), amplitude (ns) and quality; none if the points do not rise and settle.
    pub fit: Option<Fit>,
}

impl Curve {
    fn new(points: Vec<(f64, f64)>) -> Self {
        let fit = stats::fit(&points);
        Self { points, fit }
    }

    fn constant(&self) -> Found {
        match &self.fit {
            _ if self.points.is_empty() => Err("there was no time for it, or this machine cannot show it"),
            None => Err("the points do not rise and settle"),
            Some(fit) if fit.quality < MIN_QUALITY => Err("the points do not follow a curve"),
            Some(fit) => Ok(fit.tau),
        }
    }
}

/// Everything that goes into a profile.
#[derive(Debug, Clone)]
pub struct Costs {
    /// The levels, nearest first.
    pub levels: Vec<LevelCost>,
    /// A context switch (ns).
    pub switch_ns: Found,
    /// From a wakeup to the task running on another CPU (ns).
    pub wake_ns: Found,
}

impl Costs {
    /// Calculates them.
    pub fn of(results: &Results, machine: &Machine) -> Self {
        let half_trip = |probe, why| results.median(probe).map(|trip| trip / 2.0).ok_or(why);
        let switch_ns = half_trip(Probe::TripSame, "too few round trips were measured").and_then(|half| {
            let calls = results.median(Probe::Syscalls).ok_or("too few system calls were measured")?;
            above_zero(half - calls, "a round trip was no dearer than its system calls")
        });
        Self {
            levels: Level::ALL.into_iter().map(|level| level_cost(results, machine, level)).collect(),
            switch_ns,
            wake_ns: half_trip(Probe::TripNear, "no second core in the domain"),
        }
    }
}

fn above_zero(ns: f64, why: &'static str) -> Found {
    if ns > 0.0 { Ok(ns) } else { Err(why) }
}

fn level_cost(results: &Results, machine: &Machine, level: Level) -> LevelCost {
    let lost = |pattern| lost_ns(results, machine, level, pattern);
    let lost_ns = lost(Pattern::Chase).zip(lost(Pattern::Scatter));
    let refill_ns = match lost_ns {
        // No task overlaps more misses than independent reads do.
        Some((chase, scatter)) => {
            above_zero((chase / OVERLAP).max(scatter), "losing it did not cost more than the noise")
        }
        None => Err("there was no time for it, or this machine cannot show it"),
    };
    let fill = fill_curve(results, machine, level);
    let evict = evict_curve(results, machine, level);
    LevelCost {
        level,
        lost_ns,
        fill_ns: fill.constant(),
        evict_ns: evict.constant(),
        refill_ns,
        curves: [fill, evict],
    }
}

/// What a pass over the level's set costs more when the level has lost it.
fn lost_ns(results: &Results, machine: &Machine, level: Level, pattern: Pattern) -> Option<f64> {
    let pass = |shape, state| results.median(Probe::Pass(shape, pattern, state));
    let shape = level.shape(&machine.caches);
    match level {
        Level::L1 => Some(pass(shape, State::OutOfL1)? - pass(shape, State::Warm)?),
        // After a move the lines come from another core's caches; that is what a decision to move must know.
        Level::L2 if !machine.caches.private_l2 => None,
        Level::L2 => {
            let lost = pass(shape, State::Moved).or_else(|| pass(shape, State::OutOfL2))?;
            Some(lost - pass(shape, State::Warm)?)
        }
        // The same number of lines on few pages has lost what the antagonist took of the caches, and no pages.
        Level::Tlb => {
            let packed = Shape { spread: false, huge: true, ..shape };
            let lost = |shape| Some(pass(shape, State::OutOfTlb)? - pass(shape, State::Warm)?);
            Some(lost(shape)? - lost(packed)?)
        }
        Level::Llc => {
            let kept = pass(shape, State::OutOfL2).or_else(|| pass(shape, State::Warm))?;
            Some(pass(shape, State::MovedFar).or_else(|| pass(shape, State::Dram))? - kept)
        }
    }
}

fn fill_curve(results: &Results, machine: &Machine, level: Level) -> Curve {
    let reads = plan::fill_reads(level, &machine.caches).into_iter();
    let points = reads.filter_map(|reads| {
        let warm = results.median(Probe::Fill(level, reads, false))?;
        Some((warm, results.median(Probe::Fill(level, reads, true))? - warm))
    });
    Curve::new(points.collect())
}

fn evict_curve(results: &Results, machine: &Machine, level: Level) -> Curve {
    let interval_ns = fill_interval_ns(results, machine, level);
    let base = results.median(Probe::Evict(level, 0));
    let (Some(interval_ns), Some(base)) = (interval_ns, base) else { return Curve::new(Vec::new()) };
    let amounts = plan::evict_amounts(level, &machine.caches).into_iter();
    let points = amounts.filter_map(|lines| {
        Some((lines as f64 * interval_ns, results.median(Probe::Evict(level, lines))? - base))
    });
    Curve::new(points.collect())
}

/// Time between two fills of the level by an antagonist with dependent reads that miss it.
pub fn fill_interval_ns(results: &Results, machine: &Machine, level: Level) -> Option<f64> {
    match level {
        Level::L1 | Level::L2 => results.median(Probe::Antagonist),
        Level::Tlb => Some(TLB_MISS_INTERVAL_NS),
        Level::Llc => {
            let shape = level.shape(&machine.caches);
            let pass = results.median(Probe::Pass(shape, Pattern::Chase, State::Dram))?;
            Some(pass / shape.lines as f64)
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::machine::{Caches, Cpus};
    use super::*;

    /// A machine whose truth is known: L1 32 KB, L2 1 MB, LLC 32 MB.
    pub fn machine() -> Machine {
        let caches = Caches {
            l1_bytes: 32 << 10,
            l2_bytes: 1 << 20,
            llc_bytes: 32 << 20,
            private_l2: true,
            known: true,
        };
        Machine {
            model: "Example \"CPU\" 9".to_owned(),
            kernel: "7.3.4".to_owned(),
            caches,
            cpus: Cpus { home: 1, near: Some(0), far: None },
            llcs: 1,
            warnings: Vec::new(),
        }
    }

    /// Nanoseconds per line, by state, of a dependent read; independent ones take a tenth.
    fn per_line(state: State) -> f64 {
        match state {
            State::Warm => 4.0,
            State::OutOfL1 => 6.0,
            State::OutOfL2 => 14.0,
            State::OutOfTlb => 5.0,
            State::Moved => 24.0,
            State::MovedFar => 64.0,
            State::Dram => 94.0,
        }
    }

    const INTERVAL_NS: f64 = 20.0;

    /// What the probes of that machine would measure: eviction of each level with a time constant of its own size.
    pub fn results(machine: &Machine) -> Results {
        let value = |probe: &Probe| match *probe {
            Probe::Antagonist => INTERVAL_NS,
            Probe::Syscalls => 400.0,
            Probe::TripSame => 4_000.0,
            Probe::TripNear => 9_000.0,
            Probe::TripFar => 12_000.0,
            Probe::Pass(shape, pattern, state) => {
                let pages = if shape.spread && state == State::OutOfTlb { 12.0 } else { 0.0 };
                let ns = (per_line(state) + pages) * shape.lines as f64;
                if pattern == Pattern::Chase { ns } else { ns / 10.0 }
            }
            Probe::Fill(level, reads, lost) => {
                let lines = level.shape(&machine.caches).lines as f64;
                let missing = lines * (1.0 - libm::exp(-(reads as f64) / lines));
                reads as f64 * 5.0 + if lost { missing * 10.0 } else { 0.0 }
            }
            Probe::Evict(level, lines) => {
                let holds = plan::evict_amounts(level, &machine.caches)[4] as f64;
                1000.0 + 5000.0 * (1.0 - libm::exp(-(lines as f64) / holds))
            }
        };
        let probes = plan::probes(machine, true);
        Results::of(&probes.iter().map(|probe| (*probe, value(probe))).collect::<Vec<_>>())
    }

    fn close(found: Found, truth: f64) {
        let found = found.unwrap();
        assert!((found / truth - 1.0).abs() < 0.02, "{found} instead of {truth}");
    }

    #[test]
    fn a_known_machine_is_recovered() {
        let machine = machine();
        let costs = Costs::of(&results(&machine), &machine);
        close(costs.switch_ns, 1_600.0);
        close(costs.wake_ns, 4_500.0);
        // Lines of the set, extra per dependent line, six at a time.
        let refills = [256.0 * 2.0 / 6.0, 8192.0 * 20.0 / 6.0, 512.0 * 12.0 / 6.0, 32768.0 * 80.0 / 6.0];
        for (cost, refill_ns) in costs.levels.iter().zip(refills) {
            close(cost.refill_ns, refill_ns);
            close(cost.fill_ns, cost.level.shape(&machine.caches).lines as f64 * 5.0);
            let interval_ns = match cost.level {
                Level::Tlb => 1000.0,
                Level::Llc => 94.0,
                _ => INTERVAL_NS,
            };
            let holds = plan::evict_amounts(cost.level, &machine.caches)[4] as f64;
            close(cost.evict_ns, holds * interval_ns);
        }
    }

    #[test]
    fn independent_reads_bound_the_overlap() {
        let machine = machine();
        let shape = Level::L1.shape(&machine.caches);
        let pass = |pattern, state, ns| (Probe::Pass(shape, pattern, state), ns);
        let results = Results::of(&[
            pass(Pattern::Chase, State::Warm, 1000.0),
            pass(Pattern::Chase, State::OutOfL1, 1600.0),
            pass(Pattern::Scatter, State::Warm, 500.0),
            pass(Pattern::Scatter, State::OutOfL1, 800.0),
        ]);
        close(Costs::of(&results, &machine).levels[0].refill_ns, 300.0);
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let costs = Costs::of(&Results::default(), &machine());
        assert!(costs.switch_ns.is_err() && costs.wake_ns.is_err());
        for cost in &costs.levels {
            assert!(cost.refill_ns.is_err() && cost.fill_ns.is_err() && cost.evict_ns.is_err());
        }
    }
}
