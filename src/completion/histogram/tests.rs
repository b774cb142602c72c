// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use proptest::prelude::*;

fn of(runs_ns: impl IntoIterator<Item = Nanos>) -> Histogram {
    let mut runs = Histogram::EMPTY;
    runs_ns.into_iter().for_each(|run_ns| runs.add(run_ns));
    runs
}

fn all_ns(runs: &Histogram, age_ns: Nanos) -> Nanos {
    runs.rest_ns(age_ns, Nanos::MAX).unwrap()
}

#[test]
fn buckets_cover_everything_in_order() {
    for (i, ends) in ENDS.windows(2).enumerate() {
        assert!(ends[0] < ends[1]);
        assert_eq!((bucket(ends[0]), bucket(ends[1] - 1)), (i, i));
    }
    assert_eq!((ENDS[1], ENDS[2], ENDS[3]), (2_048, 3_072, 4_096));
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn runs_that_are_all_alike_are_predicted_exactly() {
    let runs = of([20_000; 50]);
    assert_eq!(runs.mean_ns(), Some(20_000));
    for age_ns in [0, 1, 5_000, 16_384, 19_999] {
        assert_eq!(all_ns(&runs, age_ns), 20_000 - age_ns);
        assert_eq!(runs.median_rest_ns(age_ns), Some(20_000 - age_ns));
    }
    // What has never been seen is not about to end.
    assert!(all_ns(&runs, 20_000) >= 5_000);
    assert!(runs.median_rest_ns(1_000_000).unwrap() >= 5_000);
}

#[test]
fn of_two_kinds_the_age_tells_which() {
    let runs = of((0..100).map(|i| if i % 10 == 0 { 4_000_000 } else { 20_000 }));
    assert_eq!(all_ns(&runs, 0), 418_000);
    assert_eq!(runs.median_rest_ns(0), Some(20_000));
    assert_eq!(all_ns(&runs, 20_000), 3_980_000);
    assert_eq!(runs.median_rest_ns(1_000_000), Some(3_000_000));
    // At most 100 us from now on: 9 of 10 stop after 20 us.
    assert_eq!(runs.rest_ns(0, 100_000), Some(28_000));
    assert_eq!(runs.rest_ns(30_000, 100_000), Some(100_000));
}

#[test]
fn nothing_is_known_without_samples() {
    let runs = Histogram::default();
    assert_eq!((runs.mean_ns(), runs.rest_ns(5, 5), runs.median_rest_ns(5)), (None, None, None));
    assert!(!runs.is_telling());
    assert!(of([1; MIN_SAMPLES as usize]).is_telling());
}

#[test]
fn c47_samples_beyond_any_range_are_clamped_and_kept() {
    let runs = of([0, 1, MAX_RUN_NS, MAX_RUN_NS + 1, u64::MAX]);
    assert_eq!(runs.weight(), 5 * SAMPLE);
    assert_eq!(runs.mean_ns(), Some((3 * MAX_RUN_NS + 1) / 5));
    for age_ns in [0, MAX_RUN_NS, u64::MAX] {
        assert!(all_ns(&runs, age_ns) <= MAX_RUN_NS);
        assert!(runs.median_rest_ns(age_ns).unwrap() <= MAX_RUN_NS);
    }
    // Memory is what it is: five cache lines and a half for any number of samples.
    assert_eq!(size_of::<Histogram>(), 512);
}

#[test]
fn old_runs_fade() {
    let mut runs = of((0..MAX_SAMPLES).map(|_| 20_000));
    assert_eq!(runs.weight(), MAX_SAMPLES * SAMPLE);
    runs.add(20_000);
    assert_eq!(runs.weight(), MAX_SAMPLES * SAMPLE / 2 + SAMPLE);
}

#[test]
fn a_change_of_kind_is_followed_within_a_few_runs() {
    for (before_ns, after_ns) in [(20_000, 4_000_000), (4_000_000, 20_000)] {
        let mut runs = of([before_ns; 5_000]);
        for _ in 0..20 {
            runs.add(after_ns);
        }
        let mean_ns = runs.mean_ns().unwrap();
        let way = mean_ns.abs_diff(before_ns) as f64 / after_ns.abs_diff(before_ns) as f64;
        assert!(way > 0.6, "{before_ns} to {after_ns}: only {way} of the way, {mean_ns}");
        assert_eq!(runs.median_rest_ns(0), Some(after_ns));
    }
}

#[test]
fn a_few_strange_runs_change_little() {
    let mut runs = of([20_000; 500]);
    for _ in 0..3 {
        runs.add(20_000_000);
    }
    assert_eq!(runs.weight(), 503 * SAMPLE);
    assert_eq!(runs.median_rest_ns(0), Some(20_000));
}

#[test]
fn the_tail_of_a_heavy_tail_grows_with_the_age() {
    // Pareto 1.5 by its quantiles, shortest 10 us.
    let runs = of((0..500).map(|i| {
        let u = (f64::from((i * 193) % 500) + 0.5) / 500.0;
        (10_000.0 * libm::pow(u, -1.0 / 1.5)) as Nanos
    }));
    let longest_ns = 1_000_000;
    let at = |age_ns| runs.median_rest_ns(age_ns).unwrap() as f64 / age_ns as f64;
    for factor in [2, 10, 100] {
        let share = at(factor * longest_ns);
        assert!((0.3..1.2).contains(&share), "{factor}: {share} of the age; 0.59 is right");
    }
}

prop_compose! {
    fn any_run()(bits in 0u32..64, mantissa: u64) -> Nanos { mantissa >> (63 - bits) }
}

proptest! {
    #[test]
    fn no_count_is_lost(runs_ns in prop::collection::vec(any_run(), 0..300)) {
        let mut runs = Histogram::EMPTY;
        for (i, run_ns) in runs_ns.iter().enumerate() {
            let before = runs.weight();
            runs.add(*run_ns);
            prop_assert!(runs.weight() == before + SAMPLE || runs.weight() < before + SAMPLE && i as u64 >= CHANGE_SAMPLES);
            let by_bucket: u64 = (0..BUCKETS).map(|b| runs.weight_in(b)).sum();
            prop_assert_eq!(by_bucket, runs.weight());
            prop_assert!(runs.weight.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert!(runs.mass.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert!(runs.weight() <= MAX_SAMPLES * SAMPLE);
        }
    }

    #[test]
    fn expectations_are_sane_for_any_age(
        runs_ns in prop::collection::vec(any_run(), 1..300), age_ns in any_run(), at_most_ns in any_run(),
    ) {
        let runs = of(runs_ns);
        let within_ns = runs.rest_ns(age_ns, at_most_ns).unwrap();
        prop_assert!(within_ns <= at_most_ns, "{within_ns} > {at_most_ns}");
        prop_assert!(within_ns <= all_ns(&runs, age_ns));
        prop_assert!(all_ns(&runs, age_ns) <= MAX_RUN_NS);
        prop_assert!(runs.median_rest_ns(age_ns).unwrap() <= MAX_RUN_NS);
    }

    #[test]
    fn a_longer_slice_keeps_a_cpu_no_shorter(
        runs_ns in prop::collection::vec(any_run(), 1..300), age_ns in any_run(), a in any_run(), more in any_run(),
    ) {
        let runs = of(runs_ns);
        let (less, more) = (runs.rest_ns(age_ns, a), runs.rest_ns(age_ns, a.saturating_add(more)));
        prop_assert!(less <= more, "{less:?} {more:?}");
    }
}
