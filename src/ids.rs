// SPDX-License-Identifier: GPL-2.0-only
//! Names for the things a scheduler talks about, so that a CPU number can never be passed for a task.

use serde::{Deserialize, Serialize};

/// A point in time, or a length of time, in nanoseconds of CLOCK_MONOTONIC (simulated time in the simulator).
pub type Nanos = u64;

/// A task's identity for as long as it lives: a table index plus the generation of that index.
///
/// A pid is no identity: it is used again as soon as its task is gone, while a decision about that task may
/// still be on its way. The shim hands out an index when a task is born and bumps its generation each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// Row in every per-task table, below [`crate::limits::MAX_TASKS`].
    pub idx: u32,
    /// How often the row has been handed out.
    pub generation: u32,
}

/// A CPU by the kernel's own number. Numbers may have gaps: never use a count as an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpuId(pub u32);

/// A last-level-cache domain, numbered densely from 0 in the order of its lowest CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LlcId(pub u32);

impl CpuId {
    /// The CPU's row in a table.
    #[inline]
    #[must_use]
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl LlcId {
    /// The domain's row in a table.
    #[inline]
    #[must_use]
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

impl TaskId {
    /// The task's row in a table.
    #[inline]
    #[must_use]
    pub fn row(self) -> usize {
        self.idx as usize
    }
}
