//! Graphs: untyped programs.
//!
//! A graph is a list of statements over named values, on the meshes of one world. Inputs have types. The type
//! of a computed value is the declared one, or is found by the [solver](crate::ShardingSolver).
//!
//! ```text
//! op        y = add(x, b)             a call of the table, a rule, or a composite
//! move      y: S(0),R = x             the same tensor in another type
//! gradient  gradient loss wrt w       dw is the gradient of the sum of loss with respect to w
//! mark      no_grad                   values below have no gradient
//! ```

mod dtypes;
mod gradients;
mod moves;
mod names;
mod statement;
mod strategies;

use core::fmt;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::rules::{OpCall, OpTable};
use reshard_sharding::{Mesh, ShardingType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::local_type::{self, Partly};
use crate::meshes::Meshes;
use crate::one_rank::WideText;

pub(crate) use names::{gradient_name, gradient_of};
pub(crate) use statement::{Given, GraphStatement};

/// A value of a graph, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) usize);

impl ValueId {
    /// Returns the number, counted from 0 in the order in which values are created.
    #[doc(hidden)]
    pub fn index(self) -> usize {
        self.0
    }
}

/// The known facts on a value of a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The sharding constraint.
    pub(crate) pinned: Option<Arc<ShardingType>>,
    /// The placements that an input of an open type has along some axes; `None` if its type is not open.
    pub(crate) open: Option<Partly>,
    /// The same along the axes of one rank, if it is known; see [`crate::one_rank`].
    pub(crate) letters: Option<Arc<ShardingType>>,
    /// The number of the mesh on which it is computed, if its operands do not determine it.
    pub(crate) on: Option<usize>,
    /// `true` for an intermediate inside one fused op: no memory is read or written for it.
    pub(crate) inner: bool,
    /// `true` for an intermediate of an op that is decomposed for the search: the text has no name for it.
    pub(crate) part: bool,
}

/// A list of statements over named values, on the meshes of one world.
///
/// ```
/// use reshard_program::Graph;
/// let graph: Graph = "
///     mesh dp=2,tp=2
///     x: f32[8,16] S(0),R
///     w: f32[16,32] I,S(1)
///     h = mm(x, w)
///     y = relu(h)
/// ".parse()?;
/// assert_eq!(graph.value("y").map(|y| graph.shape(y).to_vec()), Some(vec![8, 32]));
/// assert_eq!(graph.to_string().parse::<Graph>()?, graph);
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone)]
pub struct Graph {
    pub(crate) table: Arc<OpTable>,
    pub(crate) meshes: Meshes,
    pub(crate) values: Vec<Known>,
    pub(crate) statements: Vec<GraphStatement>,
    names: FxHashMap<String, ValueId>,
    /// The first value below `no_grad`, if there is a mark.
    marked: Option<ValueId>,
    /// Names in use elsewhere: generated names avoid them.
    pub(crate) reserved: Arc<FxHashSet<String>>,
    /// The graph of the same text with more ranks along axes of one rank, if types have no letters.
    pub(crate) wide: Option<Arc<WideText>>,
}

/// Formats the graph text.
impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        (&self.meshes, &self.values, &self.statements) == (&other.meshes, &other.values, &other.statements)
    }
}

/// The maximum number of statements of a graph, including those of composites.
pub(crate) const MOST_STATEMENTS: usize = 1 << 20;

impl Graph {
    /// Returns a graph without statements, with the ops of the standard table.
    pub fn new(mesh: &Mesh) -> Graph {
        Graph::with_table(mesh, Arc::new(OpTable::standard()))
    }

    /// Returns a graph without statements, with the ops of a table.
    pub fn with_table(mesh: &Mesh, table: Arc<OpTable>) -> Graph {
        Graph::on_meshes(Meshes::new(mesh), table)
    }

    /// Returns a graph without statements on several meshes.
    pub(crate) fn on_meshes(meshes: Meshes, table: Arc<OpTable>) -> Graph {
        let (values, statements) = (Vec::new(), Vec::new());
        let (names, marked) = (FxHashMap::default(), None);
        Graph { table, meshes, values, statements, names, marked, reserved: Arc::default(), wide: None }
    }

