//! Plans a transfer: loop nests, boxes, senders.

use std::collections::HashMap;
use std::sync::OnceLock;

use reshard_mapping::internal::Side as PieceSide;
use reshard_mapping::{Dtype, MadeTensor, Mapping};
use reshard_sharding::Mesh;

use crate::class::{Classes, PartPiece};
use crate::error::{Error, ErrorKind, shown};
use crate::frame::Frame;
use crate::hash::Hasher;
use crate::matched;
use crate::part::key;
use crate::senders::Senders;
use crate::shards::Shards;
use crate::side::{Side, SideTensor};

/// Version of the planner: equal inputs have equal plans within a version.
const PLANNER: u64 = 1;

/// The largest number of ranks of all different shardings, each as often as shardings have it.
const MOST_SHARDS: usize = 1 << 22;

/// The largest number of bytes of the buffers of all targets, so that no sum of bytes overflows.
const MOST_BYTES: u128 = 1 << 62;

/// Options of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// Ranks of a node: a rank receives from its own node where an owner is there. `None` balances over all owners.
    pub ranks_per_node: Option<usize>,
}

impl Options {
    /// Returns the options with this number of ranks per node.
    #[must_use]
    pub fn with_ranks_per_node(self, ranks: usize) -> Self {
        Self { ranks_per_node: Some(ranks), ..self }
    }
}

/// A tensor as the parts of a plan name it.
#[derive(Clone, Debug)]
pub(crate) struct PlanTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// Number of its sharding or frame.
    pub(crate) number: usize,
}

/// A loop nest of a target: a class, and the bases of its boxes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) class: usize,
    /// Index in the source tensors; `None` for zeros.
    pub(crate) source: Option<usize>,
    pub(crate) target: usize,
    pub(crate) shifts: [u64; 2],
    /// The first of its requests among those of all units.
    pub(crate) first_request: usize,
}

/// The plan of a transfer, for all ranks.
///
/// Planning depends only on its arguments, so all ranks make the same plan without communication; [`Transfer::hash`]
/// compares them.
///
/// ```
/// use reshard_mapping::Mapping;
/// use reshard_transfer::{Options, Side, Transfer};
///
/// let trainer = Side::from_json(
///     r#"{"mesh": "dp=2", "tensors": [
///         {"name": "up", "dtype": "f32", "shape": [8, 4], "placements": "S(0)"},
///         {"name": "gate", "dtype": "f32", "shape": [8, 4], "placements": "S(0)"}]}"#,
/// )?;
/// let server = Side::from_json(
///     r#"{"mesh": "tp=2@2", "tensors": [
///         {"name": "gate_up", "dtype": "bf16", "shape": [16, 4], "placements": "S(0) | S(0)"}]}"#,
/// )?;
/// let mapping = "gate_up = gate | up".parse::<Mapping>()?.with_cast("*", "bf16")?;
/// let plan = Transfer::plan(&trainer, &server, &mapping, &Options::default())?;
/// let rank = plan.certificate()?.ranks()[3];
/// assert_eq!((rank.rank, rank.received, rank.lacking), (3, 64, 64)); // 2 x 4 x 4 elements of 2 bytes
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transfer {
    pub(crate) hash: u64,
    pub(crate) sources: Vec<PlanTensor>,
    pub(crate) targets: Vec<PlanTensor>,
    pub(crate) shards: Vec<Shards>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) classes: Classes,
    pub(crate) units: Vec<Unit>,
    pub(crate) senders: Senders,
    pub(crate) ranks: Vec<usize>,
    orders: OnceLock<[Vec<usize>; 2]>,
}

