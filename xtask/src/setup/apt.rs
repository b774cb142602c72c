// SPDX-License-Identifier: GPL-2.0-only
//! Debian's package tool, also with suites that the system does not have.
//!
//! A suite that the system lacks (backports, sid) is read through a private sources list and a private lists folder, so
//! that nothing is added to the system. The mirror is the system's own, and so are proxies and signature checks.

use crate::fail::failed;
use crate::proc;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's own redirector, used where the system's sources name no usable Debian archive.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// What `apt-get indextargets` is asked to print for each index, in the order of [`Target`]'s fields.
const TARGET_FORMAT: &str = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)";

/// One package index that the system's sources name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    origin: Option<String>,
    uri: String,
    release: String,
    component: String,
    signed_by: Option<String>,
}

/// Reads the answer to [`TARGET_FORMAT`]. Unknown fields stay literally `$(NAME)` in apt's answer.
fn parse_targets(text: &str) -> Vec<Target> {
    let known = |field: &str| (!field.is_empty() && !field.starts_with("$(")).then(|| field.to_string());
    let target = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        let [origin, uri, release, component, signed_by] = fields[..] else { return None };
        Some(Target {
            origin: known(origin),
            uri: known(uri)?.trim_end_matches('/').to_string(),
            release: known(release)?.trim_end_matches('/').to_string(),
            component: known(component)?,
            signed_by: known(signed_by),
        })
    };
    text.lines().filter_map(target).collect()
}

impl Target {
    /// Before the first `apt-get update` no origin is known, and the address has to do.
    fn is_debian(&self) -> bool {
        match &self.origin {
            Some(origin) => origin.starts_with("Debian"),
            None => self.uri.ends_with("/debian") || self.uri.ends_with("/debian-security"),
        }
    }

    fn is_main_archive(&self) -> bool {
        let fetched = self.uri.starts_with("http://") || self.uri.starts_with("https://");
        self.is_debian() && fetched && !self.release.contains("security")
    }

    fn source_line(&self) -> String {
        source_line(&self.uri, &self.release, &self.component, self.signed_by.as_deref())
    }
}

fn source_line(uri: &str, release: &str, component: &str, signed_by: Option<&str>) -> String {
    let default = || Path::new(KEYRING).exists().then_some(KEYRING);
    let key = signed_by.or_else(default).map(|key| format!("[signed-by={key}] ")).unwrap_or_default();
    format!("deb {key}{uri} {release} {component}\n")
}

/// The lines of a private sources list: `suite` from the system's Debian mirror, and the system's own Debian suites
/// beside it when its packages must be installable here.
fn private_sources(targets: &[Target], suite: &str, with_system: bool) -> String {
    let main = targets.iter().find(|target| target.is_main_archive());
    let (uri, key) =
        main.map_or((DEFAULT_MIRROR, None), |target| (target.uri.as_str(), target.signed_by.as_deref()));
    let mut lines = vec![source_line(uri, suite, "main", key)];
    if with_system {
        lines.extend(targets.iter().filter(|target| target.is_debian()).map(Target::source_line));
    }
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    lines.concat()
}

/// Whether this system has apt at all.
pub fn available() -> bool {
    proc::which("apt-get").is_some() && proc::which("dpkg-deb").is_some()
}

