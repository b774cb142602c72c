// SPDX-License-Identifier: GPL-2.0-only
//! How much of a task's state a CPU still holds, and what fetching the rest again would cost.
//!
//! Per task the last few CPUs and LLC domains are remembered, with a share per level of the machine's [`Profile`]: what of
//! the task's state was there when it left. Three things change a share:
//!
//! - the task runs there for x: `w = 1 - (1 - w) e^(-x / fill)`;
//! - others run there for u: `w = w e^(-u / evict)`. So the clock that state decays by is the CPU's *busy clock*: an idle
//!   CPU loses nothing. For a level that a domain shares, it is the sum of the busy clocks of the domain's CPUs;
//! - the task runs in a domain while others run there too: both at once, at constant speed, which has a closed form.
//!
//! The cost of what is missing is `refill (1 - w)`, for the moment at which the task would start: who runs there meanwhile
//! goes on evicting. [`published`] holds the published form of warmth.
//!
//! # What is approximate
//!
//! - Between two readings of the status words an occupied CPU is taken to run on, and an idle one to stay idle.
//! - A record tells the busy clock of the CPU that the task left, so levels of a CPU are exact; the clock of the domain at that
//!   moment is a straight line between the last two times that it was read for the task.
//! - Run time of higher scheduling classes is on no clock; SMT siblings do not evict each other's levels.
//! - Run time that was used without records (a takeover) counts as one run on the last CPU.

mod clock;
pub mod published;

pub use clock::Clocks;

use crate::decay::{self, ONE, Rate};
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos};
use crate::limits::{MAX_LEVELS, REMEMBERED_CPUS, REMEMBERED_LLCS};
use crate::ordered::NONE;
use crate::profile::{Profile, Scope};
use crate::topology::Topology;

/// A share per level of one scope, in the order of the profile.
type Shares = [u32; MAX_LEVELS];

/// One level, ready for use.
#[derive(Clone, Copy, Debug)]
struct Level {
    fill: Rate,
    evict: Rate,
    refill_ns: Nanos,
}

/// The levels of one scope.
#[derive(Clone, Debug, Default)]
struct Levels {
    levels: Vec<Level>,
    /// What fetching all of it costs.
    cold_ns: Nanos,
}

/// What a task remembers.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Row {
    cpus: [u32; REMEMBERED_CPUS],
    llcs: [u32; REMEMBERED_LLCS],
    /// Places in `cpus` and `llcs`, most recent first.
    recent_cpus: [u8; REMEMBERED_CPUS],
    recent_llcs: [u8; REMEMBERED_LLCS],
    /// The busy clock of the CPU or domain when the task left it.
    cpu_left_ns: [Nanos; REMEMBERED_CPUS],
    llc_left_ns: [Nanos; REMEMBERED_LLCS],
    /// When the domain's clock was read.
    llc_read_ns: [Nanos; REMEMBERED_LLCS],
    cpu_shares: [Shares; REMEMBERED_CPUS],
    llc_shares: [Shares; REMEMBERED_LLCS],
}

const COLD_ROW: Row = Row {
    cpus: [NONE; REMEMBERED_CPUS],
    llcs: [NONE; REMEMBERED_LLCS],
    recent_cpus: identity(),
    recent_llcs: identity(),
    cpu_left_ns: [0; REMEMBERED_CPUS],
    llc_left_ns: [0; REMEMBERED_LLCS],
    llc_read_ns: [0; REMEMBERED_LLCS],
    cpu_shares: [[0; MAX_LEVELS]; REMEMBERED_CPUS],
    llc_shares: [[0; MAX_LEVELS]; REMEMBERED_LLCS],
};

const fn identity<const N: usize>() -> [u8; N] {
    let mut order = [0; N];
    let mut i = 0;
    while i < N {
        order[i] = i as u8;
        i += 1;
    }
    order
}

