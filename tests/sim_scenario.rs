// SPDX-License-Identifier: GPL-2.0-only
//! Scenarios as TOML: what is read, what is refused and in which words, presets, changes from the command line.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use hearth::sim::scenario::{Arrivals, Caches, Phase, Scenario};

const SMALL: &str = r#"
name = "small"
[machine]
preset = "lab"
cores_per_llc = 3
[caches]
profile = "zen-chiplet"
l2 = { size_kb = 512 }
[[task]]
name = "hog"
phases = [{ run = { exp_us = 20 } }, { loop = { count = 2, phases = [{ sleep = { fixed_us = 5 } }] } }]
[[service]]
name = "web"
arrivals = { poisson = { load_pct = 30 } }
"#;

fn parse(sets: &[&str]) -> Result<Scenario, String> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_string()).collect();
    Scenario::parse(SMALL, &sets).map_err(|e| e.to_string())
}

#[test]
fn presets_and_profiles_can_be_changed_key_by_key() {
    let scenario = parse(&[]).unwrap();
    assert_eq!((scenario.machine.llcs, scenario.machine.cores_per_llc), (2, 3));
    let mut caches = Caches::zen_chiplet();
    caches.l2.size_kb = 512.0;
    assert_eq!(scenario.caches, caches);
    assert!(matches!(&scenario.task[0].phases[1], Phase::Loop(inner) if inner.count == 2));
}

#[test]
fn set_changes_tables_and_members_of_lists() {
    let sets =
        ["machine.llcs=4", "service.web.arrivals.poisson.load_pct=55", "task.0.weight=50", "about=a b"];
    let scenario = parse(&sets).unwrap();
    assert_eq!((scenario.machine.llcs, scenario.task[0].weight), (4, 50));
    assert_eq!(scenario.about, "a b");
    assert!(matches!(&scenario.service[0].arrivals, Arrivals::Poisson(rate) if rate.load_pct == Some(55.0)));
}

#[test]
fn what_is_written_is_read_back() {
    let scenario = parse(&[]).unwrap();
    assert_eq!(Scenario::parse(&scenario.to_toml().unwrap(), &[]).unwrap(), scenario);
}

#[test]
fn what_is_wrong_is_named_with_its_key() {
    for (set, words) in [
        ("no-equals-sign", "key=value"),
        ("machine.llcs=0", "machine.llcs: is 0"),
        ("machine.preset=\"pdp-11\"", "machine.preset: there is no \"pdp-11\"; known are: lab"),
        ("caches.profile=x", "caches.profile: there is no"),
        ("machine.wheels=4", "unknown field `wheels`"),
        ("task.nobody.weight=1", "task has no member \"nobody\""),
        ("task.hog.weight=0", "task.0.weight: 0: give 1 to 10000"),
        ("task.hog.cpus=\"0-9\"", "task.0.cpus: CPU 6: the machine has CPUs 0 to 5"),
        ("task.hog.phases=[]", "task.0.phases: is empty"),
        ("task.hog.phases=[{reply={}}]", "no phase takes time"),
        ("task.hog.phases=[{send={to=\"x\"}}]", "there is no task group \"x\"; there are: hog"),
        ("task.hog.phases=[{run={exp_us=-1}}]", "task.0.phases.0"),
        ("task.hog.phases=[{run={exp_us=nan}}]", "task.0.phases.0"),
        ("task.hog.phases=[{run={pareto={mean_us=1,alpha=1}}}]", "alpha 1 has no mean"),
        ("service.web.name=\"hog\"", "is used twice"),
        ("service.web.arrivals={poisson={}}", "give either per_s or load_pct"),
        ("service.web.arrivals={poisson={per_s=inf}}", "a rate of inf"),
        ("service.web.demand={fixed_us=0}", "a request takes time"),
        ("duration_ms=nan", "duration_ms: NaN"),
        ("dispatcher.slice_us=1", "dispatcher.slice_us: 1: give 50 to 1000000"),
        ("dispatcher.cpu=6", "the machine has no such CPU"),
        ("caches.l2.cold_slowdown=0", "caches.l2.cold_slowdown: 0"),
        ("faults.retry_pct=100", "faults.retry_pct: 100: give 0 to 90"),
        ("hotplug=[{at_ms=5,cpu=9,online=false}]", "hotplug.0: the machine has no CPU 9"),
        ("interference=[{busy={fixed_us=0},idle={fixed_us=0}}]", "interference.0: busy and idle"),
        ("task.hog.count=100000", "at most 65536"),
    ] {
        let error = parse(&[set]).unwrap_err();
        assert!(error.contains(words), "{set}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
