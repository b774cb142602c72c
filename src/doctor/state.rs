// SPDX-License-Identifier: GPL-2.0-only
//! Who schedules now: what `/sys/kernel/sched_ext` says.

use super::{Finding, Severity, read_text};
use std::path::Path;

/// The kernel's own word on sched_ext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtState {
    /// No `sched_ext` directory: the kernel was built without it.
    Absent,
    /// The kernel's own scheduler is in charge.
    Disabled,
    /// A scheduler of this name is attached (or comes or goes just now).
    Enabled(String),
}

impl ExtState {
    /// Reads the state below `sysfs`, a directory that stands for `/sys`.
    #[must_use]
    pub fn read(sysfs: &Path) -> ExtState {
        let dir = sysfs.join("kernel/sched_ext");
        match read_text(&dir.join("state")).as_deref() {
            None => ExtState::Absent,
            Some("disabled") => ExtState::Disabled,
            // enabled, enabling, disabling: the kernel takes nobody else meanwhile.
            Some(_) => {
                ExtState::Enabled(read_text(&dir.join("root/ops")).unwrap_or_else(|| "without a name".into()))
            }
        }
    }

    /// The attached scheduler's name.
    #[must_use]
    pub fn scheduler(&self) -> Option<&str> {
        match self {
            ExtState::Enabled(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn check(&self) -> Option<Finding> {
        let name = self.scheduler()?;
        Some(Finding {
            id: "scheduler",
            severity: Severity::Busy,
            what: format!("the scheduler {name} is attached"),
            why: "the kernel takes one at a time, and Hearth ends nobody else's".into(),
            mend: "end that scheduler's process first (or SysRq-S, which ends any sched_ext scheduler)"
                .into(),
        })
    }
}
