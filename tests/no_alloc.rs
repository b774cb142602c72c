// SPDX-License-Identifier: GPL-2.0-only
//! Case C10: a dispatcher that allocates may page-fault, and a page fault may wait for a task that waits for it.
//! So: after warm-up, a million decisions with 50,000 new tasks allocate nothing.

#[path = "../benches/load/mod.rs"]
mod load;

use hearth::policy::registry;
use load::Load;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted per thread (the test runner has threads of its own).
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the system's allocator wants.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above; `ptr` came from there.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; `ptr` came from there.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn c10_a_million_decisions_with_50_000_new_tasks_allocate_nothing() {
    for policy in registry::list().map(|spec| spec.name).chain(["estimates"]) {
        let mut load = Load::new(16, 1000, policy, 16);
        for _ in 0..1000 {
            load.round();
            load.replace_one();
        }
        let before = ALLOCATIONS.get();
        assert!(before > 0, "the counter does not count");
        let (mut decisions, mut new_tasks, mut round) = (0, 0, 0u64);
        while decisions < 1_000_000 {
            decisions += load.round();
            round += 1;
            if round % 6 != 0 {
                load.replace_one();
                new_tasks += 1;
            }
        }
        let allocations = ALLOCATIONS.get() - before;
        assert!(new_tasks >= 50_000, "{new_tasks} new tasks");
        assert_eq!(allocations, 0, "{policy}: allocations");
        assert_eq!(load.dispatcher().stats().anomalies, 0, "{:?}", load.dispatcher().stats());
    }
}
