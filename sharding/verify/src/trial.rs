//! The check of one call on one mesh axis: data, their shards in any placement, and local results.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::data::{Data, Random};
use super::local::{LocalView, Tensor};
use super::{Replicas, Verifier};
use reshard_ops::Error;
use reshard_ops::rules::ShardRegion;
use reshard_ops::rules::internal::Brackets;
use reshard_sharding::{Mesh, Placement, Sharding};

/// The operand shapes of a call.
#[derive(Clone, Debug)]
pub(super) struct Shapes {
    pub(super) inputs: Vec<Vec<usize>>,
    pub(super) outputs: Vec<Vec<usize>>,
}

/// A call on one axis of `n` ranks with several data sets.
pub(super) struct Trial<'a> {
    verifier: &'a Verifier<'a>,
    pub(super) shapes: &'a Shapes,
    pub(super) n: usize,
    mesh: Mesh,
    /// By data set, by input.
    wholes: Vec<Vec<Tensor>>,
    /// By data set, by output.
    truths: Vec<Vec<Tensor>>,
    cache: RefCell<HashMap<(usize, Placement), Rc<Operand>>>,
    /// The same case with magnitudes for these inputs.
    of_magnitudes: RefCell<HashMap<Vec<usize>, Rc<Trial<'a>>>>,
    /// The relative tolerance of results.
    tolerance: f64,
    seed: u64,
}

/// An operand in one placement.
struct Operand {
    sharding: Sharding,
    /// By rank.
    places: Vec<ShardRegion>,
    /// By data set, by rank; nothing for outputs.
    shards: Vec<Vec<Tensor>>,
}

/// The most elements of all tensors of all data sets: 512 MB of numbers.
const MOST_ELEMENTS: usize = 1 << 26;

