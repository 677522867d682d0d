//! Shards loaded by the ranks of an MPI job: what is read once per node and moved by a plan is what each rank would have read.
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

/// Names the checkpoint that a rank is to open.
const FILE: &str = "RESHARD_TEST_LOADED";

/// What is loaded, and how.
const WANTED: [(&str, &str, &str); 4] = [
    ("matrix", "a=4", "R"),
    ("matrix", "a=2,b=2", "R,S(1)"),
    ("matrix", "a=2,b=2", "S(0),R"),
    ("cube", "a=3", "R"),
];

/// The whole node reads every byte once, files being slow.
fn loading(checkpoint: &Checkpoint, tensor: &str, axes: &str, to: &str) -> ShardLoad {
    let wanted = wanted(checkpoint, tensor, axes, to);
    let slow = ReadModel { node_ranks: 4, gbytes_per_s: 1e-6 };
    checkpoint.plan_load(tensor, &wanted, &Planner::new(), slow).unwrap()
}

fn wanted(checkpoint: &Checkpoint, tensor: &str, axes: &str, to: &str) -> Sharding {
    let shape = checkpoint.tensor(tensor).unwrap().shape().to_vec();
    Sharding::parse(&axes.parse().unwrap(), &shape, to).unwrap()
}

/// What every rank of a job does; nothing in a plain run of the tests.
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

/// The file loses its end after all have opened it.
fn cut(comm: &mut Comm, path: &Path) {
    let rank = comm.rank();
    let whole = Checkpoint::open(Some(path)).unwrap();
    let loading = loading(&whole, "matrix", "a=4", "R");
    // Everybody has opened it.
    comm.share(&[0]).unwrap();
    if rank == 1 {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }
    comm.share(&[1]).unwrap();
    let error = whole.load("matrix", &loading, comm).unwrap_err();
    println!("rank {rank} was told: {error}");
}

/// A matrix and a cube of numbers that are all different.
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

/// Every byte is read once by all ranks together, and every rank has what it would have read alone.
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

/// A file that loses its end while it is read: whoever cannot read says so, and nobody waits for ever.
#[test]
fn a_rank_that_cannot_read_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.safetensors");
    written(&path);
    let outcome = Job::start(4, "cut", &[(FILE, path.display().to_string())]).wait(Duration::from_mins(2));
    assert!(outcome.status.is_some(), "it had to be killed: {outcome:?}");
    let told = outcome.text.matches("was told: ").count();
    assert!(told >= 1 && outcome.took < Duration::from_mins(1), "{outcome:?}");
}
