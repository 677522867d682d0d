//! Shards loaded by ranks of an MPI job: one read per node and a plan give the same as direct reads.
#![cfg(feature = "mpi")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reshard_checkpoint::{Checkpoint, ReadModel, ShardLoad};
use reshard_collectives::Communicator;
use reshard_mpi::Comm;
use reshard_planner::Planner;
use reshard_sharding::Sharding;
use reshard_test_support::jobs::{JOB, Job, succeeds_with};
use safetensors::tensor::{Dtype, TensorView};

/// The variable with the path of the checkpoint that a rank opens.
const FILE: &str = "RESHARD_TEST_LOADED";

/// The tensors to load, with axes and sharding.
const WANTED: [(&str, &str, &str); 4] = [
    ("matrix", "a=4", "R"),
    ("matrix", "a=2,b=2", "R,S(1)"),
    ("matrix", "a=2,b=2", "S(0),R"),
    ("cube", "a=3", "R"),
];

/// Returns a strategy for slow files, by which the node reads every byte once.
fn loading(checkpoint: &Checkpoint, tensor: &str, axes: &str, to: &str) -> ShardLoad {
    let wanted = wanted(checkpoint, tensor, axes, to);
    let slow = ReadModel { node_ranks: 4, gbytes_per_s: 1e-6 };
    checkpoint.plan_load(tensor, &wanted, &Planner::new(), slow).unwrap()
}

fn wanted(checkpoint: &Checkpoint, tensor: &str, axes: &str, to: &str) -> Sharding {
    let shape = checkpoint.tensor(tensor).unwrap().shape().to_vec();
    Sharding::parse(&axes.parse().unwrap(), &shape, to).unwrap()
}

/// The body of every rank of a job; it does nothing in a plain run of the tests.
#[test]
fn rank() {
    let Ok(job) = std::env::var(JOB) else { return };
    let mut comm = Comm::world_in(Duration::from_secs(10)).unwrap();
    let path = std::env::var_os(FILE).unwrap();
    let rank = comm.rank();
    match job.as_str() {
        "load" => load(&mut comm, Path::new(&path)),
        "cut" => cut(&mut comm, Path::new(&path)),
        other => panic!("there is no job {other}"),
    }
    comm.finish().unwrap();
    println!("rank {rank} finished {job}");
}

fn load(comm: &mut Comm, path: &Path) {
    let rank = comm.rank();
    for (tensor, axes, to) in WANTED {
        let [moved, alone] = [Checkpoint::open(Some(path)).unwrap(), Checkpoint::open(Some(path)).unwrap()];
        let loading = loading(&moved, tensor, axes, to);
        assert!(loading.plan().is_some(), "{tensor} {to}");
        let wanted = wanted(&alone, tensor, axes, to);
        if !wanted.mesh().contains(rank) {
            continue;
        }
        assert_eq!(
            moved.load(tensor, &loading, comm).unwrap(),
            alone.shard(tensor, &wanted, rank).unwrap(),
            "{tensor} {to}"
        );
        println!("read {tensor} {axes} {to}: {} of {}", moved.bytes_read(), alone.bytes_read());
    }
}

/// The file is truncated after all ranks have opened it.
fn cut(comm: &mut Comm, path: &Path) {
    let rank = comm.rank();
    let whole = Checkpoint::open(Some(path)).unwrap();
    let loading = loading(&whole, "matrix", "a=4", "R");
    // A barrier: all ranks have opened it.
    comm.share(&[0]).unwrap();
    if rank == 1 {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }
    comm.share(&[1]).unwrap();
    let error = whole.load("matrix", &loading, comm).unwrap_err();
    println!("rank {rank} reported: {error}");
}

/// Writes a matrix and a cube of numbers that are all different.
fn written(path: &Path) -> usize {
    let numbers =
        |n: u32| (0..n).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<u8>>();
    let (matrix, cube) = (numbers(48 * 40), numbers(12 * 8 * 5));
    let views: BTreeMap<&str, TensorView<'_>> = [
        ("matrix", TensorView::new(Dtype::F32, vec![48, 40], &matrix).unwrap()),
        ("cube", TensorView::new(Dtype::F32, vec![12, 8, 5], &cube).unwrap()),
    ]
    .into();
    safetensors::serialize_to_file(views, None, path).unwrap();
    matrix.len()
}

/// All ranks jointly read every byte once, and every rank gets the same shard as by a direct read.
#[test]
fn ranks_of_a_job_read_every_byte_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.safetensors");
    let matrix = written(&path);
    let said = succeeds_with(4, "load", &[(FILE, path.display().to_string())]);
    let (moved, alone) =
        said.lines().filter(|line| line.contains("read matrix a=4 R:")).fold((0, 0), |sums, line| {
            let mut numbers =
                line.rsplit(": ").next().unwrap().split(" of ").map(|n| n.parse::<usize>().unwrap());
            (sums.0 + numbers.next().unwrap(), sums.1 + numbers.next().unwrap())
        });
    assert_eq!((moved, alone), (matrix, 4 * matrix), "{said}");
}

/// A file is truncated while it is read: a rank that cannot read reports it, and no rank waits forever.
#[test]
fn a_rank_that_cannot_read_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.safetensors");
    written(&path);
    let outcome = Job::start(4, "cut", &[(FILE, path.display().to_string())]).wait(Duration::from_mins(2));
    assert!(outcome.status.is_some(), "it had to be killed: {outcome:?}");
    let told = outcome.text.matches("reported: ").count();
    assert!(told >= 1 && outcome.took < Duration::from_mins(1), "{outcome:?}");
}
