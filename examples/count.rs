// SPDX-License-Identifier: GPL-2.0-only
//! Makes decisions, to be counted: `valgrind --tool=callgrind` on this program with two numbers of rounds gives, by
//! difference, the instructions of a decision. Arguments: policy, CPUs, tasks, rounds. Prints the number of decisions.

#[path = "../benches/load/mod.rs"]
mod load;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [policy, cpus, tasks, rounds] = args.as_slice() else {
        anyhow::bail!("usage: count POLICY CPUS TASKS ROUNDS");
    };
    let number = |text: &str| text.parse::<u32>().with_context(|| format!("not a number: {text}"));
    let mut load = load::Load::new(number(cpus)?, number(tasks)?, policy, 16);
    let decisions: usize = (0..number(rounds)?).map(|_| load.round()).sum();
    println!("{decisions}");
    Ok(())
}
