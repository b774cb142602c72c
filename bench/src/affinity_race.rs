// SPDX-License-Identifier: GPL-2.0-only
//! `hearth-bench affinity-race`: allowed CPUs change while tasks are being placed. Does any task run where it may not?
//!
//! Once sched_setaffinity has returned, the kernel promises that the thread runs on allowed CPUs only. One thread
//! changes the affinity of many workers, which sleep and wake all the time, so that every change meets wakeups that are
//! under way. A worker reads its slot's sequence number before and after it asks where it runs: if no change happened in
//! between, the answer must be an allowed CPU.

use crate::schbench::Outcome;
use crate::{Failure, sys};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bits of a slot's set: of a larger machine the first so many CPUs are used.
const MAX_CPUS: usize = 64;
const MAX_THREADS: u32 = 1024;
const MAX_SECONDS: u32 = 86_400;
/// Workers sleep this long and up to four times as long.
const SLEEP_US: u64 = 50;

/// Change the allowed CPUs of threads while they wake up, and check where they run
///
/// Prints one line of JSON: changes of affinity, checks, checks that a change made void, runs on a forbidden CPU, and how late
/// a worker was at most after its sleep (us). Ends with 1 if a thread ran on a forbidden CPU.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Threads whose affinity changes
    #[arg(short = 't', long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    pub threads: u32,

    /// Seconds to run
    #[arg(short = 'r', long, value_name = "S", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SECONDS)))]
    pub runtime: u32,

    /// Microseconds between two changes
    #[arg(short = 'g', long, value_name = "US", default_value = "50")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub gap_us: u32,
}

/// What one worker and the changer share.
#[derive(Debug, Default)]
struct Slot {
    tid: AtomicU32,
    /// Odd while a change is under way.
    seq: AtomicU64,
    /// Bit i: the i-th CPU of the list is allowed.
    allowed: AtomicU64,
}

impl Slot {
    /// Whether the caller runs where it may; `None` if a change came in between.
    fn check(&self, cpus: &[usize]) -> Option<bool> {
        let before = self.seq.load(Ordering::SeqCst);
        let allowed = self.allowed.load(Ordering::SeqCst);
        let cpu = sys::current_cpu();
        if before % 2 == 1 || self.seq.load(Ordering::SeqCst) != before {
            return None;
        }
        Some(select(cpus, allowed).any(|c| c == cpu))
    }

    /// From now on the worker may use only these CPUs.
    fn change(&self, cpus: &[usize], allowed: u64) -> std::io::Result<()> {
        self.seq.fetch_add(1, Ordering::SeqCst);
        self.allowed.store(allowed, Ordering::SeqCst);
        let set: Vec<usize> = select(cpus, allowed).collect();
        let result = sys::set_affinity(self.tid.load(Ordering::SeqCst), &set);
        self.seq.fetch_add(1, Ordering::SeqCst);
        result
    }
}

fn select(cpus: &[usize], bits: u64) -> impl Iterator<Item = usize> + '_ {
    cpus.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, &cpu)| cpu)
}

/// What one worker saw.
#[derive(Debug, Default)]
struct Seen {
    checks: u64,
    void: u64,
    forbidden: u64,
    latest_us: u64,
}

fn work(slot: &Slot, cpus: &[usize], ready: &AtomicU32, stop: &AtomicBool) -> Seen {
    slot.tid.store(sys::thread_id(), Ordering::SeqCst);
    ready.fetch_add(1, Ordering::SeqCst);
    let mut seen = Seen::default();
    let mut seed = u64::from(sys::thread_id()) | 1;
    while !stop.load(Ordering::Relaxed) {
        let sleep = Duration::from_micros(SLEEP_US + next_random(&mut seed) % (3 * SLEEP_US));
        let start = Instant::now();
        thread::sleep(sleep);
        let late_us = (start.elapsed() - sleep).as_micros();
        seen.latest_us = seen.latest_us.max(u64::try_from(late_us).unwrap_or(u64::MAX));
        match slot.check(cpus) {
            Some(true) => seen.checks += 1,
            Some(false) => seen.forbidden += 1,
            None => seen.void += 1,
        }
    }
    seen
}

