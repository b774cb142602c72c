// SPDX-License-Identifier: GPL-2.0-only
//! Hearth's task runner: `cargo xtask setup | demo | test | lab`.
//!
//! It depends on nothing of the project and on no BPF tool, so that it builds first and fast on a bare machine.

mod build;
mod daemon;
mod demo;
mod fail;
mod kernel;
mod lab;
mod paths;
mod proc;
mod setup;
mod test;
mod ui;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about, version, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 ok, 1 a check failed, 2 usage, 3 this machine cannot (the message says what is missing)"
)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Show the main job: the kernel's default scheduler and Hearth under the same load
    Demo(demo::DemoArgs),
    /// Run every test, from unit tests to the lab
    Test(test::TestArgs),
    /// Install what is missing: packages, the lab's kernel, crates
    Setup(setup::SetupArgs),
    /// Run a scenario on a real kernel in a virtual machine
    Lab(Box<lab::LabArgs>),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = proc::catch_interrupts().and_then(|()| match &cli.command {
        Task::Demo(args) => demo::run(args),
        Task::Test(args) => test::run(args),
        Task::Setup(args) => setup::run(args),
        Task::Lab(args) => lab::run(args),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(fail::exit_code(&error))
        }
    }
}
