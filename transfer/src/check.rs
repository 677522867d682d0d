//! The proof of a plan: a function of exported parts, which knows no planner.
//!
//! It proves three facts, from the parts of all ranks:
//!
//! 1. The boxes and fills of each target buffer partition it: each element is written exactly once.
//! 2. Each box is within the source buffer of the rank that sends it, and its types are those of both tensors.
//! 3. For each pair of ranks, the boxes that one sends are those that the other receives, in the same order.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;

use crate::cover::{Fault, Strided, partition};
use crate::dtype;
use crate::error::{Error, ErrorKind, shown};
use crate::hash::Hasher;
use crate::part::{Entry, RankPart};

/// The counts of a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Coverage {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of target buffers.
    pub buffers: usize,
    /// Number of boxes that are received or copied, and of fills.
    pub boxes: usize,
    /// Number of elements of all target buffers, each of which is written once.
    pub elements: u64,
    /// Bytes of all boxes that are sent from one rank to another.
    pub bytes: u64,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} elements of {} buffers on {} ranks are written once, by {} boxes; {} bytes are sent",
            self.elements, self.buffers, self.ranks, self.boxes, self.bytes
        )
    }
}

/// The boxes of one direction of a message.
#[derive(Clone, Copy, Default)]
struct Listed {
    boxes: usize,
    hash: Hasher,
}

/// The boxes that both ranks of a message list.
#[derive(Clone, Copy, Default)]
struct Message {
    sent: Listed,
    received: Listed,
}

/// Proves that the parts of all ranks of a plan write each element of each target exactly once.
///
/// Parts are used one at a time, so that memory for one of them is enough.
///
/// ```
/// use reshard_mapping::Mapping;
/// use reshard_transfer::{Options, Side, Transfer, check};
///
/// let side = |mesh: &str, placements: &str| {
///     Side::from_json(&format!(
///         r#"{{"mesh": "{mesh}", "tensors": [{{"name": "w", "dtype": "f32", "shape": [8, 4], "placements": "{placements}"}}]}}"#
///     ))
/// };
/// let (trainer, server) = (side("dp=2", "S(0)")?, side("tp=2@2", "S(1)")?);
/// let plan = Transfer::plan(&trainer, &server, &Mapping::default(), &Options::default())?;
/// let coverage = check(plan.ranks().iter().map(|rank| Ok(plan.part(*rank))))?;
/// assert_eq!((coverage.elements, coverage.boxes), (32, 4));
/// # Ok::<(), reshard_transfer::Error>(())
/// ```
///
/// Errors: `unwritten`, `written_twice`, `messages_differ`, `dtype_mismatch`, `hash_differs` for parts of different
/// plans, and `invalid`; those of the parts themselves are returned as they are.
pub fn check(parts: impl IntoIterator<Item = Result<RankPart, Error>>) -> Result<Coverage, Error> {
    let mut coverage = Coverage::default();
    let mut messages: HashMap<(usize, usize), Message> = HashMap::new();
    let mut hashes: BTreeMap<usize, u64> = BTreeMap::new();
    for part in parts {
        let part = part?;
        if hashes.insert(part.rank, part.hash).is_some() {
            return Err(Error::invalid(format!("rank {} has two parts; export the plan again", part.rank)));
        }
        if let Some((rank, hash)) = hashes.first_key_value().filter(|(_, hash)| **hash != part.hash) {
            let message = format!(
                "rank {rank} has a part of plan {hash:016x}, and rank {} one of {:016x}; export one plan",
                part.rank, part.hash
            );
            return Err(Error::new(ErrorKind::HashDiffers, message));
        }
        covered(&part, &mut coverage)?;
        sources(&part)?;
        listed(&part, &mut messages, &mut coverage);
        coverage.ranks += 1;
    }
    let mut pairs: Vec<_> = messages.into_iter().collect();
    pairs.sort_unstable_by_key(|(pair, _)| *pair);
    for ((from, to), message) in pairs {
        let (sent, received) = (message.sent, message.received);
        if sent.boxes == received.boxes && sent.hash.finish() == received.hash.finish() {
            continue;
        }
        let message = match [from, to].into_iter().find(|rank| !hashes.contains_key(rank)) {
            Some(rank) => {
                format!("rank {from} sends to rank {to}, and rank {rank} has no part; export all ranks")
            }
            None => format!(
                "rank {from} and rank {to} list different boxes for their message, of {} sent and {} received; \
                 export the plan again",
                sent.boxes, received.boxes
            ),
        };
        return Err(Error::new(ErrorKind::MessagesDiffer, message));
    }
    Ok(coverage)
}

