// SPDX-License-Identifier: GPL-2.0-only
//! Facts coming in: what each event means for the tables.

use super::Dispatcher;
use crate::cpuset::CpuSet;
use crate::event::{CpuStatus, Event, Runnable, Why};
use crate::ids::{CpuId, TaskId};
use crate::lifecycle::{Fact, State};
use crate::limits::{LINE_CHECK_NS, MAX_CHARGE_SLICES, MAX_LOOK_AHEAD, START_CHECK_NS};
use crate::ordered::NONE;
use crate::policy::Policy;
use crate::tasks::{List, Pending, Row};

impl<P: Policy> Dispatcher<P> {
    pub(super) fn fact(&mut self, event: &Event) {
        match event {
            Event::Runnable(runnable) => self.runnable(runnable),
            Event::Cpu(status) => self.status(status),
            Event::Ask(cpu) => self.ask(*cpu),
            Event::Affinity(task, cpus) => self.affinity(*task, cpus),
            Event::Weight(task, weight) => {
                if let Some(row) = self.claim(*task) {
                    self.row(row).fact.weight = (*weight).max(1);
                }
            }
            Event::Group(task, cgroup) => {
                if let Some(row) = self.claim(*task) {
                    self.row(row).fact.cgroup = *cgroup;
                }
            }
            // It keeps its row and its place.
            Event::Exec(task) => {
                if let Some(row) = self.claim(*task) {
                    self.estimates.exec(row);
                }
            }
            Event::Exit(task) => self.exit(*task),
            Event::Resync => self.resync(),
            Event::Timer => self.timer(),
        }
    }

    /// The row of a task, handed out to it if this is the first fact about it. None: the fact is to be ignored.
    #[inline]
    fn claim(&mut self, task: TaskId) -> Option<u32> {
        match self.tasks.find(task) {
            Some(_) => Some(task.idx),
            None => self.hand_out(task),
        }
    }

    #[cold]
    fn hand_out(&mut self, task: TaskId) -> Option<u32> {
        let Some(row) = self.tasks.rows.get(task.row()) else {
            self.stats.untracked += 1;
            return None;
        };
        if row.known {
            if (task.generation.wrapping_sub(row.fact.task.generation) as i32) < 0 {
                self.stats.outdated += 1;
                return None;
            }
            if row.state != State::Exited {
                self.stats.exits_missed += 1;
                self.retire(task.idx);
            }
        }
        // The list of pending rows runs through this row: it keeps its place there, to be skipped or used.
        let row = self.row(task.idx);
        *row = Row { pending: row.pending, pending_next: row.pending_next, ..Row::born(task) };
        self.estimates.clear(task.idx);
        Some(task.idx)
    }

    /// Takes a task out of everything and tells the policy.
    fn retire(&mut self, row: u32) {
        let left = self.unlink(row);
        self.step(row, Fact::Exit);
        if let Some(cpu) = left {
            self.cpu_changed(cpu);
        }
        self.estimates.clear(row);
        let task = self.row(row).fact.task;
        self.policy.forget(task);
    }

    fn exit(&mut self, task: TaskId) {
        let Some(row) = self.claim(task) else { return };
        if self.row(row).state == State::Exited {
            self.stats.anomalies += 1;
        } else {
            self.retire(row);
        }
    }

    fn runnable(&mut self, runnable: &Runnable) {
        let Some(index) = self.claim(runnable.task) else { return };
        let row = &self.tasks.rows[index as usize];
        let age = if row.has_seq { runnable.seq.wrapping_sub(row.fact.seq) as i32 } else { 1 };
        let rescan = runnable.why == Why::Rescan;
        let waits = row.state == State::Queued || row.state == State::Committed && !row.doubted;
        if age < 0 {
            self.stats.outdated += 1;
            return;
        }
        if age == 0 && rescan && waits {
            self.stats.known_rescans += 1;
            return;
        }
        if age == 0 && !rescan || row.state == State::Exited {
            self.stats.anomalies += 1;
            return;
        }
        if let Some(cpu) = self.unlink(index) {
            self.cpu_changed(cpu);
        }
        self.step(index, Fact::Enqueued);
        self.stats.runnable += 1;
        let (now, slice_ns) = (self.now, self.config.slice_ns);
        let row = self.row(index);
        let max_ran_ns = MAX_CHARGE_SLICES * slice_ns.max(row.slice_ns);
        row.fact = *runnable;
        row.fact.weight = runnable.weight.max(1);
        row.fact.ran_ns = runnable.ran_ns.min(max_ran_ns);
        row.has_seq = true;
        row.decided = false;
        row.retries = 0;
        row.since_ns = now;
        self.tasks.push_pending(index, Pending::Place);
        self.estimate_run(index, runnable, age > 0);
        self.row(index).told_ns = now;
        // A rescan of what is known repeats old run time: it is charged once.
        if age > 0 {
            self.stats.charges_capped += u64::from(runnable.ran_ns > max_ran_ns);
            self.policy.charge(now, &self.tasks.rows[index as usize].fact, &view!(self));
        }
    }

    fn affinity(&mut self, task: TaskId, cpus: &CpuSet) {
        let Some(index) = self.claim(task) else { return };
        // What waits in an ordered queue may be in the wrong one now: it is placed anew.
        let queued = self.row(index).queue != NONE;
        self.unqueue(index);
        if queued {
            self.estimates.leave(index);
            self.tasks.push_pending(index, Pending::Place);
        }
        if !self.tasks.restrict(index, cpus.words(), &self.machine) {
            self.stats.anomalies += 1;
        }
    }

