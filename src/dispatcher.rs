// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher: takes facts in, asks the policy, hands decisions out. It does no I/O and never reads a clock.
//!
//! A driver (the daemon, the simulator, a test) does this, over and over:
//!
//! 1. [`Dispatcher::handle`] every changed CPU status, then every record, then [`Event::Timer`] if
//!    [`Dispatcher::deadline`] has passed;
//! 2. [`Dispatcher::poll`] until it yields none; every command goes to the kernel;
//! 3. [`Dispatcher::committed`] with the outcome of every command, once each;
//! 4. tell the kernel side [`Dispatcher::wants_asks`]; sleep until the next record or the deadline.
//!
//! All times are of one clock (CLOCK_MONOTONIC), and `now` is never later than the moment itself: by it the dispatcher
//! tells a task that started after a decision from one that was seen running before. A batch of commands is carried out
//! after the readings of step 1, so that the next readings include it.
//!
//! One wakeup goes this way: `handle` (file `facts.rs`) notes the fact and puts the task on the list of those that
//! wait for a decision; `poll` (`decide.rs`) asks [`Policy::place`], makes sure that the answer is legal, and either
//! emits a [`Command`] or keeps the task in an ordered queue until a CPU asks; `committed` (`outcome.rs`) notes
//! that the task is now in a CPU's line, or that it must be decided again.
//!
//! **Invariants.** A task waits in at most one place. All tables have their full size from the start: nothing is
//! allocated after [`Dispatcher::new`]. Every walk is bounded by a constant or by the number of CPUs. The same events
//! give the same commands, on every machine.

/// A view made of the dispatcher's parts, so that the policy can be borrowed beside it.
macro_rules! view {
    ($d:expr) => {
        crate::view::View {
            now: $d.now,
            machine: &$d.machine,
            tasks: &$d.tasks,
            queues: &$d.queues,
            estimates: &$d.estimates,
        }
    };
}

mod decide;
pub(crate) mod estimates;
mod facts;
mod outcome;

use crate::event::{Command, Event, Outcome};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::lifecycle::{Fact, State};
use crate::limits::{
    DEFAULT_SLICE_NS, LINE_CHECK_NS, LINE_WAIT_NS, MAX_LOOK_AHEAD, MAX_TASKS, START_CHECK_NS,
};
use crate::machine::Machine;
use crate::ordered::NONE;
use crate::policy::Policy;
use crate::policy::params::Params;
use crate::profile::Profile;
use crate::queues::Queues;
use crate::stats::Stats;
use crate::tasks::{Marks, Row, Tasks};
use crate::topology::Topology;
use crate::view::View;
use estimates::Estimates;
use serde::{Deserialize, Serialize};

/// What a dispatcher and its policy are told at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Tasks that are tracked at once; facts about others are counted and ignored.
    pub max_tasks: usize,
    /// Slice that the policies give.
    pub slice_ns: Nanos,
    /// How long a task may wait in a line before a better place is looked for (where the policy names no bound).
    pub line_wait_ns: Nanos,
    /// The CPU that the dispatcher itself runs on: the moment it decides, that CPU is not free.
    pub dispatcher_cpu: Option<CpuId>,
    /// None: that CPU is chosen only for tasks that may use no other. Some(n): it counts as having n waiters more.
    pub dispatcher_cpu_penalty: Option<u32>,
    /// The policy's parameters.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
    /// What losing cached state costs on this machine.
    #[serde(default)]
    pub profile: Profile,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_tasks: MAX_TASKS,
            slice_ns: DEFAULT_SLICE_NS,
            line_wait_ns: LINE_WAIT_NS,
            dispatcher_cpu: None,
            dispatcher_cpu_penalty: None,
            params: Params::default(),
            profile: Profile::default(),
        }
    }
}

/// Task lifecycle, legality, queues and transactions around a [`Policy`].
#[derive(Debug)]
pub struct Dispatcher<P> {
    policy: P,
    config: Config,
    now: Nanos,
    machine: Machine,
    tasks: Tasks,
    queues: Queues,
    estimates: Estimates,
    /// CPUs that became idle and have not been served since.
    asking: Marks,
    /// Something was put into an ordered queue since the idle CPUs were last asked.
    offer: bool,
    /// The tasks that [`Policy::pick`] chooses from.
    candidates: Vec<TaskId>,
    /// Tasks in lines; when lines are to be looked at.
    in_lines: u32,
    next_check_ns: Nanos,
    /// The driver shall come back at once with fresh status words.
    look_again: bool,
    /// Whether CPUs were wanted to ask when `poll` last ended.
    wanted_asks: bool,
    stats: Stats,
}

