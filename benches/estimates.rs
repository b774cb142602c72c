// SPDX-License-Identifier: GPL-2.0-only
//! What one question about warmth or completion times costs, and a decision that asks many: `cargo bench --bench estimates`.

mod load;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hearth::completion::Histogram;
use hearth::ids::{CpuId, TaskId};
use load::Load;
use std::hint::black_box;
use std::time::Duration;

fn quick<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    group
}

fn questions(c: &mut Criterion) {
    let mut load = Load::new(64, 1_000, "estimates", 16);
    (0..2_000).for_each(|_| {
        load.round();
    });
    let view = load.dispatcher().view();
    let mut group = quick(c, "questions");
    let mut i = 0u32;
    // Another task and CPU each time, as decisions do.
    let mut next = || {
        i = (i + 7) % 1_000;
        (TaskId { idx: i, generation: 1 }, CpuId(i % 64))
    };
    group.bench_function("wait_ns", |b| b.iter(|| view.wait_ns(next().1)));
    group.bench_function("residual_ns", |b| b.iter(|| view.residual_ns(next().1)));
    group.bench_function("median_residual_ns", |b| b.iter(|| view.median_residual_ns(next().1)));
    group.bench_function("service_ns", |b| b.iter(|| view.service_ns(next().0)));
    group.bench_function("refill_ns", |b| {
        b.iter(|| {
            let (task, cpu) = next();
            let cpu = view.remembered(task).next().unwrap_or(cpu);
            view.refill_ns(task, cpu, 10_000)
        });
    });
    group.bench_function("refill_ns_cold", |b| {
        b.iter(|| {
            let (task, cpu) = next();
            view.refill_ns(task, cpu, 10_000)
        });
    });
    group.finish();
}

fn samples(c: &mut Criterion) {
    let mut group = quick(c, "histogram");
    let mut runs = Histogram::EMPTY;
    let mut run_ns = 1u64;
    group.bench_function("add", |b| {
        b.iter(|| {
            run_ns = run_ns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            runs.add(black_box(run_ns >> 44));
        });
    });
    group.finish();
}

fn decisions(c: &mut Criterion) {
    let mut group = quick(c, "decisions");
    for policy in ["fifo", "estimates"] {
        for cpus in [64, 256] {
            let mut load = Load::new(cpus, 1_000, policy, 16);
            (0..2_000).for_each(|_| {
                load.round();
            });
            group.throughput(Throughput::Elements(load.round() as u64));
            group.bench_function(BenchmarkId::new(policy, cpus), |b| b.iter(|| load.round()));
        }
    }
    group.finish();
}

criterion_group!(benches, questions, samples, decisions);
criterion_main!(benches);
