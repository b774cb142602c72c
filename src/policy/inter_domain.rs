// SPDX-License-Identifier: GPL-2.0-only
//! Stickiness between domains: stay in the LLC domain, or wake in one that has less to do.
//!
//! The second kind of stickiness that the talk names. lavd-base takes any idle CPU of the machine; here a task that finds none
//! in its own domain waits there, unless another domain is better by a margin, and CPUs of other domains take it from the queue
//! only under the same condition (or after the dispatcher's bound on waiting).
//!
//! - `by=1`, by latency time (after scx pull request 3806): another domain must complete the task sooner by `min_gain_us`. Completion
//!   = (queued service of the domain) / (its capacity) + the task's own run; running tasks are left out on both sides.
//! - `by=0`, by queue load (after lavd's balancer): every 10 ms the running and queued tasks of each domain are averaged. With the
//!   fair share by number of CPUs, a domain below share - delta may receive tasks, one above share + delta whose queue is not empty may give
//!   them, both up to half of the difference. delta is 1/4 of the share if nothing is queued, 1/16 if all domains queue, else
//!   1/8; or `mig_delta_pct`. If no domain is busy by a quarter, nothing moves.
//!
//! Simplified: load counts tasks, not their utilisation; all domains are equally far; the budgets count what wakes elsewhere,
//! not what is taken from a queue; no random choice of the next ring; no unconditional stealing.

use super::lavd::Lavd;
use super::lavd::criticality::eighth;
use super::params::Param;
use super::{At, Needs, Pick, Placement, Policy};
use crate::completion::published::completion_ns;
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::limits::MAX_CPUS;
use crate::reason::{Reason, short};
use crate::topology::FULL_CAPACITY;
use crate::view::View;

const BY: Param = Param {
    name: "by",
    about: "0: by queue load (lavd's balancer); 1: by latency time (completion time, scx 3806)",
    default: 1,
    range: 0..=1,
};
const MIN_GAIN_US: Param = Param {
    name: "min_gain_us",
    about: "how much sooner another domain must complete the task, with by=1 (lavd --xmig-min-gain-us: 350)",
    default: 350,
    range: 0..=1_000_000,
};
const MIG_DELTA_PCT: Param = Param {
    name: "mig_delta_pct",
    about: "how far from its share a domain must be, with by=0; 0: a quarter to a sixteenth, by queues (lavd --mig-delta-pct)",
    default: 0,
    range: 0..=100,
};

/// What can be set.
pub const PARAMS: &[Param] = &[BY, MIN_GAIN_US, MIG_DELTA_PCT];

/// Loads are averaged this often.
const PERIOD_NS: Nanos = 10_000_000;
/// One task, in units of load.
const TASK: u64 = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    load: u64,
    /// What may still come, and what may still go, in this period.
    ingress: u64,
    egress: u64,
}

/// Stickiness between domains.
#[derive(Clone, Debug)]
pub struct InterDomain {
    lavd: Lavd,
    by_time: bool,
    min_gain_ns: Nanos,
    delta_pct: u64,
    domains: Vec<Domain>,
    since_ns: Nanos,
}

