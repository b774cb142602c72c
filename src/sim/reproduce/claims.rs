// SPDX-License-Identifier: GPL-2.0-only
//! The talk's tables and what it claims by them.

use serde::Serialize;

/// At heavy load and overcommit a ratio below 1 + this, in percent, is "no worse": the talk's largest loss there is 6.3 %.
pub const NO_WORSE_PCT: f64 = 7.0;

/// Without warmth.
const BASE: &str = "lavd-base";
const WARM_10: &str = "warm:warm_cpu_us=10";
const WARM_20: &str = "warm:warm_cpu_us=20";
const WARM_50: &str = "warm:warm_cpu_us=50";
/// The talk does not name the value of warm-cpu-us behind d2 and d4; here it is 20, the middle of what it tried.
const D2: &str = "look-ahead:depth=2:warm_cpu_us=20";
const D4: &str = "look-ahead:depth=4:warm_cpu_us=20";

/// What is compared, in the order of the tables' columns.
pub const POLICIES: &[&str] = &[BASE, WARM_10, WARM_20, WARM_50, D2, D4];

/// One of the talk's load levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its name in the talk.
    pub name: &'static str,
    /// The shipped scenario that stands for it.
    pub scenario: &'static str,
}

/// The load levels.
pub const LOADS: &[Load] = &[
    Load { name: "light", scenario: "cache-25" },
    Load { name: "moderate", scenario: "cache-55" },
    Load { name: "heavy", scenario: "cache-96" },
    Load { name: "overcommit", scenario: "cache-4x" },
];

/// A row of the talk's tables.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// At which load.
    pub load: &'static str,
    /// Which figure.
    pub figure: &'static str,
    /// In milliseconds, by policy as in [`POLICIES`].
    pub ms: [Option<f64>; 6],
}

const P50: &str = "request_p50_ns";
const P99: &str = "request_p99_ns";
const P99_9: &str = "request_p99_9_ns";

const fn row(load: &'static str, figure: &'static str, ms: [Option<f64>; 6]) -> Figure {
    Figure { load, figure, ms }
}

/// The talk's two tables as one.
pub const FIGURES: &[Figure] = &[
    row("light", P50, [Some(0.077), None, None, None, Some(0.257), Some(0.220)]),
    row("light", P99, [Some(4.02), Some(2.82), Some(3.07), Some(3.15), Some(2.42), Some(2.58)]),
    row("light", P99_9, [Some(5.12), Some(3.93), Some(4.15), Some(4.25), Some(3.72), Some(3.79)]),
    row("moderate", P50, [Some(0.074), None, None, None, Some(0.130), Some(0.201)]),
    row("moderate", P99, [Some(6.19), Some(5.09), Some(4.93), Some(5.36), Some(4.25), Some(3.77)]),
    row("moderate", P99_9, [Some(9.94), Some(7.69), Some(7.57), Some(8.01), Some(7.35), Some(7.15)]),
    row("heavy", P50, [Some(0.079), None, None, None, Some(0.079), Some(0.081)]),
    row("heavy", P99, [Some(11.35), None, None, None, Some(11.42), Some(11.37)]),
    row("heavy", P99_9, [Some(32.15), None, None, None, Some(33.59), Some(33.56)]),
    row("overcommit", P50, [Some(0.079), None, None, None, Some(0.077), Some(0.079)]),
    row("overcommit", P99, [Some(12.17), None, None, None, Some(12.77), Some(12.94)]),
    row("overcommit", P99_9, [Some(49.56), None, None, None, Some(49.71), Some(48.90)]),
];

/// Which way a ratio is claimed to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Below 1.
    Lower,
    /// Above 1.
    Higher,
    /// Not above 1 by more than [`NO_WORSE_PCT`].
    NoWorse,
}

/// The figure of `policy`, divided by that of `than`, is on `side` of 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Claim {
    /// What is claimed, for people.
    pub what: &'static str,
    /// At which load.
    pub load: &'static str,
    /// Which figure.
    pub figure: &'static str,
    /// Of whom.
    pub policy: &'static str,
    /// Against whom.
    pub than: &'static str,
    /// Which way.
    pub side: Side,
    /// The talk's ratio.
    pub talk: f64,
}

