//! Programs: typed values, with the ops and redistributions between them.

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
    /// The name, unique in the program.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The sharding of the value, and of its gradient if it has one.
    pub ty: Arc<ShardingType>,
    /// `true` for a value inside one kernel of a framework, which is never written to memory.
    pub inner: bool,
    /// The same along the axes of one rank, if it is known; see [`crate::one_rank`].
    pub(crate) letters: Option<Arc<ShardingType>>,
}

impl Value {
    /// Returns the shape of the whole tensor.
    #[doc(hidden)]
    pub fn shape(&self) -> &[usize] {
        self.ty.value.shape()
    }

    /// Returns the type as text, with the name of its mesh.
    #[doc(hidden)]
    pub fn type_text(&self, meshes: &Meshes) -> String {
        meshes.type_text_with(&self.ty, self.letters.as_deref())
    }

    /// Returns the sharding of the value as text, with the name of its mesh.
    pub(crate) fn value_text(&self, meshes: &Meshes) -> String {
        meshes.value_text_with(&self.ty.value, self.letters.as_deref().map(|letters| &letters.value))
    }
}

/// A statement of a program, on values by number.
#[derive(Clone, Debug)]
pub enum Statement {
    /// A value from outside.
    Input(ValueId),
    /// An op that every rank runs on its shards.
    Op {
        /// The call, with arguments for the whole tensors.
        call: OpCall,
        /// The op of the call for these shapes.
        op: Op,
        /// The input values.
        inputs: Vec<ValueId>,
        /// The output values.
        outputs: Vec<ValueId>,
        /// The strategy along each axis.
        strategy: Arc<TypedStrategy>,
        /// The number of operations of the rank with the most of them.
        operations: f64,
        /// `true` if every rank's result equals its operand, byte for byte.
        ///
        /// It is so for views, and for permutations and sums of dims that have one index on each rank.
        is_view: bool,
    },
    /// A redistribution: the same tensor in another type.
    Redistribute {
        /// The source.
        from: ValueId,
        /// The result.
        to: ValueId,
        /// The plan for the value.
        forward: Arc<Plan>,
        /// The plan for the gradient, if there is one.
        backward: Option<Arc<Plan>>,
        /// The communication dtype, if it differs.
        ///
        /// A plan in that dtype is that of the [lowered communication](Program::lower_comm_dtypes).
        via: Option<DType>,
    },
    /// A mark: values computed below it have no gradient.
    NoGrad,
}

impl Statement {
    /// Returns the input values.
    pub fn inputs(&self) -> &[ValueId] {
        match self {
            Statement::Input(_) | Statement::NoGrad => &[],
            Statement::Op { inputs, .. } => inputs,
            Statement::Redistribute { from, .. } => core::slice::from_ref(from),
        }
    }

    /// Returns the output values.
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

    /// Returns the communication cost in picoseconds, forward and backward; 0 except for redistributions.
    pub(crate) fn sends_picoseconds(&self) -> u64 {
        match self {
            Statement::Redistribute { forward, backward, .. } => {
                let of = |plan: &Arc<Plan>| (plan.cost_us() * 1e6).round() as u64;
                of(forward).saturating_add(backward.as_ref().map_or(0, of))
            }
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => 0,
        }
    }

    /// Returns the input and the output of a statement that leaves all bytes in place; `None` for others.
    pub(crate) fn viewed(&self) -> Option<(ValueId, ValueId)> {
        let is_view = match self {
            Statement::Op { is_view, .. } => *is_view,
            Statement::Redistribute { forward, .. } => forward.steps().is_empty(),
            Statement::Input(_) | Statement::NoGrad => false,
        };
        self.inputs().first().copied().zip(self.outputs().first().copied()).filter(|_| is_view)
    }
}

