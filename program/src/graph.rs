//! Graphs: what a program is made of, before it is typed.
//!
//! A graph is a list of statements over named values, on the meshes of one world. An input has a type; what a statement
//! makes has one where somebody says so, and else the [elaboration](crate::Elaborator) finds it.
//!
//! ```text
//! op        y = add(x, b)             a call of the table, a rule, or a composite
//! move      y: S(0),R = x             the same tensor in another type
//! gradient  gradient loss wrt w       dw is the gradient of the sum of loss with respect to w
//! mark      no_grad                   what is made below has no gradient
//! ```

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::rules::{Call, Op, Table, Value as Argument};
use reshard_sharding::{Mesh, Sharding, Type};

use crate::Error;
use crate::along::{self, Partly};
use crate::meshes::Meshes;
use crate::wire;

/// A value of a graph, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) usize);

impl ValueId {
    /// The number, counted from 0 in the order in which values are made.
    pub fn index(self) -> usize {
        self.0
    }
}

/// What is known of a value of a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// What it is said to be.
    pub(crate) pinned: Option<Type>,
    /// The number of the mesh on which it is made, where what it is made of does not say that.
    pub(crate) on: Option<usize>,
    /// Whether it is only between the parts of one op, which a kernel keeps to itself: no memory is read or written for it.
    pub(crate) inner: bool,
}

/// What an operand has to be in a strategy that is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// This, whatever its gradient.
    Whole(Box<Sharding>),
    /// This along some axes, with its gradient, and anything along the others.
    Along(Partly),
}

/// One statement of a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement {
    /// A value from outside.
    Input(ValueId),
    /// A call, and the shardings of its inputs and outputs where its strategy is given.
    Op { call: Call, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>, by: Option<Vec<Given>> },
    /// The same tensor in another type: in that of the value, or, where that has none, in what it is along some axes; through a wire of
    /// narrower elements, where it says so.
    Move { from: ValueId, to: ValueId, along: Partly, via: Option<DType> },
    /// The gradients of the first with respect to others.
    Gradient { loss: ValueId, wrt: Vec<ValueId>, gradients: Vec<ValueId> },
    /// From here on no value has a gradient.
    NoGrad,
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
    pub(crate) table: Arc<Table>,
    pub(crate) meshes: Meshes,
    pub(crate) values: Vec<Known>,
    pub(crate) statements: Vec<Statement>,
    names: BTreeMap<String, ValueId>,
    /// The first value that may be made below `no_grad`, where that is said.
    marked: Option<ValueId>,
    /// Names that others have, or will have: what nobody names gets none of them.
    pub(crate) reserved: Arc<BTreeSet<String>>,
}

/// Its text.
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

/// What the gradient of a value is called where nobody says.
pub(crate) fn gradient_name(of: &str) -> String {
    format!("d{of}")
}

/// The name of which this is the [`gradient_name`].
pub(crate) fn gradient_of(name: &str) -> Option<&str> {
    name.strip_prefix('d')
}

/// The most statements of a graph, those of composites counted.
pub(crate) const MOST_STATEMENTS: usize = 1 << 20;

/// The longest name of a value.
const LONGEST_NAME: usize = 1024;

impl Graph {
    /// A graph without statements, of the ops of the standard table.
    pub fn new(mesh: &Mesh) -> Graph {
        Graph::with_table(mesh, Arc::new(Table::standard()))
    }

    /// A graph without statements, of the ops of a table.
    pub fn with_table(mesh: &Mesh, table: Arc<Table>) -> Graph {
        Graph::on_meshes(Meshes::new(mesh), table)
    }

    /// The same on several meshes.
    pub(crate) fn on_meshes(meshes: Meshes, table: Arc<Table>) -> Graph {
        let (values, statements) = (Vec::new(), Vec::new());
        let (names, marked) = (BTreeMap::new(), None);
        Graph { table, meshes, values, statements, names, marked, reserved: Arc::default() }
    }

    /// The first mesh, which has all ranks.
    pub fn mesh(&self) -> &Mesh {
        self.meshes.first()
    }