impl<P: Policy> Dispatcher<P> {
    /// A dispatcher for a machine: no task is known, and a CPU is idle until a status says otherwise.
    ///
    /// # Panics
    /// If the machine has no CPU, or more tasks are to be tracked than [`MAX_TASKS`].
    #[must_use]
    pub fn new(topology: Topology, config: Config, policy: P) -> Self {
        assert!(!topology.cpus.is_empty() && !topology.llcs.is_empty(), "a machine without CPUs");
        assert!(config.max_tasks <= MAX_TASKS, "at most {MAX_TASKS} tasks can be tracked");
        let id_limit = topology.id_limit;
        let estimates = Estimates::new(policy.needs(), config.profile.clone(), &topology, config.max_tasks);
        let machine = Machine::new(topology, config.dispatcher_cpu, config.dispatcher_cpu_penalty);
        Self {
            policy,
            now: 0,
            tasks: Tasks::new(config.max_tasks, id_limit),
            queues: Queues::new(&machine, config.max_tasks),
            estimates,
            asking: Marks::new(id_limit),
            offer: false,
            candidates: Vec::with_capacity(MAX_LOOK_AHEAD),
            in_lines: 0,
            next_check_ns: 0,
            look_again: false,
            wanted_asks: false,
            stats: Stats::default(),
            machine,
            config,
        }
    }

    /// Takes a fact in. Time that runs backwards is held still.
    pub fn handle(&mut self, now: Nanos, event: &Event) {
        self.now = self.now.max(now);
        self.fact(event);
    }

    /// The next decision, until there is none. Each must be answered by [`Dispatcher::committed`].
    pub fn poll(&mut self, now: Nanos) -> Option<Command> {
        self.now = self.now.max(now);
        let command = self.decide();
        if command.is_none() {
            let wants = self.wants_asks();
            // A CPU may have run dry just before the kernel side learns that asks are wanted, and said nothing.
            self.look_again |= wants && !self.wanted_asks;
            self.wanted_asks = wants;
        }
        command
    }

    /// What became of a command.
    pub fn committed(&mut self, now: Nanos, command: &Command, outcome: Outcome) {
        self.now = self.now.max(now);
        self.settle(command, outcome);
    }

    /// When [`Event::Timer`] is due, if no other event comes before; in the past: at once. Status words are to be
    /// read again before it is sent.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.look_again || self.tasks.has_pending() || self.asking.any() {
            Some(self.now)
        } else {
            (self.in_lines + self.queues.sticky > 0).then_some(self.next_check_ns)
        }
    }

    /// Shall a CPU that runs dry say so? True while a task waits that it could run.
    #[must_use]
    pub fn wants_asks(&self) -> bool {
        self.queues.waiting > 0 || self.machine.waiters > 0
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What it was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The machine and the tasks as they are known now.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        view!(self)
    }

    /// Where a task is in its life, if it is known.
    #[must_use]
    pub fn state_of(&self, task: TaskId) -> Option<State> {
        self.tasks.find(task).map(|row| row.state)
    }

    fn row(&mut self, row: u32) -> &mut Row {
        &mut self.tasks.rows[row as usize]
    }

    /// Moves a task on in the lifecycle table. False (and counted): the fact cannot be.
    #[inline]
    fn step(&mut self, row: u32, fact: Fact) -> bool {
        let r = self.row(row);
        match r.state.after(fact) {
            Some(next) => {
                r.state = next;
                true
            }
            None => {
                self.stats.anomalies += 1;
                false
            }
        }
    }

    /// Takes a task out of whatever it waits in or runs on. Returns the CPU whose line it left, for [`Dispatcher::cpu_changed`].
    #[inline]
    fn unlink(&mut self, row: u32) -> Option<CpuId> {
        self.unqueue(row);
        self.estimates.leave(row);
        let r = self.row(row);
        if r.state == State::Committed {
            self.in_lines -= 1;
            return Some(self.tasks.leave_line(row, &mut self.machine));
        }
        debug_assert!(r.cpu == NONE || r.state == State::Running);
        r.cpu = NONE;
        None
    }

    /// Takes a task out of the ordered queue that it waits in, if any.
    #[inline]
    fn unqueue(&mut self, row: u32) {
        if self.tasks.rows[row as usize].queue != NONE {
            self.queues.remove(row, &mut self.tasks, &mut self.machine);
        }
    }

    /// Appends a task to a CPU's line and sees to it that somebody looks after it.
    fn join_line(&mut self, row: u32, cpu: CpuId) {
        let behind = self.machine.cpus[cpu.idx()].ahead() > 0;
        // Who is put behind another is looked after when its wait is over, if that is soon.
        let due_ns = LINE_CHECK_NS.min(self.tasks.rows[row as usize].at_most_ns);
        self.check_in(if behind { due_ns } else { START_CHECK_NS });
        self.tasks.join_line(row, cpu, &mut self.machine);
        self.in_lines += 1;
        self.machine.refresh(cpu);
    }

    /// Those who wait are to be looked at in so long, or earlier.
    fn check_in(&mut self, ns: Nanos) {
        let check = self.now + ns;
        let idle = self.in_lines + self.queues.sticky == 0;
        self.next_check_ns = if idle { check } else { self.next_check_ns.min(check) };
    }

    /// A CPU's row changed: if it has become free, it is served by the next poll.
    fn cpu_changed(&mut self, cpu: CpuId) {
        if self.machine.refresh(cpu) && self.wants_asks() {
            self.asking.mark(cpu);
        }
    }
}
