//! Decomposes ops into several, where that allows more shardings in between.
//!
//! An op of the table takes shards as its rows specify, without internal communication. Some ops allow more
//! shardings when decomposed:
//!
//! ```text
//! mean          = sum, divided by the count               a sum has a partial gradient, a mean has none
//! loss, mean    = the same loss, sum, divided by the count
//! logsumexp     = m + log(sum(exp(x - m))),  m = max(x)   along a sharded dim: two numbers per row are
//! log_softmax   = (x - m) - log(sum(exp(x - m)))          reduced, instead of gathering the row
//! cross_entropy = nll_loss(log_softmax(x), t)
//! ```
//!
//! The maximum only prevents overflow of `exp`. It cancels, so its gradient is zero and it is detached. Means
//! are decomposed wherever there are gradients. The others are profitable only where they avoid a gather, and
//! the [solver](crate::ShardingSolver) uses the cheaper of both.

use std::borrow::Cow;
use std::sync::Arc;

use reshard_ops::rules::{Argument, Composite, OpCall, OpTable};
use smallvec::SmallVec;

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};

/// The kinds of ops to decompose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Means, as gradients need them.
    pub(crate) means: bool,
    /// Ops that reduce along a dim that may be sharded.
    pub(crate) rows: bool,
}

impl Apart {
    /// Returns the same for one op.
    ///
    /// Only means that are differentiated are decomposed. Row reductions with a given strategy stay whole.
    fn of(self, is_trained: bool, has_strategy: bool) -> Apart {
        Apart { means: self.means && is_trained, rows: self.rows && !has_strategy }
    }
}

/// The maximum nesting depth of composites.
const DEEPEST: usize = 32;

