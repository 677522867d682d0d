//! Reads by ranks: each reads exactly its shard, in one process or several, or each byte once per node.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use reshard_checkpoint::{Checkpoint, OutputFormat, ReadModel, ReshardJob};
use reshard_collectives::threads::World;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;
use safetensors::Dtype;
use serde_json::Value;

use crate::files::{Tensors, draw_sharding, job, slice, tensor, write};
use crate::reading::opened;

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

fn mesh(sizes: &Value) -> Mesh {
    Mesh::new(numbers(sizes).into_iter().enumerate().map(|(at, size)| (format!("a{at}"), size))).unwrap()
}

/// `dcp_reads.jsonl`: the shards of ranks of a target sharding, and the bytes that the worst of them reads.
///
/// Both are by PyTorch's loader, from the output of a source sharding. The test writes a distributed
/// checkpoint of the source, and every rank of the target reads its shard.
#[test]
fn ranks_read_what_pytorch_says_that_they_need() {
    let mut r = Random(41);
    let folder = tempfile::tempdir().unwrap();
    let (whole, out) = (folder.path().join("whole.safetensors"), folder.path().join("dcp"));
    let (mut lines, mut reads) = (0, 0);
    for line in include_str!("../data/dcp_reads.jsonl").lines().skip(1) {
        let fact: Value = serde_json::from_str(line).unwrap();
        let shape = numbers(&fact["shape"]);
        let tensors: Tensors = [("t".to_owned(), tensor(&mut r, Dtype::F32, &shape))].into();
        write(&whole, &tensors);
        let saved = ReshardJob {
            out: Some(out.clone()),
            format: OutputFormat::Dcp,
            force: true,
            verify: false,
            ..job(&whole, &mesh(&fact["mesh"]).to_string(), fact["frm"].as_str().unwrap(), false)
        };
        saved.run(&mut ()).unwrap();
        let checkpoint = opened(&out);
        let to = Sharding::parse(&mesh(&fact["to_mesh"]), &shape, fact["to"].as_str().unwrap()).unwrap();
        let mut worst = 0;
        for (rank, chunk) in fact["chunks"].as_array().unwrap().iter().enumerate() {
            let (start, len) = (numbers(&chunk[0]), numbers(&chunk[1]));
            let region = to.region(rank).unwrap();
            let held: Vec<usize> = region.dims.iter().map(|dim| dim.iter().map(|x| x.len).sum()).collect();
            let empty = len.contains(&0);
            assert!(held == len || (empty && held.contains(&0)), "{line}: rank {rank} has {held:?}");
            let begins = || region.dims.iter().map(|dim| dim[0].start).collect::<Vec<_>>();
            assert!(empty || begins() == start, "{line}: rank {rank}");
            let before = checkpoint.bytes_read();
            assert_eq!(checkpoint.shard("t", &to, rank).unwrap(), slice(&tensors["t"], &region), "{line}");
            worst = worst.max(checkpoint.bytes_read() - before);
            reads += 1;
        }
        assert_eq!(worst, fact["read"].as_u64().unwrap(), "{line}");
        lines += 1;
    }
    assert!(lines == 155 && reads > 1000, "{lines} {reads}");
}

