//! Programs: values with types, and the ops and moves between them.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::propagate::TypedStrategy;
use reshard_ops::rules::{Call, Op, Table};
use reshard_planner::Plan;
use reshard_sharding::{Mesh, Type};
use rustc_hash::FxHashMap;

use crate::graph::{Graph, Statement, ValueId};
use crate::meshes::Meshes;
use crate::{Elaborator, Error, Moves};

/// A value of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its name; no two have the same.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Who holds it, and its gradient if it has one.
    pub is: Arc<Type>,
}

impl Value {
    /// The shape of the whole tensor.
    pub fn shape(&self) -> &[usize] {
        self.is.value.shape()
    }
}

/// One line of a program, on values by number.
#[derive(Clone, Debug)]
pub enum Item {
    /// A value from outside.
    Input(ValueId),
    /// An op that every rank runs on what it holds.
    Op {
        /// What is called, on the whole tensors.
        call: Call,
        /// The call on these shapes.
        op: Op,
        /// The values that it takes.
        inputs: Vec<ValueId>,
        /// The values that it makes.
        outputs: Vec<ValueId>,
        /// How it runs along each axis.
        strategy: Arc<TypedStrategy>,
        /// How many operations the rank with most of them does.
        operations: f64,
        /// Whether every rank's result is its operand, byte for byte: of a view, and where what is moved or summed has [one
        /// index](Op::stays) on each rank.
        is_view: bool,
    },
    /// The same tensor in another type.
    Move {
        /// What is moved.
        from: ValueId,
        /// What it becomes.
        to: ValueId,
        /// How the value gets there.
        forward: Arc<Plan>,
        /// How the gradient gets back, if it has one.
        backward: Option<Arc<Plan>>,
        /// The type of elements in which it travels, where that is another: then a plan in that type is of what [travels](Program::wired).
        via: Option<DType>,
    },
    /// What is made below has no gradient.
    NoGrad,
}

impl Item {
    /// The values that it takes.
    pub fn takes(&self) -> &[ValueId] {
        match self {
            Item::Input(_) | Item::NoGrad => &[],
            Item::Op { inputs, .. } => inputs,
            Item::Move { from, .. } => core::slice::from_ref(from),
        }
    }

    /// The values that it makes.
    pub fn makes(&self) -> &[ValueId] {
        match self {
            Item::NoGrad => &[],
            Item::Input(v) => core::slice::from_ref(v),
            Item::Op { outputs, .. } => outputs,
            Item::Move { to, .. } => core::slice::from_ref(to),
        }
    }

    pub(crate) fn takes_mut(&mut self) -> &mut [ValueId] {
        match self {
            Item::Input(_) | Item::NoGrad => &mut [],
            Item::Op { inputs, .. } => inputs,
            Item::Move { from, .. } => core::slice::from_mut(from),
        }
    }

    pub(crate) fn makes_mut(&mut self) -> &mut [ValueId] {
        match self {
            Item::NoGrad => &mut [],
            Item::Input(v) => core::slice::from_mut(v),
            Item::Op { outputs, .. } => outputs,
            Item::Move { to, .. } => core::slice::from_mut(to),
        }
    }

    /// What sending costs, both ways, in picoseconds: of a move, and nothing else.
    pub(crate) fn sends_picoseconds(&self) -> u64 {
        match self {
            Item::Move { forward, backward, .. } => {
                let of = |plan: &Arc<Plan>| (plan.cost_us() * 1e6).round() as u64;
                of(forward).saturating_add(backward.as_ref().map_or(0, of))
            }
            Item::Input(_) | Item::Op { .. } | Item::NoGrad => 0,
        }
    }

    /// What it takes and makes, where these are the same bytes: of a view, and of a move that leaves all where they are.
    pub(crate) fn viewed(&self) -> Option<(ValueId, ValueId)> {
        let is_view = match self {
            Item::Op { is_view, .. } => *is_view,
            Item::Move { forward, .. } => forward.steps().is_empty(),
            Item::Input(_) | Item::NoGrad => false,
        };
        self.takes().first().copied().zip(self.makes().first().copied()).filter(|_| is_view)
    }
}

