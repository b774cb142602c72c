// SPDX-License-Identifier: GPL-2.0-only
//! Decisions going out: first every task that waits for one, then every CPU that has become free.

use super::Dispatcher;
use crate::cpuset::{ones, test};
use crate::event::{Command, Runnable};
use crate::ids::{CpuId, LlcId, Nanos};
use crate::lifecycle::State;
use crate::limits::{LINE_CHECK_NS, MAX_LOOK_AHEAD, MAX_RETRIES, MAX_TURN_NS, SLICE_NS, STARVING_NS};
use crate::ordered::NONE;
use crate::policy::{At, Pick, Placement, Policy};
use crate::queues::Queues;
use crate::reason::Reason;
use crate::tasks::Pending;

/// Everything about a decision but the task.
struct Choice {
    cpu: CpuId,
    slice_ns: Nanos,
    at_most_ns: Nanos,
    preempt: bool,
    reason: Reason,
}

/// Where the candidates for a CPU come from.
enum Found {
    /// One that has waited far too long.
    Starving(Nanos),
    /// The CPU's own queue and its domain's.
    Near,
    /// Another queue.
    Elsewhere,
}

fn as_us(ns: Nanos) -> u32 {
    (ns / 1000).min(u64::from(u32::MAX)) as u32
}

impl<P: Policy> Dispatcher<P> {
    pub(super) fn decide(&mut self) -> Option<Command> {
        loop {
            if let Some((row, what)) = self.tasks.pop_pending() {
                if let Some(command) = self.decide_task(row, what) {
                    return Some(command);
                }
            } else if std::mem::take(&mut self.offer) {
                self.offer_to_idle();
            } else if let Some(cpu) = self.asking.take() {
                if let Some(command) = self.serve(cpu) {
                    return Some(command);
                }
            } else {
                return None;
            }
        }
    }

    fn decide_task(&mut self, row: u32, what: Pending) -> Option<Command> {
        let r = self.row(row);
        let in_line = r.state == State::Committed && !r.decided;
        let in_hold = r.state == State::Queued && !r.decided && r.queue == NONE;
        match what {
            Pending::Place if in_hold => self.place(row),
            Pending::Evict if in_line => self.move_from_held(row),
            Pending::Overdue if in_line => self.move_overdue(row),
            _ => None, // it has moved on since
        }
    }

    /// Asks the policy where a task goes.
    fn place(&mut self, row: u32) -> Option<Command> {
        let fact = &self.tasks.rows[row as usize].fact;
        let placement = self.policy.place(self.now, fact, &view!(self));
        let choice = match placement {
            Placement::Queue { at, order, reason } => {
                let queue = self.queue_at(row, at);
                if !self.queues.cpu_of(queue).is_some_and(|cpu| self.machine.is_held(cpu)) {
                    self.enqueue(row, queue, at, order, reason);
                    return None;
                }
                // All CPUs that it may use are held. In the queue of one it gets what the kernel grants there.
                let (cpu, reason) = self.nearest(row);
                let (slice_ns, at_most_ns) = (self.config.slice_ns, self.config.line_wait_ns);
                Choice { cpu, slice_ns, at_most_ns, preempt: false, reason }
            }
            placement => self.choice(placement)?,
        };
        let choice = self.legal(row, choice);
        Some(self.emit(row, choice, None))
    }

    /// The ordered queue that the policy means, or the one at home if the task cannot wait there.
    fn queue_at(&mut self, row: u32, at: At) -> usize {
        let queue = match at {
            At::Home => None,
            At::Llc(llc) => {
                let known = llc.idx() < self.machine.topology.llcs.len();
                (known && self.queues.covers(row, llc, &self.tasks, &self.machine))
                    .then(|| Queues::of_llc(llc))
            }
            At::Cpu { cpu, .. } => {
                let usable = self.machine.is_ordinary(cpu) && self.tasks.is_allowed(row, cpu, &self.machine);
                usable.then(|| self.queues.of_cpu(cpu))
            }
        };
        self.stats.corrected += u64::from(queue.is_none() && at != At::Home);
        queue.unwrap_or_else(|| self.queues.home(row, &self.tasks, &self.machine))
    }

