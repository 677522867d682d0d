//! More than 2^31 elements in one tensor, in one shard and in one message; `make large` runs it, in some 7 GiB.

use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

/// Elements of a shard: its own number of bytes needs 32 bits, twice as many need 33.
const SHARD: usize = (1 << 31) + 4096;

/// The byte of an element: no power of two, so that a cut-off offset shows.
fn byte(element: usize) -> u8 {
    (element % 251) as u8 ^ (element >> 31) as u8
}

#[test]
#[ignore = "7 GiB"]
fn a_byte_tensor_of_more_than_two_to_the_31() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let parse = |text: &str| Sharding::parse(&mesh, &[SHARD], text).unwrap();
    for (from, to) in [("S(0)", "R"), ("R", "S(0)")] {
        let plan = Planner::new().plan(&parse(from), &parse(to), DType::U8).unwrap();
        let results = World::new(2).unwrap().run(|comm| {
            let compiled = CompiledPlan::new(&plan, comm.rank())?;
            let start = |sharding: &str| if sharding == "R" { 0 } else { comm.rank() * SHARD / 2 };
            let (here, there) = (start(from), start(to));
            let source: Vec<u8> = (here..here + compiled.source_bytes()).map(byte).collect();
            let mut target = vec![0; compiled.target_bytes()];
            let mut scratch = compiled.scratch(comm)?;
            compiled.run(comm, &source, &mut target, &mut scratch)?;
            let wrong = target.iter().enumerate().position(|(i, is)| *is != byte(there + i));
            Ok::<_, Error>((wrong, target.len(), comm.take_trace()))
        });
        for (rank, result) in results.into_iter().enumerate() {
            let (wrong, len, trace) = result.unwrap();
            assert_eq!(wrong, None, "{from} -> {to}: rank {rank}");
            println!("{from} -> {to}: rank {rank} has {len} right bytes, {} of them received", trace.total());
        }
    }
}

#[test]
#[ignore = "7 GiB"]
fn a_message_of_more_than_two_to_the_31() {
    // From one rank to another, on two meshes.
    let parse = |mesh: &str| Sharding::replicated(&mesh.parse::<Mesh>().unwrap(), &[SHARD]).unwrap();
    let plan = Planner::new().plan(&parse("x=1"), &parse("x=1@1"), DType::U8).unwrap();
    let whole: Vec<u8> = (0..SHARD).map(byte).collect();
    let (shards, trace) = World::new(2).unwrap().redistribute(&plan, &[&whole]).unwrap();
    assert!(shards[0] == whole);
    assert_eq!(trace.received(|hop| (hop.receiver, hop.sender) == (1, 0)), SHARD as u64);
}
