//! Shard maps: per-device code inside a global program.
//!
//! Inside, every coordinate of the shard map's axes has *separate* tensors, which are global along all other
//! axes as before. A value that varies over `tp=4` is a tensor `[4, ..]` sharded `S(0)`: **V is a shard of a
//! dim that the body does not see**. So a shard map is a program like any other, in which each op is called
//! [on each slice](reshard_ops::rules::Each):
//!
//! ```text
//! enter   S(d)  [.., n b, ..]  ->  [n, .., b, ..]    the axis shards the first dim; R, I and P are unchanged
//! op      f(x: V, w: R)             each[n:1,0] f     S(0),R -> S(0): existing rows of the table
//! leave   S(d)                 <-                     the inverse views
//!         P     the sum over the first dim, as partial values: free
//! ```
//!
//! All communication between coordinates is leaving along an axis, a redistribution, and entering again:
//!
//! ```text
//! all_reduce       leave P,     enter R or I         all_to_all       leave S(c), enter S(s)
//! all_gather       leave S(d),  enter R or I         reduce_scatter   leave P,    enter S(d)
//! shift            roll of the first dim             convert          among R, I and P, and to S(d)
//! ```
//!
//! So gradients, plans, reports, schedules and the same program on one device are those of any program. The
//! result types of a shard map are **declared** and checked: a varying value is not a replica, whatever the
//! size of the axis.

mod boundary;
mod collectives;
mod kind;
mod slices;
mod text;

use reshard_kernels::DType;
use reshard_ops::rules::{Argument, OpCall, Vmapped};
use reshard_sharding::Placement;

use crate::Error;
use crate::decompose::{Apart, body_of};
use crate::graph::{Graph, ValueId};
use crate::local_type::{Partly, in_order};
use crate::notation::refused;
use crate::replication::Replication;
use crate::shard_map::kind::{Kind, Origin};

pub use slices::DimSlices;
pub(crate) use text::{Regions, begins};

/// A value of a shard map.
#[derive(Clone, Debug)]
pub struct ShardMapValue {
    /// The graph value; its leading dims are those of the axes along which it varies, in axis order.
    value: ValueId,
    /// Its type along each axis of the shard map, by axis number.
    kinds: Vec<(usize, Kind)>,
    /// `true` if it may have a gradient.
    trained: bool,
}

impl ShardMapValue {
    fn kind(&self, axis: usize) -> Option<&Kind> {
        self.kinds.iter().find(|(known, _)| *known == axis).map(|(_, kind)| kind)
    }

    /// Returns the axes along which it varies, in order.
    fn varies(&self) -> Vec<usize> {
        self.kinds.iter().filter(|(_, kind)| kind.varying().is_some()).map(|(axis, _)| *axis).collect()
    }

    /// Returns its placement in the graph along each axis.
    fn along(&self) -> Partly {
        let varies = self.varies();
        let dim = |axis: &usize| varies.iter().position(|v| v == axis).unwrap_or_default();
        let of = |(axis, kind): &(usize, Kind)| (*axis, kind.clone().map(|_| Placement::Shard(dim(axis))));
        in_order(self.kinds.iter().map(of).collect())
    }
}

/// A shard map: per-device code over some axes of a graph's mesh; see [`Graph::shard_map`].
#[derive(Debug)]
pub struct ShardMap<'g> {
    graph: &'g mut Graph,
    /// The axis numbers, beginning with those of enclosing shard maps.
    axes: Vec<usize>,
    /// The name prefix of the values that it computes.
    prefix: String,
    /// The communication dtype, if it is narrower than the dtype of the values.
    pub(crate) wire: Option<DType>,
}