    /// Puts a task into an ordered queue.
    fn enqueue(&mut self, row: u32, queue: usize, at: At, order: u64, reason: Option<Reason>) {
        let now = self.now;
        let at_most_ns = match at {
            At::Cpu { at_most_ns, .. } => at_most_ns,
            At::Home | At::Llc(_) => self.config.line_wait_ns,
        };
        let sticky = match at {
            At::Home => false,
            At::Llc(llc) => queue == Queues::of_llc(llc),
            At::Cpu { .. } => self.queues.cpu_of(queue).is_some(),
        };
        let r = self.row(row);
        r.sticky = sticky;
        r.due_ns = now.saturating_add(at_most_ns);
        r.queued_for = reason;
        if sticky {
            self.check_in(LINE_CHECK_NS);
        }
        self.queues.insert(row, queue, order, &mut self.tasks, &mut self.machine);
        self.estimates.join(row, queue, self.config.slice_ns);
        self.offer = true;
    }

    fn choice(&self, placement: Placement) -> Option<Choice> {
        match placement {
            Placement::Run { cpu, slice_ns, preempt, reason } => {
                Some(Choice { cpu, slice_ns, at_most_ns: self.config.line_wait_ns, preempt, reason })
            }
            Placement::Wait { cpu, slice_ns, at_most_ns, reason } => {
                Some(Choice { cpu, slice_ns, at_most_ns, preempt: false, reason })
            }
            Placement::Queue { .. } => None,
        }
    }

    /// Puts a choice right that the task cannot or should not have: a CPU that is not online, not allowed, held by a
    /// higher class or the dispatcher's own, while there is a better one.
    fn legal(&mut self, row: u32, choice: Choice) -> Choice {
        let restricted = self.tasks.rows[row as usize].restricted;
        if self.machine.is_ordinary(choice.cpu)
            && (!restricted || self.tasks.is_allowed(row, choice.cpu, &self.machine))
        {
            return choice;
        }
        let possible =
            self.machine.is_online(choice.cpu) && self.tasks.is_allowed(row, choice.cpu, &self.machine);
        let own = self.machine.is_dispatcher(choice.cpu) && self.machine.dispatcher_penalty().is_none();
        if possible && !own && !self.machine.is_held(choice.cpu) {
            return choice;
        }
        let (cpu, _) = self.nearest(row);
        if cpu == choice.cpu {
            return choice; // there is no other
        }
        self.stats.corrected += 1;
        Choice { cpu, preempt: false, reason: Reason::Corrected, ..choice }
    }

    /// The nearest idle CPU for a task, or else the shortest line.
    fn nearest(&self, row: u32) -> (CpuId, Reason) {
        let fact = &self.tasks.rows[row as usize].fact;
        let view = view!(self);
        view.idle_near(fact).unwrap_or_else(|| {
            let (cpu, _, reason) = view.shortest_line(fact);
            (cpu, reason)
        })
    }

    /// A task waits for a CPU that a higher class holds: ask the policy again, as if it had just woken.
    fn move_from_held(&mut self, row: u32) -> Option<Command> {
        let from = CpuId(self.row(row).cpu);
        if !self.machine.is_held(from) {
            return None;
        }
        let fact = &self.tasks.rows[row as usize].fact;
        let placement = self.policy.place(self.now, fact, &view!(self));
        let choice = match self.choice(placement) {
            Some(choice) => self.legal(row, choice),
            None => {
                // It is in a CPU's own queue and cannot go back to an ordered one.
                let (cpu, reason) = self.nearest(row);
                let slice_ns = self.row(row).slice_ns;
                Choice { cpu, slice_ns, at_most_ns: self.config.line_wait_ns, preempt: false, reason }
            }
        };
        (choice.cpu != from && !self.machine.is_held(choice.cpu)).then(|| self.emit(row, choice, Some(from)))
    }