impl InterDomain {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            lavd: Lavd::new(config),
            by_time: config.params.get(&BY) == 1,
            min_gain_ns: config.params.get(&MIN_GAIN_US) * 1000,
            delta_pct: config.params.get(&MIG_DELTA_PCT),
            domains: vec![Domain::default(); MAX_CPUS],
            since_ns: 0,
        }
    }

    /// New averages and budgets, if the period is over.
    fn balance(&mut self, now: Nanos, view: &View) {
        if self.by_time || now.saturating_sub(self.since_ns) < PERIOD_NS {
            return;
        }
        self.since_ns = now;
        let llcs = &view.topology().llcs;
        let (mut total, mut cpus, mut busiest_pct, mut queues) = (0, 0, 0, 0);
        for llc in llcs {
            let n = view.llc_cpus(llc.id);
            let busy = n.saturating_sub(view.llc_idle(llc.id));
            let domain = &mut self.domains[llc.id.idx()];
            domain.load = eighth(domain.load, u64::from(busy + view.llc_queue(llc.id)) * TASK);
            total += domain.load;
            cpus += u64::from(n);
            busiest_pct = busiest_pct.max(busy * 100 / n.max(1));
            queues += usize::from(view.llc_queue(llc.id) > 0);
        }
        let shift = if queues == 0 { 2 } else { 3 + u32::from(queues == llcs.len()) };
        for llc in llcs {
            let queued = view.llc_queue(llc.id) > 0;
            let share = total * u64::from(view.llc_cpus(llc.id)) / cpus.max(1);
            let delta = if self.delta_pct > 0 { share * self.delta_pct / 100 } else { share >> shift };
            let domain = &mut self.domains[llc.id.idx()];
            let (less, more) = (domain.load + delta <= share, domain.load >= share + delta && queued);
            let quiet = busiest_pct < 25;
            domain.ingress = if less && !quiet { (share - domain.load) / 2 } else { 0 };
            domain.egress = if more && !quiet { (domain.load - share) / 2 } else { 0 };
        }
    }

    /// By how much `to` is better for the task than `from`; none: not by enough.
    fn gain(&self, task: TaskId, from: LlcId, to: LlcId, view: &View) -> Option<u64> {
        if self.by_time {
            let completion = |llc: LlcId| {
                let cpus = view.llc_cpus(llc);
                let capacity = u64::from(cpus) * u64::from(FULL_CAPACITY);
                completion_ns(view.queued_llc_ns(llc), self.lavd.run_ns(task), cpus, capacity)
            };
            let gain_ns = completion(from).saturating_sub(completion(to));
            return (gain_ns > self.min_gain_ns).then_some(gain_ns / 1000);
        }
        let (from, to) = (&self.domains[from.idx()], &self.domains[to.idx()]);
        let load = from.load.max(1);
        (from.egress > 0 && to.ingress > 0).then(|| load.saturating_sub(to.load) * 100 / load)
    }

    /// The domain that is better for the task than `home` by most; with how much.
    fn better(&self, task: &Runnable, home: LlcId, view: &View) -> Option<(LlcId, u64)> {
        let others = view.topology().llcs.iter().map(|llc| llc.id).filter(|&llc| llc != home);
        let gains = others.filter(|&llc| view.llc_cpus(llc) > 0).filter_map(|llc| {
            let gain = self.gain(task.task, home, llc, view)?;
            Some((llc, gain))
        });
        gains.max_by_key(|&(llc, gain)| (gain, std::cmp::Reverse(llc)))
    }
}

impl Policy for InterDomain {
    fn name(&self) -> &'static str {
        "inter-domain"
    }

    fn needs(&self) -> Needs {
        Needs { completion: self.by_time, ..Needs::default() }
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.lavd.charge(now, task, view);
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        self.balance(now, view);
        let order = self.lavd.order(task, view);
        // Who may not use whole domains waits where the dispatcher sees fit.
        let free = !view.narrowness(task.task).1;
        let Some(home) = view.llc_of(task.prev_cpu).filter(|&llc| free && view.llc_cpus(llc) > 0) else {
            return self.lavd.place(task, order, view);
        };
        let idle = view.idle_core_near(task).filter(|&(cpu, _)| !view.has_waiters(cpu));
        if let Some((cpu, reason)) = idle.filter(|&(cpu, _)| view.llc_of(cpu) == Some(home)) {
            return self.lavd.run(cpu, order, reason, view);
        }
        let Some((llc, gain)) = self.better(task, home, view) else {
            return Placement::Queue { at: At::Llc(home), order, reason: None };
        };
        for (domain, down) in [(home, true), (llc, false)] {
            let domain = &mut self.domains[domain.idx()];
            let budget = if down { &mut domain.egress } else { &mut domain.ingress };
            *budget = budget.saturating_sub(TASK);
        }
        let reason = Reason::LessLoaded { gain: short(gain) };
        match view.idle_in(llc, task).find(|&cpu| !view.has_waiters(cpu)) {
            Some(cpu) => self.lavd.run(cpu, order, reason, view),
            None => Placement::Queue { at: At::Llc(llc), order, reason: Some(reason) },
        }
    }

    fn pick(&mut self, _now: Nanos, _cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.lavd.pick(0, waiting, None, view)
    }

    fn may_steal(&self, _now: Nanos, task: TaskId, from: LlcId, to: CpuId, view: &View) -> bool {
        view.llc_of(to).is_some_and(|to| self.gain(task, from, to, view).is_some())
    }

    fn work_conserving(&self) -> bool {
        false
    }

    fn forget(&mut self, task: TaskId) {
        self.lavd.forget(task);
    }
}
