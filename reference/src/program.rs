//! Programs on host tensors: on one device, and on a thread for every rank.
//!
//! ```text
//! on_one_device   whole values; redistributions do nothing                       the definition
//! on_ranks        each rank runs ops on its shards; redistributions are run      the implementation
//! ```
//!
//! A program is right if the second is a sharding of the first.

use std::collections::BTreeMap;

use half::{bf16, f16};
use ndarray::{ArrayD, IxDyn};
use reshard_collectives::{Element, TrafficLog, threads};
use reshard_ops::rules::ShardRegion;
use reshard_planner::Plan;
use reshard_program::schedule::on_one_slice;
use reshard_program::{Program, Statement, ValueId};
use reshard_sharding::{ReduceOp, Sharding, shards::Reducible};

use crate::done::{Did, digest};
use crate::narrow::{self, Narrow};
use crate::{Error, Local, Real, run, run_local};

/// An element type for which there are plans.
#[doc(hidden)]
pub trait Number: Real + Element + Reducible {
    /// Returns the nearest number of this type.
    fn of(x: f64) -> Self {
        Self::rounded(x)
    }
}

impl Number for f32 {}
impl Number for f64 {}

/// The values of a program by name.
#[doc(hidden)]
pub type Values<T> = BTreeMap<String, ArrayD<T>>;

fn missing(program: &Program, v: ValueId) -> Error {
    Error::Input { reason: format!("{} is not given", program.get(v).name) }
}

/// Computes all values of a program on one device, from its inputs.
///
/// ```
/// use ndarray::array;
/// use reshard_program::{ShardingSolver, Graph};
/// let graph: Graph = "mesh x=2\na: f64[2] S(0)\ny: R = mul(a, a)".parse()?;
/// let program = ShardingSolver::new().solve(&graph)?;
/// let inputs = [("a".to_owned(), array![2.0, 3.0].into_dyn())].into();
/// let whole = reshard_reference::on_one_device(&program, &inputs)?;
/// assert_eq!(whole["y"], array![4.0, 9.0].into_dyn());
/// let ranks = reshard_reference::on_ranks(&program, &inputs)?;
/// assert_eq!(ranks.shards("y"), Some(&[array![4.0, 9.0].into_dyn(), array![4.0, 9.0].into_dyn()][..]));
/// assert_eq!(ranks.received_bytes(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Fails as [`run`] does, and for inputs that are not given or have another shape.
pub fn on_one_device<T: Number>(program: &Program, inputs: &Values<T>) -> Result<Values<T>, Error> {
    let mut values: BTreeMap<ValueId, ArrayD<T>> = BTreeMap::new();
    for item in program.statements() {
        match item {
            Statement::NoGrad => {}
            Statement::Input(v) => {
                values.insert(*v, input(program, *v, inputs)?.clone());
            }
            Statement::Redistribute { from, to, .. } => {
                let same = values.get(from).cloned().ok_or_else(|| missing(program, *from))?;
                values.insert(*to, same);
            }
            Statement::Op { call, inputs, outputs, .. } => {
                let taken: Result<Vec<ArrayD<T>>, Error> = inputs
                    .iter()
                    .map(|v| values.get(v).cloned().ok_or_else(|| missing(program, *v)))
                    .collect();
                values.extend(outputs.iter().copied().zip(run(program.table(), call, &taken?)?));
            }
        }
    }
    Ok(values.into_iter().map(|(v, a)| (program.get(v).name.clone(), a)).collect())
}

/// Returns a given input, after a check of its shape.
pub(crate) fn input<'a, T: Number>(
    program: &Program,
    v: ValueId,
    inputs: &'a Values<T>,
) -> Result<&'a ArrayD<T>, Error> {
    let value = program.get(v);
    let given = inputs.get(&value.name).ok_or_else(|| missing(program, v))?;
    if given.shape() == value.shape() {
        return Ok(given);
    }
    Err(Error::Input {
        reason: format!(
            "`{}` has shape {:?}, but is given as {:?}",
            value.name,
            value.shape(),
            given.shape()
        ),
    })
}