/// What starting somewhere costs a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refill {
    /// Its own time for state of the CPU (or core).
    pub cpu_ns: Nanos,
    /// Its own time for state of the LLC domain.
    pub llc_ns: Nanos,
    /// What the refill costs others (what it evicts of theirs, the bandwidth it takes): `neighbour_pct` of its own time.
    pub neighbour_ns: Nanos,
}

impl Refill {
    /// The time that the task itself loses.
    #[inline]
    #[must_use]
    pub fn own_ns(&self) -> Nanos {
        self.cpu_ns + self.llc_ns
    }

    /// That, and the weighted cost to others.
    #[inline]
    #[must_use]
    pub fn total_ns(&self) -> Nanos {
        self.own_ns() + self.neighbour_ns
    }
}

/// How much of each level's refill is paid within a run of a certain length: `1 - e^(-run / fill)`. A short run does not
/// touch all that it would have to fetch; the rest is paid in the runs after it.
#[derive(Clone, Copy, Debug)]
pub struct Paid {
    cpu: Shares,
    llc: Shares,
}

impl Paid {
    /// Everything: the task stays there until all is fetched.
    pub const ALL: Paid = Paid { cpu: [ONE; MAX_LEVELS], llc: [ONE; MAX_LEVELS] };
}

/// The warmth of all tasks on all CPUs.
#[derive(Clone, Debug)]
pub struct Warmth {
    cpu: Levels,
    llc: Levels,
    /// `neighbour_pct` as a number with 16 bits behind the point.
    neighbour: u64,
    clocks: Clocks,
    rows: Vec<Row>,
}

impl Warmth {
    /// A cold machine with rows for `max_tasks` tasks.
    #[must_use]
    pub fn new(topology: &Topology, profile: &Profile, max_tasks: usize) -> Self {
        Self {
            cpu: Levels::of(profile, Scope::Cpu),
            llc: Levels::of(profile, Scope::Llc),
            neighbour: (u64::from(profile.neighbour_pct) << 16) / 100,
            clocks: Clocks::new(topology),
            rows: vec![COLD_ROW; max_tasks],
        }
    }

    /// The busy clocks.
    #[must_use]
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The busy clocks, for a new reading of status words.
    pub fn clocks_mut(&mut self) -> &mut Clocks {
        &mut self.clocks
    }

    /// The task in this row is new, gone, or runs another program: nothing of it is anywhere.
    pub fn clear(&mut self, row: usize) {
        self.rows[row] = COLD_ROW;
    }

    /// A task's record: it ran on its previous CPU and left it.
    #[inline]
    pub fn ran(&mut self, row: usize, now: Nanos, run: &Runnable) {
        let Some(llc) = self.clocks.llc_of(run.prev_cpu).filter(|_| run.ran_ns > 0) else { return };
        let row = &mut self.rows[row];
        row.ran_on_cpu(&self.cpu, run);
        row.ran_in_llc(&self.llc, llc, &self.clocks, now, run);
    }

    /// What it would cost the task to start on `cpu` in `start_in_ns` from now; of that, what it pays within the run that
    /// `paid` stands for.
    #[inline]
    #[must_use]
    pub fn refill(&self, row: usize, now: Nanos, cpu: CpuId, start_in_ns: Nanos, paid: &Paid) -> Refill {
        let row = &self.rows[row];
        let cpu_ns = match row.cpu_slot(cpu) {
            Some(slot) => {
                let foreign_ns = self.clocks.cpu(cpu, now, start_in_ns).saturating_sub(row.cpu_left_ns[slot]);
                self.cpu.missing_ns(&row.cpu_shares[slot], foreign_ns, &paid.cpu)
            }
            None => self.cpu.all_missing_ns(&paid.cpu),
        };
        let slot = self.clocks.llc_of(cpu).and_then(|llc| Some((llc, row.llc_slot(llc)?)));
        let llc_ns = match slot {
            Some((llc, slot)) => {
                let at_start_ns = self.clocks.llc(llc, now, start_in_ns);
                let foreign_ns = Clocks::since(row.llc_left_ns[slot], at_start_ns);
                self.llc.missing_ns(&row.llc_shares[slot], foreign_ns, &paid.llc)
            }
            None => self.llc.all_missing_ns(&paid.llc),
        };
        let neighbour_ns = ((cpu_ns + llc_ns) * self.neighbour) >> 16;
        Refill { cpu_ns, llc_ns, neighbour_ns }
    }

