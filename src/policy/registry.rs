// SPDX-License-Identifier: GPL-2.0-only
//! Policies by name.

use super::params::{Param, ParamError, Params};
use super::{Needs, Pick, Placement, Policy, fifo::Fifo, vtime::Vtime};
use super::{completion, hearth, inter_domain, kernel_default, lavd_base, look_ahead, nest, sis_cache, warm};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::view::View;

/// A policy of any kind. `Send`: it is made where options are read, and runs in the dispatcher's thread.
pub type AnyPolicy = Box<dyn Policy + Send>;

/// A policy that can be asked for by name.
pub struct PolicySpec {
    /// What `--policy` takes.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What can be set.
    pub params: &'static [Param],
    /// For fault tests only: not shown in lists.
    pub hidden: bool,
    /// Makes one, with the parameters in the configuration.
    pub build: fn(&Config) -> AnyPolicy,
}

/// A policy by name, with what was set: what `--policy NAME:key=value` means.
#[derive(Clone)]
pub struct Choice {
    /// The policy.
    pub spec: &'static PolicySpec,
    /// What was set.
    pub params: Params,
}

impl Choice {
    /// Reads `NAME` or `NAME:key=value:key=value`.
    ///
    /// # Errors
    /// If there is no such policy or parameter, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self, ParamError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let spec = find(name).ok_or_else(|| {
            let known: Vec<&str> = list().map(|spec| spec.name).collect();
            ParamError::NoPolicy { name: name.into(), known: known.join(", ") }
        })?;
        let mut params = Params::default();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| ParamError::Form(part.into()))?;
            params.set(spec.name, spec.params, key.trim(), value.trim())?;
        }
        Ok(Self { spec, params })
    }

    /// As it would be written.
    #[must_use]
    pub fn label(&self) -> String {
        let set = self.params.iter().map(|(name, value)| format!(":{name}={value}"));
        std::iter::once(self.spec.name.to_string()).chain(set).collect()
    }

    /// Makes the policy for `config`, and writes the parameters into it (so that a recording holds them).
    #[must_use]
    pub fn build(&self, config: &mut Config) -> AnyPolicy {
        config.params = self.params.clone();
        (self.spec.build)(config)
    }
}

/// All policies. A new one gets a line here.
static POLICIES: &[PolicySpec] = &[
    PolicySpec {
        name: "fifo",
        about: "first come, first served: an idle CPU near the previous one, or else the shortest line",
        params: &[],
        hidden: false,
        build: |config| Box::new(Fifo::new(config)),
    },
    PolicySpec {
        name: "vtime",
        about: "weighted fair sharing: whoever has used least CPU time for its weight runs next",
        params: &[],
        hidden: false,
        build: |config| Box::new(Vtime::new(config)),
    },
    PolicySpec {
        name: "hearth",
        about: "waits for the warm CPU or migrates, whatever costs least: expected wait + refill",
        params: hearth::PARAMS,
        hidden: false,
        build: |config| Box::new(hearth::Hearth::new(config)),
    },
    PolicySpec {
        name: "lavd-base",
        about: "a deadline by latency criticality, in domain queues; any idle CPU (lavd without stickiness)",
        params: &[],
        hidden: false,
        build: |config| Box::new(lavd_base::LavdBase::new(config)),
    },
    PolicySpec {
        name: "warm",
        about: "waits for its previous CPU if that is free within a budget (task warmth of lavd, scx 3714)",
        params: warm::PARAMS,
        hidden: false,
        build: |config| Box::new(warm::Warm::new(config)),
    },
    PolicySpec {
        name: "completion",
        about: "warm, with the wait by completion time: what runs and what is queued there (scx 3806)",
        params: completion::PARAMS,
        hidden: false,
        build: |config| Box::new(completion::Completion::new(config)),
    },
    PolicySpec {
        name: "look-ahead",
        about: "warm, and a CPU that asks prefers who is still warm there, a few behind the head",
        params: look_ahead::PARAMS,
        hidden: false,
        build: |config| Box::new(look_ahead::LookAhead::new(config)),
    },
    PolicySpec {
        name: "inter-domain",
        about: "stays in its LLC domain unless another has less to do by a margin",
        params: inter_domain::PARAMS,
        hidden: false,
        build: |config| Box::new(inter_domain::InterDomain::new(config)),
    },
    PolicySpec {
        name: "sis-cache",
        about: "an idle CPU is kept for who left it for a moment (SIS_CACHE)",
        params: sis_cache::PARAMS,
        hidden: false,
        build: |config| Box::new(sis_cache::SisCache::new(config)),
    },
    PolicySpec {
        name: "nest",
        about: "work is kept on few warm CPUs (Nest)",
        params: nest::PARAMS,
        hidden: false,
        build: |config| Box::new(nest::Nest::new(config)),
    },
    PolicySpec {
        name: "kernel-default",
        about: "a model of the kernel's own scheduler, for comparison",
        params: kernel_default::PARAMS,
        hidden: false,
        build: |config| Box::new(kernel_default::KernelDefault::new(config)),
    },
    PolicySpec {
        name: "panic-after",
        about: "for fault tests: fifo that panics after 1000 placements",
        params: &[],
        hidden: true,
        build: |config| Box::new(PanicAfter { inner: Fifo::new(config), placements_left: 1000 }),
    },
];