    /// A task has waited in line beyond its bound: it goes to an idle CPU if there is one, or waits on.
    fn move_overdue(&mut self, row: u32) -> Option<Command> {
        let r = &self.tasks.rows[row as usize];
        let from = CpuId(r.cpu);
        let waited_us = as_us(self.now.saturating_sub(r.since_ns));
        let idle = view!(self).idle_near(&r.fact);
        let (slice_ns, at_most_ns) = (r.slice_ns, r.at_most_ns);
        match idle {
            Some((cpu, _)) if r.retries < MAX_RETRIES => {
                let reason = Reason::Overdue { waited_us, from };
                let choice = Choice { cpu, slice_ns, at_most_ns, preempt: false, reason };
                Some(self.emit(row, choice, Some(from)))
            }
            _ => {
                let due_ns = self.now.saturating_add(at_most_ns.max(self.config.line_wait_ns));
                self.row(row).due_ns = due_ns;
                None
            }
        }
    }

    /// New tasks wait in ordered queues: every idle CPU shall have a look.
    fn offer_to_idle(&mut self) {
        if self.queues.waiting == 0 {
            return;
        }
        self.asking.mark_all(&self.machine.idle);
        if let Some(own) = self.machine.dispatcher().filter(|&cpu| self.machine.is_vacant(cpu)) {
            self.asking.mark(own);
        }
    }

    /// Finds work for a CPU that has become free.
    fn serve(&mut self, cpu: CpuId) -> Option<Command> {
        if !self.machine.is_vacant(cpu) {
            return None;
        }
        if self.queues.waiting > 0
            && let Some(command) = self.serve_queued(cpu)
        {
            return Some(command);
        }
        if self.in_lines > 0 && !self.machine.is_dispatcher(cpu) { self.pull(cpu) } else { None }
    }

    fn serve_queued(&mut self, cpu: CpuId) -> Option<Command> {
        let found = self.find_candidates(cpu)?;
        let Pick { index, slice_ns, reason } =
            self.policy.pick(self.now, cpu, &self.candidates, &view!(self));
        let row = self.candidates.get(index).unwrap_or(&self.candidates[0]).idx;
        let order = self.queues.ordered.key(row).order;
        let reason = match found {
            Found::Starving(waited_ns) => Reason::Starving { waited_us: as_us(waited_ns) },
            Found::Near => reason.or(self.row(row).queued_for).unwrap_or(Reason::FirstInOrder { order }),
            Found::Elsewhere => reason.unwrap_or(Reason::Stolen { order }),
        };
        let queue = self.row(row).queue as usize;
        let waiting = self.queues.ordered.len(queue) / self.queues.cpus_of(queue, &self.machine);
        self.queues.remove(row, &mut self.tasks, &mut self.machine);
        let slice_ns = self.fair_turn(slice_ns, waiting);
        let choice = Choice { cpu, slice_ns, at_most_ns: self.config.line_wait_ns, preempt: false, reason };
        Some(self.emit(row, choice, None))
    }