/// xorshift64: any order of changes will do.
fn next_random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Runs the command.
///
/// # Errors
/// When a thread ran on a forbidden CPU, or the kernel refuses threads or a change of affinity.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    sys::catch_end_signals().map_err(|error| Failure::machine(format!("cannot catch signals: {error}")))?;
    let mut cpus: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    cpus.truncate(MAX_CPUS);
    if cpus.is_empty() {
        return Err(Failure::machine("the kernel does not say which CPUs are allowed".to_owned()));
    }
    let everywhere = u64::MAX >> (MAX_CPUS - cpus.len());
    let slots: Vec<Slot> = (0..options.threads)
        .map(|_| Slot { allowed: AtomicU64::new(everywhere), ..Slot::default() })
        .collect();
    let (ready, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let (changes, seen) = thread::scope(|scope| {
        let workers: Vec<_> =
            slots.iter().map(|slot| scope.spawn(|| work(slot, &cpus, &ready, &stop))).collect();
        while ready.load(Ordering::SeqCst) < options.threads {
            thread::sleep(Duration::from_millis(1));
        }
        let changes = keep_changing(options, &slots, &cpus, everywhere);
        stop.store(true, Ordering::Relaxed);
        let seen: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (changes, seen)
    });
    let changes =
        changes.map_err(|error| Failure::machine(format!("cannot change a thread's affinity: {error}")))?;
    let mut sum = Seen::default();
    for one in seen {
        let one = one.map_err(|_| Failure::failed("a worker panicked; the figures are void".to_owned()))?;
        sum.checks += one.checks;
        sum.void += one.void;
        sum.forbidden += one.forbidden;
        sum.latest_us = sum.latest_us.max(one.latest_us);
    }
    println!(
        "{}",
        json!({ "changes": changes, "checks": sum.checks, "void": sum.void, "forbidden": sum.forbidden,
                "latest_us": sum.latest_us, "cpus": cpus.len() })
    );
    if sum.forbidden > 0 {
        return Err(Failure::failed(format!("{} times a thread ran on a forbidden CPU", sum.forbidden)));
    }
    Ok(if sys::end_requested() { Outcome::Interrupted } else { Outcome::Complete })
}

/// Changes one worker after the other until the time is over; how often.
fn keep_changing(options: &Options, slots: &[Slot], cpus: &[usize], everywhere: u64) -> std::io::Result<u64> {
    let end = Instant::now() + Duration::from_secs(options.runtime.into());
    let (mut seed, mut changes) = (0x9e37_79b9_7f4a_7c15, 0);
    for slot in slots.iter().cycle() {
        if Instant::now() >= end || sys::end_requested() {
            break;
        }
        let allowed = next_random(&mut seed) & next_random(&mut seed) & everywhere;
        let one = 1 << (next_random(&mut seed) % cpus.len() as u64);
        slot.change(cpus, allowed | one)?;
        changes += 1;
        if options.gap_us > 0 {
            thread::sleep(Duration::from_micros(options.gap_us.into()));
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_cpu_is_seen_and_a_change_under_way_is_void() {
        let here = sys::current_cpu();
        sys::set_affinity(sys::thread_id(), &[here]).unwrap();
        let slot = Slot { allowed: AtomicU64::new(1), ..Slot::default() };
        assert_eq!(slot.check(&[here]), Some(true));
        assert_eq!(slot.check(&[here + 1]), Some(false));
        slot.seq.store(1, Ordering::SeqCst);
        assert_eq!(slot.check(&[here]), None);
    }

    #[test]
    fn sets_are_taken_from_the_list() {
        assert_eq!(select(&[2, 5, 9], 0b101).collect::<Vec<_>>(), [2, 9]);
        let none: [usize; 0] = [];
        assert_eq!(select(&none, u64::MAX).count(), 0);
    }

    #[test]
    fn a_refused_set_is_an_error() {
        assert!(sys::set_affinity(sys::thread_id(), &[]).is_err());
        assert!(sys::set_affinity(sys::thread_id(), &[usize::MAX]).is_err());
    }
}
