// SPDX-License-Identifier: GPL-2.0-only
//! The LAVD stickiness talk (LPC 2026) in the simulator: its tables beside ours, and for every claim whether it holds here.
//!
//! A claim is a ratio of one figure between two policies at one load, with the direction that the talk found. It is held when the
//! 95 % interval of our ratio (paired runs, see [`super::compare`]) lies on that side of 1; "no worse" when it lies within
//! [`NO_WORSE_PCT`] of 1. The talk's own ratio stands beside it: directions are to be reproduced, not sizes.

mod claims;
mod text;

pub use claims::{CLAIMS, Claim, FIGURES, Figure, LOADS, Load, NO_WORSE_PCT, POLICIES, Side};
pub use text::render;

use super::compare::Estimate;
use super::report::Report;
use serde::Serialize;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval is on the claim's side.
    Held,
    /// It is on the other side.
    Reversed,
    /// It is on both, or reaches beyond the margin.
    Open,
    /// There are no figures (too few runs).
    Missing,
}

/// A claim and what was found.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Judged {
    /// The claim.
    #[serde(flatten)]
    pub claim: &'static Claim,
    /// Our ratio.
    pub ours: Option<Estimate>,
    /// What it says.
    pub verdict: Verdict,
    /// An effect of a tenth or more, where the talk's is larger than that.
    pub strong: bool,
}

/// Holds every claim against the reports, one for each load in the order of [`LOADS`]; loads without one are missing.
#[must_use]
pub fn judge(reports: &[Option<Report>]) -> Vec<Judged> {
    let judged = CLAIMS.iter().map(|claim| {
        let at = LOADS.iter().position(|load| load.name == claim.load);
        let report = at.and_then(|at| reports.get(at)?.as_ref());
        let ours = report.and_then(|report| report.between(claim.than, claim.policy, claim.figure));
        let verdict = ours.map_or(Verdict::Missing, |ours| verdict(claim.side, &ours));
        let effect = |ratio: f64| (ratio - 1.0).abs();
        let strong = verdict == Verdict::Held
            && claim.side != Side::NoWorse
            && effect(claim.talk) > 0.1
            && ours.is_some_and(|ours| effect(ours.mean) >= 0.1);
        Judged { claim, ours, verdict, strong }
    });
    judged.collect()
}

fn verdict(side: Side, ours: &Estimate) -> Verdict {
    let Some((low, high)) = ours.interval else { return Verdict::Missing };
    let margin = 1.0 + NO_WORSE_PCT / 100.0;
    match side {
        Side::Lower if high < 1.0 => Verdict::Held,
        Side::Lower if low > 1.0 => Verdict::Reversed,
        Side::Higher if low > 1.0 => Verdict::Held,
        Side::Higher if high < 1.0 => Verdict::Reversed,
        Side::NoWorse if high < margin => Verdict::Held,
        Side::NoWorse if low > margin => Verdict::Reversed,
        _ => Verdict::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::registry::Choice;
    use crate::sim::report::figures::describe;
    use crate::sim::shipped;

    #[test]
    fn claims_speak_of_what_there_is() {
        for claim in CLAIMS {
            for policy in [claim.policy, claim.than] {
                assert!(POLICIES.contains(&policy), "{policy}");
            }
            assert!(LOADS.iter().any(|load| load.name == claim.load), "{}", claim.load);
            assert!(describe(claim.figure).is_some(), "{}", claim.figure);
        }
        for load in LOADS {
            assert!(shipped::find(load.scenario).is_some(), "{}", load.scenario);
        }
        for policy in POLICIES {
            assert_eq!(Choice::parse(policy).unwrap().label(), *policy);
        }
    }

    #[test]
    fn the_talks_ratios_are_those_of_its_tables() {
        for claim in CLAIMS {
            let figure = FIGURES.iter().find(|f| f.load == claim.load && f.figure == claim.figure).unwrap();
            let of = |policy| figure.ms[POLICIES.iter().position(|p| *p == policy).unwrap()].unwrap();
            let ratio = of(claim.policy) / of(claim.than);
            assert!((ratio - claim.talk).abs() < 0.005, "{claim:?}: {ratio}");
            match claim.side {
                Side::Lower => assert!(claim.talk < 1.0),
                Side::Higher => assert!(claim.talk > 1.0),
                Side::NoWorse => assert!((claim.talk - 1.0).abs() < NO_WORSE_PCT / 100.0),
            }
        }
    }

    #[test]
    fn an_interval_on_the_claims_side_holds_it() {
        let at = |low, high| Estimate { mean: (low + high) / 2.0, interval: Some((low, high)), n: 20 };
        for (side, low, high, says) in [
            (Side::Lower, 0.7, 0.9, Verdict::Held),
            (Side::Lower, 0.9, 1.1, Verdict::Open),
            (Side::Lower, 1.1, 1.2, Verdict::Reversed),
            (Side::Higher, 1.1, 1.2, Verdict::Held),
            (Side::Higher, 0.8, 0.9, Verdict::Reversed),
            (Side::NoWorse, 0.5, 0.6, Verdict::Held),
            (Side::NoWorse, 1.0, 1.06, Verdict::Held),
            (Side::NoWorse, 1.0, 1.08, Verdict::Open),
            (Side::NoWorse, 1.08, 1.1, Verdict::Reversed),
        ] {
            assert_eq!(verdict(side, &at(low, high)), says, "{side:?} {low} {high}");
        }
        let one = Estimate { mean: 0.5, interval: None, n: 1 };
        assert_eq!(verdict(Side::Lower, &one), Verdict::Missing);
    }

    #[test]
    fn without_reports_every_claim_is_missing() {
        let judged = judge(&[]);
        assert_eq!(judged.len(), CLAIMS.len());
        assert!(judged.iter().all(|j| j.verdict == Verdict::Missing && !j.strong));
        assert!(render(&[], &judged).contains("missing"));
    }
}