#[test]
fn what_is_read_once_and_moved_is_what_each_rank_would_have_read() {
    let mut r = Random(42);
    let folder = tempfile::tempdir().unwrap();
    let tensors: Tensors = [
        ("matrix".to_owned(), tensor(&mut r, Dtype::F32, &[12, 10])),
        ("cube".to_owned(), tensor(&mut r, Dtype::BF16, &[3, 8, 5])),
        ("packed".to_owned(), tensor(&mut r, Dtype::F4, &[6, 16])),
        ("scalar".to_owned(), tensor(&mut r, Dtype::F64, &[])),
    ]
    .into();
    let file = folder.path().join("whole.safetensors");
    write(&file, &tensors);
    let planner = Planner::new();
    let (mut once, mut direct) = (0, 0);
    for (axes, to) in [
        ("a=8", "R"),
        ("a=2,b=4", "R,R"),
        ("a=2,b=4", "R,S(0)"),
        ("a=2,b=4", "S(0),R"),
        ("a=2,b=2,c=2", "R,S(1),R"),
        ("a=2,b=2", "R,BL(0,2)"),
        ("a=3,b=2", "R,Z(0)"),
        ("a=5", "S(0)"),
    ] {
        let mesh: Mesh = axes.parse().unwrap();
        for (name, whole) in &tensors {
            let Ok(wanted) = Sharding::parse(&mesh, &whole.shape, to) else { continue };
            for (node_ranks, gbytes_per_s) in [(4, 1e-6), (8, 1e-6), (1, 1e-6), (8, 1e9)] {
                let by = ReadModel { node_ranks, gbytes_per_s };
                let checkpoint = opened(&file);
                let loading = match checkpoint.plan_load(name, &wanted, &planner, by) {
                    Ok(loading) => loading,
                    Err(error) => {
                        assert!(error.code() == "packed" && name == "packed", "{error}");
                        continue;
                    }
                };
                let mut world = World::new(mesh.world_size()).unwrap();
                let shards = world.run(|comm| checkpoint.load(name, &loading, comm));
                let mut each = 0;
                for (rank, shard) in shards.into_iter().enumerate() {
                    let expected = slice(whole, &wanted.region(rank).unwrap());
                    each += expected.len() as u64;
                    assert_eq!(shard.unwrap(), expected, "{name} {to} {rank}");
                }
                let read = checkpoint.bytes_read();
                let reader = loading.reads();
                if loading.plan().is_none() {
                    assert_eq!(read, each, "{name} {to}");
                    direct += 1;
                    continue;
                }
                assert!(read < each && loading.node_bytes() <= read, "{name} {to}: {reader}");
                // Slow files, and all ranks in one node: no byte is read twice, if every replicating axis can
                // split a dim.
                let ranks = mesh.size();
                if node_ranks >= ranks && whole.shape.iter().all(|extent| *extent >= ranks) {
                    assert_eq!(read, whole.bytes.len() as u64, "{name} {to}: {reader}");
                }
                once += 1;
            }
        }
    }
    assert!(once > 20 && direct > 20, "{once} {direct}");
    let checkpoint = opened(&file);
    let all = Sharding::parse(&"a=2".parse().unwrap(), &[12, 10], "R").unwrap();
    for by in [(0, 1.0), (2, 0.0), (2, f64::NAN), (2, -1.0)] {
        let by = ReadModel { node_ranks: by.0, gbytes_per_s: by.1 };
        assert_eq!(checkpoint.plan_load("matrix", &all, &planner, by).unwrap_err().code(), "reading");
    }
}

/// The environment variable by which this test starts itself as one rank of a job.
const RANK: &str = "RESHARD_TEST_LOADING";

/// Ranks in separate processes: each opens the checkpoint, reads its shards and prints them.
#[test]
fn processes_read_their_shards_and_no_byte_more() {
    let (axes, to) = ("a=2,b=3", "S(1),S(0)");
    let read_all = |path: &Path, rank: usize| -> BTreeMap<String, (Vec<u8>, u64)> {
        let checkpoint = opened(path);
        let shard = |tensor: &reshard_checkpoint::Tensor| {
            let to = Sharding::parse(&axes.parse().unwrap(), tensor.shape(), to).unwrap();
            let before = checkpoint.bytes_read();
            let bytes = checkpoint.shard(tensor.name(), &to, rank).unwrap();
            (tensor.name().to_owned(), (bytes, checkpoint.bytes_read() - before))
        };
        checkpoint.tensors().iter().map(shard).collect()
    };
    if let Ok(asked) = std::env::var(RANK) {
        let (rank, path) = asked.split_once(' ').unwrap();
        for (name, (bytes, read)) in read_all(Path::new(path), rank.parse().unwrap()) {
            let digits = format!("{bytes:02x?}").replace(' ', "");
            println!("\nread {name} {read} {digits}");
        }
        return;
    }
    let mut r = Random(43);
    let folder = tempfile::tempdir().unwrap();
    let tensors: Tensors = [
        ("matrix".to_owned(), tensor(&mut r, Dtype::F32, &[7, 9])),
        ("cube".to_owned(), tensor(&mut r, Dtype::U8, &[5, 4, 3])),
    ]
    .into();
    let (file, out) = (folder.path().join("whole.safetensors"), folder.path().join("out"));
    write(&file, &tensors);
    let (mesh, sharded) = draw_sharding(&mut r);
    ReshardJob { out: Some(out.clone()), ..job(&file, mesh, sharded, false) }.run(&mut ()).unwrap();
    let children: Vec<_> = (0..6)
        .map(|rank| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "loading::processes_read_their_shards_and_no_byte_more", "--nocapture"]);
            command.env(RANK, format!("{rank} {}", out.display())).stdout(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut seen = 0;
    for (rank, child) in children.into_iter().enumerate() {
        let said = child.wait_with_output().unwrap();
        assert!(said.status.success());
        for line in String::from_utf8(said.stdout).unwrap().lines() {
            let Some(rest) = line.strip_prefix("read ") else { continue };
            let words: Vec<&str> = rest.split(' ').collect();
            let whole = &tensors[words[0]];
            let to = Sharding::parse(&axes.parse().unwrap(), &whole.shape, to).unwrap();
            let expected = slice(whole, &to.region(rank).unwrap());
            let digits = format!("{expected:02x?}").replace(' ', "");
            assert_eq!((words[1], words[2]), (&expected.len().to_string()[..], &digits[..]), "rank {rank}");
            seen += 1;
        }
    }
    assert_eq!(seen, 12);
    assert!(Checkpoint::open(Some(&out)).is_ok());
}
