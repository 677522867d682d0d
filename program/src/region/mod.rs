//! Local regions: per-device code inside a global program.
//!
//! Inside, every coordinate of the region's axes has tensors *of its own*, which along all other axes are as global as
//! before. What varies over `tp=4` is a tensor `[4, ..]` cut `S(0)`: **V is a shard of a dim that the body does not see**. So
//! a region is a program like any other, of which each op is called [on each slice](reshard_ops::rules::Each):
//!
//! ```text
//! enter   S(d)  [.., n b, ..]  ->  [n, .., b, ..]    the axis cuts the first dim; R, I and P stay as they are
//! op      f(x: V, w: R)             each[n:1,0] f     S(0),R -> S(0): rows that there are already
//! leave   S(d)                 <-                     the same views back
//!         P     the sum over the first dim: its terms, which costs nothing
//! ```
//!
//! Everything between coordinates is leaving along an axis, a move, and entering again:
//!
//! ```text
//! all_reduce       leave P,     enter R or I         all_to_all       leave S(c), enter S(s)
//! all_gather       leave S(d),  enter R or I         reduce_scatter   leave P,    enter S(d)
//! shift            roll of the first dim             R, I, P          to each other, and to S(d)
//! ```
//!
//! So gradients, plans, reports, schedules and the same program on one device are those of any program. What a region gives is
//! **claimed** to be so and checked: what varies is no replica, whatever the size of the axis.

mod boundary;
mod collectives;
mod kind;
mod slices;
mod text;

use reshard_kernels::DType;
use reshard_ops::rules::{Argument, OpCall, Vmapped};
use reshard_sharding::Placement;

use crate::Error;
use crate::along::{Along, Partly, in_order};
use crate::decompose::{Apart, body_of};
use crate::graph::{Graph, ValueId};
use crate::notation::refused;
use crate::region::kind::{Kind, Origin};

pub use kind::LocalType;
pub use slices::DimSlices;
pub(crate) use text::{Regions, begins};

/// A value of a region.
#[derive(Clone, Debug)]
pub struct ShardMapValue {
    /// In the graph, where its first dims are those of the axes along which it varies, in the order of the region's.
    value: ValueId,
    /// What it is along each axis of the region, by the axis' number.
    kinds: Vec<(usize, Kind)>,
    /// Whether it may have a gradient.
    trained: bool,
}

impl ShardMapValue {
    fn kind(&self, axis: usize) -> Option<&Kind> {
        self.kinds.iter().find(|(known, _)| *known == axis).map(|(_, kind)| kind)
    }

    /// The axes along which it varies, in order.
    fn varies(&self) -> Vec<usize> {
        self.kinds
            .iter()
            .filter(|(_, kind)| matches!(kind, Kind::Varying(_)))
            .map(|(axis, _)| *axis)
            .collect()
    }

    /// What it is in the graph along each axis.
    fn along(&self) -> Partly {
        let varies = self.varies();
        let dim = |axis: &usize| varies.iter().position(|v| v == axis).unwrap_or_default();
        let of = |(axis, kind): &(usize, Kind)| {
            let along = match kind {
                Kind::Different => Along::Different,
                Kind::Same => Along::Same,
                Kind::Terms => Along::Terms,
                Kind::Varying(_) => Along::Cut(Placement::Shard(dim(axis))),
            };
            (*axis, along)
        };
        in_order(self.kinds.iter().map(of).collect())
    }
}

/// Per-device code over some axes of a graph's mesh: see [`Graph::local`].
#[derive(Debug)]
pub struct ShardMap<'g> {
    graph: &'g mut Graph,
    /// The numbers of the axes, those of the regions around it first.
    axes: Vec<usize>,
    /// What the values are called that it makes.
    prefix: String,
    /// What its moves travel in, where that is narrower than their values.
    pub(crate) wire: Option<DType>,
}

