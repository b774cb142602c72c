// SPDX-License-Identifier: GPL-2.0-only
//! How much every CPU, and every LLC domain as a whole, has run: the clocks that cached state decays by.

use crate::event::CpuStatus;
use crate::ids::{CpuId, LlcId, Nanos};
use crate::topology::Topology;

/// One CPU: what it had run when its present occupant started, and since when that one runs.
#[derive(Clone, Copy, Debug, Default)]
struct CpuClock {
    busy_ns: Nanos,
    since_ns: Nanos,
    occupied: bool,
    online: bool,
    llc: u32,
}

/// One domain: sums over its CPUs, so that a reading costs the same for any number of them. The sums may wrap; what is
/// read is their difference.
#[derive(Clone, Copy, Debug, Default)]
struct LlcClock {
    busy_ns: Nanos,
    /// Of the occupied CPUs.
    since_ns: Nanos,
    occupied: u32,
}

/// Busy clocks of a machine. They follow the status words; between two readings an occupied CPU is taken to run on.
#[derive(Clone, Debug)]
pub struct Clocks {
    cpus: Vec<CpuClock>,
    llcs: Vec<LlcClock>,
}

impl Clocks {
    /// All clocks at zero, all CPUs idle.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let mut cpus = vec![CpuClock::default(); topology.id_limit as usize];
        for cpu in &topology.cpus {
            cpus[cpu.id.idx()] = CpuClock { online: true, llc: cpu.llc.0, ..CpuClock::default() };
        }
        Self { cpus, llcs: vec![LlcClock::default(); topology.llcs.len()] }
    }

    /// A new reading of a CPU's status words.
    #[inline]
    pub fn read(&mut self, status: &CpuStatus) {
        let Some(cpu) = self.cpus.get_mut(status.cpu.idx()).filter(|cpu| cpu.online) else { return };
        let llc = &mut self.llcs[cpu.llc as usize];
        let occupied = status.curr.is_some() || status.other;
        llc.busy_ns = llc.busy_ns.wrapping_add(status.busy_ns).wrapping_sub(cpu.busy_ns);
        if cpu.occupied {
            llc.since_ns = llc.since_ns.wrapping_sub(cpu.since_ns);
            llc.occupied -= 1;
        }
        if occupied {
            llc.since_ns = llc.since_ns.wrapping_add(status.since_ns);
            llc.occupied += 1;
        }
        *cpu = CpuClock { busy_ns: status.busy_ns, since_ns: status.since_ns, occupied, ..*cpu };
    }

    /// The domain of an online CPU.
    #[inline]
    #[must_use]
    pub fn llc_of(&self, cpu: CpuId) -> Option<LlcId> {
        self.cpus.get(cpu.idx()).filter(|cpu| cpu.online).map(|cpu| LlcId(cpu.llc))
    }

    /// What a CPU will have run in `ahead_ns` from now, if it goes on with what it does.
    #[inline]
    #[must_use]
    pub fn cpu(&self, cpu: CpuId, now: Nanos, ahead_ns: Nanos) -> Nanos {
        self.cpus.get(cpu.idx()).map_or(0, |cpu| {
            let running_ns =
                if cpu.occupied { now.saturating_sub(cpu.since_ns).saturating_add(ahead_ns) } else { 0 };
            cpu.busy_ns.saturating_add(running_ns)
        })
    }

    /// What the CPUs of a domain will have run, all together, in `ahead_ns` from now. May wrap: only the difference of two
    /// readings ([`Clocks::since`]) means something.
    #[inline]
    #[must_use]
    pub fn llc(&self, llc: LlcId, now: Nanos, ahead_ns: Nanos) -> Nanos {
        let llc = &self.llcs[llc.idx()];
        let at_ns = now.wrapping_add(ahead_ns).wrapping_mul(u64::from(llc.occupied));
        llc.busy_ns.wrapping_add(at_ns).wrapping_sub(llc.since_ns)
    }

    /// CPUs of a domain on which something runs.
    #[inline]
    #[must_use]
    pub fn running(&self, llc: LlcId) -> u32 {
        self.llcs[llc.idx()].occupied
    }

    /// From one reading of a domain's clock to a later one; 0 if it went backwards (a clock step, a counter that was reset).
    #[inline]
    #[must_use]
    pub fn since(earlier: Nanos, later: Nanos) -> Nanos {
        let ns = later.wrapping_sub(earlier);
        if ns > Nanos::MAX / 2 { 0 } else { ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TaskId;

    fn status(cpu: u32, busy_ns: Nanos, since_ns: Nanos, occupied: bool) -> CpuStatus {
        CpuStatus {
            cpu: CpuId(cpu),
            curr: occupied.then_some(TaskId { idx: 0, generation: 1 }),
            other: false,
            held: false,
            since_ns,
            slice_ns: 0,
            busy_ns,
            depth: 0,
        }
    }

    #[test]
    fn a_domain_runs_as_much_as_its_cpus_together() {
        let mut clocks = Clocks::new(&Topology::grid(2, 2, 1));
        clocks.read(&status(0, 0, 100, true));
        clocks.read(&status(1, 50, 200, true));
        clocks.read(&status(2, 1000, 0, false));
        let (near, far) = (LlcId(0), LlcId(1));
        assert_eq!(clocks.cpu(CpuId(0), 300, 0), 200);
        assert_eq!(clocks.cpu(CpuId(1), 300, 10), 160);
        assert_eq!(clocks.llc(near, 300, 0), 350);
        assert_eq!(clocks.llc(near, 300, 10), 370);
        assert_eq!(clocks.llc(far, 300, 10), 1000);
        clocks.read(&status(0, 400, 500, false));
        assert_eq!((clocks.llc(near, 600, 0), clocks.running(near)), (850, 1));
    }

    #[test]
    fn clocks_that_go_backwards_stand_still() {
        let mut clocks = Clocks::new(&Topology::grid(1, 1, 1));
        clocks.read(&status(0, 1000, 5000, true));
        let before = clocks.llc(LlcId(0), 6000, 0);
        clocks.read(&status(0, 0, 6000, false));
        assert_eq!(Clocks::since(before, clocks.llc(LlcId(0), 6000, 0)), 0);
        assert_eq!(clocks.cpu(CpuId(0), 6000, 0), 0);
        clocks.read(&status(0, u64::MAX, u64::MAX, true));
        assert_eq!(clocks.cpu(CpuId(0), 0, u64::MAX), u64::MAX);
        clocks.read(&status(7, 1, 1, true));
        assert_eq!(clocks.llc_of(CpuId(7)), None);
        assert_eq!(clocks.cpu(CpuId(7), 1, 1), 0);
    }
}
