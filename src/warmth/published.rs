// SPDX-License-Identifier: GPL-2.0-only
//! Task warmth as published for scx_lavd (scx pull request 3714): integer heat on the last CPU only, gained by running,
//! lost with the wall clock. For policies that are compared with ours; [`crate::warmth`] is ours.

use crate::ids::{CpuId, Nanos};

/// Full heat.
pub const FULL: u32 = 1024;
/// Run time that gives full heat.
pub const SATURATION_NS: Nanos = 500_000;
/// Wall-clock time after which all heat is gone.
pub const LIFE_NS: Nanos = 5_000_000;

/// The heat of one task. A policy has one per task, and starts anew ([`Published::COLD`]) when a task is born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    heat: u16,
    cpu: CpuId,
    stopped_ns: Nanos,
}

impl Published {
    /// A task that has not run.
    pub const COLD: Published = Published { heat: 0, cpu: CpuId(u32::MAX), stopped_ns: 0 };

    /// The heat of the task on `cpu`: 0 to [`FULL`].
    #[inline]
    #[must_use]
    pub fn warmth(&self, cpu: CpuId, now: Nanos) -> u32 {
        let age_ns = now.saturating_sub(self.stopped_ns);
        if self.heat == 0 || cpu != self.cpu || age_ns >= LIFE_NS {
            return 0;
        }
        let heat = u64::from(self.heat);
        (heat - heat * age_ns / LIFE_NS) as u32
    }

    /// The task stops at `stop_ns` after `used_ns` on `cpu`. The decay goes from its previous stop to this one, the run that
    /// ends now included; running elsewhere forgets the previous CPU.
    #[inline]
    pub fn stop(&mut self, cpu: CpuId, used_ns: Nanos, stop_ns: Nanos) {
        let gain = (used_ns.min(SATURATION_NS) * u64::from(FULL) / SATURATION_NS) as u32;
        let heat = (self.warmth(cpu, stop_ns) + gain).min(FULL);
        *self = Self { heat: heat as u16, cpu, stopped_ns: stop_ns };
    }

    /// How long the task may wait for `cpu`: from `warm_cpu_ns` to twice that.
    #[inline]
    #[must_use]
    pub fn budget_ns(&self, warm_cpu_ns: Nanos, cpu: CpuId, now: Nanos) -> Nanos {
        let scale = u64::from(FULL + self.warmth(cpu, now));
        warm_cpu_ns.saturating_mul(scale) / u64::from(FULL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: CpuId = CpuId(3);
    const THERE: CpuId = CpuId(4);

    #[test]
    fn computed_by_hand() {
        let mut task = Published::COLD;
        assert_eq!(task.warmth(HERE, 0), 0);
        // 100 us: 100 * 1024 / 500 = 204.8
        task.stop(HERE, 100_000, 1_000_000);
        assert_eq!(task.warmth(HERE, 1_000_000), 204);
        // 1 ms later: 204 - 204 * 1/5 = 204 - 40
        assert_eq!(task.warmth(HERE, 2_000_000), 164);
        assert_eq!(task.warmth(THERE, 2_000_000), 0);
        // It runs 250 us there until 2.25 ms: 204 - 204 * 1.25/5 (51) + 512
        task.stop(HERE, 250_000, 2_250_000);
        assert_eq!(task.warmth(HERE, 2_250_000), 665);
        // The last nanosecond of its life: 665 - 665 * 4999999/5000000 (664) = 1, then none.
        assert_eq!(task.warmth(HERE, 7_249_999), 1);
        assert_eq!(task.warmth(HERE, 7_250_000), 0);
    }

    #[test]
    fn a_long_run_saturates_and_a_move_forgets() {
        let mut task = Published::COLD;
        task.stop(HERE, u64::MAX, 10_000_000);
        assert_eq!(task.warmth(HERE, 10_000_000), FULL);
        task.stop(HERE, 500_000, 10_500_000);
        assert_eq!(task.warmth(HERE, 10_500_000), FULL);
        task.stop(THERE, 1_000, 10_600_000);
        assert_eq!((task.warmth(THERE, 10_600_000), task.warmth(HERE, 10_600_000)), (2, 0));
    }

    #[test]
    fn the_budget_is_once_to_twice_the_option() {
        let mut task = Published::COLD;
        assert_eq!(task.budget_ns(20_000, HERE, 0), 20_000);
        task.stop(HERE, 250_000, 1_000_000);
        assert_eq!(task.budget_ns(20_000, HERE, 1_000_000), 30_000);
        task.stop(HERE, 500_000, 1_500_000);
        assert_eq!(task.budget_ns(20_000, HERE, 1_500_000), 40_000);
        assert_eq!(task.budget_ns(20_000, THERE, 1_500_000), 20_000);
        assert_eq!(task.budget_ns(u64::MAX, HERE, 1_500_000), u64::MAX / 1024);
    }

    #[test]
    fn a_clock_that_steps_back_leaves_the_heat() {
        let mut task = Published::COLD;
        task.stop(HERE, 500_000, 9_000_000);
        assert_eq!(task.warmth(HERE, 1), FULL);
    }
}
