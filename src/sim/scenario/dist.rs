// SPDX-License-Identifier: GPL-2.0-only
//! Lengths of time by chance, as a scenario names them: `{ exp_us = 20 }`.

use super::Problem;
use serde::{Deserialize, Serialize};

/// A distribution of times. All parameters are microseconds unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Dist {
    /// Always this.
    FixedUs(f64),
    /// Evenly between the two.
    UniformUs([f64; 2]),
    /// Exponential with this mean.
    ExpUs(f64),
    /// Pareto with this mean; `alpha` above 1 (the smaller, the heavier the tail), cut at `cap_us` if that is not 0.
    Pareto {
        /// Mean without the cut.
        mean_us: f64,
        /// Shape.
        alpha: f64,
        /// Longest value (0: none).
        #[serde(default)]
        cap_us: f64,
    },
    /// Lognormal with this mean; `sigma` is the standard deviation of the logarithm.
    Lognormal {
        /// Mean.
        mean_us: f64,
        /// Of the logarithm.
        sigma: f64,
    },
    /// Mostly short, sometimes long.
    Bimodal {
        /// The short one.
        short_us: f64,
        /// The long one.
        long_us: f64,
        /// How many of 100 are long.
        long_pct: f64,
    },
    /// Normal, cut at 0.
    Normal {
        /// Mean before the cut.
        mean_us: f64,
        /// Standard deviation.
        sd_us: f64,
    },
}

impl Dist {
    /// The mean in nanoseconds (of a normal or cut distribution: before the cut).
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        1000.0
            * match *self {
                Dist::FixedUs(us) | Dist::ExpUs(us) => us,
                Dist::UniformUs([low, high]) => (low + high) / 2.0,
                Dist::Pareto { mean_us, .. }
                | Dist::Lognormal { mean_us, .. }
                | Dist::Normal { mean_us, .. } => mean_us,
                Dist::Bimodal { short_us, long_us, long_pct } => {
                    short_us + (long_us - short_us) * long_pct / 100.0
                }
            }
    }

    /// Says what is wrong with it, if anything; `key` is where it stands.
    pub(crate) fn check(&self, key: &str) -> Result<(), Problem> {
        let all: &[f64] = match self {
            Dist::FixedUs(us) | Dist::ExpUs(us) => &[*us],
            Dist::UniformUs(range) => range,
            Dist::Pareto { mean_us, alpha, cap_us } => &[*mean_us, *alpha, *cap_us],
            Dist::Lognormal { mean_us, sigma } => &[*mean_us, *sigma],
            Dist::Bimodal { short_us, long_us, long_pct } => &[*short_us, *long_us, *long_pct],
            Dist::Normal { mean_us, sd_us } => &[*mean_us, *sd_us],
        };
        if all.iter().any(|v| !v.is_finite() || *v < 0.0 || *v > MAX_US) {
            return Err(Problem::new(key, format!("{all:?}: give numbers from 0 to {MAX_US}")));
        }
        match *self {
            Dist::UniformUs([low, high]) if low > high => {
                Err(Problem::new(key, format!("uniform from {low} to {high}: put the smaller one first")))
            }
            Dist::Pareto { alpha, .. } if alpha <= 1.0 => {
                Err(Problem::new(key, format!("pareto with alpha {alpha} has no mean: give one above 1")))
            }
            Dist::Lognormal { sigma, .. } if sigma > 10.0 => {
                Err(Problem::new(key, format!("lognormal with sigma {sigma}: give one of at most 10")))
            }
            Dist::Bimodal { long_pct, .. } if long_pct > 100.0 => {
                Err(Problem::new(key, format!("{long_pct} of 100 are long: give at most 100")))
            }
            _ => Ok(()),
        }
    }
}

/// An hour: nothing in a scenario lasts longer.
const MAX_US: f64 = 3.6e9;
