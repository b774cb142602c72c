// SPDX-License-Identifier: GPL-2.0-only
//! Medians, and the fit of a saturating exponential that outliers cannot move.

use serde::Serialize;

/// Fewer undisturbed samples than this, and the disturbed ones are used as well.
const MIN_CLEAN: usize = 5;
/// Most samples that are kept of one measurement.
const MAX_SAMPLES: usize = 20_000;

/// What was seen of one quantity.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    clean: Vec<f64>,
    disturbed: Vec<f64>,
}

/// The middle of a quantity, and how far it spreads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Half of the samples are below.
    pub median: f64,
    /// A tenth of the samples is below.
    pub p10: f64,
    /// A tenth of the samples is above.
    pub p90: f64,
    /// Samples that the three are made of.
    pub count: usize,
    /// Samples during which the thread lost its CPU: left out, unless there are too few others.
    pub disturbed: usize,
}

impl Samples {
    /// Adds a sample; a disturbed one if the thread lost its CPU meanwhile.
    pub fn push(&mut self, value: f64, disturbed: bool) {
        let list = if disturbed { &mut self.disturbed } else { &mut self.clean };
        if list.len() < MAX_SAMPLES {
            list.push(value);
        }
    }

    /// How many there are, disturbed ones included.
    pub fn count(&self) -> usize {
        self.clean.len() + self.disturbed.len()
    }

    /// How many of them are disturbed.
    pub fn disturbed(&self) -> usize {
        self.disturbed.len()
    }

    /// Their summary, if there is any.
    pub fn summary(&self) -> Option<Summary> {
        let mut all = self.clean.clone();
        if all.len() < MIN_CLEAN {
            all.extend(&self.disturbed);
        }
        all.sort_by(f64::total_cmp);
        let at = |share: f64| all.get((share * (all.len().checked_sub(1)?) as f64).round() as usize).copied();
        Some(Summary {
            median: at(0.5)?,
            p10: at(0.1)?,
            p90: at(0.9)?,
            count: all.len(),
            disturbed: self.disturbed.len(),
        })
    }
}

impl Summary {
    /// Distance of p10 and p90 in relation to the median.
    pub fn spread(&self) -> f64 {
        if self.median > 0.0 { (self.p90 - self.p10) / self.median } else { 0.0 }
    }
}

/// `y = amplitude * (1 - exp(-x / tau))`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fit {
    /// Where `y` has risen by 63 %, in the unit of `x`.
    pub tau: f64,
    /// What `y` approaches.
    pub amplitude: f64,
    /// 1: the curve meets all points; 0: it is no better than a constant.
    pub quality: f64,
}

/// Steps of the search for `tau` between its bounds, and of the refined search between the neighbours of the best.
const STEPS: u32 = 200;
/// `tau` is sought from this part of the smallest `x` on. It ends at the largest: a curve of which less than 63 % was
/// seen says nothing about its end.
const REACH: f64 = 4.0;

/// Fits the curve to points with `x > 0`, minimising the sum of absolute errors, so that single wild points do not
/// move it. `None` with fewer than four points, or if the data do not rise.
///
/// For a given `tau` the best amplitude is a weighted median, so only `tau` is searched.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let points: Vec<_> = points.iter().copied().filter(|&(x, y)| x > 0.0 && y.is_finite()).collect();
    if points.len() < 4 {
        return None;
    }
    let low = points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min) / REACH;
    let high = points.iter().map(|p| p.0).fold(0.0, f64::max);
    let ratio = libm::pow(high / low, 1.0 / f64::from(STEPS));
    let coarse = search(&points, low, ratio);
    let fine = search(&points, coarse.0 / ratio, libm::pow(ratio, 2.0 / f64::from(STEPS)));
    let (tau, amplitude, error) = if fine.2 < coarse.2 { fine } else { coarse };
    let inside = tau > low * ratio && tau < high / ratio;
    if !inside || amplitude <= 0.0 {
        return None;
    }
    let middle = weighted_median(points.iter().map(|&(_, y)| (y, 1.0)).collect());
    let constant: f64 = points.iter().map(|&(_, y)| (y - middle).abs()).sum();
    let quality = if constant > 0.0 { (1.0 - error / constant).max(0.0) } else { 0.0 };
    Some(Fit { tau, amplitude, quality })
}

