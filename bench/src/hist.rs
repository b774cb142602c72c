// SPDX-License-Identifier: GPL-2.0-only
//! Latency histograms with the arithmetic of schbench, so that figures can be set side by side.
//!
//! Bins: values below 512 have a bin each. Above, a value with its top bit at position 8 + e falls into one of 256 bins of
//! width 2^e, and is reported as the middle of its bin, cut to a whole number: at most 0.2 % off. 19 groups of 256 bins
//! reach to 2^26 (67 s in microseconds); anything above is counted in the last bin and in [`Histogram::clamped`].
//!
//! [`Recorder`] is the side that a measured thread writes; [`Histogram`] is what a report reads. Neither ever panics,
//! allocates or grows while recording, whatever the value.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MANTISSA_BITS: u32 = 8;
const BINS_PER_GROUP: usize = 1 << MANTISSA_BITS;
const GROUPS: usize = 19;
const BINS: usize = GROUPS * BINS_PER_GROUP;
/// The first value that no longer has a bin of its own kind.
pub const SATURATION: u64 = 1 << (MANTISSA_BITS as usize + GROUPS - 1);

fn bin_of(value: u64) -> usize {
    let value = value.min(SATURATION - 1);
    let group = (u64::BITS - value.leading_zeros()).saturating_sub(MANTISSA_BITS + 1);
    // Group 0 holds 0..512 (two blocks of 256), each further group one block.
    ((group as usize) << MANTISSA_BITS) + (value >> group) as usize
}

fn value_of(bin: usize) -> u64 {
    if bin < 2 * BINS_PER_GROUP {
        return bin as u64;
    }
    let group = (bin >> MANTISSA_BITS) - 1;
    let first = ((bin - (group << MANTISSA_BITS)) as u64) << group;
    first + (1 << (group - 1))
}

/// One line of a percentile table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentile {
    /// Tenths of a percent: 999 is p99.9.
    pub per_mille: u32,
    /// Value of the first bin at which that share of all samples is reached.
    pub value: u64,
    /// Samples above the previous percentile's bin, up to and including this one's.
    pub samples_since_previous: u64,
}

/// A finished or copied set of samples.
#[derive(Debug, Clone)]
pub struct Histogram {
    bins: Vec<u64>,
    min_nonzero: u64,
    max: u64,
    clamped: u64,
    negative: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bins: vec![0; BINS], min_nonzero: u64::MAX, max: 0, clamped: 0, negative: 0 }
    }
}

impl Histogram {
    /// Adds one sample.
    pub fn record(&mut self, value: u64) {
        self.clamped += u64::from(value >= SATURATION);
        let value = value.min(u32::MAX.into());
        self.bins[bin_of(value)] += 1;
        self.max = self.max.max(value);
        if value > 0 {
            self.min_nonzero = self.min_nonzero.min(value);
        }
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            *mine += theirs;
        }
        self.min_nonzero = self.min_nonzero.min(other.min_nonzero);
        self.max = self.max.max(other.max);
        self.clamped += other.clamped;
        self.negative += other.negative;
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// Takes the samples of value 0 out and returns how many there were.
    pub fn take_zeros(&mut self) -> u64 {
        std::mem::take(&mut self.bins[0])
    }

    /// The smallest sample, exact; `None` if there is none.
    pub fn min(&self) -> Option<u64> {
        if self.bins[0] > 0 { Some(0) } else { self.min_nonzero() }
    }

    /// The smallest sample above 0, exact.
    pub fn min_nonzero(&self) -> Option<u64> {
        (self.min_nonzero != u64::MAX).then_some(self.min_nonzero)
    }

    /// The largest sample, exact up to 2^32 - 1; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Samples too large for the bins: counted in the last one, so percentiles there are too low.
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Measurements that ended before they began (a clock stepped back): not among the samples.
    pub fn negative(&self) -> u64 {
        self.negative
    }

