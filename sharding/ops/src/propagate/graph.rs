//! Straight-line graphs of ops, propagated forward.
//!
//! A graph is a list of ops on one mesh, each on earlier values. Propagation goes through them in order: an
//! op's inputs are outputs of earlier ops, and its outputs are those of the cheapest strategy. A value may be
//! given a sharding. Then the op that makes it is chosen with the cost of reaching that sharding, and that
//! plan is inserted. Without one, partial values are counted at the cost of their later reduction
//! ([`OutputConstraint::Reduced`]), and stay as long as ops pass them.
//!
//! A value that was brought to some sharding for one op is not brought there again for another: the copy is
//! used.

use core::fmt;
use std::sync::Arc;

use reshard_kernels::DType;

use crate::Error;
use crate::propagate::cache::PropagationCache;
use crate::propagate::choice::OperandIndex;
use crate::propagate::constraint::OutputConstraint;
use crate::propagate::operand::Operand;
use crate::rules::{Brackets, Op};
use reshard_planner::Plan;
use reshard_sharding::{Mesh, Sharding};

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(hidden)]
pub struct Value(usize);

#[derive(Clone, Debug)]
struct Node {
    op: Op,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

#[derive(Clone, Debug)]
struct Known {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    /// The sharding of an input of the graph.
    given: Option<Sharding>,
    constraint: Option<Sharding>,
    /// `true` if it is known to have no negative element.
    nonnegative: bool,
}

/// A list of ops on values.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_ops::rules::Op;
/// use reshard_ops::propagate::{Graph, Operand, PropagationCache, Propagator};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let mut graph = Graph::new(&mesh);
/// let of = |shape: &[usize], p: &str| Sharding::parse(&mesh, shape, p).map(|s| Operand::new(DType::BF16, s));
/// let x = graph.input("x", of(&[64, 32], "S(0),R")?)?;
/// let up = graph.input("up", of(&[32, 128], "R,S(1)")?)?;
/// let down = graph.input("down", of(&[128, 32], "R,S(0)")?)?;
/// let mm = "mk,kn->mn".parse()?;
/// let h = graph.apply(&Op::new("mm", &mm, &[&[64, 32], &[32, 128]])?, &[x, up])?[0];
/// let y = graph.apply(&Op::new("mm", &mm, &[&[64, 128], &[128, 32]])?, &[h, down])?[0];
/// graph.constrain(y, Sharding::parse(&mesh, &[64, 32], "S(0),R")?)?;
/// let found = graph.propagate(&PropagationCache::new(Propagator::new(), 64))?;
/// assert_eq!(found.sharding(h).map(ToString::to_string).as_deref(), Some("S(0),S(1)"));
/// // One all-reduce over tp, after the second product.
/// assert_eq!(found.communications().len(), 1);
/// assert_eq!(found.communications()[0].plan.steps().len(), 1);
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Graph {
    mesh: Mesh,
    values: Vec<Known>,
    nodes: Vec<Node>,
}

impl Graph {
    /// A graph without ops.
    pub fn new(mesh: &Mesh) -> Graph {
        Graph { mesh: mesh.clone(), values: Vec::new(), nodes: Vec::new() }
    }

    /// Adds an input of the graph. Fails if it is on another mesh.
    pub fn input(&mut self, name: &str, operand: Operand) -> Result<Value, Error> {
        if *operand.sharding.mesh() != self.mesh {
            return Err(Error::Rule {
                reason: format!(
                    "the graph is on {}, but {name} is {operand}; redistribute it first",
                    self.mesh
                ),
            });
        }
        self.values.push(Known {
            name: name.to_owned(),
            dtype: operand.dtype,
            shape: operand.sharding.shape().to_vec(),
            given: Some(operand.sharding),
            constraint: None,
            nonnegative: operand.nonnegative,
        });
        Ok(Value(self.values.len() - 1))
    }