    /// Returns the first mesh, which has all ranks.
    pub fn mesh(&self) -> &Mesh {
        self.meshes.first()
    }

    /// Returns the table of ops.
    #[doc(hidden)]
    pub fn table(&self) -> &Arc<OpTable> {
        &self.table
    }

    /// Returns the value with a name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// Returns the name of a value of this graph.
    pub fn name(&self, value: ValueId) -> &str {
        &self.values[value.0].name
    }

    /// Returns the shape of a value of this graph.
    pub fn shape(&self, value: ValueId) -> &[usize] {
        &self.values[value.0].shape
    }

    /// Returns the element type of a value of this graph.
    pub fn dtype(&self, value: ValueId) -> DType {
        self.values[value.0].dtype
    }

    /// Returns the sharding constraint of a value of this graph.
    #[doc(hidden)]
    pub fn constraint(&self, value: ValueId) -> Option<&ShardingType> {
        self.values[value.0].pinned.as_deref()
    }

    /// Returns the same constraint as a shared pointer.
    pub(crate) fn shared_pin(&self, value: ValueId) -> Option<&Arc<ShardingType>> {
        self.values[value.0].pinned.as_ref()
    }

    /// Returns the number of values.
    #[doc(hidden)]
    pub fn values(&self) -> usize {
        self.values.len()
    }

