// SPDX-License-Identifier: GPL-2.0-only
//! What is measured, and the comparison with the best decision that there was.

use super::cache::Course;
use super::cpu::Cpu;
use super::engine::Engine;
use super::lists::NONE;
use super::result::{
    Counts, CpuResult, GroupResult, Migrations, Observer, Promises, Regret, Request, RunResult,
};
use super::task::{Req, Task};
use crate::checked::Violations;
use crate::dispatcher::Config;
use crate::event::{Runnable, Why};
use crate::ids::Nanos;
use crate::policy::Policy;
use crate::topology::Topology;

/// One of so many wakeups is compared with the best.
const REGRET_SAMPLE: u64 = 64;

/// Everything that is counted. Before [`Metrics::begin`] only [`Counts`] are.
#[derive(Debug)]
pub(crate) struct Metrics {
    on: bool,
    since_ns: Nanos,
    groups: Vec<GroupResult>,
    migrations: Migrations,
    regret: Regret,
    max_wait_ns: Nanos,
    pub busy_before: Vec<Nanos>,
    pub counts: Counts,
}

impl Metrics {
    pub fn new(names: &[String], cpus: usize) -> Self {
        let group = |name: &String| GroupResult { name: name.clone(), ..GroupResult::default() };
        Self {
            on: false,
            since_ns: 0,
            groups: names.iter().map(group).collect(),
            migrations: Migrations::default(),
            regret: Regret::default(),
            max_wait_ns: 0,
            busy_before: vec![0; cpus],
            counts: Counts::default(),
        }
    }

    pub fn begin(&mut self, now: Nanos) {
        self.on = true;
        self.since_ns = now;
    }

    /// A task gets `cpu`, and its code runs from `begin` on.
    #[inline]
    pub fn started(&mut self, task: &Task, cpu: u32, machine: &Topology, begin: Nanos) {
        if !self.on {
            return;
        }
        self.max_wait_ns = self.max_wait_ns.max(task.waited_ns);
        let group = &mut self.groups[task.group as usize];
        if task.woken {
            group.wakeup.record(begin - task.woken_ns);
        }
        if task.prev_cpu == cpu {
            self.migrations.same_cpu += 1;
        } else if machine.cpus[task.prev_cpu as usize].llc == machine.cpus[cpu as usize].llc {
            self.migrations.within_llc += 1;
        } else {
            self.migrations.across_llc += 1;
        }
    }

    #[inline]
    pub fn stopped(&mut self, group: u32, ran_ns: Nanos, work_ns: Nanos, refill_ns: Nanos) {
        if self.on {
            let group = &mut self.groups[group as usize];
            group.runs += 1;
            group.cpu_ns += ran_ns;
            group.work_ns += work_ns;
            group.refill_ns += refill_ns;
        }
    }

    #[inline]
    pub fn answered(&mut self, group: u32, ns: Nanos) {
        if self.on {
            let group = &mut self.groups[group as usize];
            group.requests += 1;
            group.request.record(ns);
        }
    }

    pub fn rejected(&mut self, group: u32) {
        self.groups[group as usize].rejected += u64::from(self.on);
    }

    pub fn exited(&mut self, group: u32) {
        self.groups[group as usize].exits += u64::from(self.on);
    }

    pub fn result(self, cpus: &[Cpu], now: Nanos) -> RunResult {
        let mut total = GroupResult { name: "total".into(), ..GroupResult::default() };
        for group in &self.groups {
            total.wakeup.merge(&group.wakeup);
            total.request.merge(&group.request);
            total.requests += group.requests;
            total.rejected += group.rejected;
            total.runs += group.runs;
            total.work_ns += group.work_ns;
            total.cpu_ns += group.cpu_ns;
            total.refill_ns += group.refill_ns;
            total.exits += group.exits;
        }
        let cpu = |(row, cpu): (usize, &Cpu)| CpuResult {
            cpu: row as u32,
            busy_ns: cpu.busy_until(now) - self.busy_before[row],
            held_ns: cpu.held_total_ns + cpu.held_since_ns.map_or(0, |since| now - since),
            dispatcher_ns: cpu.dispatcher_ns,
        };
        RunResult {
            measured_ns: now - self.since_ns,
            total,
            cpus: cpus.iter().enumerate().map(cpu).collect(),
            groups: self.groups,
            migrations: self.migrations,
            regret: self.regret,
            max_wait_ns: self.max_wait_ns,
            counts: self.counts,
            ..RunResult::default()
        }
    }
}