impl Graph {
    /// Code that runs on every coordinate of some axes, as JAX's `shard_map` and PyTorch's `local_map`: how it takes values, how it gives
    /// values back, and what it does with them. Along all other axes its values are global.
    ///
    /// A value is taken as `R`, `I`, `P` or `S(d)`, a word for each axis in the order of their names: what lies otherwise is moved
    /// there. What is given back is claimed to be so.
    ///
    /// ```
    /// use reshard_program::{Elaborator, Graph, Moves};
    /// let mut graph: Graph = "mesh tp=4\nx: f32[8,16] S(1)\nw: f32[16,32] S(0)".parse()?;
    /// let (x, w) = (graph.value("x").unwrap(), graph.value("w").unwrap());
    /// let made = graph.local(&["tp"], &[(x, "S(1)"), (w, "S(0)")], &["R"], |region, v| {
    ///     let h = region.op("mm", &[&v[0], &v[1]])?;
    ///     Ok(vec![region.all_reduce(&h, "tp", "R")?])
    /// })?;
    /// let program = Elaborator::new().moves(Moves::Written).elaborate(&graph)?;
    /// let moves: Vec<String> =
    ///     program.moves().filter(|m| m.forward.received_bytes() > 0).map(|m| m.to_string()).collect();
    /// assert_eq!(moves, ["tp: P(sum) -> R: forward 1536 bytes, backward 1536 bytes"]);
    ///
    /// // The forgotten all_reduce.
    /// let refused = graph.local(&["tp"], &[(x, "S(1)"), (w, "S(0)")], &["R"], |region, v| {
    ///     Ok(vec![region.op("mm", &[&v[0], &v[1]])?])
    /// });
    /// let refused = refused.unwrap_err();
    /// assert_eq!(refused.kind(), "false_claim");
    /// assert!(refused.to_string().ends_with(
    ///     "varies over tp and is claimed R: mm sums a dim that tp cuts; say P, or all_reduce it"
    /// ));
    /// # assert_eq!(made.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails for axes that the first mesh has not, for shards of which not all are as large, for words that an axis has no meaning for, with
    /// `false_claim` for what is given back as what it is not, and as the body does.
    pub fn shard_map(
        &mut self,
        axes: &[&str],
        takes: &[(ValueId, &str)],
        claims: &[&str],
        body: impl FnOnce(&mut ShardMap<'_>, &[ShardMapValue]) -> Result<Vec<ShardMapValue>, Error>,
    ) -> Result<Vec<ValueId>, Error> {
        let mut region = ShardMap::begin(self, &[], axes)?;
        let own = region.axes.clone();
        let mut taken = Vec::with_capacity(takes.len());
        for (value, is) in takes {
            let known = region.global(*value);
            taken.push(region.enter_as(&known, &own, is, None)?);
        }
        let given = body(&mut region, &taken)?;
        if given.len() != claims.len() {
            return refused(format!(
                "the body of local {} gives {} values, and {} are claimed",
                axes.join(","),
                given.len(),
                claims.len()
            ));
        }
        let mut made = Vec::with_capacity(given.len());
        for (v, is) in given.iter().zip(claims) {
            let called = region.graph.name(v.value).to_owned();
            let (left, said) = region.leave_as(v, &own, is, &called)?;
            let name = region.name(None);
            made.push(region.graph.moved_along(left.value, &name, said, None)?);
        }
        Ok(made)
    }
}

impl<'g> ShardMap<'g> {
    /// A region over axes, in others or in none.
    pub(crate) fn begin(
        graph: &'g mut Graph,
        around: &[usize],
        names: &[&str],
    ) -> Result<ShardMap<'g>, Error> {
        if names.is_empty() {
            return refused("local has no axes: say over which, like local tp".to_owned());
        }
        let mut axes = Vec::with_capacity(names.len());
        for name in names {
            let axis = graph.mesh().axis(name)?;
            if axes.contains(&axis) || around.contains(&axis) {
                return refused(format!("{name} is an axis of this region already: name each axis once"));
            }
            axes.push(axis);
        }
        let prefix = names.join(".");
        Ok(ShardMap { graph, axes: around.iter().copied().chain(axes).collect(), prefix, wire: None })
    }