/// The values of a program on all ranks.
#[derive(Clone, Debug)]
pub struct Ranks<T> {
    values: BTreeMap<String, (Sharding, Vec<ArrayD<T>>)>,
    received: u64,
    moves: Vec<(String, u64)>,
    /// The events of each rank.
    done: Vec<Vec<Did>>,
}

impl<T: Number> Ranks<T> {
    /// The shards of a value, in the order of the ranks of its mesh.
    pub fn shards(&self, name: &str) -> Option<&[ArrayD<T>]> {
        self.values.get(name).map(|(_, shards)| shards.as_slice())
    }

    /// Returns the global tensor of a value's shards.
    ///
    /// Fails where replicas differ in a bit.
    pub fn whole(&self, name: &str) -> Result<ArrayD<T>, Error> {
        let (sharding, shards) = self
            .values
            .get(name)
            .ok_or_else(|| Error::Input { reason: format!("there is no value `{name}`") })?;
        let shards: Vec<Vec<T>> = shards.iter().map(|a| a.iter().copied().collect()).collect();
        let whole = sharding
            .assemble(&shards)
            .map_err(|e| Error::Input { reason: format!("{name} as {sharding}: {e}") })?;
        ArrayD::from_shape_vec(IxDyn(sharding.shape()), whole)
            .map_err(|e| Error::Input { reason: format!("{name} as {sharding}: {e}") })
    }

    /// The total bytes that the worst rank of each redistribution received.
    #[doc(hidden)]
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// The name of each communicating redistribution, with the bytes that the worst rank received.
    #[doc(hidden)]
    pub fn moves(&self) -> &[(String, u64)] {
        &self.moves
    }

    /// The events of a rank, in order: ops on shapes, and the data received from each peer.
    #[doc(hidden)]
    pub fn did(&self, rank: usize) -> &[Did] {
        self.done.get(rank).map_or(&[], Vec::as_slice)
    }

    /// Collects the values of all ranks, each by name, and their events.
    pub(crate) fn of(program: &Program, mut held: Vec<Values<T>>, done: Vec<Vec<Did>>) -> Ranks<T> {
        let mut values = BTreeMap::new();
        for value in program.values() {
            let ranks = value.ty.value.mesh().ranks();
            let shards: Option<Vec<ArrayD<T>>> = ranks.map(|rank| held[rank].remove(&value.name)).collect();
            if let Some(shards) = shards {
                values.insert(value.name.clone(), (value.ty.value.clone(), shards));
            }
        }
        let mut most: BTreeMap<&str, u64> = BTreeMap::new();
        for did in done.iter().flatten() {
            if let Did::Received { value, bytes } = did {
                let worst = most.entry(value).or_default();
                *worst = (*worst).max(bytes.values().sum());
            }
        }
        let moves = program
            .redistributions()
            .filter_map(|m| Some((m.to.name.clone(), *most.get(m.to.name.as_str())?)));
        let moves: Vec<(String, u64)> = moves.collect();
        Ranks { values, received: moves.iter().map(|(_, bytes)| bytes).sum(), moves, done }
    }
}

