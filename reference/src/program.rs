//! Programs on host tensors: on one device, and on a thread for every rank.
//!
//! ```text
//! on_one_device   values whole, moves do nothing                                    what a program means
//! on_ranks        each rank runs ops on its shards, moves are carried out           what a program does
//! ```
//!
//! A program is right where the second is a sharding of the first.

use std::collections::BTreeMap;

use ndarray::{ArrayD, IxDyn};
use reshard_collectives::{Item as Element, threads};
use reshard_ops::rules::verify::LocalRegion;
use reshard_planner::{Arithmetic, Planner};
use reshard_program::{Item, Program, ValueId};
use reshard_sharding::{Sharding, meaning};

use crate::{Error, Local, Real, run, run_local};

/// A type of elements of which there are plans.
pub trait Number: Real + Element + meaning::Term {
    /// The nearest to a number.
    fn of(x: f64) -> Self {
        Self::rounded(x)
    }
}

impl Number for f32 {}
impl Number for f64 {}

/// The values of a program by name.
pub type Values<T> = BTreeMap<String, ArrayD<T>>;

fn missing(program: &Program, v: ValueId) -> Error {
    Error::Input { reason: format!("{} is not given", program.get(v).name) }
}

/// All values of a program on one device, from its inputs.
///
/// ```
/// use ndarray::array;
/// use reshard_program::{Elaborator, Graph};
/// let graph: Graph = "mesh x=2\na: f64[2] S(0)\ny: R = mul(a, a)".parse()?;
/// let program = Elaborator::new().elaborate(&graph)?;
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
    for item in program.items() {
        match item {
            Item::NoGrad => {}
            Item::Input(v) => {
                values.insert(*v, input(program, *v, inputs)?.clone());
            }
            Item::Move { from, to, .. } => {
                let same = values.get(from).cloned().ok_or_else(|| missing(program, *from))?;
                values.insert(*to, same);
            }
            Item::Op { call, inputs, outputs, .. } => {
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

/// An input as it is given.
fn input<'a, T: Number>(
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
        reason: format!("{} is {:?} and is given as {:?}", value.name, value.shape(), given.shape()),
    })
}

/// What all ranks held of all values.
#[derive(Clone, Debug)]
pub struct Ranks<T> {
    values: BTreeMap<String, (Sharding, Vec<ArrayD<T>>)>,
    received: u64,
    moves: Vec<(String, u64)>,
}

impl<T: Number> Ranks<T> {
    /// The shards of a value, in the order of the ranks of its mesh.
    pub fn shards(&self, name: &str) -> Option<&[ArrayD<T>]> {
        self.values.get(name).map(|(_, shards)| shards.as_slice())
    }

    /// The whole tensor that the shards of a value mean.
    ///
    /// Fails where replicas differ in a bit.
    pub fn whole(&self, name: &str) -> Result<ArrayD<T>, Error> {
        let (sharding, shards) = self
            .values
            .get(name)
            .ok_or_else(|| Error::Input { reason: format!("there is no value {name}") })?;
        let shards: Vec<Vec<T>> = shards.iter().map(|a| a.iter().copied().collect()).collect();
        let whole = meaning::meaning(sharding, &shards)
            .map_err(|e| Error::Input { reason: format!("{name} as {sharding}: {e}") })?;
        ArrayD::from_shape_vec(IxDyn(sharding.shape()), whole)
            .map_err(|e| Error::Input { reason: format!("{name} as {sharding}: {e}") })
    }

    /// The bytes that the worst rank of each move received, added up.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// The bytes that the worst rank received in each move that communicated, with what it made.
    pub fn moves(&self) -> &[(String, u64)] {
        &self.moves
    }
}

/// All values of a program on the ranks of its meshes: each runs the ops of its meshes on what it holds, moves are carried out on
/// threads.
///
/// Fails as [`run_local`] does, and for shards that are not as large as the program says.
pub fn on_ranks<T: Number>(program: &Program, inputs: &Values<T>) -> Result<Ranks<T>, Error> {
    let planner = Planner::new().arithmetic(Arithmetic::Framework);
    let (mut received, mut moves) = (0, Vec::new());
    let mut values: BTreeMap<ValueId, Vec<ArrayD<T>>> = BTreeMap::new();
    let mut places: BTreeMap<ValueId, Vec<LocalRegion>> = BTreeMap::new();
    let lies = |v: ValueId| -> Result<Vec<LocalRegion>, Error> {
        let s = &program.get(v).is.value;
        s.mesh()
            .ranks()
            .map(|r| Ok(LocalRegion { region: s.region(r).map_err(op)?, whole: s.shape().to_vec() }))
            .collect()
    };
    for item in program.items() {
        match item {
            Item::NoGrad => {}
            Item::Input(v) => {
                let whole: Vec<T> = input(program, *v, inputs)?.iter().copied().collect();
                let shards =
                    meaning::scatter(&program.get(*v).is.value, &whole, T::rounded(0.0)).map_err(op)?;
                places.insert(*v, lies(*v)?);
                values.insert(*v, shaped(program, *v, shards)?);
            }
            Item::Move { from, to, forward, .. } => {
                let source = values.get(from).ok_or_else(|| missing(program, *from))?;
                let source: Vec<Vec<T>> = source.iter().map(|a| a.iter().copied().collect()).collect();
                let again;
                let plan = if forward.dtype() == T::DTYPE {
                    &**forward
                } else {
                    again = planner
                        .plan(forward.from(), forward.to(), T::DTYPE)
                        .map_err(|e| Error::Op(e.into()))?;
                    &again
                };
                // Without steps every rank of the mesh has what it should have; in another mesh ranks stand in another order.
                let (shards, bytes) = if plan.steps().is_empty() && plan.from().mesh() == plan.to().mesh() {
                    (source, 0)
                } else {
                    let (shards, trace) = threads::redistribute::<T>(plan, &source)
                        .map_err(|e| Error::Input { reason: format!("{}: {e}", program.get(*to).name) })?;
                    (shards, plan.ranks().into_iter().map(|r| trace.received_by(r)).max().unwrap_or(0))
                };
                if bytes > 0 {
                    moves.push((program.get(*to).name.clone(), bytes));
                }
                received += bytes;
                places.insert(*to, lies(*to)?);
                values.insert(*to, shaped(program, *to, shards)?);
            }
            Item::Op { call, inputs, outputs, .. } => {
                // All operands are on one mesh, and only its ranks run the op.
                let ranks = outputs.first().map_or(0, |v| program.get(*v).is.value.mesh().size());
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
                    for (list, a) in made.iter_mut().zip(run_local(program.table(), call, &local)?) {
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
                                "{call} made shards of {name} that are not {}",
                                program.get(v).is.value
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
        (value.name.clone(), (value.is.value.clone(), shards))
    });
    Ok(Ranks { values: values.collect(), received, moves })
}

fn op(e: reshard_sharding::Error) -> Error {
    Error::Op(e.into())
}

/// Lists of elements as the shards of a value.
fn shaped<T: Number>(program: &Program, v: ValueId, shards: Vec<Vec<T>>) -> Result<Vec<ArrayD<T>>, Error> {
    let s = &program.get(v).is.value;
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
