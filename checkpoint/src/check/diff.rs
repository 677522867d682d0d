//! Compares two checkpoints, in any files and shardings: their tensors, and the bytes of other entries.

mod objects;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reshard_layout::internal::counted;
use serde::Serialize;

use crate::error::Error;
use crate::job::observer::{Observer, moved};
use crate::model::checkpoint::{Checkpoint, Tensor};
use crate::model::placed::{Known, all};
use crate::model::slab::Slabs;
use crate::model::units::Units;
use crate::reading::Source;
use crate::reading::slab_read::{Buffers, assemble};
use crate::spread::{spread, threads};
use objects::{Objects, compare_objects};

/// The largest number of bytes compared at a time.
const SLAB: usize = 4 << 20;

/// The differences between two checkpoints.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DiffReport {
    /// `true` if everything that was compared is equal.
    pub equal: bool,
    /// The number of tensors in both.
    pub tensors: usize,
    /// The number of compared entries in both that are not tensors.
    pub others: usize,
    /// Names that only the first has.
    pub only_first: Vec<String>,
    /// Names that only the second has.
    pub only_second: Vec<String>,
    /// Tensors and other entries that both have and that differ, by name.
    pub different: Vec<TensorDiff>,
    /// Other entries that are part of a `.pt` or `.npz` file in one of the two, and so are not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// A tensor, or another entry, that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorDiff {
    /// The name of the tensor or entry.
    pub name: String,
    /// A description of the difference.
    pub what: String,
    /// The index of the first different element; `None` if types or shapes differ, or elements share bytes.
    pub first: Option<Vec<usize>>,
}

/// A tensor that is in both.
struct Pair<'a> {
    number: usize,
    units: Units,
    slabs: Slabs,
    sources: [Source<'a>; 2],
}

/// The number of different units of a tensor, and the first of them.
type Found = (usize, usize);

/// Compares two checkpoints; free texts, files and shardings are ignored.
///
/// Entries that are not tensors are compared by their bytes; archives of `torch.save` entry by entry.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, diff};
/// let (one, two) = (Checkpoint::open(None)?, Checkpoint::open(None)?);
/// assert!(diff(&one, &two, &mut ())?.equal);
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
pub fn diff(
    first: &Checkpoint,
    second: &Checkpoint,
    observer: &mut dyn Observer,
) -> Result<DiffReport, Error> {
    let others: HashMap<&str, &Tensor> =
        second.tensors.iter().map(|tensor| (&tensor.name[..], tensor)).collect();
    let mut pairs: Vec<(&Tensor, &Tensor)> =
        first.tensors.iter().filter_map(|one| Some((one, *others.get(&one.name[..])?))).collect();
    pairs.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let only = |one: &Checkpoint, of_objects: Vec<String>| {
        let mut only = of_objects;
        let mut names: Vec<String> = one.tensors.iter().map(|tensor| tensor.name.clone()).collect();
        names.retain(|name| pairs.binary_search_by(|pair| pair.0.name.cmp(name)).is_err());
        only.extend(names);
        only.sort_unstable();
        only
    };
    let Objects { only_first, only_second, pairs: objects, not_compared } = Objects::of(first, second);
    let (only_first, only_second) = (only(first, only_first), only(second, only_second));
    let same = |(a, b): &&(&Tensor, &Tensor)| (a.dtype, &a.shape) == (b.dtype, &b.shape);
    observer.on_start(pairs.iter().filter(same).map(|(one, _)| one.byte_len()).sum());
    let found = compare(&pairs, observer)?;
    observer.on_finish();
    let mut different: Vec<TensorDiff> =
        pairs.iter().zip(found).filter_map(|(pair, found)| different(*pair, found)).collect();
    for (one, two) in &objects {
        different.extend(compare_objects(one, two)?);
    }
    different.sort_by(|a, b| a.name.cmp(&b.name));
    let equal = only_first.is_empty() && only_second.is_empty() && different.is_empty();
    let (tensors, others) = (pairs.len(), objects.len());
    Ok(DiffReport { equal, tensors, others, only_first, only_second, different, not_compared })
}

