// SPDX-License-Identifier: GPL-2.0-only
//! A futex that one thread sleeps on until another posts it: the wakeup path that is being measured.

use crate::sys;
use std::sync::atomic::{AtomicU32, Ordering};

const WAITING: u32 = 0;
const POSTED: u32 = 1;

/// One-shot wakeup: `arm`, tell others where to find you, `wait`. A post between the two is not lost.
#[derive(Debug)]
pub struct Gate(AtomicU32);

impl Gate {
    /// A gate that lets the first `wait` through only after a post.
    pub const fn new() -> Self {
        Self(AtomicU32::new(WAITING))
    }

    /// Forgets earlier posts. Only the thread that waits may call it.
    pub fn arm(&self) {
        self.0.store(WAITING, Ordering::SeqCst);
    }

    /// Lets the waiter through; costs a system call only if the gate was not posted already.
    pub fn post(&self) {
        if self.0.swap(POSTED, Ordering::SeqCst) == WAITING {
            sys::futex_wake(&self.0, 1);
        }
    }

    /// Sleeps until the gate is posted.
    pub fn wait(&self) {
        while self.0.load(Ordering::SeqCst) != POSTED {
            sys::futex_wait(&self.0, WAITING, None);
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