impl Transfer {
    /// Plans the transfer of all tensors of the target from those of the source.
    ///
    /// The placements of a target without any are those of the mapping. What the mapping requires to be equal, such as
    /// `drop a == b`, is not compared: a plan reads no element.
    ///
    /// Errors: each kind of [`ErrorKind`] but those of ranks that differ, in one message.
    pub fn plan(source: &Side, target: &Side, mapping: &Mapping, options: &Options) -> Result<Self, Error> {
        if options.ranks_per_node == Some(0) {
            return Err(Error::invalid("a node has 0 ranks; pass at least 1, or no number".to_owned()));
        }
        let made = matched::made(source, target, mapping)?;
        let mut planning = Planning {
            source,
            mapping,
            shards: Vec::new(),
            shard_numbers: HashMap::new(),
            of_sources: vec![None; source.tensors().len()],
            frames: Vec::new(),
            frame_numbers: HashMap::new(),
            classes: Classes::new(options.ranks_per_node),
            units: Vec::new(),
            requests: 0,
            listed: 0,
            bytes: 0,
        };
        let mut of_targets = Vec::with_capacity(made.len());
        for (number, (tensor, made)) in target.tensors().iter().zip(&made).enumerate() {
            of_targets.push(planning.add(number, tensor, made)?);
        }
        let Planning { shards, of_sources, frames, classes, units, .. } = planning;
        let senders = Senders::choose(&classes, &units)?;
        let named = |(tensor, number): (&SideTensor, usize)| PlanTensor {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            number,
        };
        let of_sources = of_sources.into_iter().map(|number| number.unwrap_or(usize::MAX));
        let mut ranks = [source.ranks(), target.ranks()].concat();
        ranks.sort_unstable();
        ranks.dedup();
        Ok(Self {
            hash: hash(source, target, mapping, options),
            sources: source.tensors().iter().zip(of_sources).map(named).collect(),
            targets: target.tensors().iter().zip(of_targets).map(named).collect(),
            shards,
            frames,
            classes,
            units,
            senders,
            ranks,
            orders: OnceLock::new(),
        })
    }

    /// Returns the hash of the descriptions, the mapping, the options and the version of the planner.
    ///
    /// Ranks with equal hashes have equal plans; see [`Agreement`](crate::Agreement).
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of each source and each target in the canonical order, which is computed once.
    pub(crate) fn orders(&self) -> &[Vec<usize>; 2] {
        self.orders.get_or_init(|| {
            [&self.sources, &self.targets].map(|tensors| {
                let mut sorted: Vec<usize> = (0..tensors.len()).collect();
                sorted.sort_by_cached_key(|k| key(&tensors[*k].name, tensors[*k].dtype));
                let mut order = vec![0; tensors.len()];
                sorted.into_iter().enumerate().for_each(|(number, k)| order[k] = number);
                order
            })
        })
    }