/// Proves that boxes and fills partition each target buffer of a rank.
fn covered(part: &RankPart, coverage: &mut Coverage) -> Result<(), Error> {
    let mut boxes: Vec<Vec<Strided>> = vec![Vec::new(); part.targets.len()];
    for entry in part.receives.iter().chain(&part.fills) {
        let template = &part.templates[entry.template];
        let loops = template.loops.iter().map(|one| (one.extent, one.target_stride));
        let one = Strided::new(entry.target_offset, loops);
        boxes[entry.target].push(one.map_err(|fault| failed(part, entry.target, fault))?);
        coverage.boxes += 1;
    }
    for (number, (target, boxes)) in part.targets.iter().zip(boxes).enumerate() {
        coverage.buffers += usize::from(target.count > 0);
        coverage.elements = coverage.elements.saturating_add(target.count);
        partition(boxes, target.count).map_err(|fault| failed(part, number, fault))?;
    }
    Ok(())
}

fn failed(part: &RankPart, target: usize, fault: Fault) -> Error {
    let (rank, target) = (part.rank, &part.targets[target]);
    let (name, count) = (shown(&target.name), target.count);
    match fault {
        Fault::Gap(start, stop) => Error::new(
            ErrorKind::Unwritten,
            format!(
                "elements {start} to {stop} of {count} of `{name}` on rank {rank} are written by no box; export the plan again"
            ),
        ),
        Fault::Twice(at) => Error::new(
            ErrorKind::WrittenTwice,
            format!(
                "element {at} of {count} of `{name}` on rank {rank} is written twice; export the plan again"
            ),
        ),
        Fault::Outside(at) => Error::invalid(format!(
            "a box writes element {at} of `{name}` on rank {rank}, whose buffer has {count} elements; export the plan again"
        )),
        Fault::NotNested => Error::invalid(format!(
            "the strides of a box of `{name}` on rank {rank} do not nest, so it may write an element twice; export the plan again"
        )),
        Fault::TooComplex => Error::new(
            ErrorKind::TooLarge,
            format!(
                "the boxes of `{name}` on rank {rank} do not align, and need too many splits to be proved"
            ),
        ),
    }
}

/// Proves that boxes are within the source buffers that the rank has, and that types are as declared.
fn sources(part: &RankPart) -> Result<(), Error> {
    let own = part.receives.iter().filter(|entry| part.templates[entry.template].peer == Some(part.rank));
    for entry in part.sends.iter().chain(own) {
        let (span, _) = part.templates[entry.template].spans();
        let source = &part.sources[entry.source];
        let last = entry.source_offset.saturating_add(span);
        if last >= source.count {
            return Err(Error::invalid(format!(
                "a box reads element {last} of `{}` on rank {}, whose buffer has {} elements; export the plan again",
                shown(&source.name),
                part.rank,
                source.count
            )));
        }
    }
    for entry in part.receives.iter().chain(&part.sends) {
        let cast = &part.templates[entry.template].cast;
        let (source, target) = (&part.sources[entry.source], &part.targets[entry.target]);
        let (from, to) = match (cast.first(), cast.last()) {
            (Some(from), Some(to)) => (*from, *to),
            _ => (source.dtype, source.dtype),
        };
        if (from, to) != (source.dtype, target.dtype) {
            let message = format!(
                "a box converts {} to {}, and `{}` is {} and `{}` is {}; export the plan again",
                dtype::name(from),
                dtype::name(to),
                shown(&source.name),
                dtype::name(source.dtype),
                shown(&target.name),
                dtype::name(target.dtype)
            );
            return Err(Error::new(ErrorKind::DtypeMismatch, message));
        }
    }
    Ok(())
}

/// Adds the boxes of a rank to the messages.
fn listed(part: &RankPart, messages: &mut HashMap<(usize, usize), Message>, coverage: &mut Coverage) {
    let hash = |text: &dyn Fn(&mut Hasher)| {
        let mut hasher = Hasher::default();
        text(&mut hasher);
        hasher.finish()
    };
    let named = |name: &str| hash(&|hasher| hasher.text(name));
    let sources: Vec<u64> = part.sources.iter().map(|of| named(&of.name)).collect();
    let targets: Vec<u64> = part.targets.iter().map(|of| named(&of.name)).collect();
    let of_template = |template: &crate::part::Template| {
        hash(&|hasher| {
            template.cast.iter().for_each(|of| hasher.text(&dtype::name(*of)));
            for one in &template.loops {
                for number in [one.extent, one.source_stride, one.target_stride] {
                    hasher.number(number);
                }
            }
        })
    };
    let templates: Vec<u64> = part.templates.iter().map(of_template).collect();
    let add = |listed: &mut Listed, entry: &Entry| {
        listed.boxes += 1;
        for number in [
            sources[entry.source],
            targets[entry.target],
            templates[entry.template],
            entry.source_offset,
            entry.target_offset,
        ] {
            listed.hash.number(number);
        }
    };
    for (list, is_send) in [(&part.sends, true), (&part.receives, false)] {
        for entry in list {
            let Some(peer) = part.templates[entry.template].peer else { continue };
            if is_send {
                coverage.bytes = coverage.bytes.saturating_add(part.bytes(entry));
                add(&mut messages.entry((part.rank, peer)).or_default().sent, entry);
            } else if peer != part.rank {
                add(&mut messages.entry((peer, part.rank)).or_default().received, entry);
            }
        }
    }
}
