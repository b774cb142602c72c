// SPDX-License-Identifier: GPL-2.0-only
//! Decisions per second of the core alone, through handle, poll and committed: `cargo bench --bench dispatch`.
//!
//! Wall-clock numbers differ between machines; instructions do not. Counted by callgrind (tests/instructions.rs holds them),
//! x86-64, rustc 1.95, per decision; about 330 of them are the load that makes the events:
//!
//! | policy, CPUs | 10 tasks | 100 | 1,000 | 10,000 |
//! |---|---|---|---|---|
//! | fifo, 8 | 1,606 | 1,495 | 1,496 | 1,508 |
//! | fifo, 64 | 1,618 | 1,860 | 1,815 | 1,819 |
//! | fifo, 256 | 1,651 | 1,920 | 1,849 | 1,851 |
//! | vtime, 8 | 2,793 | 2,984 | 3,123 | 3,214 |
//! | vtime, 64 | 1,897 | 3,171 | 3,353 | 3,511 |
//! | vtime, 256 | 1,930 | 2,199 | 3,292 | 3,452 |
//!
//! Where they go (fifo, 8 CPUs): two facts 335, keeping idle maps and the tournament of lines true 220 (two changes of three
//! levels each), the outcome 160, the command 100, leaving a line 80, the policy with its questions 120.

mod load;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use load::Load;
use std::time::Duration;

/// Decisions of one round at most, as the daemon commits them in batches.
const BATCH: usize = 16;

fn dispatch(c: &mut Criterion) {
    for policy in ["fifo", "vtime"] {
        let mut group = c.benchmark_group(policy);
        group
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1))
            .sample_size(20);
        for cpus in [8, 64, 256] {
            for tasks in [10, 100, 1_000, 10_000] {
                let mut load = Load::new(cpus, tasks, policy, BATCH);
                let per_round = load.round() as u64;
                group.throughput(Throughput::Elements(per_round));
                group.bench_function(BenchmarkId::new(format!("{cpus}cpus"), tasks), |b| {
                    b.iter(|| load.round());
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
