// SPDX-License-Identifier: GPL-2.0-only
//! One row per tracked task, its allowed CPUs, and the list of tasks that wait for a decision.
//!
//! All tables have their full size from the start. Lists run through the rows themselves (a row knows its
//! neighbours), so that a task joins and leaves them at once, and nothing is allocated.

use crate::cpuset::{clear, ones, set, test, words_for};
use crate::event::{NO_ROW, Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::lifecycle::State;
use crate::machine::Machine;
use crate::ordered::NONE;
use crate::reason::Reason;

/// What the decision that a row is pending for is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Nothing: it is not in the list.
    No,
    /// It waits in a HOLD queue: where does it go?
    Place,
    /// It waits in the line of a CPU that a higher class has taken: where else?
    Evict,
    /// It waits in a line beyond its bound: is another CPU free?
    Overdue,
}

/// One task: two cache lines, the wakeup and the flags in the first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Row {
    /// Its latest wakeup.
    pub fact: Runnable,
    pub state: State,
    /// Has this row been handed out, and has a wakeup set `fact.seq`?
    pub known: bool,
    pub has_seq: bool,
    /// A decision is on its way to the kernel.
    pub decided: bool,
    /// Its place in a line may be outdated (a resync came since).
    pub doubted: bool,
    /// It may not run everywhere: its words in the affinity table count.
    pub restricted: bool,
    /// It waits in the ordered queue of one CPU or domain because the policy wants that one for it.
    pub sticky: bool,
    pub pending: Pending,
    pub retries: u8,
    /// Where it runs, or in whose line it waits.
    pub cpu: u32,
    /// The ordered queue that it waits in.
    pub queue: u32,
    /// Its neighbours in the line or queue that it waits in (see [`List`]).
    pub next: u32,
    pub prev: u32,
    pub pending_next: u32,
    /// How many online CPUs it may use, if restricted.
    pub allowed_cpus: u32,
    /// The slice of the latest decision.
    pub slice_ns: Nanos,
    /// How long it may wait in a line, since when it does (or since when it is runnable), and until when.
    pub at_most_ns: Nanos,
    pub since_ns: Nanos,
    pub due_ns: Nanos,
    /// When its latest record came.
    pub told_ns: Nanos,
    /// The reason it was put into an ordered queue with.
    pub queued_for: Option<Reason>,
}

impl Row {
    /// A row that was just handed out to `task`.
    pub fn born(task: TaskId) -> Self {
        Self {
            fact: Runnable {
                task,
                pid: 0,
                seq: 0,
                why: Why::New,
                prev_cpu: CpuId(u32::MAX),
                ran_ns: 0,
                slept_ns: 0,
                waited_ns: 0,
                left_busy_ns: 0,
                waker_row: NO_ROW,
                weight: 100,
                cgroup: 0,
            },
            state: State::New,
            known: true,
            has_seq: false,
            decided: false,
            doubted: false,
            restricted: false,
            sticky: false,
            pending: Pending::No,
            retries: 0,
            cpu: NONE,
            queue: NONE,
            next: NONE,
            prev: NONE,
            pending_next: NONE,
            allowed_cpus: 0,
            slice_ns: 0,
            at_most_ns: 0,
            since_ns: 0,
            due_ns: 0,
            told_ns: 0,
            queued_for: None,
        }
    }
}

/// All rows.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub rows: Vec<Row>,
    affinity: Vec<u64>,
    words: usize,
    pending_head: u32,
    pending_tail: u32,
}

impl Tasks {
    pub fn new(max_tasks: usize, id_limit: u32) -> Self {
        let words = words_for(id_limit);
        let nobody = Row { known: false, ..Row::born(TaskId { idx: NONE, generation: 0 }) };
        Self {
            rows: vec![nobody; max_tasks],
            affinity: vec![0; max_tasks * words],
            words,
            pending_head: NONE,
            pending_tail: NONE,
        }
    }

    /// The row of a living task; none if it is not tracked or the row belongs to another generation.
    #[inline]
    pub fn find(&self, task: TaskId) -> Option<&Row> {
        self.rows.get(task.row()).filter(|row| row.known && row.fact.task == task)
    }

    /// The CPUs a task is restricted to; none: it may run anywhere.
    #[inline]
    pub fn restriction(&self, row: u32) -> Option<&[u64]> {
        self.rows[row as usize].restricted.then(|| {
            let start = row as usize * self.words;
            &self.affinity[start..start + self.words]
        })
    }

    /// The bitmap of CPUs that a task may use.
    #[inline]
    pub fn allowed<'a>(&'a self, row: u32, machine: &'a Machine) -> &'a [u64] {
        self.restriction(row).unwrap_or(&machine.online)
    }

    /// May the task use this CPU?
    #[inline]
    pub fn is_allowed(&self, row: u32, cpu: CpuId, machine: &Machine) -> bool {
        test(self.allowed(row, machine), cpu.idx())
    }

    /// Restricts a task to `words` (as far as those CPUs are online). False if nothing would be left: then it may
    /// run anywhere, as the kernel does with it.
    pub fn restrict(&mut self, row: u32, words: &[u64], machine: &Machine) -> bool {
        let start = row as usize * self.words;
        let mut count = 0;
        for (i, word) in self.affinity[start..start + self.words].iter_mut().enumerate() {
            *word = words.get(i).copied().unwrap_or(0) & machine.online[i];
            count += word.count_ones();
        }
        let row = &mut self.rows[row as usize];
        row.allowed_cpus = count;
        row.restricted = count > 0 && count < machine.topology.cpus.len() as u32;
        count > 0
    }

