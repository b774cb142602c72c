// SPDX-License-Identifier: GPL-2.0-only
//! What happened on every CPU in a part of a run, and why: for the page's timeline and for traces.

use super::engine::EPOCH_NS;
use super::result::{Observer, Run};
use crate::event::{Command, Outcome, Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::reason::Reason;
use crate::view::View;
use std::collections::BTreeMap;
use std::fmt;

/// A part of a run, in milliseconds since its start (warm-up included, as in a scenario's own `at_ms`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// From.
    pub from_ms: f64,
    /// Until.
    pub to_ms: f64,
}

impl std::str::FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once("..").and_then(|(a, b)| Some((a.parse::<f64>().ok()?, b.parse::<f64>().ok()?)));
        match parts {
            Some((from_ms, to_ms)) if from_ms >= 0.0 && to_ms > from_ms && to_ms.is_finite() => {
                Ok(Self { from_ms, to_ms })
            }
            _ => Err("give it as A..B in milliseconds, A below B, as in 100..120".into()),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from_ms, self.to_ms)
    }
}

/// The decision that put a task where it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decided {
    /// What the dispatcher had read.
    pub runnable: Runnable,
    /// When it had read it.
    pub read_ns: Nanos,
    /// When it decided.
    pub polled_ns: Nanos,
    /// When the decision took effect.
    pub done_ns: Nanos,
    /// The decision.
    pub command: Command,
}

/// A run of a task on a CPU, with the decision behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The run; of a task that still runs at the end: up to the end.
    pub run: Run,
    /// None: the kernel side put it there (fallback, takeover, an extended slice).
    pub decided: Option<Decided>,
}

/// From, until.
pub type Stretch = (Nanos, Nanos);

/// What happened. All times are since the run's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// The part that is shown.
    pub from_ns: Nanos,
    /// Until.
    pub to_ns: Nanos,
    /// Runs, in the order of their ends.
    pub spans: Vec<Span>,
    /// CPUs held by a higher class.
    pub held: Vec<(CpuId, Stretch)>,
    /// The kernel side led.
    pub takeovers: Vec<Stretch>,
    /// Runs that were left out because there are too many.
    pub left_out: u64,
}

/// Watches a run for its timeline.
#[derive(Debug)]
pub struct TimelineWatch {
    timeline: Timeline,
    most: usize,
    /// Records that wait for a decision, and decisions that wait for their run, by task row.
    read: BTreeMap<u32, Nanos>,
    polled: BTreeMap<u32, Nanos>,
    decided: BTreeMap<u32, Decided>,
    /// Who runs now, by CPU.
    running: BTreeMap<u32, Span>,
    held: BTreeMap<u32, Nanos>,
    takeover: Option<Nanos>,
}

impl TimelineWatch {
    /// For a part of a run, and at most so many runs of tasks.
    #[must_use]
    pub fn new(window: Window, most: usize) -> Self {
        let ns = |ms: f64| (ms * 1e6) as Nanos;
        Self {
            timeline: Timeline {
                from_ns: ns(window.from_ms),
                to_ns: ns(window.to_ms),
                ..Timeline::default()
            },
            most,
            read: BTreeMap::new(),
            polled: BTreeMap::new(),
            decided: BTreeMap::new(),
            running: BTreeMap::new(),
            held: BTreeMap::new(),
            takeover: None,
        }
    }

    /// What was seen.
    #[must_use]
    pub fn finish(mut self) -> Timeline {
        let to_ns = self.timeline.to_ns;
        for (_, mut span) in std::mem::take(&mut self.running) {
            span.run.end_ns = to_ns;
            self.keep(span);
        }
        for (cpu, since) in std::mem::take(&mut self.held) {
            self.keep_held(cpu, (since, to_ns));
        }
        if let Some(since) = self.takeover.take() {
            self.keep_takeover((since, to_ns));
        }
        self.timeline
    }

    fn shows(&self, (from, to): Stretch) -> bool {
        from < self.timeline.to_ns && to > self.timeline.from_ns
    }

    fn keep(&mut self, span: Span) {
        if !self.shows((span.run.start_ns, span.run.end_ns)) {
            return;
        }
        if self.timeline.spans.len() < self.most {
            self.timeline.spans.push(span);
        } else {
            self.timeline.left_out += 1;
        }
    }

    fn keep_held(&mut self, cpu: u32, stretch: Stretch) {
        if self.shows(stretch) {
            self.timeline.held.push((CpuId(cpu), stretch));
        }
    }

    fn keep_takeover(&mut self, stretch: Stretch) {
        if self.shows(stretch) {
            self.timeline.takeovers.push(stretch);
        }
    }

    /// Is it over? Then nothing needs to be noted any more.
    fn over(&self, now: Nanos) -> bool {
        now > self.timeline.to_ns
    }
}

