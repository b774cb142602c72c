// SPDX-License-Identifier: GPL-2.0-only
//! The same recorded events give the same decisions, byte for byte.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod model;

use hearth::dispatcher::{Config, Dispatcher};
use hearth::ids::CpuId;
use hearth::policy::registry;
use hearth::record::{Entry, FORMAT, Header, RecordError, Recorder, Replay, read_header, replay};
use hearth::topology::Topology;
use model::{Faults, Habit, Rng, Sim, set_of};

const FIXTURES: [(&str, &str, u64); 2] = [
    ("fifo", "tests/fixtures/record/fifo.ndjson", 0xace0_d390_847d_ded4),
    ("vtime", "tests/fixtures/record/vtime.ndjson", 0xa97a_7e90_a807_236d),
];

/// A run with some of everything, as a recording.
fn record(policy: &str) -> Vec<u8> {
    let topology = Topology::grid(2, 2, 1);
    let config = Config { max_tasks: 32, dispatcher_cpu: Some(CpuId(0)), ..Config::default() };
    let built = (registry::find(policy).unwrap().build)(&config);
    let mut sim = Sim::new(topology.clone(), Dispatcher::new(topology.clone(), config.clone(), built), 5);
    sim.log = Some(Vec::new());
    sim.kernel.faults = Faults { lose_record: 10, retry: 30, takeover: 20, lose_exit: 100 };
    let mut rng = Rng(11);
    for i in 0..10 {
        let habit = Habit {
            run_ns: 50_000 + rng.below(6_000_000),
            sleep_ns: rng.below(2_000_000),
            bursts: if i % 3 == 0 { 3 } else { 0 },
            weight: 50 + 50 * i,
        };
        let set = (i % 4 == 0).then(|| set_of(&topology, &[1, 3]));
        sim.kernel.spawn(habit, set, CpuId(i % 4));
    }
    sim.run(20_000_000);
    sim.kernel.hold_cpu(CpuId(2), true);
    sim.run(10_000_000);
    sim.kernel.hold_cpu(CpuId(2), false);
    sim.run(10_000_000);

    let header = Header { format: FORMAT, policy: policy.into(), config, topology };
    let mut recorder = Recorder::new(Vec::new(), &header).unwrap();
    for entry in sim.log.unwrap() {
        recorder.entry(&entry).unwrap();
    }
    recorder.finish().unwrap()
}

fn replayed(recording: &[u8]) -> (Replay, Vec<u8>) {
    let mut input = recording;
    let header = read_header(&mut input).unwrap();
    let policy = (registry::find(&header.policy).unwrap().build)(&header.config);
    let mut dispatcher = Dispatcher::new(header.topology, header.config, policy);
    let mut decisions = Vec::new();
    let result = replay(input, &mut dispatcher, &mut decisions).unwrap();
    (result, decisions)
}

#[test]
fn a_recording_replays_to_identical_decisions() {
    for (policy, ..) in FIXTURES {
        let recording = record(policy);
        let (first, decisions) = replayed(&recording);
        assert!(first.decisions > 50, "{first:?}");
        assert_eq!(first.first_difference, None, "{policy}");
        assert_eq!(replayed(&recording), (first, decisions), "{policy}: replayed twice");
        assert_eq!(record(policy), recording, "{policy}: recorded twice");
    }
}

#[test]
fn old_recordings_still_replay_to_what_they_did() {
    // If a change of behaviour is intended, write the fixtures anew: cargo test --test record -- --ignored
    for (policy, path, hash) in FIXTURES {
        let (result, _) = replayed(&std::fs::read(path).unwrap());
        assert_eq!(result.first_difference, None, "{policy}: decides otherwise now");
        assert_eq!(result.hash, hash, "{policy}: hash {:#x}", result.hash);
    }
}

#[test]
#[ignore = "writes the fixtures"]
fn write_fixtures() {
    for (policy, path, _) in FIXTURES {
        let recording = record(policy);
        println!("{policy}: {:#x}", replayed(&recording).0.hash);
        std::fs::write(path, recording).unwrap();
    }
}

#[test]
fn a_changed_decision_and_a_damaged_line_are_found() {
    let recording = String::from_utf8(record("fifo")).unwrap();
    let lines: Vec<&str> = recording.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("{\"Poll\"") && !line.contains("null")).unwrap();
    let join = |lines: &[&str]| lines.join("\n").into_bytes();

    // Without one wakeup the decision about it is missing.
    let mut fewer = lines.clone();
    let wakeup = fewer.iter().position(|line| line.contains("Runnable")).unwrap();
    fewer.remove(wakeup);
    let (result, _) = replayed(&join(&fewer));
    assert!(result.first_difference.is_some());

    let mut damaged = lines.clone();
    damaged[at] = "{\"Poll\":[12";
    let text = join(&damaged);
    let mut input = text.as_slice();
    let header = read_header(&mut input).unwrap();
    let policy = (registry::find("fifo").unwrap().build)(&header.config);
    let mut dispatcher = Dispatcher::new(header.topology, header.config, policy);
    match replay(input, &mut dispatcher, &mut Vec::new()) {
        Err(RecordError::Line { line, .. }) => assert_eq!(line, at + 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_read_back_as_written() {
    let recording = record("vtime");
    for line in recording.split(|&b| b == b'\n').skip(1).filter(|line| !line.is_empty()) {
        let entry: Entry = serde_json::from_slice(line).unwrap();
        assert_eq!(serde_json::to_vec(&entry).unwrap(), line);
    }
}
