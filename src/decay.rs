// SPDX-License-Identifier: GPL-2.0-only
//! e^-x without floating point: the same bits on every machine, in a few nanoseconds.
//!
//! A share is a number from 0 to [`ONE`]. A [`Rate`] is a time constant, prepared so that no query divides. The value is
//! 2 to the minus y, y = x log2(e): the integer part of y is a shift, the fraction a table of 256 steps with straight lines
//! between them. The lines lie above the curve by at most (ln 2 / 256)^2 / 8 < 1e-6; everything else rounds below that.

use crate::ids::Nanos;

/// The share "all of it".
pub const ONE: u32 = 1 << SHARE_BITS;

const SHARE_BITS: u32 = 30;

/// Bits behind the point of an exponent.
const EXPONENT_BITS: u32 = 32;
/// Bits of the exponent's fraction that choose a step of the table.
const STEP_BITS: u32 = 8;
const REST_BITS: u32 = EXPONENT_BITS - STEP_BITS;

/// log2(e) with 62 bits behind the point.
const LOG2_E: u64 = 6_653_256_548_922_161_245;
/// A rate has so many more bits behind the point than an exponent.
const RATE_BITS: u32 = 62 - EXPONENT_BITS;

/// `STEPS[i]` is 2^(-i/256), as a share.
static STEPS: [u32; (1 << STEP_BITS) + 1] = steps();

const fn steps() -> [u32; (1 << STEP_BITS) + 1] {
    // 2^(-1/2), 2^(-1/4), ... 2^(-1/256), with 60 bits behind the point, by square roots.
    let mut roots = [0u64; STEP_BITS as usize];
    let mut value: u128 = 1 << 59;
    let mut i = 0;
    while i < roots.len() {
        value = (value << 60).isqrt();
        roots[i] = value as u64;
        i += 1;
    }
    let mut table = [0; (1 << STEP_BITS) + 1];
    let mut step = 0;
    while step < 1 << STEP_BITS {
        let mut product: u128 = 1 << 60;
        let mut bit = 0;
        while bit < STEP_BITS {
            if step >> (STEP_BITS - 1 - bit) & 1 == 1 {
                product = (product * roots[bit as usize] as u128) >> 60;
            }
            bit += 1;
        }
        table[step] = ((product + (1 << (59 - SHARE_BITS))) >> (60 - SHARE_BITS)) as u32;
        step += 1;
    }
    table[1 << STEP_BITS] = ONE / 2;
    table
}

/// How fast something decays: 1 / (time constant), in the units of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

/// A number of halvings: what [`Rate::over`] makes of a time. Those of successive times add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Halvings(u64);

impl Rate {
    /// Decay to 1/e in `tau_ns` (0 counts as 1).
    #[must_use]
    pub const fn per(tau_ns: Nanos) -> Self {
        Self(LOG2_E / if tau_ns == 0 { 1 } else { tau_ns })
    }

    /// The halvings that happen in `ns`.
    #[inline]
    #[must_use]
    pub fn over(self, ns: Nanos) -> Halvings {
        let wide = (u128::from(ns) * u128::from(self.0)) >> RATE_BITS;
        Halvings(u64::try_from(wide).unwrap_or(u64::MAX))
    }

    /// The share that is left after `ns`: e^(-ns / tau).
    #[inline]
    #[must_use]
    pub fn left(self, ns: Nanos) -> u32 {
        self.over(ns).left()
    }
}

impl Halvings {
    /// The share that is left after so many halvings.
    #[inline]
    #[must_use]
    pub fn left(self) -> u32 {
        let whole = self.0 >> EXPONENT_BITS;
        if whole > u64::from(SHARE_BITS) {
            return 0;
        }
        let step = (self.0 >> REST_BITS) as usize & ((1 << STEP_BITS) - 1);
        let rest = self.0 & ((1 << REST_BITS) - 1);
        let (from, to) = (STEPS[step], STEPS[step + 1]);
        let down = (u64::from(from - to) * rest) >> REST_BITS;
        (from - down as u32) >> whole
    }

    /// One process beside another.
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The part of the two that is this one, as a share; none if both are nothing.
    #[inline]
    #[must_use]
    pub fn part_of(self, both: Self) -> Option<u32> {
        // 32 bits of each are enough, and a division of 64 bits is cheap.
        let shift = 32u32.saturating_sub(both.0.leading_zeros());
        let (part, whole) = (self.0.min(both.0) >> shift, both.0 >> shift);
        (whole > 0).then(|| ((part << SHARE_BITS) / whole) as u32)
    }
}

/// A share of a share.
#[inline]
#[must_use]
pub fn of(share: u32, other: u32) -> u32 {
    ((u64::from(share) * u64::from(other)) >> SHARE_BITS) as u32
}

/// A share of a time (of less than 2^34 ns, 17 s; more counts as that).
#[inline]
#[must_use]
pub fn of_ns(share: u32, ns: Nanos) -> Nanos {
    (u64::from(share) * ns.min((1 << (64 - SHARE_BITS)) - 1)) >> SHARE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(tau_ns: Nanos, ns: Nanos) -> f64 {
        let exact = libm::exp(-(ns as f64) / tau_ns as f64);
        (f64::from(Rate::per(tau_ns).left(ns)) / f64::from(ONE) - exact).abs()
    }

    #[test]
    fn the_error_is_what_the_page_says() {
        let mut worst: f64 = 0.0;
        for i in 0..200_000u64 {
            worst = worst.max(error(1_000_003, i * 131));
        }
        assert!(worst < 1e-6, "{worst}");
        assert!(worst > 1e-7, "the straight lines cannot be that good: {worst}");
    }

    #[test]
    fn ends() {
        for tau_ns in [1, 1000, 1_000_000_000, u64::MAX] {
            let rate = Rate::per(tau_ns);
            assert_eq!(rate.left(0), ONE);
            assert!(rate.left(u64::MAX) <= rate.left(u64::MAX - 1));
        }
        assert_eq!(Rate::per(1).left(40), 0);
        assert_eq!(Rate::per(1_000_000_000).left(u64::MAX), 0);
        assert_eq!(Rate::per(0), Rate::per(1));
        assert_eq!(Halvings(1 << 32).left(), ONE / 2);
        assert_eq!(Halvings(0).part_of(Halvings(0)), None);
    }

    proptest! {
        #[test]
        fn less_is_left_after_more_time(tau in 1u64..=1_000_000_000, a: u64, more: u64) {
            let rate = Rate::per(tau);
            prop_assert!(rate.left(a) <= ONE);
            prop_assert!(rate.left(a.saturating_add(more)) <= rate.left(a));
        }

        #[test]
        fn any_time_constant_is_as_exact(tau in 1u64..=1_000_000_000, part in 0.0f64..20.0) {
            let ns = (tau as f64 * part) as u64;
            prop_assert!(error(tau, ns) < 1.1e-6, "{}", error(tau, ns));
        }

        #[test]
        fn a_part_is_a_part(a: u64, b: u64) {
            let (a, b) = (Halvings(a), Halvings(b));
            let both = a.and(b);
            if let Some(part) = a.part_of(both) {
                let exact = a.0 as f64 / both.0 as f64;
                prop_assert!(part <= ONE);
                prop_assert!((f64::from(part) / f64::from(ONE) - exact).abs() < 1e-8 || both.0 == u64::MAX);
            }
        }
    }
}
