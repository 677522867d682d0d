//! The backward statements of a program: its statements in reverse.
//!
//! ```text
//! op                y = f(x)          the formula of the table on saved values: dx, in the type of x's gradient
//! redistribution    x' : T' = x: T    dx: T.gradient = dx': redistributed to the sharding of x's gradient
//! several uses      of x              contributions are added in order, all in one sharding, and reduced once
//! ```
//!
//! A requested gradient is a value that no backward statement uses, so that it is live at the end.
//!
//! This module does not handle shardings or communication: the types of the program determine them.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::gradients::Saved;
use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::ShardingType;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::backward_work::of_dtype;
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::program::{Program, Statement};

impl Program {
    /// Returns the statements that compute the gradients of the sum of a value with respect to others.
    ///
    /// The gradients get the given names. With `twice`, they have gradients in turn. Other values get no
    /// `reserved` name. The numbers are where the statements of each forward statement end.
    pub(crate) fn backward(
        &self,
        loss: ValueId,
        wrt: &[(ValueId, String)],
        twice: bool,
        reserved: &Arc<FxHashSet<String>>,
    ) -> Result<(Graph, Vec<usize>), Error> {
        let mut b = Backward {
            program: self,
            twice,
            graph: Graph::on_meshes(self.meshes.clone(), self.table.clone()),
            parts: FxHashMap::default(),
            last: FxHashMap::default(),
        };
        b.graph.reserved = Arc::clone(reserved);
        if let Some(v) =
            wrt.iter().map(|(v, _)| v).chain([&loss]).find(|v| self.get(**v).ty.gradient.is_none())
        {
            let value = self.get(*v);
            let reason = if value.dtype.is_integral() {
                format!("it is {}, and only real and complex values have gradients", value.dtype)
            } else {
                format!(
                    "its type is {}; look for `|-`, `detach` and ops without a gradient before it",
                    value.ty
                )
            };
            return Err(Error::NoGradient { reason: format!("`{}` has no gradient: {reason}", value.name) });
        }
        let shape = self.get(loss).shape().iter().map(|&n| n as i64).collect();
        let ones = b.call(loss, &OpCall::new("ones").with("shape", Argument::Numbers(shape)), &[])?;
        b.graph.values[ones[0].0].dtype = self.get(loss).dtype;
        let first = b.moved(ones[0], loss, None)?;
        b.parts.insert(loss, first);
        let mut ends = vec![b.graph.statements.len()];
        for item in self.statements.iter().rev() {
            match item {
                Statement::Input(_) | Statement::NoGrad => {}
                Statement::Redistribute { from, to, via, .. } => {
                    let Some(dy) = b.total(*to) else { continue };
                    if self.get(*from).ty.gradient.is_some() {
                        let dx = b.moved(dy, *from, *via)?;
                        b.add(*from, dx)?;
                    }
                }
                Statement::Op { call, inputs, outputs, .. } => b.op(call, inputs, outputs)?,
            }
            ends.push(b.graph.statements.len());
        }
        let totals = wrt.iter().map(|(v, _)| b.complete(*v)).collect::<Result<Vec<_>, Error>>()?;
        b.graph.remove_unused(&totals, &mut ends);
        b.name(wrt, &totals)?;
        ends.push(b.graph.statements.len());
        Ok((b.graph, ends))
    }
}

/// The backward statements so far.
struct Backward<'a> {
    program: &'a Program,
    twice: bool,
    graph: Graph,
    /// The sum so far of the gradient of each value.
    parts: FxHashMap<ValueId, ValueId>,
    /// The total gradients, once complete.
    last: FxHashMap<ValueId, ValueId>,
}

