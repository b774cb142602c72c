// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::event::{CpuStatus, Why};
use crate::ids::TaskId;
use crate::profile::Level as ProfileLevel;
use proptest::prelude::*;

const TASK: TaskId = TaskId { idx: 0, generation: 1 };
const FILL_NS: Nanos = 30_000;
const EVICT_NS: Nanos = 700_000;
const LLC_FILL_NS: Nanos = 1_000_000;
const LLC_EVICT_NS: Nanos = 5_000_000;
const REFILL_NS: Nanos = 18_000;
const LLC_REFILL_NS: Nanos = 500_000;

fn level(scope: Scope, fill_ns: Nanos, evict_ns: Nanos, refill_ns: Nanos) -> ProfileLevel {
    ProfileLevel { name: "level".into(), scope, fill_ns, evict_ns, refill_ns }
}

/// One level of the CPU, one of the domain.
fn profile() -> Profile {
    let levels = vec![
        level(Scope::Cpu, FILL_NS, EVICT_NS, REFILL_NS),
        level(Scope::Llc, LLC_FILL_NS, LLC_EVICT_NS, LLC_REFILL_NS),
    ];
    Profile { neighbour_pct: 50, levels, ..Profile::default() }
}

/// Two domains of two CPUs.
fn cold() -> Warmth {
    Warmth::new(&Topology::grid(2, 2, 1), &profile(), 2)
}

fn run(cpu: u32, ran_ns: Nanos, left_busy_ns: Nanos, slept_ns: Nanos) -> Runnable {
    Runnable {
        prev_cpu: CpuId(cpu),
        ran_ns,
        left_busy_ns,
        slept_ns,
        why: Why::Woken,
        ..crate::tasks::Row::born(TASK).fact
    }
}

fn status(cpu: u32, busy_ns: Nanos, since_ns: Nanos, occupied: bool) -> CpuStatus {
    CpuStatus {
        cpu: CpuId(cpu),
        curr: None,
        other: occupied,
        held: false,
        since_ns,
        slice_ns: 0,
        busy_ns,
        depth: 0,
    }
}

/// The shares of the CPU's level and of the domain's.
fn shares(warmth: &Warmth, now: Nanos, cpu: u32) -> (f64, f64) {
    let of = |wanted: Scope| {
        let (_, share) = warmth.shares(0, now, CpuId(cpu)).find(|&(scope, _)| scope == wanted).unwrap();
        f64::from(share) / f64::from(ONE)
    };
    (of(Scope::Cpu), of(Scope::Llc))
}

fn exp(ns: Nanos, tau_ns: Nanos) -> f64 {
    libm::exp(-(ns as f64) / tau_ns as f64)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-5
}

#[test]
fn fill_follows_the_closed_form() {
    let mut warmth = cold();
    // It runs 20 us, and 45 us more at once, alone on the machine.
    warmth.clocks_mut().read(&status(0, 20_000, 20_000, false));
    warmth.ran(0, 20_000, &run(0, 20_000, 20_000, 0));
    let (cpu, llc) = shares(&warmth, 20_000, 0);
    assert!(close(cpu, 1.0 - exp(20_000, FILL_NS)), "{cpu}");
    assert!(close(llc, 1.0 - exp(20_000, LLC_FILL_NS)), "{llc}");
    warmth.clocks_mut().read(&status(0, 65_000, 65_000, false));
    warmth.ran(0, 65_000, &run(0, 45_000, 65_000, 0));
    let (cpu, llc) = shares(&warmth, 65_000, 0);
    assert!(close(cpu, 1.0 - exp(65_000, FILL_NS)), "{cpu}");
    assert!(close(llc, 1.0 - exp(65_000, LLC_FILL_NS)), "{llc}");
}

/// A task that has run for 1 ms on CPU 0, alone.
fn warm() -> Warmth {
    let mut warmth = cold();
    warmth.clocks_mut().read(&status(0, 1_000_000, 1_000_000, false));
    warmth.ran(0, 1_000_000, &run(0, 1_000_000, 1_000_000, 0));
    warmth
}

