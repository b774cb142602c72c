// SPDX-License-Identifier: GPL-2.0-only
//! The single measurements: bring caches into a state, then time one walk.
//!
//! The antagonist is the measuring thread itself, walking memory of its own: a cache does not know whose access it is,
//! and no context switch blurs the moment. What a context switch costs is measured for itself ([`super::pingpong`]).

use super::machine::{Caches, Cpus};
use super::memory::{LINE, Layout, Pages, Pattern, Set, ZeroPages};
use super::pingpong;
use super::stats::Samples;
use crate::sys;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// Pages of the set that shows TLB misses: 2 MiB of a heap, more than any first-level TLB has.
pub const TLB_PAGES: usize = 512;
/// Pages that evict every TLB: the largest second levels have 4096 entries.
const TLB_RIVAL_PAGES: usize = 8192;
/// Passes that make a set warm. One is not enough: caches do not replace exactly in order of use.
const WARM_PASSES: usize = 3;
/// Steps of a chase that are timed at most.
const MAX_CHASE: usize = 4096;
/// Walks of more lines than this take tens of microseconds.
const LONG_WALK: usize = 2048;
/// Sets beyond this many last-level caches are never needed; twice the size is missed in each round.
const LLC_RIVAL_TIMES: usize = 2;

/// A working set's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Cache lines, a power of two.
    pub lines: usize,
    /// One line on each page, instead of one after the other.
    pub spread: bool,
    /// Asked for huge pages.
    pub huge: bool,
}

impl Shape {
    /// A packed set of that many bytes, on huge pages if possible.
    pub const fn packed(bytes: usize) -> Self {
        Self { lines: bytes / LINE, spread: false, huge: true }
    }

    /// The set that shows TLB misses.
    pub const fn spread(huge: bool) -> Self {
        Self { lines: TLB_PAGES, spread: true, huge }
    }

    fn build(self) -> io::Result<Set> {
        let layout = if self.spread { Layout::Spread } else { Layout::Packed };
        Set::new(self.lines, layout, if self.huge { Pages::Huge } else { Pages::Small })
    }
}

/// Where a set's lines are when the walk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As near as they fit.
    Warm,
    /// No longer in L1.
    OutOfL1,
    /// No longer in L2: an antagonist walked four times its size on this CPU.
    OutOfL2,
    /// In the caches of another core of the domain, written there; the thread has just moved from it.
    Moved,
    /// The same with another LLC domain.
    MovedFar,
    /// In no cache.
    Dram,
    /// In the caches, but the TLB has forgotten their pages.
    OutOfTlb,
}

impl State {
    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::OutOfL1 => "out of L1",
            Self::OutOfL2 => "out of L2",
            Self::Moved => "moved",
            Self::MovedFar => "moved across LLCs",
            Self::Dram => "from DRAM",
            Self::OutOfTlb => "out of TLB",
        }
    }
}

/// A level whose time constants are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// First-level data cache.
    L1,
    /// Second-level cache.
    L2,
    /// Translations of addresses.
    Tlb,
    /// Last-level cache.
    Llc,
}

impl Level {
    /// All of them, as in the profile.
    pub const ALL: [Self; 4] = [Self::L1, Self::L2, Self::Tlb, Self::Llc];

    /// The name in the profile.
    pub fn name(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::Tlb => "TLB",
            Self::Llc => "LLC",
        }
    }

    /// What a typical task is taken to keep there: half of a private level, 512 pages, and twice an L2 of the last level
    /// (at most half of it).
    pub fn shape(self, caches: &Caches) -> Shape {
        let half = |bytes: usize| Shape::packed(floor_pow2(bytes / 2));
        match self {
            Self::L1 => half(caches.l1_bytes),
            Self::L2 => half(caches.l2_bytes),
            Self::Tlb => Shape::spread(false),
            Self::Llc => Shape::packed(floor_pow2((2 * caches.l2_bytes).min(caches.llc_bytes / 2))),
        }
    }
}

/// The largest power of two that is not above `n`.
pub fn floor_pow2(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

/// One quantity that is sampled over and over. The order is the order of measurement: if there is hardly any time, the
/// cheap ones have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// A system call that wakes nobody and one that does not sleep (ns).
    Syscalls,
    /// A round trip between two threads of one CPU (ns).
    TripSame,
    /// A round trip between two cores (ns).
    TripNear,
    /// A round trip between two LLC domains (ns).
    TripFar,
    /// A dependent read by an antagonist that misses L2 (ns).
    Antagonist,
    /// A pass over a set (ns).
    Pass(Shape, Pattern, State),
    /// So many random reads of the level's set (ns), after its state was lost or (`lost` false) not.
    Fill(Level, usize, bool),
    /// A pass over the level's set (ns) after the antagonist filled so many lines (pages for the TLB).
    Evict(Level, usize),
}