/// The best of `STEPS + 1` values of `tau`, each `ratio` times the one before: tau, amplitude, sum of absolute errors.
fn search(points: &[(f64, f64)], from: f64, ratio: f64) -> (f64, f64, f64) {
    let mut best = (from, 0.0, f64::INFINITY);
    let mut tau = from;
    for _ in 0..=STEPS {
        let shape = |x: f64| 1.0 - libm::exp(-x / tau);
        let amplitude = weighted_median(points.iter().map(|&(x, y)| (y / shape(x), shape(x))).collect());
        let error = points.iter().map(|&(x, y)| (y - amplitude * shape(x)).abs()).sum();
        if error < best.2 {
            best = (tau, amplitude, error);
        }
        tau *= ratio;
    }
    best
}

/// The value at which half of the weight is reached.
fn weighted_median(mut values: Vec<(f64, f64)>) -> f64 {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|v| v.1).sum::<f64>() / 2.0;
    let mut weight = 0.0;
    for &(value, own) in &values {
        weight += own;
        if weight >= half {
            return value;
        }
    }
    values.last().map_or(0.0, |v| v.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(tau: f64, amplitude: f64) -> Vec<(f64, f64)> {
        [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]
            .map(|x: f64| (x, amplitude * (1.0 - libm::exp(-x / tau))))
            .to_vec()
    }

    fn close(value: f64, truth: f64, pct: f64) -> bool {
        (value / truth - 1.0).abs() * 100.0 <= pct
    }

    #[test]
    fn known_time_constants_are_recovered() {
        for tau in [25.0, 70.0, 300.0, 700.0, 1500.0] {
            let fit = fit(&curve(tau, 120.0)).unwrap();
            assert!(close(fit.tau, tau, 1.0), "{tau}: {fit:?}");
            assert!(close(fit.amplitude, 120.0, 1.0), "{tau}: {fit:?}");
            assert!(fit.quality > 0.97, "{tau}: {fit:?}");
        }
    }

    #[test]
    fn outliers_move_nothing() {
        for (first, second) in [(0, 5), (2, 7), (4, 8), (1, 3)] {
            let mut points = curve(400.0, 60.0);
            points[first].1 += 500.0;
            points[second].1 *= 0.1;
            let fit = fit(&points).unwrap();
            assert!(close(fit.tau, 400.0, 5.0), "{first} {second}: {fit:?}");
            assert!(close(fit.amplitude, 60.0, 5.0), "{first} {second}: {fit:?}");
        }
    }

    #[test]
    fn noise_of_five_percent_costs_little() {
        let mut points = curve(400.0, 60.0);
        for (i, point) in points.iter_mut().enumerate() {
            point.1 *= if i % 2 == 0 { 1.05 } else { 0.95 };
        }
        let fit = fit(&points).unwrap();
        assert!(close(fit.tau, 400.0, 15.0) && fit.quality > 0.85, "{fit:?}");
    }

    #[test]
    fn what_does_not_rise_is_no_curve() {
        let flat: Vec<_> = (1..8).map(|x| (f64::from(x), 5.0)).collect();
        assert_eq!(fit(&flat), None, "full from the first point on: tau is below what was measured");
        let falling: Vec<_> = (1..8).map(|x| (f64::from(x), f64::from(-x))).collect();
        assert_eq!(fit(&falling), None);
        let line: Vec<_> = (1..8).map(|x| (f64::from(x), f64::from(x))).collect();
        assert_eq!(fit(&line), None, "no end in sight: tau is above what was measured");
        assert_eq!(fit(&curve(400.0, 60.0)[..3]), None, "too few points");
    }

    #[test]
    fn a_summary_leaves_disturbed_samples_out_if_it_can() {
        let mut samples = Samples::default();
        assert_eq!(samples.summary(), None);
        samples.push(900.0, true);
        let only = samples.summary().unwrap();
        assert_eq!((only.median, only.count, only.disturbed), (900.0, 1, 1));
        for value in 1..=11 {
            samples.push(f64::from(value), false);
        }
        let summary = samples.summary().unwrap();
        assert_eq!((summary.p10, summary.median, summary.p90), (2.0, 6.0, 10.0));
        assert_eq!((summary.count, summary.disturbed), (11, 1));
        assert!((summary.spread() - 8.0 / 6.0).abs() < 1e-9);
    }
}