impl Graph {
    /// Adds per-device code over some axes, like JAX's `shard_map` and PyTorch's `local_map`.
    ///
    /// The code runs on every coordinate of the axes. `takes` declares the input placements, `claims` the
    /// output placements, and `body` builds the code. Along all other axes its values are global.
    ///
    /// An input is taken as `R`, `I`, `P` or `S(d)`, with one placement for each axis in the order of their
    /// names, and is redistributed to it if necessary. The output placements are checked.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, Graph, ImplicitRedistribution};
    /// let mut graph: Graph = "mesh tp=4\nx: f32[8,16] S(1)\nw: f32[16,32] S(0)".parse()?;
    /// let (x, w) = (graph.value("x").unwrap(), graph.value("w").unwrap());
    /// let made = graph.shard_map(&["tp"], &[(x, "S(1)"), (w, "S(0)")], &["R"], |region, v| {
    ///     let h = region.op("mm", &[&v[0], &v[1]])?;
    ///     Ok(vec![region.all_reduce(&h, "tp", "R")?])
    /// })?;
    /// let program = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph)?;
    /// let redistributions: Vec<String> =
    ///     program.redistributions().filter(|m| m.forward.received_bytes() > 0).map(|m| m.to_string()).collect();
    /// assert_eq!(redistributions, ["tp: P(sum) -> R: forward 1536 bytes, backward 1536 bytes"]);
    ///
    /// // The all_reduce is missing.
    /// let refused = graph.shard_map(&["tp"], &[(x, "S(1)"), (w, "S(0)")], &["R"], |region, v| {
    ///     Ok(vec![region.op("mm", &[&v[0], &v[1]])?])
    /// });
    /// let refused = refused.unwrap_err();
    /// assert_eq!(refused.code(), "out_spec_mismatch");
    /// assert!(refused.to_string().ends_with(
    ///     "varies over tp but is declared R: mm sums a dim that tp shards; declare P, or all_reduce it"
    /// ));
    /// # assert_eq!(made.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Returns an error for axes that are not in the first mesh, for shards of different sizes, for invalid
    /// placements, with the kind `out_spec_mismatch` for an output that does not match its declaration, and for
    /// errors of the body.
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
                "the body of local {} returns {} values, but {} are declared",
                axes.join(","),
                given.len(),
                claims.len()
            ));
        }
        let mut made = Vec::with_capacity(given.len());
        for (v, is) in given.iter().zip(claims) {
            let called = region.shown(v.value).to_owned();
            let (left, said) = region.leave_as(v, &own, is, &called)?;
            let name = region.name(None);
            made.push(region.graph.moved_along(left.value, &name, said, None)?);
        }
        Ok(made)
    }
}