#[test]
fn an_idle_cpu_stays_warm() {
    let warmth = warm();
    let before = shares(&warmth, 1_000_000, 0);
    assert_eq!(before, shares(&warmth, 3_600_000_000_000, 0));
    assert!(before.0 > 0.999 && close(before.1, 1.0 - exp(1_000_000, LLC_FILL_NS)));
}

#[test]
fn foreign_run_time_evicts_and_nothing_else() {
    let mut warmth = warm();
    let (cpu, llc) = shares(&warmth, 1_000_000, 0);
    // Somebody runs 300 us on CPU 0 and, for 200 us of that, on CPU 1 too; an hour of idleness in between.
    let now = 3_600_000_000_000;
    warmth.clocks_mut().read(&status(0, 1_300_000, now, false));
    warmth.clocks_mut().read(&status(1, 200_000, now, false));
    let (cpu_now, llc_now) = shares(&warmth, now, 0);
    assert!(close(cpu_now, cpu * exp(300_000, EVICT_NS)), "{cpu_now}");
    assert!(close(llc_now, llc * exp(500_000, LLC_EVICT_NS)), "{llc_now}");
    // Run time in the other domain evicts nothing here.
    warmth.clocks_mut().read(&status(2, 900_000, now, false));
    assert_eq!((cpu_now, llc_now), shares(&warmth, now, 0));
}

#[test]
fn what_runs_there_meanwhile_goes_on_evicting() {
    let mut warmth = warm();
    let now = 1_000_000;
    warmth.clocks_mut().read(&status(0, 1_000_000, now, true));
    let (cpu, llc) = shares(&warmth, now, 0);
    let refill = warmth.refill(0, now, CpuId(0), 400_000, &Paid::ALL);
    let expected = REFILL_NS as f64 * (1.0 - cpu * exp(400_000, EVICT_NS));
    assert!((refill.cpu_ns as f64 - expected).abs() < 2.0, "{refill:?}, {expected}");
    let expected = LLC_REFILL_NS as f64 * (1.0 - llc * exp(400_000, LLC_EVICT_NS));
    assert!((refill.llc_ns as f64 - expected).abs() < 2.0, "{refill:?}, {expected}");
    assert_eq!(refill.neighbour_ns, refill.own_ns() / 2);
    assert_eq!(refill.total_ns(), refill.own_ns() + refill.neighbour_ns);
    // Asked 400 us later, it is the same.
    assert_eq!(refill, warmth.refill(0, now + 400_000, CpuId(0), 0, &Paid::ALL));
}

#[test]
fn a_move_leaves_the_cpu_behind_and_keeps_the_domain() {
    let warmth = warm();
    let now = 1_000_000;
    let refill = |cpu| warmth.refill(0, now, CpuId(cpu), 0, &Paid::ALL);
    let (here, near, far) = (refill(0), refill(1), refill(2));
    assert_eq!((near.cpu_ns, near.llc_ns), (REFILL_NS, here.llc_ns));
    assert_eq!((far.cpu_ns, far.llc_ns), (REFILL_NS, LLC_REFILL_NS));
    assert!(here.cpu_ns < 20 && here.llc_ns < near.own_ns());
}

#[test]
fn several_cpus_are_remembered_the_latest_first() {
    let mut warmth = Warmth::new(&Topology::grid(1, 8, 1), &profile(), 1);
    let remembered = |warmth: &Warmth| warmth.remembered(0).map(|cpu| cpu.0).collect::<Vec<_>>();
    assert!(remembered(&warmth).is_empty());
    for (i, cpu) in [0, 1, 2, 1, 3].into_iter().enumerate() {
        warmth.ran(0, i as u64 * 100_000, &run(cpu, 50_000, 50_000 * (i as u64 + 1), 0));
    }
    assert_eq!(remembered(&warmth), [3, 1, 2, 0]);
    warmth.ran(0, 600_000, &run(4, 50_000, 50_000, 0));
    assert_eq!(remembered(&warmth), [4, 3, 1, 2]);
    // CPU 0 fell out: all of it is missing there.
    assert_eq!(warmth.refill(0, 600_000, CpuId(0), 0, &Paid::ALL).cpu_ns, REFILL_NS);
    warmth.clear(0);
    assert!(remembered(&warmth).is_empty());
}