    /// Appends an op; its outputs have the element type of its first input (f32 without inputs).
    ///
    /// Fails if the inputs are not of this graph or do not have the op's shapes.
    pub fn apply(&mut self, op: &Op, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let first = inputs.first().and_then(|v| self.values.get(v.0)).map_or(DType::F32, |v| v.dtype);
        self.apply_as(op, inputs, &vec![first; op.outputs().len()])
    }

    /// Appends an op with the element type of each output.
    pub fn apply_as(&mut self, op: &Op, inputs: &[Value], dtypes: &[DType]) -> Result<Vec<Value>, Error> {
        let node = self.nodes.len();
        let bad = |reason: String| Err(Error::Rule { reason: format!("op {node}, {}: {reason}", op.name()) });
        if inputs.len() != op.inputs().len() || dtypes.len() != op.outputs().len() {
            return bad(format!(
                "it has {} inputs and {} outputs, not {} and {}",
                op.inputs().len(),
                op.outputs().len(),
                inputs.len(),
                dtypes.len()
            ));
        }
        for (i, (value, shape)) in inputs.iter().zip(op.inputs()).enumerate() {
            let Some(known) = self.values.get(value.0) else {
                return bad(format!("input {i} is not a value of this graph"));
            };
            if known.shape != shape.as_slice() {
                return bad(format!(
                    "input {i} is {}, whose shape is {} and not {}",
                    known.name,
                    Brackets(&known.shape),
                    Brackets(shape)
                ));
            }
        }
        let outputs: Vec<Value> = op
            .outputs()
            .iter()
            .zip(dtypes)
            .enumerate()
            .map(|(o, (shape, &dtype))| {
                let nonnegative = op.is_nonnegative(o, |i| self.values[inputs[i].0].nonnegative);
                self.values.push(Known {
                    name: format!("{}.{node}", op.name()),
                    dtype,
                    shape: shape.clone(),
                    given: None,
                    constraint: None,
                    nonnegative,
                });
                Value(self.values.len() - 1)
            })
            .collect();
        self.nodes.push(Node { op: op.clone(), inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    /// Constrains a value to a sharding: it is redistributed after the op that makes it.
    ///
    /// Fails if the sharding is on another mesh or of another shape.
    pub fn constrain(&mut self, value: Value, sharding: Sharding) -> Result<(), Error> {
        let Some(known) = self.values.get_mut(value.0) else {
            return Err(no_value(value));
        };
        if *sharding.mesh() != self.mesh || sharding.shape() != known.shape.as_slice() {
            return Err(Error::Rule {
                reason: format!(
                    "{} is {} on {}, which cannot be {sharding} of {} on {}",
                    known.name,
                    Brackets(&known.shape),
                    self.mesh,
                    Brackets(sharding.shape()),
                    sharding.mesh()
                ),
            });
        }
        known.constraint = Some(sharding);
        Ok(())
    }

    /// Returns the shardings of all values and every required communication.
    ///
    /// Fails where no strategy of an op takes its inputs; the error names the op.
    pub fn propagate(&self, cache: &PropagationCache) -> Result<Propagation, Error> {
        let mut found = Propagation { shardings: vec![None; self.values.len()], communications: Vec::new() };
        // The other shardings in which each value is available.
        let mut copies: Vec<Vec<Sharding>> = vec![Vec::new(); self.values.len()];
        for (i, value) in self.values.iter().enumerate() {
            let Some(given) = &value.given else { continue };
            let now = value.constraint.as_ref().unwrap_or(given);
            if now != given {
                let planner = cache.propagator().planner();
                let dtype = Operand::new(value.dtype, given.clone()).whole_bytes()?;
                let plan = Arc::new(planner.plan(given, now, dtype)?);
                found.communications.push(Communication {
                    at: None,
                    value: Value(i),
                    name: value.name.clone(),
                    plan,
                });
            }
            found.shardings[i] = Some(now.clone());
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let mut inputs = Vec::with_capacity(node.inputs.len());
            for &v in &node.inputs {
                // `apply` takes only existing values.
                let is = found.sharding(v).cloned().ok_or_else(|| no_value(v))?;
                let known = &self.values[v.0];
                let operand = Operand::new(known.dtype, is);
                inputs.push(if known.nonnegative { operand.nonnegative() } else { operand });
            }
            let constraint = |v: &Value| match &self.values[v.0].constraint {
                Some(sharding) => OutputConstraint::Exactly(sharding.clone()),
                None => OutputConstraint::Reduced,
            };
            let constraints: Vec<OutputConstraint> = node.outputs.iter().map(constraint).collect();
            let choice = cache.propagate(&node.op, &self.mesh, &inputs, &constraints)?;
            let taken = node.inputs.iter().zip(&choice.inputs).zip(&choice.plans);
            for (i, ((&v, to), plan)) in taken.enumerate() {
                let Some(plan) = plan else { continue };
                if !copies[v.0].contains(to) {
                    copies[v.0].push(to.clone());
                    found.insert(OperandIndex::Input(i), n, &node.op, v, &self.values[v.0].name, plan);
                }
            }
            let made = node.outputs.iter().zip(&choice.outputs).zip(&choice.output_plans);
            for (o, ((&v, is), plan)) in made.enumerate() {
                found.shardings[v.0] = Some(is.clone());
                if let Some(plan) = plan {
                    found.insert(OperandIndex::Output(o), n, &node.op, v, &self.values[v.0].name, plan);
                }
            }
        }
        Ok(found)
    }
}

fn no_value(value: Value) -> Error {
    Error::Rule { reason: format!("there is no value {} in this graph", value.0) }
}

/// One redistribution that a graph needs.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Communication {
    /// The operand, its op's index from 0, and its name; `None` for a constraint on an input of the graph.
    pub at: Option<(OperandIndex, usize, String)>,
    /// The redistributed value.
    pub value: Value,
    /// Its name.
    pub name: String,
    /// The plan that redistributes it.
    pub plan: Arc<Plan>,
}

impl fmt::Display for Communication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            None => f.write_str("at the start")?,
            Some((OperandIndex::Input(_), n, op)) => write!(f, "before op {n}, {op}")?,
            Some((OperandIndex::Output(_), n, op)) => write!(f, "after op {n}, {op}")?,
        }
        write!(
            f,
            ": {} [{}] -> [{}], {} bytes, {:.1} us",
            self.name,
            self.plan.from(),
            self.plan.to(),
            self.plan.received_bytes(),
            self.plan.cost_us()
        )
    }
}

