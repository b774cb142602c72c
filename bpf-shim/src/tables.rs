// SPDX-License-Identifier: GPL-2.0-only
//! The tables that the shim and the dispatcher share through mmap: control page, status words, masks, commit batch.

use crate::wire::{NO_TASK, UNTRACKED, hearth_batch, hearth_cpu, hearth_ctl, hearth_txn};
use anyhow::{Context, Result};
use hearth::event::CpuStatus;
use hearth::ids::{CpuId, TaskId};
use memmap2::{MmapOptions, MmapRaw};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

fn map(fd: &impl AsRawFd, bytes: usize, what: &str) -> Result<MmapRaw> {
    MmapOptions::new().len(bytes).map_raw(fd.as_raw_fd()).with_context(|| format!("cannot map the {what}"))
}

/// The control page.
pub struct Ctl(MmapRaw);

impl Ctl {
    /// Maps it.
    pub fn new(fd: &impl AsRawFd) -> Result<Self> {
        map(fd, size_of::<hearth_ctl>(), "control page").map(Self)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offsets below are those of aligned u32 fields of hearth_ctl, inside the mapping, which lives
        // as long as self; the words are shared with the shim, hence atomic.
        unsafe { &*self.0.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// 1 while the dispatcher blocks or is about to.
    #[must_use]
    pub fn asleep(&self) -> &AtomicU32 {
        self.word(offset_of!(hearth_ctl, asleep))
    }

    /// 1 while a CPU that runs dry should say so.
    #[must_use]
    pub fn wants_asks(&self) -> &AtomicU32 {
        self.word(offset_of!(hearth_ctl, wants_asks))
    }

    /// Epoch of the takeover in force, 0 when there is none.
    #[must_use]
    pub fn takeover(&self) -> &AtomicU32 {
        self.word(offset_of!(hearth_ctl, takeover))
    }

    /// Is the scheduler still attached?
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.word(offset_of!(hearth_ctl, enabled)).load(Ordering::Acquire) != 0
    }
}

/// The status words of all CPUs, and what was last read of them.
pub struct Cpus {
    map: MmapRaw,
    seen: Vec<(u32, u32)>,
}

impl Cpus {
    /// Maps `limit` rows.
    pub fn new(fd: &impl AsRawFd, limit: u32) -> Result<Self> {
        let rows = limit as usize;
        Ok(Self { map: map(fd, rows * size_of::<hearth_cpu>(), "status words")?, seen: vec![(1, 0); rows] })
    }

    fn row(&self, cpu: CpuId) -> *const u8 {
        debug_assert!(cpu.idx() < self.seen.len());
        // SAFETY: rows are only asked for CPUs below the limit that the table was mapped with.
        unsafe { self.map.as_ptr().add(cpu.idx() * size_of::<hearth_cpu>()) }
    }

    fn word32(row: *const u8, offset: usize) -> u32 {
        // SAFETY: an aligned u32 field of the row; shared with the shim, hence atomic.
        unsafe { &*row.add(offset).cast::<AtomicU32>() }.load(Ordering::Relaxed)
    }

    fn word64(row: *const u8, offset: usize) -> u64 {
        // SAFETY: an aligned u64 field of the row; shared with the shim, hence atomic.
        unsafe { &*row.add(offset).cast::<AtomicU64>() }.load(Ordering::Relaxed)
    }

    /// The CPU's status if it changed since it was last read here.
    pub fn changed(&mut self, cpu: CpuId) -> Option<CpuStatus> {
        let row = self.row(cpu);
        let seq = Self::word32(row, offset_of!(hearth_cpu, seq));
        let depth = Self::word32(row, offset_of!(hearth_cpu, depth));
        if self.seen[cpu.idx()] == (seq, depth) {
            return None;
        }
        // A write under way is read again in the next round: never spin on a writer that may be preempted.
        fence(Ordering::Acquire);
        let status = Self::read(cpu, row, depth);
        fence(Ordering::Acquire);
        if seq & 1 == 1 || Self::word32(row, offset_of!(hearth_cpu, seq)) != seq {
            return None;
        }
        self.seen[cpu.idx()] = (seq, depth);
        Some(status)
    }