    /// The table of ops.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The value of a name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// The name of a value of this graph.
    pub fn name(&self, value: ValueId) -> &str {
        &self.values[value.0].name
    }

    /// The shape of a value of this graph.
    pub fn shape(&self, value: ValueId) -> &[usize] {
        &self.values[value.0].shape
    }

    /// The element type of a value of this graph.
    pub fn dtype(&self, value: ValueId) -> DType {
        self.values[value.0].dtype
    }

    /// What a value of this graph is said to be.
    pub fn pinned(&self, value: ValueId) -> Option<&Type> {
        self.values[value.0].pinned.as_ref()
    }

    /// How many values it has.
    pub fn values(&self) -> usize {
        self.values.len()
    }

    /// A value that comes from outside, in a type as [`Type::parse`] reads it, with ` on` and the name of its mesh where that is
    /// not the first.
    ///
    /// Fails for a name that is taken or is none, and for a type that is none of this shape on that mesh.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize], text: &str) -> Result<ValueId, Error> {
        let is = self.type_of(name, shape, text)?;
        self.input_of(name, dtype, is)
    }

    /// The same with a type.
    pub fn input_of(&mut self, name: &str, dtype: DType, is: Type) -> Result<ValueId, Error> {
        let shape = is.value.shape().to_vec();
        let value = self.named(name, dtype, &shape)?;
        self.pin(value, is)?;
        self.statements.push(Statement::Input(value));
        Ok(value)
    }

    /// Says what a value is: what makes it is moved to that, or is made there, if that is on another mesh. What is made
    /// below [`Graph::no_grad`] has no gradient, and of its type the value's sharding is kept.
    ///
    /// Fails for a type of another shape, or on a mesh that the graph has not.
    pub fn pin(&mut self, value: ValueId, is: Type) -> Result<(), Error> {
        let meshes = &self.meshes;
        let marked = self.marked.is_some_and(|first| value >= first);
        let known = &mut self.values[value.0];
        let shardings = core::iter::once(&is.value).chain(&is.gradient);
        for s in shardings {
            if s.shape() != known.shape {
                return Err(Error::Graph {
                    reason: format!(
                        "{} has the shape {:?} and cannot be {is} of {:?}",
                        known.name,
                        known.shape,
                        s.shape()
                    ),
                });
            }
            if meshes.number(s.mesh()).is_none() {
                return Err(Error::Graph {
                    reason: format!(
                        "{} is {is} on {}, and the program has {}",
                        known.name,
                        s.mesh(),
                        meshes.names().join(", ")
                    ),
                });
            }
            if s.mesh() != is.value.mesh() {
                return Err(Error::Graph {
                    reason: format!(
                        "{} is on {} and its gradient on {}: a value and its gradient are on one mesh, and a move brings both to another",
                        known.name,
                        is.value.mesh(),
                        s.mesh()
                    ),
                });
            }
        }
        let gradient = is.gradient.filter(|_| !marked);
        known.pinned = Some(Type { value: is.value, gradient });
        Ok(())
    }

    /// Calls an op on values; what it makes gets these names.
    ///
    /// Outputs have the element type of the first input of real or complex numbers, or else of the first input (f32
    /// without inputs); of an op that gives truth values or indices, theirs. What is called like an input and a prime, `w'`,
    /// is what that is in the next step, and becomes what the input is.
    ///
    /// Fails as [`Table::op`] does, and for names that are taken.
    pub fn apply(&mut self, call: &Call, inputs: &[ValueId], names: &[&str]) -> Result<Vec<ValueId>, Error> {
        let call = &self.keyed(call)?;
        let shapes: Vec<&[usize]> = inputs.iter().map(|v| self.values[v.0].shape.as_slice()).collect();
        let op = self.table.op(call, &shapes)?;
        if names.len() > op.outputs().len() {
            return Err(Error::Graph {
                reason: format!(
                    "{call} makes {} values, and {} names are given",
                    op.outputs().len(),
                    names.len()
                ),
            });
        }
        let dtypes = self.dtypes(call, inputs, op.outputs().len());
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
            // What replaces an input in the next step lies where that does.
            let replaced = self.name(v).strip_suffix('\'').and_then(|name| self.value(name));
            let alike = |of: &ValueId| self.shape(*of) == self.shape(v) && self.inputs().any(|i| i == *of);
            if let Some(is) = replaced.filter(alike).and_then(|of| self.values[of.0].pinned.clone()) {
                self.pin(v, is)?;
            }
        }
        self.push(Statement::Op {
            call: call.clone(),
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            by: None,
        })?;
        Ok(outputs)
    }

    /// Gives the op that makes a value its strategy: what its inputs have to be, and what it makes of them. Gradients follow.
    ///
    /// ```
    /// use reshard_program::{Elaborator, Graph};
    /// let mut graph: Graph = "mesh tp=4\nx: f32[8,16] R\nw: f32[16,32] R\ny = mm(x, w)".parse()?;
    /// let y = graph.value("y").unwrap_or_else(|| unreachable!());
    /// graph.strategy(y, &["S(1)", "S(0)"], &["P"])?;
    /// assert!(graph.to_string().ends_with("y = mm(x, w) by S(1); S(0) -> P(sum)\n"));
    /// let program = Elaborator::new().elaborate(&graph)?;
    /// assert_eq!(program.value("y").map(|y| program.get(y).is.value.to_string()).as_deref(), Some("P(sum)"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails for a value that no op makes, and for texts that are no shardings of what that takes and makes. Whether the op has such a
    /// strategy is found by the elaboration.
    pub fn strategy(&mut self, value: ValueId, inputs: &[&str], outputs: &[&str]) -> Result<(), Error> {
        let at = self.statements.iter().rposition(|s| s.makes().contains(&value));
        let Some(Statement::Op { call, inputs: takes, outputs: makes, .. }) =
            at.map(|at| &self.statements[at])
        else {
            return Err(Error::Graph {
                reason: format!("{} is made by no op, which could have a strategy", self.name(value)),
            });
        };
        if (takes.len(), makes.len()) != (inputs.len(), outputs.len()) {
            return Err(Error::Graph {
                reason: format!(
                    "{call} takes {} values and makes {}, and its strategy says {} and {}: write by A; B -> C",
                    takes.len(),
                    makes.len(),
                    inputs.len(),
                    outputs.len()
                ),
            });
        }
        let operands = takes.iter().chain(makes).zip(inputs.iter().chain(outputs));
        let mesh = self.mesh();
        let given: Result<Vec<Given>, Error> = operands
            .map(|(&v, text)| {
                if let Some(partly) = along::read(text, mesh)? {
                    return Ok(Given::Along(partly));
                }
                let name = format!("the strategy of {call}, {}", self.name(v));
                Ok(Given::Whole(Box::new(self.sharding_of(&name, self.shape(v), text)?.value)))
            })
            .collect();
        let given = given?;
        if let Some(Statement::Op { by, .. }) = at.map(|at| &mut self.statements[at]) {
            *by = Some(given);
        }
        Ok(())
    }

    /// The same tensor in another type.
    ///
    /// Fails for a name that is taken or is none, and for a type of another shape or on a mesh that the graph has not.
    pub fn moved(&mut self, from: ValueId, name: &str, is: Type) -> Result<ValueId, Error> {
        self.moved_via(from, name, is, None)
    }

    /// The same through a wire: what travels is cast to a narrower type and back, and terms are added in the value's own. Backward too.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::{Elaborator, Graph, Rates};
    /// use reshard_sharding::Type;
    /// let mut graph: Graph = "mesh dp=4\nx: f32[4,1048576] S(0)\nt = sum(x, dims=[0])".parse()?;
    /// let (t, is) = (graph.value("t").unwrap(), Type::parse(graph.mesh(), &[1 << 20], "R")?);
    /// graph.moved_via(t, "y", is, Some(DType::BF16))?;
    /// assert!(graph.to_string().ends_with("y: R via bf16 = t\n"));
    /// let program = Elaborator::new().elaborate(&graph)?;
    /// // Terms of a quarter from three others, and then three quarters of the sum, two bytes each.
    /// assert_eq!(program.report(&Rates::uniform()).traffic.forward.received_bytes, 2 * 3 * (1 << 18) * 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails as [`Graph::moved`] does, and for a type that is not narrower than the value's: f32, f16 or bf16 for f64, f16 or bf16 for f32.
    pub fn moved_via(
        &mut self,
        from: ValueId,
        name: &str,
        is: Type,
        via: Option<DType>,
    ) -> Result<ValueId, Error> {
        let (dtype, shape) = (self.dtype(from), self.shape(from).to_vec());
        via.map_or(Ok(()), |via| wire::check(name, dtype, via))?;
        let to = self.named(name, dtype, &shape)?;
        self.pin(to, is)?;
        self.push(Statement::Move { from, to, along: Partly::new(), via })?;
        Ok(to)
    }

    /// The same with every move in the elements of what it moves; none where nothing goes [through a wire](Graph::moved_via).
    ///
    /// ```
    /// use reshard_program::Graph;
    /// let graph: Graph = "mesh dp=2\nx: f32[8] S(0)\ny: R via bf16 = x".parse()?;
    /// let without = graph.without_wires().unwrap();
    /// assert!(without.to_string().ends_with("y: R = x\n") && without.without_wires().is_none());
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn without_wires(&self) -> Option<Graph> {
        let mut without = self.clone();
        let mut has_wires = false;
        for statement in &mut without.statements {
            if let Statement::Move { via, .. } = statement {
                has_wires |= via.take().is_some();
            }
        }
        has_wires.then_some(without)
    }

    /// The same tensor, so along these axes and as it is along the others.
    pub(crate) fn moved_along(
        &mut self,
        from: ValueId,
        name: &str,
        along: Partly,
        via: Option<DType>,
    ) -> Result<ValueId, Error> {
        let (dtype, shape) = (self.dtype(from), self.shape(from).to_vec());
        if let Some(is) = along::whole(&along, self.mesh(), &shape) {
            return self.moved_via(from, name, is, via);
        }
        via.map_or(Ok(()), |via| wire::check(name, dtype, via))?;
        let to = self.named(name, dtype, &shape)?;
        self.push(Statement::Move { from, to, along, via })?;
        Ok(to)
    }

    /// Gives the op that makes a value its strategy along some axes.
    pub(crate) fn strategy_along(&mut self, value: ValueId, operands: Vec<Partly>) {
        let made = |s: &Statement| s.makes().contains(&value);
        let whole = |(v, partly): (&ValueId, Partly)| match along::whole(&partly, self.mesh(), self.shape(*v))
        {
            Some(is) => Given::Whole(Box::new(is.value)),
            None => Given::Along(partly),
        };
        let Some(at) = self.statements.iter().rposition(made) else { return };
        let Statement::Op { inputs, outputs, .. } = &self.statements[at] else { return };
        let given = inputs.iter().chain(outputs).zip(operands).map(whole).collect();
        if let Statement::Op { by, .. } = &mut self.statements[at] {
            *by = Some(given);
        }
    }

    /// The gradient of the sum of the elements of a value with respect to others, which are called `d` and their name.
    ///
    /// Fails for names that are taken.
    pub fn gradient(&mut self, loss: ValueId, wrt: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let names: Vec<String> = wrt.iter().map(|v| gradient_name(self.name(*v))).collect();
        self.gradient_as(loss, wrt, &names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The same with names for the gradients, as a second gradient of a value needs one.
    ///
    /// ```
    /// let text = "mesh x=2\nw: f32[8] R\na = square(w)\nb = exp(w)\ngradient a\ngradient b wrt w as g\ns = add(dw, g)";
    /// let graph: reshard_program::Graph = text.parse()?;
    /// assert!(graph.value("g").is_some() && graph.to_string().contains("gradient b wrt w as g"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails for names that are taken, and for more or fewer names than values.
    pub fn gradient_as(
        &mut self,
        loss: ValueId,
        wrt: &[ValueId],
        names: &[&str],
    ) -> Result<Vec<ValueId>, Error> {
        if names.len() != wrt.len() {
            return Err(Error::Graph {
                reason: format!(
                    "gradient {} has {} values after wrt and {} names after as",
                    self.name(loss),
                    wrt.len(),
                    names.len()
                ),
            });
        }
        if let Some((v, name)) = wrt.iter().zip(names).find(|(_, name)| self.names.contains_key(**name)) {
            return Err(Error::Graph {
                reason: format!(
                    "{name} is made twice: call this gradient otherwise, like gradient {} wrt {} as {}",
                    self.name(loss),
                    self.name(*v),
                    self.fresh(name)
                ),
            });
        }
        let gradients: Result<Vec<ValueId>, Error> = (wrt.iter().zip(names))
            .map(|(v, name)| {
                let (dtype, shape) = (self.dtype(*v), self.shape(*v).to_vec());
                self.named(name, dtype, &shape)
            })
            .collect();
        let gradients = gradients?;
        self.push(Statement::Gradient { loss, wrt: wrt.to_vec(), gradients: gradients.clone() })?;
        Ok(gradients)
    }

    /// What is made from here on has no gradient.
    pub fn no_grad(&mut self) {
        self.marked.get_or_insert(ValueId(self.values.len()));
        self.statements.push(Statement::NoGrad);
    }

    /// Whether what is made now has no gradient.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.is_some()
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> impl Iterator<Item = ValueId> {
        self.statements.iter().filter_map(|s| match s {
            Statement::Input(v) => Some(*v),
            Statement::Op { .. }
            | Statement::Move { .. }
            | Statement::Gradient { .. }
            | Statement::NoGrad => None,
        })
    }

    /// The gradients that are asked for: of which value, and which value is the gradient of which.
    ///
    /// ```
    /// let graph: reshard_program::Graph = "mesh x=2\na: f32[8] S(0)\nb = sum(a)\ngradient b".parse()?;
    /// let (loss, gradients) = graph.gradients().next().unwrap_or_else(|| unreachable!());
    /// assert_eq!((graph.name(loss), gradients.len()), ("b", 1));
    /// assert_eq!((graph.name(gradients[0].0), graph.name(gradients[0].1)), ("a", "da"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn gradients(&self) -> impl Iterator<Item = (ValueId, Vec<(ValueId, ValueId)>)> {
        self.statements.iter().filter_map(|s| match s {
            Statement::Gradient { loss, wrt, gradients } => {
                Some((*loss, wrt.iter().copied().zip(gradients.iter().copied()).collect()))
            }
            Statement::Input(_) | Statement::Op { .. } | Statement::Move { .. } | Statement::NoGrad => None,
        })
    }

    /// How many statements it has.
    pub fn statements(&self) -> usize {
        self.statements.len()
    }

    pub(crate) fn push(&mut self, statement: Statement) -> Result<(), Error> {
        if self.statements.len() >= MOST_STATEMENTS {
            return Err(Error::Graph {
                reason: format!("a program has at most {MOST_STATEMENTS} statements"),
            });
        }
        self.statements.push(statement);
        Ok(())
    }

    /// A new value.
    pub(crate) fn named(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<ValueId, Error> {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '\''));
        if name.len() > LONGEST_NAME {
            let shown: String = name.chars().take(32).collect();
            return Err(Error::Graph {
                reason: format!(
                    "{shown}.. is a name of {} letters, and one has at most {LONGEST_NAME}",
                    name.len()
                ),
            });
        }
        if !letters || name.is_empty() || name == "_" || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::Graph {
                reason: format!("{name:?} is no name of a value: letters, digits, _ . and '"),
            });
        }
        if self.names.contains_key(name) {
            return Err(Error::Graph {
                reason: format!("{name} is made twice: give one of them another name"),
            });
        }
        let value = ValueId(self.values.len());
        self.names.insert(name.to_owned(), value);
        self.values.push(Known {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            pinned: None,
            on: None,
            inner: false,
        });
        Ok(value)
    }

    /// Calls a value by another name.
    ///
    /// Fails for a name that is taken.
    pub(crate) fn rename(&mut self, value: ValueId, name: &str) -> Result<(), Error> {
        if self.names.contains_key(name) {
            return Err(Error::Graph {
                reason: format!("{name} is made twice: give one of them another name"),
            });
        }
        let known = &mut self.values[value.0];
        self.names.remove(&known.name);
        name.clone_into(&mut known.name);
        self.names.insert(name.to_owned(), value);
        Ok(())
    }

    /// All names.
    pub(crate) fn names(&self) -> Arc<BTreeSet<String>> {
        Arc::new(self.names.keys().cloned().collect())
    }

    /// Whether a value has a name, or it is reserved.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.reserved.contains(name)
    }

    /// A name that is free: this and a number.
    pub(crate) fn fresh(&self, prefix: &str) -> String {
        let mut number = self.values.len();
        loop {
            let name = format!("{prefix}.{number}");
            if !self.knows(&name) {
                return name;
            }
            number += 1;
        }
    }

    /// Whether a text may say this element type of what a call makes: that of an operand, or any where no real operand decides.
    pub(crate) fn may_be(&self, made: DType, said: DType, operands: &[ValueId]) -> bool {
        let of = |v: &ValueId| self.values[v.0].dtype;
        made == said
            || made.is_integral()
            || operands.iter().map(of).any(|known| known == said)
            || operands.iter().map(of).all(DType::is_integral)
    }

    /// The element types of what a call makes, where nobody says them.
    pub(crate) fn dtypes(&self, call: &Call, inputs: &[ValueId], outputs: usize) -> Vec<DType> {
        let of = |v: &ValueId| self.values[v.0].dtype;
        let like =
            inputs.iter().map(of).find(|d| !d.is_integral()).or(inputs.first().map(of)).unwrap_or(DType::F32);
        let made = |o: usize| match call.name() {
            Some("cast") => match call.argument("dtype") {
                Some(Argument::Word(word)) => word.parse().unwrap_or(like),
                Some(_) | None => like,
            },
            Some(name) => match (name, o) {
                (
                    "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "eq_scalar" | "ne_scalar" | "lt_scalar"
                    | "le_scalar" | "gt_scalar" | "ge_scalar" | "isnan" | "isinf" | "isfinite" | "isneginf"
                    | "isposinf" | "isclose" | "signbit" | "logical_and" | "logical_or" | "logical_not"
                    | "logical_xor" | "any" | "all",
                    _,
                ) => DType::Bool,
                (
                    "argmax" | "argmin" | "argsort" | "bucketize" | "searchsorted" | "count_nonzero"
                    | "bincount" | "one_hot",
                    _,
                )
                | ("max" | "min" | "sort" | "topk" | "kthvalue" | "mode" | "median", 1) => DType::I64,
                (pool, 1) if pool.ends_with("_with_indices") => DType::I64,
                // Truths are counted.
                ("sum" | "nansum" | "cumsum" | "prod" | "cumprod", _) if like == DType::Bool => DType::I64,
                // A number that is not whole is a word; with one that is, truths are counted.
                (scalar, _) if scalar.ends_with("_scalar") && like.is_integral() => {
                    let by = ["value", "exponent"].into_iter().find_map(|key| call.argument(key));
                    match by {
                        Some(Argument::Word(_)) => DType::F32,
                        _ if like == DType::Bool => DType::I64,
                        _ => like,
                    }
                }
                _ => like,
            },
            None => like,
        };
        (0..outputs).map(made).collect()
    }
}

impl Statement {
    /// The values that it takes.
    pub(crate) fn takes(&self) -> &[ValueId] {
        match self {
            Statement::Input(_) | Statement::NoGrad => &[],
            Statement::Op { inputs, .. } => inputs,
            Statement::Move { from, .. } => core::slice::from_ref(from),
            Statement::Gradient { wrt, .. } => wrt,
        }
    }

    /// The values that it makes.
    pub(crate) fn makes(&self) -> &[ValueId] {
        match self {
            Statement::NoGrad => &[],
            Statement::Input(v) => core::slice::from_ref(v),
            Statement::Op { outputs, .. } => outputs,
            Statement::Move { to, .. } => core::slice::from_ref(to),
            Statement::Gradient { gradients, .. } => gradients,
        }
    }
}