/// The memory and CPUs that probes use.
#[derive(Debug)]
pub struct Lab {
    cpus: Cpus,
    caches: Caches,
    sets: BTreeMap<Shape, Set>,
    /// Four times L1, half of L2 at most: evicts the first level and stays in the second.
    l1_rival: Set,
    /// Four times L2.
    l2_rival: Set,
    llc_rival: Option<Set>,
    llc_at: usize,
    pages: ZeroPages,
    clock_ns: f64,
}

impl Lab {
    /// Memory for the given probes, with the thread pinned to the home CPU (so that the memory is near it).
    ///
    /// # Errors
    /// If the kernel refuses memory or pinning.
    pub fn new(caches: Caches, cpus: Cpus, probes: &[Probe]) -> io::Result<Self> {
        pin(cpus.home)?;
        let mut sets = BTreeMap::new();
        for probe in probes {
            let shape = match *probe {
                Probe::Pass(shape, ..) => shape,
                Probe::Fill(level, ..) | Probe::Evict(level, _) => level.shape(&caches),
                _ => continue,
            };
            if let std::collections::btree_map::Entry::Vacant(place) = sets.entry(shape) {
                place.insert(shape.build()?);
            }
        }
        let needs_llc_rival = probes.iter().any(|probe| matches!(probe, Probe::Evict(Level::Llc, _)));
        let rival = |bytes: usize| Shape::packed(bytes.next_power_of_two()).build();
        Ok(Self {
            cpus,
            caches,
            sets,
            l1_rival: Shape::packed(floor_pow2((4 * caches.l1_bytes).min(caches.l2_bytes / 2))).build()?,
            l2_rival: rival(4 * caches.l2_bytes)?,
            llc_rival: if needs_llc_rival { Some(rival(LLC_RIVAL_TIMES * caches.llc_bytes)?) } else { None },
            llc_at: 0,
            pages: ZeroPages::new(TLB_RIVAL_PAGES)?,
            clock_ns: clock_cost_ns(),
        })
    }

    /// What reading the clock twice costs (ns); it is taken off every sample.
    pub fn clock_ns(&self) -> f64 {
        self.clock_ns
    }

    /// The address range of a large set that was asked onto huge pages.
    pub fn huge_set(&self) -> std::ops::Range<usize> {
        self.l2_rival.addresses()
    }

    /// Takes one sample (for round trips, several).
    ///
    /// # Errors
    /// If a CPU went offline or out of the allowed set.
    pub fn sample(&mut self, probe: Probe, into: &mut Samples) -> io::Result<()> {
        let before = sys::context_switches();
        let ns = match probe {
            Probe::Pass(shape, pattern, State::Moved) => {
                return self.moved(shape, pattern, self.cpus.near, into);
            }
            Probe::Pass(shape, pattern, State::MovedFar) => {
                return self.moved(shape, pattern, self.cpus.far, into);
            }
            Probe::TripSame => return pingpong::round_trips(self.cpus.home, into),
            Probe::TripNear => return self.trips(self.cpus.near, into),
            Probe::TripFar => return self.trips(self.cpus.far, into),
            Probe::Syscalls => pingpong::syscalls_ns(),
            Probe::Antagonist => self.antagonist(),
            Probe::Pass(shape, pattern, state) => self.pass(shape, pattern, state),
            Probe::Fill(level, reads, lost) => self.fill(level, reads, lost),
            Probe::Evict(level, lines) => self.evict(level, lines),
        };
        into.push(ns, sys::context_switches() != before);
        Ok(())
    }

    fn trips(&self, partner: Option<usize>, into: &mut Samples) -> io::Result<()> {
        partner.map_or(Ok(()), |cpu| pingpong::round_trips(cpu, into))
    }

    fn pass(&mut self, shape: Shape, pattern: Pattern, state: State) -> f64 {
        let Some(set) = self.sets.get_mut(&shape) else { return f64::NAN };
        warm(set, pattern);
        match state {
            State::OutOfL1 => self.l1_rival.pass(Pattern::Stream),
            State::OutOfL2 => self.l2_rival.pass(Pattern::Stream),
            State::OutOfTlb => self.pages.touch(self.pages.pages()),
            State::Dram => flush(set),
            State::Warm | State::Moved | State::MovedFar => (),
        }
        timed_pass(self.clock_ns, set, pattern)
    }

