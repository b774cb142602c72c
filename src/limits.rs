// SPDX-License-Identifier: GPL-2.0-only
//! Every bound of the system, on one page.

use crate::ids::Nanos;

/// CPUs that the status table can hold; a machine with more is refused before attaching.
pub const MAX_CPUS: usize = 4096;

/// Tasks that are tracked at once; more run untracked, by the shim's FALLBACK queue.
pub const MAX_TASKS: usize = 65_536;

/// Decisions in one commit call.
pub const MAX_BATCH: usize = 256;

/// Slice that a policy gives when the user names none.
pub const DEFAULT_SLICE_NS: Nanos = 5_000_000;

/// Shortest and longest slice that may be asked for.
pub const SLICE_NS: std::ops::RangeInclusive<Nanos> = 50_000..=1_000_000_000;

/// How old the head of a HOLD queue may get before the kernel side takes over.
pub const TAKEOVER_LIMIT_NS: Nanos = 5_000_000;

/// Slice of a task that the kernel side serves without the dispatcher (takeover, FALLBACK).
pub const TAKEOVER_SLICE_NS: Nanos = 2_000_000;

/// Period of the shim's timer while anything waits.
pub const TIMER_PERIOD_NS: Nanos = 1_000_000;

/// After this time without progress the kernel ejects a scheduler (sched_ext's watchdog).
pub const WATCHDOG_NS: Nanos = 5_000_000_000;

/// Older than this in a CPU's own queue: the shim rescues the task to FALLBACK.
pub const RESCUE_NS: Nanos = WATCHDOG_NS / 3;

/// How long a task may wait in a CPU's line by default before the dispatcher looks for a better place.
pub const LINE_WAIT_NS: Nanos = 1_000_000;

/// How often waiting lines are looked at for overdue waiters, while there are any.
pub const LINE_CHECK_NS: Nanos = 500_000;

/// How soon a task that was committed to an idle CPU is looked after, if no status word has shown it starting.
pub const START_CHECK_NS: Nanos = 10_000_000;

/// Everyone who waits for the same CPU gets a turn in about this time: slices shrink as the line grows (down to the
/// shortest of [`SLICE_NS`]).
pub const MAX_TURN_NS: Nanos = 500_000_000;

/// Who has waited this long in a queue that a policy orders is next, whatever the order: a task of weight 1 among a
/// few of weight 100 would otherwise outlast the kernel's watchdog.
pub const STARVING_NS: Nanos = 1_000_000_000;

/// Answers "retry" to one decision before the dispatcher leaves the task to the next rescan.
pub const MAX_RETRIES: u8 = 64;

/// Entries of an ordered queue that are looked through for one that may run on the CPU that asks.
pub const MAX_LOOK_AHEAD: usize = 32;

/// The longest run that one stop may be charged with, in slices: a suspended machine or a clock step charges no more.
pub const MAX_CHARGE_SLICES: u64 = 4;

/// Levels of cached state that a machine profile may have.
pub const MAX_LEVELS: usize = 8;

/// CPUs whose state is remembered per task.
pub const REMEMBERED_CPUS: usize = 4;

/// LLC domains whose state is remembered per task.
pub const REMEMBERED_LLCS: usize = 2;

/// The largest time in a machine profile: one second.
pub const MAX_PROFILE_NS: Nanos = 1_000_000_000;

/// How long a run is taken to last before anything is known of anybody's.
pub const PRIOR_RUN_NS: Nanos = 100_000;

/// How long a CPU is taken to be away that a higher class holds. Longer than any wait for a CPU of ours, so that it is the
/// last choice, and short enough that sums of it do not overflow.
pub const HELD_WAIT_NS: Nanos = 1_000_000_000;

/// Cgroups whose run lengths are kept, for tasks that have no history of their own (a power of two).
pub const GROUP_SLOTS: usize = 1024;

const _: () = assert!(GROUP_SLOTS.is_power_of_two());
const _: () = assert!(TAKEOVER_LIMIT_NS + 2 * TIMER_PERIOD_NS < RESCUE_NS);
const _: () = assert!(RESCUE_NS < WATCHDOG_NS / 2);
const _: () = assert!(LINE_CHECK_NS <= LINE_WAIT_NS);
const _: () = assert!(START_CHECK_NS < RESCUE_NS && MAX_TURN_NS < RESCUE_NS && STARVING_NS < WATCHDOG_NS / 2);
const _: () = assert!(MAX_TASKS <= u32::MAX as usize);
