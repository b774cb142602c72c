// SPDX-License-Identifier: GPL-2.0-only
//! What losing cached state costs on a machine: the numbers that [`crate::warmth`] calculates with, as a TOML file.
//!
//! Two profiles are built in; `hearth calibrate` measures one. A profile describes a *typical* task of the machine: the
//! scheduler does not know anybody's working set. Every level follows the compact model: by running, a task fills what it
//! lacks of the level with the time constant [`Level::fill_ns`]; others that run on the same CPU (or, for a level that
//! a domain shares, in the same domain) evict it with the time constant [`Level::evict_ns`]; an idle CPU loses nothing.

use crate::ids::Nanos;
use crate::limits::{MAX_LEVELS, MAX_PROFILE_NS};
use serde::{Deserialize, Serialize};

/// Who shares a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// A CPU (or its core): what the task has there is lost to it on any other CPU.
    Cpu,
    /// An LLC domain: it stays when the task moves within the domain.
    Llc,
}

/// One kind of state: a cache level, the TLB, the branch predictor, a program's own per-CPU structures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// What it is, for people.
    pub name: String,
    /// Who shares it.
    pub scope: Scope,
    /// Own run time after which 63 % of what was missing is there again.
    pub fill_ns: Nanos,
    /// Foreign run time after which 63 % of what was there is lost; for a level of a domain, that of all its CPUs together.
    pub evict_ns: Nanos,
    /// Extra time that a task needs until all of it is fetched again.
    pub refill_ns: Nanos,
}

/// The costs of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that `--profile` takes.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Where the numbers come from.
    pub source: String,
    /// A context switch.
    pub switch_ns: Nanos,
    /// From waking an idle CPU to the task running there.
    pub wake_ns: Nanos,
    /// How much of a refill is counted once more, for what it evicts of others and the bandwidth it takes from them,
    /// in percent.
    pub neighbour_pct: u32,
    /// The levels, nearest first; at most [`MAX_LEVELS`].
    pub levels: Vec<Level>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, or a key is missing, unknown or of the wrong kind.
    #[error("the profile cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// A number is out of range.
    #[error("profile {name}: {what}")]
    Value {
        /// The profile's name.
        name: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
}

/// The built-in profiles: name and text.
const BUILT_IN: &[&str] =
    &[include_str!("../profiles/zen-chiplet.toml"), include_str!("../profiles/monolithic.toml")];

impl Default for Profile {
    /// `zen-chiplet`.
    fn default() -> Self {
        let (name, about, source) = (String::new(), String::new(), String::new());
        let nothing =
            Self { name, about, source, switch_ns: 0, wake_ns: 0, neighbour_pct: 0, levels: Vec::new() };
        Self::built_in("zen-chiplet").unwrap_or(nothing)
    }
}

impl Profile {
    /// Reads a profile from the text of a TOML file.
    ///
    /// # Errors
    /// If it is not a profile, or a number is out of range.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// The built-in profile of that name.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        Self::all_built_in().find(|profile| profile.name == name)
    }

    /// All built-in profiles.
    pub fn all_built_in() -> impl Iterator<Item = Self> {
        BUILT_IN.iter().filter_map(|text| Self::parse(text).ok())
    }

    /// Every number but the percentage times a factor of its own, for experiments with wrong profiles.
    #[must_use]
    pub fn perturbed(mut self, mut factor: impl FnMut() -> f64) -> Self {
        let mut scale = |ns: &mut Nanos| *ns = ((*ns as f64 * factor()) as Nanos).clamp(1, MAX_PROFILE_NS);
        scale(&mut self.switch_ns);
        scale(&mut self.wake_ns);
        for level in &mut self.levels {
            scale(&mut level.fill_ns);
            scale(&mut level.evict_ns);
            scale(&mut level.refill_ns);
        }
        self
    }

    /// Are all numbers usable?
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn check(&self) -> Result<(), ProfileError> {
        let fail = |what: String| Err(ProfileError::Value { name: self.name.clone(), what });
        if self.levels.is_empty() || self.levels.len() > MAX_LEVELS {
            return fail(format!("has {} levels; 1 to {MAX_LEVELS} are possible", self.levels.len()));
        }
        if self.neighbour_pct > 1000 {
            return fail(format!("neighbour_pct = {}; at most 1000", self.neighbour_pct));
        }
        for level in &self.levels {
            let times = [("fill_ns", level.fill_ns), ("evict_ns", level.evict_ns)];
            for (key, ns) in times {
                if !(1..=MAX_PROFILE_NS).contains(&ns) {
                    return fail(format!("level {}: {key} = {ns}; 1 to {MAX_PROFILE_NS}", level.name));
                }
            }
            if level.refill_ns > MAX_PROFILE_NS {
                return fail(format!(
                    "level {}: refill_ns = {}; at most {MAX_PROFILE_NS}",
                    level.name, level.refill_ns
                ));
            }
        }
        for (key, ns) in [("switch_ns", self.switch_ns), ("wake_ns", self.wake_ns)] {
            if ns > MAX_PROFILE_NS {
                return fail(format!("{key} = {ns}; at most {MAX_PROFILE_NS}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_profiles_are_sound() {
        assert_eq!(Profile::all_built_in().count(), BUILT_IN.len());
        for text in BUILT_IN {
            let profile = Profile::parse(text).unwrap();
            assert_eq!(Profile::built_in(&profile.name), Some(profile));
        }
    }

    #[test]
    fn a_bad_number_is_named() {
        let good = BUILT_IN[0];
        let bad = good.replacen("fill_ns = ", "fill_ns = 0 # ", 1);
        let error = Profile::parse(&bad).unwrap_err().to_string();
        assert!(error.contains("fill_ns = 0; 1 to"), "{error}");
        let unknown = format!("colour = 1\n{good}");
        assert!(Profile::parse(&unknown).unwrap_err().to_string().contains("colour"));
    }
}