    /// The percentiles of an ascending list of tenths of a percent; empty if there is no sample.
    pub fn percentiles(&self, per_mille: &[u32]) -> Vec<Percentile> {
        let samples = u128::from(self.samples());
        let mut wanted = per_mille.iter().copied().peekable();
        let mut found = Vec::with_capacity(per_mille.len());
        let (mut seen, mut reported) = (0u64, 0u64);
        for (bin, &count) in self.bins.iter().enumerate() {
            seen += count;
            while let Some(per_mille) =
                wanted.next_if(|&p| seen > 0 && u128::from(seen) * 1000 >= u128::from(p) * samples)
            {
                let samples_since_previous = seen - reported;
                found.push(Percentile { per_mille, value: value_of(bin), samples_since_previous });
                reported = seen;
            }
        }
        found
    }
}

/// A histogram with one writer that others may copy at any time.
///
/// A reset belongs to the writer too: readers raise the run's epoch, the writer clears its bins when it next records, and
/// until then a copy for the new epoch is empty. So no sample is lost to, or survives, a reset.
#[derive(Debug)]
pub struct Recorder {
    epoch: AtomicU32,
    bins: Box<[AtomicU64]>,
    min_nonzero: AtomicU64,
    max: AtomicU64,
    clamped: AtomicU64,
    negative: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            epoch: AtomicU32::new(0),
            bins: (0..BINS).map(|_| AtomicU64::new(0)).collect(),
            min_nonzero: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            clamped: AtomicU64::new(0),
            negative: AtomicU64::new(0),
        }
    }
}