    /// Returns the ranks of both sides, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}

fn hash(source: &Side, target: &Side, mapping: &Mapping, options: &Options) -> u64 {
    let mut hasher = Hasher::default();
    hasher.number(PLANNER);
    hasher.text(&source.to_json());
    hasher.text(&target.to_json());
    hasher.text(&mapping.to_toml());
    hasher.number(options.ranks_per_node.map_or(0, |ranks| ranks as u64));
    hasher.finish()
}

/// The values that decide the sharding of a source.
type ShardKey<'a> = (&'a Mesh, &'a Option<Vec<String>>, &'a [usize], &'a str);

/// The values that decide the buffers of a target, with the dim and the extents of its parts.
type FrameKey<'a> =
    (&'a Mesh, &'a Option<Vec<String>>, Vec<usize>, String, usize, Vec<usize>, &'a Option<Vec<usize>>);

/// The state of a plan that is made.
struct Planning<'a> {
    source: &'a Side,
    mapping: &'a Mapping,
    shards: Vec<Shards>,
    shard_numbers: HashMap<ShardKey<'a>, usize>,
    /// By source tensor, the number of its sharding, once a loop nest reads it.
    of_sources: Vec<Option<usize>>,
    frames: Vec<Frame>,
    frame_numbers: HashMap<FrameKey<'a>, usize>,
    classes: Classes,
    units: Vec<Unit>,
    requests: usize,
    /// Ranks of the shardings so far.
    listed: usize,
    /// Bytes of the buffers so far, in types of 8 bytes.
    bytes: u128,
}

impl<'a> Planning<'a> {
    /// Returns the placements of a tensor: its own, or those of the mapping.
    fn placements(&self, tensor: &'a SideTensor, of_mapping: bool) -> Result<&'a str, Error> {
        let of_table = || self.mapping.placements_of(&tensor.name).filter(|_| of_mapping);
        tensor.placements.as_deref().or_else(of_table).ok_or_else(|| {
            let place = if of_mapping { ", or a pattern to [placements] of the mapping" } else { "" };
            Error::invalid(format!(
                "`{}` has no placements; add \"placements\" to it{place}",
                shown(&tensor.name)
            ))
        })
    }

    /// Counts the ranks of a sharding before they are listed.
    fn count(&mut self, ranks: usize) -> Result<(), Error> {
        self.listed = self.listed.saturating_add(ranks);
        if self.listed <= MOST_SHARDS {
            return Ok(());
        }
        let message = format!(
            "the different shardings have more than {MOST_SHARDS} shards; plan the tensors in several transfers"
        );
        Err(Error::new(ErrorKind::TooLarge, message))
    }

    fn source_shards(&mut self, number: usize) -> Result<usize, Error> {
        if let Some(shards) = self.of_sources[number] {
            return Ok(shards);
        }
        let tensor = &self.source.tensors()[number];
        let text = self.placements(tensor, false)?;
        let shape = tensor.shape.as_deref().unwrap_or_default();
        let key = (&tensor.mesh, &tensor.axes, shape, text);
        let shards = if let Some(shards) = self.shard_numbers.get(&key) {
            *shards
        } else {
            self.count(tensor.mesh.size())?;
            self.shards.push(Shards::new(tensor, shape, text)?);
            self.shard_numbers.insert(key, self.shards.len() - 1);
            self.shards.len() - 1
        };
        self.of_sources[number] = Some(shards);
        Ok(shards)
    }

    fn frame(&mut self, tensor: &'a SideTensor, made: &MadeTensor) -> Result<usize, Error> {
        let (dim, extents) = match &made.local_parts {
            Some(parts) => (parts.dim, parts.extents.clone()),
            None => (0, vec![made.shape.first().copied().unwrap_or(1)]),
        };
        let text = self.placements(tensor, true)?;
        let key = (
            &tensor.mesh,
            &tensor.axes,
            made.shape.clone(),
            text.to_owned(),
            dim,
            extents,
            &tensor.local_shape,
        );
        if let Some(frame) = self.frame_numbers.get(&key).filter(|_| tensor.local_shapes.is_empty()) {
            return Ok(*frame);
        }
        self.count(tensor.mesh.size().saturating_mul(key.5.len()))?;
        self.frames.push(Frame::new(tensor, &made.shape, dim, &key.5, text)?);
        if tensor.local_shapes.is_empty() {
            self.frame_numbers.insert(key, self.frames.len() - 1);
        }
        Ok(self.frames.len() - 1)
    }

    /// Adds the units of a target; returns the number of its frame.
    fn add(&mut self, target: usize, tensor: &'a SideTensor, made: &MadeTensor) -> Result<usize, Error> {
        let frame = self.frame(tensor, made)?;
        self.bytes += 8 * self.frames[frame].elements;
        if self.bytes > MOST_BYTES {
            let message =
                format!("the targets have over 2^62 bytes with `{}`; check the shapes", shown(&tensor.name));
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        for piece in &made.pieces {
            let shards = piece.source.map(|source| self.source_shards(source)).transpose()?;
            let dtype = piece.source.and_then(|source| self.source.tensors().get(source)).map(|of| of.dtype);
            let chain: Vec<Dtype> = match dtype {
                Some(stored) => std::iter::once(stored).chain(piece.casts.iter().copied()).collect(),
                None => vec![made.dtype],
            };
            let parts = &self.frames[frame].parts;
            for part in 0..parts.len() {
                let mut within = Vec::new();
                let (start, extent) = (parts[part].start, parts[part].extent);
                if parts.len() == 1 {
                    within.push(piece.clone());
                } else {
                    let dim = self.frames[frame].dim;
                    piece.restrict(PieceSide::Target, dim, start, start + extent, &mut within);
                    for piece in &mut within {
                        piece.target_offset[dim] -= start;
                    }
                }
                for piece in &within {
                    let (class, shifts) = self.classes.class_of(&PartPiece {
                        piece,
                        source: shards.map(|number| (number, &self.shards[number])),
                        frame: (frame, &self.frames[frame]),
                        part,
                        chain: chain.clone(),
                    })?;
                    let first_request = self.requests;
                    self.requests += self.classes.list[class].requests;
                    self.units.push(Unit { class, source: piece.source, target, shifts, first_request });
                }
            }
        }
        Ok(frame)
    }
}
