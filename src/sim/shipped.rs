// SPDX-License-Identifier: GPL-2.0-only
//! The scenarios that are part of the program: `hearth sim NAME` needs no file.

/// Name and text of each, in the order of the list.
macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// All of `scenarios/`.
static SHIPPED: &[(&str, &str)] = shipped![
    "cache-25",
    "cache-55",
    "cache-96",
    "cache-4x",
    "edge-router",
    "edge-router-25",
    "queue-short",
    "queue-long",
    "overrun",
    "local-queue",
    "ping-pong",
    "fork-storm",
    "mixed",
    "schbench-1",
    "schbench-4",
    "schbench-16",
    "hackbench",
];

/// The text of a shipped scenario.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Name and text of every shipped scenario.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    #[test]
    fn the_list_is_the_directory_and_all_can_be_read() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| Some(name.strip_suffix(".toml")?.to_string()))
            .collect();
        let mut listed: Vec<&str> = all().map(|(name, _)| name).collect();
        files.sort();
        listed.sort_unstable();
        assert_eq!(files, listed, "src/sim/shipped.rs lists what is in scenarios/");
        for (name, text) in all() {
            let scenario = Scenario::parse(text, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(scenario.name, name);
            assert!(
                !scenario.about.is_empty() && !scenario.lesson.is_empty(),
                "{name} says what it is and teaches"
            );
        }
    }
}
