// SPDX-License-Identifier: GPL-2.0-only
//! Wait for the warm CPU, or migrate: whatever costs least.
//!
//! For a few CPUs (the previous one, those that still hold something of the task, the nearest idle ones, the one with the shortest
//! line: [`cost`]) the cost is `wait + refill`: the time until the CPU is free, and what the task will have to fetch again if
//! it starts there at that moment, with a weighted share of what that costs others: what it evicts of theirs, and the delay that the
//! longer run means for all who wait, so that warmth counts for more the more crowded the machine is. The least wins; ties go to
//! the previous CPU.
//!
//! - The winner is idle: the task runs there.
//! - It is free soon (`wait_bound_us`): the task joins its line, in the kernel's order, so that it starts there without asking.
//! - It is not, or others wait in the domain's queue already: the task joins them. A CPU that asks takes, of the first
//!   `look_ahead` there, the one that has least to fetch; in order of arrival plus expected service.
//!
//! # Guards
//!
//! - **Bound**: nobody is sent to wait longer than `wait_bound_us` for the sake of warmth ([`Reason::TooLong`]).
//! - **Urgent**: a latency-critical task ([`urgency`]) does not wait while an idle CPU is to be had ([`Reason::Urgent`]).
//! - **Recall**: a CPU that has nothing to do gets a waiting task if starting there now costs less than what is left of its wait
//!   and the refill after it. Whoever has waited for `overdue_pct` of the predicted wait may be taken by any idle CPU: the
//!   estimate was wrong.
//! - **Aging**: a task at the head of a domain's queue that has waited for `aging_us` is next, however cold; and nobody joins a
//!   line past those who wait in the domain's queue.

pub mod cost;
pub mod urgency;

