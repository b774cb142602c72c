// SPDX-License-Identifier: GPL-2.0-only
//! Options, exit codes, signals and pinning of `hearth-bench schbench`.

#![allow(clippy::unwrap_used, reason = "helpers of tests are test code")]

mod common;

use common::{Run, bench, json, schbench};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// C39: odd numbers crashed tools, hung them, or made them ignore their time limit.
#[test]
fn c39_odd_numbers_are_refused_with_the_options_name() {
    let odd =
        ["-1", "18446744073709551615", "99999999999999999999", "1e9", "nan", "inf", "", " ", "0x10", "1_000"];
    for option in ["-m", "-t", "-r", "-i", "-z", "-w", "-F", "-n", "-s"] {
        for value in odd.into_iter().chain(["10%", "+5", "1.5"]) {
            let run = schbench(&[option, value]);
            assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{option} {value:?}: {}", run.stderr);
            assert!(run.stderr.contains("write a whole number from"), "{option} {value:?}: {}", run.stderr);
            assert!(run.stderr.contains("for '--"), "{option} {value:?}: {}", run.stderr);
        }
    }
    for option in ["-m", "-t", "-r"] {
        assert_eq!(schbench(&[option, "0"]).code, 2, "{option} 0");
    }
}

/// C39: the run ends on time even if a single request would take for ever.
#[test]
fn c39_endless_requests_do_not_outlive_the_run() {
    let start = Instant::now();
    let run = schbench(&["-r", "1", "-t", "2", "-n", "1000000", "-F", "1024"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(start.elapsed() < Duration::from_secs(15), "took {:?}", start.elapsed());
    assert!(run.stderr.contains("2 requests were broken off"), "{}", run.stderr);
}

#[test]
fn unusable_command_lines_end_with_2_and_one_clear_line() {
    for (args, expected) in [
        (&["--threads"][..], "a value is required for '--threads <N>'"),
        (&["-R", "5"], "unexpected argument '-R'"),
        (&["-w", "30"], "error: -w 30 leaves nothing of -r 30 to measure"),
        (&["-j", "/nonexistent/x.json"], "error: cannot write the file of -j, /nonexistent/x.json: "),
    ] {
        let run = schbench(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
        assert!(run.stderr.contains(expected), "{args:?}: {}", run.stderr);
    }
    assert_eq!(bench(&[]).code, 2);
}

#[test]
fn help_explains_every_option_and_the_exit_codes() {
    let help = schbench(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    for option in [
        "-m, --message-threads",
        "-t, --threads",
        "-r, --runtime",
        "-i, --intervaltime",
        "-z, --zerotime",
        "-w, --warmuptime",
        "-F, --cache_footprint",
        "-n, --operations",
        "-s, --sleep_usec",
        "-L, --no-locking",
        "-j, --json",
        "-J, --jobname",
        "--summary-json",
        "--no-quirks",
    ] {
        let after = help.stdout.split(option).nth(1).unwrap_or_else(|| panic!("{option} is not in --help"));
        assert!(after.lines().nth(1).unwrap().trim().len() > 10, "{option} has no text");
    }
    assert!(bench(&["--help"]).stdout.contains("Exit codes: 0 "));
    for args in [&["-V"][..], &["schbench", "-V"]] {
        assert!(bench(args).stdout.contains(env!("CARGO_PKG_VERSION")));
    }
}

/// A running schbench of which the first interim report has been read, so all threads are there.
struct Running {
    child: Child,
    report: BufReader<ChildStderr>,
    stderr: String,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hearth-bench"))
            .args([&["schbench", "-i", "1", "--summary-json"], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut report = BufReader::new(child.stderr.take().unwrap());
        let mut stderr = String::new();
        while !stderr.contains("current rps") {
            assert_ne!(report.read_line(&mut stderr).unwrap(), 0, "ended by itself: {stderr}");
        }
        Self { child, report, stderr }
    }

    /// How many threads have that name.
    fn threads(&self, name: &str) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|seen| seen.trim() == name).count()
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn finish(mut self) -> Run {
        self.report.read_to_string(&mut self.stderr).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        Run { code: output.status.code().unwrap(), stdout, stderr: self.stderr }
    }
}

#[test]
fn ctrl_c_and_sigterm_end_early_with_a_marked_report() {
    for signal in ["INT", "TERM"] {
        let running = Running::start(&["-t", "1", "-n", "1", "-F", "16", "-r", "600"]);
        running.signal(signal);
        let sent = Instant::now();
        let run = running.finish();
        assert_eq!(run.code, 1, "an incomplete run is no success");
        assert!(sent.elapsed() < Duration::from_secs(10), "took {:?}", sent.elapsed());
        let report = run.stderr.split("\nincomplete: ended early, after ").nth(1).unwrap();
        assert!(report.contains(" of 600 s\nWakeup Latencies percentiles"), "{report}");
        assert!(report.contains("\naverage rps: "), "{report}");
        let summary = json(&run.stdout);
        assert_eq!(summary["complete"], false);
        assert!(summary["request_us"]["samples"].as_u64().unwrap() > 0);
    }
}

/// C23: pinned tools saw a machine of one core, or the wrong core; here pinned means one worker, and it works.
#[test]
fn c23_the_default_number_of_workers_follows_the_affinity_mask() {
    let pinned = thread::spawn(|| {
        let last = *core_affinity::get_core_ids().unwrap().last().unwrap();
        assert!(core_affinity::set_for_current(last));
        // The child inherits the mask of this thread.
        Running::start(&["-r", "2", "-n", "1", "-F", "16"])
    });
    let running = pinned.join().unwrap();
    assert_eq!((running.threads("schbench-msg"), running.threads("schbench-worker")), (1, 1));
    let run = running.finish();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(json(&run.stdout)["request_us"]["samples"].as_u64().unwrap() > 0);
}

#[test]
fn threads_are_as_many_as_asked_for() {
    let running = Running::start(&["-m", "3", "-t", "5", "-r", "2", "-n", "0", "-s", "10000"]);
    assert_eq!((running.threads("schbench-msg"), running.threads("schbench-worker")), (3, 15));
    assert_eq!(running.finish().code, 0);
}
