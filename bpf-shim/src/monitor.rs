// SPDX-License-Identifier: GPL-2.0-only
//! `--monitor`: watches the daemon that is running, from outside and without rights beyond reading its socket.
//!
//! The daemon may come later, go, be killed, be another version, or send nonsense: the monitor says so and goes on.

use crate::failure::Failure;
use crate::line;
use crate::output::{self, Reader};
use anyhow::anyhow;
use hearth::doctor::Exit;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the wish to stop is looked at.
const POLL: Duration = Duration::from_millis(200);

/// Between attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// A daemon that says nothing for so long is stopped, or late beyond measure.
const SILENCE: Duration = Duration::from_secs(5);

/// The longest line that is taken for a report; real ones have 3 KiB.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// What to show and how.
pub struct Monitor<'a> {
    /// The daemon's socket.
    pub socket: &'a Path,
    /// Seconds between lines.
    pub every: Duration,
    /// Lines of JSON as the daemon sends them.
    pub json: bool,
    /// Set when it is enough.
    pub stop: &'a AtomicBool,
}

/// How watching one daemon ended.
enum Ended {
    /// The daemon has gone.
    Gone,
    /// What came was no report.
    Nonsense,
    /// We are to stop, or nobody reads us any more.
    Enough,
}

impl Monitor<'_> {
    /// Watches until told to stop.
    pub fn run(&self) -> Result<Exit, Failure> {
        let mut told = "";
        while !self.stopped() {
            let news = match UnixStream::connect(self.socket) {
                Ok(stream) => {
                    told = "";
                    match self.watch(stream)? {
                        Ended::Enough => return Ok(Exit::Ok),
                        Ended::Gone => "the daemon has ended; waiting for the next one",
                        Ended::Nonsense => "what answers there is no Hearth; trying again",
                    }
                }
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    let text = "may not be read by this user: run the monitor as root";
                    return Err(Failure::unsupported(anyhow!("{} {text}", self.socket.display())));
                }
                Err(_) => "no Hearth is running; waiting for one",
            };
            // Once each, however long it lasts.
            if told != news {
                output::say(&format!("{news} ({})", self.socket.display()));
                told = news;
            }
            self.pause(RETRY);
        }
        Ok(Exit::Ok)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stopped() && Instant::now() < until {
            thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Shows what one daemon sends.
    fn watch(&self, stream: UnixStream) -> Result<Ended, Failure> {
        if stream.set_read_timeout(Some(POLL)).is_err() {
            return Ok(Ended::Gone);
        }
        let mut lines = Lines::new(BufReader::new(stream));
        let mut before: Option<(Instant, Value)> = None;
        let mut heard = Instant::now();
        let mut silent = false;
        while !self.stopped() {
            match lines.next() {
                Next::Line(bytes) => {
                    (heard, silent) = (Instant::now(), false);
                    let Ok(report @ Value::Object(_)) = serde_json::from_slice(&bytes) else {
                        return Ok(Ended::Nonsense);
                    };
                    // Half a tick of grace: reports come about once a second.
                    let due = |since: Instant| since.elapsed() + Duration::from_millis(500) >= self.every;
                    if before.as_ref().is_some_and(|(since, _)| !due(*since)) {
                        continue;
                    }
                    if self.show(&report, before.as_ref().map(|(_, before)| before))? == Reader::Gone {
                        return Ok(Ended::Enough);
                    }
                    before = Some((Instant::now(), report));
                }
                Next::Nothing if heard.elapsed() > SILENCE && !silent => {
                    silent = true;
                    let seconds = SILENCE.as_secs();
                    output::say(&format!("the daemon has been silent for {seconds} s; still waiting"));
                }
                Next::Nothing => {}
                Next::End => return Ok(Ended::Gone),
                Next::TooLong => return Ok(Ended::Nonsense),
            }
        }
        Ok(Ended::Enough)
    }

    /// Rates need two reports: of the first only what does not change is shown.
    fn show(&self, report: &Value, before: Option<&Value>) -> Result<Reader, Failure> {
        let text = match before {
            _ if self.json => report.to_string(),
            Some(before) => line::rates(report, before),
            None => {
                let fact = |key: &str| match report.get(key) {
                    None | Some(Value::Null) => "-".into(),
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                };
                let (policy, kernel, cpus) = (fact("policy"), fact("kernel"), fact("cpus"));
                format!("policy {policy}, kernel {kernel}, {cpus} CPUs; so far: {}", line::totals(report))
            }
        };
        output::print(&text).map_err(|e| Failure::new(Exit::Failed, e))
    }
}

/// Lines of bounded length from a reader that times out.
struct Lines<R> {
    reader: R,
    partial: Vec<u8>,
}

enum Next {
    Line(Vec<u8>),
    Nothing,
    End,
    TooLong,
}

impl<R: BufRead> Lines<R> {
    fn new(reader: R) -> Self {
        Self { reader, partial: Vec::new() }
    }

    fn next(&mut self) -> Next {
        let room = MAX_LINE_BYTES.saturating_sub(self.partial.len() as u64);
        // After a time-out what was read stays in `partial`.
        match (&mut self.reader).take(room).read_until(b'\n', &mut self.partial) {
            Ok(_) if self.partial.ends_with(b"\n") => Next::Line(std::mem::take(&mut self.partial)),
            Ok(_) if self.partial.len() as u64 >= MAX_LINE_BYTES => Next::TooLong,
            Ok(_) => Next::End,
            Err(e) if is_timeout(&e) => Next::Nothing,
            Err(_) => Next::End,
        }
    }
}

fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c61_lines_may_come_in_pieces_and_never_end() {
        let mut lines = Lines::new(&b"{}\nab\ncut"[..]);
        assert!(matches!(lines.next(), Next::Line(line) if line == b"{}\n"));
        assert!(matches!(lines.next(), Next::Line(line) if line == b"ab\n"));
        assert!(matches!(lines.next(), Next::End));
        let mut endless = Lines::new(BufReader::new(io::repeat(b'x')));
        assert!(matches!(endless.next(), Next::TooLong));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut lines = Lines::new(BufReader::new(ours));
        io::Write::write_all(&mut theirs, b"{\"a\"").unwrap();
        assert!(matches!(lines.next(), Next::Nothing));
        io::Write::write_all(&mut theirs, b":1}\n").unwrap();
        assert!(matches!(lines.next(), Next::Line(line) if line == b"{\"a\":1}\n"));
    }
}
