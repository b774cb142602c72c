// SPDX-License-Identifier: GPL-2.0-only
//! Two threads that wake each other in turn: context switches on one CPU, wakeups across two.

use super::stats::Samples;
use crate::gate::Gate;
use crate::sys;
use std::io;
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::Instant;

/// Round trips of one visit, after the first few that start things up.
const TRIPS: usize = 40;
const FIRST_TRIPS: usize = 4;

/// Round trips (ns) between the caller and a thread on `cpu`, through futexes: each side wakes the other, then sleeps.
///
/// # Errors
/// If the partner cannot be started or not pinned.
pub fn round_trips(cpu: usize, into: &mut Samples) -> io::Result<()> {
    let (ping, pong) = (Gate::new(), Gate::new());
    thread::scope(|scope| {
        let partner = thread::Builder::new().name("calibrate".to_owned()).spawn_scoped(scope, || {
            let pinned = sys::set_affinity(sys::thread_id(), &[cpu]);
            for _ in 0..FIRST_TRIPS + TRIPS {
                ping.wait();
                ping.arm();
                pong.post();
            }
            pinned
        })?;
        let mut trips = Samples::default();
        for trip in 0..FIRST_TRIPS + TRIPS {
            pong.arm();
            let start = Instant::now();
            ping.post();
            pong.wait();
            let ns = start.elapsed().as_nanos() as f64;
            if trip >= FIRST_TRIPS {
                trips.push(ns, false);
            }
        }
        let pinned = partner.join().map_err(|_| io::Error::other("the partner of a round trip panicked"))?;
        // The median of a visit: a third task that took its turn in between must not count.
        if let Some(summary) = trips.summary() {
            into.push(summary.median, false);
        }
        pinned
    })
}

/// What the system calls of a one-way trip cost (ns) when they wake nobody and do not sleep.
pub fn syscalls_ns() -> f64 {
    const PAIRS: usize = 64;
    let word = AtomicU32::new(0);
    let start = Instant::now();
    for _ in 0..PAIRS {
        sys::futex_wake(&word, 1);
        sys::futex_wait(&word, 1, None);
    }
    start.elapsed().as_nanos() as f64 / PAIRS as f64
}