impl Graph {
    /// Returns the graph in primitive ops, with composites replaced by their bodies.
    ///
    /// Ops of the given kinds are decomposed too.
    ///
    /// Values that no statement computes stay as they are.
    pub(crate) fn in_parts(&self, apart: Apart) -> Result<Cow<'_, Graph>, Error> {
        let trained = self.trained();
        for (n, statement) in self.statements.iter().enumerate() {
            let GraphStatement::Op { call, op, by, .. } = statement else { continue };
            let shapes: SmallVec<[&[usize]; 4]> = op.inputs().iter().map(Vec::as_slice).collect();
            if body_of(&self.table, call, &shapes, apart.of(n < trained, by.is_some()))?.0.is_some() {
                return Ok(Cow::Owned(self.taken_apart(apart, trained)?));
            }
        }
        Ok(Cow::Borrowed(self))
    }

    /// Returns the number of statements that may be differentiated.
    ///
    /// These are before the mark and the last gradient.
    fn trained(&self) -> usize {
        let last = self.statements.iter().rposition(|s| matches!(s, GraphStatement::Gradient { .. }));
        let marked = self.statements.iter().position(|s| *s == GraphStatement::NoGrad);
        last.into_iter().chain(marked).min().unwrap_or(self.statements.len())
    }

    /// Returns the decomposed graph, of which the first `trained` statements may be differentiated.
    fn taken_apart(&self, apart: Apart, trained: usize) -> Result<Graph, Error> {
        let made_on = self.made_on();
        let mut out = Graph::on_meshes(self.meshes.clone(), self.table.clone());
        out.reserved = Arc::new(self.names().union(&self.reserved).cloned().collect());
        let mut known: Vec<Option<ValueId>> = vec![None; self.values.len()];
        let mut outside = vec![true; self.values.len()];
        for v in self.statements.iter().flat_map(GraphStatement::makes) {
            outside[v.0] = false;
        }
        for v in (0..outside.len()).filter(|&v| outside[v]) {
            known[v] = Some(out.copied(&self.values[v])?);
        }
        let at = |known: &[Option<ValueId>], v: ValueId| {
            known[v.0].ok_or_else(|| Error::Graph {
                reason: format!("`{}` is used before it is computed", self.name(v)),
            })
        };
        let list = |known: &[Option<ValueId>], of: &[ValueId]| {
            of.iter().map(|&v| at(known, v)).collect::<Result<Vec<_>, _>>()
        };
        for (n, statement) in self.statements.iter().enumerate() {
            match statement {
                GraphStatement::NoGrad => out.no_grad(),
                GraphStatement::Input(v) => {
                    let value = &self.values[v.0];
                    known[v.0] = Some(out.copied(value)?);
                    out.push(GraphStatement::Input(ValueId(out.values.len() - 1)))?;
                }
                GraphStatement::Move { from, to, along, via } => {
                    let from = at(&known, *from)?;
                    let made = out.copied(&self.values[to.0])?;
                    known[to.0] = Some(made);
                    out.push(GraphStatement::Move { from, to: made, along: along.clone(), via: *via })?;
                }
                GraphStatement::Gradient { loss, wrt, gradients } => {
                    let (loss, wrt) = (at(&known, *loss)?, list(&known, wrt)?);
                    let mut made = Vec::with_capacity(gradients.len());
                    for g in gradients {
                        made.push(out.copied(&self.values[g.0])?);
                        known[g.0] = made.last().copied();
                    }
                    out.push(GraphStatement::Gradient { loss, wrt, gradients: made })?;
                }
                GraphStatement::Op { call, inputs, outputs, by, .. } => {
                    let inputs = list(&known, inputs)?;
                    let apart = apart.of(n < trained, by.is_some());
                    let mesh = outputs.first().map_or(0, |v| made_on[v.0]);
                    let mut path = Path { apart, deep: 0, own: 0, mesh };
                    let made = out.call_in_parts(&mut path, call, &inputs, &|o| {
                        self.values.get(outputs.get(o)?.0).cloned()
                    })?;
                    if let Some(given) = by {
                        match out.statements.last_mut() {
                            Some(GraphStatement::Op { call: last, by, outputs, .. })
                                if (&*last, &*outputs) == (call, &made) =>
                            {
                                *by = Some(given.clone());
                            }
                            Some(_) | None => return Err(whole(call)),
                        }
                    }
                    for (&v, made) in outputs.iter().zip(made) {
                        known[v.0] = Some(made);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Adds a value like that of another graph.
    fn copied(&mut self, like: &crate::graph::Known) -> Result<ValueId, Error> {
        let value = self.named(&like.name, like.dtype, &like.shape)?;
        self.values[value.0].pinned.clone_from(&like.pinned);
        self.values[value.0].open.clone_from(&like.open);
        self.values[value.0].on = like.on;
        self.values[value.0].inner = like.inner;
        Ok(value)
    }

    /// Adds a call, or its parts; the outputs are like the given values.
    fn call_in_parts(
        &mut self,
        path: &mut Path,
        call: &OpCall,
        inputs: &[ValueId],
        like: &dyn Fn(usize) -> Option<crate::graph::Known>,
    ) -> Result<Vec<ValueId>, Error> {
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|&v| self.shape(v).to_vec()).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let (body, own) = body_of(&self.table, call, &shapes, path.apart)?;
        let Some(body) = body else {
            let outputs = self.table.op(call, &shapes)?.outputs().len();
            let names: Vec<String> =
                (0..outputs).map(|o| like(o).map_or_else(|| self.fresh("v"), |known| known.name)).collect();
            let made = self.apply(call, inputs, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
            for (o, &v) in made.iter().enumerate() {
                let value = &mut self.values[v.0];
                value.on = Some(path.mesh);
                match like(o) {
                    Some(known) => {
                        (value.pinned, value.dtype, value.inner) = (known.pinned, known.dtype, known.inner);
                    }
                    None => value.part = path.own > 0,
                }
            }
            return Ok(made);
        };
        // Called for its check of the operands.
        self.table.op(call, &shapes)?;
        path.deep += 1;
        path.own += usize::from(own);
        if path.deep > DEEPEST {
            return Err(Error::Graph {
                reason: format!("{call} is nested in {DEEPEST} composites, which is the limit"),
            });
        }
        let mut values = inputs.to_vec();
        let outputs = body.output_values().to_vec();
        for (called, takes, makes) in body.calls() {
            let operands: Vec<ValueId> = takes.iter().map(|&v| values[v]).collect();
            let like = |o: usize| {
                let value = makes.get(o)?;
                // An output of the body is an output of the call; if it is two of them, the first names it.
                like(outputs.iter().position(|out| out == value)?)
            };
            values.extend(self.call_in_parts(path, called, &operands, &like)?);
        }
        path.deep -= 1;
        path.own -= usize::from(own);
        Ok(outputs.iter().map(|&v| values[v]).collect())
    }
}

/// Returns the error for a decomposed op that has no strategy.
fn whole(call: &OpCall) -> Error {
    Error::Graph {
        reason: format!(
            "{call} is decomposed here and cannot have a strategy; write the ops of its decomposition with strategies, or the types of its inputs and outputs"
        ),
    }
}

/// The position of a call in nested composites.
struct Path {
    apart: Apart,
    deep: usize,
    /// The number of enclosing table ops that are decomposed.
    own: usize,
    /// The number of the mesh on which the whole op runs.
    mesh: usize,
}

/// Returns the body of a call, if it has one, and `true` if it is a decomposed op of the table.
pub(crate) fn body_of(
    table: &OpTable,
    call: &OpCall,
    shapes: &[&[usize]],
    apart: Apart,
) -> Result<(Option<Composite>, bool), Error> {
    Ok(match call {
        OpCall::Rule(_) => (None, false),
        OpCall::Named { name, .. } => match table.composite(name) {
            Some(body) => (Some(body.clone()), false),
            None => (parts(table, call, shapes, apart)?, true),
        },
        OpCall::Each(each) => {
            let slices = each.slices(shapes)?;
            let slices: Vec<&[usize]> = slices.iter().map(Vec::as_slice).collect();
            let (body, own) = body_of(table, each.call(), &slices, apart)?;
            (body.and_then(|body| each.over(&body)), own)
        }
    })
}

/// Returns the parts of an op of the table, if it is to be decomposed.
fn parts(
    table: &OpTable,
    call: &OpCall,
    shapes: &[&[usize]],
    apart: Apart,
) -> Result<Option<Composite>, Error> {
    let OpCall::Named { name, .. } = call else { return Ok(None) };
    let request = || table.request(call, shapes);
    let rank = shapes.first().map_or(0, |s| s.len());
    let list = |dims: &[usize]| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let many = |dims: &[usize]| dims.iter().map(|&d| shapes[0][d]).product::<usize>();
    let text = match name.as_str() {
        "mean" if apart.means => {
            let (dims, keepdim) = (request()?.dims("dims")?, request()?.flag("keepdim")?);
            format!(
                "x -> y: s = sum(x, dims=[{}], keepdim={keepdim}); y = div_scalar(s, value={})",
                list(&dims),
                many(&dims)
            )
        }
        "mse_loss"
        | "l1_loss"
        | "smooth_l1_loss"
        | "huber_loss"
        | "binary_cross_entropy"
        | "binary_cross_entropy_with_logits"
        | "kl_div"
            if apart.means && request()?.word("reduction")? == "mean" =>
        {
            let all: Vec<usize> = (0..rank).collect();
            summed(call, shapes.len(), many(&all))
        }
        "nll_loss" | "cross_entropy"
            if apart.means
                && request()?.word("reduction")? == "mean"
                && !request()?.has("ignore_index")?
                && shapes.len() == 2 =>
        {
            summed(call, 2, shapes[1].iter().product())
        }
        "logsumexp" if apart.rows => {
            let (dims, keepdim) = (request()?.dims("dims")?, request()?.flag("keepdim")?);
            let kept = (0..rank).filter(|d| !dims.contains(d)).map(|d| shapes[0][d]);
            let shape = list(&kept.collect::<Vec<_>>());
            let last = if keepdim {
                "y = add(l, m)".to_owned()
            } else {
                format!("r = add(l, m); y = reshape(r, shape=[{shape}])")
            };
            let dims = list(&dims);
            format!(
                "x -> y: c = detach(x); m = amax(c, dims=[{dims}], keepdim=true); s = sub(x, m); e = exp(s); \
                 z = sum(e, dims=[{dims}], keepdim=true); l = log(z); {last}"
            )
        }
        "log_softmax" if apart.rows => {
            let dim = request()?.dim("dim")?;
            format!(
                "x -> y: c = detach(x); m = amax(c, dims=[{dim}], keepdim=true); s = sub(x, m); e = exp(s); \
                 z = sum(e, dims=[{dim}], keepdim=true); l = log(z); y = sub(s, l)"
            )
        }
        "cross_entropy" if apart.rows && shapes.len() == 2 && call.argument("label_smoothing").is_none() => {
            let kept = ["reduction", "ignore_index"];
            let arguments: Vec<String> =
                kept.iter().filter_map(|key| Some(format!(", {key}={}", call.argument(key)?))).collect();
            let dim = rank.saturating_sub(1).min(1);
            format!("x, t -> y: p = log_softmax(x, dim={dim}); y = nll_loss(p, t{})", arguments.concat())
        }
        _ => return Ok(None),
    };
    Ok(Some(text.parse()?))
}

/// Returns the body of a mean loss: the summed loss, divided by the count.
fn summed(call: &OpCall, inputs: usize, many: usize) -> String {
    let names: Vec<String> = (0..inputs).map(|i| format!("x{i}")).collect();
    let call = call.clone().with("reduction", Argument::Word("sum".to_owned()));
    let (name, arguments) = call.parts();
    let arguments = arguments.iter().fold(String::new(), |text, argument| text + ", " + argument);
    let names = names.join(", ");
    format!("{names} -> y: s = {name}({names}{arguments}); y = div_scalar(s, value={})", many.max(1))
}
