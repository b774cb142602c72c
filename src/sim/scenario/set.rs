// SPDX-License-Identifier: GPL-2.0-only
//! Changes to a scenario before it is read: `--set key=value`, and the tables that presets and profiles stand for.

use super::Problem;
use toml::{Table, Value};

/// Carries out one `key=value`. The key is a dotted path; members of a list are named by their `name` or number.
pub(super) fn apply(table: &mut Table, set: &str) -> Result<(), Problem> {
    let Some((key, value)) = set.split_once('=') else {
        return Err(Problem::new(set, "give it as key=value, for example machine.llcs=4"));
    };
    let (key, value) = (key.trim(), parse(value.trim()));
    let path: Vec<&str> = key.split('.').collect();
    let Some((last, way)) = path.split_last().filter(|(last, _)| !last.is_empty()) else {
        return Err(Problem::new(set, "has no key before the ="));
    };
    let mut at = table;
    let mut way = way.iter().peekable();
    while let Some(part) = way.next() {
        let entry = at.entry(*part).or_insert_with(|| Value::Table(Table::new()));
        at = match entry {
            Value::Table(inner) => inner,
            Value::Array(list) => {
                let Some(member) = way.next() else {
                    return Err(Problem::new(key, format!("{part} is a list: name one of its members")));
                };
                descend(list, member).ok_or_else(|| {
                    Problem::new(key, format!("{part} has no member {member:?}: give its name or its number"))
                })?
            }
            _ => return Err(Problem::new(key, format!("{part} is a value, not a table"))),
        };
    }
    at.insert((*last).to_string(), value);
    Ok(())
}

fn descend<'a>(list: &'a mut [Value], member: &str) -> Option<&'a mut Table> {
    let named = |value: &Value| value.get("name").and_then(Value::as_str) == Some(member);
    let index = list.iter().position(named).or_else(|| member.parse().ok())?;
    list.get_mut(index)?.as_table_mut()
}

/// A TOML value, or else a plain string.
fn parse(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    parsed.ok().and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.into()))
}

/// If `table.section.name_key` names a preset, puts the preset's keys where the section has none of its own.
pub(super) fn fill_in(
    table: &mut Table,
    section: &str,
    name_key: &str,
    preset: impl Fn(&str) -> Result<Result<Table, toml::ser::Error>, String>,
) -> Result<(), Problem> {
    let Some(own) = table.get_mut(section).and_then(Value::as_table_mut) else { return Ok(()) };
    let Some(name) = own.get(name_key).and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let key = format!("{section}.{name_key}");
    let base = preset(name)
        .map_err(|known| Problem::new(&key, format!("there is no {name:?}; known are: {known}")))?
        .map_err(|e| Problem::new(&key, e.to_string()))?;
    let changes = std::mem::replace(own, base);
    merge(own, changes);
    Ok(())
}

fn merge(base: &mut Table, changes: Table) {
    for (key, value) in changes {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(more)) => merge(inner, more),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
