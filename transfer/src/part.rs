//! The part of a plan that one rank executes.
//!
//! A part names tensors, and lists boxes: what the rank receives, sends and fills with zeros. For each pair of ranks,
//! the sender and the receiver list the same boxes in the same order, so the bytes of a message are its boxes packed
//! one after another, each with its loops outermost first.

use std::fmt;

use reshard_mapping::Dtype;

use crate::dtype;
use crate::names::name_key;

/// A loop of a box: `extent` steps, in both buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Number of steps, at least 2.
    pub extent: u64,
    /// Elements from one step to the next in the buffer of the sender; 0 if each step reads the same element.
    pub source_stride: u64,
    /// Elements from one step to the next in the buffer of the receiver.
    pub target_stride: u64,
}

/// A tensor of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// Elements of the buffer of this rank; 0 if it has none.
    pub(crate) count: u64,
}

/// Returns the key of the canonical order of tensors.
pub(crate) fn key(name: &str, dtype: Dtype) -> (String, String, Vec<u32>) {
    let (text, numbers) = name_key(name);
    (text, dtype::name(dtype), numbers)
}

impl Named {
    /// Returns the key of the canonical order, in which the names of layers are next to each other.
    pub(crate) fn key(&self) -> (String, String, Vec<u32>) {
        key(&self.name, self.dtype)
    }
}

/// Boxes that differ only in their tensors and offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The other rank; `None` for zeros.
    pub(crate) peer: Option<usize>,
    /// The types that each element is converted to, starting with the stored type; empty if there is no conversion.
    pub(crate) cast: Vec<Dtype>,
    pub(crate) loops: Vec<Loop>,
}

impl std::hash::Hash for Template {
    // Types have no hash; templates that differ in them alone are few.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.peer, self.cast.len(), &self.loops).hash(state);
    }
}

impl Template {
    pub(crate) fn elements(&self) -> u64 {
        self.loops.iter().fold(1, |n, one| n.saturating_mul(one.extent))
    }

    /// Returns the offset of the last element relative to the first, in the source and the target.
    pub(crate) fn spans(&self) -> (u64, u64) {
        self.loops.iter().fold((0, 0), |(source, target), one| {
            let steps = one.extent.saturating_sub(1);
            (
                source.saturating_add(steps.saturating_mul(one.source_stride)),
                target.saturating_add(steps.saturating_mul(one.target_stride)),
            )
        })
    }
}

/// A box: a template, and its two bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) template: usize,
    /// Index in the source tensors; 0 for zeros.
    pub(crate) source: usize,
    /// Index in the target tensors.
    pub(crate) target: usize,
    pub(crate) source_offset: u64,
    pub(crate) target_offset: u64,
}

/// The part of a plan that one rank executes.
///
/// Counts, offsets and strides are in elements of the buffers of one tensor on one rank.
///
/// ```
/// use reshard_mapping::Mapping;
/// use reshard_transfer::{Options, RankPart, Side, Transfer};
///
/// let side = |mesh: &str, placements: &str| {
///     Side::from_json(&format!(
///         r#"{{"mesh": "{mesh}", "tensors": [{{"name": "w", "dtype": "f32", "shape": [8, 4], "placements": "{placements}"}}]}}"#
///     ))
/// };
/// let (trainer, server) = (side("dp=2", "S(0)")?, side("tp=2@2", "S(1)")?);
/// let plan = Transfer::plan(&trainer, &server, &Mapping::default(), &Options::default())?;
/// let part = plan.part(3);
/// let copy = part.receives().next().unwrap();
/// assert_eq!((copy.peer, copy.source_offset, copy.target_offset), (Some(0), 2, 0)); // columns 2 and 3 of 4 rows
/// assert_eq!(copy.loops.iter().map(|one| one.extent).collect::<Vec<_>>(), [4, 2]);
/// assert_eq!(RankPart::from_json(&part.to_json())?, part);
/// assert_eq!(RankPart::from_bytes(&part.to_bytes())?, part);
/// # Ok::<(), reshard_transfer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPart {
    pub(crate) hash: u64,
    pub(crate) rank: usize,
    /// In canonical order.
    pub(crate) sources: Vec<Named>,
    /// In canonical order.
    pub(crate) targets: Vec<Named>,
    /// By first use in receives, sends and fills.
    pub(crate) templates: Vec<Template>,
    pub(crate) receives: Vec<Entry>,
    pub(crate) sends: Vec<Entry>,
    pub(crate) fills: Vec<Entry>,
}

/// A box of a part: elements of a source buffer, and where they are written in a target buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoxCopy<'a> {
    /// The other rank, or the rank itself for a copy within it; `None` for zeros.
    pub peer: Option<usize>,
    /// Name of the source tensor; empty for zeros.
    pub source: &'a str,
    /// Name of the target tensor.
    pub target: &'a str,
    /// The types that each element is converted to, starting with the stored type; empty if there is no conversion.
    /// An element is sent in the first of the smallest of these types.
    pub cast: &'a [Dtype],
    /// First element of the source buffer.
    pub source_offset: u64,
    /// First element of the target buffer.
    pub target_offset: u64,
    /// The loops, outermost first; none for one element.
    pub loops: &'a [Loop],
}

impl fmt::Display for RankPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rank {} of plan {:016x}: {} receives, {} sends, {} fills, {} templates",
            self.rank,
            self.hash,
            self.receives.len(),
            self.sends.len(),
            self.fills.len(),
            self.templates.len()
        )
    }
}

impl RankPart {
    /// Returns the hash of the plan.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the boxes that the rank receives, and those that it copies within itself.
    pub fn receives(&self) -> impl Iterator<Item = BoxCopy<'_>> {
        self.receives.iter().map(|entry| self.copy(entry))
    }

    /// Returns the boxes that the rank sends.
    pub fn sends(&self) -> impl Iterator<Item = BoxCopy<'_>> {
        self.sends.iter().map(|entry| self.copy(entry))
    }

    /// Returns the boxes that the rank fills with zeros.
    pub fn fills(&self) -> impl Iterator<Item = BoxCopy<'_>> {
        self.fills.iter().map(|entry| self.copy(entry))
    }

    /// Returns the number of groups of boxes that differ only in tensors and offsets.
    pub fn templates(&self) -> usize {
        self.templates.len()
    }

    fn copy(&self, entry: &Entry) -> BoxCopy<'_> {
        let template = &self.templates[entry.template];
        BoxCopy {
            peer: template.peer,
            source: if template.peer.is_some() { &self.sources[entry.source].name } else { "" },
            target: &self.targets[entry.target].name,
            cast: &template.cast,
            source_offset: entry.source_offset,
            target_offset: entry.target_offset,
            loops: &template.loops,
        }
    }

    /// Returns the bytes of a box as it is sent.
    pub(crate) fn bytes(&self, entry: &Entry) -> u64 {
        self.templates[entry.template].elements().saturating_mul(dtype::sent_bytes(&self.types(entry)))
    }

    /// Returns the types of the elements of a box, from the stored one on.
    pub(crate) fn types(&self, entry: &Entry) -> Vec<Dtype> {
        let cast = &self.templates[entry.template].cast;
        let stored = self.sources.get(entry.source).map_or(Dtype::U8, |source| source.dtype);
        if cast.is_empty() { vec![stored] } else { cast.clone() }
    }

    /// Returns the rank that sends or receives a box; `None` for one within this rank, and for zeros.
    pub(crate) fn peer(&self, entry: &Entry) -> Option<usize> {
        self.templates[entry.template].peer.filter(|peer| *peer != self.rank)
    }
}