    /// Does somebody wait for this CPU who would run if the dispatcher, which is on it, slept?
    #[must_use]
    pub fn is_wanted(&self, cpu: CpuId) -> bool {
        let row = self.row(cpu);
        Self::word32(row, offset_of!(hearth_cpu, parked)) != 0
            || Self::word32(row, offset_of!(hearth_cpu, depth)) > 0
    }

    fn read(cpu: CpuId, row: *const u8, depth: u32) -> CpuStatus {
        let idx = Self::word32(row, offset_of!(hearth_cpu, curr_idx));
        let generation = Self::word32(row, offset_of!(hearth_cpu, curr_gen));
        let tracked = idx != NO_TASK && idx != UNTRACKED;
        CpuStatus {
            cpu,
            curr: tracked.then_some(TaskId { idx, generation }),
            other: idx == UNTRACKED,
            held: Self::word32(row, offset_of!(hearth_cpu, held)) != 0,
            since_ns: Self::word64(row, offset_of!(hearth_cpu, since_ns)),
            slice_ns: Self::word64(row, offset_of!(hearth_cpu, slice_ns)),
            busy_ns: Self::word64(row, offset_of!(hearth_cpu, busy_ns)),
            depth,
        }
    }
}

/// Allowed CPUs of every task.
pub struct Masks {
    map: MmapRaw,
    words: usize,
}

impl Masks {
    /// Maps `rows` rows of `words` 64-bit words.
    pub fn new(fd: &impl AsRawFd, rows: usize, words: usize) -> Result<Self> {
        Ok(Self { map: map(fd, rows * words * 8, "table of allowed CPUs")?, words })
    }

    /// Copies a task's row.
    pub fn read(&self, task: TaskId, into: &mut [u64]) {
        for (i, word) in into.iter_mut().enumerate().take(self.words) {
            let offset = (task.row() * self.words + i) * 8;
            // SAFETY: task rows are below the table's rows (the shim hands out no others), words below its width.
            *word = unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU64>() }.load(Ordering::Relaxed);
        }
    }
}

/// The commit batch. Only the dispatcher writes decisions; the shim writes outcomes during the commit call.
pub struct Batch(MmapRaw);

impl Batch {
    /// Maps it.
    pub fn new(fd: &impl AsRawFd) -> Result<Self> {
        map(fd, size_of::<hearth_batch>(), "commit batch").map(Self)
    }

    /// Sets the number of decisions.
    pub fn set_len(&mut self, n: usize) {
        let n = u32::try_from(n).unwrap_or(0);
        // SAFETY: the first word of the mapping; nobody else accesses the batch between commit calls.
        unsafe { self.0.as_mut_ptr().cast::<u32>().write(n) }
    }

    fn slot(&self, i: usize) -> *mut hearth_txn {
        debug_assert!(i < hearth::limits::MAX_BATCH);
        // SAFETY: `i` is below the number of slots, so the slot lies inside the mapping.
        unsafe { self.0.as_mut_ptr().add(offset_of!(hearth_batch, txn)).cast::<hearth_txn>().add(i) }
    }

    /// Writes decision `i`.
    pub fn set(&mut self, i: usize, txn: hearth_txn) {
        // SAFETY: a valid slot (see slot()), not accessed by the shim outside a commit call.
        unsafe { self.slot(i).write(txn) }
    }

    /// What the shim made of decision `i`.
    #[must_use]
    pub fn outcome(&self, i: usize) -> u32 {
        // SAFETY: a valid slot; the commit call that wrote it has returned.
        unsafe { (*self.slot(i)).outcome }
    }
}
