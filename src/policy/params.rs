// SPDX-License-Identifier: GPL-2.0-only
//! The parameters of policies: declared once, beside the policy that uses them; set by flag (`NAME:key=value:key=value`)
//! or by a TOML table; checked; listed by `hearth policies NAME`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A parameter: a whole number, in the unit that ends its name (0 and 1 for off and on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name, the unit last.
    pub name: &'static str,
    /// What it does, and where the default comes from.
    pub about: &'static str,
    /// Its value if nobody sets it.
    pub default: u64,
    /// What it may be set to.
    pub range: RangeInclusive<u64>,
}

/// The parameters that were set, by name. Those that were not have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Params {
    set: BTreeMap<String, u64>,
}

/// Why a policy or a parameter cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No policy of that name.
    #[error("there is no policy {name:?}; known are: {known}")]
    NoPolicy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No parameter of that name.
    #[error("policy {policy} has no parameter {name:?}; it has: {known}")]
    NoParam {
        /// The policy.
        policy: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Not a whole number in range.
    #[error("policy {policy}: {name}={value}: needs a whole number from {} to {}", range.start(), range.end())]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        range: RangeInclusive<u64>,
    },
    /// Not of the form `key=value`.
    #[error("{0:?} is not of the form key=value; write NAME:key=value:key=value")]
    Form(String),
}

impl Params {
    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, param: &Param) -> u64 {
        self.set.get(param.name).copied().unwrap_or(param.default)
    }

    /// Was anything set?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// What was set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.set.iter().map(|(name, &value)| (name.as_str(), value))
    }

    /// Sets one, for a policy that has `known`.
    ///
    /// # Errors
    /// If there is none of that name, or the value is out of range.
    pub fn set(
        &mut self,
        policy: &'static str,
        known: &'static [Param],
        name: &str,
        value: &str,
    ) -> Result<(), ParamError> {
        let Some(param) = known.iter().find(|param| param.name == name) else {
            let names: Vec<&str> = known.iter().map(|param| param.name).collect();
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(ParamError::NoParam { policy, name: name.into(), known });
        };
        match value.replace('_', "").parse::<u64>() {
            Ok(number) if param.range.contains(&number) => {
                self.set.insert(name.into(), number);
                Ok(())
            }
            _ => Err(ParamError::Value {
                policy,
                name: param.name,
                value: value.into(),
                range: param.range.clone(),
            }),
        }
    }
}
