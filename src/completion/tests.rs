// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::ids::TaskId;
use proptest::prelude::*;

const HERE: CpuId = CpuId(0);

/// One domain of two CPUs, the second at half capacity; tasks 0 to 3.
fn fresh() -> Completion {
    let topology = Topology::builder().llc().cores(1, 1, 1024).cores(1, 1, 512).build().unwrap();
    Completion::new(&topology, 4)
}

fn record(row: u32, why: Why, ran_ns: Nanos) -> Runnable {
    let task = TaskId { idx: row, generation: 1 };
    Runnable { prev_cpu: HERE, why, ran_ns, cgroup: 7, ..crate::tasks::Row::born(task).fact }
}

/// The task has run so often, each time for so long.
fn teach(completion: &mut Completion, row: u32, runs_ns: impl IntoIterator<Item = Nanos>) {
    completion.ran(row as usize, &record(row, Why::New, 0), false);
    for run_ns in runs_ns {
        completion.ran(row as usize, &record(row, Why::Woken, run_ns), false);
    }
}

fn on(completion: &mut Completion, cpu: CpuId, since_ns: Nanos, slice_ns: Nanos) {
    let status =
        CpuStatus { cpu, curr: None, other: true, held: false, since_ns, slice_ns, busy_ns: 0, depth: 0 };
    completion.read(&status);
}

#[test]
fn slices_add_up_to_a_run_and_a_cut_run_is_no_sample() {
    let mut completion = fresh();
    teach(&mut completion, 0, [300_000; 4]);
    for why in [Why::SliceUsed, Why::Preempted, Why::Yielded] {
        completion.ran(0, &record(0, why, 100_000), false);
        assert_eq!(completion.runs_of(0).weight(), 4 * histogram::SAMPLE, "{why:?} is no end");
    }
    assert_eq!(completion.run_age_ns(0), 300_000);
    completion.ran(0, &record(0, Why::Woken, 50_000), false);
    assert_eq!((completion.run_age_ns(0), completion.runs_of(0).weight()), (0, 5 * histogram::SAMPLE));
    assert_eq!(completion.runs_of(0).mean_ns(), Some(310_000));
}

#[test]
fn a_run_that_was_not_seen_whole_is_no_sample() {
    let mut completion = fresh();
    // Attached in the middle of its run; then a lost record; then a run time that cannot be.
    completion.ran(0, &record(0, Why::Woken, 9_000_000), false);
    completion.ran(0, &record(0, Why::Rescan, 9_000_000), false);
    completion.ran(0, &record(0, Why::Woken, 9_000_000), false);
    completion.resync();
    completion.ran(0, &record(0, Why::Woken, 9_000_000), false);
    completion.ran(0, &record(0, Why::Woken, 9_000_000), true);
    assert_eq!(completion.runs_of(0).weight(), 0);
    completion.ran(0, &record(0, Why::Woken, 20_000), false);
    assert_eq!(completion.runs_of(0).mean_ns(), Some(20_000));
}

#[test]
fn who_has_no_history_borrows_one() {
    let mut completion = fresh();
    assert_eq!(completion.service_ns(1, Nanos::MAX), PRIOR_RUN_NS);
    // The machine's, since the cgroup is not known yet; then the cgroup's; then its own.
    teach(&mut completion, 0, [20_000; 8]);
    assert_eq!(completion.service_ns(1, Nanos::MAX), 20_000);
    let other = Runnable { cgroup: 8, ..record(2, Why::New, 0) };
    completion.ran(2, &other, false);
    for _ in 0..4 {
        completion.ran(2, &Runnable { cgroup: 8, ..record(2, Why::Woken, 900_000) }, false);
    }
    completion.ran(1, &Runnable { cgroup: 8, ..record(1, Why::New, 0) }, false);
    assert_eq!(completion.service_ns(1, Nanos::MAX), 900_000);
    completion.ran(3, &record(3, Why::New, 0), false);
    assert_eq!(completion.service_ns(3, Nanos::MAX), 20_000);
    for _ in 0..4 {
        completion.ran(1, &Runnable { cgroup: 8, ..record(1, Why::Woken, 50_000) }, false);
    }
    assert_eq!(completion.service_ns(1, Nanos::MAX), 50_000);
    // Another program begins without a history.
    completion.exec(1);
    assert!(completion.service_ns(1, Nanos::MAX) > 50_000);
}