    /// Adds an input of a type given as text.
    ///
    /// The text is parsed by [`ShardingType::parse`], with ` on` and the mesh name for a mesh other than the first.
    /// A `?` leaves the type open, along all axes or in a list along one (`S(0),?`), for
    /// [`Parallelizer`](crate::Parallelizer) to choose.
    ///
    /// Returns an error for an invalid or used name, and for a type that is invalid for this shape on that
    /// mesh.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize], text: &str) -> Result<ValueId, Error> {
        if let Some(given) = local_type::read_open(text, self.mesh())? {
            let value = self.named(name, dtype, shape)?;
            self.values[value.0].open = Some(given);
            self.statements.push(GraphStatement::Input(value));
            return Ok(value);
        }
        let is = self.type_of(name, shape, text)?;
        self.input_with_type(name, dtype, is)
    }

    /// Restricts the open type of an input further: `S(0),R`, or `S(0),?` to leave axes open.
    ///
    /// Returns an error for a value whose type is not open.
    pub fn restrict_open(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let refused = |reason: String| Err(Error::Graph { reason });
        let Some(value) = self.value(name) else { return refused(format!("no value is named `{name}`")) };
        if self.values[value.0].open.is_none() {
            return refused(format!("the type of `{name}` is not open; write `?` instead"));
        }
        let given = local_type::read_some(text, self.mesh())?;
        self.values[value.0].open = Some(given);
        Ok(())
    }

    /// Adds an input of a type.
    pub fn input_with_type(&mut self, name: &str, dtype: DType, is: ShardingType) -> Result<ValueId, Error> {
        let shape = is.value.shape().to_vec();
        let value = self.named(name, dtype, &shape)?;
        self.constrain(value, is)?;
        self.statements.push(GraphStatement::Input(value));
        Ok(value)
    }

    /// Constrains a value to a type: its result is redistributed to it, or computed there on another mesh.
    ///
    /// Values below [`Graph::no_grad`] have no gradient: only the value's sharding of the type is used.
    ///
    /// Returns an error for a type of another shape, or on a mesh that is not in the graph.
    pub fn constrain(&mut self, value: ValueId, is: ShardingType) -> Result<(), Error> {
        let meshes = &self.meshes;
        let marked = self.is_below_mark(value);
        let known = &mut self.values[value.0];
        let shardings = core::iter::once(&is.value).chain(&is.gradient);
        for s in shardings {
            if s.shape() != known.shape {
                return Err(Error::Graph {
                    reason: format!(
                        "`{}` has shape {:?}, but its type {is} is for shape {:?}",
                        known.name,
                        known.shape,
                        s.shape()
                    ),
                });
            }
            if meshes.number(s.mesh()).is_none() {
                return Err(Error::Graph {
                    reason: format!(
                        "`{}` is {is} on {}, which is not a mesh of the program; its meshes are {}",
                        known.name,
                        s.mesh(),
                        meshes.names().join(", ")
                    ),
                });
            }
            if s.mesh() != is.value.mesh() {
                return Err(Error::Graph {
                    reason: format!(
                        "`{}` is on {} and its gradient on {}; put both on one mesh",
                        known.name,
                        is.value.mesh(),
                        s.mesh()
                    ),
                });
            }
        }
        let is = if marked { is.without_gradient() } else { is };
        known.letters = meshes.one_rank().and(is.letters()).cloned();
        known.pinned = Some(Arc::new(ShardingType::new(is.value, is.gradient)));
        Ok(())
    }

    /// Returns `true` for a value below `no_grad`.
    pub(crate) fn is_below_mark(&self, value: ValueId) -> bool {
        self.marked.is_some_and(|first| value >= first)
    }

    /// Adds a call of an op; its outputs get these names.
    ///
    /// Outputs have the element types that the table states, [`OpTable::dtypes`]. An output named like an input with
    /// a prime, `w'`, is the value of that input in the next step and is constrained to the input's type.
    ///
    /// Returns the errors of [`OpTable::op`], and errors for used names and for inputs with elements that the op does
    /// not take.
    pub fn apply(
        &mut self,
        call: &OpCall,
        inputs: &[ValueId],
        names: &[&str],
    ) -> Result<Vec<ValueId>, Error> {
        let call = &self.keyed(call)?;
        let shapes: Vec<&[usize]> = inputs.iter().map(|v| self.values[v.0].shape.as_slice()).collect();
        let op = self.table.op(call, &shapes)?;
        if names.len() > op.outputs().len() {
            return Err(Error::Graph {
                reason: format!(
                    "{call} has {} outputs, but {} names are given",
                    op.outputs().len(),
                    names.len()
                ),
            });
        }
        let dtypes = self.checked_dtypes(call, inputs, op.outputs().len())?;
        let outputs: Result<Vec<ValueId>, Error> = (op.outputs().iter().zip(dtypes).enumerate())
            .map(|(o, (shape, dtype))| match names.get(o) {
                Some(&name) if name != "_" => self.named(name, dtype, shape),
                _ => {
                    let name = self.fresh("v");
                    self.named(&name, dtype, shape)
                }
            })
            .collect();
        let outputs = outputs?;
        for &v in &outputs {
            // The new value of an input in the next step has the input's type.
            let replaced = self.name(v).strip_suffix('\'').and_then(|name| self.value(name));
            let alike = |of: &ValueId| self.shape(*of) == self.shape(v) && self.inputs().any(|i| i == *of);
            let of = replaced.filter(alike).map(|of| &self.values[of.0]);
            if let Some((Some(is), letters)) = of.map(|of| (of.pinned.clone(), of.letters.clone())) {
                self.constrain(v, ShardingType::clone(&is))?;
                let marked = self.is_below_mark(v);
                let without = |is: Arc<ShardingType>| Arc::new(ShardingType::clone(&is).without_gradient());
                self.values[v.0].letters = if marked { letters.map(without) } else { letters };
            }
        }
        self.push(GraphStatement::Op {
            call: call.clone(),
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            by: None,
        })?;
        Ok(outputs)
    }

    /// Returns the first input whose type is open.
    pub(crate) fn first_open(&self) -> Option<ValueId> {
        self.inputs().find(|v| self.values[v.0].open.is_some())
    }

    /// Returns the inputs, in order.
    #[doc(hidden)]
    pub fn inputs(&self) -> impl Iterator<Item = ValueId> {
        self.statements.iter().filter_map(|s| match s {
            GraphStatement::Input(v) => Some(*v),
            GraphStatement::Op { .. }
            | GraphStatement::Move { .. }
            | GraphStatement::Gradient { .. }
            | GraphStatement::NoGrad => None,
        })
    }

    /// Returns the number of statements.
    #[doc(hidden)]
    pub fn statements(&self) -> usize {
        self.statements.len()
    }

    pub(crate) fn push(&mut self, statement: GraphStatement) -> Result<(), Error> {
        if self.statements.len() >= MOST_STATEMENTS {
            return Err(Error::Graph {
                reason: format!("a program has at most {MOST_STATEMENTS} statements"),
            });
        }
        self.statements.push(statement);
        Ok(())
    }
}