    /// For [`Warmth::refill`]: how much of each level is fetched within a run of `run_ns`.
    #[must_use]
    pub fn paid_within(&self, run_ns: Nanos) -> Paid {
        let mut paid = Paid::ALL;
        for (shares, levels) in [(&mut paid.cpu, &self.cpu), (&mut paid.llc, &self.llc)] {
            for (share, level) in shares.iter_mut().zip(&levels.levels) {
                *share = ONE - level.fill.left(run_ns);
            }
        }
        paid
    }

    /// The CPUs that the task is remembered on, most recent first.
    pub fn remembered(&self, row: usize) -> impl Iterator<Item = CpuId> + '_ {
        let row = &self.rows[row];
        row.recent_cpus.iter().map(|&slot| CpuId(row.cpus[slot as usize])).take_while(|cpu| cpu.0 != NONE)
    }

    /// The share of each level, in the profile's order of that scope, that `cpu` and its domain hold of the task now.
    pub fn shares(&self, row: usize, now: Nanos, cpu: CpuId) -> impl Iterator<Item = (Scope, u32)> + '_ {
        let row = &self.rows[row];
        let on_cpu = row.cpu_slot(cpu).map(|slot| {
            (row.cpu_shares[slot], self.clocks.cpu(cpu, now, 0).saturating_sub(row.cpu_left_ns[slot]))
        });
        let in_llc = self.clocks.llc_of(cpu).and_then(|llc| {
            let slot = row.llc_slot(llc)?;
            let foreign_ns = Clocks::since(row.llc_left_ns[slot], self.clocks.llc(llc, now, 0));
            Some((row.llc_shares[slot], foreign_ns))
        });
        let parts = [(Scope::Cpu, &self.cpu, on_cpu), (Scope::Llc, &self.llc, in_llc)];
        parts.into_iter().flat_map(|(scope, levels, held)| {
            levels.levels.iter().enumerate().map(move |(i, level)| {
                let share =
                    held.map_or(0, |(shares, foreign)| decay::of(shares[i], level.evict.left(foreign)));
                (scope, share)
            })
        })
    }
}

impl Levels {
    fn of(profile: &Profile, scope: Scope) -> Self {
        let levels: Vec<Level> = profile
            .levels
            .iter()
            .filter(|level| level.scope == scope)
            .map(|level| Level {
                fill: Rate::per(level.fill_ns),
                evict: Rate::per(level.evict_ns),
                refill_ns: level.refill_ns,
            })
            .collect();
        let cold_ns = levels.iter().map(|level| level.refill_ns).sum();
        Self { levels, cold_ns }
    }

    #[inline]
    fn missing_ns(&self, shares: &Shares, foreign_ns: Nanos, paid: &Shares) -> Nanos {
        let mut sum_ns = 0;
        for ((level, &share), &paid) in self.levels.iter().zip(shares).zip(paid) {
            let missing = ONE - decay::of(share, level.evict.left(foreign_ns));
            sum_ns += decay::of_ns(decay::of(missing, paid), level.refill_ns);
        }
        sum_ns
    }

    #[inline]
    fn all_missing_ns(&self, paid: &Shares) -> Nanos {
        if paid[0] == ONE {
            return self.cold_ns;
        }
        self.levels.iter().zip(paid).map(|(level, &paid)| decay::of_ns(paid, level.refill_ns)).sum()
    }
}

/// Puts the place at position `at` first.
#[inline]
fn most_recent<const N: usize>(recent: &mut [u8; N], at: usize) -> usize {
    recent[..=at].rotate_right(1);
    recent[0] as usize
}

impl Row {
    #[inline]
    fn cpu_slot(&self, cpu: CpuId) -> Option<usize> {
        self.cpus.iter().position(|&id| id == cpu.0)
    }

