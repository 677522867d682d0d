//! Joins what each rank of a side describes, and compares what all ranks planned.

use std::collections::{BTreeMap, HashMap};

use reshard_mapping::Mapping;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, shown};
use crate::side::{Side, SideTensor};

impl Side {
    /// Joins the descriptions of single ranks: what each rank holds, with the mesh of each tensor.
    ///
    /// The order is that of the first rank that describes a tensor. Buffers may differ between ranks.
    ///
    /// ```
    /// use reshard_transfer::{ErrorKind, Side};
    ///
    /// let of = |dtype: &str| {
    ///     Side::from_json(&format!(
    ///         r#"{{"mesh": "dp=2", "tensors": [{{"name": "w", "dtype": "{dtype}", "shape": [8], "placements": "S(0)"}}]}}"#
    ///     ))
    /// };
    /// assert_eq!(Side::merge(&[(0, of("f32")?), (1, of("f32")?)])?, of("f32")?);
    /// let error = Side::merge(&[(0, of("f32")?), (1, of("f64")?)]).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::SidesDiffer);
    /// # Ok::<(), reshard_transfer::Error>(())
    /// ```
    ///
    /// Errors: `source_lacks` for a rank of a mesh that does not describe its tensor, and `sides_differ`.
    pub fn merge(ranks: &[(usize, Self)]) -> Result<Self, Error> {
        let mut order: Vec<&SideTensor> = Vec::new();
        let mut described: HashMap<&str, BTreeMap<usize, &SideTensor>> = HashMap::new();
        for (rank, side) in ranks {
            for tensor in side.tensors() {
                let of_name = described.entry(&tensor.name).or_default();
                if of_name.is_empty() {
                    order.push(tensor);
                }
                if of_name.insert(*rank, tensor).is_some() {
                    let message = format!("rank {rank} is described twice; give one description per rank");
                    return Err(Error::invalid(message));
                }
            }
        }
        let mut tensors = Vec::with_capacity(order.len());
        for first in order {
            let of_name = &described[&first.name[..]];
            tensors.push(merged(first, of_name)?);
        }
        Self::new(tensors)
    }
}

/// Returns a tensor that several ranks describe.
fn merged(first: &SideTensor, of_ranks: &BTreeMap<usize, &SideTensor>) -> Result<SideTensor, Error> {
    let bare = |tensor: &SideTensor| SideTensor {
        local_shape: None,
        local_shapes: BTreeMap::new(),
        ..tensor.clone()
    };
    let expected = bare(first);
    let name = shown(&first.name);
    let one = of_ranks.iter().find(|(_, tensor)| std::ptr::eq(**tensor, first)).map_or(0, |(rank, _)| *rank);
    for (rank, tensor) in of_ranks {
        if bare(tensor) != expected {
            let message = format!(
                "{} on rank {rank}, and {} on rank {one}; describe it equally on all ranks",
                bare(tensor),
                expected.to_string().trim_start_matches(&format!("`{name}` is "))
            );
            return Err(Error::new(ErrorKind::SidesDiffer, message));
        }
    }
    for rank in first.mesh.ranks() {
        if !of_ranks.contains_key(&rank) {
            let message = format!(
                "rank {rank} has no `{name}`, which rank {one} has; it is on {}, so give it to all of these ranks",
                first.mesh
            );
            return Err(Error::new(ErrorKind::SourceLacks, message));
        }
    }
    let mut local_shapes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (rank, tensor) in of_ranks {
        if let Some(shape) = tensor.local_shapes.get(rank).or(tensor.local_shape.as_ref()) {
            local_shapes.insert(*rank, shape.clone());
        }
    }
    let first_shape = local_shapes.values().next();
    let same = first_shape.filter(|shape| local_shapes.values().all(|other| other == *shape));
    match same.cloned() {
        Some(shape) if local_shapes.len() == first.mesh.size() => {
            Ok(SideTensor { local_shape: Some(shape), ..expected })
        }
        Some(_) | None => Ok(SideTensor { local_shapes, ..expected }),
    }
}

/// The plan of a rank, to be compared with the plans of the others before any byte is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    rank: usize,
    hash: u64,
    rules: Vec<String>,
}

impl Agreement {
    /// Returns the agreement of a rank that planned with this mapping; `hash` is that of the plan.
    pub fn new(rank: usize, hash: u64, mapping: &Mapping) -> Self {
        let casts = mapping.casts().map(|(pattern, to)| match to {
            Some(to) => format!("cast {pattern} = {}", crate::dtype::name(to)),
            None => format!("cast {pattern} = keep"),
        });
        Self { rank, hash, rules: mapping.rules().chain(casts).collect() }
    }

    /// Returns an error unless all ranks have one plan.
    ///
    /// Errors: `hash_differs`, with two ranks and the first rule in which they differ.
    pub fn check(all: &[Self]) -> Result<(), Error> {
        let Some((first, others)) = all.split_first() else { return Ok(()) };
        let Some(other) = others.iter().find(|other| other.hash != first.hash) else { return Ok(()) };
        let longest = first.rules.len().max(other.rules.len());
        let differ = (0..longest).find(|k| first.rules.get(*k) != other.rules.get(*k));
        let text = |of: &Self, k: usize| {
            of.rules.get(k).map_or_else(|| "no such rule".to_owned(), |rule| format!("`{}`", shown(rule)))
        };
        let reason = match differ {
            Some(k) => format!(
                "rule {} is {} on rank {} and {} on rank {}",
                k + 1,
                text(first, k),
                first.rank,
                text(other, k),
                other.rank
            ),
            None => "the rules are equal, so the descriptions, options or versions differ".to_owned(),
        };
        let message = format!(
            "rank {} planned {:016x} and rank {} planned {:016x}: {reason}; use one input on all ranks",
            first.rank, first.hash, other.rank, other.hash
        );
        Err(Error::new(ErrorKind::HashDiffers, message))
    }
}
