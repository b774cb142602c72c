// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hearth`: the daemon that attaches Hearth to a running kernel.
//!
//! Read in this order: `opts` (what it can be told), `daemon` (its life from start to exit code), `loader` (the shim),
//! `driver` (one turn of the dispatcher), `bpf/shim.bpf.c` (the kernel side), `wire`, `ring` and `tables` (what the
//! two share), `report` and `exit` (what it says).

mod bpf_skel;
mod daemon;
mod driver;
mod exit;
mod loader;
mod opts;
mod report;
mod ring;
mod sys;
mod tables;
mod wire;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let opts = opts::Opts::parse();
    match daemon::main(&opts) {
        Ok(code) => ExitCode::from(code as u8),
        Err(failure) => {
            eprintln!("error: {:#}", failure.error);
            ExitCode::from(failure.code as u8)
        }
    }
}