use super::params::Param;
use super::{At, Needs, Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::limits::{MAX_LOOK_AHEAD, REMEMBERED_CPUS};
use crate::reason::{Reason, short};
use crate::view::View;
use cost::{Candidates, Cost, Model};
use urgency::Urgency;

const WAIT_BOUND_US: Param = Param {
    name: "wait_bound_us",
    about: "the longest expected wait in one CPU's line; above it all wait in the domain's queue, whose CPUs share the delay. Own choice",
    default: 1_000,
    range: 0..=100_000,
};
const REMEMBER: Param = Param {
    name: "remember",
    about: "how many CPUs that still hold something of a task are considered",
    default: REMEMBERED_CPUS as u64,
    range: 1..=REMEMBERED_CPUS as u64,
};
const RESIDUAL: Param = Param {
    name: "residual",
    about: "1: the rest of a run given how long it has lasted; 0: the rest of an average run, nothing once it is over",
    default: 1,
    range: 0..=1,
};
const NEIGHBOUR: Param = Param {
    name: "neighbour",
    about: "weight of what a refill costs others, in percent of the machine profile's",
    default: 100,
    range: 0..=200,
};
const CROWD: Param = Param {
    name: "crowd",
    about: "weight of the delay that a refill means for all who wait, in percent. Own choice: little changes from 400 to 700",
    default: 600,
    range: 0..=1_000,
};
const RECALL: Param = Param {
    name: "recall",
    about: "1: an idle CPU gets a waiting task if that is cheaper now; 0: only when it is overdue",
    default: 1,
    range: 0..=1,
};
const OVERDUE_PCT: Param = Param {
    name: "overdue_pct",
    about: "after so much of its expected wait (and 50 us at least) any idle CPU may take a task; own choice: an error by half",
    default: 200,
    range: 100..=10_000,
};
const WITHIN_RUN: Param = Param {
    name: "within_run",
    about: "1: a refill counts as far as the task's next run pays for it; 0: in full, as if it stayed for good",
    default: 1,
    range: 0..=1,
};
const LOOK_AHEAD: Param = Param {
    name: "look_ahead",
    about: "how many of a queue a CPU chooses from; the talk's d4, with the head",
    default: 5,
    range: 1..=MAX_LOOK_AHEAD as u64,
};
const AGING_US: Param = Param {
    name: "aging_us",
    about: "who has waited so long at the head of a queue is next, however cold; own choice: a few runs' time",
    default: 200,
    range: 0..=1_000_000,
};
const CRITICAL_HZ: Param = Param {
    name: "critical_hz",
    about: "a task that sleeps and wakes others so often, and much more than others do, never waits; 0: off",
    default: 1_000,
    range: 0..=400_000,
};

/// What can be set.
pub const PARAMS: &[Param] = &[
    WAIT_BOUND_US,
    REMEMBER,
    RESIDUAL,
    NEIGHBOUR,
    CROWD,
    RECALL,
    OVERDUE_PCT,
    WITHIN_RUN,
    LOOK_AHEAD,
    AGING_US,
    CRITICAL_HZ,
];

/// A task is overdue no sooner than this: the resolution of decisions.
const MIN_OVERDUE_NS: Nanos = 50_000;

/// Wait for the warm CPU, or migrate: whatever costs least.
#[derive(Clone, Debug)]
pub struct Hearth {
    slice_ns: Nanos,
    line_wait_ns: Nanos,
    wait_bound_ns: Nanos,
    overdue_pct: u64,
    recall: bool,
    look_ahead: usize,
    aging_ns: Nanos,
    model: Model,
    urgency: Urgency,
    /// Since when each task waits in a domain's queue.
    queued_ns: Vec<Nanos>,
}

/// The cheapest of the candidates, under the guards.
#[derive(Clone, Copy, Debug)]
struct Best {
    cost: Cost,
    /// The previous CPU, if it can be had.
    stay: Option<Cost>,
    /// The cheapest but `stay`.
    other: Option<Cost>,
    /// The guard that chose, if it was not the cost.
    guard: Option<Reason>,
}

impl Hearth {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let get = |param| config.params.get(param);
        Self {
            slice_ns: config.slice_ns,
            line_wait_ns: config.line_wait_ns,
            wait_bound_ns: get(&WAIT_BOUND_US) * 1000,
            overdue_pct: get(&OVERDUE_PCT),
            recall: get(&RECALL) == 1,
            look_ahead: get(&LOOK_AHEAD) as usize,
            aging_ns: get(&AGING_US) * 1000,
            model: Model {
                conditional: get(&RESIDUAL) == 1,
                remember: get(&REMEMBER) as usize,
                neighbour_pct: get(&NEIGHBOUR),
                crowd_pct: get(&CROWD),
                within_run: get(&WITHIN_RUN) == 1,
            },
            urgency: Urgency::new(config.max_tasks, get(&CRITICAL_HZ) as u32),
            queued_ns: vec![0; config.max_tasks],
        }
    }

    /// The cheapest CPU; then the guards.
    fn best(&self, task: &Runnable, view: &View) -> Option<Best> {
        let paid = self.model.paid(task.task, view);
        let (mut stay, mut other, mut idle): (_, Option<Cost>, Option<Cost>) = (None, None, None);
        for cpu in Candidates::of(task, self.model.remember, view).iter() {
            let cost = self.model.cost(task.task, cpu, &paid, view);
            let cheaper = |best: Option<Cost>| best.is_none_or(|best| cost.total_ns < best.total_ns);
            if cost.idle && cheaper(idle) {
                idle = Some(cost);
            }
            if cpu == task.prev_cpu {
                stay = Some(cost);
            } else if cheaper(other) {
                other = Some(cost);
            }
        }
        let cost = match (stay, other) {
            (Some(stay), Some(other)) if other.total_ns < stay.total_ns => other,
            (Some(stay), _) => stay,
            (None, other) => other?,
        };
        let best = Best { cost, stay, other, guard: None };
        let Some(idle) = idle.filter(|_| !cost.idle) else { return Some(best) };
        let guard = if self.urgency.is_critical(task.task) {
            Reason::Urgent { cost_ns: short(idle.total_ns.saturating_sub(cost.total_ns)) }
        } else if cost.wait_ns > self.wait_bound_ns {
            Reason::TooLong { wait_ns: short(cost.wait_ns) }
        } else {
            return Some(best);
        };
        Some(Best { cost: idle, guard: Some(guard), ..best })
    }

    /// The place in a domain's queue: by arrival, those with short runs a little sooner.
    fn order(&self, task: &Runnable, view: &View) -> u64 {
        view.now() + view.service_ns(task.task) * 100 / u64::from(task.weight)
    }

    /// Waits in an ordered queue. The reason is made when it is served, but for one that says why it is not elsewhere.
    fn queue(&mut self, task: &Runnable, at: At, reason: Reason, view: &View) -> Placement {
        self.queued_ns[task.task.row()] = view.now();
        let kept = matches!(reason, Reason::Urgent { .. } | Reason::TooLong { .. } | Reason::OnlyAllowed);
        Placement::Queue { at, order: self.order(task, view), reason: kept.then_some(reason) }
    }
}

