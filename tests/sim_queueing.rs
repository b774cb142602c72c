// SPDX-License-Identifier: GPL-2.0-only
//! The simulator against closed forms: M/M/c and M/M/c/K through the dispatcher with `fifo`, all costs zero, no slice end.
//!
//! Two ways to build such a queue. *Shared*: c workers on c CPUs take requests from one queue in the order of arrival; the
//! dispatcher gives each woken worker an idle CPU. *Tasks*: every request is a task of its own, and lines form at the CPUs.
//! `fifo` joins the shortest line, and a CPU that runs dry takes from the longest: no CPU is idle while a request waits. With
//! exponential service that alone makes the number in the system the birth-death process of M/M/c, whatever the
//! order of service, and by Little's law the mean wait too; the distribution of waits differs and is not compared.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use hearth::policy::registry;
use hearth::sim;
use hearth::sim::result::{Observer, Request, RunResult};
use hearth::sim::scenario::Scenario;

/// Time in the system of every request, in order.
#[derive(Default)]
struct Times(Vec<f64>);

impl Observer for Times {
    fn answered(&mut self, request: &Request) {
        self.0.push((request.done_ns - request.intended_ns) as f64);
    }
}

/// Mean time in the system in units of the mean service, and the share that is turned away: by the stable recursion in logarithms.
fn mmck(load: f64, c: u32, k: u32) -> (f64, f64) {
    let a = load * f64::from(c);
    let mut log_w = vec![0.0f64];
    for n in 1..=k {
        log_w.push(log_w[n as usize - 1] + (a / f64::from(n.min(c))).ln());
    }
    let most = log_w.iter().fold(f64::MIN, |m, &w| m.max(w));
    let weights: Vec<f64> = log_w.iter().map(|w| (w - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let length: f64 = weights.iter().enumerate().map(|(n, w)| n as f64 * w / sum).sum();
    let blocked = weights[k as usize] / sum;
    (length / (a * (1.0 - blocked)), blocked)
}

#[test]
fn the_closed_form_is_the_published_one() {
    // Exact rational arithmetic gives these (lambda 10, mu 5, c 3, K 10; lambda 90, mu 10, c 10, K 20).
    for (load, c, k, w, blocked) in
        [(10.0 / 15.0, 3, 10, 0.273_458_175 * 5.0, 0.008_823_783), (0.9, 10, 20, 1.263_927_59, 0.029_510_062)]
    {
        let (mean, p) = mmck(load, c, k);
        assert!((mean - w).abs() < 1e-6 && (p - blocked).abs() < 1e-8, "{mean} {p}");
    }
}

fn simulate(
    c: u32,
    load_pct: f64,
    queueing: &str,
    limit: u32,
    requests: f64,
    seed: u64,
) -> (Times, RunResult) {
    let ms = requests / (load_pct / 100.0 * f64::from(c)) * 0.1;
    let text = format!(
        r#"
        name = "mmc"
        duration_ms = {ms}
        warmup_ms = {}
        machine = {{ llcs = 1, cores_per_llc = {c} }}
        caches = {{ profile = "none" }}
        dispatcher = {{ ideal = true, slice_us = 1000000 }}
        [[service]]
        name = "queue"
        demand = {{ exp_us = 100 }}
        arrivals = {{ poisson = {{ load_pct = {load_pct} }} }}
        queueing = "{queueing}"
        limit = {limit}
        "#,
        ms / 10.0
    );
    let scenario = Scenario::parse(&text, &[]).unwrap();
    let mut times = Times::default();
    let fifo = registry::find("fifo").unwrap();
    let result = sim::run(&scenario, |config| (fifo.build)(config), seed, &mut times).unwrap();
    let warmup = times.0.len() - result.total.requests as usize;
    times.0.drain(..warmup);
    (times, result)
}

/// Mean and half width of the 99.9 % interval, by means of 32 batches (t of 31 degrees of freedom: 3.633).
fn interval(values: &[f64]) -> (f64, f64) {
    let size = values.len() / 32;
    let means: Vec<f64> =
        values.chunks_exact(size).take(32).map(|b| b.iter().sum::<f64>() / size as f64).collect();
    let mean = means.iter().sum::<f64>() / 32.0;
    let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / 31.0;
    (mean, 3.633 * (variance / 32.0).sqrt())
}

fn check(c: u32, load_pct: f64, queueing: &str, requests: f64) {
    let (times, result) = simulate(c, load_pct, queueing, 0, requests, u64::from(c));
    let (mean, half) = interval(&times.0);
    // So many places that none is ever missing.
    let expected = 100_000.0 * mmck(load_pct / 100.0, c, c + 20_000).0;
    println!("{queueing} c={c} load={load_pct}: {mean:.0} +- {half:.0}, expected {expected:.0}");
    assert!(
        (mean - expected).abs() <= half,
        "{queueing} c={c} load={load_pct}: {mean} +- {half}, not {expected}"
    );
    assert!(half < 0.25 * expected, "the interval is too wide to say anything: {half}");
    let utilisation = result.utilisation() * 100.0;
    assert!((utilisation - load_pct).abs() < 0.03 * load_pct, "{utilisation} of {load_pct}");
}

#[test]
fn mmc_with_one_queue_and_workers() {
    for (c, load_pct, requests) in [
        (1, 30.0, 1e5),
        (1, 95.0, 1e6),
        (2, 80.0, 2e5),
        (4, 55.0, 1e5),
        (8, 90.0, 2e5),
        (16, 95.0, 5e5),
        (64, 30.0, 1e5),
        (64, 95.0, 5e5),
    ] {
        check(c, load_pct, "shared", requests);
    }
}

#[test]
fn mmc_with_a_task_per_request() {
    for (c, load_pct, requests) in
        [(1, 50.0, 1e5), (2, 90.0, 2e5), (8, 90.0, 2e5), (16, 80.0, 2e5), (64, 95.0, 5e5)]
    {
        check(c, load_pct, "task_per_request", requests);
    }
}

#[test]
fn mmck_turns_away_as_many_as_it_should() {
    for (c, load_pct, k) in [(1, 90.0, 5), (8, 95.0, 12), (64, 95.0, 80)] {
        for queueing in ["shared", "task_per_request"] {
            let (times, result) = simulate(c, load_pct, queueing, k, 1e5, u64::from(k));
            let (mean, half) = interval(&times.0);
            let (w, blocked) = mmck(load_pct / 100.0, c, k);
            assert!(
                (mean - 1e5 * w).abs() <= half,
                "{queueing} c={c} K={k}: {mean} +- {half}, not {}",
                1e5 * w
            );
            let (offered, away) =
                ((result.total.requests + result.total.rejected) as f64, result.total.rejected as f64);
            // Arrivals that are turned away come in clumps: three times the deviation of independent ones is allowed, and more.
            let deviation = (blocked * (1.0 - blocked) / offered).sqrt();
            assert!(
                (away / offered - blocked).abs() < 12.0 * deviation,
                "{queueing} c={c} K={k}: {} of {blocked}",
                away / offered
            );
        }
    }
}
