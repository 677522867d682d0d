//! Splits a redistribution and its consumer into overlap chunks: one chunk is sent while another is computed.
//!
//! ```text
//! before                           after
//! g = x, redistributed             x_i = chunk i of x
//! y = f(g, ..)                     g_i = x_i, redistributed
//!                                  y_i = f(g_i, ..)
//!                                  y = all y_i, concatenated
//! ```
//!
//! The chunks are along a dim of `g` that the op [carries](reshard_ops::rules::Op::batch_dims) whole into all
//! its outputs and that none of its other inputs has. A row `S(d),R.. -> S(e)..` states that each part of the
//! dim is computed from that part alone, so no bit changes.
//!
//! **If the dim is sharded** over `n` shards of `x`, a chunk is a part of every shard, so that all ranks have
//! equal work. The dim is viewed as `(n, D / n)`, and chunks are along the second of these. The shards of `g`
//! and `y` along the dim have to be blocks of whole shards of `x`.
//!
//! The cost: `x` and `y` are copied one more time, in chunks. The gain is reported by a
//! [timeline](crate::schedule::Timeline).

use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::{Sharding, ShardingType};

use crate::graph::{Graph, GraphStatement, ValueId, gradient_of};
use crate::program::Statement;
use crate::{Error, ImplicitRedistribution, Program, ShardingSolver};

/// The maximum number of chunks.
const MOST_PIECES: usize = 1 << 10;

impl Program {
    /// Returns the program in which `moved` is redistributed, and computed with, in `pieces` overlap chunks.
    ///
    /// With [`in_flight_bytes`](crate::schedule::CompileOptions::in_flight_bytes), the next chunk is sent while one is
    /// computed.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, Program};
    /// let elaborator = ShardingSolver::new();
    /// let program = elaborator.solve(&"
    ///     mesh tp=2
    ///     x: f32[8,16] S(0)
    ///     w: f32[16,32] S(1)
    ///     g: R = x
    ///     y: S(1) = mm(g, w)
    /// ".parse()?)?;
    /// let g = program.value("g").unwrap_or_else(|| unreachable!());
    /// let pieces = program.overlap_value(g, 2, &elaborator)?;
    /// assert_eq!(pieces.redistributions().filter(|m| m.forward.communicating_steps() > 0).count(), 2);
    /// assert!(pieces.to_string().contains("y.piece1: S(1) = mm(g.piece1, w)"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Requires the solver by which the program was made. Returns an error unless `moved` is the result of a
    /// communicating redistribution on one mesh that exactly one op takes, and that op has a dim that can be
    /// split into `pieces` chunks.
    pub fn overlap_value(
        &self,
        moved: ValueId,
        pieces: usize,
        elaborator: &ShardingSolver,
    ) -> Result<Program, Error> {
        check(pieces)?;
        rewritten(self, &[Chunk::of(self, moved, pieces)?], elaborator)
    }

    /// Returns the program with every possible redistribution split into `pieces` overlap chunks.
    ///
    /// Returns an error for fewer than two and for more than 1024 chunks.
    #[doc(hidden)]
    pub fn overlap_all(&self, pieces: usize, elaborator: &ShardingSolver) -> Result<Program, Error> {
        check(pieces)?;
        rewritten(self, &Chunk::all(self, pieces), elaborator)
    }
}

fn check(pieces: usize) -> Result<(), Error> {
    if (2..=MOST_PIECES).contains(&pieces) {
        return Ok(());
    }
    Err(Error::Graph {
        reason: format!("the number of overlap chunks must be between 2 and {MOST_PIECES}, not {pieces}"),
    })
}

/// Returns the program with these redistributions and ops split.
pub(super) fn rewritten(
    program: &Program,
    chunks: &[Chunk<'_>],
    elaborator: &ShardingSolver,
) -> Result<Program, Error> {
    let mut graph = program.graph()?;
    let statements = core::mem::take(&mut graph.statements);
    // Statement `n` of the graph is statement `n` of the program.
    for (n, statement) in statements.into_iter().enumerate() {
        match chunks.iter().find(|chunk| chunk.moves == n || chunk.computes == n) {
            None => graph.push(statement)?,
            Some(chunk) if chunk.computes == n => chunk.add_to(&mut graph)?,
            Some(_) => {}
        }
    }
    elaborator.clone().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph)
}