/// Computes all values of a program on the ranks of its meshes.
///
/// Each rank runs the ops of its meshes on its shards; redistributions are executed on threads.
///
/// Fails as [`run_local`] does, and for shards that are not as large as the program declares.
pub fn on_ranks<T: Number>(program: &Program, inputs: &Values<T>) -> Result<Ranks<T>, Error> {
    let program = program.in_one_dtype(T::DTYPE)?;
    let program = &*program.lower_comm_dtypes()?;
    let mut done: Vec<Vec<Did>> = vec![Vec::new(); program.mesh().world_size()];
    let (mut received, mut moves) = (0, Vec::new());
    let mut values: BTreeMap<ValueId, Vec<ArrayD<T>>> = BTreeMap::new();
    let mut places: BTreeMap<ValueId, Vec<ShardRegion>> = BTreeMap::new();
    let lies = |v: ValueId| -> Result<Vec<ShardRegion>, Error> {
        let s = &program.get(v).ty.value;
        s.mesh()
            .ranks()
            .map(|r| Ok(ShardRegion { region: s.region(r).map_err(op)?, whole: s.shape().to_vec() }))
            .collect()
    };
    for item in program.statements() {
        match item {
            Statement::NoGrad => {}
            Statement::Input(v) => {
                let whole: Vec<T> = input(program, *v, inputs)?.iter().copied().collect();
                let is = &program.get(*v).ty.value;
                let shards = is.mesh().ranks().map(|rank| shard_of(is, rank, &whole));
                let shards = shards.collect::<Result<Vec<_>, _>>()?;
                places.insert(*v, lies(*v)?);
                values.insert(*v, shaped(program, *v, shards)?);
            }
            Statement::Redistribute { from, to, forward, .. } => {
                let source = values.get(from).ok_or_else(|| missing(program, *from))?;
                let source: Vec<Vec<T>> = source.iter().map(|a| a.iter().copied().collect()).collect();
                let plan = &**forward;
                // Without steps every rank of the mesh already has its shard; in another mesh the ranks are
                // in another order.
                let (shards, bytes) = if plan.steps().is_empty() && plan.from().mesh() == plan.to().mesh() {
                    (source, 0)
                } else {
                    let (shards, trace) = redistributed(plan, &source)
                        .map_err(|e| Error::Input { reason: format!("{}: {e}", program.get(*to).name) })?;
                    for rank in plan.ranks() {
                        done[rank].extend(Did::received(&program.get(*to).name, &trace, rank));
                    }
                    (shards, plan.ranks().into_iter().map(|r| trace.received_by(r)).max().unwrap_or(0))
                };
                if bytes > 0 {
                    moves.push((program.get(*to).name.clone(), bytes));
                }
                received += bytes;
                places.insert(*to, lies(*to)?);
                values.insert(*to, shaped(program, *to, shards)?);
            }
            Statement::Op { call, inputs, outputs, is_view, .. } => {
                // All operands are on one mesh, and only its ranks run the op.
                let ranks_of: Vec<usize> = outputs
                    .first()
                    .map_or_else(Vec::new, |v| program.get(*v).ty.value.mesh().ranks().collect());
                let ranks = ranks_of.len();
                let mut made: Vec<Vec<ArrayD<T>>> = vec![Vec::with_capacity(ranks); outputs.len()];
                let mut wanted = Vec::with_capacity(outputs.len());
                for &v in outputs {
                    wanted.push(lies(v)?);
                }
                for r in 0..ranks {
                    let taken: Result<Vec<ArrayD<T>>, Error> = inputs
                        .iter()
                        .map(|v| {
                            values.get(v).and_then(|s| s.get(r).cloned()).ok_or_else(|| missing(program, *v))
                        })
                        .collect();
                    let taken = taken?;
                    let local = Local {
                        inputs: &taken,
                        places: inputs.iter().filter_map(|v| places.get(v)).map(|p| &p[r]).collect(),
                        wanted: wanted.iter().map(|p| &p[r]).collect(),
                    };
                    let results = run_local(program.table(), call, &local)?;
                    let rounded = results.into_iter().zip(outputs);
                    let results: Vec<ArrayD<T>> =
                        rounded.map(|(a, v)| narrow::rounded(a, program.get(*v).dtype)).collect();
                    if !is_view && let Some(rank) = ranks_of.get(r) {
                        let [takes, makes] =
                            [&taken, &results].map(|list| list.iter().map(ArrayD::shape).collect::<Vec<_>>());
                        // The call as it is on this rank.
                        let first = |dim: usize| local.wanted.first()?.indices(dim).ok()?.first().copied();
                        let slice = |dims: usize| (0..dims).filter_map(first).collect();
                        let (call, dims) = on_one_slice(call, &takes, &makes, slice)
                            .unwrap_or_else(|| (call.clone(), vec![0; takes.len() + makes.len()]));
                        let (of_takes, of_makes) = dims.split_at(takes.len());
                        let shapes = |list: &[&[usize]], dims: &[usize]| {
                            list.iter().zip(dims).map(|(shape, &dims)| shape[dims..].to_vec()).collect()
                        };
                        done[*rank].push(Did::Call {
                            call: call.to_string(),
                            takes: shapes(&takes, of_takes),
                            makes: shapes(&makes, of_makes),
                            made: (results.iter().zip(outputs))
                                .map(|(a, v)| digest(&narrow::bytes_of(a, program.get(*v).dtype)))
                                .collect(),
                        });
                    }
                    for (list, a) in made.iter_mut().zip(results) {
                        list.push(a);
                    }
                }
                for ((&v, shards), lies) in outputs.iter().zip(made).zip(wanted) {
                    let fits =
                        shards.iter().zip(&lies).all(|(a, place)| a.shape() == place.shape().as_slice());
                    if !fits || shards.len() != ranks {
                        let name = &program.get(v).name;
                        return Err(Error::Input {
                            reason: format!(
                                "{call} computed shards of `{name}` that are not {}",
                                program.get(v).ty.value
                            ),
                        });
                    }
                    places.insert(v, lies);
                    values.insert(v, shards);
                }
            }
        }
    }
    let values = values.into_iter().map(|(v, shards)| {
        let value = program.get(v);
        (value.name.clone(), (value.ty.value.clone(), shards))
    });
    Ok(Ranks { values: values.collect(), received, moves, done })
}