/// Returns for each pair the number of different units, and the first.
fn compare(pairs: &[(&Tensor, &Tensor)], observer: &mut dyn Observer) -> Result<Vec<Found>, Error> {
    let found = Mutex::new(vec![(0, usize::MAX); pairs.len()]);
    let mut left = pairs.iter().enumerate();
    let mut known = [Known::default(), Known::default()];
    let mut current: Option<(Arc<Pair<'_>>, usize)> = None;
    let next = || loop {
        if let Some((pair, slab)) = &mut current
            && *slab < pair.slabs.count()
        {
            *slab += 1;
            return Ok(Some((Arc::clone(pair), *slab - 1)));
        }
        let Some((number, (one, two))) = left.next() else { return Ok(None) };
        if (one.dtype, &one.shape) != (two.dtype, &two.shape) {
            continue;
        }
        let units = one.units();
        let [of_one, of_two] = &mut known;
        let about = |error: Error| error.about_tensor(&one.name);
        let sources =
            [one.source(&units, of_one).map_err(about)?, two.source(&units, of_two).map_err(about)?];
        let slabs = Slabs::of(units.shape(), units.bytes, SLAB);
        current = Some((Arc::new(Pair { number, units, slabs, sources }), 0));
    };
    spread(
        threads(),
        next,
        <[Buffers; 2]>::default,
        |[one, two], (pair, number)| {
            let slab = pair.slabs.get(number);
            let bytes = pair.units.bytes;
            assemble(&pair.sources[0], &slab, one)?;
            assemble(&pair.sources[1], &slab, two)?;
            if one.slab != two.slab {
                let units = one.slab.chunks(bytes).zip(two.slab.chunks(bytes)).enumerate();
                let mut wrong = units.filter(|(_, (one, two))| one != two).map(|(at, _)| at);
                if let Some(first) = wrong.next() {
                    let start =
                        slab.part(&all(pair.units.shape())).map_or(0, |part| part.bytes.start / bytes);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    let (count, lowest) = &mut found[pair.number];
                    *count += 1 + wrong.count();
                    *lowest = (*lowest).min(start + first);
                }
            }
            Ok(slab.len as u64)
        },
        &mut |bytes| moved(observer, bytes),
    )?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Describes the difference of two tensors, if there is one.
pub(crate) fn difference(one: &Tensor, two: &Tensor) -> Result<Option<String>, Error> {
    let found = compare(&[(one, two)], &mut ())?.into_iter().next().unwrap_or((0, 0));
    Ok(different((one, two), found).map(|different| different.what))
}

/// Describes the difference of a pair, if there is one.
fn different((one, two): (&Tensor, &Tensor), (count, at): Found) -> Option<TensorDiff> {
    let said =
        |what: String, first: Option<Vec<usize>>| Some(TensorDiff { name: one.name.clone(), what, first });
    if one.dtype != two.dtype {
        return said(format!("it is {} and {}", one.dtype, two.dtype), None);
    }
    if one.shape != two.shape {
        return said(format!("it is {:?} and {:?}", one.shape, two.shape), None);
    }
    if count == 0 {
        return None;
    }
    let units = one.units();
    if units.shape() != one.shape {
        return said(
            format!("{count} of {} differ, the first is byte {at}", counted(one.byte_len(), "byte", "bytes")),
            None,
        );
    }
    let (mut index, mut rest) = (vec![0; one.shape.len()], at);
    for (index, extent) in index.iter_mut().zip(&one.shape).rev() {
        *index = rest % extent;
        rest /= extent;
    }
    let numel: usize = one.shape.iter().product();
    said(
        format!(
            "{count} of {numel} differ, the first at {index:?}",
            numel = counted(numel, "element", "elements")
        ),
        Some(index),
    )
}
