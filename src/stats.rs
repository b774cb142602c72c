// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher counts about itself: plain numbers since the start, for monitors and tests.

use crate::event::Outcome;
use crate::reason::Reason;
use serde::{Deserialize, Serialize};

/// Counters since the dispatcher was made. Each only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Wakeups taken in (rescans included, ignored ones not).
    pub runnable: u64,
    /// Commands handed out.
    pub decisions: u64,
    /// Of those: back from another CPU's line.
    pub recalls: u64,
    /// Of those: with preemption.
    pub preemptions: u64,
    /// Commands by what became of them.
    pub outcomes: ByOutcome,
    /// Commands by reason.
    pub reasons: ByReason,
    /// Tasks that went to the CPU they ran on before.
    pub to_same_cpu: u64,
    /// To another CPU of the same LLC domain.
    pub within_llc: u64,
    /// To another LLC domain (or from a CPU that is not online any more).
    pub across_llc: u64,
    /// Placements by the policy that the dispatcher put right: CPU not allowed, not online, held, or its own.
    pub corrected: u64,
    /// Facts that cannot be, given what was known (the table in [`crate::lifecycle`]).
    pub anomalies: u64,
    /// Facts older than what is known already; late, not wrong.
    pub outdated: u64,
    /// Rescans of tasks that are known to wait.
    pub known_rescans: u64,
    /// Times that everything believed to wait was forgotten.
    pub resyncs: u64,
    /// Facts about tasks beyond the configured number of rows.
    pub untracked: u64,
    /// Rows handed out anew although no exit of their last task was seen.
    pub exits_missed: u64,
    /// Runs so long that they were charged only in part (a suspended machine, a clock step, a lone task).
    pub charges_capped: u64,
    /// Tasks left to the next rescan after too many retries.
    pub left_to_rescan: u64,
    /// Asks from CPUs that were believed to be busy.
    pub asks_doubted: u64,
    /// Slices shortened because many wait.
    pub slices_shortened: u64,
    /// How long tasks waited for CPUs that were not free, against what the dispatcher expected (kept for policies that need
    /// completion times).
    pub wait_error: EstimateError,
    /// How long it took until tasks started on idle CPUs; the expected wait is 0.
    pub start_error: EstimateError,
}

/// Predicted times against what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EstimateError {
    /// Predictions that were compared.
    pub count: u64,
    /// Sum of what was predicted.
    pub predicted_ns: u64,
    /// Sum of what came.
    pub actual_ns: u64,
    /// Sum of the distances between the two.
    pub distance_ns: u64,
    /// Predictions by distance: number `i` counts those of 2^i ns up to twice that (the first from 0, the last without end).
    pub by_distance: [u64; 32],
}

impl EstimateError {
    /// A prediction meets the truth.
    pub fn add(&mut self, predicted_ns: u64, actual_ns: u64) {
        let distance_ns = predicted_ns.abs_diff(actual_ns);
        self.count += 1;
        self.predicted_ns = self.predicted_ns.saturating_add(predicted_ns);
        self.actual_ns = self.actual_ns.saturating_add(actual_ns);
        self.distance_ns = self.distance_ns.saturating_add(distance_ns);
        self.by_distance[distance_ns.checked_ilog2().unwrap_or(0).min(31) as usize] += 1;
    }

    /// Mean of (predicted - actual): above 0 if too much was expected.
    #[must_use]
    pub fn bias_ns(&self) -> f64 {
        (self.predicted_ns as f64 - self.actual_ns as f64) / self.count.max(1) as f64
    }

    /// Mean distance of prediction and truth.
    #[must_use]
    pub fn mean_distance_ns(&self) -> f64 {
        self.distance_ns as f64 / self.count.max(1) as f64
    }
}

/// Commands by [`Outcome`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the outcomes'
pub struct ByOutcome {
    pub done: u64,
    pub stale: u64,
    pub gone: u64,
    pub not_allowed: u64,
    pub retry: u64,
}

/// Commands by [`Reason`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the names are the reasons'
pub struct ByReason {
    pub prev_idle: u64,
    pub llc_idle: u64,
    pub remote_idle: u64,
    pub shortest_line: u64,
    pub only_allowed: u64,
    pub overdue: u64,
    pub pulled: u64,
    pub first_in_order: u64,
    pub stolen: u64,
    pub starving: u64,
    pub preempts: u64,
    pub corrected: u64,
    pub warm_wait: u64,
    pub look_ahead: u64,
    pub cheaper: u64,
    pub colder: u64,
    pub less_loaded: u64,
    pub nest: u64,
    pub near_waker: u64,
    pub stay: u64,
    pub moved: u64,
    pub urgent: u64,
    pub too_long: u64,
}

impl ByOutcome {
    pub(crate) fn count(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Done => &mut self.done,
            Outcome::Stale => &mut self.stale,
            Outcome::Gone => &mut self.gone,
            Outcome::NotAllowed => &mut self.not_allowed,
            Outcome::Retry => &mut self.retry,
        } += 1;
    }

    /// Commands that were answered.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.done + self.stale + self.gone + self.not_allowed + self.retry
    }
}

impl ByReason {
    pub(crate) fn count(&mut self, reason: Reason) {
        *match reason {
            Reason::PrevIdle => &mut self.prev_idle,
            Reason::LlcIdle => &mut self.llc_idle,
            Reason::RemoteIdle => &mut self.remote_idle,
            Reason::ShortestLine { .. } => &mut self.shortest_line,
            Reason::OnlyAllowed => &mut self.only_allowed,
            Reason::Overdue { .. } => &mut self.overdue,
            Reason::Pulled { .. } => &mut self.pulled,
            Reason::FirstInOrder { .. } => &mut self.first_in_order,
            Reason::Stolen { .. } => &mut self.stolen,
            Reason::Starving { .. } => &mut self.starving,
            Reason::Preempts { .. } => &mut self.preempts,
            Reason::Corrected => &mut self.corrected,
            Reason::WarmWait { .. } => &mut self.warm_wait,
            Reason::LookAhead { .. } => &mut self.look_ahead,
            Reason::Cheaper { .. } => &mut self.cheaper,
            Reason::Colder { .. } => &mut self.colder,
            Reason::LessLoaded { .. } => &mut self.less_loaded,
            Reason::Nest => &mut self.nest,
            Reason::NearWaker => &mut self.near_waker,
            Reason::Stay { .. } => &mut self.stay,
            Reason::Move { .. } => &mut self.moved,
            Reason::Urgent { .. } => &mut self.urgent,
            Reason::TooLong { .. } => &mut self.too_long,
        } += 1;
    }
}
