// SPDX-License-Identifier: GPL-2.0-only
//! Planted bugs: each breaks one rule of the kernel side or of the driver. The swarm must find every one.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A task whose move is done is in no queue afterwards.
    LostTask,
    /// A task is started on a second CPU while it runs.
    DoubledTask,
    /// The commit does not look at the task's mask, and the mask never reaches the dispatcher.
    AffinityIgnored,
    /// A CPU takes the youngest of its own queue.
    Starvation,
    /// The commit does not look at the sequence number, nor whether the task still waits for a decision.
    StaleCommitAccepted,
    /// A CPU that runs dry does not say so.
    LostAsk,
    /// An idle CPU is not kicked when it gets a task.
    LostKick,
    /// The dispatcher leads again without ending the takeover.
    TakeoverNeverEnded,
    /// A record that finds the ring full is dropped, and its task stays where it is.
    RingFullForgotten,
    /// What was left of a burst when the slice ended is forgotten.
    WorkForgotten,
    /// The end of a slice is not noticed while others wait.
    SliceIgnored,
    /// A status word is not written when a task stops.
    StaleStatus,
    /// After a takeover, what is held is not told again, nor are pings sent.
    RescanForgotten,
    /// A preempted task is not queued again.
    PreemptedForgotten,
    /// What the kernel side puts into FALLBACK is never looked at.
    FallbackForgotten,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 15] = [
        Sabotage::LostTask,
        Sabotage::DoubledTask,
        Sabotage::AffinityIgnored,
        Sabotage::Starvation,
        Sabotage::StaleCommitAccepted,
        Sabotage::LostAsk,
        Sabotage::LostKick,
        Sabotage::TakeoverNeverEnded,
        Sabotage::RingFullForgotten,
        Sabotage::WorkForgotten,
        Sabotage::SliceIgnored,
        Sabotage::StaleStatus,
        Sabotage::RescanForgotten,
        Sabotage::PreemptedForgotten,
        Sabotage::FallbackForgotten,
    ];
}
