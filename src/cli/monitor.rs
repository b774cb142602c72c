// SPDX-License-Identifier: GPL-2.0-only
//! `hearth monitor`: what the running daemon does, once a second.

use super::sibling;
use anyhow::Result;
use hearth::doctor::Exit;
use std::ffi::OsString;

/// Arguments of `hearth monitor`.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds between lines
    #[arg(default_value_t = 1, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
    /// The daemon's socket, if it is not at the usual place
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,
}

/// Becomes `scx_hearth --monitor`.
pub fn run(args: Args) -> Result<Exit> {
    let mut handed_on: Vec<OsString> = vec!["--monitor".into(), args.seconds.to_string().into()];
    if args.json {
        handed_on.push("--json".into());
    }
    if let Some(socket) = args.socket {
        handed_on.extend(["--socket".into(), socket]);
    }
    sibling::exec("scx_hearth", &handed_on)
}
