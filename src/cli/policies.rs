// SPDX-License-Identifier: GPL-2.0-only
//! `hearth policies`: what `hearth run --policy` takes.

use super::{complain, print, print_json};
use anyhow::Result;
use hearth::doctor::Exit;
use hearth::policy::params::Param;
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
        let rows = found.iter().map(|spec| {
            let param = |p: &Param| {
                json!({ "name": p.name, "about": p.about, "default": p.default,
                                            "min": p.range.start(), "max": p.range.end() })
            };
            json!({ "name": spec.name, "about": spec.about,
                    "parameters": spec.params.iter().map(param).collect::<Vec<_>>() })
        });
        print_json(&rows.collect())?;
    } else {
        let width = found.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
        let rows = found.iter().map(|spec| format!("{:width$}  {}", spec.name, spec.about));
        let mut text = rows.collect::<Vec<_>>().join("\n");
        if let (Some(_), [spec]) = (&args.name, found.as_slice()) {
            text.push_str(&parameters(spec));
        }
        print(&text)?;
    }
    Ok(Exit::Ok)
}

/// The table of a policy's parameters, and how to set them.
fn parameters(spec: &PolicySpec) -> String {
    if spec.params.is_empty() {
        return "\n\nIt has no parameters.".into();
    }
    let width = spec.params.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let rows = spec.params.iter().map(|p| {
        let range = format!("{} to {}", p.range.start(), p.range.end());
        format!("  {:width$}  default {:<8} {range:<16} {}", p.name, p.default, p.about)
    });
    let first = &spec.params[0];
    format!(
        "\n\nParameters (--policy {}:{}={}):\n{}",
        spec.name,
        first.name,
        first.default,
        rows.collect::<Vec<_>>().join("\n")
    )
}
