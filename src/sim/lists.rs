// SPDX-License-Identifier: GPL-2.0-only
//! Queues of tasks, first in first out, linked through one table: a task is in one of them at most.

/// No task.
pub(crate) const NONE: u32 = u32::MAX;

/// A queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
    pub len: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };
}

/// Each task's neighbours.
#[derive(Debug)]
pub(crate) struct Links {
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl Links {
    pub fn new(tasks: usize) -> Self {
        Self { next: vec![NONE; tasks], prev: vec![NONE; tasks] }
    }

    #[inline]
    pub fn push_back(&mut self, list: &mut List, task: u32) {
        self.prev[task as usize] = list.tail;
        self.next[task as usize] = NONE;
        match list.tail {
            NONE => list.head = task,
            tail => self.next[tail as usize] = task,
        }
        list.tail = task;
        list.len += 1;
    }

    pub fn push_front(&mut self, list: &mut List, task: u32) {
        self.next[task as usize] = list.head;
        self.prev[task as usize] = NONE;
        match list.head {
            NONE => list.tail = task,
            head => self.prev[head as usize] = task,
        }
        list.head = task;
        list.len += 1;
    }

    #[inline]
    pub fn remove(&mut self, list: &mut List, task: u32) {
        let (next, prev) = (self.next[task as usize], self.prev[task as usize]);
        match prev {
            NONE => list.head = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.prev[next as usize] = prev,
        }
        list.len -= 1;
    }

    /// The task behind this one.
    #[inline]
    pub fn behind(&self, task: u32) -> u32 {
        self.next[task as usize]
    }

    /// The tasks of a queue, oldest first.
    pub fn iter(&self, list: &List) -> impl Iterator<Item = u32> + '_ {
        let some = |task: u32| (task != NONE).then_some(task);
        std::iter::successors(some(list.head), move |&task| some(self.behind(task)))
    }
}