/// A way to call apt: with the system's configuration, or with a private list of suites.
pub struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// The system's own sources.
    pub fn system() -> Self {
        Self { options: Vec::new() }
    }

    /// `suite` of the system's mirror, with lists and downloads under `dir`. `with_system` adds the system's own Debian
    /// suites, which installing needs and downloading does not.
    pub fn private(dir: &Path, suite: &str, with_system: bool) -> Result<Self> {
        let text = proc::stdout(Command::new("apt-get").args([
            "indextargets",
            "--format",
            TARGET_FORMAT,
            "Created-By: Packages",
        ]))?;
        for sub in ["lists/partial", "cache/archives/partial"] {
            let path = dir.join(sub);
            std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        let list = dir.join("sources.list");
        std::fs::write(&list, private_sources(&parse_targets(&text), suite, with_system))
            .with_context(|| format!("cannot write {}", list.display()))?;
        let options = vec![
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=/dev/null".to_string(),
            "Dir::Etc::preferences=/dev/null".to_string(),
            "Dir::Etc::preferencesparts=/dev/null".to_string(),
            format!("Dir::State::lists={}", dir.join("lists").display()),
            format!("Dir::Cache={}", dir.join("cache").display()),
            "Dir::Cache::pkgcache=".to_string(),
            "Dir::Cache::srcpkgcache=".to_string(),
            "Acquire::Languages=none".to_string(),
            // The private folder belongs to the caller: apt's own download user could not write there.
            "APT::Sandbox::User=root".to_string(),
            // Without this an unreachable mirror is only a warning.
            "APT::Update::Error-Mode=any".to_string(),
        ];
        Ok(Self { options })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        for option in ["Acquire::Retries=2", "DPkg::Lock::Timeout=300", "Dpkg::Use-Pty=0"] {
            command.args(["-o", option]);
        }
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    fn run(&self, args: &[&str], dir: Option<&Path>) -> Result<()> {
        let mut command = self.command();
        command.args(args);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let output = proc::capture(&mut command)?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(format!("apt-get {} failed; its last lines:\n{}", args.join(" "), output.tail(12))))
    }

    /// Fetches the package lists.
    pub fn update(&self) -> Result<()> {
        self.run(&["update"], None)
    }

    /// Installs packages (`name` or `name/suite`) without recommended ones; asks nothing.
    pub fn install(&self, packages: &[&str]) -> Result<()> {
        self.run(&[&["install", "-y", "-q", "--no-install-recommends"], packages].concat(), None)
    }

    /// Downloads packages, checked against the signed index, into `dir`.
    pub fn download(&self, packages: &[&str], dir: &Path) -> Result<()> {
        self.run(&[&["download", "-q"], packages].concat(), Some(dir))
    }

    /// The text of all package indexes that were fetched.
    pub fn packages_index(&self) -> Result<String> {
        let mut ask = self.command();
        ask.args(["indextargets", "--format", "$(FILENAME)", "Created-By: Packages"]);
        let files: Vec<PathBuf> = proc::stdout(&mut ask)?.lines().map(PathBuf::from).collect();
        // Lists may be stored compressed; apt's helper knows every form.
        proc::stdout(Command::new("/usr/lib/apt/apt-helper").arg("cat-file").args(files))
    }
}

/// Whether the system's package lists were never fetched (a fresh container).
pub fn lists_are_empty() -> bool {
    let entries = std::fs::read_dir("/var/lib/apt/lists").map(|dir| dir.flatten().collect::<Vec<_>>());
    !entries.unwrap_or_default().iter().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "\
Google|http://packages.example/apt/|cloud-sdk|main|/etc/key.gpg
Debian|http://mirror.example/debian-security/|bookworm-security|main|$(SIGNED_BY)
Debian|http://mirror.example/debian/|bookworm|main|/usr/share/keyrings/own.gpg
Debian|http://mirror.example/debian/|bookworm|main|/usr/share/keyrings/own.gpg
garbage
";

    #[test]
    fn the_mirror_is_the_systems_own() {
        let list = private_sources(&parse_targets(TARGETS), "trixie-backports", false);
        assert_eq!(
            list,
            "deb [signed-by=/usr/share/keyrings/own.gpg] http://mirror.example/debian trixie-backports main\n"
        );
    }

    #[test]
    fn installing_sees_debian_suites_once_and_nothing_else() {
        let list = private_sources(&parse_targets(TARGETS), "bookworm-backports", true);
        assert_eq!(list.lines().count(), 3, "{list}");
        assert!(list.contains("bookworm-security main") && !list.contains("packages.example"), "{list}");
    }

    #[test]
    fn before_the_first_update_the_address_decides() {
        let text = "$(ORIGIN)|http://deb.debian.org/debian/|trixie|main|$(SIGNED_BY)\n";
        let targets = parse_targets(text);
        assert!(targets[0].is_main_archive());
        assert!(private_sources(&[], "sid", false).contains(DEFAULT_MIRROR));
    }
}
