//! Classes: the boxes of one loop nest between all ranks, shared by all layers that differ in base addresses alone.
//!
//! Offsets on dims that no rank splits only shift the buffers. They are left out of the key of a class, and added to
//! the bases of its units.

use std::collections::HashMap;

use reshard_mapping::{Axis, Dtype, Piece};

use crate::boxes::{Nest, strides};
use crate::dtype;
use crate::error::{Error, ErrorKind};
use crate::frame::Frame;
use crate::part::Loop;
use crate::shards::Shards;

/// The largest number of boxes of all classes.
const MOST_BOXES: usize = 1 << 20;

/// A box between the owners of a region and the ranks that want it.
#[derive(Debug)]
pub(crate) struct ClassBox {
    /// Number of the set of owners; `None` for zeros.
    pub(crate) owners: Option<usize>,
    /// Number of the set of ranks that want it.
    pub(crate) wanters: usize,
    pub(crate) loops: usize,
    pub(crate) source_offset: u64,
    pub(crate) target_offset: u64,
    pub(crate) elements: u64,
    /// Requests of the class before this box, see [`crate::senders`].
    pub(crate) requests_before: usize,
    /// The number of requests: wanters that are not owners, if there are several owners.
    pub(crate) requests: usize,
}

/// The boxes of a loop nest.
#[derive(Debug)]
pub(crate) struct Class {
    /// By wanters, then by target offset.
    pub(crate) boxes: Vec<ClassBox>,
    /// The types that each element has, from the stored one on; one type if there is no conversion.
    pub(crate) chain: Vec<Dtype>,
    /// Bytes of an element as it is sent.
    pub(crate) bytes: u64,
    /// The elements that each set of wanters wants, counted before they are divided among owners.
    pub(crate) wanted: Vec<(usize, u64)>,
    pub(crate) requests: usize,
}

/// Lists of which each is stored once.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    pub(crate) lists: Vec<Vec<T>>,
    known: HashMap<Vec<T>, usize>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { lists: Vec::new(), known: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    fn add(&mut self, list: &[T]) -> usize {
        if let Some(number) = self.known.get(list) {
            return *number;
        }
        self.lists.push(list.to_vec());
        self.known.insert(list.to_vec(), self.lists.len() - 1);
        self.lists.len() - 1
    }
}

/// All that decides the boxes of a loop nest.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    source: Option<usize>,
    frame: usize,
    part: usize,
    chain: Vec<Dtype>,
    offsets: [Vec<usize>; 2],
    axes: Vec<Axis>,
}

impl std::hash::Hash for Key {
    // Types have no hash; keys that differ in them alone are few.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.source, self.frame, self.part, &self.offsets, &self.axes).hash(state);
    }
}

/// The classes of a plan.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    pub(crate) list: Vec<Class>,
    /// Sets of ranks, ascending.
    pub(crate) ranks: Interned<usize>,
    pub(crate) loops: Interned<Loop>,
    known: HashMap<Key, usize>,
    /// Boxes of all classes.
    boxes: usize,
    /// Ranks of a node: owners in the node of a receiver are preferred.
    ranks_per_node: Option<usize>,
}

