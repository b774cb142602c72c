// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hearth`: the daemon that attaches Hearth to a running kernel.
//!
//! Read in this order: `opts` (what it can be told), `daemon` (its life from start to exit code; `instance` and `memory`
//! prepare it, `restart` decides whether it goes on), `attach` (one attachment), `loader` (the shim), `driver` (one turn
//! of the dispatcher), `bpf/shim.bpf.c` and its parts (the kernel side), `wire`, `ring` and `tables` (what the two
//! share). What it says: `report` and `line` (numbers), `stats` and `stats_server` (to whom), `monitor` (the one who
//! listens), `exit`, `dump` and `failure` (why it ended).

mod attach;
mod bpf_skel;
mod daemon;
mod driver;
mod dump;
mod exit;
mod failure;
mod instance;
mod line;
mod loader;
mod log;
mod memory;
mod monitor;
mod opts;
mod output;
mod report;
mod restart;
mod ring;
mod stats;
mod stats_server;
mod sys;
mod tables;
mod wire;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // One line and no backtrace: to read the debug information for one can take more memory than the locked arena has,
    // and a thread that runs out of it there waits for itself for ever.
    std::panic::set_hook(Box::new(|info| {
        output::say(&format!("error: {}", info.to_string().replace('\n', " ")))
    }));
    let opts = opts::Opts::parse();
    match daemon::main(&opts) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::say(&format!("error: {:#}", failure.error));
            failure.exit.into()
        }
    }
}