impl<'a> Trial<'a> {
    pub(super) fn new(
        verifier: &'a Verifier<'a>,
        shapes: &'a Shapes,
        n: usize,
        seed: u64,
        sets: usize,
    ) -> Result<Trial<'a>, Error> {
        if !(1..=Verifier::MOST_SETS).contains(&sets) {
            let most = Verifier::MOST_SETS;
            return Err(
                verifier.error(shapes, format!("the number of data sets must be 1 to {most}, not {sets}"))
            );
        }
        // All data sets are in memory at once, and the caller chooses the shapes.
        let elements = (shapes.inputs.iter().chain(shapes.outputs.iter()))
            .map(|shape| shape.iter().fold(1_usize, |n, &extent| n.saturating_mul(extent)))
            .fold(0_usize, usize::saturating_add)
            .saturating_mul(sets);
        if elements > MOST_ELEMENTS {
            let reason = format!(
                "its tensors have {elements} elements in {sets} data sets, more than the limit of {MOST_ELEMENTS}; \
                 give a smaller call"
            );
            return Err(verifier.error(shapes, reason));
        }
        let mut random = Random::new(seed);
        let mut wholes = Vec::with_capacity(sets);
        let mut truths = Vec::with_capacity(sets);
        for _ in 0..sets {
            let tensors: Vec<Tensor> = (shapes.inputs.iter().enumerate())
                .map(|(i, s)| Tensor::new(s, verifier.data_of(i).whole(s, &mut random)))
                .collect();
            truths.push(on_the_whole(verifier, shapes, &tensors)?);
            wholes.push(tensors);
        }
        let mesh = Mesh::new([("x", n)])?;
        let (cache, of_magnitudes) = (RefCell::default(), RefCell::default());
        let tolerance = verifier.tolerance;
        Ok(Trial { verifier, shapes, n, mesh, wholes, truths, cache, of_magnitudes, tolerance, seed })
    }

    /// Returns the case for these placements, without negative numbers in inputs that are partial norms.
    ///
    /// Norms denote no negative number. `None` if that is this case. Fails where the op does not take such
    /// data.
    pub(super) fn on_magnitudes(&self, placements: &[Placement]) -> Result<Option<Rc<Trial<'a>>>, Error> {
        let is_norm = |p: &Placement| matches!(p, Placement::Partial(op) if op.is_of_magnitudes());
        let norms: Vec<usize> = (0..self.shapes.inputs.len()).filter(|&i| is_norm(&placements[i])).collect();
        if norms.is_empty() {
            return Ok(None);
        }
        if let Some(known) = self.of_magnitudes.borrow().get(&norms) {
            return Ok(Some(known.clone()));
        }
        let mut wholes = self.wholes.clone();
        let mut truths = Vec::with_capacity(wholes.len());
        for set in &mut wholes {
            for &i in &norms {
                set[i].data.iter_mut().for_each(|x| *x = x.abs());
            }
            truths.push(on_the_whole(self.verifier, self.shapes, set)?);
        }
        let made = Rc::new(Trial {
            wholes,
            truths,
            mesh: self.mesh.clone(),
            tolerance: self.tolerance.max(ROOTS),
            cache: RefCell::default(),
            of_magnitudes: RefCell::default(),
            ..*self
        });
        self.of_magnitudes.borrow_mut().insert(norms, made.clone());
        Ok(Some(made))
    }

    pub(super) fn sets(&self) -> usize {
        self.wholes.len()
    }

    /// The results on the whole, by data set and output.
    pub(super) fn truths(&self) -> &[Vec<Tensor>] {
        &self.truths
    }

    /// The inputs that change no result when they alone are changed.
    pub(super) fn idle_inputs(&self) -> Vec<usize> {
        let matters = |i: usize| {
            (0..self.sets()).any(|s| {
                let mut mixed = self.wholes[s].clone();
                mixed[i] = self.wholes[(s + 1) % self.sets()][i].clone();
                // Data that are invalid in combination prove nothing against an input.
                on_the_whole(self.verifier, self.shapes, &mixed).map_or(true, |out| out != self.truths[s])
            })
        };
        (0..self.shapes.inputs.len()).filter(|&i| !matters(i)).collect()
    }

    /// Returns `true` if the operands can have these placements.
    pub(super) fn has(&self, placements: &[Placement]) -> bool {
        placements.iter().enumerate().all(|(o, placement)| self.operand(o, placement).is_ok())
    }

    fn operand(&self, o: usize, placement: &Placement) -> Result<Rc<Operand>, Error> {
        if let Some(found) = self.cache.borrow().get(&(o, placement.clone())) {
            return Ok(found.clone());
        }
        let inputs = self.shapes.inputs.len();
        let shape = if o < inputs { &self.shapes.inputs[o] } else { &self.shapes.outputs[o - inputs] };
        let sharding = Sharding::new(&self.mesh, shape, std::slice::from_ref(placement))?;
        let mut places = Vec::new();
        let mut held = Vec::new();
        for rank in self.mesh.ranks() {
            let region = sharding.region(rank)?;
            held.push(sharding.global_indices(rank)?);
            places.push(if self.verifier.without_regions {
                ShardRegion::whole(&region.local_shape())
            } else {
                ShardRegion { region, whole: shape.clone() }
            });
        }
        let mut shards = Vec::new();
        if o < inputs {
            let mut random = Random::new(self.seed ^ (o as u64 + 1) << 32);
            for set in &self.wholes {
                let whole = &set[o].data;
                let by_rank: Vec<Vec<f64>> = match placement {
                    Placement::Partial(op) => self.verifier.data_of(o).terms(*op, whole, self.n, &mut random),
                    Placement::Replicate
                    | Placement::Shard(_)
                    | Placement::StridedShard { .. }
                    | Placement::Ragged { .. }
                    | Placement::Custom { .. } => {
                        held.iter().map(|h| h.iter().map(|&e| whole[e]).collect()).collect()
                    }
                };
                shards.push(
                    by_rank
                        .into_iter()
                        .zip(&places)
                        .map(|(data, p)| Tensor { shape: p.shape(), data })
                        .collect(),
                );
            }
        }
        let made = Rc::new(Operand { sharding, places, shards });
        self.cache.borrow_mut().insert((o, placement.clone()), made.clone());
        Ok(made)
    }

    /// Runs the op on every rank; by rank, by output.
    pub(super) fn run(&self, set: usize, placements: &[Placement]) -> Result<Vec<Vec<Tensor>>, Error> {
        let inputs = self.shapes.inputs.len();
        let operands: Vec<Rc<Operand>> =
            placements.iter().enumerate().map(|(o, p)| self.operand(o, p)).collect::<Result<_, _>>()?;
        (0..self.n)
            .map(|rank| {
                let local = LocalView {
                    inputs: operands[..inputs].iter().map(|x| &x.shards[set][rank]).collect(),
                    input_regions: operands[..inputs].iter().map(|x| &x.places[rank]).collect(),
                    output_regions: operands[inputs..].iter().map(|x| &x.places[rank]).collect(),
                };
                let out = self
                    .verifier
                    .run(&local)
                    .map_err(|e| Error::Rule { reason: format!("rank {rank} {e}") })?;
                if out.len() != self.shapes.outputs.len() {
                    let (has, wants) = (out.len(), self.shapes.outputs.len());
                    return Err(Error::Rule {
                        reason: format!("rank {rank} returns {has} outputs, not {wants}"),
                    });
                }
                Ok(out)
            })
            .collect()
    }

    /// Checks that these local results, in this placement, represent the op's result on the whole.
    pub(super) fn compare(
        &self,
        set: usize,
        output: usize,
        placement: &Placement,
        locals: &[Vec<Tensor>],
    ) -> Result<(), Error> {
        let operand = self.operand(self.shapes.inputs.len() + output, placement)?;
        same(
            (self.tolerance, self.verifier.replicas),
            output,
            &operand.sharding,
            &self.truths[set][output],
            locals,
        )
    }

    /// Checks all outputs on all data sets.
    pub(super) fn check(&self, placements: &[Placement]) -> Result<(), Error> {
        if let Some(other) = self.on_magnitudes(placements)? {
            return other.check_here(placements);
        }
        self.check_here(placements)
    }

    /// Returns `true` if results change when every rank is to make whole outputs, on the first data set.
    pub(super) fn depends_on_wanted(&self, placements: &[Placement]) -> Result<bool, Error> {
        if let Some(other) = self.on_magnitudes(placements)? {
            return other.depends_on_wanted_here(placements);
        }
        self.depends_on_wanted_here(placements)
    }

    fn depends_on_wanted_here(&self, placements: &[Placement]) -> Result<bool, Error> {
        let mut whole = placements.to_vec();
        whole[self.shapes.inputs.len()..].fill(Placement::Replicate);
        let bits = |locals: Vec<Vec<Tensor>>| -> Vec<(Vec<usize>, Vec<u64>)> {
            let of = |t: Tensor| (t.shape, t.data.iter().map(|x| x.to_bits()).collect());
            locals.into_iter().flatten().map(of).collect()
        };
        let as_placed = bits(self.run(0, placements)?);
        // An op that fails because of the requested outputs reads them, too.
        Ok(self.run(0, &whole).map_or(true, |locals| bits(locals) != as_placed))
    }

    fn check_here(&self, placements: &[Placement]) -> Result<(), Error> {
        let inputs = self.shapes.inputs.len();
        for set in 0..self.sets() {
            let locals = self.run(set, placements)?;
            for (o, placement) in placements[inputs..].iter().enumerate() {
                self.compare(set, o, placement, &locals)?;
            }
        }
        Ok(())
    }
}