pub(crate) fn promises(v: &Violations) -> Promises {
    Promises {
        total: v.total(),
        cpu: v.unknown_cpu + v.not_allowed,
        bounds: v.slice + v.unbounded_wait,
        not_idle: v.not_idle,
        idle_left: v.idle_left,
        pick: v.pick + v.order,
    }
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    /// A request is answered.
    pub fn note_answer(&mut self, group: u32, request: &Req) {
        self.metrics.answered(group, self.now - request.intended_ns);
        if O::ACTIVE {
            self.observer.answered(&Request {
                group,
                intended_ns: request.intended_ns,
                begun_ns: request.begun_ns,
                done_ns: self.now,
                demand_ns: request.demand_ns,
            });
        }
    }

    /// The dispatcher reads of a wakeup: now and then, what would be best?
    pub fn sample_regret(&mut self, runnable: &Runnable) {
        if !matches!(runnable.why, Why::Woken | Why::New) {
            return;
        }
        self.driver.sample += 1;
        if !self.driver.sample.is_multiple_of(REGRET_SAMPLE) || !self.metrics.on {
            return;
        }
        let row = runnable.task.idx;
        let t = &self.tasks[row as usize];
        if t.id != runnable.task || t.seq != runnable.seq || !t.waits() {
            return;
        }
        let avoided =
            self.scenario.dispatcher.cpu.filter(|_| self.scenario.dispatcher.share_penalty.is_none());
        let best = (0..self.cpus.len() as u32)
            .filter(|&cpu| {
                let c = &self.cpus[cpu as usize];
                c.online && !c.held && Some(cpu) != avoided && self.may_use(row, cpu)
            })
            .map(|cpu| self.true_cost_ns(row, cpu))
            .min();
        let t = &mut self.tasks[row as usize];
        t.best_at_ns = if best.is_some() { self.now } else { 0 };
        t.best_ns = best.unwrap_or(0);
    }

    /// Wait for a CPU, as its run and queue stand, plus what the task would then lack there.
    fn true_cost_ns(&self, task: u32, cpu: u32) -> Nanos {
        let c = &self.cpus[cpu as usize];
        let mut wait = 0;
        if c.curr != NONE {
            wait += c.done_ns.min(c.slice_end_ns).saturating_sub(self.now);
        } else if c.own.len == 0 {
            wait += self.driver.ipi_ns;
        }
        for ahead in self.links.iter(&c.own) {
            let t = &self.tasks[ahead as usize];
            let work = t.work_left_ns.max(t.expected_ns) as f64 / c.speed;
            wait += (work as Nanos).min(t.slice_ns) + self.driver.switch_ns;
        }
        let t = &self.tasks[task as usize];
        let course = self.caches.course(task, t.group, cpu, self.now + wait, c.speed);
        wait + course.refill_ns(t.work_left_ns.max(t.expected_ns)) as Nanos
    }

    /// A sampled task gets a CPU: how much worse than the best was it?
    #[inline]
    pub fn settle_regret(&mut self, task: u32, course: &Course) {
        let t = &mut self.tasks[task as usize];
        if t.best_at_ns == 0 {
            return;
        }
        let waited = self.now - std::mem::take(&mut t.best_at_ns);
        let actual = waited + course.refill_ns(t.work_left_ns.max(t.expected_ns)) as Nanos;
        let regret = &mut self.metrics.regret;
        regret.samples += 1;
        regret.actual_ns += actual;
        regret.best_ns += t.best_ns;
        regret.regret_ns += actual.saturating_sub(t.best_ns);
    }
}
