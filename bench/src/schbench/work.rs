// SPDX-License-Identifier: GPL-2.0-only
//! What a request does: hold the lock of the current CPU and multiply matrices.

use crate::sys;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The memory of one worker: three square matrices, touched by nobody else.
///
/// Cells are atomics, read and written relaxed. That costs what plain loads and stores cost, but keeps the compiler from
/// dropping or vectorising them: every multiplication is 2 side^3 loads, and side^3 multiplies and adds, on every machine.
#[derive(Debug)]
pub struct Footprint {
    side: usize,
    left: Vec<AtomicU64>,
    right: Vec<AtomicU64>,
    product: Vec<AtomicU64>,
}

impl Footprint {
    /// Matrices of `side` rows. Call it on the thread that will use them, so that the pages are near it.
    pub fn new(side: usize) -> Self {
        let matrix = |salt: u64| (0..side * side).map(|cell| AtomicU64::new(cell as u64 + salt)).collect();
        Self { side, left: matrix(1), right: matrix(2), product: matrix(3) }
    }

    /// One naive multiplication. False if `give_up` said so after some row.
    pub fn multiply(&self, give_up: impl Fn() -> bool) -> bool {
        if self.side == 0 {
            return true;
        }
        let rows = self.left.chunks_exact(self.side).zip(self.product.chunks_exact(self.side));
        for (left_row, product_row) in rows {
            for (column, cell) in product_row.iter().enumerate() {
                let right_column = self.right[column..].iter().step_by(self.side);
                let sum = left_row.iter().zip(right_column).fold(0u64, |sum, (a, b)| {
                    sum.wrapping_add(a.load(Ordering::Relaxed).wrapping_mul(b.load(Ordering::Relaxed)))
                });
                cell.store(sum, Ordering::Relaxed);
            }
            if give_up() {
                return false;
            }
        }
        true
    }
}

/// One lock on cache lines of its own (two, because CPUs fetch them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct CpuLock(AtomicBool);

/// A spin lock for every CPU of the machine.
///
/// schbench has them to show what preempting a lock holder costs: a worker that is woken onto the CPU of a preempted
/// holder burns its slice spinning.
#[derive(Debug)]
pub struct CpuLocks(Box<[CpuLock]>);

/// Holds one CPU's lock until dropped.
#[derive(Debug)]
pub struct CpuGuard<'a>(&'a CpuLock);

impl Drop for CpuGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl CpuLocks {
    /// Free locks for CPU ids below `cpu_ids`.
    pub fn new(cpu_ids: usize) -> Self {
        Self((0..cpu_ids.max(1)).map(|_| CpuLock::default()).collect())
    }

    /// Spins until the lock of the CPU that the caller is on is its own; `None` if `give_up` said so first.
    pub fn lock_current(&self, give_up: impl Fn() -> bool) -> Option<CpuGuard<'_>> {
        loop {
            let cpu = sys::current_cpu();
            let lock = &self.0[cpu % self.0.len()];
            while lock.0.swap(true, Ordering::Acquire) {
                if give_up() {
                    return None;
                }
                hint::spin_loop();
            }
            let guard = CpuGuard(lock);
            // Moved while spinning: the lock of the old CPU is of no use.
            if sys::current_cpu() == cpu {
                return Some(guard);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(matrix: &[AtomicU64]) -> Vec<u64> {
        matrix.iter().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn the_product_is_right_and_repeatable() {
        let work = Footprint::new(2);
        assert_eq!((values(&work.left), values(&work.right)), (vec![1, 2, 3, 4], vec![2, 3, 4, 5]));
        for _ in 0..2 {
            assert!(work.multiply(|| false));
            assert_eq!(values(&work.product), [10, 13, 22, 29]);
        }
    }

    #[test]
    fn an_empty_footprint_is_no_work() {
        assert!(Footprint::new(0).multiply(|| true));
    }

    #[test]
    fn work_can_be_given_up_after_a_row() {
        let work = Footprint::new(3);
        assert!(!work.multiply(|| true));
        assert_eq!(values(&work.product)[3..], [6, 7, 8, 9, 10, 11], "later rows are untouched");
    }

    #[test]
    fn footprints_are_private() {
        let (one, other) = (Footprint::new(16), Footprint::new(16));
        let before = values(&other.product);
        assert!(one.multiply(|| false));
        assert_ne!(values(&one.product), before);
        assert_eq!(values(&other.product), before);
    }

    #[test]
    fn a_held_lock_keeps_others_out_until_dropped() {
        // One lock for all ids, so that the test does not depend on the CPU it runs on.
        let locks = CpuLocks::new(1);
        let guard = locks.lock_current(|| false).unwrap();
        assert!(locks.lock_current(|| true).is_none());
        drop(guard);
        assert!(locks.lock_current(|| true).is_some());
    }
}
