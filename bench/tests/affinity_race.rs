// SPDX-License-Identifier: GPL-2.0-only
//! `hearth-bench affinity-race` on this machine.

#![allow(clippy::unwrap_used, reason = "helpers of tests are test code")]

mod common;

use common::{bench, json};

#[test]
fn threads_run_where_they_may_while_that_changes() {
    let run = bench(&["affinity-race", "-t", "4", "-r", "1"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let figures = json(&run.stdout);
    assert_eq!(figures["forbidden"], 0);
    for key in ["changes", "checks", "cpus"] {
        assert!(figures[key].as_u64().unwrap() > 0, "{key}: {figures}");
    }
}

#[test]
fn unusable_options_are_refused() {
    for args in [["-t", "0"], ["-r", "0"], ["-g", "-1"], ["-t", "nan"]] {
        assert_eq!(bench(&[&["affinity-race"][..], &args].concat()).code, 2, "{args:?}");
    }
}