#[test]
fn c28_unknown_cgroups_are_no_error_and_take_no_memory() {
    let mut completion = fresh();
    let groups = completion.groups.len();
    for id in (0..10_000).chain([u64::MAX, 777]) {
        completion.ran(0, &Runnable { cgroup: id, ..record(0, Why::Woken, 1_000) }, false);
    }
    assert_eq!(completion.groups.len(), groups);
    assert_eq!(completion.service_ns(0, Nanos::MAX), 1_000);
}

#[test]
fn the_talks_example_counting_errs_timing_does_not() {
    let mut completion = fresh();
    for (row, run_ns) in [(0, 20_000), (1, 20_000), (2, 4_000_000), (3, 4_000_000)] {
        teach(&mut completion, row, [run_ns; 10]);
    }
    let place = completion.place_of_cpu(HERE);
    let wait_ns = |completion: &Completion| completion.wait_ns(HERE, Occupant::Nobody, 0, 0);
    completion.join(0, place, 5_000_000);
    completion.join(1, place, 5_000_000);
    assert_eq!((completion.waiting(place), wait_ns(&completion)), ((2, 40_000), 40_000));
    completion.leave(0);
    completion.leave(1);
    completion.join(2, place, 5_000_000);
    completion.join(3, place, 5_000_000);
    assert_eq!((completion.waiting(place), wait_ns(&completion)), ((2, 8_000_000), 8_000_000));
    // In slices of 1 ms they give the CPU away earlier.
    completion.join(2, place, 1_000_000);
    assert_eq!(wait_ns(&completion), 5_000_000);
}

#[test]
fn sums_are_those_of_who_waits() {
    let mut completion = fresh();
    teach(&mut completion, 0, [20_000; 10]);
    let (cpu, llc) = (completion.place_of_cpu(HERE), completion.place_of_llc(LlcId(0)));
    completion.join(0, llc, 5_000_000);
    assert_eq!((completion.waiting(llc).1, completion.counted_ns(0)), (20_000, 20_000));
    // A change of mind about the task does not change what was counted.
    teach(&mut completion, 0, [90_000; 30]);
    completion.join(0, cpu, 5_000_000);
    assert_eq!(completion.waiting(llc), (0, 0));
    assert!(completion.waiting(cpu).1 > 20_000);
    completion.leave(0);
    completion.leave(0);
    assert_eq!((completion.waiting(cpu), completion.counted_ns(0)), ((0, 0), 0));
    completion.join(0, cpu, 5_000_000);
    completion.clear(0);
    assert_eq!(completion.waiting(cpu), (0, 0));
}

#[test]
fn the_longer_it_has_run_the_longer_it_will() {
    let mut completion = fresh();
    teach(&mut completion, 0, (0..100).map(|i| if i % 10 == 0 { 4_000_000 } else { 20_000 }));
    on(&mut completion, HERE, 1_000, 5_000_000);
    let task = Occupant::Task(0);
    let residual_ns = |now| completion.residual_ns(HERE, task, now);
    assert_eq!(residual_ns(1_000), 418_000);
    assert_eq!(residual_ns(31_000), 3_970_000);
    assert_eq!(completion.median_residual_ns(HERE, task, 1_000), 20_000);
    assert_eq!(completion.median_residual_ns(HERE, task, 31_000), 3_970_000);
    // An overrun is charged, not forgiven.
    assert!(residual_ns(4_100_000) > 100_000);
    assert_eq!(completion.residual_ns(HERE, Occupant::Nobody, 31_000), 0);
}