impl<'g> ShardMap<'g> {
    /// Opens a shard map over axes, inside others or not.
    pub(crate) fn begin(
        graph: &'g mut Graph,
        around: &[usize],
        names: &[&str],
    ) -> Result<ShardMap<'g>, Error> {
        if names.is_empty() {
            return refused("`local` has no axes; name them, as in `local tp`".to_owned());
        }
        let mut axes = Vec::with_capacity(names.len());
        for name in names {
            let axis = graph.mesh().axis(name)?;
            if axes.contains(&axis) || around.contains(&axis) {
                return refused(format!(
                    "{name} is already an axis of this or an outer `local`; name each axis once"
                ));
            }
            axes.push(axis);
        }
        if axes.iter().any(|&axis| graph.mesh().axes()[axis].size() == 1) {
            // Shapes inside have the size of the axis, so they have no types for more ranks.
            graph.meshes.forget_one_rank();
        }
        let prefix = names.join(".");
        Ok(ShardMap { graph, axes: around.iter().copied().chain(axes).collect(), prefix, wire: None })
    }

    /// Reopens a shard map of a graph.
    pub(crate) fn again(graph: &'g mut Graph, axes: &[usize], prefix: &str) -> ShardMap<'g> {
        ShardMap { graph, axes: axes.to_vec(), prefix: prefix.to_owned(), wire: None }
    }

    /// Returns the shape of a value on each coordinate.
    pub fn shape(&self, value: &ShardMapValue) -> &[usize] {
        let shape = self.graph.shape(value.value);
        &shape[value.varies().len().min(shape.len())..]
    }

    /// Returns the local type of a value along an axis of the shard map.
    ///
    /// Returns an error for an axis along which the shard map is global, and for a value of another shard
    /// map.
    pub fn local_type(&self, value: &ShardMapValue, axis: &str) -> Result<Replication, Error> {
        let axis = self.axis(axis)?;
        match value.kind(axis) {
            Some(kind) => Ok(kind.clone().map(drop)),
            None => refused(format!("`{}` belongs to another shard map", self.shown(value.value))),
        }
    }

    /// Converts a graph value to one without local types.
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

    /// Sorts types in the order of the shard map's axes.
    fn sort(&self, kinds: &mut [(usize, Kind)]) {
        kinds.sort_by_key(|(axis, _)| self.axes.iter().position(|known| known == axis));
    }

    /// Returns the axis of a name, if it is one of the shard map's.
    fn axis(&self, name: &str) -> Result<usize, Error> {
        let axis = self.graph.mesh().axis(name)?;
        if self.axes.contains(&axis) {
            return Ok(axis);
        }
        let own: Vec<&str> = self.axes.iter().map(|&axis| self.axis_name(axis)).collect();
        refused(format!("{name} is not an axis of `local {}`; name one of its axes", own.join(",")))
    }

    /// Calls an op with one result.
    ///
    /// Inputs that vary over an axis give a varying result, and invariant or replicated ones the same.
    /// Partial values pass through ops that add or scale them. If the types of the inputs cannot be combined,
    /// the error suggests a fix.
    pub fn op(&mut self, call: &str, inputs: &[&ShardMapValue]) -> Result<ShardMapValue, Error> {
        let mut made = self.ops(call, inputs)?;
        match (made.pop(), made.pop()) {
            (Some(one), None) => Ok(one),
            _ => refused(format!("{call} has several outputs; call it with `ops` instead of `op`")),
        }
    }

    /// Calls an op and returns all its results.
    pub fn ops(&mut self, call: &str, inputs: &[&ShardMapValue]) -> Result<Vec<ShardMapValue>, Error> {
        self.call(&call.parse()?, inputs, &[])
    }

    /// Calls an op, or its decomposition; the results get these names.
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
            // Called for its check of the operands.
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

    /// Adds a call to the graph; results without a name get a generated one.
    fn emit(&mut self, call: &OpCall, inputs: &[ValueId], names: &[&str]) -> Result<Vec<ValueId>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|&v| self.graph.shape(v)).collect();
        let outputs = self.graph.table.op(call, &shapes)?.outputs().len();
        if names.len() > outputs {
            return refused(format!("{call} has {outputs} outputs, but {} names are given", names.len()));
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

    /// Returns the name of a value as it is written inside the shard map, without the prefix of the axes.
    ///
    /// Generated names stay whole, as a number alone would not name a value.
    fn shown(&self, value: ValueId) -> &str {
        let name = self.graph.name(value);
        let own = name.strip_prefix(self.prefix.as_str()).and_then(|own| own.strip_prefix('.'));
        own.filter(|own| !own.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(name)
    }

    /// Returns the graph name of a shard map value.
    fn name(&self, own: Option<&str>) -> String {
        let named = own.map(|own| format!("{}.{own}", self.prefix));
        match named {
            Some(name) if !self.graph.knows(&name) => name,
            Some(name) => self.graph.fresh(&name),
            None => self.graph.fresh(&self.prefix),
        }
    }

    /// Sets the strategy of the op that computes a value to the placements of its operands.
    fn by<'v>(&mut self, made: Option<&ValueId>, operands: impl Iterator<Item = &'v ShardMapValue>) {
        let operands = operands.map(ShardMapValue::along).collect();
        if let Some(&made) = made {
            self.graph.strategy_along(made, operands);
        }
    }

    /// Calls an op of one operand that regroups or sums dims; the result has these types.
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

/// Converts numbers to an argument.
fn numbers(list: &[usize]) -> Argument {
    Argument::Numbers(list.iter().map(|&n| n as i64).collect())
}

/// Returns the varying type of a value that is sharded along a dim.
fn origin(dim: Option<usize>) -> Kind {
    Kind::Varying(dim.map(Origin::Dim))
}
