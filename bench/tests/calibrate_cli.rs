// SPDX-License-Identifier: GPL-2.0-only
//! `hearth-bench calibrate` as a user runs it: what it prints and writes, what it refuses, and how it ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests are test code")]

mod common;

use common::{Run, bench, json};
use hearth::profile::Profile;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// All runs pin themselves to the same CPU: one at a time.
static CPU: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    CPU.lock().unwrap_or_else(PoisonError::into_inner)
}

fn calibrate(args: &[&str]) -> Run {
    bench(&[&["calibrate"], args].concat())
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_short_run_writes_a_profile_and_shows_what_it_measured() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.toml");
    let start = Instant::now();
    let run = calibrate(&["--seconds", "2", "--json", "--out", out.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());
    let text = fs::read_to_string(&out).unwrap();
    let profile = Profile::parse(&text).unwrap();
    let names: Vec<_> = profile.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["L1", "L2", "TLB", "predictor", "user", "LLC"]);
    assert!(profile.source.starts_with("hearth calibrate, 20"), "{}", profile.source);

    let report = json(&run.stdout);
    assert_eq!(report["profile"], serde_json::to_value(&profile).unwrap(), "JSON and file agree");
    let measured = report["measured"].as_array().unwrap();
    assert!(measured.len() > 50, "{} quantities", measured.len());
    for one in measured {
        let ns = |key: &str| one["ns"][key].as_f64().unwrap();
        assert!(ns("p10") <= ns("median") && ns("median") <= ns("p90"), "{one}");
        assert!(one["ns"]["count"].as_u64().unwrap() >= 1, "{one}");
    }
    // Whatever has no number of its own says so in the file.
    let missing: usize = report["levels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|level| level["not_measured"].as_array().unwrap().len())
        .sum();
    assert!(text.matches("# Not measured (").count() >= missing + 7, "{text}");
    assert!(run.stderr.contains("warning: a short run"), "{}", run.stderr);
}

#[test]
fn the_table_ends_with_the_place_of_the_file() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_hearth-bench"))
        .args(["calibrate", "--seconds", "2"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{stdout}");
    for part in ["set     pattern", "16 KB   chase", "futex round trip, same CPU", "level", "predictor"] {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    let file = dir.path().canonicalize().unwrap().join("hearth-profile.toml");
    assert!(stdout.ends_with(&format!("\nwrote {}\n", file.display())), "{stdout}");
    assert!(file.is_file() && entries(dir.path()) == 1);
}

#[test]
fn one_cpu_is_enough_and_the_rest_is_said() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.toml");
    let cpu = core_affinity::get_core_ids().unwrap()[0].id.to_string();
    let run = calibrate(&["--seconds", "2", "--json", "--cpus", &cpu, "--out", out.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("warning: a single CPU: migrations and wakeups across CPUs"),
        "{}",
        run.stderr
    );
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.contains("# Not measured (no second core in the domain): the number of "), "{text}");
    let report = json(&run.stdout);
    assert_eq!(report["machine"]["cpus"]["near"], serde_json::Value::Null);
    let measured = report["measured"].as_array().unwrap();
    assert!(measured.iter().all(|one| one["quantity"]["state"] != "moved"));
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there.toml");
    fs::write(&there, "precious").unwrap();
    let there = there.to_str().unwrap();
    let inside = format!("{there}/x.toml");
    let free = dir.path().join("free.toml");
    let free = free.to_str().unwrap();
    for (args, expected) in [
        (&["--out", there][..], "there.toml: is there already; --force overwrites it"),
        (
            &["--out", "/nonexistent/p.toml"],
            "error: --out /nonexistent/p.toml: cannot create a file in /nonexistent: ",
        ),
        (&["--out", "/proc/p.toml"], "error: --out /proc/p.toml: "),
        (&["--out", &inside, "--force"], "there.toml/x.toml: "),
        (&["--out", "/dev/null", "--force"], "error: --out /dev/null: is no regular file"),
        (
            &["--out", free, "--cpus", "60000"],
            "CPU 60000 is offline or not allowed to this process; allowed are ",
        ),
        (&["--out", free, "--cpus", "a"], "error: --cpus a: \"a\" is no CPU number"),
        (&["--out", free, "--seconds", "1"], "1 is not in 2..=3600"),
        (&["--out", free, "--seconds", "x"], "invalid digit"),
    ] {
        let start = Instant::now();
        let run = calibrate(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{args:?}: {}", run.stderr);
        assert!(start.elapsed() < Duration::from_secs(10), "{args:?} took {:?}", start.elapsed());
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "precious");
    assert_eq!(entries(dir.path()), 1, "nothing was left behind");
}

#[test]
fn ctrl_c_ends_it_and_writes_nothing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hearth-bench"))
        .args(["calibrate", "--seconds", "600"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The handler is installed before the first sample; pinned to one CPU means that measuring has begun.
    let status = format!("/proc/{}/status", child.id());
    let begin = Instant::now();
    let pinned = |text: String| {
        let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
        list.is_some_and(|list| !list.contains(['-', ',']))
    };
    let single = core_affinity::get_core_ids().unwrap().len() == 1;
    while !fs::read_to_string(&status).is_ok_and(pinned) || (single && begin.elapsed().as_secs() < 2) {
        assert!(begin.elapsed() < Duration::from_secs(30), "never began");
        thread::sleep(Duration::from_millis(20));
    }
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let sent = Instant::now();
    let code = child.wait().unwrap().code();
    assert!(sent.elapsed() < Duration::from_secs(10), "took {:?}", sent.elapsed());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "ended early: nothing was written\n");
    assert!(output.stdout.is_empty());
    assert_eq!(entries(dir.path()), 0);
}