    #[inline]
    fn llc_slot(&self, llc: LlcId) -> Option<usize> {
        self.llcs.iter().position(|&id| id == llc.0)
    }

    /// Its run on a CPU ends when that CPU's busy clock shows `left_busy_ns`: it began `ran_ns` earlier.
    #[inline]
    fn ran_on_cpu(&mut self, levels: &Levels, run: &Runnable) {
        let known = self.recent_cpus.iter().position(|&slot| self.cpus[slot as usize] == run.prev_cpu.0);
        let slot = most_recent(&mut self.recent_cpus, known.unwrap_or(REMEMBERED_CPUS - 1));
        let began_ns = run.left_busy_ns.saturating_sub(run.ran_ns);
        let foreign_ns = began_ns.saturating_sub(self.cpu_left_ns[slot]);
        self.cpus[slot] = run.prev_cpu.0;
        self.cpu_left_ns[slot] = run.left_busy_ns;
        for (level, share) in levels.levels.iter().zip(&mut self.cpu_shares[slot]) {
            let before = if known.is_some() { decay::of(*share, level.evict.left(foreign_ns)) } else { 0 };
            *share = ONE - decay::of(ONE - before, level.fill.left(run.ran_ns));
        }
    }

    /// The same for its domain. What others ran there since it last left is spread evenly over the time since then: while it
    /// slept before, while it waited, while it ran, and since it left.
    #[inline]
    fn ran_in_llc(&mut self, levels: &Levels, llc: LlcId, clocks: &Clocks, now: Nanos, run: &Runnable) {
        if levels.levels.is_empty() {
            return;
        }
        let known = self.recent_llcs.iter().position(|&slot| self.llcs[slot as usize] == llc.0);
        let slot = most_recent(&mut self.recent_llcs, known.unwrap_or(REMEMBERED_LLCS - 1));
        let clock_ns = clocks.llc(llc, now, 0);
        let (away_ns, ran_ns) = (run.slept_ns, run.ran_ns);
        // Foreign run time in the domain per time: as far as it is known, or else as many CPUs as run there now.
        let (foreign_per_ns, absent_ns) = if known.is_some() {
            let elapsed_ns = now.saturating_sub(self.llc_read_ns[slot]).max(1);
            let foreign_ns = Clocks::since(self.llc_left_ns[slot], clock_ns).saturating_sub(ran_ns);
            let absent_ns = elapsed_ns.saturating_sub(ran_ns.saturating_add(away_ns));
            (foreign_ns as f64 / elapsed_ns as f64, absent_ns)
        } else {
            (f64::from(clocks.running(llc)), 0)
        };
        let foreign_ns = |ns: Nanos| (ns as f64 * foreign_per_ns) as Nanos;
        let (absent_ns, beside_ns, away_ns) =
            (foreign_ns(absent_ns), foreign_ns(ran_ns), foreign_ns(away_ns));
        self.llcs[slot] = llc.0;
        self.llc_left_ns[slot] = clock_ns.wrapping_sub(away_ns);
        self.llc_read_ns[slot] = now.saturating_sub(run.slept_ns);
        for (level, share) in levels.levels.iter().zip(&mut self.llc_shares[slot]) {
            let before = if known.is_some() { decay::of(*share, level.evict.left(absent_ns)) } else { 0 };
            *share = level.after_run(before, ran_ns, beside_ns);
        }
    }
}

impl Level {
    /// A share after a run during which others ran for `beside_ns`: filling and evicting at once tend to the balance of the
    /// two speeds, at the sum of the two speeds.
    fn after_run(&self, before: u32, ran_ns: Nanos, beside_ns: Nanos) -> u32 {
        let fill = self.fill.over(ran_ns);
        let both = fill.and(self.evict.over(beside_ns));
        let Some(balance) = fill.part_of(both) else { return before };
        let left = both.left();
        decay::of(balance, ONE - left) + decay::of(before, left)
    }
}

#[cfg(test)]
mod tests;