/// The tolerance of a root of a sum of powers.
///
/// Partial roots, unlike partial sums, are not multiples of the data's grain.
pub(super) const ROOTS: f64 = 1e-12;

/// Returns `true` if a tensor is in partial values of a norm, which denote no negative number.
pub(super) fn is_of_norms(s: &Sharding) -> bool {
    s.partial().iter().any(|p| p.op.is_of_magnitudes())
}

/// Checks that local results in this sharding, by mesh position and output, represent the whole result.
pub(super) fn same(
    (tolerance, replicas): (f64, Replicas),
    output: usize,
    sharding: &Sharding,
    truth: &Tensor,
    locals: &[Vec<Tensor>],
) -> Result<(), Error> {
    let mut shards = Vec::with_capacity(locals.len());
    for (rank, local) in sharding.mesh().ranks().zip(locals) {
        let has = &local[output];
        let wants = sharding.local_shape(rank)?;
        if has.shape != wants.as_slice() || has.data.len() != wants.iter().product::<usize>() {
            let (has, wants) = (Brackets(&has.shape), Brackets(&wants));
            return Err(Error::Rule {
                reason: format!(
                    "rank {rank} returns {has} of output {output}, but {sharding} is {wants} there"
                ),
            });
        }
        // 0.0 and -0.0 are one value.
        shards.push(has.data.iter().map(|x| x + 0.0).collect());
    }
    if replicas == Replicas::Near {
        join_near(tolerance, sharding, &mut shards)?;
    }
    let got = sharding.assemble(&shards)?;
    let tolerance = if is_of_norms(sharding) { tolerance.max(ROOTS) } else { tolerance };
    for (e, (&got, &want)) in got.iter().zip(&truth.data).enumerate() {
        let near =
            got.to_bits() == (want + 0.0).to_bits() || (got - want).abs() <= tolerance * (1.0 + want.abs());
        if !near {
            return Err(Error::Rule {
                reason: format!(
                    "element {} of output {output} is {got}, but {want} on whole tensors",
                    Brackets(&index(e, &truth.shape))
                ),
            });
        }
    }
    Ok(())
}

