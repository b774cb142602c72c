// SPDX-License-Identifier: GPL-2.0-only
//! Running the built command.

use serde_json::Value;
use std::process::Command;

/// What a finished process left.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `hearth-bench` to its end.
pub fn bench(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_hearth-bench")).args(args).output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `hearth-bench schbench` to its end.
#[allow(dead_code)] // every test program has its own copy of this module and uses a part of it
pub fn schbench(args: &[&str]) -> Run {
    bench(&[&["schbench"], args].concat())
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
