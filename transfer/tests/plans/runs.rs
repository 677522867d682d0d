//! Runs plans over the threads engine, on the bytes of all ranks.

use std::collections::BTreeMap;

use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, Error};
use reshard_kernels::{Cast, DType};
use reshard_mapping::Mapping;
use reshard_test_support::Random;
use reshard_transfer::{Commit, CompiledTransfer, Options, Side, Transfer, TransferBuffer};

use crate::execute::{Buffers, buffers};
use crate::tensor::{Tensor, distinct};

fn bytes_of(buffer: &TransferBuffer, elements: &[u64]) -> Vec<u8> {
    let item = item(buffer);
    let bytes: Vec<u8> = elements.iter().flat_map(|one| one.to_le_bytes()[..item].to_vec()).collect();
    assert_eq!(bytes.len(), buffer.bytes, "{}", buffer.name);
    bytes
}

fn item(buffer: &TransferBuffer) -> usize {
    buffer.dtype.bitsize() / 8
}

/// Runs a plan three times into the same buffers, and returns them.
///
/// Elements are numbers whose low bytes are the bytes of an element.
fn ran(plan: &Transfer, held: &Buffers, commit: Commit, max_bytes: usize) -> Buffers {
    let size = plan.ranks().last().unwrap() + 1;
    let results = World::new(size).unwrap().run(|comm| {
        let rank = comm.rank();
        if plan.ranks().binary_search(&rank).is_err() {
            let error = CompiledTransfer::new(plan, comm, commit, max_bytes).unwrap_err();
            assert_eq!(error, Error::NotInPlan { rank });
            return Ok(Vec::new());
        }
        let mut compiled = CompiledTransfer::new(plan, comm, commit, max_bytes)?;
        let read = |one: &TransferBuffer| bytes_of(one, &held[&(rank, one.name.clone())]);
        let sources: Vec<Vec<u8>> = compiled.sources().iter().map(read).collect();
        let mut targets: Vec<Vec<u8>> = compiled.targets().iter().map(|one| vec![0xaa; one.bytes]).collect();
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        for _ in 0..3 {
            for one in &mut targets {
                one.fill(0xaa);
            }
            let mut targets: Vec<&mut [u8]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
            compiled.run(comm, &sources, &mut targets)?;
        }
        let named = compiled.targets().iter().zip(targets).map(|(one, bytes)| {
            let element = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
            ((rank, one.name.clone()), bytes.chunks(item(one)).map(element).collect())
        });
        Ok::<_, Error>(named.collect())
    });
    results.into_iter().flat_map(Result::unwrap).collect()
}

/// Runs a plan of tensors of 4 bytes an element on distinct elements; targets without elements are not written.
pub(crate) fn run(plan: &Transfer, held: &Buffers, commit: Commit, max_bytes: usize) -> Buffers {
    // The elements of the definition have more than 4 bytes, so they are numbered.
    let mut known: Vec<u64> = held.values().flatten().copied().collect();
    known.push(0);
    known.sort_unstable();
    known.dedup();
    let number = |one: &u64| known.binary_search(one).unwrap() as u64;
    let numbered = held.iter().map(|(key, data)| (key.clone(), data.iter().map(number).collect())).collect();
    let written = ran(plan, &numbered, commit, max_bytes);
    written
        .into_iter()
        .map(|(key, data)| (key, data.into_iter().map(|one| known[one as usize]).collect()))
        .collect()
}