/// Makes replicas equal that are within the tolerance of the first of them.
fn join_near(tolerance: f64, sharding: &Sharding, shards: &mut [Vec<f64>]) -> Result<(), Error> {
    let mesh = sharding.mesh();
    let along = sharding.replicated_axes();
    for (i, rank) in mesh.ranks().enumerate() {
        let first =
            mesh.members(&along, rank)?.rank_at(0).and_then(|first| mesh.position(first)).unwrap_or(i);
        let (before, rest) = shards.split_at_mut(i);
        let Some(first) = before.get(first) else { continue };
        for (own, &first) in rest[0].iter_mut().zip(first) {
            if (*own - first).abs() <= tolerance * (1.0 + first.abs()) {
                *own = first;
            }
        }
    }
    Ok(())
}

/// The coordinates of a row-major index.
fn index(mut e: usize, shape: &[usize]) -> Vec<usize> {
    let mut out: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&n| {
            let c = e % n;
            e /= n;
            c
        })
        .collect();
    out.reverse();
    out
}

pub(super) fn on_the_whole(
    v: &Verifier<'_>,
    shapes: &Shapes,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, Error> {
    let bad = |reason: String| Err(Error::Rule { reason: format!("{}: on whole tensors {reason}", v.name) });
    let places: Vec<ShardRegion> = shapes.inputs.iter().map(|s| ShardRegion::whole(s)).collect();
    let wanted: Vec<ShardRegion> = shapes.outputs.iter().map(|s| ShardRegion::whole(s)).collect();
    let local = LocalView {
        inputs: inputs.iter().collect(),
        input_regions: places.iter().collect(),
        output_regions: wanted.iter().collect(),
    };
    let out = match v.run(&local) {
        Ok(out) => out,
        Err(e) => return bad(format!("it {e}")),
    };
    if out.len() != shapes.outputs.len() {
        return bad(format!("it returns {} outputs, but the rule has {}", out.len(), shapes.outputs.len()));
    }
    for (o, (t, shape)) in out.iter().zip(&shapes.outputs).enumerate() {
        if t.shape != shape.as_slice() || t.data.len() != shape.iter().product::<usize>() {
            return bad(format!("output {o} is {}, but {} by the rule", Brackets(&t.shape), Brackets(shape)));
        }
        if t.data.iter().any(|x| x.is_nan()) {
            return bad(format!("output {o} has a NaN, which cannot be compared"));
        }
    }
    Ok(out)
}

impl Verifier<'_> {
    pub(super) fn data_of(&self, input: usize) -> Data {
        self.data.get(input).copied().unwrap_or(Data::Integers)
    }
}
