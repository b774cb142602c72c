// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `hearth`. One file per subcommand; each answers with an exit code.

mod calibrate;
mod doctor;
mod explain;
mod monitor;
mod policies;
mod reproduce;
mod sibling;
mod sim;
mod status;
mod topology;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use hearth::doctor::Exit;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Schedule this machine's tasks from user space, in Rust.
#[derive(Parser)]
#[command(name = "hearth", version, after_help = Exit::HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Attach the scheduler to the running kernel (starts scx_hearth; see `hearth run --help`)
    #[command(disable_help_flag = true)]
    Run {
        /// Handed on to scx_hearth
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Say who schedules this machine now
    Status(status::Args),
    /// Watch what the running scheduler does
    Monitor(monitor::Args),
    /// Generate load and measure latencies (starts hearth-bench; see `hearth bench --help`)
    #[command(disable_help_flag = true)]
    Bench {
        /// Handed on to hearth-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Measure what losing cached state costs here, and write a profile (starts hearth-bench)
    #[command(disable_help_flag = true)]
    Calibrate(calibrate::Args),
    /// Say what this machine lacks to attach, and what works without
    Doctor(doctor::Args),
    /// Show the machine as the scheduler sees it
    Topology(topology::Args),
    /// Run a scenario in the simulator, under one or more policies
    Sim(Box<sim::Args>),
    /// Say why tasks went where they went in a simulated run
    Explain(explain::Args),
    /// Run a published experiment in the simulator and compare with what was published
    Reproduce(reproduce::Args),
    /// List the policies, or describe one
    Policies(policies::Args),
}

/// Parses the command line, runs the command, and turns what happened into an exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version end here too. A reader that has gone away is no error.
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(Exit::Usage.code()).into();
        }
    };
    let exit = match cli.command {
        Command::Run { args } => sibling::exec("scx_hearth", &args),
        Command::Status(args) => status::run(&args),
        Command::Monitor(args) => monitor::run(args),
        Command::Bench { args } => sibling::exec("hearth-bench", &args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Topology(args) => topology::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
    };
    match exit {
        Ok(exit) => exit.into(),
        Err(e) => {
            complain(&format!("{e:#}"));
            Exit::Failed.into()
        }
    }
}

/// Prints to standard output. A reader that has gone away (`| head`) has seen enough: no error.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON, for scripts.
fn print_json(value: &serde_json::Value) -> Result<()> {
    print(&serde_json::to_string_pretty(value).context("cannot write JSON")?)
}

/// Prints an error; there is nobody to tell if standard error is closed as well.
fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "error: {message}");
}
