// SPDX-License-Identifier: GPL-2.0-only
//! Which quantities are measured, and in which turns.
//!
//! Every quantity gets the same share of the time, in small pieces, over and over: what changes during the run (clock
//! rate, neighbours) meets all of them alike and cancels in their differences.

use super::machine::{Caches, Machine};
use super::memory::{LINE, Pattern};
use super::probe::{CAN_FLUSH, Lab, Level, Probe, Shape, State};
use super::stats::{Samples, Summary};
use crate::sys;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The smallest working set of the table.
const SMALLEST_SET: usize = 16 << 10;
/// Time that a quantity is given in each turn. One that needs more waits so many turns.
const TURN: Duration = Duration::from_micros(500);
/// Before a sample that takes longer, whoever else waits for the CPU may run: with a fresh slice the sample has a chance
/// to end undisturbed.
const LONG_SAMPLE: Duration = Duration::from_micros(500);
/// This part of the time that a sample waited for a CPU is charged.
const WAIT_SHARE: u32 = 4;
/// A median of fewer samples goes into the table, but into no constant.
const MIN_SAMPLES: usize = 3;
/// Last-level caches beyond this are not evicted by walking: it would take too long.
const MAX_LLC_SWEEP: usize = 128 << 20;
/// Entries of a second-level TLB, in whose multiples its eviction is swept.
const TLB_ENTRIES: usize = 2048;

/// Sizes of the table: powers of two up to twice L2, then in steps of four up to half of the last level.
pub fn set_sizes(caches: &Caches, to_llc: bool) -> Vec<usize> {
    let near = std::iter::successors(Some(SMALLEST_SET), |size| Some(size * 2));
    let mut sizes: Vec<usize> = near.take_while(|&size| size <= 2 * caches.l2_bytes).collect();
    if to_llc {
        let last = sizes.last().copied().unwrap_or(SMALLEST_SET);
        let far = std::iter::successors(Some(last * 4), |size| Some(size * 4));
        sizes.extend(far.take_while(|&size| size <= (caches.llc_bytes / 2).min(MAX_LLC_SWEEP)));
    }
    sizes
}

/// Amounts that an antagonist evicts (lines; pages for the TLB), as parts of what the level holds.
pub fn evict_amounts(level: Level, caches: &Caches) -> Vec<usize> {
    let (holds, eighths): (usize, &[usize]) = match level {
        Level::L1 => (caches.l1_bytes / LINE, &[1, 2, 4, 6, 8, 12, 16, 32, 64]),
        // Further on, some LLCs let go of what was used in L2 only: another cost, and another curve.
        Level::L2 => (caches.l2_bytes / LINE, &[1, 2, 4, 6, 8, 10, 12, 16]),
        Level::Tlb => (TLB_ENTRIES, &[1, 2, 4, 6, 8, 12, 16, 32]),
        Level::Llc => (caches.llc_bytes / LINE, &[1, 2, 3, 4, 6, 8, 12]),
    };
    let parts = eighths.iter().map(|eighths| holds * eighths / 8);
    // L2 is swept from about 10 us of the antagonist's time on.
    let small = (level == Level::L2).then_some(holds / 32);
    small.into_iter().chain(parts).collect()
}

/// Numbers of random reads by which filling is followed.
pub fn fill_reads(level: Level, caches: &Caches) -> Vec<usize> {
    let lines = level.shape(caches).lines;
    [lines / 4, lines / 2, lines, lines * 3 / 2, lines * 2, lines * 3].to_vec()
}

/// Levels that can be told apart on this machine in the time there is.
pub fn levels(machine: &Machine, to_llc: bool) -> Vec<Level> {
    let can = |level: &Level| match level {
        Level::L1 | Level::Tlb => true,
        Level::L2 => machine.caches.private_l2,
        Level::Llc => CAN_FLUSH && to_llc,
    };
    Level::ALL.into_iter().filter(can).collect()
}