/// A time since the run's start.
#[must_use]
pub fn since_start(now: Nanos) -> Nanos {
    now.saturating_sub(EPOCH_NS)
}

impl Observer for TimelineWatch {
    fn started(&mut self, now: Nanos, task: TaskId, group: u32, cpu: CpuId, waited_ns: Nanos, warmth: f64) {
        let start_ns = since_start(now);
        let decided =
            self.decided.remove(&task.idx).filter(|d| d.command.task == task && d.command.cpu == cpu);
        if self.over(start_ns) {
            return;
        }
        let run =
            Run { task, group, cpu, start_ns, end_ns: start_ns, waited_ns, warmth, refill_ns: 0, work_ns: 0 };
        self.running.insert(cpu.0, Span { run, decided });
    }

    fn stopped(&mut self, run: &Run) {
        let decided = self.running.remove(&run.cpu.0).and_then(|span| span.decided);
        let run = Run { start_ns: since_start(run.start_ns), end_ns: since_start(run.end_ns), ..*run };
        self.keep(Span { run, decided });
    }

    fn runnable(&mut self, now: Nanos, runnable: &Runnable) {
        if !self.over(since_start(now)) {
            self.read.insert(runnable.task.idx, since_start(now));
        }
    }

    fn polled(&mut self, now: Nanos, command: &Command, _view: &View) {
        if !self.over(since_start(now)) {
            self.polled.insert(command.task.idx, since_start(now));
        }
    }

    fn decided(&mut self, now: Nanos, runnable: &Runnable, command: &Command, outcome: Outcome) {
        let row = command.task.idx;
        let (read, polled) = (self.read.get(&row).copied(), self.polled.remove(&row));
        if outcome != Outcome::Done || self.over(since_start(now)) {
            return;
        }
        let done_ns = since_start(now);
        let polled_ns = polled.unwrap_or(done_ns);
        let read_ns = read.unwrap_or(polled_ns);
        let decided = Decided { runnable: *runnable, read_ns, polled_ns, done_ns, command: *command };
        match self.running.get_mut(&command.cpu.0) {
            // It started within the commit itself.
            Some(span) if span.run.task == command.task && span.run.start_ns == done_ns => {
                span.decided = Some(decided)
            }
            _ => {
                self.decided.insert(row, decided);
            }
        }
    }

    fn held(&mut self, now: Nanos, cpu: CpuId, held: bool) {
        if held {
            self.held.insert(cpu.0, since_start(now));
        } else if let Some(since) = self.held.remove(&cpu.0) {
            self.keep_held(cpu.0, (since, since_start(now)));
        }
    }

    fn takeover(&mut self, now: Nanos, on: bool) {
        if on {
            self.takeover = Some(since_start(now));
        } else if let Some(since) = self.takeover.take() {
            self.keep_takeover((since, since_start(now)));
        }
    }
}

impl Decided {
    /// In words: why the task went where it ran.
    #[must_use]
    pub fn why(&self) -> String {
        let cause = match self.runnable.why {
            Why::New => "new",
            Why::Woken => "woken",
            Why::Preempted => "preempted",
            Why::SliceUsed => "slice used up",
            Why::Yielded => "yielded",
            Why::Rescan => "found waiting",
        };
        let recalled = self
            .command
            .recalled_from
            .map_or_else(String::new, |cpu| format!(", recalled from CPU {}", cpu.0));
        format!("{cause}{recalled}: {}", self.reason())
    }

    fn reason(&self) -> Reason {
        self.command.reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_and_refused() {
        assert_eq!("100..120.5".parse(), Ok(Window { from_ms: 100.0, to_ms: 120.5 }));
        for text in ["", "100", "5..5", "7..5", "-1..5", "a..b", "1..inf"] {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_overlaps_the_window_is_kept() {
        let run = |start, end| Run {
            task: TaskId { idx: 1, generation: 1 },
            group: 0,
            cpu: CpuId(0),
            start_ns: EPOCH_NS + start,
            end_ns: EPOCH_NS + end,
            waited_ns: 0,
            warmth: 1.0,
            refill_ns: 0,
            work_ns: 0,
        };
        let mut watch = TimelineWatch::new(Window { from_ms: 1.0, to_ms: 2.0 }, 2);
        for (start, end) in
            [(0, 900_000), (900_000, 1_100_000), (1_500_000, 1_600_000), (1_700_000, 1_800_000)]
        {
            watch.stopped(&run(start, end));
        }
        watch.held(EPOCH_NS + 1_900_000, CpuId(3), true);
        watch.takeover(EPOCH_NS + 2_100_000, true);
        let seen = watch.finish();
        assert_eq!(seen.spans.iter().map(|span| span.run.start_ns).collect::<Vec<_>>(), [900_000, 1_500_000]);
        assert_eq!((seen.left_out, seen.takeovers.len()), (1, 0));
        assert_eq!(seen.held, [(CpuId(3), (1_900_000, 2_000_000))]);
    }
}
