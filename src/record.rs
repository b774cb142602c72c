// SPDX-License-Identifier: GPL-2.0-only
//! A run of the dispatcher as text, one JSON value a line: written by whoever drives it, replayed by anyone.
//!
//! The first line is a [`Header`]; each line after it is one call of the dispatcher ([`Entry`]). Since the core is
//! deterministic, a replay yields the same decisions, byte for byte; [`replay`] says where the first one differs.

use crate::dispatcher::{Config, Dispatcher};
use crate::event::{Command, Event, Outcome};
use crate::ids::Nanos;
use crate::policy::Policy;
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// Version of the format, in every header.
pub const FORMAT: u32 = 1;

/// What a dispatcher was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The policy's name in the registry.
    pub policy: String,
    /// Its configuration.
    pub config: Config,
    /// The machine.
    pub topology: Topology,
}

/// One call of the dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// [`Dispatcher::handle`].
    Event(Nanos, Event),
    /// [`Dispatcher::poll`], and what it returned.
    Poll(Nanos, Option<Command>),
    /// [`Dispatcher::committed`].
    Outcome(Nanos, Command, Outcome),
}

/// Why a recording cannot be written, read or replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("cannot read or write the recording")]
    Io(#[from] io::Error),
    /// A line is not what it should be.
    #[error("line {line} of the recording is damaged; cut the file before it to replay the rest")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The header is missing or of another version.
    #[error("not a recording of format {FORMAT}: {0}")]
    Header(String),
}

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
}

impl<W: Write> Recorder<W> {
    /// Starts a recording.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn new(out: W, header: &Header) -> Result<Self, RecordError> {
        let mut recorder = Self { out };
        recorder.line(header)?;
        Ok(recorder)
    }

    /// Adds a call.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), RecordError> {
        self.line(entry)
    }

    /// Ends the recording and gives back where it went.
    ///
    /// # Errors
    /// If the last of it cannot be written.
    pub fn finish(mut self) -> Result<W, RecordError> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), RecordError> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }
}

/// Reads the first line of a recording.
///
/// # Errors
/// If there is none, or it is of another format.
pub fn read_header(input: &mut impl BufRead) -> Result<Header, RecordError> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let header: Header = serde_json::from_str(&line).map_err(|e| RecordError::Header(e.to_string()))?;
    if header.format != FORMAT {
        return Err(RecordError::Header(format!("it says {}", header.format)));
    }
    header.topology.check().map_err(|e| RecordError::Header(e.to_string()))?;
    Ok(header)
}

/// What a replay gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Decisions of the replay.
    pub decisions: u64,
    /// FNV-1a hash over the decisions' JSON lines.
    pub hash: u64,
    /// The first line of the recording whose poll gave something else, with what it gave.
    pub first_difference: Option<(usize, Option<Command>)>,
}

/// Replays what follows the header through `dispatcher`, and writes its decisions to `out`, one JSON line each.
///
/// # Errors
/// If a line cannot be read, or the decisions cannot be written.
pub fn replay<P: Policy>(
    input: impl BufRead,
    dispatcher: &mut Dispatcher<P>,
    out: &mut impl Write,
) -> Result<Replay, RecordError> {
    let mut result = Replay { hash: FNV_OFFSET, ..Replay::default() };
    for (i, line) in input.lines().enumerate() {
        let number = i + 2; // the header is line 1
        let entry =
            serde_json::from_str(&line?).map_err(|source| RecordError::Line { line: number, source })?;
        match entry {
            Entry::Event(now, event) => dispatcher.handle(now, &event),
            Entry::Outcome(now, command, outcome) => dispatcher.committed(now, &command, outcome),
            Entry::Poll(now, recorded) => {
                let command = dispatcher.poll(now);
                if command != recorded && result.first_difference.is_none() {
                    result.first_difference = Some((number, command));
                }
                if let Some(command) = command {
                    let mut text = serde_json::to_string(&command).map_err(io::Error::from)?;
                    text.push('\n');
                    result.decisions += 1;
                    result.hash = fnv1a(result.hash, text.as_bytes());
                    out.write_all(text.as_bytes())?;
                }
            }
        }
    }
    Ok(result)
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for text in ["", "{}", "not json", "{\"format\":9,\"policy\":\"fifo\"}"] {
            assert!(matches!(read_header(&mut text.as_bytes()), Err(RecordError::Header(_))), "{text}");
        }
    }
}
