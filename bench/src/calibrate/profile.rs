// SPDX-License-Identifier: GPL-2.0-only
//! The profile as a file: measured constants, and the built-in's where there are none, with a comment that says so.

use super::levels::{Costs, Found};
use super::machine::Machine;
use crate::Failure;
use anyhow::Context;
use hearth::limits::MAX_PROFILE_NS;
use hearth::profile::{Profile, Scope};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The name that the written profile gives itself.
const NAME: &str = "measured";
/// Levels that no probe of ours can see.
const UNSEEN: &str = "no probe measures it";

/// The built-in profile that fills the gaps on such a machine.
///
/// # Errors
/// If this build has none of the two: a defect.
pub fn stand_in(machine: &Machine) -> Result<Profile, Failure> {
    let name = if machine.llcs > 1 { "zen-chiplet" } else { "monolithic" };
    Profile::built_in(name).ok_or_else(|| Failure::failed(format!("there is no built-in profile {name}")))
}

/// The text of the profile.
pub fn text(costs: &Costs, machine: &Machine, built_in: &Profile, date: &str, seconds: u64) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let cpus = &machine.cpus;
    let others: String = [cpus.near, cpus.far].iter().flatten().map(|cpu| format!(" and {cpu}")).collect();
    let source = format!(
        "hearth calibrate, {date}, {seconds} s on CPU {}{others}, {}, Linux {}",
        cpus.home, machine.model, machine.kernel
    );
    let mut out = String::from("# Written by `hearth calibrate`. What the numbers mean: docs/calibrate.md\n");
    out += &format!("name = {}\n", quoted(NAME));
    out += &format!("about = {}\n", quoted(&format!("measured on {}", machine.model)));
    out += &format!("source = {}\n", quoted(&source));
    out += &entry("switch_ns", costs.switch_ns, built_in.switch_ns, &built_in.name);
    out += &entry("wake_ns", costs.wake_ns, built_in.wake_ns, &built_in.name);
    out += &format!("# Not measured ({UNSEEN}): the number of {}.\n", built_in.name);
    out += &format!("neighbour_pct = {}\n", built_in.neighbour_pct);
    for level in &built_in.levels {
        let cost = costs.levels.iter().find(|cost| cost.level.name() == level.name);
        let found = |pick: fn(&super::levels::LevelCost) -> Found| cost.map_or(Err(UNSEEN), pick);
        let scope = match level.scope {
            Scope::Cpu => "cpu",
            Scope::Llc => "llc",
        };
        out += &format!("\n[[levels]]\nname = {}\nscope = \"{scope}\"\n", quoted(&level.name));
        out += &entry("fill_ns", found(|cost| cost.fill_ns), level.fill_ns, &built_in.name);
        out += &entry("evict_ns", found(|cost| cost.evict_ns), level.evict_ns, &built_in.name);
        out += &entry("refill_ns", found(|cost| cost.refill_ns), level.refill_ns, &built_in.name);
    }
    out
}

fn entry(key: &str, found: Found, stand_in: u64, of: &str) -> String {
    match found {
        Ok(ns) => format!("{key} = {}\n", (ns.round() as u64).clamp(1, MAX_PROFILE_NS)),
        Err(why) => format!("# Not measured ({why}): the number of {of}.\n{key} = {stand_in}\n"),
    }
}

/// Where the profile goes, checked before anything is measured.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    force: bool,
}

