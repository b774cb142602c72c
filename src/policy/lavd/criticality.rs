// SPDX-License-Identifier: GPL-2.0-only
//! The formulas of lavd: how latency-critical a task is, and what deadline follows.
//!
//! Constants are those of scx_lavd as published (crate 1.1.4), in its integer arithmetic.

use crate::ids::Nanos;

/// Full scale of ratios.
pub const SCALE: u64 = 1024;
/// A wakeup, an affinity, or a single allowed CPU each make a task's weight count for so many times more.
const BOOST: u64 = 128;
/// Frequencies count up to this.
const MAX_HZ: u64 = 400_000;
/// Run lengths count up to this, in steps of [`RUN_STEP_NS`].
const MAX_RUN_NS: Nanos = 1_000_000_000;
const RUN_STEP_NS: Nanos = 500_000;
/// Of what its waker is more critical, a task inherits 1/2^3.
const INHERIT_SHIFT: u32 = 3;
/// Of what a task has had beyond the average, 1/2^3 lengthens its deadline.
const GREEDY_SHIFT: u32 = 3;
/// The run time that a deadline starts from; what the task has run since it slept counts up to as much again.
const DEADLINE_RUN_NS: Nanos = 5_000_000;

/// What the criticality of a task is made of.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// How often it goes to sleep, per second.
    pub block_hz: u32,
    /// How often it wakes others, per second.
    pub wake_hz: u32,
    /// The average length of its runs.
    pub avg_run_ns: Nanos,
    /// Its weight (100 is nice 0).
    pub weight: u32,
    /// It has just been woken.
    pub woken: bool,
    /// It may not use all CPUs; it may use one only.
    pub restricted: bool,
    /// It may use one CPU only.
    pub pinned: bool,
}

/// Position of the highest bit, from 1; 0 for 0.
fn bits(x: u64) -> u64 {
    u64::from(u64::BITS - x.leading_zeros())
}

/// How much a delay of this task hurts: it wakes and blocks often (it is in the middle of a chain), and runs for a short time.
/// `waker` is the criticality of the task that woke it (0: none).
#[must_use]
pub fn criticality(task: &Behaviour, waker: u32) -> u32 {
    let factor = |hz: u32| u64::from(hz).min(MAX_HZ) + 1;
    let chain = bits(factor(task.block_hz) * factor(task.wake_hz));
    let short = (MAX_RUN_NS.saturating_sub(task.avg_run_ns) / RUN_STEP_NS).max(1);
    let boosts = u64::from(task.woken) + u64::from(task.restricted) + u64::from(task.pinned);
    let weight = u64::from(task.weight) * (1 + boosts * BOOST) + 1;
    let log = chain + bits(short * weight);
    let own = (log * log) as u32;
    own + (waker.saturating_sub(own) >> INHERIT_SHIFT)
}

/// How far behind the clock the task's deadline lies: sooner the more critical it is and the less it has run since it slept, and
/// later if it has had more service than the average.
#[must_use]
pub fn deadline_in(criticality: u32, since_sleep_ns: Nanos, served_ns: Nanos, avg_served_ns: Nanos) -> Nanos {
    let ratio = served_ns.saturating_mul(SCALE) / avg_served_ns.max(1);
    let greedy = SCALE + ((ratio.clamp(SCALE, 9 * SCALE) - SCALE) >> GREEDY_SHIFT);
    let run_ns = DEADLINE_RUN_NS + since_sleep_ns.min(DEADLINE_RUN_NS);
    run_ns * greedy / u64::from(criticality.max(1)) / SCALE
}

/// Critical from here on: all but about the topmost 1/2^6 between the average and the maximum is tolerant.
#[must_use]
pub fn threshold(avg: u32, max: u32) -> u32 {
    max - (max.saturating_sub(avg) >> 6)
}

/// An average of which a new value is 1/8.
#[must_use]
pub fn eighth(old: u64, new: u64) -> u64 {
    old - (old >> 3) + (new >> 3)
}

/// A frequency after one more event, `interval_ns` after the one before.
#[must_use]
pub fn frequency(hz: u32, interval_ns: Nanos) -> u32 {
    eighth(u64::from(hz), 1_000_000_000 / interval_ns.max(1)).min(MAX_HZ) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Behaviour = Behaviour {
        block_hz: 0,
        wake_hz: 0,
        avg_run_ns: 5_000_000,
        weight: 100,
        woken: false,
        restricted: false,
        pinned: false,
    };

    #[test]
    fn computed_by_hand() {
        // chain: 1 * 1, 1 bit; short: 995 ms / 0.5 ms = 1990; weight: 101; 1990 * 101 = 200990, 18 bits; (1 + 18)^2.
        assert_eq!(criticality(&NEW, 0), 361);
        // Woken: weight 100 * 129 + 1 = 12901; 1990 * 12901 = 25.7 million, 25 bits; (1 + 25)^2.
        let woken = Behaviour { woken: true, ..NEW };
        assert_eq!(criticality(&woken, 0), 676);
        // In a chain: 1001 * 2001 = 2.0 million, 21 bits; 100 us runs: 1999 * 12901, 25 bits; (21 + 25)^2.
        let chained = Behaviour { block_hz: 1000, wake_hz: 2000, avg_run_ns: 100_000, ..woken };
        assert_eq!(criticality(&chained, 0), 2116);
        // A hog: short counts as 1; 101, 7 bits; (1 + 7)^2.
        let hog = Behaviour { avg_run_ns: 2_000_000_000, ..NEW };
        assert_eq!(criticality(&hog, 0), 64);
        // Pinned is restricted too: 100 * 257 + 1; 1990 * 25701 = 51.1 million, 26 bits; (1 + 26)^2.
        assert_eq!(criticality(&Behaviour { restricted: true, pinned: true, ..NEW }, 0), 729);
    }

    #[test]
    fn an_eighth_is_inherited_of_a_more_critical_waker() {
        assert_eq!(criticality(&NEW, 361 + 800), 461);
        assert_eq!(criticality(&NEW, 100), 361);
    }

    #[test]
    fn deadlines_by_hand() {
        // 5 ms / 1000
        assert_eq!(deadline_in(1000, 0, 0, 1000), 5_000);
        // What it ran since it slept counts, up to 5 ms.
        assert_eq!(deadline_in(1000, 2_000_000, 0, 1000), 7_000);
        assert_eq!(deadline_in(1000, 60_000_000, 0, 1000), 10_000);
        // Twice the average service: an eighth later; never more than twice.
        assert_eq!(deadline_in(1000, 0, 2000, 1000), 5_625);
        assert_eq!(deadline_in(1000, 0, u64::MAX, 1000), 10_000);
        assert_eq!(deadline_in(0, 0, 0, 0), 5_000_000);
    }

    #[test]
    fn tolerant_are_all_but_the_top() {
        assert_eq!(threshold(400, 2000), 1975);
        assert_eq!(threshold(0, 0), 0);
        assert_eq!((frequency(0, 1_000_000), frequency(800, 1_000_000_000)), (125, 700));
    }
}