/// A redistribution and an op to split into overlap chunks.
pub(super) struct Chunk<'a> {
    pub(super) program: &'a Program,
    pub(super) pieces: usize,
    /// The index of the redistribution among the statements, and below that of the op.
    moves: usize,
    computes: usize,
    /// The source of the redistribution, and its result.
    pub(super) from: ValueId,
    pub(super) to: ValueId,
    /// The op's call, inputs and outputs.
    call: &'a OpCall,
    pub(super) inputs: &'a [ValueId],
    pub(super) outputs: &'a [ValueId],
    /// The position of the redistributed value among the op's inputs.
    operand: usize,
    /// The dim of the redistributed value that is split, and the corresponding dim of each output.
    dim: usize,
    dims: Vec<usize>,
    /// The number of shards of the source along the dim.
    shards: usize,
}

impl<'a> Chunk<'a> {
    fn of(program: &'a Program, moved: ValueId, pieces: usize) -> Result<Chunk<'a>, Error> {
        let items = program.statements();
        let refused = |reason: String| Err(Error::Graph { reason });
        let name = program.values().get(moved.index()).map_or("", |v| v.name.as_str());
        let makes = items.iter().enumerate().find_map(|(n, item)| match item {
            // A redistribution in a communication dtype also casts and adds, so it is not split.
            Statement::Redistribute { from, to, forward, via: None, .. } => {
                let mesh = |v: &ValueId| program.get(*v).ty.value.mesh();
                let talks = *to == moved && forward.communicating_steps() > 0 && mesh(from) == mesh(to);
                talks.then_some((n, *from))
            }
            Statement::Input(_)
            | Statement::Op { .. }
            | Statement::Redistribute { .. }
            | Statement::NoGrad => None,
        });
        let Some((moves, from)) = makes else {
            return refused(format!(
                "`{name}` is not the result of a communicating redistribution on one mesh without `via`; choose one that is"
            ));
        };
        let takers: Vec<usize> = (0..items.len()).filter(|&n| items[n].inputs().contains(&moved)).collect();
        let [computes] = takers[..] else {
            let made = takers.iter().filter_map(|&n| items[n].outputs().first());
            let names: Vec<&str> = made.map(|v| program.get(*v).name.as_str()).collect();
            return refused(format!(
                "`{name}` has {} consumers ({}), and only a value with one consumer can be split into chunks; redistribute it once for each",
                names.len(),
                names.join(", ")
            ));
        };
        let Statement::Op { call, op, inputs, outputs, strategy, .. } = &items[computes] else {
            return refused(format!(
                "`{name}` is redistributed again before an op takes it; choose the result of that redistribution"
            ));
        };
        let operand = inputs.iter().position(|v| *v == moved).unwrap_or(0);
        if strategy.region || inputs.iter().filter(|v| **v == moved).count() > 1 {
            return refused(format!(
                "{} needs all of `{name}`, so it cannot be split into chunks",
                op.name()
            ));
        }
        for (dim, dims) in op.batch_dims(operand) {
            let (to, shards) = (moved, 1);
            let chunk = Chunk {
                program,
                pieces,
                moves,
                computes,
                from,
                to,
                call,
                inputs,
                outputs,
                operand,
                dim,
                dims,
                shards,
            };
            if let Some(chunk) = chunk.fitted() {
                return Ok(chunk);
            }
        }
        refused(format!(
            "{} has no dim of `{name}` that can be split into {pieces} chunks; the dim must be in all outputs and in no other input, and its shards must be blocks of a multiple of {pieces}",
            op.name()
        ))
    }

    /// Returns the chunk with its number of shards, or `None` if the values cannot be split so.
    ///
    /// Each chunk has to be a part of every shard of the source. The result and the outputs have to hold it
    /// in blocks of whole shards, and the op has to compute the same part of its outputs.
    fn fitted(self) -> Option<Chunk<'a>> {
        let Chunk { program, from, to, inputs, outputs, dim, .. } = self;
        let shard = block(&program.get(from).ty.value, dim)?;
        let made = || outputs.iter().copied().zip(self.dims.iter().copied());
        for (v, dim) in [(from, dim), (to, dim)].into_iter().chain(made()) {
            let (whole, piece) = (&program.get(v).ty, self.typed(v, &self.piece_shape(v, dim)).ok()?);
            for (whole, piece) in
                [(Some(&whole.value), Some(&piece.value)), (whole.gradient.as_ref(), piece.gradient.as_ref())]
            {
                let (Some(whole), Some(piece)) = (whole, piece) else { continue };
                let (whole, piece) = (block(whole, dim)?, block(piece, dim)?);
                if !whole.is_multiple_of(shard) || whole != piece * self.pieces {
                    return None;
                }
            }
        }
        // The same call on a chunk has to compute that chunk of the outputs.
        let mut shapes: Vec<Vec<usize>> = inputs.iter().map(|v| program.get(*v).shape().to_vec()).collect();
        shapes[self.operand] = self.piece_shape(to, dim);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let op = program.table().op(self.call, &shapes).ok()?;
        let pieces: Vec<Vec<usize>> = made().map(|(v, dim)| self.piece_shape(v, dim)).collect();
        let fits = shard.is_multiple_of(self.pieces) && op.outputs() == pieces;
        fits.then(|| Chunk { shards: program.get(from).shape()[dim] / shard, ..self })
    }

