// SPDX-License-Identifier: GPL-2.0-only
//! Whole microseconds since the start of a run.

use std::time::Instant;

/// A clock that every thread of a run shares.
///
/// schbench reads the wall clock. This one is monotonic, so that setting the time cannot spoil a run; the resolution
/// (1 us, cut off) and the cost of a reading are the same.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows 0 now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Microseconds since the start.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