    fn status(&mut self, status: &CpuStatus) {
        let cpu = status.cpu;
        if !self.machine.is_online(cpu) {
            self.stats.anomalies += 1;
            return;
        }
        let before = self.machine.set_status(status);
        self.estimates.read(status);
        if before != status.curr
            && let Some(task) = before
        {
            self.unseen(task, cpu);
        }
        if let Some(task) = status.curr {
            self.seen(task, status);
        }
        // The kernel's queue is first in, first out: if it is shorter than our line, the oldest have started.
        while self.machine.cpus[cpu.idx()].line.len() > status.depth {
            let Some(oldest) = self.machine.cpus[cpu.idx()].line.first() else { break };
            self.tasks.leave_line(oldest, &mut self.machine);
            self.estimates.leave(oldest);
            self.in_lines -= 1;
            self.step(oldest, Fact::Left);
        }
        // Taking entries out must not count as a change of what was just read.
        self.machine.cpus[cpu.idx()].depth = status.depth;
        self.cpu_changed(cpu);
        if let Some(last) = before
            && self.machine.is_idle(cpu)
        {
            self.policy.idled(self.now, cpu, last, status.since_ns.min(self.now), &view!(self));
        }
        if status.held && self.machine.is_held(cpu) {
            self.evict(cpu);
        }
    }

    /// A status word shows the task running.
    fn seen(&mut self, task: TaskId, status: &CpuStatus) {
        let Some(index) = self.claim(task) else { return };
        let row = &self.tasks.rows[index as usize];
        if row.state == State::Exited {
            return; // it is on its last way out: the exit record came first
        }
        let waits = matches!(row.state, State::Queued | State::Committed);
        if waits && status.since_ns < row.since_ns {
            return; // the run before this wait
        }
        let left = self.unlink(index);
        self.step(index, Fact::Seen);
        self.score_start(index, status.cpu, status.since_ns);
        if let Some(cpu) = left.filter(|&cpu| cpu != status.cpu) {
            self.cpu_changed(cpu);
        }
        let row = self.row(index);
        row.cpu = status.cpu.0;
        row.decided = false;
    }

    /// The status word that showed the task running shows another.
    fn unseen(&mut self, task: TaskId, cpu: CpuId) {
        let Some(row) = self.tasks.find(task) else { return };
        if row.state == State::Running && row.cpu == cpu.0 {
            self.row(task.idx).cpu = NONE;
            self.step(task.idx, Fact::Unseen);
        }
    }

    /// A CPU found nothing to run.
    fn ask(&mut self, cpu: CpuId) {
        if !self.machine.is_online(cpu) {
            self.stats.anomalies += 1;
        } else if self.machine.is_vacant(cpu) {
            self.asking.mark(cpu);
        } else {
            // It asked before a decision reached it, or it became idle after its status was read. The next reading
            // tells, so the next reading shall be now.
            self.stats.asks_doubted += 1;
            self.look_again = true;
        }
    }

    /// A higher class took a CPU: whoever waits there is called back, if there is another place for it.
    fn evict(&mut self, cpu: CpuId) {
        let mut at = self.machine.cpus[cpu.idx()].line.first();
        while let Some(row) = at {
            at = List::behind(row, &self.tasks.rows);
            if !self.row(row).decided {
                self.tasks.push_pending(row, Pending::Evict);
            }
        }
        // Nobody serves the ordered queue of a held CPU: who waits there is placed anew.
        let queue = self.queues.of_cpu(cpu);
        while let Some(row) = self.queues.ordered.first(queue) {
            self.queues.remove(row, &mut self.tasks, &mut self.machine);
            self.estimates.leave(row);
            self.tasks.push_pending(row, Pending::Place);
        }
    }

    /// Nothing that is believed to wait in HOLD queues is certain any more; what waits in lines is doubtful.
    fn resync(&mut self) {
        self.stats.resyncs += 1;
        self.estimates.resync();
        for queue in 0..self.queues.count() {
            while let Some(row) = self.queues.ordered.first(queue) {
                self.queues.remove(row, &mut self.tasks, &mut self.machine);
                self.estimates.leave(row);
                self.step(row, Fact::Dropped);
            }
        }
        while let Some((row, what)) = self.tasks.pop_pending() {
            if what == Pending::Place && self.row(row).state == State::Queued && !self.row(row).decided {
                self.step(row, Fact::Dropped);
            }
        }
        for i in 0..self.machine.topology.cpus.len() {
            let cpu = self.machine.topology.cpus[i].id;
            let mut at = self.machine.cpus[cpu.idx()].line.first();
            while let Some(row) = at {
                at = List::behind(row, &self.tasks.rows);
                self.row(row).doubted = true;
            }
        }
    }

    /// Looks through the lines for those who wait too long.
    fn timer(&mut self) {
        self.look_again = false;
        if self.in_lines + self.queues.sticky == 0 || self.now < self.next_check_ns {
            return;
        }
        // Who waits for one CPU by the policy's wish is offered again: the wait may have proved wrong.
        self.offer |= self.queues.sticky > 0;
        let mut waiters = self.queues.sticky;
        for i in 0..self.machine.topology.cpus.len() {
            let cpu = self.machine.topology.cpus[i].id;
            waiters += self.machine.cpus[cpu.idx()].waiters();
            self.check_line(cpu);
        }
        self.next_check_ns = self.now + if waiters > 0 { LINE_CHECK_NS } else { START_CHECK_NS };
    }

    fn check_line(&mut self, cpu: CpuId) {
        let mut at = self.machine.cpus[cpu.idx()].line.first();
        for _ in 0..MAX_LOOK_AHEAD {
            let Some(row) = at else { break };
            at = List::behind(row, &self.tasks.rows);
            let r = self.row(row);
            if !r.decided && r.due_ns <= self.now {
                self.tasks.push_pending(row, Pending::Overdue);
            }
        }
    }
}
