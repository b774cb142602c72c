// SPDX-License-Identifier: GPL-2.0-only
//! How long a task's runs are: a histogram that answers "given that this one has lasted for a, how long will it go on?".
//!
//! Buckets are half an octave wide, from 2 us to 67 ms; each also knows the mean and the spread of what is in it, so that a
//! service whose runs are all alike, or of two kinds, is predicted almost exactly. What is stored are sums over a bucket and all
//! above it: a sample costs one pass over the table, a question about the mean only two of its rows.
//!
//! A sample weighs [`SAMPLE`] at first. When [`MAX_SAMPLES`] are in, all weights are halved: recent runs count for more. A
//! change is noticed by the rank of new runs among the old ones (on average the middle, if nothing has changed): then all but a
//! few are dropped. A change of kind (say, from 20 us to 4 ms) takes some 7 runs to be noticed and 20 to be followed,
//! one by a factor of two in widely spread runs some 60 and 200.
//!
//! Beyond the longest run that is known there is nothing but a guess from the longest few. Distributions whose mean remainder
//! has no bound (Pareto below 2) are underestimated in the mean; their median is not.

use crate::ids::Nanos;

/// Number of buckets.
pub const BUCKETS: usize = 32;
/// Weight of a new sample.
pub const SAMPLE: u64 = 64;
/// As much as this many samples are kept at most.
pub const MAX_SAMPLES: u64 = 1000;
/// Fewer than this tell nothing.
pub const MIN_SAMPLES: u64 = 4;
/// Longer runs count as this (4.3 s).
pub const MAX_RUN_NS: Nanos = u32::MAX as Nanos;

/// Everything below 2^11 ns is in the lowest bucket.
const LOWEST_BITS: u32 = 11;
/// A middle rank, with 16 bits behind the point.
const MIDDLE: i32 = 1 << 15;
/// Average rank over the last few runs (new ones weigh 1/2^3) and over more of them (1/2^6), and how far from the middle it
/// is a change: four times its standard deviation if the ranks are spread evenly.
const WATCHES: [(u32, i32); 2] = [(3, (0.30 * 65536.0) as i32), (6, (0.10 * 65536.0) as i32)];
/// A change is looked for when so many samples are there.
const CHANGE_SAMPLES: u64 = 16;
/// At a change so many are left of the old ones, or half of that.
const KEPT_SAMPLES: u64 = 2 * MIN_SAMPLES;
/// The tail of the distribution is judged by this many of the longest runs.
const TAIL_SAMPLES: u64 = 16;

/// Run lengths of one task (or of many together).
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Histogram {
    /// Weight of all samples in this bucket and above.
    weight: [u16; BUCKETS],
    /// Sum of (weight times run length) in this bucket and above.
    mass: [u64; BUCKETS],
    /// Mean distance of the bucket's samples from their mean, in nanoseconds.
    spread: [u32; BUCKETS],
    /// Average ranks of new samples, one for each of [`WATCHES`].
    ranks: [i32; WATCHES.len()],
}

/// The part of a distribution beyond some age: its weight, and the sum of (weight times what is beyond the age).
#[derive(Clone, Copy, Debug, Default)]
struct Beyond {
    weight: u64,
    excess: u64,
}

/// What is in one bucket: its samples are taken to lie evenly between `from` and `to`.
#[derive(Clone, Copy, Debug)]
struct Inside {
    weight: u64,
    from: Nanos,
    to: Nanos,
}

#[inline]
fn bucket(run_ns: Nanos) -> usize {
    let bits = 63 - (run_ns | 1).leading_zeros();
    if bits < LOWEST_BITS {
        return 0;
    }
    let half = (run_ns >> (bits - 1)) & 1;
    (1 + 2 * (bits - LOWEST_BITS) as usize + half as usize).min(BUCKETS - 1)
}

/// The lower ends of all buckets, and the end of the last.
static ENDS: [Nanos; BUCKETS + 1] = {
    let mut ends = [0; BUCKETS + 1];
    let mut i = 1;
    while i < BUCKETS {
        let octave = LOWEST_BITS + (i as u32 - 1) / 2;
        ends[i] = (2 + (i as u64 - 1) % 2) << (octave - 1);
        i += 1;
    }
    ends[BUCKETS] = MAX_RUN_NS + 1;
    ends
};

