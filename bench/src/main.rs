// SPDX-License-Identifier: GPL-2.0-only
//! `hearth-bench`: one command for all of Hearth's load generators.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use hearth_bench::affinity_race;
use hearth_bench::calibrate;
use hearth_bench::schbench::{self, Outcome};
use hearth_bench::{FAILED, USAGE};
use std::io::{self, Write};
use std::process::ExitCode;

/// Load generators and latency probes that work under any Linux scheduler
#[derive(Debug, Parser)]
#[command(name = "hearth-bench", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 complete, 1 failed or ended early, 2 usage, 3 this machine cannot.\n\
                        Ctrl-C ends a run early and prints what was measured; a second Ctrl-C ends at once.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Schbench(schbench::Options),
    AffinityRace(affinity_race::Options),
    Calibrate(calibrate::Options),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            // Help and version are messages too, with exit code 0.
            let code = if message.use_stderr() { USAGE } else { 0 };
            return if message.print().is_ok() { code.into() } else { FAILED.into() };
        }
    };
    let command_line: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let result = match &cli.command {
        Command::Schbench(options) => schbench::run(options, &command_line.join(" ")),
        Command::AffinityRace(options) => affinity_race::run(options),
        Command::Calibrate(options) => calibrate::run(options),
    };
    match result {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => FAILED.into(),
        Err(failure) => {
            // If standard error is gone there is nobody left to tell; the exit code still says it.
            drop(writeln!(io::stderr(), "error: {failure}"));
            failure.code().into()
        }
    }
}
