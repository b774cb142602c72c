// SPDX-License-Identifier: GPL-2.0-only
//! Opens the shim, sizes it for this machine, loads it and attaches it; and maps what it shares with the dispatcher.

use crate::bpf_skel::{BpfSkel, BpfSkelBuilder};
use crate::exit::ExitInfo;
use crate::opts::Opts;
use crate::ring::Ring;
use crate::sys;
use crate::tables::{Batch, Cpus, Ctl, Masks};
use crate::wire::NR_STATS;
use anyhow::{Context, Result, bail};
use hearth::ids::CpuId;
use hearth::limits::MAX_TASKS;
use hearth::topology::Topology;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, OpenObject};
use scx_utils::{compat, scx_ops_attach, scx_ops_load, scx_ops_open};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use tracing::warn;

/// The loaded shim. It can be attached again and again: loading is what takes long. Dropping it detaches: the kernel is
/// back on its own scheduler.
pub struct Shim {
    skel: BpfSkel<'static>,
    attached: Option<Link>,
    /// The CPUs that its tables have rows for.
    id_limit: u32,
    /// It was attached before.
    used: bool,
}

/// Everything the dispatcher shares with the shim.
pub struct Shared {
    /// Records from the shim.
    pub ring: Ring,
    /// Flags in both directions.
    pub ctl: Ctl,
    /// Who runs where.
    pub cpus: Cpus,
    /// Who may run where.
    pub masks: Masks,
    /// Decisions to the shim.
    pub batch: Batch,
    /// The program that carries out the batch.
    pub commit: OwnedFd,
    /// The program that tells again of every held task.
    pub rescan: OwnedFd,
    /// The ring's descriptor, to block on.
    pub ring_fd: OwnedFd,
}

impl Shim {
    /// Opens and loads, without attaching.
    pub fn load(opts: &Opts, topology: &Topology) -> Result<Self> {
        // A place of a few bytes that outlives the shim, once or twice in the daemon's life.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut builder = BpfSkelBuilder::default();
        builder.obj_builder.debug(opts.verbose_libbpf());
        let mut skel =
            scx_ops_open!(builder, object, hearth_ops, None::<libbpf_rs::libbpf_sys::bpf_object_open_opts>)?;

        let mask_words = mask_words(topology);
        let rodata = skel.maps.rodata_data.as_mut().context("the shim has no read-only data")?;
        rodata.nr_cpu_ids = topology.id_limit;
        rodata.mask_bytes = u32::try_from(mask_words * 8)?;
        rodata.max_tasks = u32::try_from(MAX_TASKS)?;
        rodata.forward_kthreads = opts.forward_kthreads;
        rodata.takeover_limit_ns = opts.takeover_us * 1000;
        rodata.takeover_slice_ns = hearth::limits::TAKEOVER_SLICE_NS;
        rodata.timer_period_ns = hearth::limits::TIMER_PERIOD_NS;
        rodata.rescue_ns = hearth::limits::RESCUE_NS;
        rodata.commit_delay_loops = opts.fault_commit_delay;
        skel.maps.ring.set_max_entries(opts.ring_bytes())?;
        skel.maps.cpu_map.set_max_entries(topology.id_limit)?;
        skel.maps.mask_map.set_value_size(u32::try_from(mask_words * 8)?)?;

        let ops = skel.struct_ops.hearth_ops_mut();
        ops.timeout_ms = u32::try_from(hearth::limits::WATCHDOG_NS / 1_000_000)?;
        ops.exit_dump_len = opts.exit_dump_len;
        // The kernel would compare it at each attachment, and it cannot be changed after loading: see `attach::once`.
        ops.hotplug_seq = 0;
        if opts.partial {
            ops.flags |= *compat::SCX_OPS_SWITCH_PARTIAL;
        }
        let skel = scx_ops_load!(skel, hearth_ops, uei)?;
        Ok(Self { skel, attached: None, id_limit: topology.id_limit, used: false })
    }

    /// Can it serve this machine? CPUs may have come or gone since it was loaded.
    #[must_use]
    pub fn fits(&self, topology: &Topology) -> bool {
        self.id_limit == topology.id_limit
    }