/// A typed list of ops and moves.
///
/// Every op finds its operands as its strategy says, forward and backward; what moves is written.
///
/// ```
/// use reshard_program::{Elaborator, Graph, Program};
/// let graph: Graph = "
///     mesh tp=4
///     x: f32[8,2,16] I
///     up: f32[16,64] S(1)
///     down: f32[64,16] S(0)
///     h = sbh,hi->sbi(x, up)
///     y: I = sbi,ih->sbh(h, down)
/// ".parse()?;
/// let program = Elaborator::new().elaborate(&graph)?;
/// // Megatron: nothing forward and an all_reduce backward before, an all_reduce forward and nothing backward after.
/// let lines: Vec<String> = program.moves().map(|m| m.to_string()).collect();
/// assert_eq!(lines, ["x: I -> R: forward 0 bytes, backward 1536 bytes", "y: P(sum) -> I: forward 1536 bytes, backward 0 bytes"]);
/// assert_eq!(program.to_string().parse::<Program>()?.to_string(), program.to_string());
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone)]
pub struct Program {
    pub(crate) table: Arc<Table>,
    pub(crate) meshes: Meshes,
    pub(crate) values: Vec<Value>,
    pub(crate) items: Vec<Item>,
    names: FxHashMap<String, ValueId>,
    /// By how much it may cost more than the cheapest program, in picoseconds; 0 if it is surely the cheapest.
    pub(crate) gap: u64,
}

impl Program {
    pub(crate) fn new(meshes: &Meshes, table: &Arc<Table>) -> Program {
        let (table, meshes) = (Arc::clone(table), meshes.clone());
        Program { table, meshes, values: Vec::new(), items: Vec::new(), names: FxHashMap::default(), gap: 0 }
    }

    /// The first mesh, which has all ranks.
    pub fn mesh(&self) -> &Mesh {
        self.meshes.first()
    }

    /// All meshes.
    pub fn meshes(&self) -> &Meshes {
        &self.meshes
    }

    /// The table of ops.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The values, in the order in which they are made.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The items, in order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Those of forward: above `no_grad`, or all where nothing is marked.
    pub fn forward(&self) -> &[Item] {
        let end = self.items.iter().position(|item| matches!(item, Item::NoGrad));
        &self.items[..end.unwrap_or(self.items.len())]
    }

    /// The item that makes each value.
    pub(crate) fn makers(&self) -> Vec<usize> {
        let mut makers = vec![0; self.values.len()];
        for (n, item) in self.items.iter().enumerate() {
            for v in item.makes() {
                makers[v.0] = n;
            }
        }
        makers
    }

    /// A value by number.
    pub fn get(&self, value: ValueId) -> &Value {
        &self.values[value.0]
    }

    /// The number of a value by its name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// By how much the choices may cost more than the cheapest, in microseconds; 0 if they are the cheapest.
    pub fn gap_us(&self) -> f64 {
        self.gap as f64 / 1e6
    }