/// A typed list of ops and redistributions.
///
/// Every op finds its operands as its strategy requires, forward and backward; all redistributions are
/// explicit.
///
/// ```
/// use reshard_program::{ShardingSolver, Graph, Program};
/// let graph: Graph = "
///     mesh tp=4
///     x: f32[8,2,16] I
///     up: f32[16,64] S(1)
///     down: f32[64,16] S(0)
///     h = sbh,hi->sbi(x, up)
///     y: I = sbi,ih->sbh(h, down)
/// ".parse()?;
/// let program = ShardingSolver::new().solve(&graph)?;
/// // Megatron: an all_reduce backward before the layer, and an all_reduce forward after it.
/// let lines: Vec<String> = program.redistributions().map(|m| m.to_string()).collect();
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
    /// The optimality gap in picoseconds; 0 if the program is proved to be the cheapest, or if implicit
    /// redistributions were denied.
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

    /// Returns the first mesh, which has all ranks.
    pub fn mesh(&self) -> &Mesh {
        self.meshes.first()
    }

    /// Returns all meshes.
    #[doc(hidden)]
    pub fn meshes(&self) -> &Meshes {
        &self.meshes
    }

    /// Returns the table of ops.
    pub fn table(&self) -> &Arc<OpTable> {
        &self.table
    }

    /// Returns the values, in the order in which they are computed.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the statements, in order.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Returns the statements of forward: above `no_grad`, or all if there is no mark.
    #[doc(hidden)]
    pub fn forward(&self) -> &[Statement] {
        let end = self.statements.iter().position(|item| matches!(item, Statement::NoGrad));
        &self.statements[..end.unwrap_or(self.statements.len())]
    }

    /// Returns the index of the statement that produces each value.
    pub(crate) fn makers(&self) -> Vec<usize> {
        let mut makers = vec![0; self.values.len()];
        for (n, item) in self.statements.iter().enumerate() {
            for v in item.outputs() {
                makers[v.0] = n;
            }
        }
        makers
    }

    /// Returns a value by number.
    pub fn get(&self, value: ValueId) -> &Value {
        &self.values[value.0]
    }

    /// Returns the number of a value by name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// Returns the optimality gap: the maximum cost above the cheapest program, in microseconds.
    ///
    /// It is 0 if implicit redistributions were [denied](ImplicitRedistribution::Deny): then the author chose
    /// the redistributions, and no gap is computed.
    pub fn optimality_gap_us(&self) -> f64 {
        self.gap as f64 / 1e6
    }

    /// Returns the redistributions, in order.
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

    /// Adds a value; the name must be unused.
    pub(crate) fn add(&mut self, name: &str, dtype: DType, is: impl Into<Arc<ShardingType>>) -> ValueId {
        let is = is.into();
        let value = ValueId(self.values.len());
        self.names.insert(name.to_owned(), value);
        self.values.push(Value { name: name.to_owned(), dtype, ty: is, inner: false, letters: None });
        value
    }

    /// Adds a copy of a value: `x.again`.
    pub(crate) fn copy(&mut self, of: ValueId) -> ValueId {
        let Value { name, dtype, ty: is, inner, letters } = self.get(of).clone();
        let mut name = format!("{name}.again");
        while self.names.contains_key(&name) {
            name.push('\'');
        }
        let value = self.add(&name, dtype, is);
        self.values[value.0].inner = inner;
        self.values[value.0].letters = letters;
        value
    }

    /// Returns a name unused here and in a graph: the prefix and a number.
    pub(crate) fn fresh(&self, prefix: &str, graph: &Graph) -> String {
        let free = |n: &usize| {
            let name = format!("{prefix}.{n}");
            !self.names.contains_key(&name) && !graph.knows(&name)
        };
        // Of one more number than there are values, one is unused.
        let number = (1..=self.values.len() + graph.values() + 1).find(free).unwrap_or_default();
        format!("{prefix}.{number}")
    }

    /// Returns the graph of this program: solving it without implicit redistributions gives the program.
    ///
    /// Returns an error only if there are too many statements.
    #[doc(hidden)]
    pub fn graph(&self) -> Result<Graph, Error> {
        let mut graph = Graph::on_meshes(self.meshes.clone(), Arc::clone(&self.table));
        let lettered = self.has_letters();
        for value in &self.values {
            let v = graph.named(&value.name, value.dtype, value.shape())?;
            graph.constrain(v, ShardingType::clone(&value.ty))?;
            graph.values[v.0].letters = value.letters.clone().filter(|_| lettered);
            graph.values[v.0].inner = value.inner;
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

/// Formats the program text.
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

    /// Parses a program in which every redistribution is explicit, with the ops of the standard table.
    fn from_str(text: &str) -> Result<Program, Error> {
        ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&text.parse()?)
    }
}

/// Returns `x` for `x.7`, the name format of implicit redistributions.
pub(crate) fn stem(name: &str) -> &str {
    match name.trim_end_matches('\'').rsplit_once('.') {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => stem,
        Some(_) | None => name,
    }
}

/// Returns the text's name of the source of a redistribution from `from` to `made`.
///
/// It is `x` for `x.1 = x`, for `x.2 = x.1` and for `x = x.1`.
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

/// A redistribution of a program.
#[derive(Clone, Copy, Debug)]
pub struct RedistributionRef<'a> {
    /// The source.
    pub from: &'a Value,
    /// The result.
    pub to: &'a Value,
    /// The plan for the value.
    pub forward: &'a Arc<Plan>,
    /// The plan for the gradient, if there is one.
    pub backward: Option<&'a Arc<Plan>>,
    /// The meshes of the program, for their names.
    meshes: &'a Meshes,
}

impl fmt::Display for RedistributionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = moved_name(&self.from.name, &self.to.name);
        write!(
            f,
            "{name}: {} -> {}: forward {} bytes",
            self.from.type_text(self.meshes),
            self.to.type_text(self.meshes),
            self.forward.received_bytes()
        )?;
        self.backward.map_or(Ok(()), |plan| write!(f, ", backward {} bytes", plan.received_bytes()))
    }
}