    /// Tells it what the machine is like now, and clears what an earlier attachment left.
    pub fn prepare(&mut self, topology: &Topology) -> Result<()> {
        sys::run_program(self.skel.progs.hearth_introduce.as_fd())?;
        let maps = &mut self.skel.maps;
        let data = maps.data_data.as_mut().context("the shim has no data")?;
        data.nr_llcs = u32::try_from(topology.llcs.len())?;
        data.uei.kind = 0;
        let bss = maps.bss_data.as_mut().context("the shim has no data")?;
        for cpu in &topology.cpus {
            bss.cpu_llc[cpu.id.idx()] = u16::try_from(cpu.llc.0)?;
        }
        let zeros = vec![vec![0; size_of::<u64>() * NR_STATS]; libbpf_rs::num_possible_cpus()?];
        maps.stat_map
            .update_percpu(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY)
            .context("cannot clear the shim's counters")
    }

    /// Maps what dispatcher and shim share.
    pub fn share(&self, opts: &Opts, topology: &Topology) -> Result<Shared> {
        let maps = &self.skel.maps;
        let mask_words = mask_words(topology);
        Ok(Shared {
            ring: Ring::new(&maps.ring.as_fd(), opts.ring_bytes())?,
            ctl: Ctl::new(&maps.ctl_map.as_fd())?,
            cpus: Cpus::new(&maps.cpu_map.as_fd(), topology.id_limit)?,
            masks: Masks::new(&maps.mask_map.as_fd(), MAX_TASKS, mask_words)?,
            batch: Batch::new(&maps.batch_map.as_fd())?,
            commit: self.skel.progs.hearth_commit.as_fd().try_clone_to_owned()?,
            rescan: self.skel.progs.hearth_rescan.as_fd().try_clone_to_owned()?,
            ring_fd: maps.ring.as_fd().try_clone_to_owned()?,
        })
    }

    /// From here on the kernel schedules through us.
    pub fn attach(&mut self) -> Result<()> {
        let skel = &mut self.skel;
        self.attached = Some(if self.used {
            // The tracepoints have stayed attached.
            skel.maps.hearth_ops.attach_struct_ops().context("cannot attach again")?
        } else {
            scx_ops_attach!(skel, hearth_ops)?
        });
        self.used = true;
        Ok(())
    }

    /// Back to the kernel's own scheduler; returns what the kernel says about the end.
    pub fn detach(&mut self) -> ExitInfo {
        drop(self.attached.take());
        self.exit_info()
    }

    /// What the kernel says about the end.
    #[must_use]
    pub fn exit_info(&self) -> ExitInfo {
        let Some(data) = self.skel.maps.data_data.as_ref() else { return ExitInfo::default() };
        let dump = self.skel.maps.data_uei_dump.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        ExitInfo::new(
            data.uei.kind,
            data.uei.exit_code,
            &data.uei.reason.map(i8::cast_unsigned),
            &data.uei.msg.map(i8::cast_unsigned),
            dump.as_deref().unwrap_or(&[]),
        )
    }

    /// A handle on the counters, for the statistics thread.
    pub fn counters(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skel.maps.stat_map).context("no counters")
    }
}

fn mask_words(topology: &Topology) -> usize {
    (topology.id_limit as usize).div_ceil(64)
}

/// The CPU the dispatcher runs on: the one asked for, else the lowest that is online. `again`: we were attached before,
/// and the one asked for may have gone offline since; then the lowest has to do until it is back.
pub fn dispatcher_cpu(asked: Option<u32>, topology: &Topology, again: bool) -> Result<CpuId> {
    let lowest = || topology.cpus.first().map(|c| c.id).context("this machine has no online CPU");
    let Some(id) = asked else { return lowest() };
    match topology.cpu(CpuId(id)) {
        Some(cpu) => Ok(cpu.id),
        None if again => lowest()
            .inspect(|home| warn!("CPU {id} is offline: the dispatcher runs on CPU {} meanwhile", home.0)),
        None => bail!("--dispatcher-cpu {id}: no such online CPU; see `hearth topology`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dispatcher_moves_if_its_cpu_has_gone_but_not_at_the_start() {
        let machine = Topology::grid(1, 2, 1);
        let home = |asked, again| dispatcher_cpu(asked, &machine, again).map(|cpu| cpu.0).ok();
        assert_eq!(home(None, false), Some(0));
        assert_eq!(home(Some(1), false), Some(1));
        assert_eq!(home(Some(7), false), None);
        assert_eq!(home(Some(7), true), Some(0));
    }
}
