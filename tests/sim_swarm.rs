// SPDX-License-Identifier: GPL-2.0-only
//! Random scenarios under faults find nothing, and each planted bug is found.
//!
//! More seeds: `hearth sim swarm --from 1 --count 10000`.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use hearth::policy::registry::{self, PolicySpec};
use hearth::sim::{Sabotage, swarm};

fn policies() -> Vec<&'static PolicySpec> {
    registry::list().collect()
}

#[test]
fn a_short_swarm_finds_nothing() {
    let policies = policies();
    for seed in 1..=150 {
        let policy = policies[seed as usize % policies.len()];
        if let Err(error) = swarm::run(seed, policy, None) {
            panic!("{error}\n{}", swarm::scenario(seed).to_toml().unwrap());
        }
    }
}

#[test]
fn every_planted_bug_is_found_within_500_seeds() {
    let policies = [registry::find("fifo").unwrap(), registry::find("vtime").unwrap()];
    for bug in Sabotage::ALL {
        let found = (1..=500).find(|&seed| swarm::run(seed, policies[seed as usize % 2], Some(bug)).is_err());
        println!("{bug:?}: seed {found:?}");
        assert!(found.is_some(), "{bug:?} is not found in 500 seeds");
    }
}
