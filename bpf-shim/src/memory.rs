// SPDX-License-Identifier: GPL-2.0-only
//! No page fault while the machine waits for the dispatcher: memory is locked, and the kernel does not move it.
//!
//! The allocator of scx_rustland_core serves every allocation from one locked arena. Its `lock_memory` panics where a
//! limit forbids locking; a container or a confined service is to run all the same, so what it needs is tried first.
//!
//! Its `disable_mmap` is not used: the filter cannot be taken back, and after a CPU came or went the shim is loaded
//! anew, which maps tables and starts a thread. Nothing is lost: the arena never calls mmap, and the dispatch path does
//! not allocate; the filter would only make its two system calls slower.
//!
//! Unit tests use the system's allocator: the arena is too small for a debug build's backtrace, and a thread that fails
//! to allocate while it prints one waits for itself for ever. The daemon prints none (see `main`).

use crate::instance::Instance;
use crate::sys;
#[cfg(not(test))]
use scx_rustland_core::ALLOCATOR;
use std::fs;
use std::path::Path;
use tracing::{info, warn};

/// Whether the kernel may move locked pages to make room for large ones. The allocator turns it off meanwhile.
const COMPACTION: &str = "/proc/sys/vm/compact_unevictable_allowed";
/// Where its value is kept meanwhile.
const SAVED: &str = "compact_unevictable_allowed";

/// Locked memory; given back on drop.
pub struct Locked<'a> {
    instance: &'a Instance,
    compaction_off: bool,
    /// The kept value is this process's own.
    saved: bool,
}

/// Locks what is there and what will come. Goes on, with a warning, where that is not permitted.
pub fn lock(instance: &Instance) -> Locked<'_> {
    restore_after_kill(instance, Path::new(COMPACTION));
    let unlimited = sys::unlimit_memlock();
    if !sys::lock_all() {
        warn!(
            "memory cannot be locked here (see `hearth doctor`): the dispatcher may be late under memory pressure"
        );
        return Locked { instance, compaction_off: false, saved: false };
    }
    if !unlimited {
        // All is locked, only the allocator's own call would fail.
        warn!("the limit of locked memory cannot be raised: compaction of memory stays on");
        return Locked { instance, compaction_off: false, saved: false };
    }
    let mut saved = false;
    // What a killed daemon kept and could not be restored above is the older truth.
    if instance.remembered(SAVED).is_none()
        && let Ok(value) = fs::read_to_string(COMPACTION)
    {
        match instance.remember(SAVED, value.trim()) {
            Ok(()) => saved = true,
            Err(e) => warn!(
                "should this process be killed, set vm.compact_unevictable_allowed to {} by hand: {e}",
                value.trim()
            ),
        }
    }
    #[cfg(not(test))]
    ALLOCATOR.lock_memory();
    Locked { instance, compaction_off: true, saved }
}

/// A daemon that was killed could not undo its change: the value before it counts.
fn restore_after_kill(instance: &Instance, setting: &Path) {
    let Some(value) = instance.remembered(SAVED) else { return };
    if fs::read_to_string(setting).is_ok_and(|now| now.trim() == value) {
        return instance.forget(SAVED);
    }
    match fs::write(setting, &value) {
        Ok(()) => {
            info!("set vm.compact_unevictable_allowed to {value} again, which a killed daemon had changed");
            instance.forget(SAVED);
        }
        Err(e) => warn!("cannot set vm.compact_unevictable_allowed to {value} again: {e}"),
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.compaction_off {
            #[cfg(not(test))]
            ALLOCATOR.unlock_memory();
        }
        if self.saved {
            self.instance.forget(SAVED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c58_the_setting_of_a_killed_daemon_is_restored_once() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::claim(dir.path()).unwrap();
        let setting = dir.path().join("setting");
        fs::write(&setting, "0\n").unwrap();
        restore_after_kill(&instance, &setting);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "0\n", "nothing is known to restore");

        instance.remember(SAVED, "1").unwrap();
        restore_after_kill(&instance, &setting);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "1");
        fs::write(&setting, "0\n").unwrap();
        restore_after_kill(&instance, &setting);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "0\n", "what is set by hand later stays");
    }

    #[test]
    fn c59_a_setting_that_cannot_be_written_is_kept_in_mind() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::claim(dir.path()).unwrap();
        instance.remember(SAVED, "1").unwrap();
        restore_after_kill(&instance, &dir.path().join("absent/setting"));
        assert_eq!(instance.remembered(SAVED).as_deref(), Some("1"));
    }
}
