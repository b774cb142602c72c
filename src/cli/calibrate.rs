// SPDX-License-Identifier: GPL-2.0-only
//! `hearth calibrate`: measuring needs clocks and pinned threads, so `hearth-bench` does it.

use super::sibling;
use anyhow::Result;
use hearth::doctor::Exit;
use std::ffi::OsString;

/// Arguments of `hearth calibrate`.
#[derive(clap::Args)]
pub struct Args {
    /// Handed on to hearth-bench calibrate
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Becomes `hearth-bench calibrate`.
pub fn run(args: Args) -> Result<Exit> {
    let all: Vec<OsString> = std::iter::once(OsString::from("calibrate")).chain(args.args).collect();
    sibling::exec("hearth-bench", &all)
}
