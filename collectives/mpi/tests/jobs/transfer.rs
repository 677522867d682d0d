//! A transfer of a model between two worlds, by processes and by threads.

use reshard_collectives::{Communicator, Error, threads};
use reshard_mapping::Mapping;
use reshard_mpi::Comm;
use reshard_transfer::{Commit, CompiledTransfer, Options, Side, Transfer};

const SOURCE: &str = r#"{"mesh": "dp=2,tp=2", "tensors": [
    {"name": "q", "dtype": "f32", "shape": [64, 64], "placements": "SS(0,2),S(0)"},
    {"name": "k", "dtype": "f32", "shape": [16, 64], "placements": "SS(0,2),S(0)"},
    {"name": "v", "dtype": "f32", "shape": [16, 64], "placements": "R,S(1)"},
    {"name": "embed", "dtype": "bf16", "shape": [50, 64], "axes": ["tp"], "placements": "S(0)"}]}"#;
const TARGET: &str = r#"{"mesh": "kv=2,rep=2@3", "tensors": [
    {"name": "qkv", "dtype": "bf16", "local_shape": [32, 64], "placements": "S(0),S(0) | S(0),R | S(0),R"},
    {"name": "head", "dtype": "f32", "shape": [52, 64], "placements": "S(0),S(0)"}]}"#;

/// Transfers into all ranks, with different values on every rank, and returns the targets of this one.
fn transferred<C: Communicator<Buffer = [u8]>>(
    comm: &mut C,
    commit: Commit,
    max_bytes: usize,
) -> Vec<Vec<u8>> {
    let (source, target) = (Side::from_json(SOURCE).unwrap(), Side::from_json(TARGET).unwrap());
    let mapping = "qkv = q | k | v\nhead = pad(embed, 52)".parse::<Mapping>().unwrap();
    let mapping = mapping.with_cast("qkv", "bf16").unwrap().with_cast("head", "f32").unwrap();
    let plan = Transfer::plan(&source, &target, &mapping, &Options::default()).unwrap();
    let mut compiled = CompiledTransfer::new(&plan, comm, commit, max_bytes).unwrap();
    let rank = comm.rank();
    let value = |k: usize| (k * 31 + rank * 7) as u8 & 0x3f;
    let sources: Vec<Vec<u8>> =
        compiled.sources().iter().map(|one| (0..one.bytes).map(value).collect()).collect();
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let mut targets: Vec<Vec<u8>> = compiled.targets().iter().map(|one| vec![0xaa; one.bytes]).collect();
    for _ in 0..3 {
        let mut targets: Vec<&mut [u8]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
        compiled.run(comm, &sources, &mut targets).unwrap();
    }
    targets
}

/// Compares the targets of processes with those of threads.
pub(crate) fn run(comm: &mut Comm) {
    for (commit, max_bytes) in [(Commit::All, 1 << 20), (Commit::All, 1), (Commit::Bucket, 3000)] {
        let mut by_threads = threads::World::new(comm.size())
            .unwrap()
            .run(|comm| Ok::<_, Error>(transferred(comm, commit, max_bytes)));
        let expected = by_threads.swap_remove(comm.rank()).unwrap();
        assert_eq!(transferred(comm, commit, max_bytes), expected, "{commit} {max_bytes}");
    }
}
