// SPDX-License-Identifier: GPL-2.0-only
//! The life of a task as the dispatcher sees it: one table of states, facts and what follows.
//!
//! ```text
//!            Enqueued            Moved              Seen
//!   New ----------------> Queued ------> Committed ------> Running
//!    ^                    ^    ^          |  |              |   |
//!    | Born               |    +----------+  | Left         |   | Unseen
//!    |                    |     Enqueued     v              |   v
//!   Exited <---- Exit ----+--------------- Blocked <--------+---+
//! ```
//!
//! The dispatcher does not see everything: between two readings of the status words a task may run, sleep, wake and
//! run again, and the kernel side may run it without being told (takeover). So a fact may skip steps, and the table
//! says which skips are legal. What is in no cell cannot happen if both sides are right: it is counted as an anomaly
//! (and shown to people), it changes nothing, and it never ends the scheduler.

use serde::{Deserialize, Serialize};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Its row is handed out; it has not been runnable yet.
    New,
    /// Not known to wait for a CPU: it sleeps, or runs where no status word has shown it yet.
    Blocked,
    /// It waits in a HOLD queue; a decision is pending, or on its way to the kernel.
    Queued,
    /// It waits in a CPU's own queue.
    Committed,
    /// A status word shows it on a CPU.
    Running,
    /// It is gone; its row may be handed out again.
    Exited,
}

/// What can happen to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The row was handed out (to a new generation).
    Born,
    /// It became runnable and entered a HOLD queue.
    Enqueued,
    /// A decision about it was carried out: it is in a CPU's own queue.
    Moved,
    /// A decision about it was refused because the world had moved on; or its belief was given up (resync).
    Dropped,
    /// A status word shows it running.
    Seen,
    /// The status word that showed it running shows another.
    Unseen,
    /// It is no longer in the CPU's own queue, and was not seen running: it ran between two readings.
    Left,
    /// It exited.
    Exit,
}

const STATES: usize = 6;
const FACTS: usize = 8;

/// `NEXT[state][fact]`: the state that follows, or none if the fact cannot happen there.
const NEXT: [[Option<State>; FACTS]; STATES] = {
    use State::{Blocked, Committed, Exited, New, Queued, Running};
    const fn to(state: State) -> Option<State> {
        Some(state)
    }
    let no = None;
    [
        //              Born     Enqueued    Moved          Dropped      Seen         Unseen       Left         Exit
        /* New       */
        [to(New), to(Queued), no, no, to(Running), no, no, to(Exited)],
        /* Blocked   */ [to(New), to(Queued), no, no, to(Running), no, no, to(Exited)],
        /* Queued    */
        [to(New), to(Queued), to(Committed), to(Blocked), to(Running), no, no, to(Exited)],
        /* Committed */
        [to(New), to(Queued), to(Committed), to(Blocked), to(Running), no, to(Blocked), to(Exited)],
        /* Running   */ [to(New), to(Queued), no, no, to(Running), to(Blocked), no, to(Exited)],
        /* Exited    */ [to(New), no, no, no, no, no, no, no],
    ]
};

impl State {
    /// The state after `fact`, or none if the fact cannot happen in this state.
    #[inline]
    #[must_use]
    pub fn after(self, fact: Fact) -> Option<State> {
        NEXT[self as usize][fact as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_STATES: [State; STATES] =
        [State::New, State::Blocked, State::Queued, State::Committed, State::Running, State::Exited];
    const ALL_FACTS: [Fact; FACTS] = [
        Fact::Born,
        Fact::Enqueued,
        Fact::Moved,
        Fact::Dropped,
        Fact::Seen,
        Fact::Unseen,
        Fact::Left,
        Fact::Exit,
    ];

    #[test]
    fn the_usual_life_is_legal() {
        let mut state = State::Exited;
        for (fact, then) in [
            (Fact::Born, State::New),
            (Fact::Enqueued, State::Queued),
            (Fact::Moved, State::Committed),
            (Fact::Seen, State::Running),
            (Fact::Unseen, State::Blocked),
            (Fact::Enqueued, State::Queued),
            (Fact::Exit, State::Exited),
        ] {
            state = state.after(fact).unwrap();
            assert_eq!(state, then);
        }
    }

    #[test]
    fn nothing_but_a_birth_follows_an_exit() {
        for fact in ALL_FACTS {
            assert_eq!(State::Exited.after(fact).is_some(), fact == Fact::Born, "{fact:?}");
        }
    }

    #[test]
    fn every_living_state_takes_a_wakeup_a_sighting_and_an_exit() {
        for state in ALL_STATES.into_iter().filter(|&s| s != State::Exited) {
            for (fact, then) in
                [(Fact::Enqueued, State::Queued), (Fact::Seen, State::Running), (Fact::Exit, State::Exited)]
            {
                assert_eq!(state.after(fact), Some(then), "{state:?} {fact:?}");
            }
        }
    }

    #[test]
    fn a_waiting_task_only_is_moved_or_dropped() {
        for state in ALL_STATES {
            let waits = matches!(state, State::Queued | State::Committed);
            assert_eq!(state.after(Fact::Moved).is_some(), waits, "{state:?}");
            assert_eq!(state.after(Fact::Dropped).is_some(), waits, "{state:?}");
        }
    }
}
