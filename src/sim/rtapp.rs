// SPDX-License-Identifier: GPL-2.0-only
//! rt-app's JSON as a scenario: the common part of it. Whatever has no counterpart is refused with its key, never ignored,
//! unless it only concerns logs.
//!
//! What is different: a `timer` becomes a sleep for what its period leaves after the work before it, so a late task falls
//! behind for good (rt-app's absolute timers catch up); `runtime` is work like `run`, longer on a slower CPU.

mod json;

use super::scenario::{Dist, Fork, Loop, Phase, Plain, Problem, Scenario, TaskGroup, To, Wait, Who};
use json::Json;

/// How long is measured if the file says "until all tasks have ended".
const DEFAULT_DURATION_MS: f64 = 10_000.0;

/// Keys that change nothing in a simulation.
const IGNORED: [&str; 14] = [
    "calibration",
    "ftrace",
    "logdir",
    "log_basename",
    "log_size",
    "gnuplot",
    "lock_pages",
    "pi_enabled",
    "cumulative_slack",
    "io_device",
    "mem_buffer_size",
    "frag",
    "util_min",
    "util_max",
];

/// Reads rt-app's JSON. `name` is the scenario's name.
///
/// # Errors
/// If it is not JSON, or has something that the simulator does not know: with its key.
pub fn convert(text: &str, name: &str) -> Result<Scenario, Problem> {
    let Json::Object(members) = json::parse(text).map_err(|e| Problem::new("JSON", e.to_string()))? else {
        return Err(Problem::new("JSON", "the file is not an object with \"tasks\""));
    };
    let mut scenario = Scenario {
        name: name.into(),
        about: "from an rt-app file".into(),
        warmup_ms: 0.0,
        duration_ms: DEFAULT_DURATION_MS,
        ..Scenario::default()
    };
    let mut groups = Groups::default();
    for (key, value) in &members {
        match (key.as_str(), value) {
            ("global", Json::Object(global)) => read_global(&mut scenario, global)?,
            ("tasks", Json::Object(tasks)) => {
                groups.names = tasks.iter().map(|(name, _)| name.clone()).collect();
                for (name, task) in tasks {
                    scenario.task.push(groups.task(name, task)?);
                }
            }
            ("resources", _) => {}
            _ => return Err(unknown(key)),
        }
    }
    forked_from_the_start(&mut scenario);
    scenario.check()?;
    Ok(scenario)
}

fn unknown(key: &str) -> Problem {
    Problem::new(key, "has no counterpart in the simulator: take it out, or write the scenario as TOML")
}

fn read_global(scenario: &mut Scenario, global: &[(String, Json)]) -> Result<(), Problem> {
    for (key, value) in global {
        let path = format!("global.{key}");
        match key.as_str() {
            "duration" => {
                let seconds = number(&path, value)?;
                if seconds > 0.0 {
                    scenario.duration_ms = 1000.0 * seconds;
                }
            }
            "default_policy" => check_policy(&path, value)?,
            key if IGNORED.contains(&key) => {}
            _ => return Err(unknown(&path)),
        }
    }
    Ok(())
}

/// A task that somebody forks does not exist from the start.
fn forked_from_the_start(scenario: &mut Scenario) {
    let mut forked = Vec::new();
    scenario.task.iter().for_each(|group| collect_forked(&group.phases, &mut forked));
    for group in scenario.task.iter_mut().filter(|group| forked.contains(&group.name)) {
        group.count = 0;
    }
}

