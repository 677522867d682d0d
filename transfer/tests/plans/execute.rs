//! Executes a plan on bytes of all ranks, and the slow definition of what each rank must have.

use std::collections::BTreeMap;

use reshard_sharding::{Placement, Placements, Sharding};
use reshard_transfer::{BoxCopy, RankPart, Side, SideTensor, Transfer};

use crate::tensor::{Tensor, Tensors, indices, offset};

/// By rank and name, the elements of a buffer.
pub(crate) type Buffers = BTreeMap<(usize, String), Vec<u64>>;

/// Returns the sharding of a tensor, or of a part of one.
fn sharding(tensor: &SideTensor, shape: &[usize], text: &str) -> Sharding {
    let Some(axes) = &tensor.axes else { return Sharding::parse(&tensor.mesh, shape, text).unwrap() };
    let given: Placements = text.parse().unwrap();
    let all = tensor.mesh.axes().iter().map(|axis| {
        let k = axes.iter().position(|name| *name == axis.name().to_string());
        k.map_or(Placement::Replicate, |k| given[k].clone())
    });
    Sharding::new(&tensor.mesh, shape, &all.collect::<Vec<_>>()).unwrap()
}

/// Returns the shard of a rank, row-major.
fn shard(of: &Sharding, whole: &Tensor, rank: usize) -> Tensor {
    let region = of.region(rank).unwrap();
    let lists: Vec<Vec<usize>> =
        (0..whole.shape.len()).map(|dim| region.indices(dim).unwrap().collect()).collect();
    let shape: Vec<usize> = lists.iter().map(Vec::len).collect();
    let element = |x: Vec<usize>| {
        let x: Vec<usize> = x.iter().zip(&lists).map(|(k, list)| list[*k]).collect();
        whole.data[offset(&whole.shape, &x)]
    };
    Tensor { data: indices(&shape).into_iter().map(element).collect(), shape, dtype: whole.dtype }
}

/// Returns the buffers of all ranks of a side; `parts` has the dim and the extents of targets with parts.
pub(crate) fn buffers(
    side: &Side,
    whole: &BTreeMap<String, Tensor>,
    parts: &BTreeMap<String, (usize, Vec<usize>)>,
) -> Buffers {
    let mut all = Buffers::new();
    for tensor in side.tensors() {
        let value = &whole[&tensor.name];
        let texts: Vec<&str> = tensor.placements.as_ref().unwrap().split('|').map(str::trim).collect();
        for rank in tensor.mesh.ranks() {
            let data = match parts.get(&tensor.name) {
                None => shard(&sharding(tensor, &value.shape, texts[0]), value, rank).data,
                Some((dim, extents)) => {
                    let mut start = 0;
                    let mut shards: Vec<Tensor> = Vec::new();
                    for (k, extent) in extents.iter().enumerate() {
                        let mut shape = value.shape.clone();
                        shape[*dim] = *extent;
                        let element = |mut x: Vec<usize>| {
                            x[*dim] += start;
                            value.data[offset(&value.shape, &x)]
                        };
                        let data = indices(&shape).into_iter().map(element).collect();
                        let part = Tensor { shape: shape.clone(), dtype: value.dtype, data };
                        let text = texts[if texts.len() == 1 { 0 } else { k }];
                        shards.push(shard(&sharding(tensor, &shape, text), &part, rank));
                        start += extent;
                    }
                    concatenated(&shards, *dim)
                }
            };
            all.insert((rank, tensor.name.clone()), data);
        }
    }
    all
}

fn concatenated(shards: &[Tensor], dim: usize) -> Vec<u64> {
    let mut shape = shards[0].shape.clone();
    shape[dim] = shards.iter().map(|shard| shard.shape[dim]).sum();
    let element = |mut x: Vec<usize>| {
        let mut all = shards.iter();
        let mut one = all.next().unwrap();
        while x[dim] >= one.shape[dim] {
            x[dim] -= one.shape[dim];
            one = all.next().unwrap();
        }
        one.data[offset(&one.shape, &x)]
    };
    indices(&shape).into_iter().map(element).collect()
}

/// Returns the offsets of a box in both buffers, in the order in which it is packed.
fn elements(copy: &BoxCopy<'_>) -> Vec<(usize, usize)> {
    let first = vec![(copy.source_offset as usize, copy.target_offset as usize)];
    copy.loops.iter().fold(first, |all, one| {
        let steps = |(source, target): &(usize, usize)| {
            let (source, target, one) = (*source, *target, *one);
            (0..one.extent)
                .map(move |k| {
                    (source + (k * one.source_stride) as usize, target + (k * one.target_stride) as usize)
                })
                .collect::<Vec<_>>()
        };
        all.iter().flat_map(steps).collect()
    })
}

/// Executes the parts of all ranks: messages are packed by the sender and unpacked by the receiver, each by its own part.
pub(crate) fn executed(parts: &[RankPart], sources: &Buffers, counts: &Buffers) -> Buffers {
    let mut messages: BTreeMap<(usize, usize), Vec<u64>> = BTreeMap::new();
    for part in parts {
        for copy in part.sends() {
            let buffer = &sources[&(part.rank(), copy.source.to_owned())];
            let message = messages.entry((part.rank(), copy.peer.unwrap())).or_default();
            message.extend(elements(&copy).into_iter().map(|(source, _)| buffer[source]));
        }
    }
    let mut targets: BTreeMap<(usize, String), Vec<Option<u64>>> =
        counts.iter().map(|(key, data)| (key.clone(), vec![None; data.len()])).collect();
    let mut unpacked: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for part in parts {
        let rank = part.rank();
        let mut put = |copy: &BoxCopy<'_>, target: usize, element: u64| {
            let buffer = targets.get_mut(&(rank, copy.target.to_owned())).unwrap();
            assert_eq!(buffer[target].replace(element), None, "written twice: {copy:?}");
        };
        for copy in part.receives() {
            let from = copy.peer.unwrap();
            for (source, target) in elements(&copy) {
                if from == rank {
                    put(&copy, target, sources[&(rank, copy.source.to_owned())][source]);
                } else {
                    let next = unpacked.entry((from, rank)).or_default();
                    put(&copy, target, messages[&(from, rank)][*next]);
                    *next += 1;
                }
            }
        }
        for fill in part.fills() {
            for (_, target) in elements(&fill) {
                put(&fill, target, 0);
            }
        }
    }
    for (pair, message) in &messages {
        assert_eq!(unpacked.get(pair), Some(&message.len()), "{pair:?}");
    }
    let whole = |(key, data): ((usize, String), Vec<Option<u64>>)| {
        let data =
            data.into_iter().map(|element| element.unwrap_or_else(|| panic!("{key:?} is not written")));
        (key.clone(), data.collect())
    };
    targets.into_iter().map(whole).collect()
}

/// Returns the parts of all ranks.
pub(crate) fn parts(plan: &Transfer) -> Vec<RankPart> {
    plan.ranks().iter().map(|rank| plan.part(*rank)).collect()
}

/// Returns whole tensors by name.
pub(crate) fn by_name(tensors: &Tensors) -> BTreeMap<String, Tensor> {
    tensors.iter().cloned().collect()
}