    /// The same region of a graph, gone on with.
    pub(crate) fn again(graph: &'g mut Graph, axes: &[usize], prefix: &str) -> ShardMap<'g> {
        ShardMap { graph, axes: axes.to_vec(), prefix: prefix.to_owned(), wire: None }
    }

    /// The shape of what each coordinate has of a value.
    pub fn shape(&self, value: &ShardMapValue) -> &[usize] {
        let shape = self.graph.shape(value.value);
        &shape[value.varies().len().min(shape.len())..]
    }

    /// What a value is along an axis of the region.
    ///
    /// Fails for an axis along which the region is global, and for a value of another region.
    pub fn local_type(&self, value: &ShardMapValue, axis: &str) -> Result<LocalType, Error> {
        let axis = self.axis(axis)?;
        match value.kind(axis) {
            Some(kind) => Ok(kind.letter()),
            None => refused(format!("{} is of another region", self.graph.name(value.value))),
        }
    }

    /// A value of outside, along no axis of a region.
    pub(crate) fn global(&self, value: ValueId) -> ShardMapValue {
        let integral = self.graph.dtype(value).is_integral();
        let none = self.graph.constraint(value).is_some_and(|is| is.gradient.is_none());
        ShardMapValue { value, kinds: Vec::new(), trained: !integral && !none }
    }

    fn axis_name(&self, axis: usize) -> &str {
        self.graph.mesh().axes()[axis].name().as_str()
    }

    fn size(&self, axis: usize) -> usize {
        self.graph.mesh().axes()[axis].size()
    }

    /// Kinds in the order of the region's axes.
    fn sort(&self, kinds: &mut [(usize, Kind)]) {
        kinds.sort_by_key(|(axis, _)| self.axes.iter().position(|known| known == axis));
    }

    /// The axis of a name, of those of the region.
    fn axis(&self, name: &str) -> Result<usize, Error> {
        let axis = self.graph.mesh().axis(name)?;
        if self.axes.contains(&axis) {
            return Ok(axis);
        }
        let own: Vec<&str> = self.axes.iter().map(|&axis| self.axis_name(axis)).collect();
        refused(format!(
            "{name} is no axis of local {}, along which it is global: name one of these",
            own.join(",")
        ))
    }

    /// Calls an op that has one result.
    ///
    /// What varies over an axis makes what varies; what is the same on all its coordinates, the same; terms go through what adds and
    /// scales them. An op of several kinds that do not meet is refused with what to write.
    pub fn op(&mut self, call: &str, inputs: &[&ShardMapValue]) -> Result<ShardMapValue, Error> {
        let mut made = self.ops(call, inputs)?;
        match (made.pop(), made.pop()) {
            (Some(one), None) => Ok(one),
            _ => refused(format!("{call} has several results: call it with Region::ops")),
        }
    }

    /// Calls an op.
    pub fn ops(&mut self, call: &str, inputs: &[&ShardMapValue]) -> Result<Vec<ShardMapValue>, Error> {
        self.call(&call.parse()?, inputs, &[])
    }

    /// Calls an op, or its parts; what it makes gets these names.
    pub(crate) fn call(
        &mut self,
        call: &OpCall,
        inputs: &[&ShardMapValue],
        names: &[&str],
    ) -> Result<Vec<ShardMapValue>, Error> {
        let call = &self.graph.keyed(call)?;
        let slices: Vec<Vec<usize>> = inputs.iter().map(|v| self.shape(v).to_vec()).collect();
        let slices: Vec<&[usize]> = slices.iter().map(Vec::as_slice).collect();
        let (body, _) = body_of(&self.graph.table, call, &slices, Apart { means: true, rows: false })?;
        if let Some(body) = body {
            // Checks the operands.
            self.graph.table.op(call, &slices)?;
            let mut values: Vec<ShardMapValue> = inputs.iter().map(|v| (*v).clone()).collect();
            let outputs = body.output_values().to_vec();
            for (called, takes, makes) in body.calls() {
                let operands: Vec<ShardMapValue> = takes.iter().map(|&v| values[v].clone()).collect();
                let name =
                    |v: &usize| outputs.iter().position(|o| o == v).and_then(|o| names.get(o).copied());
                let names: Vec<&str> = makes.iter().map(|v| name(v).unwrap_or("_")).collect();
                values.extend(self.call(called, &operands.iter().collect::<Vec<_>>(), &names)?);
            }
            return Ok(outputs.iter().map(|&v| values[v].clone()).collect());
        }
        let op = self.graph.table.op(call, &slices)?;
        let mut kinds: Vec<Vec<(usize, Kind)>> = vec![Vec::new(); op.outputs().len()];
        for &axis in &self.axes {
            let made = self.made(call, &op, inputs, axis)?;
            kinds.iter_mut().zip(made).for_each(|(kinds, kind)| kinds.push((axis, kind)));
        }
        let varying: Vec<usize> = self
            .axes
            .iter()
            .copied()
            .filter(|axis| inputs.iter().any(|v| v.varies().contains(axis)))
            .collect();
        let mapped = if varying.is_empty() {
            call.clone()
        } else {
            let sizes: Vec<usize> = varying.iter().map(|&axis| self.size(axis)).collect();
            let has: Vec<Vec<bool>> = inputs
                .iter()
                .map(|v| varying.iter().map(|axis| v.varies().contains(axis)).collect())
                .collect();
            OpCall::Each(Vmapped::new(&sizes, &has, call)?)
        };
        let values: Vec<ValueId> = inputs.iter().map(|v| v.value).collect();
        let made = self.emit(&mapped, &values, names)?;
        let trained = inputs.iter().any(|v| v.trained);
        let outputs: Vec<ShardMapValue> = (made.iter().zip(kinds))
            .map(|(&value, kinds)| ShardMapValue {
                value,
                kinds,
                trained: trained && !self.graph.dtype(value).is_integral(),
            })
            .collect();
        self.by(made.first(), inputs.iter().copied().chain(&outputs));
        Ok(outputs)
    }

    /// A call of the graph, whose results get these names or others.
    fn emit(&mut self, call: &OpCall, inputs: &[ValueId], names: &[&str]) -> Result<Vec<ValueId>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|&v| self.graph.shape(v)).collect();
        let outputs = self.graph.table.op(call, &shapes)?.outputs().len();
        if names.len() > outputs {
            return refused(format!("{call} makes {outputs} values, and {} names are given", names.len()));
        }
        let mut called: Vec<String> = Vec::with_capacity(outputs);
        for o in 0..outputs {
            let mut name = self.name(names.get(o).copied().filter(|name| *name != "_"));
            while called.contains(&name) {
                name.push('\'');
            }
            called.push(name);
        }
        self.graph.apply(call, inputs, &called.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The name of a value of the region in the graph.
    fn name(&self, own: Option<&str>) -> String {
        let named = own.map(|own| format!("{}.{own}", self.prefix));
        match named {
            Some(name) if !self.graph.knows(&name) => name,
            Some(name) => self.graph.fresh(&name),
            None => self.graph.fresh(&self.prefix),
        }
    }

    /// Says of the op that makes a value what its operands are.
    fn by<'v>(&mut self, made: Option<&ValueId>, operands: impl Iterator<Item = &'v ShardMapValue>) {
        let operands = operands.map(ShardMapValue::along).collect();
        if let Some(&made) = made {
            self.graph.strategy_along(made, operands);
        }
    }

    /// An op of one operand that regroups or sums dims; what it makes is of these kinds.
    fn reshaped(
        &mut self,
        call: &OpCall,
        of: &ShardMapValue,
        kinds: Vec<(usize, Kind)>,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let made = self.emit(call, &[of.value], &name.into_iter().collect::<Vec<_>>())?;
        let local = ShardMapValue { value: made[0], kinds, trained: of.trained };
        Ok(local)
    }
}

/// Numbers as an argument.
fn numbers(list: &[usize]) -> Argument {
    Argument::Numbers(list.iter().map(|&n| n as i64).collect())
}

/// Where what varies is cut along an axis, for whoever claims otherwise.
fn origin(dim: Option<usize>) -> Kind {
    Kind::Varying(dim.map(Origin::Dim))
}