    /// The moves, in order.
    pub fn moves(&self) -> impl Iterator<Item = MoveRef<'_>> {
        self.items.iter().filter_map(|item| match item {
            Item::Move { from, to, forward, backward, .. } => Some(MoveRef {
                from: self.get(*from),
                to: self.get(*to),
                forward,
                backward: backward.as_ref(),
                meshes: &self.meshes,
            }),
            Item::Input(_) | Item::Op { .. } | Item::NoGrad => None,
        })
    }

    /// A new value; the name is free.
    pub(crate) fn add(&mut self, name: &str, dtype: DType, is: impl Into<Arc<Type>>) -> ValueId {
        let is = is.into();
        let value = ValueId(self.values.len());
        self.names.insert(name.to_owned(), value);
        self.values.push(Value { name: name.to_owned(), dtype, is });
        value
    }

    /// A new value like another: `x.again`.
    pub(crate) fn copy(&mut self, of: ValueId) -> ValueId {
        let Value { name, dtype, is } = self.get(of).clone();
        let mut name = format!("{name}.again");
        while self.names.contains_key(&name) {
            name.push('\'');
        }
        self.add(&name, dtype, is)
    }

    /// A name that is free here and in a graph: this and a number.
    pub(crate) fn fresh(&self, prefix: &str, graph: &Graph) -> String {
        let free = |n: &usize| {
            let name = format!("{prefix}.{n}");
            !self.names.contains_key(&name) && !graph.knows(&name)
        };
        // Among one number more than there are values, one is free.
        let number = (1..=self.values.len() + graph.values() + 1).find(free).unwrap_or_default();
        format!("{prefix}.{number}")
    }

    /// The statements of which this is made: what an elaboration that makes no moves gives back.
    ///
    /// Fails only where there are too many.
    pub fn graph(&self) -> Result<Graph, Error> {
        let mut graph = Graph::on_meshes(self.meshes.clone(), Arc::clone(&self.table));
        for value in &self.values {
            let v = graph.named(&value.name, value.dtype, value.shape())?;
            graph.pin(v, Type::clone(&value.is))?;
        }
        for item in &self.items {
            graph.push(match item {
                Item::Input(v) => Statement::Input(*v),
                Item::Op { call, op, inputs, outputs, .. } => Statement::Op {
                    by: None,
                    call: call.clone(),
                    op: op.clone(),
                    inputs: inputs.clone(),
                    outputs: outputs.clone(),
                },
                Item::Move { from, to, via, .. } => {
                    Statement::Move { from: *from, to: *to, along: Vec::new(), via: *via }
                }
                Item::NoGrad => Statement::NoGrad,
            })?;
        }
        Ok(graph)
    }
}

/// Its text.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.graph() {
            Ok(graph) => fmt::Display::fmt(&graph, f),
            Err(e) => fmt::Display::fmt(&e, f),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.graph().map_err(|_| fmt::Error)?.fmt(f)
    }
}

impl FromStr for Program {
    type Err = Error;

    /// Reads a program in which every move is written, of the ops of the standard table.
    fn from_str(text: &str) -> Result<Program, Error> {
        Elaborator::new().moves(Moves::Written).elaborate(&text.parse()?)
    }
}

/// `x` of `x.7`, as moves that nobody wrote are called.
pub(crate) fn stem(name: &str) -> &str {
    match name.trim_end_matches('\'').rsplit_once('.') {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => stem,
        Some(_) | None => name,
    }
}

/// What the text calls the value that a move of `from` to `made` moves: `x` of `x.1 = x`, of `x.2 = x.1` and of `x = x.1`.
pub(crate) fn moved_name<'a>(from: &'a str, made: &'a str) -> &'a str {
    let of = stem(made);
    if of != made && (of == from || of == stem(from)) {
        of
    } else if stem(from) == made {
        made
    } else {
        from
    }
}

/// A move of a program.
#[derive(Clone, Copy, Debug)]
pub struct MoveRef<'a> {
    /// What is moved.
    pub from: &'a Value,
    /// What it becomes.
    pub to: &'a Value,
    /// How the value gets there.
    pub forward: &'a Arc<Plan>,
    /// How the gradient gets back, if it has one.
    pub backward: Option<&'a Arc<Plan>>,
    /// The names of their meshes.
    meshes: &'a Meshes,
}

impl fmt::Display for MoveRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = moved_name(&self.from.name, &self.to.name);
        write!(
            f,
            "{name}: {} -> {}: forward {} bytes",
            self.meshes.written(&self.from.is),
            self.meshes.written(&self.to.is),
            self.forward.received_bytes()
        )?;
        self.backward.map_or(Ok(()), |plan| write!(f, ", backward {} bytes", plan.received_bytes()))
    }
}
