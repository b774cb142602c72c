// SPDX-License-Identifier: GPL-2.0-only
//! The shape of the guest's machine: `LLCS x CORES x THREADS`.

use anyhow::{Result, anyhow, ensure};
use std::fmt;
use std::str::FromStr;

/// The most CPUs that the emulated board takes without interrupt remapping.
const CPUS_MAX: u32 = 255;

/// Names for shapes that are used often.
pub const PRESETS: &[(&str, &str)] = &[("one", "1"), ("small", "2x2"), ("smt", "1x2x2"), ("wide", "4x4")];

/// A machine: every LLC domain is one socket with cores of one or two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// Last-level-cache domains.
    pub llcs: u32,
    /// Cores in each domain.
    pub cores: u32,
    /// Hardware threads on each core.
    pub threads: u32,
}

impl Topology {
    /// Hardware threads in all.
    pub fn cpus(self) -> u32 {
        self.llcs * self.cores * self.threads
    }

    /// QEMU's `-smp` argument. With this emulator only sockets have an L3 cache of their own.
    pub fn smp(self) -> String {
        format!("{},sockets={},cores={},threads={}", self.cpus(), self.llcs, self.cores, self.threads)
    }
}

impl FromStr for Topology {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((_, shape)) = PRESETS.iter().find(|(name, _)| *name == text) {
            return shape.parse();
        }
        let wrong = || {
            anyhow!("'{text}' is no topology: use N, LLCSxCORES, LLCSxCORESxTHREADS or {}", preset_names())
        };
        let number =
            |part: &str| part.parse::<u32>().ok().filter(|n| (1..=CPUS_MAX).contains(n)).ok_or_else(wrong);
        let parts = text.split('x').map(number).collect::<Result<Vec<u32>>>()?;
        let (llcs, cores, threads) = match parts[..] {
            [cores] => (1, cores, 1),
            [llcs, cores] => (llcs, cores, 1),
            [llcs, cores, threads] => (llcs, cores, threads),
            _ => return Err(wrong()),
        };
        ensure!(threads <= 2, "'{text}': a core has 1 or 2 threads");
        let cpus = u64::from(llcs) * u64::from(cores) * u64::from(threads);
        ensure!(cpus <= u64::from(CPUS_MAX), "'{text}' has {cpus} CPUs; the lab takes at most {CPUS_MAX}");
        Ok(Self { llcs, cores, threads })
    }
}

fn preset_names() -> String {
    let names: Vec<String> = PRESETS.iter().map(|(name, shape)| format!("{name} (= {shape})")).collect();
    names.join(", ")
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.llcs, self.threads) {
            (1, 1) => write!(f, "{}", self.cores),
            (llcs, 1) => write!(f, "{llcs}x{}", self.cores),
            (llcs, threads) => write!(f, "{llcs}x{}x{threads}", self.cores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar() {
        for (text, smp, shown) in [
            ("1", "1,sockets=1,cores=1,threads=1", "1"),
            ("16", "16,sockets=1,cores=16,threads=1", "16"),
            ("1x8", "8,sockets=1,cores=8,threads=1", "8"),
            ("2x4", "8,sockets=2,cores=4,threads=1", "2x4"),
            ("2x4x2", "16,sockets=2,cores=4,threads=2", "2x4x2"),
            ("smt", "4,sockets=1,cores=2,threads=2", "1x2x2"),
            ("small", "4,sockets=2,cores=2,threads=1", "2x2"),
        ] {
            let topology: Topology = text.parse().unwrap();
            assert_eq!((topology.smp().as_str(), topology.to_string().as_str()), (smp, shown));
        }
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "0",
            "x",
            "2x",
            "2x0",
            "-1",
            "2x2x3",
            "1x2x2x2",
            "256",
            "200x200",
            "4294967295x2",
            "big",
            "2 x 2",
        ] {
            assert!(text.parse::<Topology>().is_err(), "{text}");
        }
    }
}