    /// Fills `candidates` with the first tasks that wait and may run on `cpu`: one that starves, or its own and its
    /// domain's by order, or else those of others. None: there is nobody.
    fn find_candidates(&mut self, cpu: CpuId) -> Option<Found> {
        let wanted = self.policy.look_ahead().clamp(1, MAX_LOOK_AHEAD);
        self.candidates.clear();
        let own = self.queues.of_cpu(cpu);
        let llc = self.machine.llc_of(cpu)?;
        let domain = Some(Queues::of_llc(llc)).filter(|&queue| self.may_serve(cpu, queue));
        if let Some(waited_ns) = self.find_starving(cpu, own, domain) {
            return Some(Found::Starving(waited_ns));
        }
        self.look_through(cpu, own, domain, wanted);
        if !self.candidates.is_empty() {
            return Some(Found::Near);
        }
        if self.machine.is_dispatcher(cpu) && self.machine.dispatcher_penalty().is_none() {
            return None;
        }
        // Nearest first: single-CPU queues of this domain, then other domains, then single-CPU queues there.
        for near in [true, false] {
            if !near {
                for other in 0..self.machine.topology.llcs.len() {
                    let queue = Queues::of_llc(LlcId(other as u32));
                    if other != llc.idx() && self.may_serve(cpu, queue) {
                        self.look_through(cpu, queue, None, wanted);
                        if !self.candidates.is_empty() {
                            return Some(Found::Elsewhere);
                        }
                    }
                }
            }
            for word in 0..self.queues.movable.len() {
                let mask = self.machine.llc_mask(llc)[word];
                let bits = self.queues.movable[word] & if near { mask } else { !mask };
                for bit in ones(&[bits]) {
                    let queue = self.queues.of_cpu(CpuId(word as u32 * 64 + bit.0));
                    self.look_through(cpu, queue, None, wanted);
                    if !self.candidates.is_empty() {
                        return Some(Found::Elsewhere);
                    }
                }
            }
        }
        None
    }

    /// Whatever the order says: who has waited for that long is next.
    fn find_starving(&mut self, cpu: CpuId, own: usize, domain: Option<usize>) -> Option<Nanos> {
        for queue in [Some(own), domain].into_iter().flatten() {
            let Some(row) = self.queues.oldest(queue) else { continue };
            let r = &self.tasks.rows[row as usize];
            let waited_ns = self.now.saturating_sub(r.since_ns);
            if waited_ns >= STARVING_NS && self.tasks.is_allowed(row, cpu, &self.machine) {
                self.candidates.push(r.fact.task);
                return Some(waited_ns);
            }
        }
        None
    }

    /// May the CPU take from a domain's queue? The dispatcher's own: only if more wait than its penalty says.
    fn may_serve(&self, cpu: CpuId, queue: usize) -> bool {
        !self.machine.is_dispatcher(cpu)
            || self.machine.dispatcher_penalty().is_some_and(|n| self.queues.ordered.len(queue) > n)
    }

    /// Adds to `candidates` the tasks of up to two queues, by order, that may run on `cpu`.
    fn look_through(&mut self, cpu: CpuId, one: usize, other: Option<usize>, wanted: usize) {
        let ordered = &self.queues.ordered;
        let mut a = ordered.first(one);
        let mut b = other.and_then(|queue| ordered.first(queue));
        for _ in 0..MAX_LOOK_AHEAD {
            let first_is_a = match (a, b) {
                (None, None) => break,
                (Some(a), Some(b)) => ordered.key(a) < ordered.key(b),
                (a, _) => a.is_some(),
            };
            let (row, queue) = if first_is_a { (a, one) } else { (b, other.unwrap_or(one)) };
            let Some(row) = row else { break };
            if self.tasks.is_allowed(row, cpu, &self.machine) && self.may_take(row, queue, cpu) {
                self.candidates.push(self.tasks.rows[row as usize].fact.task);
                if self.candidates.len() == wanted {
                    break;
                }
            }
            let next = ordered.next(queue, ordered.key(row));
            if first_is_a { a = next } else { b = next }
        }
    }

    /// May `cpu` have a task that waits in this queue? Who waits for another CPU or domain by the policy's wish: if it agrees.
    fn may_take(&self, row: u32, queue: usize, cpu: CpuId) -> bool {
        let r = &self.tasks.rows[row as usize];
        if !r.sticky || r.due_ns <= self.now {
            return true;
        }
        match self.queues.cpu_of(queue) {
            Some(from) if from != cpu => self.policy.may_pull(self.now, r.fact.task, from, cpu, &view!(self)),
            Some(_) => true,
            None => {
                let from = LlcId(queue as u32);
                self.machine.llc_of(cpu) == Some(from)
                    || self.policy.may_steal(self.now, r.fact.task, from, cpu, &view!(self))
            }
        }
    }