/// Redistributes shards on threads, in elements of the plan's type.
fn redistributed<T: Number>(
    plan: &Plan,
    shards: &[Vec<T>],
) -> Result<(Vec<Vec<T>>, TrafficLog), reshard_collectives::Error> {
    fn narrow<T: Number, E: Element>(
        plan: &Plan,
        shards: &[Vec<T>],
        to: impl Fn(f64) -> E,
        back: impl Fn(E) -> f64,
    ) -> Result<(Vec<Vec<T>>, TrafficLog), reshard_collectives::Error> {
        let cast = |shard: &Vec<T>| shard.iter().map(|x| to(x.wide())).collect();
        let (made, trace) =
            threads::redistribute::<E>(plan, &shards.iter().map(cast).collect::<Vec<Vec<E>>>())?;
        let wide = |shard: Vec<E>| shard.into_iter().map(|x| T::of(back(x))).collect();
        Ok((made.into_iter().map(wide).collect(), trace))
    }
    match Narrow::of::<T>(plan.dtype()) {
        Narrow::BF16 => narrow(plan, shards, bf16::from_f64, bf16::to_f64),
        Narrow::F16 => narrow(plan, shards, f16::from_f64, f16::to_f64),
        Narrow::F32 => narrow(plan, shards, |x| x as f32, f64::from),
        Narrow::No => threads::redistribute::<T>(plan, shards),
    }
}

/// Returns the shard of a tensor on a rank.
///
/// Of a partial sum, product or norm the first rank has the elements and the others the identity. Of an
/// average, minimum or maximum all ranks have the same elements.
pub(crate) fn shard_of<T: Number>(s: &Sharding, rank: usize, whole: &[T]) -> Result<Vec<T>, Error> {
    let identity = match s.partial().first().map(|terms| terms.op) {
        None | Some(ReduceOp::Sum | ReduceOp::Norm(_)) => 0.0,
        Some(ReduceOp::Prod) => 1.0,
        Some(ReduceOp::Avg | ReduceOp::Min | ReduceOp::Max) => {
            let held = s.global_indices(rank).map_err(op)?;
            return Ok(held.into_iter().map(|element| whole[element]).collect());
        }
    };
    s.shard(rank, whole, T::rounded(identity)).map_err(op)
}

pub(crate) fn op(e: reshard_sharding::Error) -> Error {
    Error::Op(e.into())
}

/// Shapes lists of elements as the shards of a value.
fn shaped<T: Number>(program: &Program, v: ValueId, shards: Vec<Vec<T>>) -> Result<Vec<ArrayD<T>>, Error> {
    let s = &program.get(v).ty.value;
    s.mesh()
        .ranks()
        .zip(shards)
        .map(|(r, shard)| {
            let shape = s.local_shape(r).map_err(op)?;
            ArrayD::from_shape_vec(IxDyn(&shape), shard)
                .map_err(|e| Error::Input { reason: format!("{} on rank {r}: {e}", program.get(v).name) })
        })
        .collect()
}
