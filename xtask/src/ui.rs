// SPDX-License-Identifier: GPL-2.0-only
//! Progress: a spinner on a terminal, one plain line per step elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// One step that may take longer than a second. Dropping it clears the spinner.
pub struct Step {
    bar: Option<ProgressBar>,
}

impl Step {
    /// Shows `what` until the step is dropped.
    pub fn start(what: impl Into<String>) -> Self {
        let what = what.into();
        if !std::io::stderr().is_terminal() {
            eprintln!("- {what}");
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar: Some(bar) }
    }

    /// Replaces the text of the spinner; elsewhere a step keeps its one line.
    pub fn update(&self, what: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.into());
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