/// All quantities for this machine.
pub fn probes(machine: &Machine, to_llc: bool) -> Vec<Probe> {
    let (caches, cpus) = (&machine.caches, &machine.cpus);
    let mut probes = vec![Probe::Antagonist, Probe::Syscalls, Probe::TripSame];
    probes.extend(cpus.near.map(|_| Probe::TripNear));
    probes.extend(cpus.far.map(|_| Probe::TripFar));
    for bytes in set_sizes(caches, to_llc) {
        for pattern in Pattern::ALL {
            let states = states(machine, bytes);
            probes.extend(states.into_iter().map(|state| Probe::Pass(Shape::packed(bytes), pattern, state)));
        }
    }
    let packed = Shape { lines: Shape::spread(false).lines, spread: false, huge: true };
    for shape in [packed, Shape::spread(false), Shape::spread(true)] {
        for pattern in [Pattern::Chase, Pattern::Scatter] {
            let states = [State::Warm, State::OutOfTlb];
            probes.extend(states.map(|state| Probe::Pass(shape, pattern, state)));
        }
    }
    for level in levels(machine, to_llc) {
        for reads in fill_reads(level, caches) {
            probes.extend([false, true].map(|lost| Probe::Fill(level, reads, lost)));
        }
        if level != Level::Llc || caches.llc_bytes <= MAX_LLC_SWEEP {
            probes.push(Probe::Evict(level, 0));
            let amounts = evict_amounts(level, caches).into_iter();
            probes.extend(amounts.map(|lines| Probe::Evict(level, lines)));
        }
    }
    probes.sort_unstable();
    probes.dedup();
    probes
}

/// The states in which a set of that size is walked.
fn states(machine: &Machine, bytes: usize) -> Vec<State> {
    let (caches, cpus) = (&machine.caches, &machine.cpus);
    let mut states = vec![State::Warm];
    let mut add = |state, wanted: bool| states.extend(wanted.then_some(state));
    add(State::OutOfL1, bytes <= caches.l1_bytes);
    // A larger set is not in L2 when it is warm.
    add(State::OutOfL2, caches.private_l2 && bytes <= 2 * caches.l2_bytes);
    add(State::Moved, cpus.near.is_some());
    add(State::MovedFar, cpus.far.is_some());
    add(State::Dram, CAN_FLUSH);
    states
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<Probe, Samples>);

impl Results {
    /// The summary of a quantity; `None` if there was no time for it or the machine cannot show it.
    pub fn get(&self, probe: Probe) -> Option<Summary> {
        self.0.get(&probe)?.summary()
    }

    /// The median of a quantity, if there are enough samples to calculate with it.
    pub fn median(&self, probe: Probe) -> Option<f64> {
        self.get(probe).filter(|summary| summary.count >= MIN_SAMPLES).map(|summary| summary.median)
    }

    /// All quantities that have samples.
    pub fn iter(&self) -> impl Iterator<Item = (Probe, Summary)> {
        self.0.iter().filter_map(|(&probe, samples)| Some((probe, samples.summary()?)))
    }

    /// Percent of the samples during which the thread lost its CPU, on the average of all quantities.
    pub fn disturbed_pct(&self) -> f64 {
        let share = |samples: &Samples| samples.disturbed() as f64 / samples.count().max(1) as f64;
        self.0.values().map(share).sum::<f64>() * 100.0 / self.0.len().max(1) as f64
    }

    /// Results made by hand.
    #[cfg(test)]
    pub fn of(quantities: &[(Probe, f64)]) -> Self {
        let mut results = Self::default();
        for &(probe, value) in quantities {
            for _ in 0..9 {
                results.0.entry(probe).or_default().push(value, false);
            }
        }
        results
    }
}

/// A quantity's samples and the CPU time that they took.
#[derive(Debug, Clone, Default)]
struct Turn {
    samples: Samples,
    used: Duration,
    last: Duration,
}