impl Default for Histogram {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Histogram {
    /// No runs.
    pub const EMPTY: Histogram = Histogram {
        weight: [0; BUCKETS],
        mass: [0; BUCKETS],
        spread: [0; BUCKETS],
        ranks: [MIDDLE; WATCHES.len()],
    };

    /// The weight of all samples together ([`SAMPLE`] for a fresh one).
    #[inline]
    #[must_use]
    pub fn weight(&self) -> u64 {
        u64::from(self.weight[0])
    }

    /// Are there enough samples to tell anything?
    #[inline]
    #[must_use]
    pub fn is_telling(&self) -> bool {
        self.weight() >= MIN_SAMPLES * SAMPLE
    }

    /// Adds a run.
    pub fn add(&mut self, run_ns: Nanos) {
        let run_ns = run_ns.min(MAX_RUN_NS);
        let b = bucket(run_ns);
        self.watch_for_change(b);
        if self.weight() + SAMPLE > MAX_SAMPLES * SAMPLE {
            self.shrink(1);
        }
        let before = self.weight_in(b);
        for weight in &mut self.weight[..=b] {
            *weight += SAMPLE as u16;
        }
        for mass in &mut self.mass[..=b] {
            *mass += SAMPLE * run_ns;
        }
        let weight = before + SAMPLE;
        let distance_ns = run_ns.abs_diff(self.mass_in(b) / weight);
        let old_ns = u64::from(self.spread[b]);
        // The second is as far from the mean of both as the first.
        let spread_ns = match before {
            0 => 0,
            1..=SAMPLE => distance_ns,
            _ => (old_ns * before + distance_ns * SAMPLE) / weight,
        };
        self.spread[b] = spread_ns as u32;
    }

    /// Takes notice of where a new sample lies among the old ones, and forgets most of these if it is never among them.
    fn watch_for_change(&mut self, b: usize) {
        if self.weight() < CHANGE_SAMPLES * SAMPLE {
            return;
        }
        let above = u32::from(self.weight[b]) + self.weight.get(b + 1).copied().map_or(0, u32::from);
        let rank = ((above << 15) / u32::from(self.weight[0])) as i32;
        let mut changed = false;
        for (average, (shift, limit)) in self.ranks.iter_mut().zip(WATCHES) {
            *average += (rank - *average) >> shift;
            changed |= (*average - MIDDLE).abs() > limit;
        }
        if changed {
            self.ranks = [MIDDLE; WATCHES.len()];
            let halvings = (self.weight() / (KEPT_SAMPLES * SAMPLE)).checked_ilog2().map_or(0, |n| n + 1);
            self.shrink(halvings);
        }
    }

    fn shrink(&mut self, shift: u32) {
        for weight in &mut self.weight {
            *weight >>= shift;
        }
        for (mass, &weight) in self.mass.iter_mut().zip(&self.weight) {
            *mass = if weight == 0 { 0 } else { *mass >> shift };
        }
    }

    #[inline]
    fn weight_in(&self, b: usize) -> u64 {
        u64::from(self.weight[b]) - self.weight.get(b + 1).copied().map_or(0, u64::from)
    }

    #[inline]
    fn mass_in(&self, b: usize) -> u64 {
        self.mass[b].saturating_sub(self.mass.get(b + 1).copied().unwrap_or(0))
    }

    #[inline]
    fn inside(&self, b: usize) -> Option<Inside> {
        let weight = self.weight_in(b);
        if weight == 0 {
            return None;
        }
        let (low, high) = (ENDS[b], ENDS[b + 1]);
        let mean = (self.mass_in(b) / weight).clamp(low, high - 1);
        let half = (2 * u64::from(self.spread[b])).min(mean - low).min(high - mean);
        Some(Inside { weight, from: mean - half, to: mean + half })
    }