/// With a single writer a plain load and store is enough, and cheaper than a locked add.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Recorder {
    /// Bytes that one recorder takes.
    pub const BYTES: u64 = (BINS * size_of::<u64>()) as u64;

    /// Adds the time from `start` to `end`. Only one thread may record.
    pub fn record_span(&self, epoch: u32, start: u64, end: u64) {
        self.enter(epoch);
        match end.checked_sub(start) {
            Some(value) => self.add(value),
            None => bump(&self.negative),
        }
    }

    fn add(&self, value: u64) {
        if value >= SATURATION {
            bump(&self.clamped);
        }
        let value = value.min(u32::MAX.into());
        bump(&self.bins[bin_of(value)]);
        if value > self.max.load(Ordering::Relaxed) {
            self.max.store(value, Ordering::Relaxed);
        }
        if value > 0 && value < self.min_nonzero.load(Ordering::Relaxed) {
            self.min_nonzero.store(value, Ordering::Relaxed);
        }
    }

    fn enter(&self, epoch: u32) {
        if self.epoch.load(Ordering::Relaxed) == epoch {
            return;
        }
        for counter in self.bins.iter().chain([&self.max, &self.clamped, &self.negative]) {
            counter.store(0, Ordering::Relaxed);
        }
        self.min_nonzero.store(u64::MAX, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Copies the samples of `epoch`. The number of samples is always that of the copied bins.
    pub fn copy(&self, epoch: u32) -> Histogram {
        if self.epoch.load(Ordering::Acquire) != epoch {
            return Histogram::default();
        }
        Histogram {
            bins: self.bins.iter().map(|bin| bin.load(Ordering::Relaxed)).collect(),
            min_nonzero: self.min_nonzero.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            clamped: self.clamped.load(Ordering::Relaxed),
            negative: self.negative.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(value: u64) -> u64 {
        value_of(bin_of(value))
    }

    #[test]
    fn representative_values_match_schbench() {
        for (value, expected) in
            [(0, 0), (1, 1), (511, 511), (512, 513), (513, 513), (1000, 1001), (15984, 15984), (16864, 16864)]
        {
            assert_eq!(reported(value), expected, "value {value}");
        }
        // Values that real schbench runs have printed are middles of bins.
        for seen in [667, 723, 3084, 3244, 3404, 3932, 6248, 4312, 7560] {
            assert_eq!(reported(seen), seen);
        }
    }

    #[test]
    fn the_middle_of_a_bin_is_at_most_one_in_512_off() {
        let mut value = 1u64;
        while value < SATURATION {
            let error = reported(value).abs_diff(value);
            assert!(error * 512 <= value, "{value} reported as {}", reported(value));
            value += value / 97 + 1;
        }
    }

    #[test]
    fn bins_are_dense_and_ascending() {
        assert_eq!(bin_of(SATURATION - 1), BINS - 1);
        for bin in 1..BINS {
            assert!(value_of(bin) > value_of(bin - 1));
            assert_eq!(bin_of(value_of(bin)), bin);
        }
    }

    #[test]
    fn percentiles_of_one_to_twenty() {
        let mut hist = Histogram::default();
        (1..=20).for_each(|value| hist.record(value));
        let values: Vec<_> = hist.percentiles(&[500, 900, 990]).iter().map(|p| p.value).collect();
        assert_eq!(values, [10, 18, 20]);
        let counts: Vec<_> =
            hist.percentiles(&[200, 500, 900, 990, 999]).iter().map(|p| p.samples_since_previous).collect();
        assert_eq!(counts, [4, 6, 8, 2, 0]);
    }

    #[test]
    fn no_sample_gives_no_percentile() {
        let hist = Histogram::default();
        assert!(hist.percentiles(&[0, 500, 999]).is_empty());
        assert_eq!((hist.min(), hist.max()), (None, 0));
    }

    #[test]
    fn zeros_can_be_kept_or_taken_out() {
        let mut hist = Histogram::default();
        [0, 0, 7].into_iter().for_each(|value| hist.record(value));
        assert_eq!((hist.min(), hist.min_nonzero()), (Some(0), Some(7)));
        assert_eq!((hist.take_zeros(), hist.samples(), hist.min()), (2, 1, Some(7)));
    }

    /// C47: a recorder with a fixed upper bound panicked on one slow sample, or grew without limit.
    #[test]
    fn c47_extreme_values_are_counted_never_fatal() {
        let recorder = Recorder::default();
        for value in [0, 1, SATURATION - 1, SATURATION, u64::MAX] {
            recorder.record_span(0, 0, value);
        }
        recorder.record_span(0, 10, 9);
        let hist = recorder.copy(0);
        assert_eq!((hist.samples(), hist.clamped(), hist.negative()), (5, 2, 1));
        assert_eq!((hist.min(), hist.max()), (Some(0), u32::MAX.into()));
        let p99 = hist.percentiles(&[990])[0].value;
        assert_eq!(p99, value_of(BINS - 1));
        assert_eq!(recorder.bins.len(), BINS, "memory does not depend on the values");

        let mut plain = Histogram::default();
        for value in [0, 1, SATURATION - 1, SATURATION, u64::MAX] {
            plain.record(value);
        }
        assert_eq!((plain.samples(), plain.clamped(), plain.max()), (5, 2, u32::MAX.into()));
        assert_eq!(plain.percentiles(&[200, 990]), hist.percentiles(&[200, 990]));
    }

    #[test]
    fn a_reset_hides_old_samples_at_once_and_keeps_new_ones() {
        let recorder = Recorder::default();
        recorder.record_span(0, 0, 50);
        assert_eq!(recorder.copy(0).samples(), 1);
        assert_eq!(recorder.copy(1).samples(), 0);
        recorder.record_span(1, 0, 3);
        let hist = recorder.copy(1);
        assert_eq!((hist.samples(), hist.min(), hist.max()), (1, Some(3), 3));
    }

    #[test]
    fn merging_adds_counts_and_keeps_extremes() {
        let (mut left, mut right) = (Histogram::default(), Histogram::default());
        [5, 900].into_iter().for_each(|value| left.record(value));
        [2, SATURATION].into_iter().for_each(|value| right.record(value));
        left.merge(&right);
        assert_eq!((left.samples(), left.clamped()), (4, 1));
        assert_eq!((left.min(), left.max()), (Some(2), SATURATION));
    }
}