    /// Returns the same with another number of chunks, which has to divide every shard.
    pub(super) fn in_pieces(self, pieces: usize) -> Chunk<'a> {
        Chunk { pieces, ..self }
    }

    /// Returns all redistributions that can be split into `pieces` chunks, each with a different op.
    pub(super) fn all(program: &'a Program, pieces: usize) -> Vec<Chunk<'a>> {
        // Values that callers look up by name, such as the gradient of a value, are not split.
        let is_gradient =
            |v: &ValueId| gradient_of(&program.get(*v).name).is_some_and(|of| program.value(of).is_some());
        let moved = program.statements().iter().filter_map(|item| match item {
            Statement::Redistribute { to, .. } if is_gradient(to) => None,
            Statement::Redistribute { to, .. } => Chunk::of(program, *to, pieces).ok(),
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => None,
        });
        let mut all: Vec<Chunk<'a>> = Vec::new();
        for chunk in moved {
            // If an op takes two such values, split the first only.
            if all.iter().all(|known| known.computes != chunk.computes) {
                all.push(chunk);
            }
        }
        all
    }

    /// Adds the chunks instead of the redistribution and the op.
    fn add_to(&self, graph: &mut Graph) -> Result<(), Error> {
        let Chunk { program, from, to, inputs, outputs, dim, .. } = *self;
        let apart = self.view(graph, from, from, &self.split(program.get(from).shape(), dim))?;
        let mut made: Vec<Vec<ValueId>> = vec![Vec::new(); outputs.len()];
        // Add all chunks first, so that no redistribution has to wait for a call.
        let pieces: Result<Vec<ValueId>, Error> =
            (0..self.pieces).map(|piece| self.piece(graph, apart, piece)).collect();
        for (piece, x) in pieces?.into_iter().enumerate() {
            let is = self.typed(to, graph.shape(x))?;
            let name = self.name(graph, to, piece);
            let mut takes = inputs.to_vec();
            takes[self.operand] = graph.redistribute(x, &name, is)?;
            let names: Vec<String> = outputs.iter().map(|v| self.name(graph, *v, piece)).collect();
            let results = self.computed(graph, &takes, &names, |v, shape| self.typed(v, shape))?;
            made.iter_mut().zip(results).for_each(|(list, result)| list.push(result));
        }
        for ((output, dim), pieces) in outputs.iter().zip(&self.dims).zip(made) {
            self.together(graph, *output, *dim, &pieces)?;
        }
        Ok(())
    }

    /// Applies the op to `takes`, and constrains its outputs to the types that `is` returns.
    pub(super) fn computed(
        &self,
        graph: &mut Graph,
        takes: &[ValueId],
        names: &[String],
        is: impl Fn(ValueId, &[usize]) -> Result<ShardingType, Error>,
    ) -> Result<Vec<ValueId>, Error> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let results = graph.apply(self.call, takes, &names)?;
        for (&result, &output) in results.iter().zip(self.outputs) {
            graph.values[result.index()].dtype = self.program.get(output).dtype;
            let is = is(output, graph.shape(result))?;
            graph.constrain(result, is)?;
        }
        Ok(results)
    }

    /// Returns a chunk of the source, of which the [shards](Chunk::split) are a separate dim.
    fn piece(&self, graph: &mut Graph, apart: ValueId, piece: usize) -> Result<ValueId, Error> {
        let shape = self.piece_shape(self.from, self.dim);
        let length = shape[self.dim] / self.shards;
        let call = OpCall::new("narrow")
            .with("dim", Argument::Number(self.within(self.dim) as i64))
            .with("start", Argument::Number((piece * length) as i64))
            .with("length", Argument::Number(length as i64));
        let name = self.name(graph, self.from, piece);
        let narrow = graph.apply(&call, &[apart], &[&name])?[0];
        self.view(graph, narrow, self.from, &shape)
    }

    /// Concatenates the chunks of an output to the output itself.
    fn together(
        &self,
        graph: &mut Graph,
        output: ValueId,
        dim: usize,
        pieces: &[ValueId],
    ) -> Result<(), Error> {
        let apart = self.split(&self.piece_shape(output, dim), dim);
        let parts: Result<Vec<ValueId>, Error> =
            pieces.iter().map(|&piece| self.view(graph, piece, output, &apart)).collect();
        let call = OpCall::new("cat").with("dim", Argument::Number(self.within(dim) as i64));
        let name = graph.fresh(&format!("{}.whole", self.program.get(output).name));
        let whole = graph.apply(&call, &parts?, &[&name])?[0];
        let from = self.view(graph, whole, output, self.program.get(output).shape())?;
        // The op's output is now the result of this statement.
        graph.push(GraphStatement::Move { from, to: output, along: Vec::new(), via: None })
    }

    /// Returns a view of a value in another shape, or the value itself if it has that shape.
    fn view(&self, graph: &mut Graph, v: ValueId, of: ValueId, shape: &[usize]) -> Result<ValueId, Error> {
        if graph.shape(v) == shape {
            return Ok(v);
        }
        let shape = shape.iter().map(|&n| n as i64).collect();
        let name = graph.fresh(&format!("{}.view", self.program.get(of).name));
        Ok(graph.apply(&OpCall::new("view").with("shape", Argument::Numbers(shape)), &[v], &[&name])?[0])
    }

    /// Returns the shape of a chunk of a value.
    fn piece_shape(&self, v: ValueId, dim: usize) -> Vec<usize> {
        let mut shape = self.program.get(v).shape().to_vec();
        shape[dim] /= self.pieces;
        shape
    }

    /// Returns a shape in which a dim is split into shards and shard elements, if there are several shards.
    fn split(&self, shape: &[usize], dim: usize) -> Vec<usize> {
        let mut split = shape.to_vec();
        if self.shards > 1 {
            split[dim] /= self.shards;
            split.insert(dim, self.shards);
        }
        split
    }

    /// Returns the dim of the elements within a shard, in such a shape.
    fn within(&self, dim: usize) -> usize {
        dim + usize::from(self.shards > 1)
    }

    /// Returns the type of a value for a chunk of it.
    fn typed(&self, v: ValueId, shape: &[usize]) -> Result<ShardingType, Error> {
        let of = |s: &Sharding| Sharding::parse(s.mesh(), shape, &s.to_string());
        let is = &self.program.get(v).ty;
        Ok(ShardingType::new(of(&is.value)?, is.gradient.as_ref().map(of).transpose()?))
    }

    fn name(&self, graph: &Graph, v: ValueId, piece: usize) -> String {
        let name = format!("{}.piece{piece}", self.program.get(v).name);
        if graph.knows(&name) { graph.fresh(&name) } else { name }
    }
}

/// Returns the block size of a dim if all ranks have equal blocks that start at multiples of it.
fn block(value: &Sharding, dim: usize) -> Option<usize> {
    let mut blocks = value.mesh().ranks().map(|rank| {
        let region = value.region(rank).ok()?;
        match &region.dims.get(dim)?[..] {
            [one] if one.start.is_multiple_of(one.len) => Some(one.len),
            _ => None,
        }
    });
    let first = blocks.next()??;
    blocks.all(|block| block == Some(first)).then_some(first)
}
