// SPDX-License-Identifier: GPL-2.0-only
//! Recordings of simulated runs: the same files as the daemon's ([`crate::record`]), replayed by the same code.

use super::result::Observer;
use crate::dispatcher::Config;
use crate::event::{Command, Event, Outcome};
use crate::ids::Nanos;
use crate::record::{Entry, FORMAT, Header, RecordError, Recorder};
use crate::topology::Topology;
use std::io::Write;

/// Writes every call of the dispatcher. A recording is the life of one dispatcher: if the daemon attaches anew (hotplug), it
/// ends there.
pub struct RunRecorder<W> {
    policy: String,
    state: State<W>,
}

enum State<W> {
    /// Before the dispatcher is made.
    Waiting(W),
    Recording(Recorder<W>),
    /// That dispatcher is gone.
    Ended(Recorder<W>),
    /// What went wrong first.
    Failed(RecordError),
}

impl<W: Write> RunRecorder<W> {
    /// Records to `out`; `policy` is the policy's name in the registry.
    pub fn new(out: W, policy: &str) -> Self {
        Self { policy: policy.into(), state: State::Waiting(out) }
    }

    /// Ends the recording and gives back where it went.
    ///
    /// # Errors
    /// If any of it could not be written.
    pub fn finish(self) -> Result<W, RecordError> {
        match self.state {
            State::Waiting(out) => Ok(out),
            State::Recording(recorder) | State::Ended(recorder) => recorder.finish(),
            State::Failed(e) => Err(e),
        }
    }

    fn entry(&mut self, entry: &Entry) {
        if let State::Recording(recorder) = &mut self.state
            && let Err(e) = recorder.entry(entry)
        {
            self.state = State::Failed(e);
        }
    }
}

impl<W: Write> Observer for RunRecorder<W> {
    fn attached(&mut self, config: &Config, machine: &Topology) {
        let before =
            std::mem::replace(&mut self.state, State::Failed(RecordError::Header("not begun".into())));
        self.state = match before {
            State::Waiting(out) => {
                let header = Header {
                    format: FORMAT,
                    policy: self.policy.clone(),
                    config: config.clone(),
                    topology: machine.clone(),
                };
                Recorder::new(out, &header).map_or_else(State::Failed, State::Recording)
            }
            State::Recording(recorder) | State::Ended(recorder) => State::Ended(recorder),
            State::Failed(e) => State::Failed(e),
        };
    }

    fn handed(&mut self, now: Nanos, event: &Event) {
        self.entry(&Entry::Event(now, event.clone()));
    }

    fn asked(&mut self, now: Nanos, command: Option<&Command>) {
        self.entry(&Entry::Poll(now, command.copied()));
    }

    fn settled(&mut self, now: Nanos, command: &Command, outcome: Outcome) {
        self.entry(&Entry::Outcome(now, *command, outcome));
    }
}
