// SPDX-License-Identifier: GPL-2.0-only
//! The published estimates of how long a CPU is taken, in integers: counting times average slice (scx pull request 3714), and
//! summed service time over capacity with a charge for overruns (3806). For policies that are compared with ours; all times
//! are those of a CPU of full capacity (1024).

use crate::ids::Nanos;

/// Capacity of the biggest CPU.
pub const SCALE: u64 = 1024;
/// Shortest and longest base slice.
pub const BASE_SLICE_NS: std::ops::RangeInclusive<Nanos> = 500_000..=5_000_000;
/// All that is active shares so much.
pub const TARGET_NS: Nanos = 10_000_000;

/// Average run length of one task: 7/8 old + 1/8 new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AverageRun(pub Nanos);

impl AverageRun {
    /// A run has ended.
    #[inline]
    pub fn add(&mut self, run_ns: Nanos) {
        self.0 = self.0 - self.0 / 8 + run_ns / 8;
    }
}

/// The slice that everybody gets: `active_cpus` share [`TARGET_NS`] among `queued` tasks. (It is smoothed by averaging, 7/8 old
/// + 1/8 new, every 10 ms.)
#[must_use]
pub fn base_slice_ns(active_cpus: u32, queued: u32) -> Nanos {
    let share_ns = TARGET_NS * u64::from(active_cpus) / u64::from(queued.max(1));
    share_ns.clamp(*BASE_SLICE_NS.start(), *BASE_SLICE_NS.end())
}

/// When a task that starts now is expected to stop: after its average run, or at the end of its slice.
#[inline]
#[must_use]
pub fn est_stop_ns(start_ns: Nanos, average_ns: Nanos, slice_ns: Nanos) -> Nanos {
    start_ns.saturating_add(average_ns.min(slice_ns))
}

/// Wait by counting (3714): what the running task has left of its average, and a slice for everyone who waits. A task that
/// runs over counts as about to stop.
#[inline]
#[must_use]
pub fn counted_wait_ns(now: Nanos, est_stop_ns: Nanos, queued: u32, slice_ns: Nanos) -> Nanos {
    est_stop_ns.saturating_sub(now).saturating_add(u64::from(queued).saturating_mul(slice_ns))
}

/// Wait by service time (3806): `queued_ns` of service over `capacity`. No capacity: for ever.
#[inline]
#[must_use]
pub fn queued_wait_ns(queued_ns: Nanos, capacity: u64) -> Nanos {
    queued_ns.saturating_mul(SCALE).checked_div(capacity).unwrap_or(Nanos::MAX)
}

/// Wait and own run of `run_ns` on a target of `cpus` CPUs with `capacity` together. No capacity: for ever.
#[inline]
#[must_use]
pub fn completion_ns(queued_ns: Nanos, run_ns: Nanos, cpus: u32, capacity: u64) -> Nanos {
    let run_ns = run_ns.saturating_mul(u64::from(cpus)).saturating_mul(SCALE);
    let run_ns = run_ns.checked_div(capacity).unwrap_or(Nanos::MAX);
    queued_wait_ns(queued_ns, capacity).saturating_add(run_ns)
}

/// What a running task has left (3806), at most `slice_left_ns`: the rest of its average; or, once it runs over, a quarter
/// of the average, growing as long as it has been over already.
#[inline]
#[must_use]
pub fn residual_ns(now: Nanos, start_ns: Nanos, est_stop_ns: Nanos, slice_left_ns: Nanos) -> Nanos {
    let left_ns = match est_stop_ns.checked_sub(now) {
        Some(left_ns) if left_ns > 0 => left_ns,
        _ => (est_stop_ns.saturating_sub(start_ns) / 4).max(now.saturating_sub(est_stop_ns)),
    };
    left_ns.min(slice_left_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_talks_example_of_counting_and_timing() {
        // Two tasks of 20 us and two of 4 ms both count as 10 ms; they serve in 40 us and in 8 ms.
        assert_eq!(counted_wait_ns(0, 0, 2, 5_000_000), 10_000_000);
        assert_eq!(queued_wait_ns(2 * 20_000, SCALE), 40_000);
        assert_eq!(queued_wait_ns(2 * 4_000_000, SCALE), 8_000_000);
    }

    #[test]
    fn averages_and_slices() {
        let mut average = AverageRun::default();
        average.add(800_000);
        assert_eq!(average.0, 100_000);
        average.add(80_000);
        assert_eq!(average.0, 97_500);
        assert_eq!(base_slice_ns(8, 4), 5_000_000);
        assert_eq!(base_slice_ns(8, 32), 2_500_000);
        assert_eq!(base_slice_ns(8, 1000), 500_000);
        assert_eq!(base_slice_ns(8, 0), 5_000_000);
        assert_eq!(est_stop_ns(1_000, 100, 50), 1_050);
    }

    #[test]
    fn counting_reads_an_overrun_as_the_end() {
        assert_eq!(counted_wait_ns(150, 100, 0, 5_000_000), 0);
        assert_eq!(counted_wait_ns(60, 100, 1, 5_000_000), 5_000_040);
    }

    #[test]
    fn an_overrun_is_charged_a_quarter_and_then_as_much_as_it_is() {
        // Started at 1000, average 400: expected to stop at 1400.
        let at = |now| residual_ns(now, 1_000, 1_400, 10_000);
        assert_eq!(at(1_000), 400);
        assert_eq!(at(1_399), 1);
        assert_eq!(at(1_400), 100);
        assert_eq!(at(1_450), 100);
        assert_eq!(at(1_700), 300);
        assert_eq!(residual_ns(1_700, 1_000, 1_400, 250), 250);
        assert_eq!(residual_ns(1_100, 1_000, 1_400, 0), 0);
    }

    #[test]
    fn capacity_scales_the_wait_and_not_the_run_of_one_cpu() {
        assert_eq!(queued_wait_ns(1_000, 512), 2_000);
        assert_eq!(queued_wait_ns(1_000, 0), Nanos::MAX);
        // Two siblings: the wait halves, the run does not change.
        assert_eq!(completion_ns(1_000, 300, 1, 1024), 1_300);
        assert_eq!(completion_ns(1_000, 300, 2, 2048), 800);
        assert_eq!(completion_ns(0, 300, 1, 0), Nanos::MAX);
        assert_eq!(completion_ns(u64::MAX, u64::MAX, u32::MAX, 1), u64::MAX);
    }
}