impl Turn {
    /// Waiting for a busy CPU is nobody's fault and counts less, so that chance does not decide who gets samples; but it
    /// counts, so that those which wait for a second CPU do not eat up the run.
    fn charge(&mut self, cpu: Duration, wall: Duration) {
        self.last = cpu;
        self.used += cpu + wall.saturating_sub(cpu) / WAIT_SHARE;
    }
}

/// Measures until the time is over. `None` if the user ended it. `progress` is told the time since the start.
///
/// # Errors
/// See [`Lab::sample`].
pub fn measure(
    lab: &mut Lab,
    probes: &[Probe],
    time: Duration,
    progress: impl Fn(Duration),
) -> io::Result<Option<Results>> {
    let mut turns: Vec<Turn> = vec![Turn::default(); probes.len()];
    let start = Instant::now();
    let mut granted = Duration::ZERO;
    'all: loop {
        granted += TURN;
        for (probe, turn) in probes.iter().zip(&mut turns) {
            while turn.used < granted {
                if sys::end_requested() {
                    return Ok(None);
                }
                if start.elapsed() >= time {
                    break 'all;
                }
                if turn.last >= LONG_SAMPLE {
                    std::thread::yield_now();
                }
                let (cpu, wall) = (sys::thread_time(), Instant::now());
                lab.sample(*probe, &mut turn.samples)?;
                turn.charge(sys::thread_time().saturating_sub(cpu), wall.elapsed());
            }
            progress(start.elapsed());
        }
    }
    let results = probes.iter().copied().zip(turns.into_iter().map(|turn| turn.samples));
    Ok(Some(Results(results.collect())))
}

#[cfg(test)]
mod tests {
    use super::super::machine::Cpus;
    use super::*;

    const CACHES: Caches =
        Caches { l1_bytes: 48 << 10, l2_bytes: 1 << 20, llc_bytes: 32 << 20, private_l2: true, known: true };

    fn machine(caches: Caches, near: Option<usize>, far: Option<usize>) -> Machine {
        let cpus = Cpus { home: 0, near, far };
        Machine { model: String::new(), kernel: String::new(), caches, cpus, llcs: 1, warnings: Vec::new() }
    }

    #[test]
    fn sizes_go_to_twice_l2_and_on_to_the_last_level() {
        let kib: Vec<usize> = set_sizes(&CACHES, true).iter().map(|size| size >> 10).collect();
        assert_eq!(kib, [16, 32, 64, 128, 256, 512, 1024, 2048, 8192]);
        assert_eq!(set_sizes(&CACHES, false).len(), 8);
    }

    #[test]
    fn what_the_machine_lacks_is_not_planned() {
        let single = probes(&machine(CACHES, None, None), true);
        let moves = |probe: &Probe| {
            matches!(
                probe,
                Probe::TripNear | Probe::TripFar | Probe::Pass(_, _, State::Moved | State::MovedFar)
            )
        };
        assert!(!single.iter().any(moves));
        let both = probes(&machine(CACHES, Some(1), Some(2)), true);
        assert!(both.contains(&Probe::TripFar) && both.iter().filter(|probe| moves(probe)).count() > 50);
        let flat = machine(Caches { private_l2: false, ..CACHES }, Some(1), None);
        assert!(!levels(&flat, true).contains(&Level::L2));
        assert!(probes(&flat, true).iter().all(|probe| !matches!(probe, Probe::Pass(_, _, State::OutOfL2))));
    }

    #[test]
    fn nothing_is_planned_twice_and_every_fit_has_its_base() {
        let probes = probes(&machine(CACHES, Some(1), None), true);
        assert!(probes.is_sorted_by(|a, b| a < b));
        for level in levels(&machine(CACHES, Some(1), None), true) {
            assert!(probes.contains(&Probe::Evict(level, 0)), "{level:?}");
            assert!(evict_amounts(level, &CACHES).is_sorted_by(|a, b| a < b), "{level:?}");
        }
    }
}
