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
        }
    }
}