fn collect_forked(phases: &[Phase], forked: &mut Vec<String>) {
    for phase in phases {
        match phase {
            Phase::Fork(fork) => forked.push(fork.group.clone()),
            Phase::Loop(inner) => collect_forked(&inner.phases, forked),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Groups {
    names: Vec<String>,
    cgroups: Vec<String>,
}

impl Groups {
    fn task(&mut self, name: &str, task: &Json) -> Result<TaskGroup, Problem> {
        let path = format!("tasks.{name}");
        let Json::Object(members) = task else { return Err(Problem::new(&path, "is not an object")) };
        let mut group = TaskGroup { name: name.into(), inbox: 0, ..TaskGroup::default() };
        let mut events = Vec::new();
        for (key, value) in members {
            let at = format!("{path}.{key}");
            match key.as_str() {
                "instance" => group.count = whole(&at, value)?,
                "delay" => group.start = Dist::FixedUs(number(&at, value)?),
                "loop" => group.rounds = rounds(&at, value)?.unwrap_or(0),
                "policy" => check_policy(&at, value)?,
                "priority" | "nice" => group.weight = weight(number(&at, value)?),
                "cpus" => group.cpus = cpus(&at, value)?,
                "taskgroup" => group.cgroup = self.cgroup(&at, value)?,
                "phases" => group.phases = self.phases(&at, value)?,
                key if IGNORED.contains(&key) => {}
                _ => events.push((key.clone(), value.clone())),
            }
        }
        if !events.is_empty() {
            group.phases.extend(self.events(&path, &events)?);
        }
        Ok(group)
    }

    fn cgroup(&mut self, path: &str, value: &Json) -> Result<u64, Problem> {
        let Json::Text(name) = value else { return Err(Problem::new(path, "is not a text")) };
        if name.is_empty() {
            return Ok(1);
        }
        let known = self.cgroups.iter().position(|group| group == name);
        let at = known.unwrap_or_else(|| {
            self.cgroups.push(name.clone());
            self.cgroups.len() - 1
        });
        Ok(at as u64 + 2)
    }

    fn phases(&self, path: &str, value: &Json) -> Result<Vec<Phase>, Problem> {
        let Json::Object(phases) = value else { return Err(Problem::new(path, "is not an object")) };
        let phase = |(name, phase): &(String, Json)| {
            let path = format!("{path}.{name}");
            let Json::Object(members) = phase else { return Err(Problem::new(&path, "is not an object")) };
            let mut count = Some(1);
            let mut events = Vec::new();
            for (key, value) in members {
                match key.as_str() {
                    "loop" => count = rounds(&format!("{path}.loop"), value)?,
                    key if IGNORED.contains(&key) => {}
                    _ => events.push((key.clone(), value.clone())),
                }
            }
            let phases = self.events(&path, &events)?;
            Ok(Phase::Loop(Loop { count: count.unwrap_or(u32::MAX), phases }))
        };
        phases.iter().map(phase).collect()
    }

    /// The events of a phase, in their order. Names may end in anything after the event's own name, as rt-app has it.
    fn events(&self, path: &str, events: &[(String, Json)]) -> Result<Vec<Phase>, Problem> {
        let mut phases = Vec::new();
        let mut work_us = 0.0;
        for (key, value) in events {
            let at = format!("{path}.{key}");
            phases.push(match event_of(key).ok_or_else(|| unknown(&at))? {
                "run" | "runtime" => {
                    let us = number(&at, value)?;
                    work_us += us;
                    Phase::Run(Dist::FixedUs(us))
                }
                "sleep" => Phase::Sleep(Dist::FixedUs(number(&at, value)?)),
                "timer" => {
                    let left_us = (period(&at, value)? - work_us).max(0.0);
                    work_us = 0.0;
                    Phase::Sleep(Dist::FixedUs(left_us))
                }
                "suspend" => Phase::Wait(Wait::default()),
                "resume" => Phase::Send(To { to: self.name(&at, value)?, who: Who::Pair }),
                "fork" => Phase::Fork(Fork { group: self.name(&at, value)?, count: 1 }),
                _ => Phase::Yield(Plain {}),
            });
        }
        Ok(phases)
    }

    fn name(&self, path: &str, value: &Json) -> Result<String, Problem> {
        match value {
            Json::Text(name) if self.names.contains(name) => Ok(name.clone()),
            _ => Err(Problem::new(
                path,
                format!("is not the name of a task; there are: {}", self.names.join(", ")),
            )),
        }
    }
}

/// Longer names first: `runtime0` is no `run`.
fn event_of(key: &str) -> Option<&'static str> {
    const EVENTS: [&str; 8] = ["runtime", "run", "sleep", "timer", "suspend", "resume", "fork", "yield"];
    EVENTS.into_iter().find(|event| {
        let rest = key.strip_prefix(event);
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
    })
}

fn number(path: &str, value: &Json) -> Result<f64, Problem> {
    match value {
        Json::Number(number) => Ok(*number),
        _ => Err(Problem::new(path, "is not a number")),
    }
}

fn whole(path: &str, value: &Json) -> Result<u32, Problem> {
    let number = number(path, value)?;
    let fits = number >= 0.0 && number <= f64::from(u32::MAX) && number.fract() == 0.0;
    if fits {
        Ok(number as u32)
    } else {
        Err(Problem::new(path, format!("{number} is not a whole number of 0 or more")))
    }
}

/// A number of rounds; none: endless.
fn rounds(path: &str, value: &Json) -> Result<Option<u32>, Problem> {
    match number(path, value)? {
        endless if endless < 0.0 => Ok(None),
        _ => match whole(path, value)? {
            0 => Err(Problem::new(path, "is 0: the task would do nothing; take it out")),
            rounds => Ok(Some(rounds)),
        },
    }
}

fn period(path: &str, value: &Json) -> Result<f64, Problem> {
    let Json::Object(members) = value else {
        return Err(Problem::new(path, "is not an object with a period"));
    };
    let period = members.iter().find(|(key, _)| key == "period");
    period.map_or_else(
        || Err(Problem::new(path, "has no period")),
        |(_, value)| number(&format!("{path}.period"), value),
    )
}

fn check_policy(path: &str, value: &Json) -> Result<(), Problem> {
    match value {
        Json::Text(name) if ["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE"].contains(&name.as_str()) => Ok(()),
        _ => Err(Problem::new(
            path,
            "only SCHED_OTHER tasks are scheduled by a policy; real-time load is [[interference]] in TOML",
        )),
    }
}

/// The weight of a nice value: a step is a quarter more or less.
fn weight(nice: f64) -> u32 {
    (100.0 * libm::pow(1.25, -nice)).round().clamp(1.0, 10_000.0) as u32
}

fn cpus(path: &str, value: &Json) -> Result<String, Problem> {
    let Json::Array(list) = value else { return Err(Problem::new(path, "is not a list of CPUs")) };
    let numbers: Result<Vec<String>, Problem> =
        list.iter().map(|cpu| Ok(whole(path, cpu)?.to_string())).collect();
    Ok(numbers?.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIGHT_AND_HEAVY: &str = r#"{
        /* light, then heavy */
        "global" : { "duration" : 2, "calibration" : "CPU0", "default_policy" : "SCHED_OTHER" },
        "tasks" : {
            "load" : { "instance" : 3, "delay" : 500, "priority" : -5, "cpus" : [0, 2], "loop" : 1, "phases" : {
                "z" : { "loop" : 10, "run" : 3000, "timer" : { "ref" : "unique", "period" : 30000 } },
                "a" : { "loop" : -1, "runtime0" : 27000, "sleep0" : 10, "run1" : 5, "resume" : "other" } } },
            "other" : { "suspend" : "", "run" : 10, "yield" : "", "fork" : "child" },
            "child" : { "loop" : 2, "run" : 7 },
        }
    }"#;

    #[test]
    fn the_common_part_becomes_a_scenario() {
        let s = convert(LIGHT_AND_HEAVY, "lh").unwrap();
        assert_eq!((s.name.as_str(), s.duration_ms, s.warmup_ms), ("lh", 2000.0, 0.0));
        let load = &s.task[0];
        assert_eq!((load.count, load.rounds, load.weight, load.cpus.as_str()), (3, 1, 305, "0,2"));
        let us = Dist::FixedUs;
        let first = Loop { count: 10, phases: vec![Phase::Run(us(3000.0)), Phase::Sleep(us(27_000.0))] };
        assert_eq!(load.phases[0], Phase::Loop(first));
        let send = Phase::Send(To { to: "other".into(), who: Who::Pair });
        let second = vec![Phase::Run(us(27_000.0)), Phase::Sleep(us(10.0)), Phase::Run(us(5.0)), send];
        assert_eq!(load.phases[1], Phase::Loop(Loop { count: u32::MAX, phases: second }));
        assert!(matches!(
            s.task[1].phases[..],
            [Phase::Wait(_), Phase::Run(_), Phase::Yield(_), Phase::Fork(_)]
        ));
        assert_eq!((s.task[2].count, s.task[2].rounds), (0, 2));
        // What was read is a scenario like any other.
        assert_eq!(Scenario::parse(&s.to_toml().unwrap(), &[]).unwrap(), s);
    }

    #[test]
    fn what_has_no_counterpart_is_named() {
        let task = |events: &str| format!("{{\"tasks\":{{\"a\":{{{events}}}}}}}");
        for (text, words) in [
            (task("\"run\":1,\"lock\":\"m\""), "tasks.a.lock: has no counterpart"),
            (
                task("\"phases\":{\"p\":{\"run\":1,\"cpus\":[1]}}"),
                "tasks.a.phases.p.cpus: has no counterpart",
            ),
            (task("\"memrun\":{}"), "tasks.a.memrun: has no"),
            (task("\"run\":\"x\""), "tasks.a.run: is not a number"),
            (task("\"run\":5,\"policy\":\"SCHED_FIFO\""), "tasks.a.policy: only SCHED_OTHER"),
            (task("\"run\":5,\"resume\":\"b\""), "tasks.a.resume: is not the name of a task; there are: a"),
            (task("\"run\":5,\"instance\":1.5"), "tasks.a.instance: 1.5 is not a whole number"),
            (task("\"run\":5,\"timer\":{}"), "tasks.a.timer: has no period"),
            (task("\"loop\":0,\"run\":5"), "tasks.a.loop: is 0"),
            (task(""), "task.0.phases: is empty"),
            ("[]".into(), "JSON: the file is not an object"),
            ("{".into(), "JSON: "),
            ("{\"tasks\":{},\"tusks\":1}".into(), "tusks: has no counterpart"),
            ("{\"global\":{\"duration\":\"x\"}}".into(), "global.duration: is not a number"),
        ] {
            let error = convert(&text, "x").unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