/// Returns the bits of an element after conversions.
fn converted(bits: u64, types: &[DType]) -> u64 {
    let mut bytes = bits.to_le_bytes().to_vec();
    for pair in types.windows(2) {
        let cast = Cast::new(pair[0], pair[1]).unwrap();
        let (before, after) = cast.element_bytes();
        let mut out = vec![0; after];
        cast.run(&mut out, &bytes[..before]).unwrap();
        bytes = out;
    }
    bytes.resize(8, 0);
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn elements_are_converted_by_the_rank_that_sends_fewer_bytes() {
    let mut random = Random(29);
    let floats = [("f16", DType::F16), ("bf16", DType::BF16), ("f32", DType::F32), ("f64", DType::F64)];
    for turn in 0..60 {
        let [stored, through, wanted] = [0; 3].map(|_: i32| floats[random.below(4)]);
        // Large enough for several parts of a conversion, in some turns.
        let (rows, columns) = if turn % 10 == 0 { (12, 9000) } else { (12, 8) };
        let shape = [rows, columns];
        let placements = ["S(0),S(1)", "S(1),R", "S(0),S(0)", "R,S(1)", "R,R"];
        let json = |mesh: &str, name: &str, dtype: &str, placements: &str| {
            format!(
                r#"{{"mesh": "{mesh}", "tensors": [{{"name": "{name}", "dtype": "{dtype}", "shape": [{rows}, {columns}], "placements": "{placements}"}}]}}"#
            )
        };
        // Both sides have ranks 1 to 3.
        let source = json("a=2,b=2", "w", stored.0, placements[random.below(5)]);
        let target = json("a=2,b=2@[1,2,3,4]", "v", wanted.0, placements[random.below(5)]);
        let (source, target) = (Side::from_json(&source).unwrap(), Side::from_json(&target).unwrap());
        let rule =
            if random.below(2) == 0 { "v = w".to_owned() } else { format!("v = cast(w, {})", through.0) };
        let is_direct = !rule.contains("cast");
        let mapping = rule.parse::<Mapping>().unwrap().with_cast("*", wanted.0).unwrap();
        let plan = Transfer::plan(&source, &target, &mapping, &Options::default()).unwrap();

        let mut whole = distinct(0, &shape);
        for bits in &mut whole.data {
            let x = f64::from(random.below(1 << 20) as u32) / 64.0 - 2000.0;
            *bits = converted(x.to_bits(), &[DType::F64, stored.1]);
        }
        let held = buffers(&source, &BTreeMap::from([("w".to_owned(), whole.clone())]), &BTreeMap::new());
        let mut types = vec![stored.1];
        types.extend(Some(through.1).filter(|_| !is_direct));
        types.push(wanted.1);
        types.dedup();
        let data = whole.data.iter().map(|bits| converted(*bits, &types)).collect();
        let made = Tensor { data, ..whole };
        let expected = buffers(&target, &BTreeMap::from([("v".to_owned(), made)]), &BTreeMap::new());
        let commit = [Commit::All, Commit::Bucket][turn % 2];
        assert_eq!(ran(&plan, &held, commit, 1 << 20), expected, "{rule} {source}{target}");
    }
}

#[test]
fn buffers_that_do_not_fit_are_errors_and_change_nothing() {
    let side = |mesh: &str, placements: &str| {
        let text = format!(
            r#"{{"mesh": "{mesh}", "tensors": [{{"name": "w", "dtype": "u8", "shape": [4], "placements": "{placements}"}}]}}"#
        );
        Side::from_json(&text).unwrap()
    };
    let (source, target) = (side("a=1", "R"), side("b=1@1", "R"));
    let plan = Transfer::plan(&source, &target, &Mapping::default(), &Options::default()).unwrap();
    let run = |sources: &[&[u8]]| {
        let mut results = World::new(2).unwrap().run(|comm| {
            let mut compiled = CompiledTransfer::new(&plan, comm, Commit::All, 1 << 20)?;
            assert_eq!(compiled.exchanges(), 1);
            if comm.rank() == 0 { compiled.run(comm, sources, &mut []) } else { Ok(()) }
        });
        results.swap_remove(0).unwrap_err().to_string()
    };
    assert_eq!(run(&[]), "memory of rank 0: the transfer has 1 buffer of the source (w), not 0");
    assert_eq!(run(&[&[1, 2, 3]]), "memory of rank 0: the source w has 4 bytes, and the buffer has 3");
}

#[test]
fn ranks_with_different_plans_are_named() {
    let side = |mesh: &str, rows: usize| {
        let text = format!(
            r#"{{"mesh": "{mesh}", "tensors": [{{"name": "w", "dtype": "u8", "shape": [{rows}], "placements": "S(0)"}}]}}"#
        );
        Side::from_json(&text).unwrap()
    };
    let results = World::new(2).unwrap().run(|comm| {
        let rows = if comm.rank() == 0 { 4 } else { 6 };
        let plan = Transfer::plan(
            &side("a=1", rows),
            &side("b=1@1", rows),
            &Mapping::default(),
            &Options::default(),
        );
        CompiledTransfer::new(&plan.unwrap(), comm, Commit::All, 1 << 20).map(drop)
    });
    assert!(matches!(
        results[..],
        [Err(Error::Mismatch { rank: 1, .. }), Err(Error::Mismatch { rank: 0, .. })]
    ));
}

#[test]
fn a_rank_that_fails_leaves_the_targets_of_all_others() {
    let side = |mesh: &str| {
        let text = format!(
            r#"{{"mesh": "{mesh}", "tensors": [{{"name": "a", "dtype": "u8", "shape": [8], "placements": "S(0)"}},
                {{"name": "b", "dtype": "u8", "shape": [8], "placements": "S(0)"}}]}}"#
        );
        Side::from_json(&text).unwrap()
    };
    let plan =
        Transfer::plan(&side("a=2"), &side("b=2@2"), &Mapping::default(), &Options::default()).unwrap();
    for failed in 0..4 {
        let results = World::new(4).unwrap().run(|comm| {
            let rank = comm.rank();
            // One tensor in an exchange, so that the first has arrived when a rank leaves.
            let mut compiled = CompiledTransfer::new(&plan, comm, Commit::All, 4)?;
            assert_eq!(compiled.exchanges(), 2);
            let (held, mut a, mut b) = ([1; 4], [7; 4], [7; 4]);
            let result = match rank {
                _ if rank == failed => Err(Error::NotInPlan { rank }),
                0 | 1 => compiled.run(comm, &[&held, &held], &mut []),
                _ => compiled.run(comm, &[], &mut [&mut a, &mut b]),
            };
            Ok::<_, Error>((result, a, b))
        });
        for (rank, result) in results.into_iter().enumerate().filter(|(rank, _)| *rank != failed) {
            let (result, a, b) = result.unwrap();
            assert!(
                matches!(result, Err(Error::RankFailed { rank, .. }) if rank == failed),
                "{rank}: {result:?}"
            );
            assert_eq!((a, b), ([7; 4], [7; 4]));
        }
    }
}
