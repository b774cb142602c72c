// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask test`: every test, from unit tests to the lab, with a plain summary.

use crate::fail::failed;
use crate::kernel::KernelArgs;
use crate::lab::report::Report;
use crate::lab::{self, Settings, scenario};
use crate::ui::Step;
use crate::{build, proc, setup};
use anyhow::Result;
use std::process::Command;
use std::time::Instant;

/// Options of `test`.
#[derive(clap::Args, Debug)]
pub struct TestArgs {
    /// Only the scenarios of the quick suite
    #[arg(long)]
    quick: bool,
    /// Also the scenarios of the full suite, which take long
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Only the lab
    #[arg(long, conflicts_with = "no_lab")]
    lab_only: bool,
    /// Everything but the lab
    #[arg(long)]
    no_lab: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// How many tests ended how.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn one(ok: bool) -> Self {
        Self { passed: u64::from(ok), failed: u64::from(!ok), skipped: 0 }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs `test`.
pub fn run(args: &TestArgs) -> Result<()> {
    setup::ensure(&args.kernel)?;
    let start = Instant::now();
    let mut total = Counts::default();
    if !args.lab_only {
        run_cargo(&mut total)?;
    }
    if !args.no_lab {
        run_lab(args, &mut total)?;
    }
    println!("\nin {:.0} s", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if total.failed == 0 { Ok(()) } else { Err(failed("some tests failed")) }
}

/// Formatting, lints, tests and documents of the whole workspace.
fn run_cargo(total: &mut Counts) -> Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    let mut doc = build::cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    let steps: [(&str, Command); 5] = [
        ("format", build::cargo(&["fmt", "--all", "--check"])),
        ("lints", build::cargo(&clippy)),
        // The test that counts instructions wants an optimised program.
        (
            "counted program",
            build::cargo(&["build", "--release", "--package", "hearth", "--example", "count"]),
        ),
        ("tests", build::cargo(&["test", "--workspace", "--no-fail-fast"])),
        ("documents", doc),
    ];
    for (name, mut command) in steps {
        let start = Instant::now();
        let step = Step::start(name);
        let output = proc::capture(&mut command);
        drop(step);
        let output = match output {
            Ok(output) => output,
            Err(error) if proc::interrupted() => return Err(error),
            Err(error) => {
                report_line(name, Counts::one(false), start);
                println!("{error:#}");
                total.add(Counts::one(false));
                continue;
            }
        };
        let mut counts = count_results(&output.text).unwrap_or(Counts::one(output.status.success()));
        if !output.status.success() && counts.failed == 0 {
            counts.failed = 1;
        }
        report_line(name, counts, start);
        if counts.failed > 0 {
            println!("{}", output.why());
        }
        total.add(counts);
    }
    Ok(())
}

/// The sums of `test result:` lines; nothing if there is no such line.
fn count_results(text: &str) -> Option<Counts> {
    let mut sum = None;
    for line in text.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |word: &str| {
            let before = line.split(word).next()?;
            before.split_whitespace().last()?.parse::<u64>().ok()
        };
        let counts = Counts {
            passed: number(" passed").unwrap_or(0),
            failed: number(" failed").unwrap_or(0),
            skipped: number(" ignored").unwrap_or(0),
        };
        sum.get_or_insert_with(Counts::default).add(counts);
    }
    sum
}

fn run_lab(args: &TestArgs, total: &mut Counts) -> Result<()> {
    lab::require_tools()?;
    let settings = Settings::new(args.kernel.require()?);
    let suites: &[&str] = match (args.quick, args.full) {
        (true, _) => &["quick"],
        (false, true) => &["test", "full"],
        (false, false) => &["test"],
    };
    for scenario in scenario::all()? {
        if !scenario.suites.iter().any(|name| suites.contains(&name.as_str())) {
            continue;
        }
        let start = Instant::now();
        let name = format!("lab {}", scenario.name);
        match lab::run_scenario(&scenario, &settings) {
            Ok(report) => {
                let counts = count_boots(&report);
                report_line(&name, counts, start);
                if counts.failed + counts.skipped > 0 {
                    report.print();
                }
                total.add(counts);
            }
            Err(error) if proc::interrupted() => return Err(error),
            Err(error) => {
                report_line(&name, Counts::one(false), start);
                println!("{error:#}");
                total.add(Counts::one(false));
            }
        }
    }
    Ok(())
}

/// Every boot is a test; a part that a guest had to skip counts as well.
fn count_boots(report: &Report) -> Counts {
    let mut counts = Counts { skipped: u64::from(report.skipped.is_some()), ..Counts::default() };
    for boot in &report.boots {
        counts.add(Counts::one(boot.failures().next().is_none()));
        counts.skipped += boot.skips.len() as u64;
    }
    counts
}

fn report_line(name: &str, counts: Counts, start: Instant) {
    let verdict = match counts {
        Counts { failed: 1.., .. } => "FAIL",
        Counts { passed: 0, .. } => "skip",
        _ => "ok",
    };
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{verdict:<5}{name:<28}{seconds:>7.1} s  {} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.skipped
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_test_are_summed() {
        let text = "test a ... ok\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count_results(text), Some(Counts { passed: 15, failed: 2, skipped: 1 }));
        assert_eq!(count_results("error: could not compile"), None);
    }
}