#[test]
fn the_slice_ends_what_a_task_takes_from_others() {
    let mut completion = fresh();
    teach(&mut completion, 0, [50_000_000; 10]);
    on(&mut completion, HERE, 1_000, 5_000_000);
    let taken_ns = |now| completion.occupancy_ns(HERE, Occupant::Task(0), now);
    assert_eq!(taken_ns(1_000), 5_000_000);
    assert_eq!(taken_ns(3_001_000), 2_000_000);
    // Alone on the CPU it got its slice again.
    assert_eq!(taken_ns(12_001_000), 3_000_000);
    on(&mut completion, HERE, 1_000, 0);
    assert_eq!(completion.occupancy_ns(HERE, Occupant::Task(0), 9_000), 0);
}

#[test]
fn a_held_cpu_is_not_free() {
    let completion = fresh();
    assert_eq!(completion.wait_ns(HERE, Occupant::Held, 0, 0), HELD_WAIT_NS);
    assert_eq!(completion.wait_ns(HERE, Occupant::Nobody, 0, 0), 0);
}

#[test]
fn strangers_count_as_average_runs_of_the_machine() {
    let mut completion = fresh();
    assert_eq!(completion.wait_ns(HERE, Occupant::Nobody, 2, 0), 2 * PRIOR_RUN_NS);
    teach(&mut completion, 0, [30_000; 4]);
    assert_eq!(completion.wait_ns(HERE, Occupant::Nobody, 2, 0), 60_000);
    on(&mut completion, HERE, 0, 5_000_000);
    assert_eq!(completion.wait_ns(HERE, Occupant::Other, 0, 10_000), 20_000);
}

#[test]
fn a_slower_cpu_takes_longer() {
    let mut completion = fresh();
    let slow = CpuId(1);
    teach(&mut completion, 0, [100_000; 10]);
    completion.join(0, completion.place_of_cpu(slow), 5_000_000);
    assert_eq!(completion.wait_ns(slow, Occupant::Nobody, 0, 0), 200_000);
    completion.leave(0);
    // 60 us of its clock are 30 us of work; 70 are left.
    on(&mut completion, slow, 0, 5_000_000);
    assert_eq!(completion.wait_ns(slow, Occupant::Task(0), 0, 60_000), 140_000);
    // And 80 us that were used there are a run of 40 us.
    completion.clear(1);
    completion.ran(1, &Runnable { prev_cpu: slow, ..record(1, Why::New, 0) }, false);
    for _ in 0..4 {
        completion.ran(1, &Runnable { prev_cpu: slow, ..record(1, Why::Woken, 80_000) }, false);
    }
    assert_eq!(completion.service_ns(1, Nanos::MAX), 40_000);
}

proptest! {
    #[test]
    fn nothing_overflows(
        runs in prop::collection::vec((0u32..4, any::<u64>(), 0u8..6, any::<bool>()), 1..60),
        since_ns: u64, slice_ns: u64, now: u64, cpu in 0u32..2,
    ) {
        let mut completion = fresh();
        let whys = [Why::New, Why::Woken, Why::Preempted, Why::SliceUsed, Why::Yielded, Why::Rescan];
        for (row, ran_ns, why, doubtful) in runs {
            completion.ran(row as usize, &record(row, whys[why as usize], ran_ns), doubtful);
            completion.join(row as usize, completion.place_of_cpu(CpuId(cpu)), slice_ns);
        }
        on(&mut completion, CpuId(cpu), since_ns, slice_ns);
        for occupant in [Occupant::Task(0), Occupant::Other, Occupant::Held, Occupant::Nobody] {
            let wait_ns = completion.wait_ns(CpuId(cpu), occupant, 3, now);
            prop_assert!(wait_ns >= completion.occupancy_ns(CpuId(cpu), occupant, now));
            prop_assert!(completion.residual_ns(CpuId(cpu), occupant, now) <= 2 * histogram::MAX_RUN_NS);
            prop_assert!(completion.median_residual_ns(CpuId(cpu), occupant, now) <= 2 * histogram::MAX_RUN_NS);
        }
        (0..4).for_each(|row| completion.leave(row));
        prop_assert_eq!(completion.waiting(completion.place_of_cpu(CpuId(cpu))), (0, 0));
    }
}