#[test]
fn beside_others_the_domain_fills_to_the_balance_of_both() {
    let mut warmth = cold();
    // One neighbour runs all the time on CPU 1; the task runs 40 ms on CPU 0, in two parts.
    warmth.clocks_mut().read(&status(1, 0, 0, true));
    for end_ns in [20_000_000, 40_000_000] {
        warmth.clocks_mut().read(&status(0, end_ns, end_ns, false));
        warmth.ran(0, end_ns, &run(0, 20_000_000, end_ns, 0));
    }
    let (cpu, llc) = shares(&warmth, 40_000_000, 0);
    let balance = 1.0 / (1.0 + LLC_FILL_NS as f64 / LLC_EVICT_NS as f64);
    assert!(cpu > 0.99999 && (llc - balance).abs() < 1e-3, "{cpu} {llc} {balance}");
}

#[test]
fn while_it_slept_the_domain_went_on_at_an_even_pace() {
    let mut warmth = warm();
    // From 1 ms to 11 ms CPU 1 runs half of the time; the task sleeps 8 ms, then runs 1 ms, then sleeps 1 ms.
    let now = 11_000_000;
    let (cpu, llc) = shares(&warmth, 1_000_000, 0);
    warmth.clocks_mut().read(&status(0, 2_000_000, 10_000_000, false));
    warmth.clocks_mut().read(&status(1, 5_000_000, now, false));
    warmth.ran(0, now, &run(0, 1_000_000, 2_000_000, 1_000_000));
    let (cpu_now, llc_now) = shares(&warmth, now, 0);
    assert!(close(cpu_now, 1.0 - (1.0 - cpu) * exp(1_000_000, FILL_NS)), "{cpu_now}");
    // The same by small steps.
    let mut stepped = llc * exp(4_000_000, LLC_EVICT_NS);
    for _ in 0..10_000 {
        stepped += (1.0 - stepped) * 100.0 / LLC_FILL_NS as f64 - stepped * 50.0 / LLC_EVICT_NS as f64;
    }
    stepped *= exp(500_000, LLC_EVICT_NS);
    assert!((llc_now - stepped).abs() < 1e-3, "{llc_now} {stepped}");
}

#[test]
fn a_short_run_pays_a_part() {
    let warmth = cold();
    let paid = warmth.paid_within(20_000);
    let refill = warmth.refill(0, 0, CpuId(0), 0, &paid);
    let part = |refill_ns: Nanos, fill_ns| refill_ns as f64 * (1.0 - exp(20_000, fill_ns));
    assert!((refill.cpu_ns as f64 - part(REFILL_NS, FILL_NS)).abs() < 2.0, "{refill:?}");
    assert!((refill.llc_ns as f64 - part(LLC_REFILL_NS, LLC_FILL_NS)).abs() < 2.0, "{refill:?}");
    assert_eq!(warmth.refill(0, 0, CpuId(0), 0, &Paid::ALL).own_ns(), REFILL_NS + LLC_REFILL_NS);
}

#[test]
fn c08_a_cpu_that_is_gone_is_cold_and_no_index() {
    let mut warmth = cold();
    for cpu in [7, 23, u32::MAX] {
        warmth.ran(0, 1000, &run(cpu, 1000, 1000, 0));
        let refill = warmth.refill(0, 1000, CpuId(cpu), 0, &Paid::ALL);
        assert_eq!(refill.own_ns(), REFILL_NS + LLC_REFILL_NS);
    }
    assert_eq!(warmth.remembered(0).count(), 0);
}