impl Backward<'_> {
    /// Returns a value of the program in the graph.
    fn saved(&mut self, v: ValueId) -> Result<ValueId, Error> {
        let value = self.program.get(v);
        if let Some(known) = self.graph.value(&value.name) {
            return Ok(known);
        }
        let saved = self.graph.named(&value.name, value.dtype, value.shape())?;
        self.graph.values[saved.0].on = self.program.meshes.number(value.ty.value.mesh());
        Ok(saved)
    }

    fn fresh(&self, prefix: &str) -> String {
        // Avoid the program's names too.
        let mut name = self.graph.fresh(prefix);
        while self.program.value(&name).is_some() || self.graph.value(&name).is_some() {
            name.push('\'');
        }
        name
    }

    /// Adds a call, on the mesh of a value of the program.
    fn call(&mut self, like: ValueId, call: &OpCall, inputs: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|&v| self.graph.shape(v).to_vec()).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let outputs = self.graph.table.op(call, &shapes)?.outputs().len();
        let first = self.fresh("d");
        let names: Vec<String> =
            (0..outputs).map(|o| if o == 0 { first.clone() } else { format!("{first}.{o}") }).collect();
        let made = self.graph.apply(call, inputs, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        for v in &made {
            self.graph.values[v.0].on = self.program.meshes.number(self.program.get(like).ty.value.mesh());
        }
        Ok(made)
    }

    /// Returns the type of the gradient of a value, and the same along axes of one rank, if that is known.
    fn dual(&self, v: ValueId) -> Option<(ShardingType, Option<Arc<ShardingType>>)> {
        let of = |is: &ShardingType| {
            let is = is.gradient_type()?;
            Some(if self.twice { is } else { is.without_gradient() })
        };
        let value = self.program.get(v);
        Some((of(&value.ty)?, value.letters.as_deref().and_then(of).map(Arc::new)))
    }

    /// Redistributes a gradient to the gradient type of a value.
    fn moved(&mut self, d: ValueId, v: ValueId, via: Option<DType>) -> Result<ValueId, Error> {
        let Some((is, letters)) = self.dual(v) else { return Ok(d) };
        if self.graph.constraint(d) == Some(&is) && self.graph.values[d.0].letters == letters {
            return Ok(d);
        }
        let name = self.fresh(&format!("d{}", self.program.get(v).name));
        let made = self.graph.redistribute_as(d, &name, is, via)?;
        self.graph.values[made.0].letters = letters;
        Ok(made)
    }

    /// Adds a contribution to the gradient of a value.
    fn add(&mut self, v: ValueId, part: ValueId) -> Result<(), Error> {
        let sum = match self.parts.get(&v) {
            None => part,
            Some(&sum) => {
                let made = self.call(v, &OpCall::new("add"), &[sum, part])?[0];
                self.pinned(made, v)?
            }
        };
        self.parts.insert(v, sum);
        Ok(())
    }

    /// Returns the total gradient of a value; `None` if no gradient flows to it.
    fn total(&mut self, v: ValueId) -> Option<ValueId> {
        if let Some(sum) = self.parts.remove(&v) {
            self.last.insert(v, sum);
        }
        self.last.get(&v).copied()
    }

    /// Casts and constrains a gradient, or a contribution to it, to the gradient type of its value.
    fn pinned(&mut self, made: ValueId, v: ValueId) -> Result<ValueId, Error> {
        let dtype = self.program.get(v).dtype;
        let made = if self.graph.values[made.0].dtype == dtype {
            made
        } else {
            let cast = OpCall::new("cast").with("dtype", Argument::Word(dtype.name().to_owned()));
            self.call(v, &cast, &[made])?[0]
        };
        if let Some((is, letters)) = self.dual(v) {
            self.graph.constrain(made, is)?;
            self.graph.values[made.0].letters = letters;
        }
        Ok(made)
    }

    /// Adds the gradients of the inputs of an op.
    fn op(&mut self, call: &OpCall, inputs: &[ValueId], outputs: &[ValueId]) -> Result<(), Error> {
        let mut given: Vec<Option<ValueId>> = Vec::with_capacity(outputs.len());
        for &v in outputs {
            given.push(self.total(v));
        }
        let has = |v: &ValueId| self.program.get(*v).ty.gradient.is_some();
        if given.iter().all(Option::is_none) || !inputs.iter().any(has) {
            return Ok(());
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(|&v| self.program.get(v).shape()).collect();
        let gradient = self.graph.table.clone().gradient(call, &shapes)?;
        let Some(body) = gradient.body() else { return Ok(()) };
        let mut taken = Vec::with_capacity(gradient.inputs().len());
        for saved in gradient.inputs() {
            taken.push(match *saved {
                Saved::Input(i) => self.saved(inputs[i])?,
                Saved::Output(o) => self.saved(outputs[o])?,
                Saved::Gradient(o) => {
                    if let Some(dy) = given[o] {
                        dy
                    } else {
                        let y = self.saved(outputs[o])?;
                        let zeros = self.call(outputs[o], &OpCall::new("zeros_like"), &[y])?[0];
                        if has(&outputs[o]) { self.pinned(zeros, outputs[o])? } else { zeros }
                    }
                }
            });
        }
        let mut values = taken;
        for (called, takes, _) in body.calls() {
            let operands: Vec<ValueId> = takes.iter().map(|&v| values[v]).collect();
            let called = of_dtype(called, self.program.get(inputs[0]).dtype);
            values.extend(self.call(outputs[0], &called, &operands)?);
        }
        let wanted: Vec<bool> = inputs.iter().map(has).collect();
        for (v, inner) in values.iter().zip(gradient.inner_values(&wanted)) {
            self.graph.values[v.0].inner |= inner;
        }
        for (&v, gives) in inputs.iter().zip(gradient.input_gradients()) {
            let Some(o) = gives.filter(|_| has(&v)) else { continue };
            // An input used twice gets two contributions, each by a separate call of its formula.
            let dx = self.pinned(values[body.output_values()[o]], v)?;
            self.add(v, dx)?;
        }
        Ok(())
    }

    /// Returns the total gradient of a value; zeros if no gradient flows to it.
    fn complete(&mut self, v: ValueId) -> Result<ValueId, Error> {
        if let Some(total) = self.total(v) {
            return Ok(total);
        }
        let of = self.saved(v)?;
        let zeros = self.call(v, &OpCall::new("zeros_like"), &[of])?[0];
        self.pinned(zeros, v)
    }

    /// Gives the total gradients of these values their names.
    fn name(&mut self, wrt: &[(ValueId, String)], totals: &[ValueId]) -> Result<(), Error> {
        let used: FxHashSet<ValueId> =
            self.graph.statements.iter().flat_map(GraphStatement::takes).copied().collect();
        let mut named: FxHashSet<ValueId> = FxHashSet::default();
        for ((v, name), &total) in wrt.iter().zip(totals) {
            // Two values may share a gradient, as before and after a no-op redistribution.
            let is_free = !used.contains(&total) && named.insert(total);
            match self.dual(*v) {
                // A value that another statement uses may be overwritten after its last use. This
                // redistribution leaves all bytes in place, and its result is used by no statement.
                Some((is, letters)) if !is_free => {
                    let made = self.graph.redistribute_as(total, name, is, None)?;
                    self.graph.values[made.0].letters = letters;
                }
                Some(_) | None => self.graph.rename(total, name)?,
            }
        }
        Ok(())
    }
}

impl Graph {
    /// Removes the ops and redistributions that these values do not depend on, before each of these ends.
    fn remove_unused(&mut self, wanted: &[ValueId], ends: &mut [usize]) {
        let mut used: Vec<bool> = vec![false; self.values.len()];
        for v in wanted {
            used[v.0] = true;
        }
        let mut kept: Vec<GraphStatement> = Vec::with_capacity(self.statements.len());
        // The number of statements that stay before each one.
        let mut stays = vec![0; self.statements.len() + 1];
        for (n, statement) in self.statements.drain(..).enumerate().rev() {
            if statement.makes().iter().any(|v| used[v.0]) {
                for v in statement.takes() {
                    used[v.0] = true;
                }
                kept.push(statement);
                stays[n + 1] = 1;
            }
        }
        for n in 1..stays.len() {
            stays[n] += stays[n - 1];
        }
        for end in ends {
            *end = stays[*end];
        }
        kept.reverse();
        self.statements = kept;
    }
}