/// The policies that are shown to people, in the order of a learner's interest.
pub fn list() -> impl Iterator<Item = &'static PolicySpec> {
    POLICIES.iter().filter(|spec| !spec.hidden)
}

/// The policy of that name, hidden ones included.
#[must_use]
pub fn find(name: &str) -> Option<&'static PolicySpec> {
    POLICIES.iter().find(|spec| spec.name == name)
}

impl Policy for AnyPolicy {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        (**self).place(now, task, view)
    }
    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        (**self).pick(now, cpu, waiting, view)
    }
    fn may_pull(&self, now: Nanos, task: TaskId, from: CpuId, to: CpuId, view: &View) -> bool {
        (**self).may_pull(now, task, from, to, view)
    }
    fn may_steal(&self, now: Nanos, task: TaskId, from: LlcId, to: CpuId, view: &View) -> bool {
        (**self).may_steal(now, task, from, to, view)
    }
    fn idled(&mut self, now: Nanos, cpu: CpuId, last: TaskId, since_ns: Nanos, view: &View) {
        (**self).idled(now, cpu, last, since_ns, view);
    }
    fn needs(&self) -> Needs {
        (**self).needs()
    }
    fn look_ahead(&self) -> usize {
        (**self).look_ahead()
    }
    fn work_conserving(&self) -> bool {
        (**self).work_conserving()
    }
    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        (**self).charge(now, task, view);
    }
    fn forget(&mut self, task: TaskId) {
        (**self).forget(task);
    }
}

/// A policy with a fault in it.
struct PanicAfter {
    inner: Fifo,
    placements_left: u32,
}

impl Policy for PanicAfter {
    fn name(&self) -> &'static str {
        "panic-after"
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        assert!(self.placements_left > 0, "policy panic-after: this is the panic that was asked for");
        self.placements_left -= 1;
        self.inner.place(now, task, view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_carries_the_name_it_is_found_by() {
        let config = Config { max_tasks: 4, ..Config::default() };
        for spec in POLICIES {
            assert_eq!((spec.build)(&config).name(), spec.name);
            assert!(std::ptr::eq(find(spec.name).unwrap(), spec));
        }
    }

    #[test]
    fn every_parameter_has_a_default_in_range_and_a_unit_or_a_meaning() {
        for param in POLICIES.iter().flat_map(|spec| spec.params) {
            assert!(param.range.contains(&param.default), "{}", param.name);
            assert!(!param.about.is_empty() && param.about.len() <= 160, "{}", param.name);
        }
    }

    #[test]
    fn a_wrong_choice_is_named() {
        for (text, says) in [
            ("fif", "there is no policy \"fif\"; known are: fifo, vtime"),
            ("fifo:a=1", "policy fifo has no parameter \"a\"; it has: none"),
            ("fifo:a", "\"a\" is not of the form key=value"),
        ] {
            let error = Choice::parse(text).err().unwrap().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        assert_eq!(Choice::parse("vtime").unwrap().label(), "vtime");
    }

    #[test]
    fn faulty_policies_are_found_but_not_listed() {
        assert!(list().all(|spec| spec.name != "panic-after"));
        assert!(find("panic-after").is_some() && find("no-such").is_none());
    }
}