    /// Writes the set at home, moves, walks it there, and comes back.
    fn moved(
        &mut self,
        shape: Shape,
        pattern: Pattern,
        to: Option<usize>,
        into: &mut Samples,
    ) -> io::Result<()> {
        let (Some(set), Some(to)) = (self.sets.get_mut(&shape), to) else { return Ok(()) };
        let before = sys::context_switches();
        set.dirty();
        warm(set, pattern);
        let disturbed = sys::context_switches() != before;
        pin(to)?;
        // The move itself is a context switch.
        let before = sys::context_switches();
        let ns = timed_pass(self.clock_ns, set, pattern);
        into.push(ns, disturbed || sys::context_switches() != before);
        pin(self.cpus.home)
    }

    fn fill(&mut self, level: Level, reads: usize, lost: bool) -> f64 {
        let Some(set) = self.sets.get_mut(&level.shape(&self.caches)) else { return f64::NAN };
        warm(set, Pattern::Chase);
        match level {
            Level::L1 if lost => self.l1_rival.pass(Pattern::Stream),
            Level::L2 if lost => self.l2_rival.pass(Pattern::Stream),
            Level::Tlb if lost => self.pages.touch(self.pages.pages()),
            Level::Llc if lost => flush(set),
            _ => (),
        }
        timed(self.clock_ns, reads, || set.wander(reads))
    }

    fn evict(&mut self, level: Level, lines: usize) -> f64 {
        let Some(set) = self.sets.get_mut(&level.shape(&self.caches)) else { return f64::NAN };
        match level {
            // The antagonist's own memory must be where it will be later: in L2, or in the last level.
            Level::L1 => self.l1_rival.pass(Pattern::Stream),
            Level::L2 => self.l2_rival.pass(Pattern::Stream),
            Level::Tlb | Level::Llc => (),
        }
        warm(set, Pattern::Chase);
        match level {
            Level::L1 => self.l1_rival.chase(lines),
            Level::L2 => self.l2_rival.chase(lines),
            Level::Tlb => self.pages.touch(lines),
            Level::Llc => {
                // All of the set is in the last level first, for every amount alike.
                self.l2_rival.pass(Pattern::Stream);
                if let Some(rival) = &self.llc_rival {
                    rival.stream_part(self.llc_at, lines);
                    self.llc_at += lines;
                }
            }
        }
        timed_pass(self.clock_ns, set, Pattern::Chase)
    }

    fn antagonist(&mut self) -> f64 {
        self.l2_rival.pass(Pattern::Stream);
        timed(self.clock_ns, MAX_CHASE, || self.l2_rival.chase(MAX_CHASE)) / MAX_CHASE as f64
    }
}

fn pin(cpu: usize) -> io::Result<()> {
    sys::set_affinity(sys::thread_id(), &[cpu])
}

/// A chase is slow and leaves the caches no warmer than scattered reads do.
fn warm(set: &mut Set, pattern: Pattern) {
    let pattern = if pattern == Pattern::Chase { Pattern::Scatter } else { pattern };
    for _ in 0..WARM_PASSES {
        set.pass(pattern);
    }
}

/// Times a pass (ns). A long chase is timed in part, and reckoned up to the whole set: the chain goes through the set at
/// random, so that a part stands for all, and a short sample is rarely disturbed.
fn timed_pass(clock_ns: f64, set: &mut Set, pattern: Pattern) -> f64 {
    let lines = set.lines();
    match pattern {
        Pattern::Chase if lines > MAX_CHASE => {
            timed(clock_ns, MAX_CHASE, || set.chase(MAX_CHASE)) * lines as f64 / MAX_CHASE as f64
        }
        _ => timed(clock_ns, lines, || set.pass(pattern)),
    }
}

/// Whether [`State::Dram`] can be reached on this kind of processor.
pub const CAN_FLUSH: bool = cfg!(target_arch = "x86_64");

#[cfg(target_arch = "x86_64")]
fn flush(set: &Set) {
    sys::flush(set.bytes());
}

#[cfg(not(target_arch = "x86_64"))]
fn flush(_set: &Set) {}

/// Times work that reads so many lines (ns).
fn timed(clock_ns: f64, lines: usize, work: impl FnOnce()) -> f64 {
    // The system call that asks for CPU time takes cache lines itself: too many beside a small set.
    let long = lines >= LONG_WALK;
    let (switches, cpu) =
        if long { (sys::context_switches(), sys::thread_time()) } else { Default::default() };
    let start = Instant::now();
    work();
    let elapsed = start.elapsed();
    // Somebody else ran meanwhile: at least his time must not count.
    let time = if long && sys::context_switches() != switches { sys::thread_time() - cpu } else { elapsed };
    (time.as_nanos() as f64 - clock_ns).max(0.0)
}

fn clock_cost_ns() -> f64 {
    const READINGS: usize = 1001;
    let mut samples = Samples::default();
    for _ in 0..READINGS {
        samples.push(timed(0.0, 0, || ()), false);
    }
    samples.summary().map_or(0.0, |summary| summary.median)
}
