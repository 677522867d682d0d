//! Programs: values with types, and the ops and moves between them.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::propagate::TypedStrategy;
use reshard_ops::rules::{Op, OpCall, OpTable};
use reshard_planner::Plan;
use reshard_sharding::{Mesh, ShardingType};
use rustc_hash::FxHashMap;

use crate::graph::{Graph, GraphStatement, ValueId};
use crate::meshes::Meshes;
use crate::{Error, ImplicitRedistribution, ShardingSolver};

/// A value of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its name; no two have the same.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Who holds it, and its gradient if it has one.
    pub ty: Arc<ShardingType>,
}

impl Value {
    /// The shape of the whole tensor.
    pub fn shape(&self) -> &[usize] {
        self.ty.value.shape()
    }
}

/// One line of a program, on values by number.
#[derive(Clone, Debug)]
pub enum Statement {
    /// A value from outside.
    Input(ValueId),
    /// An op that every rank runs on what it holds.
    Op {
        /// What is called, on the whole tensors.
        call: OpCall,
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
    Redistribute {
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

impl Statement {
    /// The values that it takes.
    pub fn inputs(&self) -> &[ValueId] {
        match self {
            Statement::Input(_) | Statement::NoGrad => &[],
            Statement::Op { inputs, .. } => inputs,
            Statement::Redistribute { from, .. } => core::slice::from_ref(from),
        }
    }

    /// The values that it makes.
    pub fn outputs(&self) -> &[ValueId] {
        match self {
            Statement::NoGrad => &[],
            Statement::Input(v) => core::slice::from_ref(v),
            Statement::Op { outputs, .. } => outputs,
            Statement::Redistribute { to, .. } => core::slice::from_ref(to),
        }
    }

    pub(crate) fn takes_mut(&mut self) -> &mut [ValueId] {
        match self {
            Statement::Input(_) | Statement::NoGrad => &mut [],
            Statement::Op { inputs, .. } => inputs,
            Statement::Redistribute { from, .. } => core::slice::from_mut(from),
        }
    }

    pub(crate) fn makes_mut(&mut self) -> &mut [ValueId] {
        match self {
            Statement::NoGrad => &mut [],
            Statement::Input(v) => core::slice::from_mut(v),
            Statement::Op { outputs, .. } => outputs,
            Statement::Redistribute { to, .. } => core::slice::from_mut(to),
        }
    }

    /// What sending costs, both ways, in picoseconds: of a move, and nothing else.
    pub(crate) fn sends_picoseconds(&self) -> u64 {
        match self {
            Statement::Redistribute { forward, backward, .. } => {
                let of = |plan: &Arc<Plan>| (plan.cost_us() * 1e6).round() as u64;
                of(forward).saturating_add(backward.as_ref().map_or(0, of))
            }
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => 0,
        }
    }

    /// What it takes and makes, where these are the same bytes: of a view, and of a move that leaves all where they are.
    pub(crate) fn viewed(&self) -> Option<(ValueId, ValueId)> {
        let is_view = match self {
            Statement::Op { is_view, .. } => *is_view,
            Statement::Redistribute { forward, .. } => forward.steps().is_empty(),
            Statement::Input(_) | Statement::NoGrad => false,
        };
        self.inputs().first().copied().zip(self.outputs().first().copied()).filter(|_| is_view)
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
    pub(crate) table: Arc<OpTable>,
    pub(crate) meshes: Meshes,
    pub(crate) values: Vec<Value>,
    pub(crate) statements: Vec<Statement>,
    names: FxHashMap<String, ValueId>,
    /// By how much it may cost more than the cheapest program, in picoseconds; 0 if it is surely the cheapest.
    pub(crate) gap: u64,
}

impl Program {
    pub(crate) fn new(meshes: &Meshes, table: &Arc<OpTable>) -> Program {
        let (table, meshes) = (Arc::clone(table), meshes.clone());
        Program {
            table,
            meshes,
            values: Vec::new(),
            statements: Vec::new(),
            names: FxHashMap::default(),
            gap: 0,
        }
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
    pub fn table(&self) -> &Arc<OpTable> {
        &self.table
    }

    /// The values, in the order in which they are made.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The items, in order.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Those of forward: above `no_grad`, or all where nothing is marked.
    pub fn forward(&self) -> &[Statement] {
        let end = self.statements.iter().position(|item| matches!(item, Statement::NoGrad));
        &self.statements[..end.unwrap_or(self.statements.len())]
    }

    /// The item that makes each value.
    pub(crate) fn makers(&self) -> Vec<usize> {
        let mut makers = vec![0; self.values.len()];
        for (n, item) in self.statements.iter().enumerate() {
            for v in item.outputs() {
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
    pub fn optimality_gap_us(&self) -> f64 {
        self.gap as f64 / 1e6
    }

    /// The moves, in order.
    pub fn redistributions(&self) -> impl Iterator<Item = RedistributionRef<'_>> {
        self.statements.iter().filter_map(|item| match item {
            Statement::Redistribute { from, to, forward, backward, .. } => Some(RedistributionRef {
                from: self.get(*from),
                to: self.get(*to),
                forward,
                backward: backward.as_ref(),
                meshes: &self.meshes,
            }),
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => None,
        })
    }

    /// A new value; the name is free.
    pub(crate) fn add(&mut self, name: &str, dtype: DType, is: impl Into<Arc<ShardingType>>) -> ValueId {
        let is = is.into();
        let value = ValueId(self.values.len());
        self.names.insert(name.to_owned(), value);
        self.values.push(Value { name: name.to_owned(), dtype, ty: is });
        value
    }

    /// A new value like another: `x.again`.
    pub(crate) fn copy(&mut self, of: ValueId) -> ValueId {
        let Value { name, dtype, ty: is } = self.get(of).clone();
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
            graph.constrain(v, ShardingType::clone(&value.ty))?;
        }
        for item in &self.statements {
            graph.push(match item {
                Statement::Input(v) => GraphStatement::Input(*v),
                Statement::Op { call, op, inputs, outputs, .. } => GraphStatement::Op {
                    by: None,
                    call: call.clone(),
                    op: op.clone(),
                    inputs: inputs.clone(),
                    outputs: outputs.clone(),
                },
                Statement::Redistribute { from, to, via, .. } => {
                    GraphStatement::Move { from: *from, to: *to, along: Vec::new(), via: *via }
                }
                Statement::NoGrad => GraphStatement::NoGrad,
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
        ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&text.parse()?)
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
pub struct RedistributionRef<'a> {
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

impl fmt::Display for RedistributionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = moved_name(&self.from.name, &self.to.name);
        write!(
            f,
            "{name}: {} -> {}: forward {} bytes",
            self.meshes.type_text(&self.from.ty),
            self.meshes.type_text(&self.to.ty),
            self.forward.received_bytes()
        )?;
        self.backward.map_or(Ok(()), |plan| write!(f, ", backward {} bytes", plan.received_bytes()))
    }
}
