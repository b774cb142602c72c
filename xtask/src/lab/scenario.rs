// SPDX-License-Identifier: GPL-2.0-only
//! Scenarios: shell scripts whose head comment says what they need. `xtask/scenarios/README.md` describes the format.

use super::topology::Topology;
use crate::fail::usage;
use crate::paths;
use anyhow::{Context, Result, anyhow};
use std::path::Path;

/// Wall-clock limit of one boot unless the scenario or the user says otherwise, in seconds.
const TIMEOUT_S: u64 = 300;

/// What the guest's clock follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// The guest's own instruction count: repeatable, idle time is skipped
    Virtual,
    /// The host's clock
    Real,
}

impl Clock {
    /// The name used on the command line, in headers and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Real => "real",
        }
    }
}

/// A script to run in the guest and the machine that it wants.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// File name without extension.
    pub name: String,
    /// One line for `--list`.
    pub about: String,
    /// It is run once on each.
    pub topologies: Vec<Topology>,
    /// The guest's clock.
    pub clock: Clock,
    /// Wall-clock limit of one boot, in seconds.
    pub timeout_s: u64,
    /// Boots on each topology.
    pub boots: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Programs that must be in the image.
    pub needs: Vec<String>,
    /// The suites that run it: `test`, `quick`.
    pub suites: Vec<String>,
    /// Additions to the kernel's command line.
    pub append: String,
    /// The script itself.
    pub script: String,
}

impl Scenario {
    /// Parses a script; the error names the file and the line's key.
    pub fn parse(name: &str, script: &str) -> Result<Self> {
        let mut scenario = Self {
            name: name.to_string(),
            about: String::new(),
            topologies: vec![Topology { llcs: 2, cores: 2, threads: 1 }],
            clock: Clock::Virtual,
            timeout_s: TIMEOUT_S,
            boots: 1,
            memory_mib: 2048,
            needs: Vec::new(),
            suites: Vec::new(),
            append: String::new(),
            script: script.to_string(),
        };
        for line in script.lines().take_while(|line| line.starts_with('#')) {
            let Some((key, value)) = line.strip_prefix("# ").and_then(|line| line.split_once(": ")) else {
                continue;
            };
            // A key is one lower-case word; anything else in the head is prose.
            if key.chars().all(|c| c.is_ascii_lowercase()) {
                scenario
                    .set(key, value.trim())
                    .with_context(|| format!("{name}.sh: '# {key}: {}'", value.trim()))?;
            }
        }
        Ok(scenario)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let words = || value.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        match key {
            "about" => self.about = value.to_string(),
            "topology" => {
                self.topologies = value.split_whitespace().map(str::parse).collect::<Result<_>>()?
            }
            "clock" => {
                self.clock =
                    clap::ValueEnum::from_str(value, false).map_err(|_| anyhow!("use virtual or real"))?;
            }
            "timeout" => self.timeout_s = positive(value)?.into(),
            "boots" => self.boots = positive(value)?,
            "memory" => self.memory_mib = positive(value)?,
            "needs" => self.needs = words(),
            "suite" => self.suites = words(),
            "append" => self.append = value.to_string(),
            _ => return Err(anyhow!("unknown key")),
        }
        Ok(())
    }

    /// Reads a script from any path.
    pub fn read(path: &Path) -> Result<Self> {
        let script =
            std::fs::read_to_string(path).map_err(|error| usage(format!("{}: {error}", path.display())))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(&name, &script).map_err(|error| usage(format!("{error:#}")))
    }

    /// The scenario of that name.
    pub fn named(name: &str) -> Result<Self> {
        let known = all()?;
        let names = || known.iter().map(|scenario| scenario.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = known.iter().find(|scenario| scenario.name == name).cloned();
        found.ok_or_else(|| usage(format!("no scenario '{name}'; there are: {}", names())))
    }
}

fn positive(value: &str) -> Result<u32> {
    value.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(|| anyhow!("use a whole number above 0"))
}

/// The shell library that every scenario has at hand; it is no scenario itself.
pub const LIBRARY: &str = "lib.sh";

/// All scenarios, sorted by name.
pub fn all() -> Result<Vec<Scenario>> {
    let dir = paths::scenarios();
    let entries = std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "sh"));
    files.retain(|path| path.file_name().is_some_and(|name| name != LIBRARY && name != super::image::INIT));
    files.sort();
    files.iter().map(|path| Scenario::read(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header() {
        let text = "# SPDX-License-Identifier: GPL-2.0-only\n# about: a: b\n# topology: 1 2x4x2\n# clock: real\n\
                    # timeout: 60\n# boots: 3\n# needs: stress-ng scx_hearth\n# suite: test quick\n# Note: prose\n\n# nope: x\necho\n";
        let scenario = Scenario::parse("x", text).unwrap();
        assert_eq!((scenario.about.as_str(), scenario.clock, scenario.timeout_s), ("a: b", Clock::Real, 60));
        assert_eq!(scenario.topologies.iter().map(|t| t.cpus()).collect::<Vec<_>>(), [1, 16]);
        assert_eq!((scenario.needs.len(), scenario.suites.len(), scenario.boots), (2, 2, 3));
    }

    #[test]
    fn mistakes_name_file_and_key() {
        for line in ["# clok: real", "# clock: fast", "# timeout: 0", "# boots: -1", "# topology: 2x"] {
            let error = format!("{:#}", Scenario::parse("x", line).unwrap_err());
            assert!(error.contains("x.sh") && error.contains(line), "{error}");
        }
    }

    #[test]
    fn every_scenario_of_the_project_parses() {
        for scenario in all().unwrap() {
            assert!(!scenario.about.is_empty(), "{} has no '# about:'", scenario.name);
        }
    }
}