    /// What lies beyond an age.
    #[inline]
    fn beyond(&self, age_ns: Nanos) -> Beyond {
        let b = bucket(age_ns);
        let weight = self.weight.get(b + 1).copied().map_or(0, u64::from);
        let mass = self.mass.get(b + 1).copied().unwrap_or(0);
        let above = Beyond { weight, excess: mass.saturating_sub(weight * age_ns) };
        let Some(inside) = self.inside(b).filter(|inside| inside.to > age_ns) else { return above };
        if age_ns <= inside.from {
            let weight = u64::from(self.weight[b]);
            return Beyond { weight, excess: self.mass[b].saturating_sub(weight * age_ns) };
        }
        let rest_ns = inside.to - age_ns;
        let part = inside.weight * rest_ns / (inside.to - inside.from);
        Beyond { weight: above.weight + part, excess: above.excess + part * rest_ns / 2 }
    }

    /// The mean of all runs; none without samples.
    #[inline]
    #[must_use]
    pub fn mean_ns(&self) -> Option<Nanos> {
        self.mass[0].checked_div(self.weight())
    }

    /// The expected remainder of a run that has lasted for `age_ns`, as far as it lies within the next `at_most_ns`
    /// (`Nanos::MAX`: all of it): E[min(X - age, at most) | X > age]. None without samples.
    #[inline]
    #[must_use]
    pub fn rest_ns(&self, age_ns: Nanos, at_most_ns: Nanos) -> Option<Nanos> {
        let mean_ns = self.mean_ns()?;
        let age_ns = age_ns.min(MAX_RUN_NS);
        let end_ns = age_ns.saturating_add(at_most_ns);
        let now = self.beyond(age_ns);
        let later = if end_ns > MAX_RUN_NS { Beyond::default() } else { self.beyond(end_ns) };
        let within = now.excess.saturating_sub(later.excess);
        if now.weight >= SAMPLE {
            return Some((within / now.weight).min(at_most_ns));
        }
        // Not even one run is known to have lasted that long: what is missing of one is made up.
        let tail_ns = self.tail_ns(age_ns, mean_ns).min(at_most_ns);
        Some(((within + (SAMPLE - now.weight) * tail_ns) / SAMPLE).min(at_most_ns))
    }

    /// The remainder of a run that has lasted for `age_ns` that is as likely exceeded as not. It minimises the expected absolute
    /// error, where the mean minimises the squared one. None without samples.
    #[must_use]
    pub fn median_rest_ns(&self, age_ns: Nanos) -> Option<Nanos> {
        let mean_ns = self.mean_ns()?;
        let age_ns = age_ns.min(MAX_RUN_NS);
        let now = self.beyond(age_ns);
        if now.weight < SAMPLE {
            return Some(self.tail_ns(age_ns, mean_ns));
        }
        Some(self.quantile_ns(now.weight / 2).saturating_sub(age_ns))
    }

    /// The run length beyond which `weight` lies.
    fn quantile_ns(&self, weight: u64) -> Nanos {
        let above = self.weight.iter().filter(|&&w| u64::from(w) > weight).count();
        let Some(inside) = above.checked_sub(1).and_then(|b| self.inside(b)) else { return 0 };
        let next = self.weight.get(above).copied().map_or(0, u64::from);
        inside.to - (inside.to - inside.from) * (weight - next) / inside.weight
    }

    /// How long a run goes on that has lasted longer than any that is known. Judged by the longest runs that are: the median
    /// of what they had left at the age where few enough were left, growing in proportion to the age. At least a
    /// quarter of the mean: an overrun is never about to end.
    fn tail_ns(&self, age_ns: Nanos, mean_ns: Nanos) -> Nanos {
        let tail = (TAIL_SAMPLES * SAMPLE).min(self.weight() / 2);
        let (from_ns, half_ns) = (self.quantile_ns(tail), self.quantile_ns(tail / 2));
        let rest_ns = half_ns.saturating_sub(from_ns);
        // Both are below 2^32.
        let grown_ns = rest_ns * age_ns / from_ns.max(1);
        grown_ns.max(mean_ns / 4).min(MAX_RUN_NS)
    }
}

#[cfg(test)]
mod tests;
