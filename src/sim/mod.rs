// SPDX-License-Identifier: GPL-2.0-only
//! A simulated machine and kernel that drive the same [`crate::dispatcher::Dispatcher`] as the daemon does,
//! deterministically: same scenario, policy and seed, same bytes.
//!
//! Modules, in reading order: [`scenario`] (what is simulated), [`result`] (what comes out, and who may watch), then
//! `engine` (the loop), `kernel`, `cpu`, `takeover` (the kernel side), `driver` (the daemon's loop), `cache` (true cache
//! state), `load` and `service` (what tasks and clients do), `world` (what comes from outside), `metrics`, `audit` (what must hold).
//!
//! What people see: [`report`] (many runs as one thing), [`compare`] (how sure it is), [`sweep`], [`timeline`] and [`trace`] (one
//! run closely), [`explain`] (why a task went there), [`html`], [`record`]; [`shipped`] and [`rtapp`] are where scenarios come from.

mod agenda;
mod audit;
mod cache;
pub mod compare;
mod cpu;
mod driver;
mod engine;
pub mod explain;
pub mod html;
mod kernel;
mod lists;
mod load;
mod metrics;
mod program;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod result;
mod rng;
pub mod rtapp;
mod sabotage;
pub mod scenario;
mod service;
pub mod shipped;
pub mod swarm;
pub mod sweep;
mod takeover;
mod task;
pub mod timeline;
pub mod trace;
mod world;

pub use engine::{Options, SimError};
pub use sabotage::Sabotage;

use crate::dispatcher::Config;
use crate::policy::Policy;
use crate::profile::Profile;
use result::{Observer, RunResult};
use scenario::Scenario;

/// A profile whose numbers are wrong: each times a factor between 0.5 and 2 of its own (evenly in its logarithm), by the seed.
#[must_use]
pub fn perturbed(profile: Profile, seed: u64) -> Profile {
    let mut stream = rng::Stream::new(seed, rng::Purpose::Profile, 0, 0);
    profile.perturbed(|| libm::exp2(2.0 * stream.unit() - 1.0))
}

/// Runs a scenario under a policy. `build` makes the policy (anew each time the daemon attaches: see
/// [`scenario::Hotplug`]); every policy runs inside [`crate::checked::Checked`].
///
/// # Errors
/// If the scenario is not valid, or something happened that must not (a lost task, a broken promise of the policy, work
/// unaccounted for): then the message names the seed.
pub fn run<P: Policy, O: Observer>(
    scenario: &Scenario,
    build: impl Fn(&mut Config) -> P,
    seed: u64,
    observer: &mut O,
) -> Result<RunResult, SimError> {
    run_with(scenario, build, seed, Options::default(), observer)
}

/// The same with [`Options`].
///
/// # Errors
/// As [`run`].
pub fn run_with<P: Policy, O: Observer>(
    scenario: &Scenario,
    build: impl Fn(&mut Config) -> P,
    seed: u64,
    options: Options,
    observer: &mut O,
) -> Result<RunResult, SimError> {
    engine::Engine::new(scenario, build, seed, options, observer)?.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perturbed_profile_is_wrong_within_bounds_and_the_same_again() {
        let right = Profile::default();
        let wrong = perturbed(right.clone(), 7);
        assert_eq!(wrong, perturbed(right.clone(), 7));
        assert_ne!(wrong, perturbed(right.clone(), 8));
        let ratio = |wrong: u64, right: u64| wrong as f64 / right as f64;
        let ratios: Vec<f64> =
            wrong.levels.iter().zip(&right.levels).map(|(w, r)| ratio(w.refill_ns, r.refill_ns)).collect();
        assert!(ratios.iter().all(|ratio| (0.49..=2.01).contains(ratio)), "{ratios:?}");
        assert!(
            ratios.iter().any(|ratio| *ratio < 0.9) && ratios.iter().any(|ratio| *ratio > 1.1),
            "{ratios:?}"
        );
        assert!(wrong.check().is_ok());
    }
}
