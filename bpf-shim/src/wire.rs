// SPDX-License-Identifier: GPL-2.0-only
//! The wire format of `bpf/shim.h` as Rust sees it, and its translation into the core's terms.
//!
//! The bindings are generated from the very header that the shim is compiled with; the tests below pin the layout
//! that both sides assert, so a change of the header fails here until it is meant.

#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::all)]
mod intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

pub use intf::{hearth_batch, hearth_cpu, hearth_ctl, hearth_record, hearth_txn};

use hearth::event::{Command, NO_ROW, Outcome, Runnable, Why};
use hearth::ids::{CpuId, TaskId};
use hearth::reason::Reason;

/// What a record says ([`hearth_record::kind`]).
pub mod kind {
    use super::intf;
    /// A task wants a CPU.
    pub const RUNNABLE: u8 = intf::hearth_kind_HEARTH_RUNNABLE as u8;
    /// A CPU ran dry.
    pub const ASK: u8 = intf::hearth_kind_HEARTH_ASK as u8;
    /// A task is gone.
    pub const EXIT: u8 = intf::hearth_kind_HEARTH_EXIT as u8;
    /// A task runs another program.
    pub const EXEC: u8 = intf::hearth_kind_HEARTH_EXEC as u8;
    /// The scheduler is being taken down.
    pub const DETACHED: u8 = intf::hearth_kind_HEARTH_DETACHED as u8;
}

/// Number of counters a CPU keeps.
pub const NR_STATS: usize = intf::hearth_stat_HEARTH_NR_STATS as usize;
#[cfg(test)]
use intf::hearth_stat_HEARTH_S_ASKS as S_ASKS;
/// `curr_idx` of a CPU on which nothing of ours runs.
pub const NO_TASK: u32 = intf::hearth_limits_HEARTH_NO_TASK;
/// `curr_idx` of a CPU on which an untracked task runs.
pub const UNTRACKED: u32 = intf::hearth_limits_HEARTH_UNTRACKED;
/// Flag of a record: the task's row in the mask table changed.
pub const R_MASK: u16 = intf::hearth_record_flags_HEARTH_R_MASK as u16;

/// All counter names in the order of `enum hearth_stat`, as they appear in JSON.
pub const STAT_NAMES: [&str; NR_STATS] = [
    "runnable",
    "enqueues",
    "forwarded_new",
    "forwarded_woken",
    "forwarded_preempted",
    "forwarded_slice",
    "forwarded_yielded",
    "fallback_ring_full",
    "fallback_untracked",
    "fallback_takeover",
    "in_kernel_kthread",
    "in_kernel_pinned",
    "in_kernel_daemon",
    "bypassed",
    "dropped",
    "committed",
    "started",
    "recalled",
    "stale",
    "gone",
    "not_allowed",
    "retried",
    "taken_over",
    "takeovers",
    "rescued",
    "requeued",
    "extended",
    "asks",
    "pings",
    "notified",
    "runs_same_cpu",
    "migrations_llc",
    "migrations_cross_llc",
    "timer_ticks",
];

/// The task a record is about.
#[must_use]
pub fn task(r: &hearth_record) -> TaskId {
    TaskId { idx: r.idx, generation: r.gen_ }
}

/// A RUNNABLE record in the core's terms.
#[must_use]
pub fn runnable(r: &hearth_record) -> Runnable {
    const WHYS: [Why; 6] = [Why::New, Why::Woken, Why::Preempted, Why::SliceUsed, Why::Yielded, Why::Rescan];
    Runnable {
        task: task(r),
        pid: r.pid,
        seq: r.seq,
        why: WHYS.get(usize::from(r.why)).copied().unwrap_or(Why::Rescan),
        prev_cpu: CpuId(u32::try_from(r.cpu).unwrap_or(0)),
        ran_ns: r.ran_ns,
        slept_ns: r.slept_ns,
        waited_ns: r.waited_ns,
        left_busy_ns: r.left_busy_ns,
        waker_row: if r.waker_row == UNTRACKED { NO_ROW } else { r.waker_row },
        weight: r.weight,
        cgroup: r.cgroup,
    }
}

/// A decision as the shim reads it.
#[must_use]
pub fn txn(c: &Command) -> hearth_txn {
    let mut flags = 0;
    if c.preempt {
        flags |= intf::hearth_txn_flags_HEARTH_T_PREEMPT;
    }
    if matches!(c.reason, Reason::PrevIdle | Reason::LlcIdle | Reason::RemoteIdle | Reason::Pulled { .. }) {
        flags |= intf::hearth_txn_flags_HEARTH_T_IDLE;
    }
    if c.recalled_from.is_some() {
        flags |= intf::hearth_txn_flags_HEARTH_T_RECALL;
    }
    hearth_txn {
        idx: c.task.idx,
        gen_: c.task.generation,
        pid: c.pid,
        seq: c.seq,
        cpu: c.cpu.0,
        flags,
        slice_ns: c.slice_ns,
        outcome: intf::hearth_outcome_HEARTH_PENDING,
        pad: 0,
    }
}

/// What the shim wrote into a transaction. `None`: the batch did not get that far.
#[must_use]
pub fn outcome(raw: u32) -> Option<Outcome> {
    match raw {
        intf::hearth_outcome_HEARTH_DONE => Some(Outcome::Done),
        intf::hearth_outcome_HEARTH_STALE => Some(Outcome::Stale),
        intf::hearth_outcome_HEARTH_GONE => Some(Outcome::Gone),
        intf::hearth_outcome_HEARTH_NOT_ALLOWED => Some(Outcome::NotAllowed),
        intf::hearth_outcome_HEARTH_RETRY => Some(Outcome::Retry),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_what_the_shim_asserts() {
        assert_eq!(size_of::<hearth_record>(), 80);
        assert_eq!(size_of::<hearth_cpu>(), 128);
        assert_eq!(offset_of!(hearth_cpu, depth), 64);
        assert_eq!(size_of::<hearth_txn>(), 40);
        assert_eq!(size_of::<hearth_batch>(), 64 + 40 * hearth::limits::MAX_BATCH);
        assert_eq!(size_of::<hearth_ctl>(), 128);
        assert_eq!(offset_of!(hearth_ctl, takeover), 64);
    }

    #[test]
    fn limits_agree_with_the_core() {
        assert_eq!(intf::hearth_limits_HEARTH_MAX_CPUS as usize, hearth::limits::MAX_CPUS);
        assert_eq!(intf::hearth_limits_HEARTH_MAX_TASKS as usize, hearth::limits::MAX_TASKS);
        assert_eq!(intf::hearth_limits_HEARTH_MAX_BATCH as usize, hearth::limits::MAX_BATCH);
    }

    #[test]
    fn every_why_has_its_counter_and_its_meaning() {
        assert_eq!(STAT_NAMES[2 + intf::hearth_why_HEARTH_WHY_SLICE as usize], "forwarded_slice");
        assert_eq!(intf::hearth_why_HEARTH_NR_WHYS, 6);
        assert_eq!(STAT_NAMES[S_ASKS as usize], "asks");
    }
}
