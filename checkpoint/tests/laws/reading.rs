//! Reads of parts of tensors: the result is the slice, and no byte more is read.

use std::path::Path;

use reshard_checkpoint::Checkpoint;
use reshard_sharding::{Interval, Region};
use reshard_test_support::Random;

use crate::files::{draw, draw_sharding, inputs, slice};

pub(crate) fn opened(path: &Path) -> Checkpoint {
    Checkpoint::open(Some(path)).unwrap()
}

pub(crate) fn draw_region(r: &mut Random, shape: &[usize], packed: bool) -> Region {
    let dims = shape.len();
    let mut dim = |(at, extent): (usize, &usize)| {
        // Elements that share bytes are taken in groups of eight.
        let unit = if packed && at + 1 == dims { 8 } else { 1 };
        let (start, end) = (r.below(extent / unit + 1), r.below(extent / unit + 1));
        let (start, end) = (start.min(end) * unit, start.max(end) * unit);
        (end > start).then_some(Interval { start, len: end - start }).into_iter().collect()
    };
    Region { dims: shape.iter().enumerate().map(&mut dim).collect() }
}

#[test]
fn a_region_is_the_slice_of_the_whole_and_no_byte_more_is_read() {
    let mut r = Random(11);
    let mut read = 0;
    for _ in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let tensors = draw(&mut r);
        for input in inputs(folder.path(), &tensors, &mut r) {
            let checkpoint = opened(&input);
            assert_eq!(checkpoint.bytes_read(), 0, "opening reads headers");
            for (name, whole) in &tensors {
                for _ in 0..4 {
                    let region = draw_region(&mut r, &whole.shape, whole.dtype.bitsize() < 8);
                    let before = checkpoint.bytes_read();
                    let bytes = checkpoint.read(name, &region).unwrap();
                    assert_eq!(bytes, slice(whole, &region), "{input:?} {name} {region:?}");
                    assert_eq!(checkpoint.bytes_read() - before, bytes.len() as u64);
                    read += bytes.len();
                }
            }
        }
    }
    assert!(read > 10_000, "{read}");
}

#[test]
fn a_shard_is_what_its_rank_holds_and_no_byte_more_is_read() {
    let mut r = Random(12);
    let mut shards = 0;
    for _ in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let tensors = draw(&mut r);
        for input in inputs(folder.path(), &tensors, &mut r) {
            let checkpoint = opened(&input);
            for (name, whole) in &tensors {
                let (mesh, text) = draw_sharding(&mut r);
                let mesh = mesh.parse().unwrap();
                let Ok(sharding) = reshard_sharding::Sharding::parse(&mesh, &whole.shape, text) else {
                    continue;
                };
                for rank in mesh.ranks() {
                    let before = checkpoint.bytes_read();
                    let bytes = match checkpoint.shard(name, &sharding, rank) {
                        Ok(bytes) => bytes,
                        Err(error) => {
                            assert!(whole.dtype.bitsize() < 8 && error.code() == "packed", "{error}");
                            continue;
                        }
                    };
                    assert_eq!(
                        bytes,
                        slice(whole, &sharding.region(rank).unwrap()),
                        "{name} {sharding} {rank}"
                    );
                    assert_eq!(checkpoint.bytes_read() - before, bytes.len() as u64);
                    shards += 1;
                }
            }
        }
    }
    assert!(shards > 300, "{shards}");
}

#[test]
fn what_is_no_region_or_no_sharding_of_a_tensor_is_refused() {
    let block = Checkpoint::open(None).unwrap();
    let region = |dims: &[(usize, usize)]| Region {
        dims: dims.iter().map(|&(start, len)| [Interval { start, len }].into_iter().collect()).collect(),
    };
    for dims in [&[(0, 1)][..], &[(0, 2004), (0, 1)], &[(2003, 1), (0, 1)], &[(usize::MAX, 2), (0, 1)]] {
        let error = block.read("embedding.weight", &region(dims)).unwrap_err();
        assert_eq!(error.code(), "region", "{error}");
    }
    let touching = [Interval { start: 4, len: 2 }, Interval { start: 5, len: 1 }];
    let overlapping = Region {
        dims: [touching.into_iter().collect(), region(&[(0, 1)]).dims[0].clone()].into_iter().collect(),
    };
    assert_eq!(block.read("embedding.weight", &overlapping).unwrap_err().code(), "region");
    assert_eq!(block.read("absent", &region(&[])).unwrap_err().code(), "no_such_tensor");
    let mesh = "a=2".parse().unwrap();
    let other = reshard_sharding::Sharding::parse(&mesh, &[4, 4], "S(0)").unwrap();
    assert_eq!(block.shard("embedding.weight", &other, 0).unwrap_err().code(), "shape");
    let sums = reshard_sharding::Sharding::parse(&mesh, &[2003, 256], "P").unwrap();
    assert_eq!(block.shard("embedding.weight", &sums, 0).unwrap_err().code(), "partial_target");
}
