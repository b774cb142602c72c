// SPDX-License-Identifier: GPL-2.0-only
//! The machine as a value, on the machines where similar systems failed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fixtures;

use fixtures::{Tree, f1_phantom_cpus, f2_minimal, f3_no_l3, f6_smt_off};
use hearth::ids::{CpuId, LlcId};
use hearth::limits::MAX_CPUS;
use hearth::topology::{Topology, TopologyError};
use proptest::prelude::*;

fn read(tree: &Tree) -> Topology {
    Topology::from_sysfs(tree.path()).unwrap()
}

fn ids(cpus: &[CpuId]) -> Vec<u32> {
    cpus.iter().map(|id| id.0).collect()
}

fn online(topology: &Topology) -> Vec<u32> {
    topology.cpus.iter().map(|cpu| cpu.id.0).collect()
}

fn domains(topology: &Topology) -> Vec<Vec<u32>> {
    topology.llcs.iter().map(|llc| ids(&llc.cpus)).collect()
}

#[test]
fn c01_phantom_cpus_are_not_there() {
    let topology = read(&f1_phantom_cpus());
    assert_eq!(online(&topology), (0..16).collect::<Vec<_>>());
    assert_eq!(topology.id_limit, 32);
    assert_eq!(topology.cores.len(), 8);
    assert_eq!(ids(topology.siblings(CpuId(11))), [3, 11]);
    assert_eq!(topology.cpu(CpuId(16)), None);
    assert_eq!(topology.llc_of(CpuId(31)), None);
}

#[test]
fn c01_ids_with_gaps_are_ids() {
    let tree = Tree::new();
    tree.lists("0-511", "0-2,5,7-9");
    let topology = read(&tree);
    assert_eq!(online(&topology), [0, 1, 2, 5, 7, 8, 9]);
    assert_eq!(topology.id_limit, 512);
    assert_eq!(topology.cores.len(), 7);
    assert_eq!(topology.cpu(CpuId(9)).unwrap().core, 6);
    assert_eq!(topology.cpu(CpuId(3)), None);
    assert_eq!(ids(topology.siblings(CpuId(8))), [8]);
}

#[test]
fn c02_one_cpu_and_no_node_directory() {
    let topology = read(&f2_minimal());
    assert_eq!(topology, Topology::grid(1, 1, 1));
    assert_eq!(topology.to_string(), "1 LLC domain x 1 core: [0]");
}

#[test]
fn c02_lists_without_a_dash_and_with_a_trailing_nul() {
    for (list, expected) in [("0,2", vec![0, 2]), ("0-3,8\0", vec![0, 1, 2, 3, 8]), ("0\0", vec![0])] {
        let tree = Tree::new();
        tree.lists("0-15", list);
        assert_eq!(online(&read(&tree)), expected, "{list:?}");
    }
}

#[test]
fn c02_an_empty_list_is_an_error_that_names_the_file() {
    let tree = f2_minimal();
    tree.write("cpu/online", "");
    let error = Topology::from_sysfs(tree.path()).unwrap_err().to_string();
    assert!(error.contains("cpu/online") && error.contains("empty"), "{error}");

    tree.remove("cpu/online");
    let error = Topology::from_sysfs(tree.path()).unwrap_err().to_string();
    assert!(error.contains("cpu/online") && error.contains("/sys/devices/system"), "{error}");
}

#[test]
fn c03_no_l3_no_cache_id_and_core_ids_that_repeat() {
    let tree = f3_no_l3();
    let topology = read(&tree);
    assert_eq!(domains(&topology), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10, 11]]);
    assert_eq!(topology.cores.len(), 12);
    assert_eq!(topology.cpu(CpuId(9)).unwrap().core, 9);
}

#[test]
fn c03_without_cache_files_a_package_is_a_domain() {
    let tree = f3_no_l3();
    for cpu in 0..12 {
        tree.remove(&format!("cpu/cpu{cpu}/cache"));
    }
    let topology = read(&tree);
    assert_eq!((topology.llcs.len(), topology.cores.len()), (1, 12));

    for cpu in 0..12 {
        tree.topology(cpu, "physical_package_id", if cpu < 6 { "0" } else { "1" });
    }
    assert_eq!(read(&tree).llcs.len(), 2);
}

#[test]
fn the_highest_readable_level_counts_cpu_by_cpu() {
    // Two fast cores behind an L3; two slow ones with an L2 alone, and an L3 entry without its list.
    let tree = Tree::new();
    tree.lists("0-3", "0-3");
    for cpu in 0..4 {
        tree.cache(cpu, 0, 1, &cpu.to_string());
        tree.cache(cpu, 2, 2, if cpu < 2 { ["0", "1"][cpu as usize] } else { "2-3" });
    }
    tree.cache(0, 3, 3, "0-1").cache(1, 3, 3, "0-1");
    tree.write("cpu/cpu2/cache/index3/level", "3\n");
    assert_eq!(domains(&read(&tree)), [vec![0, 1], vec![2, 3]]);
}

