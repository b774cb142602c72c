// SPDX-License-Identifier: GPL-2.0-only
//! Why a decision was taken, as data.

use crate::ids::CpuId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason attached to every placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The previous CPU is idle.
    PrevIdle,
    /// Another CPU in the previous CPU's LLC domain is idle.
    LlcIdle,
    /// A CPU in another LLC domain is idle.
    RemoteIdle,
    /// Nothing is idle: this CPU has the shortest line.
    ShortestLine {
        /// Tasks ahead of it there, the running one included.
        ahead: u32,
    },
    /// The affinity of the task leaves no other choice.
    OnlyAllowed,
    /// It waited in line longer than its bound and another CPU is free.
    Overdue {
        /// How long it had waited, in microseconds.
        waited_us: u32,
        /// Where it waited.
        from: CpuId,
    },
    /// A CPU ran dry while this task waited in another CPU's line.
    Pulled {
        /// Where it waited.
        from: CpuId,
    },
    /// A CPU asked, and this task was first in its domain's order.
    FirstInOrder {
        /// The policy's sort key (virtual time, deadline ...).
        order: u64,
    },
    /// A CPU of another domain asked and had nothing of its own.
    Stolen {
        /// The policy's sort key.
        order: u64,
    },
    /// It has waited so long that the policy's order does not count any more.
    Starving {
        /// How long it had waited, in microseconds.
        waited_us: u32,
    },
    /// It takes the CPU from a task that has had more than its share.
    Preempts {
        /// By how much the running task is ahead, in microseconds of the policy's own measure.
        lead_us: u32,
    },
    /// The policy proposed a CPU that the task may not use; the dispatcher chose one that it may.
    Corrected,
    /// It waits for the CPU that it is warm on: the wait is expected to be within its budget.
    WarmWait {
        /// The expected wait.
        wait_ns: u32,
        /// How long it may be.
        budget_ns: u32,
    },
    /// A CPU asked, and this task is still warm there: it goes before those that are not.
    LookAhead {
        /// How many it went before.
        passed: u32,
        /// How warm, of 1024.
        warmth: u32,
    },
    /// A CPU asked, and those before this task have more to fetch there.
    Cheaper {
        /// How many it went before.
        passed: u32,
        /// How much more the first of them has to fetch.
        saves_ns: u32,
    },
    /// An idle CPU that nobody is expected back on soon.
    Colder {
        /// Nearer idle CPUs that were left to those who slept only for a moment.
        skipped: u32,
    },
    /// An LLC domain that has less to do than its own.
    LessLoaded {
        /// By how much: in percent of its own domain's load, or in microseconds of completion time.
        gain: u32,
    },
    /// An idle CPU of the nest: the CPUs that are kept in use.
    Nest,
    /// An idle CPU near the task that woke it.
    NearWaker,
    /// Waiting for its previous CPU costs least.
    Stay {
        /// The expected wait there.
        wait_ns: u32,
        /// What fetching its state again costs there.
        refill_ns: u32,
        /// The cheapest other CPU, wait and refill together (`u32::MAX`: there is none).
        other_ns: u32,
    },
    /// Another CPU costs less than waiting for the previous one.
    Move {
        /// The expected wait there.
        wait_ns: u32,
        /// What fetching its state again costs there.
        refill_ns: u32,
        /// What the previous CPU would have cost, wait and refill together (`u32::MAX`: it cannot be had).
        stay_ns: u32,
    },
    /// It is latency-critical and does not wait while another CPU is free.
    Urgent {
        /// What it had saved by waiting.
        cost_ns: u32,
    },
    /// The cheapest CPU would keep it waiting beyond the bound.
    TooLong {
        /// The expected wait there.
        wait_ns: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::PrevIdle => write!(f, "its previous CPU is idle"),
            Reason::LlcIdle => write!(f, "an idle CPU in its LLC domain"),
            Reason::RemoteIdle => write!(f, "an idle CPU in another LLC domain"),
            Reason::ShortestLine { ahead } => write!(f, "nothing idle; shortest line ({ahead} ahead)"),
            Reason::OnlyAllowed => write!(f, "its affinity leaves no other CPU"),
            Reason::Overdue { waited_us, from } => {
                write!(f, "waited {waited_us} us on CPU {}, beyond its bound; another CPU is free", from.0)
            }
            Reason::Pulled { from } => write!(f, "an idle CPU pulled it out of CPU {}'s line", from.0),
            Reason::FirstInOrder { order } => write!(f, "first in order (key {order}) when the CPU asked"),
            Reason::Stolen { order } => write!(f, "first in another domain's order (key {order})"),
            Reason::Starving { waited_us } => {
                write!(f, "waited {waited_us} us: its turn, whatever the order")
            }
            Reason::Preempts { lead_us } => write!(f, "the task running there is {lead_us} us ahead of it"),
            Reason::Corrected => write!(f, "the proposed CPU is not allowed for it; this one is"),
            Reason::WarmWait { wait_ns, budget_ns } => {
                write!(f, "warm here: a wait of {} is within its {}", us(wait_ns), us(budget_ns))
            }
            Reason::LookAhead { passed, warmth } => {
                write!(f, "still warm here ({warmth} of 1024): went before {passed} others")
            }
            Reason::Cheaper { passed, saves_ns } => {
                write!(
                    f,
                    "went before {passed} others: the first of them has {} more to fetch here",
                    us(saves_ns)
                )
            }
            Reason::Colder { skipped } => {
                write!(f, "an idle CPU; {skipped} nearer are left to those who slept for a moment")
            }
            Reason::LessLoaded { gain } => write!(f, "another LLC domain has less to do (by {gain})"),
            Reason::Nest => write!(f, "an idle CPU of the nest"),
            Reason::NearWaker => write!(f, "an idle CPU near the task that woke it"),
            Reason::Stay { wait_ns, refill_ns, other_ns } => {
                let (wait, refill) = (us(wait_ns), us(refill_ns));
                write!(f, "stays: wait {wait} + refill {refill}, {} elsewhere", us_or_none(other_ns))
            }
            Reason::Move { wait_ns, refill_ns, stay_ns } => {
                let (wait, refill) = (us(wait_ns), us(refill_ns));
                write!(f, "moves: wait {wait} + refill {refill}, {} if it stayed", us_or_none(stay_ns))
            }
            Reason::Urgent { cost_ns } => {
                write!(f, "latency-critical: does not wait, which costs {}", us(cost_ns))
            }
            Reason::TooLong { wait_ns } => {
                write!(f, "the cheapest CPU is free only in {}, beyond the bound", us(wait_ns))
            }
        }
    }
}

fn us(ns: u32) -> String {
    format!("{:.1} us", f64::from(ns) / 1000.0)
}

fn us_or_none(ns: u32) -> String {
    if ns == u32::MAX { "impossible".into() } else { us(ns) }
}

/// Nanoseconds as they are kept in a reason: at most 4.3 s.
#[inline]
#[must_use]
pub fn short(ns: crate::ids::Nanos) -> u32 {
    ns.min(crate::ids::Nanos::from(u32::MAX)) as u32
}