/// The result of a propagation through a graph.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Propagation {
    shardings: Vec<Option<Sharding>>,
    communications: Vec<Communication>,
}

impl Propagation {
    /// Returns the sharding of a value of the propagated graph; `None` for a value of another, larger one.
    pub fn sharding(&self, value: Value) -> Option<&Sharding> {
        self.shardings.get(value.0)?.as_ref()
    }

    /// Every redistribution, in order: those with steps that communicate and those that only slice or fill.
    pub fn communications(&self) -> &[Communication] {
        &self.communications
    }

    /// The cost of all redistributions, in microseconds.
    pub fn cost_us(&self) -> f64 {
        self.communications.iter().map(|c| c.plan.cost_us()).fold(0.0, |a, b| a + b)
    }

    /// The bytes that the worst rank of each receives, added up.
    pub fn received_bytes(&self) -> u64 {
        self.communications.iter().map(|c| c.plan.received_bytes()).sum()
    }

    fn insert(
        &mut self,
        operand: OperandIndex,
        n: usize,
        op: &Op,
        value: Value,
        name: &str,
        plan: &Arc<Plan>,
    ) {
        let at = Some((operand, n, op.name().to_owned()));
        self.communications.push(Communication { at, value, name: name.to_owned(), plan: Arc::clone(plan) });
    }
}

impl fmt::Display for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in &self.communications {
            writeln!(f, "{c}")?;
        }
        write!(f, "{} bytes, {:.1} us", self.received_bytes(), self.cost_us())
    }
}