#[test]
fn an_l1_alone_makes_no_domain() {
    let tree = Tree::new();
    tree.lists("0-3", "0-3");
    for cpu in 0..4 {
        tree.cache(cpu, 0, 1, &cpu.to_string());
    }
    assert_eq!(domains(&read(&tree)), [vec![0, 1, 2, 3]]);
}

#[test]
fn c07_smt_off_leaves_every_second_id() {
    let topology = read(&f6_smt_off());
    assert_eq!(online(&topology), [0, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!(topology.cores.len(), 8);
    for cpu in &topology.cpus {
        assert_eq!(topology.siblings(cpu.id), [cpu.id], "a CPU without siblings is a whole core");
        assert_eq!(topology.llc_of(cpu.id), Some(LlcId(0)));
    }
    assert_eq!(topology.to_string(), "1 LLC domain x 8 cores: [0 2 4 6 8 10 12 14]");
}

#[test]
fn c08_a_cpu_that_went_away_is_unknown_not_an_index() {
    let tree = Tree::new();
    tree.lists("0-23", "0-23");
    let before = read(&tree);
    assert_eq!(before.llc_of(CpuId(23)), Some(LlcId(0)));

    tree.lists("0-23", "0-7");
    let after = read(&tree);
    for prev in [CpuId(8), CpuId(23), CpuId(u32::MAX)] {
        assert_eq!(after.cpu(prev), None);
        assert_eq!(after.llc_of(prev), None);
        assert_eq!(after.siblings(prev), []);
    }
    assert_eq!(after.id_limit, 24, "tables keep room for what may come back");
    assert_eq!(after.core_cpus(u32::MAX), []);
    assert_eq!(after.llc_cpus(LlcId(u32::MAX)), []);
}

#[test]
fn c08_a_late_cpu_never_has_capacity_zero() {
    let tree = Tree::new();
    tree.lists("0-3", "0-3");
    for (cpu, capacity) in [(0, "1024"), (1, "0"), (2, "446\n")] {
        tree.write(&format!("cpu/cpu{cpu}/cpu_capacity"), capacity);
    }
    let capacities: Vec<u32> = read(&tree).cpus.iter().map(|cpu| cpu.capacity).collect();
    assert_eq!(capacities, [1024, 1024, 446, 1024]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the case is about real time")]
fn c51_hybrids_with_many_domains_are_cheap() {
    let started = std::time::Instant::now();
    let mut laptop = Topology::builder();
    for (cores, threads, capacity) in [(8, 1, 1024), (16, 1, 620), (4, 1, 340)] {
        for _ in 0..cores {
            laptop = laptop.llc().cores(1, threads, capacity);
        }
    }
    let laptop = laptop.build().unwrap();
    assert_eq!((laptop.cpus.len(), laptop.llcs.len(), laptop.is_symmetric()), (28, 28, false));
    assert!(laptop.to_string().ends_with("; capacities: 8 of 1024, 16 of 620, 4 of 340"), "{laptop}");

    let mut many = Topology::builder();
    for capacity in 0..64 {
        many = many.llc().cores(64, 1, 1024 - capacity);
    }
    let many = many.build().unwrap();
    assert_eq!(many.cpus.len(), MAX_CPUS);
    let picture = many.to_string();
    assert!(picture.contains("and 60 more") && picture.len() < 400, "{picture}");
    assert!(started.elapsed() < std::time::Duration::from_secs(1));
}

#[test]
fn numa_nodes_and_asymmetric_siblings() {
    let tree = Tree::new();
    tree.lists("0-7", "0-7");
    tree.write("node/node0/cpulist", "0-3\n").write("node/node2/cpulist", "4-7\n");
    tree.write("node/node3/cpulist", "\n").write("node/possible", "0-3\n");
    // CPU 0 says that 0 and 1 are one core; CPU 1 knows nothing of it.
    tree.topology(0, "core_cpus_list", "0-1").topology(1, "core_cpus_list", "1");
    let topology = read(&tree);
    let nodes: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.node).collect();
    assert_eq!(nodes, [0, 0, 0, 0, 2, 2, 2, 2]);
    assert_eq!(ids(topology.siblings(CpuId(1))), [0, 1]);
    assert_eq!(topology.cores.len(), 7);
    assert!(topology.to_string().contains("; 2 NUMA nodes"), "{topology}");
}

#[test]
fn siblings_across_domains_are_split() {
    let tree = Tree::new();
    tree.lists("0-1", "0-1");
    for cpu in 0..2 {
        tree.topology(cpu, "thread_siblings_list", "0-1").cache(cpu, 3, 3, &cpu.to_string());
    }
    let topology = read(&tree);
    assert_eq!((topology.llcs.len(), topology.cores.len()), (2, 2));
}

#[test]
fn more_cpus_than_the_tables_hold_are_refused() {
    let tree = Tree::new();
    tree.lists("0-4095", "0-1");
    assert_eq!(read(&tree).id_limit as usize, MAX_CPUS);
    tree.lists("0-4096", "0-1");
    let error = Topology::from_sysfs(tree.path()).unwrap_err();
    assert!(matches!(error, TopologyError::TooManyCpus { id_limit: 4097 }), "{error}");
    assert!(error.to_string().contains("4096 CPUs are supported"), "{error}");
    assert!(Topology::builder().llc().cores(4097, 1, 1024).build().is_err());
}

#[test]
fn pictures() {
    for (topology, picture) in [
        (Topology::grid(2, 2, 1), "2 LLC domains x 2 cores: [0 1] [2 3]"),
        (Topology::grid(2, 2, 2), "2 LLC domains x 2 cores x 2 threads: [0,1 2,3] [4,5 6,7]"),
        (Topology::grid(2, 32, 1), "2 LLC domains x 32 cores: [0-31] [32-63]"),
        (
            read(&f1_phantom_cpus()),
            "1 LLC domain x 8 cores x 2 threads: [0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15]",
        ),
    ] {
        assert_eq!(topology.to_string(), picture);
    }
}

#[test]
fn hand_built_machines_with_gaps() {
    let topology = Topology::builder()
        .llc()
        .cores(2, 2, 1024)
        .offline(3)
        .llc()
        .cores(1, 1, 512)
        .possible(64)
        .build()
        .unwrap();
    assert_eq!(online(&topology), [0, 1, 2, 3, 7]);
    assert_eq!(topology.id_limit, 64);
    assert_eq!(
        topology.to_string(),
        "2 LLC domains, 3 cores, 5 CPUs: [0,1 2,3] [7]; capacities: 4 of 1024, 1 of 512"
    );
    let text = serde_json::to_string(&topology).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), topology);
}

#[test]
fn impossible_machines_are_refused() {
    for (builder, part) in [
        (Topology::builder(), "no CPU"),
        (Topology::builder().cores(1, 1, 1024), "before the first LLC"),
        (Topology::builder().llc().cores(0, 1, 1024), "at least 1"),
        (Topology::builder().llc().llc().cores(1, 1, 1024), "LLC domain 0 has no CPU"),
        (Topology::builder().llc().cores(1, 1, 0), "capacity 0"),
        (Topology::builder().llc().cores(1, 1, 1025), "capacity 1025"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    type Break = fn(&mut Topology);
    let breaks: [(&str, Break); 9] = [
        ("only 2 ids are possible", |t| t.id_limit = 2),
        ("comes after", |t| t.cpus.swap(0, 1)),
        ("which is not in it", |t| t.cpus[0].llc = LlcId(1)),
        ("which is not in it", |t| t.cpus[0].core = 1),
        ("are in no LLC domain", |t| t.llcs[1].cpus.truncate(1)),
        ("ascending order", |t| t.llcs[1].cpus.swap(0, 1)),
        ("ascending order", |t| {
            t.cores.swap(0, 1);
            (t.cpus[0].core, t.cpus[1].core) = (1, 0);
        }),
        ("is numbered 7", |t| t.llcs[0].id = LlcId(7)),
        ("spans two LLC domains", |t| {
            t.cores = vec![vec![CpuId(0)], vec![CpuId(1), CpuId(2)], vec![CpuId(3)]];
            t.cpus.iter_mut().for_each(|cpu| cpu.core = [0, 1, 1, 2][cpu.id.idx()]);
        }),
    ];
    for (part, breaks) in breaks {
        let mut topology = Topology::grid(2, 2, 1);
        breaks(&mut topology);
        let error = topology.check().unwrap_err().to_string();
        assert!(error.contains(part), "wanted {part:?}, got {error:?}");
    }
}

proptest! {
    // Each case is a few dozen files.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a machine says about its caches and siblings, the answer is a legal machine with all its CPUs.
    #[test]
    fn any_sysfs_gives_a_legal_machine(
        online in prop::collection::btree_set(0u32..40, 1..12),
        claims in prop::collection::vec((0u32..40, 0u32..40, 0u32..3), 0..20),
    ) {
        let tree = Tree::new();
        let list: Vec<String> = online.iter().map(u32::to_string).collect();
        tree.lists("0-39", &list.join(","));
        for (cpu, other, kind) in claims {
            let shared = format!("{},{}", cpu.min(other), cpu.max(other));
            match kind {
                0 => tree.cache(cpu, 3, 3, &shared),
                1 => tree.topology(cpu, "core_cpus_list", &shared),
                _ => tree.topology(cpu, "physical_package_id", &(other % 3).to_string()),
            };
        }
        let topology = Topology::from_sysfs(tree.path()).unwrap();
        prop_assert!(topology.check().is_ok());
        prop_assert_eq!(topology.cpus.iter().map(|cpu| cpu.id.0).collect::<Vec<_>>(), online.into_iter().collect::<Vec<_>>());
    }
}
