// SPDX-License-Identifier: GPL-2.0-only
//! `hearth policies`: what `hearth run --policy` takes.

use super::{complain, print, print_json};
use anyhow::Result;
use hearth::doctor::Exit;
use hearth::policy::registry::{self, PolicySpec};
use serde_json::json;

/// Arguments of `hearth policies`.
#[derive(clap::Args)]
pub struct Args {
    /// Describe this policy only
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the list.
pub fn run(args: &Args) -> Result<Exit> {
    let wanted = |spec: &&PolicySpec| args.name.as_ref().is_none_or(|name| name == spec.name);
    let found: Vec<&PolicySpec> = registry::list().filter(wanted).collect();
    if let (true, Some(name)) = (found.is_empty(), &args.name) {
        let known: Vec<&str> = registry::list().map(|spec| spec.name).collect();
        complain(&format!("there is no policy {name:?}; known are: {}", known.join(", ")));
        return Ok(Exit::Usage);
    }
    if args.json {
        let rows = found.iter().map(|spec| json!({ "name": spec.name, "about": spec.about }));
        print_json(&rows.collect())?;
    } else {
        let width = found.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
        let rows = found.iter().map(|spec| format!("{:width$}  {}", spec.name, spec.about));
        print(&rows.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Exit::Ok)
}