const fn claim(
    what: &'static str,
    load: &'static str,
    figure: &'static str,
    (policy, than): (&'static str, &'static str),
    side: Side,
    talk: f64,
) -> Claim {
    Claim { what, load, figure, policy, than, side, talk }
}

const WAITS: &str = "a short wait for the warm CPU pays";
const TOO_LONG: &str = "too long a wait loses some of it";
const ADDS: &str = "look-ahead adds to it";
const DEEPER: &str = "deeper look-ahead is for higher load";
const KEEPS: &str = "no harm when all CPUs are busy";
const PAYS: &str = "the median pays for it";

/// All claims.
pub const CLAIMS: &[Claim] = &[
    claim(WAITS, "light", P99, (WARM_10, BASE), Side::Lower, 0.701),
    claim(WAITS, "light", P99, (WARM_20, BASE), Side::Lower, 0.764),
    claim(WAITS, "light", P99_9, (WARM_10, BASE), Side::Lower, 0.768),
    claim(WAITS, "light", P99_9, (WARM_20, BASE), Side::Lower, 0.811),
    claim(WAITS, "moderate", P99, (WARM_10, BASE), Side::Lower, 0.822),
    claim(WAITS, "moderate", P99, (WARM_20, BASE), Side::Lower, 0.796),
    claim(WAITS, "moderate", P99_9, (WARM_10, BASE), Side::Lower, 0.774),
    claim(WAITS, "moderate", P99_9, (WARM_20, BASE), Side::Lower, 0.762),
    claim(TOO_LONG, "light", P99, (WARM_50, WARM_10), Side::Higher, 1.117),
    claim(TOO_LONG, "light", P99_9, (WARM_50, WARM_10), Side::Higher, 1.081),
    claim(TOO_LONG, "moderate", P99, (WARM_50, WARM_20), Side::Higher, 1.087),
    claim(TOO_LONG, "moderate", P99_9, (WARM_50, WARM_20), Side::Higher, 1.058),
    claim(ADDS, "light", P99, (D2, WARM_20), Side::Lower, 0.788),
    claim(ADDS, "light", P99_9, (D2, WARM_20), Side::Lower, 0.896),
    claim(ADDS, "moderate", P99, (D4, WARM_20), Side::Lower, 0.765),
    claim(ADDS, "moderate", P99_9, (D4, WARM_20), Side::Lower, 0.945),
    claim(DEEPER, "light", P99, (D4, D2), Side::Higher, 1.066),
    claim(DEEPER, "moderate", P99, (D4, D2), Side::Lower, 0.887),
    claim(KEEPS, "heavy", P99, (D2, BASE), Side::NoWorse, 1.006),
    claim(KEEPS, "heavy", P99, (D4, BASE), Side::NoWorse, 1.002),
    claim(KEEPS, "heavy", P99_9, (D2, BASE), Side::NoWorse, 1.045),
    claim(KEEPS, "heavy", P99_9, (D4, BASE), Side::NoWorse, 1.044),
    claim(KEEPS, "overcommit", P99, (D2, BASE), Side::NoWorse, 1.049),
    claim(KEEPS, "overcommit", P99, (D4, BASE), Side::NoWorse, 1.063),
    claim(KEEPS, "overcommit", P99_9, (D2, BASE), Side::NoWorse, 1.003),
    claim(KEEPS, "overcommit", P99_9, (D4, BASE), Side::NoWorse, 0.987),
    claim(PAYS, "light", P50, (D2, BASE), Side::Higher, 3.338),
    claim(PAYS, "light", P50, (D4, BASE), Side::Higher, 2.857),
    claim(PAYS, "moderate", P50, (D2, BASE), Side::Higher, 1.757),
    claim(PAYS, "moderate", P50, (D4, BASE), Side::Higher, 2.716),
];
