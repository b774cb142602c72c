// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's CPU list format: `0`, `0,2`, `0-3,8`.

use super::TopologyError;
use crate::ids::CpuId;
use std::fmt::Write;
use std::path::Path;

/// Largest CPU number that a list may hold: far above any kernel's limit (8192), and small enough that a corrupt
/// range cannot eat the memory.
const MAX_LISTED_ID: u32 = 65_535;

/// Parses a CPU list: ascending, each CPU once. Trailing newlines and NULs are ignored, as some files have them.
///
/// # Errors
/// One line that says what is wrong, for the caller to put the file name before. An empty list is an error.
pub fn parse_cpu_list(text: &str) -> Result<Vec<CpuId>, String> {
    let list = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    if list.is_empty() {
        return Err("the CPU list is empty".into());
    }
    let mut ids = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_id(first, list)?, parse_id(last, list)?);
        if first > last {
            return Err(format!("range {part:?} runs backwards in CPU list {list:?}"));
        }
        ids.extend((first..=last).map(CpuId));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn parse_id(text: &str, list: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(id) if id <= MAX_LISTED_ID => Ok(id),
        Ok(id) => Err(format!("CPU number {id} in list {list:?} is beyond any kernel's limit")),
        Err(_) => Err(format!("{text:?} is no CPU number in list {list:?}")),
    }
}

/// Reads and parses a file that holds a CPU list.
///
/// # Errors
/// [`TopologyError::Read`] or [`TopologyError::CpuList`]; both name the file.
pub fn read_cpu_list(path: &Path) -> Result<Vec<CpuId>, TopologyError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TopologyError::Read { path: path.to_path_buf(), source })?;
    parse_cpu_list(&text).map_err(|what| TopologyError::CpuList { path: path.to_path_buf(), what })
}

/// The shortest list for ascending CPUs: `0-3,8`. Empty for none.
#[must_use]
pub fn format_cpu_list(ids: &[CpuId]) -> String {
    let mut out = String::new();
    for run in ids.chunk_by(|a, b| a.0 + 1 == b.0) {
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let comma = if out.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match last - first {
            0 => write!(out, "{comma}{first}"),
            1 => write!(out, "{comma}{first},{last}"),
            _ => write!(out, "{comma}{first}-{last}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<u32> {
        parse_cpu_list(text).unwrap().into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(parsed("0"), [0]);
        assert_eq!(parsed("0\n"), [0]);
        assert_eq!(parsed("0-1\0"), [0, 1]);
        assert_eq!(parsed("0,2\n\0"), [0, 2]);
        assert_eq!(parsed("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(parsed("8,0-3,2"), [0, 1, 2, 3, 8]);
    }

    #[test]
    fn bad_lists_say_what_is_wrong() {
        for (text, part) in [
            ("", "empty"),
            ("\n\0", "empty"),
            ("0,,2", "\"\" is no CPU number"),
            ("3-1", "backwards"),
            ("a", "\"a\" is no CPU number"),
            ("-1", "is no CPU number"),
            ("0-4294967295", "beyond any kernel's limit"),
        ] {
            let error = parse_cpu_list(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn formatting_undoes_parsing() {
        for list in ["0", "0,2", "0-3,8", "0,1,4-6,9", "7"] {
            assert_eq!(format_cpu_list(&parse_cpu_list(list).unwrap()), list);
        }
        assert_eq!(format_cpu_list(&[]), "");
    }
}
