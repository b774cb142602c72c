// SPDX-License-Identifier: GPL-2.0-only
//! Statistics over runs: how sure is it that one policy is better than another?
//!
//! Runs are paired: run r of every policy has the same seed, so both see the same arrivals and demands, and what they differ
//! in is the policy. Ratios are compared on the logarithm (a half and a double are equally far from 1), with Student's t.

use serde::{Deserialize, Serialize};

/// A mean over runs, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean (of ratios: the geometric one).
    pub mean: f64,
    /// The interval; none with fewer than two runs.
    pub interval: Option<(f64, f64)>,
    /// How many runs (pairs of runs).
    pub n: usize,
}

/// What an interval of ratios says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// All of it is below 1.
    Less,
    /// All of it is above 1.
    More,
    /// 1 is in it.
    WithinNoise,
    /// There is none.
    Unknown,
}

impl Estimate {
    /// What it says of a ratio.
    #[must_use]
    pub fn says(&self) -> Says {
        match self.interval {
            None => Says::Unknown,
            Some((_, high)) if high < 1.0 => Says::Less,
            Some((low, _)) if low > 1.0 => Says::More,
            Some(_) => Says::WithinNoise,
        }
    }
}

/// The mean of values with its interval; none: there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let interval = (n >= 2).then(|| {
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let error = (squares / (n - 1) as f64 / n as f64).sqrt();
        let half = t_quantile(n - 1) * error;
        (mean - half, mean + half)
    });
    Some(Estimate { mean, interval, n })
}

/// The mean of `b / a` over pairs `(a, b)` with its interval; none: there are no pairs, or one holds a number that is not
/// above 0 (then there is no ratio).
#[must_use]
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    if pairs.iter().any(|(a, b)| !(*a > 0.0 && *b > 0.0 && a.is_finite() && b.is_finite())) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| libm::log(b / a)).collect();
    let on_logs = mean(&logs)?;
    Some(Estimate {
        mean: libm::exp(on_logs.mean),
        interval: on_logs.interval.map(|(low, high)| (libm::exp(low), libm::exp(high))),
        n: on_logs.n,
    })
}

/// Student's t for a 95 % interval (two-sided), degrees of freedom 1 to 30.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The same for any number of degrees of freedom: beyond the table, straight in 1/f to the normal distribution's 1.960,
/// which is right to 0.001.
fn t_quantile(freedom: usize) -> f64 {
    const NORMAL: f64 = 1.960;
    match T_95.get(freedom.saturating_sub(1)) {
        Some(&t) => t,
        None => NORMAL + (T_95[T_95.len() - 1] - NORMAL) * T_95.len() as f64 / freedom as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.002
    }

    #[test]
    fn the_interval_of_a_mean_is_the_textbook_one() {
        // Mean 5, standard deviation sqrt(32 / 7) = 2.138, error 0.756, t(7) = 2.365: 5 +- 1.788.
        let e = mean(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        let (low, high) = e.interval.unwrap();
        assert!(near(e.mean, 5.0) && near(low, 3.212) && near(high, 6.788), "{e:?}");
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[3.0]), Some(Estimate { mean: 3.0, interval: None, n: 1 }));
    }

    #[test]
    fn ratios_are_compared_on_the_logarithm() {
        let e = ratio(&[(1.0, 2.0), (2.0, 1.0)]).unwrap();
        assert!(near(e.mean, 1.0) && e.says() == Says::WithinNoise, "{e:?}");
        // Logarithms of 0.8, 0.81, 0.79, 0.8: mean -0.22322, deviation 0.010206, t(3) = 3.182.
        let e = ratio(&[(10.0, 8.0), (20.0, 16.2), (5.0, 3.95), (1.0, 0.8)]).unwrap();
        let (low, high) = e.interval.unwrap();
        assert!(near(e.mean, 0.8) && near(low, 0.7871) && near(high, 0.8131), "{e:?}");
        assert_eq!(e.says(), Says::Less);
        assert_eq!(ratio(&[(1.0, 1.2), (1.0, 1.21)]).unwrap().says(), Says::More);
        assert_eq!(ratio(&[(1.0, 1.2)]).unwrap().says(), Says::Unknown);
        assert_eq!(ratio(&[(0.0, 1.0)]), None);
        assert_eq!(ratio(&[]), None);
    }

    #[test]
    fn beyond_the_table_t_goes_to_the_normal_distribution() {
        // Published: t(40) 2.021, t(60) 2.000, t(120) 1.980.
        for (freedom, t) in
            [(1, 12.706), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980), (1_000_000, 1.960)]
        {
            assert!(near(t_quantile(freedom), t), "{freedom}: {}", t_quantile(freedom));
        }
    }
}
