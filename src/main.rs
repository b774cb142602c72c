// SPDX-License-Identifier: GPL-2.0-only
//! `hearth`: one command in front of everything.

#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