#[test]
fn c65_a_suspended_machine_is_cold_and_warms_up_again() {
    let mut warmth = warm();
    let hour = 3_600_000_000_000;
    // The clock jumps while another task is on the CPU: all that time counts as its run.
    warmth.clocks_mut().read(&status(0, 1_000_000 + hour, hour + 1_000_000, false));
    assert_eq!(shares(&warmth, hour + 1_000_000, 0), (0.0, 0.0));
    let (mut busy_ns, mut now) = (hour + 1_000_000, hour + 1_000_000);
    for _ in 0..10 {
        busy_ns += 500_000;
        now += 1_000_000;
        warmth.clocks_mut().read(&status(0, busy_ns, now, false));
        warmth.ran(0, now, &run(0, 500_000, busy_ns, 500_000));
    }
    let (cpu, llc) = shares(&warmth, now, 0);
    assert!(cpu > 0.99 && llc > 0.99, "{cpu} {llc}");
}

#[test]
fn c65_clocks_that_step_back_are_no_foreign_run_time() {
    let mut warmth = warm();
    let before = shares(&warmth, 1_000_000, 0);
    warmth.clocks_mut().read(&status(0, 5, 5, false));
    assert_eq!(shares(&warmth, 10, 0), before);
    warmth.ran(0, 10, &run(0, u64::MAX, 3, u64::MAX));
    let (cpu, llc) = shares(&warmth, 10, 0);
    assert!(cpu > 0.99999 && (0.0..=1.0).contains(&llc));
}

#[test]
fn ten_thousand_runs_do_not_drift_out_of_range() {
    let mut warmth = warm();
    let mut busy_ns = 1_000_000;
    for i in 0..10_000u64 {
        let ran_ns = 1 + (i * 7919) % 50_000;
        busy_ns += ran_ns + (i * 104_729) % 90_000;
        warmth.clocks_mut().read(&status(0, busy_ns, busy_ns, false));
        warmth.ran(0, busy_ns, &run(0, ran_ns, busy_ns, 0));
        let refill = warmth.refill(0, busy_ns, CpuId(0), 0, &Paid::ALL);
        assert!(refill.cpu_ns <= REFILL_NS && refill.llc_ns <= LLC_REFILL_NS);
    }
}

proptest! {
    #[test]
    fn a_share_is_a_share_whatever_comes(
        facts in prop::collection::vec((0u32..6, any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>(), any::<u64>()), 1..40),
    ) {
        let mut warmth = cold();
        for (cpu, a, b, c, occupied, now) in facts {
            warmth.clocks_mut().read(&status(cpu, a, b, occupied));
            warmth.ran(0, now, &run(cpu, b, a, c));
            for cpu in 0..4 {
                for (_, share) in warmth.shares(0, now, CpuId(cpu)) {
                    prop_assert!(share <= ONE);
                }
                let refill = warmth.refill(0, now, CpuId(cpu), c, &warmth.paid_within(a));
                prop_assert!(refill.cpu_ns <= REFILL_NS && refill.llc_ns <= LLC_REFILL_NS);
            }
        }
    }

    #[test]
    fn more_foreign_time_never_warms(a in 0u64..10_000_000, more in 0u64..10_000_000) {
        let refill = |foreign_ns: Nanos| {
            let mut warmth = warm();
            warmth.clocks_mut().read(&status(0, 1_000_000 + foreign_ns, 1_000_000, false));
            warmth.refill(0, 1_000_000, CpuId(0), 0, &Paid::ALL)
        };
        let (less, more) = (refill(a), refill(a + more));
        prop_assert!(less.cpu_ns <= more.cpu_ns && less.llc_ns <= more.llc_ns);
    }

    #[test]
    fn the_warmer_the_cheaper(ran_ns in 1u64..5_000_000, more in 0u64..5_000_000) {
        let refill = |ran_ns: Nanos| {
            let mut warmth = cold();
            warmth.clocks_mut().read(&status(0, ran_ns, ran_ns, false));
            warmth.ran(0, ran_ns, &run(0, ran_ns, ran_ns, 0));
            let share = warmth.shares(0, ran_ns, CpuId(0)).map(|(_, share)| u64::from(share)).sum::<u64>();
            (share, warmth.refill(0, ran_ns, CpuId(0), 0, &Paid::ALL).own_ns())
        };
        let (less, more) = (refill(ran_ns), refill(ran_ns + more));
        prop_assert!(less.0 <= more.0 && less.1 >= more.1);
    }
}