impl Best {
    fn reason(&self, prev: CpuId) -> Reason {
        let total = |cost: Option<Cost>| cost.map_or(u32::MAX, |cost| short(cost.total_ns));
        let (wait_ns, refill_ns) = (short(self.cost.wait_ns), short(self.cost.refill_ns));
        match self.guard {
            Some(guard) => guard,
            None if self.cost.cpu == prev => Reason::Stay { wait_ns, refill_ns, other_ns: total(self.other) },
            None => Reason::Move { wait_ns, refill_ns, stay_ns: total(self.stay) },
        }
    }
}

impl Policy for Hearth {
    fn name(&self) -> &'static str {
        "hearth"
    }

    fn needs(&self) -> Needs {
        Needs { warmth: true, completion: true }
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, _view: &View) {
        self.urgency.charge(now, task);
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        let slice_ns = self.slice_ns;
        let Some(best) = self.best(task, view) else {
            let (cpu, _, reason) = view.shortest_line(task);
            return Placement::Wait { cpu, slice_ns, at_most_ns: self.line_wait_ns, reason };
        };
        let Cost { cpu, idle, wait_ns, .. } = best.cost;
        let reason = best.reason(task.prev_cpu);
        let others_wait = view.has_waiters(cpu);
        if idle && !others_wait {
            return Placement::Run { cpu, slice_ns, preempt: false, reason };
        }
        let (pinned, restricted) = view.narrowness(task.task);
        let reason = if pinned { Reason::OnlyAllowed } else { reason };
        if others_wait || wait_ns > self.wait_bound_ns {
            let at = match view.llc_of(cpu) {
                _ if pinned => At::Cpu { cpu, at_most_ns: self.line_wait_ns },
                Some(llc) if !restricted => At::Llc(llc),
                _ => At::Home,
            };
            return self.queue(task, at, reason, view);
        }
        let at_most_ns =
            (wait_ns.saturating_mul(self.overdue_pct) / 100).min(self.line_wait_ns).max(MIN_OVERDUE_NS);
        Placement::Wait { cpu, slice_ns, at_most_ns, reason }
    }

    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        let slice_ns = self.slice_ns;
        let aged = now.saturating_sub(self.queued_ns[waiting[0].row()]) >= self.aging_ns;
        if aged || waiting.len() == 1 {
            return Pick::first(slice_ns);
        }
        let here = |task: TaskId| {
            let paid = self.model.paid(task, view);
            self.model.cost_after(task, cpu, 0, &paid, view).total_ns
        };
        let head_ns = here(waiting[0]);
        let (mut index, mut least_ns) = (0, head_ns);
        for (at, &task) in waiting.iter().enumerate().skip(1) {
            let cost_ns = here(task);
            if cost_ns < least_ns {
                (index, least_ns) = (at, cost_ns);
            }
        }
        let saves_ns = short(head_ns - least_ns);
        let reason = (index > 0).then_some(Reason::Cheaper { passed: index as u32, saves_ns });
        Pick { index, slice_ns, reason }
    }

    fn look_ahead(&self) -> usize {
        self.look_ahead
    }

    fn may_pull(&self, _now: Nanos, task: TaskId, from: CpuId, to: CpuId, view: &View) -> bool {
        if !self.recall {
            return false;
        }
        let paid = self.model.paid(task, view);
        let left_ns = view.wait_left_ns(task).unwrap_or(0);
        let stay = self.model.cost_after(task, from, left_ns, &paid, view);
        self.model.cost_after(task, to, 0, &paid, view).total_ns < stay.total_ns
    }

    fn may_steal(&self, now: Nanos, task: TaskId, from: LlcId, to: CpuId, view: &View) -> bool {
        if now.saturating_sub(self.queued_ns[task.row()]) >= self.aging_ns {
            return true;
        }
        let paid = self.model.paid(task, view);
        let left_ns = view.queued_llc_ns(from) / u64::from(view.llc_cpus(from).max(1));
        let home = view.remembered(task).find(|&cpu| view.llc_of(cpu) == Some(from));
        let Some(home) = home else { return true };
        let stay = self.model.cost_after(task, home, left_ns, &paid, view);
        self.model.cost_after(task, to, 0, &paid, view).total_ns < stay.total_ns
    }

    fn work_conserving(&self) -> bool {
        false
    }

    fn forget(&mut self, task: TaskId) {
        self.queued_ns[task.row()] = 0;
        self.urgency.forget(task);
    }
}