    /// The kernel refused this CPU for the task: take it out of what is known, unless nothing would be left.
    pub fn learn_refusal(&mut self, row: u32, cpu: CpuId, machine: &Machine) {
        let start = row as usize * self.words;
        if !self.rows[row as usize].restricted {
            self.affinity[start..start + self.words].copy_from_slice(&machine.online);
            self.rows[row as usize].allowed_cpus = machine.topology.cpus.len() as u32;
        }
        if self.rows[row as usize].allowed_cpus > 1
            && test(&self.affinity[start..start + self.words], cpu.idx())
        {
            clear(&mut self.affinity[start..start + self.words], cpu.idx());
            self.rows[row as usize].allowed_cpus -= 1;
            self.rows[row as usize].restricted = true;
        }
    }

    /// Appends a row to the list of those that wait for a decision; once only.
    #[inline]
    pub fn push_pending(&mut self, row: u32, what: Pending) {
        let listed = self.rows[row as usize].pending != Pending::No;
        self.rows[row as usize].pending = what;
        if listed {
            return;
        }
        self.rows[row as usize].pending_next = NONE;
        if self.pending_tail == NONE {
            self.pending_head = row;
        } else {
            self.rows[self.pending_tail as usize].pending_next = row;
        }
        self.pending_tail = row;
    }

    /// Takes the first row off that list, with what it is pending for.
    #[inline]
    pub fn pop_pending(&mut self) -> Option<(u32, Pending)> {
        let head = self.pending_head;
        let row = self.rows.get_mut(head as usize)?;
        let what = std::mem::replace(&mut row.pending, Pending::No);
        self.pending_head = row.pending_next;
        if self.pending_head == NONE {
            self.pending_tail = NONE;
        }
        Some((head, what))
    }

    #[inline]
    pub fn has_pending(&self) -> bool {
        self.pending_head != NONE
    }

    /// Appends a row to a CPU's line.
    #[inline]
    pub fn join_line(&mut self, row: u32, cpu: CpuId, machine: &mut Machine) {
        debug_assert_eq!(self.rows[row as usize].cpu, NONE, "already in a line or on a CPU");
        self.rows[row as usize].cpu = cpu.0;
        let c = &mut machine.cpus[cpu.idx()];
        c.line.push(row, &mut self.rows);
        c.depth += 1;
    }

    /// Takes a row out of the line it is in, and the CPU's own queue is one shorter for all we know.
    #[inline]
    pub fn leave_line(&mut self, row: u32, machine: &mut Machine) -> CpuId {
        let cpu = CpuId(std::mem::replace(&mut self.rows[row as usize].cpu, NONE));
        let c = &mut machine.cpus[cpu.idx()];
        c.line.remove(row, &mut self.rows);
        c.depth = c.depth.saturating_sub(1);
        cpu
    }
}

/// A list of rows, oldest first, that runs through the rows themselves. A row is in one such list at most: a CPU's line,
/// or an ordered queue's arrivals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    pub fn len(&self) -> u32 {
        self.len
    }

    /// The oldest row.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The rows, oldest first.
    pub fn iter<'a>(&self, rows: &'a [Row]) -> impl Iterator<Item = u32> + use<'a> {
        std::iter::successors(self.first(), |&row| {
            let next = rows[row as usize].next;
            (next != NONE).then_some(next)
        })
    }

    /// The row behind this one.
    #[inline]
    pub fn behind(row: u32, rows: &[Row]) -> Option<u32> {
        let next = rows[row as usize].next;
        (next != NONE).then_some(next)
    }

    #[inline]
    pub fn push(&mut self, row: u32, rows: &mut [Row]) {
        rows[row as usize].prev = self.tail;
        rows[row as usize].next = NONE;
        match self.tail {
            NONE => self.head = row,
            tail => rows[tail as usize].next = row,
        }
        self.tail = row;
        self.len += 1;
    }

    #[inline]
    pub fn remove(&mut self, row: u32, rows: &mut [Row]) {
        let Row { prev, next, .. } = rows[row as usize];
        match prev {
            NONE => self.head = next,
            prev => rows[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => rows[next as usize].prev = prev,
        }
        self.len -= 1;
    }
}

/// A bitmap of rows or CPUs that something is to be done about.
#[derive(Debug)]
pub(crate) struct Marks {
    words: Vec<u64>,
    any: bool,
}

impl Marks {
    pub fn new(limit: u32) -> Self {
        Self { words: vec![0; words_for(limit)], any: false }
    }

    #[inline]
    pub fn mark(&mut self, cpu: CpuId) {
        set(&mut self.words, cpu.idx());
        self.any = true;
    }

    pub fn mark_all(&mut self, words: &[u64]) {
        for (mine, more) in self.words.iter_mut().zip(words) {
            *mine |= more;
            self.any |= *more != 0;
        }
    }

    /// Takes the lowest mark away.
    #[inline]
    pub fn take(&mut self) -> Option<CpuId> {
        if !self.any {
            return None;
        }
        let first = ones(&self.words).next();
        match first {
            Some(cpu) => clear(&mut self.words, cpu.idx()),
            None => self.any = false,
        }
        first
    }

    #[inline]
    pub fn any(&self) -> bool {
        self.any && self.words.iter().any(|&w| w != 0)
    }
}
