// SPDX-License-Identifier: GPL-2.0-only
//! What `hearth-bench schbench` prints, beside what a real schbench of December 2025 printed (`fixtures/`).

#![allow(clippy::unwrap_used, reason = "helpers of tests are test code")]

mod common;

use common::{json, schbench};
use serde_json::Value;

const REAL_TEXT: &str = include_str!("fixtures/schbench-2025-12-stderr.txt");
const REAL_JSON: &str = include_str!("fixtures/schbench-2025-12.json");

/// A line with its numbers replaced, except the names of percentiles.
fn shape(line: &str) -> String {
    let word = |word: &str| {
        if word.ends_with("th:") {
            return word.to_owned();
        }
        let mut out = String::new();
        for c in word.chars() {
            match c {
                '0'..='9' if out.ends_with('#') => {}
                '0'..='9' => out.push('#'),
                _ => out.push(c),
            }
        }
        out
    };
    let words: Vec<_> = line.split(' ').filter(|word| !word.is_empty()).map(word).collect();
    words.join(" ")
}

/// Column of the bracket in a line of a percentile table.
fn bracket(line: &str) -> Option<usize> {
    line.contains("th: ").then(|| line.find('(')).flatten()
}

#[test]
fn the_text_has_the_lines_of_schbench() {
    // Two interim reports and a final one, as in the fixture.
    let run = schbench(&["-m", "1", "-t", "2", "-r", "2", "-i", "1", "-n", "1", "-F", "16"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout, "", "all text goes to standard error");
    let (real, ours): (Vec<_>, Vec<_>) = (REAL_TEXT.lines().collect(), run.stderr.lines().collect());
    for (real, ours) in real.iter().zip(&ours) {
        assert_eq!(shape(real), shape(ours));
        assert_eq!(bracket(real), bracket(ours), "columns of {ours:?}");
        assert_eq!(real.starts_with('\t'), ours.starts_with('\t'));
    }
    assert_eq!(real.len(), ours.len(), "{}", run.stderr);
}

/// Names of the members of all objects of a JSON text, in the order of the text.
fn keys(text: &str) -> Vec<&str> {
    let parts: Vec<_> = text.split('"').collect();
    parts.windows(2).filter(|pair| pair[1].trim_start().starts_with(':')).map(|pair| pair[0]).collect()
}

#[test]
fn the_json_has_the_members_of_schbench_in_their_order() {
    let run = schbench(&["-r", "1", "-t", "1", "-n", "1", "-F", "16", "-j", "-"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(keys(&run.stdout), keys(REAL_JSON));
    assert_eq!(keys(REAL_JSON).len(), 29, "the fixture is read right");
    let (ours, real) = (json(&run.stdout), json(REAL_JSON));
    for (name, value) in ours["int"].as_object().unwrap() {
        assert!(value.is_u64() && real["int"][name].is_u64(), "{name} is {value}");
    }
    assert!(ours["normal"]["cmdline"].as_str().unwrap().ends_with("schbench -r 1 -t 1 -n 1 -F 16 -j -"));
}

/// C45: wrappers broke on JSON with nothing between two commas (no samples) and on unescaped characters.
#[test]
fn c45_json_is_valid_without_samples_and_with_odd_names() {
    let file = std::env::temp_dir().join(format!("hearth-bench-c45-{}.json", std::process::id()));
    let name = r#"a\b "c""#;
    // No request is ever finished: the only worker sleeps for a minute.
    let args = ["-r", "1", "-t", "1", "-s", "60000000", "-J", name, "-j", file.to_str().unwrap()];
    let run = schbench(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report = json(&std::fs::read_to_string(&file).unwrap());
    std::fs::remove_file(&file).unwrap();
    assert_eq!(report["normal"]["jobname"], name);
    assert!(report["normal"]["cmdline"].as_str().unwrap().contains(name));
    for member in ["pct50.0", "pct99.9", "min", "max"] {
        assert_eq!(report["int"][format!("request_latency_{member}")], Value::Null);
    }
    assert!(run.stderr.contains("Request Latencies percentiles (usec) runtime 1 (s) (0 total samples)\n"));
    assert!(run.stderr.contains("1 requests were broken off"), "{}", run.stderr);
}

#[test]
fn a_short_run_gives_plausible_figures() {
    // At most 1000 requests in a second of sleeps of 1 ms.
    let run = schbench(&["-r", "1", "-t", "1", "-s", "1000", "-n", "1", "-F", "16", "--summary-json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 1);
    let summary = json(&run.stdout);
    assert_eq!((&summary["complete"], &summary["elapsed_s"]), (&Value::Bool(true), &Value::from(1)));
    for metric in ["wakeup_us", "request_us"] {
        let figures = &summary[metric];
        let value = |name: &str| figures[name].as_u64().unwrap();
        let samples = value("samples") + value("zeros_left_out");
        assert!((20..=1010).contains(&samples), "{metric}: {figures}");
        assert!(value("p50") <= value("p90") && value("p90") <= value("p99"), "{figures}");
        assert!(value("p99") <= value("p99_9") && value("min") <= value("max"), "{figures}");
        // The last percentile may be the middle of the maximum's bin, no more.
        assert!(value("p99_9") <= value("max") + value("max") / 256 + 1, "{figures}");
        assert_eq!((value("clamped"), value("negative")), (0, 0));
    }
    assert!(summary["request_us"]["min"].as_u64().unwrap() >= 1000, "a request sleeps 1 ms");
    let requests = summary["request_us"]["samples"].as_f64().unwrap();
    assert!((summary["rps_average"].as_f64().unwrap() - requests).abs() < 0.01);
}

#[test]
fn without_quirks_zeros_count_and_the_first_rps_sample_is_real() {
    let args = ["-r", "2", "-w", "1", "-i", "0", "-t", "1", "-n", "0", "-s", "0", "--no-quirks"];
    let run = schbench(&[&args[..], &["--summary-json"]].concat());
    let summary = json(&run.stdout);
    assert_eq!(summary["request_us"]["zeros_left_out"], 0);
    assert_eq!(summary["request_us"]["min"], 0, "no sleep and no work takes less than a microsecond");
    assert!(
        run.stderr.contains("RPS percentiles (requests) runtime 2 (s) (1 total samples)"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("note:") && !run.stderr.contains("current rps"));
}

#[test]
fn figures_start_again_after_the_zero_time() {
    let run = schbench(&["-r", "3", "-z", "2", "-i", "0", "-t", "1", "-n", "0", "-s", "1000"]);
    // One sample at second 3; those of seconds 0 to 2 were reset.
    assert!(
        run.stderr.contains("RPS percentiles (requests) runtime 3 (s) (1 total samples)"),
        "{}",
        run.stderr
    );
}
