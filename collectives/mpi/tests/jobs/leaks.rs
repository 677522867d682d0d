//! A thousand plans in a row, and hundreds of engines, leak nothing.

use std::collections::BTreeSet;
use std::fs;

use mpi::topology::SimpleCommunicator;
use reshard_collectives::{Communicator, CompiledPlan};
use reshard_kernels::DType;
use reshard_mpi::Comm;
use reshard_planner::Planner;
use reshard_sharding::Sharding;

use crate::random::Dice;

/// Growth that is noise of the allocator and not a leak of a thousand plans of about 100 KiB.
const NOISE: usize = 8 << 20;

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs one redistribution of 64 KiB or so on a random mesh; returns the groups of this rank.
fn one(comm: &mut Comm, dice: &mut Dice, groups: &mut BTreeSet<Vec<usize>>) {
    let mesh = dice.mesh(comm.size());
    let shape = [48 + dice.roll(9), 336];
    let [from, to] = [0, 1].map(|_| {
        let placements = dice.placements(&mesh, &shape, None);
        Sharding::new(&mesh, &shape, &placements).unwrap()
    });
    let plan = Planner::new().plan(&from, &to, DType::F32).unwrap();
    if !mesh.contains(comm.rank()) {
        return;
    }
    let compiled = CompiledPlan::new(&plan, comm.rank()).unwrap();
    let mut scratch = compiled.scratch(comm).unwrap();
    let (source, mut target) = (vec![1; compiled.source_bytes()], vec![0; compiled.target_bytes()]);
    compiled.run(comm, &source, &mut target, &mut scratch).unwrap();
    for exchange in compiled.exchanges().filter(|exchange| exchange.communicates()) {
        groups.insert(exchange.members().to_vec());
    }
}

pub(crate) fn run(comm: &mut Comm) {
    let mut dice = Dice::new(99);
    let mut groups = BTreeSet::new();
    for _ in 0..200 {
        one(comm, &mut dice, &mut groups);
    }
    let (memory, files) = (resident(), descriptors());
    for _ in 0..1000 {
        one(comm, &mut dice, &mut groups);
    }
    assert!(resident() < memory + NOISE, "{memory} bytes before, {} after", resident());
    assert_eq!(descriptors(), files);
    let mut kept: BTreeSet<Vec<usize>> = groups.into_iter().filter(|group| group.len() > 1).collect();
    kept.insert((0..comm.size()).collect());
    assert_eq!(comm.communicators(), kept.len());

    // Engines with separate groups, created and dropped: more communicators than an MPI library supports at a
    // time.
    let engines = |from: u64, to: u64| {
        for seed in from..to {
            let mut inner = Comm::within(&SimpleCommunicator::world()).unwrap();
            let mut dice = Dice::new(seed * 7 + 1);
            for _ in 0..4 {
                one(&mut inner, &mut dice, &mut BTreeSet::new());
            }
        }
    };
    engines(0, 50);
    let (memory, files) = (resident(), descriptors());
    engines(50, 450);
    assert!(resident() < memory + NOISE, "{memory} bytes before, {} after", resident());
    assert_eq!(descriptors(), files);
}