impl Target {
    /// Checks that the file may and can be written, and leaves nothing behind.
    ///
    /// # Errors
    /// A usage error that names the file: it is there already, is no regular file, or its directory cannot be written.
    pub fn new(path: &Path, force: bool) -> Result<Self, Failure> {
        let refuse = |why: &str| Failure::usage(format!("--out {}: {why}", path.display()));
        let target = match fs::symlink_metadata(path) {
            // The file that a link leads to is replaced, not the link.
            Ok(_) => {
                let real = fs::canonicalize(path).map_err(|e| refuse(&e.to_string()))?;
                if !real.is_file() {
                    return Err(refuse("is no regular file"));
                }
                if !force {
                    return Err(refuse("is there already; --force overwrites it"));
                }
                Self { path: real, force }
            }
            Err(_) => Self { path: path.to_path_buf(), force },
        };
        let dir = target.directory();
        target
            .open()
            .map_err(|e| refuse(&format!("cannot create a file in {}: {}", dir.display(), e.kind())))?;
        Ok(target)
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn open(&self) -> std::io::Result<tempfile::NamedTempFile> {
        // As a program's ordinary file: what the umask leaves.
        tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(self.directory())
    }

    /// Writes the file in one step: it is there as a whole, or not at all.
    ///
    /// # Errors
    /// If the disk is full, or somebody else wrote the file meanwhile.
    pub fn write(&self, text: &str) -> Result<PathBuf, Failure> {
        let path = &self.path;
        let what = || format!("cannot write {}", path.display());
        let mut file = self.open().with_context(what)?;
        file.write_all(text.as_bytes()).with_context(what)?;
        let done = if self.force { file.persist(path) } else { file.persist_noclobber(path) };
        done.map_err(|e| e.error).with_context(what)?;
        Ok(fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::levels::tests::{machine, results};
    use super::super::plan::Results;
    use super::*;

    fn written(results: &Results) -> (String, Profile) {
        let machine = machine();
        let built_in = stand_in(&machine).unwrap();
        let text = text(&Costs::of(results, &machine), &machine, &built_in, "2026-12-01T00:00:00Z", 40);
        let profile = Profile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        (text, profile)
    }

    #[test]
    fn the_text_is_a_profile_with_the_levels_of_the_built_in() {
        let (text, profile) = written(&results(&machine()));
        let built_in = stand_in(&machine()).unwrap();
        let names = |profile: &Profile| -> Vec<_> {
            profile.levels.iter().map(|level| (level.name.clone(), level.scope)).collect()
        };
        assert_eq!(names(&profile), names(&built_in));
        assert_eq!((profile.switch_ns, profile.wake_ns), (1_600, 4_500));
        assert_eq!(profile.levels[1].refill_ns, 27_307);
        assert!(
            profile
                .source
                .contains("2026-12-01T00:00:00Z, 40 s on CPU 1 and 0, Example \"CPU\" 9, Linux 7.3.4")
        );
        // predictor and user have three numbers each, and the neighbours one.
        assert_eq!(
            text.matches("# Not measured (no probe measures it): the number of monolithic.\n").count(),
            7
        );
        assert_eq!(profile.levels[3], built_in.levels[3]);
    }

    #[test]
    fn without_measurements_it_is_the_built_in_and_says_so() {
        let (text, profile) = written(&Results::default());
        let built_in = stand_in(&machine()).unwrap();
        assert_eq!((profile.switch_ns, &profile.levels), (built_in.switch_ns, &built_in.levels));
        assert_eq!(text.matches("# Not measured (").count(), 3 + 3 * built_in.levels.len());
    }

    #[test]
    fn a_file_is_overwritten_only_by_force_and_only_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.toml");
        Target::new(&path, false).unwrap().write("one").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        let refused = Target::new(&path, false).unwrap_err();
        assert_eq!(refused.code(), crate::USAGE);
        assert!(refused.to_string().ends_with("is there already; --force overwrites it"), "{refused}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Target::new(&link, true).unwrap().write("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert!(link.is_symlink());
        for odd in
            [dir.path(), Path::new("/dev/null"), Path::new("/nonexistent/p.toml"), Path::new("/proc/p")]
        {
            assert_eq!(Target::new(odd, true).unwrap_err().code(), crate::USAGE, "{odd:?}");
        }
        let entries = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(entries, 2, "checking leaves nothing behind");
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.toml");
        let target = Target::new(&path, false).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(target.write("new").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
