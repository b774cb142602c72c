// SPDX-License-Identifier: GPL-2.0-only
//! A simulated task: what the kernel keeps about it, and where it is in its life.

use super::lists::{List, NONE};
use super::rng::{Purpose, Stream};
use crate::event::NO_ROW;
use crate::ids::{Nanos, TaskId};

/// Loops inside one another.
pub(crate) const MAX_DEPTH: usize = 8;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In no queue: it sleeps, or the row is free.
    Asleep,
    /// Waits for a decision.
    Hold(u32),
    /// In a CPU's own queue.
    Own(u32),
    Fallback,
    On(u32),
    /// Put aside by a higher class, to go on there.
    Aside(u32),
    Dead,
}

/// What a sleeping task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Nothing: it does not sleep, or its wakeup is on the way.
    No,
    Time,
    Inbox,
    /// Room in the inbox of this task.
    Full(u32),
    /// The answer of this task.
    Reply(u32),
    /// A request.
    Work,
}

/// A request on its way through a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Req {
    pub intended_ns: Nanos,
    pub begun_ns: Nanos,
    pub demand_ns: Nanos,
    /// [`NONE`]: of an open loop.
    pub client: u32,
}

/// One task; its row is its number everywhere in the simulator.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub id: TaskId,
    pub group: u32,
    /// Its number in its set, and the set's.
    pub member: u32,
    pub set: u32,
    pub place: Place,
    pub block: Block,
    pub alive: bool,
    /// It may not run everywhere (see the mask table).
    pub restricted: bool,
    /// The dispatcher has not been told of its mask.
    pub mask_dirty: bool,
    /// It has slept and not run since: its next start ends a wakeup.
    pub woken: bool,
    pub yielded: bool,
    pub fresh: bool,
    pub weight: u32,
    pub cgroup: u64,
    pub waker_row: u32,
    pub seq: u32,
    pub prev_cpu: u32,
    /// Work of the present phase or request that is left.
    pub work_left_ns: Nanos,
    /// Work that it owes for waking others.
    pub debt_ns: Nanos,
    /// The request that its next run is expected to serve, if it is a worker.
    pub expected_ns: Nanos,
    pub slice_ns: Nanos,
    pub ran_ns: Nanos,
    pub slept_ns: Nanos,
    pub asleep_since_ns: Nanos,
    /// When it was put into a queue, since when it wants to run, when its wakeup was begun.
    pub queued_ns: Nanos,
    pub runnable_since_ns: Nanos,
    pub woken_ns: Nanos,
    /// How long it had waited before its last run.
    pub waited_ns: Nanos,
    /// When its last record was written, whether it has run since, and after how long.
    pub told_ns: Nanos,
    pub has_run: bool,
    pub told_wait_ns: Nanos,
    /// The busy clock of its CPU when it left it.
    pub left_busy_ns: Nanos,
    pub wake_epoch: u32,
    /// Where it is in its program.
    pub pc: u32,
    pub counters: [u32; MAX_DEPTH],
    pub rounds_left: u32,
    pub next_target: u32,
    pub inbox: u32,
    /// Callers that wait to be read, and those read and not answered; senders that wait for room.
    pub callers: List,
    pub taken: List,
    pub senders: List,
    /// The request it serves; whether it serves any.
    pub request: Option<Req>,
    pub stream: Stream,
    /// The oracle's best for this wakeup, and when it was asked; 0: not sampled.
    pub best_ns: Nanos,
    pub best_at_ns: Nanos,
}

impl Task {
    pub fn free(row: u32) -> Self {
        Self {
            id: TaskId { idx: row, generation: 0 },
            group: 0,
            member: 0,
            set: 0,
            place: Place::Dead,
            block: Block::No,
            alive: false,
            restricted: false,
            mask_dirty: false,
            woken: false,
            yielded: false,
            fresh: true,
            weight: 100,
            cgroup: 0,
            waker_row: NO_ROW,
            seq: 0,
            prev_cpu: 0,
            work_left_ns: 0,
            debt_ns: 0,
            expected_ns: 0,
            slice_ns: 0,
            ran_ns: 0,
            slept_ns: 0,
            asleep_since_ns: 0,
            queued_ns: 0,
            runnable_since_ns: 0,
            woken_ns: 0,
            waited_ns: 0,
            told_ns: 0,
            has_run: false,
            told_wait_ns: 0,
            left_busy_ns: 0,
            wake_epoch: 0,
            pc: 0,
            counters: [0; MAX_DEPTH],
            rounds_left: 0,
            next_target: 0,
            inbox: 0,
            callers: List::EMPTY,
            taken: List::EMPTY,
            senders: List::EMPTY,
            request: None,
            stream: Stream::new(0, Purpose::Task, 0, u64::from(NONE)),
            best_ns: 0,
            best_at_ns: 0,
        }
    }

    /// Kernel thread id.
    pub fn pid(&self) -> u32 {
        self.id.idx + 100
    }

    /// Does it wait for a CPU?
    pub fn waits(&self) -> bool {
        matches!(self.place, Place::Hold(_) | Place::Own(_) | Place::Fallback)
    }
}
