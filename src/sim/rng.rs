// SPDX-License-Identifier: GPL-2.0-only
//! Chance. Every task, client and arrival process draws from a stream of its own, derived from the run's seed: two policies
//! meet the same arrivals and demands, whatever they do (common random numbers).

use super::scenario::Dist;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// What a stream is for: streams of different purposes never overlap in their seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Task = 1,
    Arrivals,
    Demand,
    Connection,
    Client,
    Fault,
    Interference,
    Late,
    Swarm,
    Profile,
}

/// A seeded stream of numbers, the same on every machine (elementary functions come from libm).
#[derive(Clone, Debug)]
pub(crate) struct Stream(Pcg64Mcg);

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    pub fn new(seed: u64, purpose: Purpose, a: u64, b: u64) -> Self {
        let high = mix(mix(seed) ^ mix(purpose as u64) ^ mix(a).rotate_left(17));
        let low = mix(high ^ mix(b).rotate_left(31));
        Self(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low)))
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly in (0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Evenly in `0..n`.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    #[inline]
    pub fn chance(&mut self, pct: f64) -> bool {
        pct > 0.0 && self.unit() * 100.0 < pct
    }

    /// Exponential, in the unit of `mean`.
    #[inline]
    pub fn exp(&mut self, mean: f64) -> f64 {
        -libm::log(self.unit()) * mean
    }

    /// Standard normal.
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// A time of the distribution, in whole nanoseconds.
    #[inline]
    pub fn draw(&mut self, dist: &Dist) -> u64 {
        let us = match *dist {
            Dist::FixedUs(us) => us,
            Dist::UniformUs([low, high]) => low + (high - low) * self.unit(),
            Dist::ExpUs(mean) => self.exp(mean),
            Dist::Pareto { mean_us, alpha, cap_us } => {
                let least = mean_us * (alpha - 1.0) / alpha;
                let us = least * libm::pow(self.unit(), -1.0 / alpha);
                if cap_us > 0.0 { us.min(cap_us) } else { us }
            }
            Dist::Lognormal { mean_us, sigma } => {
                mean_us * libm::exp(sigma * self.normal() - sigma * sigma / 2.0)
            }
            Dist::Bimodal { short_us, long_us, long_pct } => {
                if self.chance(long_pct) {
                    long_us
                } else {
                    short_us
                }
            }
            Dist::Normal { mean_us, sd_us } => mean_us + sd_us * self.normal(),
        };
        // Nothing in a scenario lasts longer than an hour.
        (us.clamp(0.0, 3.6e9) * 1000.0 + 0.5) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_means() {
        for dist in [
            Dist::FixedUs(20.0),
            Dist::UniformUs([10.0, 30.0]),
            Dist::ExpUs(20.0),
            Dist::Pareto { mean_us: 20.0, alpha: 3.0, cap_us: 0.0 },
            Dist::Lognormal { mean_us: 20.0, sigma: 1.0 },
            Dist::Bimodal { short_us: 10.0, long_us: 110.0, long_pct: 10.0 },
            Dist::Normal { mean_us: 20.0, sd_us: 2.0 },
        ] {
            let mut stream = Stream::new(1, Purpose::Task, 2, 3);
            let n = 200_000;
            let mean = (0..n).map(|_| stream.draw(&dist) as f64).sum::<f64>() / f64::from(n);
            assert!((mean / 20_000.0 - 1.0).abs() < 0.02, "{dist:?}: {mean}");
            assert!((mean / dist.mean_ns() - 1.0).abs() < 0.02, "{dist:?}: {mean}");
        }
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_numbers() {
        let first = |seed, purpose, a, b| Stream::new(seed, purpose, a, b).next();
        let all = [
            first(1, Purpose::Task, 0, 0),
            first(2, Purpose::Task, 0, 0),
            first(1, Purpose::Client, 0, 0),
            first(1, Purpose::Task, 1, 0),
            first(1, Purpose::Task, 0, 1),
        ];
        assert!((0..5).all(|i| (0..i).all(|j| all[i] != all[j])), "{all:?}");
        assert_eq!(first(1, Purpose::Task, 0, 0), 0x79f4_a436_b505_d3a5);
    }
}
