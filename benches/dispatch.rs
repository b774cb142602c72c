// SPDX-License-Identifier: GPL-2.0-only
//! Decisions per second of the core alone, through handle, poll and committed: `cargo bench --bench dispatch`.

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
