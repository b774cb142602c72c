// SPDX-License-Identifier: GPL-2.0-only
//! Reader of the shim's BPF ring buffer: zero copy, no allocation, no call per record.
//!
//! libbpf's own reader takes a callback a record and cannot be asked "is anything there, finished or not?", which is
//! what the sleep protocol of the dispatcher turns on: a record that is reserved but not yet submitted must keep it
//! awake.

use crate::wire::hearth_record;
use anyhow::{Context, Result};
use memmap2::{MmapOptions, MmapRaw};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const HEADER_BYTES: u64 = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// The consumer's side of the ring.
pub struct Ring {
    consumer: MmapRaw,
    producer: MmapRaw,
    page_bytes: usize,
    size_bytes: u64,
}

impl Ring {
    /// Maps the ring behind `fd`; `size_bytes` is the map's max_entries.
    pub fn new(fd: &impl AsRawFd, size_bytes: u32) -> Result<Self> {
        // SAFETY: sysconf has no preconditions.
        let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })?;
        let raw = fd.as_raw_fd();
        let consumer =
            MmapOptions::new().len(page_bytes).map_raw(raw).context("cannot map the ring's consumer page")?;
        // The data area is mapped twice in a row by the kernel, so a record never wraps.
        let producer = MmapOptions::new()
            .offset(page_bytes as u64)
            .len(page_bytes + 2 * size_bytes as usize)
            .map_raw_read_only(raw)
            .context("cannot map the ring's data")?;
        let ring = Self { consumer, producer, page_bytes, size_bytes: u64::from(size_bytes) };
        // What an earlier attachment left is of no use; nobody writes before the next one.
        ring.consumer_pos().store(ring.producer_pos().load(Ordering::Acquire), Ordering::Release);
        Ok(ring)
    }

    fn consumer_pos(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page long, page aligned, and lives as long as self; the word is shared with the
        // kernel, hence atomic.
        unsafe { &*self.consumer.as_ptr().cast::<AtomicU64>() }
    }

    fn producer_pos(&self) -> &AtomicU64 {
        // SAFETY: as above; the first word of the producer page.
        unsafe { &*self.producer.as_ptr().cast::<AtomicU64>() }
    }

    /// Is anything in the ring, finished or still being written?
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.producer_pos().load(Ordering::Acquire) != self.consumer_pos().load(Ordering::Relaxed)
    }

    /// Takes the next finished record, if there is one.
    pub fn next(&mut self) -> Option<hearth_record> {
        loop {
            let at = self.consumer_pos().load(Ordering::Relaxed);
            if at == self.producer_pos().load(Ordering::Acquire) {
                return None;
            }
            let offset = usize::try_from(at & (self.size_bytes - 1)).ok()?;
            // SAFETY: `offset` is below the ring's size and records are 8-byte aligned; the data area starts one
            // page into the mapping and is mapped twice, so header and record are inside it.
            let header = unsafe { self.producer.as_ptr().add(self.page_bytes + offset) };
            // SAFETY: as above; the length word is shared with the kernel, hence atomic.
            let len = unsafe { &*header.cast::<AtomicU32>() }.load(Ordering::Acquire);
            if len & BUSY != 0 {
                return None;
            }
            let bytes = u64::from(len & !DISCARDED);
            // SAFETY: the record is finished (not BUSY, read with Acquire) and the kernel will not touch it before
            // the consumer position moves past it. Every record of this ring is a hearth_record.
            let record = unsafe { header.add(HEADER_BYTES as usize).cast::<hearth_record>().read() };
            let next = at + (bytes + HEADER_BYTES).next_multiple_of(8);
            self.consumer_pos().store(next, Ordering::Release);
            if len & DISCARDED == 0 {
                return Some(record);
            }
        }
    }
}
