// SPDX-License-Identifier: GPL-2.0-only
//! Which packages hold the lab's kernel: names move with every version, so they are read from the package index.

use std::collections::BTreeMap;

/// The package that always depends on the newest kernel of the small flavour for virtual machines.
const META: &str = "linux-image-cloud-amd64";
const FLAVOUR: &str = "-cloud-amd64";

/// Where a kernel is found in the archive.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelPackages {
    /// What `uname -r` will say.
    pub release: String,
    /// The packages to download: one with the image, one (perhaps the same) with its configuration.
    pub names: Vec<String>,
}

/// Finds the newest kernel of an index, or the newest of a series such as `7.2`.
pub fn resolve(index: &str, series: Option<&str>) -> Option<KernelPackages> {
    let depends = parse(index);
    let release = match series {
        None => newest_by_meta(&depends)?,
        Some(series) => newest_of_series(&depends, series)?,
    };
    let first = |prefixes: &[&str]| {
        prefixes.iter().map(|prefix| format!("{prefix}{release}")).find(|name| depends.contains_key(name))
    };
    // Older kernels keep image and configuration in one linux-image package.
    let image = first(&["linux-binary-", "linux-image-"])?;
    let config = first(&["linux-base-"]).unwrap_or_else(|| image.clone());
    let mut names = vec![image, config];
    names.dedup();
    Some(KernelPackages { release, names })
}

/// Package name to the text of its `Depends` field.
fn parse(index: &str) -> BTreeMap<String, String> {
    let mut depends = BTreeMap::new();
    for stanza in index.split("\n\n") {
        let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if let Some(package) = field("Package:") {
            depends.insert(package.to_string(), field("Depends:").unwrap_or_default().to_string());
        }
    }
    depends
}

fn newest_by_meta(depends: &BTreeMap<String, String>) -> Option<String> {
    let wanted = depends.get(META)?;
    let names = wanted.split(',').filter_map(|entry| entry.split_whitespace().next());
    let releases = names.filter_map(|name| name.strip_prefix("linux-image-"));
    releases.filter(|release| release.starts_with(|c: char| c.is_ascii_digit())).map(str::to_string).next()
}

fn newest_of_series(depends: &BTreeMap<String, String>, series: &str) -> Option<String> {
    let prefixes = ["linux-binary-", "linux-image-"];
    let releases =
        depends.keys().filter_map(|name| prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)));
    let fits = |release: &&str| {
        let rest = release.strip_prefix(series);
        release.ends_with(FLAVOUR) && rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    releases.filter(fits).max_by_key(|release| numbers(release)).map(str::to_string)
}

/// The numbers in a release, for comparing: `7.2.11+deb13` is later than `7.2.9+deb13`.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "\
Package: linux-image-cloud-amd64
Version: 7.3.4-1~bpo13+1
Depends: linux-base-cloud-amd64 (= 7.3.4-1), linux-image-7.3.4+deb13-cloud-amd64 (= 7.3.4-1~bpo13+1)

Package: linux-binary-7.3.4+deb13-cloud-amd64
Version: 7.3.4-1~bpo13+1

Package: linux-base-7.3.4+deb13-cloud-amd64
Version: 7.3.4-1~bpo13+1

Package: linux-binary-7.2.9+deb13-cloud-amd64

Package: linux-base-7.2.9+deb13-cloud-amd64

Package: linux-binary-7.2.11+deb13-cloud-amd64

Package: linux-base-7.2.11+deb13-cloud-amd64

Package: linux-binary-7.2.12+deb13-amd64

Package: linux-binary-7.20.1+deb13-cloud-amd64

Package: linux-image-6.16.3-cloud-amd64
Depends: kmod
";

    #[test]
    fn the_meta_package_names_the_newest() {
        let found = resolve(INDEX, None).unwrap();
        assert_eq!(found.release, "7.3.4+deb13-cloud-amd64");
        assert_eq!(
            found.names,
            ["linux-binary-7.3.4+deb13-cloud-amd64", "linux-base-7.3.4+deb13-cloud-amd64"]
        );
    }

    #[test]
    fn a_series_compares_numbers_and_keeps_to_the_flavour() {
        assert_eq!(resolve(INDEX, Some("7.2")).unwrap().release, "7.2.11+deb13-cloud-amd64");
        assert_eq!(resolve(INDEX, Some("7.9")), None);
    }

    #[test]
    fn an_older_kernel_has_one_package() {
        assert_eq!(resolve(INDEX, Some("6.16")).unwrap().names, ["linux-image-6.16.3-cloud-amd64"]);
        assert_eq!(resolve("", None), None);
    }
}