    /// Nothing waits in ordered queues: takes the first waiter that may run on `cpu` out of the longest line, of
    /// the same domain if there is one.
    fn pull(&mut self, cpu: CpuId) -> Option<Command> {
        let llc = self.machine.llc_of(cpu)?;
        let mut best: Option<(bool, u32, u32, CpuId)> = None;
        for i in 0..self.machine.topology.cpus.len() {
            let other = &self.machine.topology.cpus[i];
            let near = other.llc == llc;
            let waiters = self.machine.cpus[other.id.idx()].waiters();
            if waiters == 0 || best.is_some_and(|(n, w, ..)| (n, w) >= (near, waiters)) {
                continue;
            }
            if let Some(row) = self.first_movable(other.id, cpu) {
                best = Some((near, waiters, row, other.id));
            }
        }
        let (_, _, row, from) = best?;
        let r = &self.tasks.rows[row as usize];
        let (slice_ns, at_most_ns) = (r.slice_ns, r.at_most_ns);
        let choice = Choice { cpu, slice_ns, at_most_ns, preempt: false, reason: Reason::Pulled { from } };
        Some(self.emit(row, choice, Some(from)))
    }

    /// The first in the line of `from` that has someone ahead and may run on `to`.
    fn first_movable(&self, from: CpuId, to: CpuId) -> Option<u32> {
        let row = &self.machine.cpus[from.idx()];
        let starting = (row.line.len() - row.waiters()) as usize;
        row.line.iter(&self.tasks.rows).take(MAX_LOOK_AHEAD).skip(starting).find(|&row| {
            let r = &self.tasks.rows[row as usize];
            !r.decided
                && r.retries < MAX_RETRIES
                && test(self.tasks.allowed(row, &self.machine), to.idx())
                && (r.due_ns <= self.now
                    || self.policy.may_pull(self.now, r.fact.task, from, to, &view!(self)))
        })
    }

    /// Shortens a slice so that all `waiting` get their turn in time.
    fn fair_turn(&mut self, slice_ns: Nanos, waiting: u32) -> Nanos {
        let turns = u64::from(waiting) + 1;
        if slice_ns.saturating_mul(turns) <= MAX_TURN_NS {
            return slice_ns;
        }
        self.stats.slices_shortened += 1;
        slice_ns.min((MAX_TURN_NS / turns).max(*SLICE_NS.start()))
    }

    /// Makes a decision known: to the tables, the counters, and the caller.
    fn emit(&mut self, row: u32, choice: Choice, recalled_from: Option<CpuId>) -> Command {
        let Choice { cpu, at_most_ns, preempt, reason, .. } = choice;
        let ahead = self.machine.cpus[cpu.idx()].ahead();
        let slice_ns = self.fair_turn(choice.slice_ns.clamp(*SLICE_NS.start(), *SLICE_NS.end()), ahead);
        self.estimate_decision(row, cpu, slice_ns, preempt);
        self.machine.cpus[cpu.idx()].in_flight += 1;
        self.machine.refresh(cpu);
        let now = self.now;
        let r = self.row(row);
        r.decided = true;
        r.slice_ns = slice_ns;
        r.at_most_ns = at_most_ns;
        if recalled_from.is_none() {
            r.since_ns = now;
        }
        let Runnable { task, pid, seq, .. } = r.fact;
        self.stats.decisions += 1;
        self.stats.recalls += u64::from(recalled_from.is_some());
        self.stats.preemptions += u64::from(preempt);
        self.stats.reasons.count(reason);
        Command { task, pid, seq, cpu, slice_ns, preempt, recalled_from, reason }
    }
}
