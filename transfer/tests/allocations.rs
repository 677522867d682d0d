//! A compiled transfer runs without heap allocations, and into the same staging: counted by the allocator.

use reshard_collectives::Error;
use reshard_collectives::threads::World;
use reshard_mapping::Mapping;
use reshard_test_support::{CountingAllocator, allocations};
use reshard_transfer::{Commit, CompiledTransfer, Options, Side, Transfer};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_second_run_allocates_nothing() {
    let source = Side::from_json(
        r#"{"mesh": "dp=2,tp=2", "tensors": [
            {"name": "q", "dtype": "f32", "shape": [64, 64], "placements": "SS(0,2),S(0)"},
            {"name": "k", "dtype": "f32", "shape": [16, 64], "placements": "R,S(1)"}]}"#,
    );
    let target = Side::from_json(
        r#"{"mesh": "kv=2,rep=2@2", "tensors": [
            {"name": "qk", "dtype": "bf16", "local_shape": [24, 64], "placements": "S(0),S(0) | S(0),R"},
            {"name": "head", "dtype": "f64", "shape": [20, 64], "placements": "S(0),S(1)"}]}"#,
    );
    let mapping = "qk = q | k\nhead = pad(k, 20)".parse::<Mapping>().unwrap();
    let mapping = mapping.with_cast("qk", "bf16").unwrap().with_cast("head", "f64").unwrap();
    let plan = Transfer::plan(&source.unwrap(), &target.unwrap(), &mapping, &Options::default()).unwrap();
    for (commit, max_bytes) in [(Commit::All, 1 << 20), (Commit::All, 1), (Commit::Bucket, 1)] {
        let results = World::new(6).unwrap().run(|comm| {
            let mut compiled = CompiledTransfer::new(&plan, comm, commit, max_bytes)?;
            assert_eq!(compiled.exchanges(), if max_bytes == 1 { 2 } else { 1 });
            let sources: Vec<Vec<u8>> = compiled.sources().iter().map(|one| vec![1; one.bytes]).collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let mut targets: Vec<Vec<u8>> = compiled.targets().iter().map(|one| vec![0; one.bytes]).collect();
            let mut targets: Vec<&mut [u8]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
            // The engine itself reaches the size of its lists in a few runs.
            for _ in 0..3 {
                compiled.run(comm, &sources, &mut targets)?;
            }
            let mut result = Ok(());
            let counted = allocations(|| {
                for _ in 0..20 {
                    result = result.clone().and(compiled.run(comm, &sources, &mut targets));
                }
            });
            result.map(|()| counted)
        });
        assert_eq!(results, [const { Ok::<usize, Error>(0) }; 6], "{commit} {max_bytes}");
    }
}