/// A loop nest of a part of a target, in the indices of the part.
pub(crate) struct PartPiece<'a> {
    pub(crate) piece: &'a Piece,
    /// The numbers and the values of the source's sharding and the target's frame.
    pub(crate) source: Option<(usize, &'a Shards)>,
    pub(crate) frame: (usize, &'a Frame),
    pub(crate) part: usize,
    pub(crate) chain: Vec<Dtype>,
}

impl Classes {
    pub(crate) fn new(ranks_per_node: Option<usize>) -> Self {
        Self { ranks_per_node, ..Self::default() }
    }

    /// Returns the class of a loop nest, and the numbers to add to its source and target offsets.
    pub(crate) fn class_of(&mut self, of: &PartPiece<'_>) -> Result<(usize, [u64; 2]), Error> {
        let mut piece = of.piece.clone();
        let mut shifts = [0_u64; 2];
        if let Some((_, shards)) = of.source
            && let Some(shape) = &shards.common_shape
        {
            for (dim, stride) in
                strides(shape).into_iter().enumerate().filter(|(dim, _)| shards.is_whole(*dim))
            {
                shifts[0] += (std::mem::take(&mut piece.source_offset[dim]) * stride) as u64;
            }
        }
        let frame = of.frame.1;
        let part = &frame.parts[of.part];
        if frame.is_uniform
            && let Some(wanters) = part.wanters.first()
        {
            let strides = strides(&wanters.buffer);
            for (dim, stride) in strides.into_iter().enumerate().filter(|(dim, _)| part.shards.is_whole(*dim))
            {
                shifts[1] += (std::mem::take(&mut piece.target_offset[dim]) * stride) as u64;
            }
        }
        let key = Key {
            source: of.source.map(|(number, _)| number),
            frame: of.frame.0,
            part: of.part,
            chain: of.chain.clone(),
            offsets: [piece.source_offset.clone(), piece.target_offset.clone()],
            axes: piece.axes.clone(),
        };
        if let Some(class) = self.known.get(&key) {
            return Ok((*class, shifts));
        }
        let class = self.new_class(&piece, of)?;
        self.list.push(class);
        self.known.insert(key, self.list.len() - 1);
        Ok((self.list.len() - 1, shifts))
    }

    /// Returns the wanters of a box that do not hold it, ascending: the ranks of its requests.
    pub(crate) fn remote<'a>(&'a self, one: &'a ClassBox) -> impl Iterator<Item = usize> + 'a {
        let owners: &[usize] = one.owners.map_or(&[], |owners| &self.ranks.lists[owners]);
        let wanters = self.ranks.lists[one.wanters].iter().copied();
        wanters.filter(|rank| owners.binary_search(rank).is_err())
    }

    /// Returns the extent of the longest loop of a box, by whose steps a request is split; 1 without loops.
    pub(crate) fn longest(&self, one: &ClassBox) -> u64 {
        self.loops.lists[one.loops].iter().map(|of| of.extent).max().unwrap_or(1)
    }

    fn new_class(&mut self, piece: &Piece, of: &PartPiece<'_>) -> Result<Class, Error> {
        let (frame, bytes) = (of.frame.1, dtype::sent_bytes(&of.chain));
        let part = &frame.parts[of.part];
        let mut class =
            Class { boxes: Vec::new(), chain: of.chain.clone(), bytes, wanted: Vec::new(), requests: 0 };
        let whole = Nest::new(piece);
        for wanters in &part.wanters {
            let region = &part.shards.held[wanters.region];
            let nests = whole.within_target(&part.shards.dims, &region.lists)?;
            let elements: u64 = nests.iter().map(Nest::elements).sum();
            if elements == 0 {
                continue;
            }
            let number = self.ranks.add(&wanters.ranks);
            class.wanted.push((number, elements));
            let mut first = vec![0; wanters.buffer.len()];
            if let Some(of_dim) = first.get_mut(frame.dim) {
                *of_dim = wanters.first;
            }
            let target_strides = strides(&wanters.buffer);
            let begin = class.boxes.len();
            for nest in &nests {
                let by_source = match of.source {
                    Some((_, shards)) => nest.by_source(&shards.dims)?,
                    None => vec![nest.clone()],
                };
                for nest in by_source {
                    let held = match of.source {
                        Some((_, shards)) => {
                            let lists = nest.source_lists();
                            let held = shards.with_lists(lists).map(|number| &shards.held[number]);
                            let message = "no rank holds a region of the source; give each region to a rank";
                            Some(held.ok_or_else(|| Error::invalid(message))?)
                        }
                        None => None,
                    };
                    let source_strides = held.map_or_else(Vec::new, |held| strides(&held.shape));
                    let found = nest.descriptor(&source_strides, &target_strides, &first);
                    let loops = self.loops.add(&found.loops);
                    for (owners, wanters) in self.by_owners(held.map(|held| &held.ranks[..]), &wanters.ranks)
                    {
                        class.boxes.push(ClassBox {
                            owners: owners.map(|owners| self.ranks.add(owners.as_slice())),
                            wanters: self.ranks.add(&wanters),
                            loops,
                            source_offset: found.source_offset,
                            target_offset: found.target_offset,
                            elements: nest.elements(),
                            requests_before: 0,
                            requests: 0,
                        });
                    }
                }
            }
            self.boxes += class.boxes.len() - begin;
            if self.boxes > MOST_BOXES {
                let message = format!(
                    "the plan has more than {MOST_BOXES} different boxes; choose placements that nest, or fewer ranks"
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            class.boxes[begin..].sort_by_key(|one| one.target_offset);
        }
        for one in &mut class.boxes {
            one.requests_before = class.requests;
            if one.owners.is_some_and(|owners| self.ranks.lists[owners].len() > 1) {
                one.requests = self.remote(one).count();
            }
            class.requests += one.requests;
        }
        Ok(class)
    }

    /// Returns the owners that may send, with the wanters that they send to: those in the same node if there are any.
    fn by_owners(&self, held: Option<&[usize]>, wanters: &[usize]) -> Vec<(Option<Vec<usize>>, Vec<usize>)> {
        let (Some(held), Some(node)) = (held, self.ranks_per_node.filter(|node| *node > 0)) else {
            return vec![(held.map(<[usize]>::to_vec), wanters.to_vec())];
        };
        let mut groups: Vec<(Option<Vec<usize>>, Vec<usize>)> = Vec::new();
        for wanter in wanters {
            let near: Vec<usize> = held.iter().copied().filter(|rank| rank / node == wanter / node).collect();
            let owners = Some(if near.is_empty() { held.to_vec() } else { near });
            match groups.iter_mut().find(|(known, _)| *known == owners) {
                Some((_, all)) => all.push(*wanter),
                None => groups.push((owners, vec![*wanter])),
            }
        }
        groups
    }
}
