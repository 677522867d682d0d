//! A move and the op that takes what it makes in pieces, so that one piece travels while another is computed.
//!
//! ```text
//! g = x, moved          x_i = piece i of x         g_i = x_i, moved         y_i = f(g_i, ..)         y = the pieces together
//! y = f(g, ..)
//! ```
//!
//! The pieces are along a dim of `g` that the op [carries](reshard_ops::rules::Op::carried) whole into all that it makes and has in nothing else that it takes:
//! a row `S(d),R.. -> S(e)..` says that each part of the dim is computed from that part alone. So no bit changes.
//!
//! **Where the dim is cut** over `n` shards of `x`, a piece is a part of every shard, and all ranks have as much to do: the dim is seen as `(n, D / n)`, and pieces are
//! along the second of these. What `g` and `y` cut has to be in blocks of whole shards.
//!
//! What it costs: `x` and `y` are copied once more, in pieces. What it is worth a [timeline](crate::schedule::Timeline) says.

use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::{Sharding, ShardingType};

use crate::graph::{Graph, GraphStatement, ValueId, gradient_of};
use crate::program::Statement;
use crate::{Error, ImplicitRedistribution, Program, ShardingSolver};

/// The most pieces.
const MOST_PIECES: usize = 1 << 10;

impl Program {
    /// The same program, in which what a move makes is moved, and computed with, in so many pieces: behind computing one piece the next can be
    /// moved, with [`hoist_bytes`](crate::schedule::Options::hoist_bytes).
    ///
    /// ```
    /// use reshard_program::{Elaborator, Program};
    /// let elaborator = Elaborator::new();
    /// let program = elaborator.elaborate(&"
    ///     mesh tp=2
    ///     x: f32[8,16] S(0)
    ///     w: f32[16,32] S(1)
    ///     g: R = x
    ///     y: S(1) = mm(g, w)
    /// ".parse()?)?;
    /// let g = program.value("g").unwrap_or_else(|| unreachable!());
    /// let pieces = program.chunked(g, 2, &elaborator)?;
    /// assert_eq!(pieces.moves().filter(|m| m.forward.communicating_steps() > 0).count(), 2);
    /// assert!(pieces.to_string().contains("y.piece1: S(1) = mm(g.piece1, w)"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Requires the elaborator by which the program was made. Fails where what is given is not made by a move in which ranks talk to each other, on one mesh, where not
    /// exactly one op takes it, and where that op has no dim that can be in so many pieces.
    pub fn overlap_value(
        &self,
        moved: ValueId,
        pieces: usize,
        elaborator: &ShardingSolver,
    ) -> Result<Program, Error> {
        check(pieces)?;
        rewritten(self, &[Chunk::of(self, moved, pieces)?], elaborator)
    }

    /// The same with all that can be in so many pieces.
    ///
    /// Fails for fewer than two and for more than 1024 pieces.
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
        reason: format!("what is moved can be in 2 to {MOST_PIECES} pieces, and not in {pieces}"),
    })
}

/// The program with these pieces.
pub(super) fn rewritten(
    program: &Program,
    chunks: &[Chunk<'_>],
    elaborator: &ShardingSolver,
) -> Result<Program, Error> {
    let mut graph = program.graph()?;
    let statements = core::mem::take(&mut graph.statements);
    // Statements are items, one by one.
    for (n, statement) in statements.into_iter().enumerate() {
        match chunks.iter().find(|chunk| chunk.moves == n || chunk.computes == n) {
            None => graph.push(statement)?,
            Some(chunk) if chunk.computes == n => chunk.add_to(&mut graph)?,
            Some(_) => {}
        }
    }
    elaborator.clone().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph)
}

/// A move and an op that are to be in pieces.
pub(super) struct Chunk<'a> {
    pub(super) program: &'a Program,
    pub(super) pieces: usize,
    /// The numbers of the items.
    moves: usize,
    computes: usize,
    /// What is moved, and what that becomes.
    pub(super) from: ValueId,
    pub(super) to: ValueId,
    /// What the op takes and makes.
    call: &'a OpCall,
    pub(super) inputs: &'a [ValueId],
    pub(super) outputs: &'a [ValueId],
    /// Which of what the op takes is moved.
    operand: usize,
    /// The dim of what is moved and of each output.
    dim: usize,
    dims: Vec<usize>,
    /// Over how many shards of what is moved the dim is cut.
    shards: usize,
}

impl<'a> Chunk<'a> {
    fn of(program: &'a Program, moved: ValueId, pieces: usize) -> Result<Chunk<'a>, Error> {
        let items = program.statements();
        let refused = |reason: String| Err(Error::Graph { reason });
        let name = program.values().get(moved.index()).map_or("", |v| v.name.as_str());
        let makes = items.iter().enumerate().find_map(|(n, item)| match item {
            // What travels narrower is more than a move.
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
                "{name} is made by no move of one mesh in which ranks talk to each other: name what one makes"
            ));
        };
        let takers: Vec<usize> = (0..items.len()).filter(|&n| items[n].inputs().contains(&moved)).collect();
        let [computes] = takers[..] else {
            let made = takers.iter().filter_map(|&n| items[n].outputs().first());
            let names: Vec<&str> = made.map(|v| program.get(*v).name.as_str()).collect();
            return refused(format!(
                "{name} is taken by {} ops and moves ({}), and only what one op takes can be in pieces: gather it once for each",
                names.len(),
                names.join(", ")
            ));
        };
        let Statement::Op { call, op, inputs, outputs, strategy, .. } = &items[computes] else {
            return refused(format!("{name} is moved on, and no op takes it: name what that move makes"));
        };
        let operand = inputs.iter().position(|v| *v == moved).unwrap_or(0);
        if strategy.region || inputs.iter().filter(|v| **v == moved).count() > 1 {
            return refused(format!("{} takes {name} as a whole", op.name()));
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
            "{} has no dim of {name} that can be in {pieces} pieces: one that all it makes has, nothing else that it takes, and of which every shard is one block and a multiple of that",
            op.name()
        ))
    }

    /// The same with its number of shards, if pieces are what they are to be: a part of each shard of what is moved, which what comes of it holds in blocks
    /// of whole shards, and of which the op makes the same part.
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
        // The same call on a piece makes that piece of the outputs.
        let mut shapes: Vec<Vec<usize>> = inputs.iter().map(|v| program.get(*v).shape().to_vec()).collect();
        shapes[self.operand] = self.piece_shape(to, dim);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let op = program.table().op(self.call, &shapes).ok()?;
        let pieces: Vec<Vec<usize>> = made().map(|(v, dim)| self.piece_shape(v, dim)).collect();
        let fits = shard.is_multiple_of(self.pieces) && op.outputs() == pieces;
        fits.then(|| Chunk { shards: program.get(from).shape()[dim] / shard, ..self })
    }

    /// The same in another number of pieces, which divides every shard.
    pub(super) fn in_pieces(self, pieces: usize) -> Chunk<'a> {
        Chunk { pieces, ..self }
    }

    /// All that can be in so many pieces: each move with an op of its own.
    pub(super) fn all(program: &'a Program, pieces: usize) -> Vec<Chunk<'a>> {
        // What is asked for by its name, as the gradient of a value, stays whole.
        let is_gradient =
            |v: &ValueId| gradient_of(&program.get(*v).name).is_some_and(|of| program.value(of).is_some());
        let moved = program.statements().iter().filter_map(|item| match item {
            Statement::Redistribute { to, .. } if is_gradient(to) => None,
            Statement::Redistribute { to, .. } => Chunk::of(program, *to, pieces).ok(),
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => None,
        });
        let mut all: Vec<Chunk<'a>> = Vec::new();
        for chunk in moved {
            // Of an op that takes two such values the first.
            if all.iter().all(|known| known.computes != chunk.computes) {
                all.push(chunk);
            }
        }
        all
    }

    /// Adds the pieces in place of the move and the op.
    fn add_to(&self, graph: &mut Graph) -> Result<(), Error> {
        let Chunk { program, from, to, inputs, outputs, dim, .. } = *self;
        let apart = self.view(graph, from, from, &self.split(program.get(from).shape(), dim))?;
        let mut made: Vec<Vec<ValueId>> = vec![Vec::new(); outputs.len()];
        // All pieces first: what is moved then waits for no call.
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

    /// What the op makes of these, of the types that are said of its outputs in the shapes that come out.
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

    /// A piece of what is moved, of its shards [apart](Chunk::split).
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

    /// The pieces of an output as what they are pieces of.
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
        // What was made by the op is now what this is.
        graph.push(GraphStatement::Move { from, to: output, along: Vec::new(), via: None })
    }

    /// A value as one of another shape, if it has not that shape.
    fn view(&self, graph: &mut Graph, v: ValueId, of: ValueId, shape: &[usize]) -> Result<ValueId, Error> {
        if graph.shape(v) == shape {
            return Ok(v);
        }
        let shape = shape.iter().map(|&n| n as i64).collect();
        let name = graph.fresh(&format!("{}.view", self.program.get(of).name));
        Ok(graph.apply(&OpCall::new("view").with("shape", Argument::Numbers(shape)), &[v], &[&name])?[0])
    }

    /// The shape of a piece of a value.
    fn piece_shape(&self, v: ValueId, dim: usize) -> Vec<usize> {
        let mut shape = self.program.get(v).shape().to_vec();
        shape[dim] /= self.pieces;
        shape
    }

    /// A shape in which a dim is shards, where there are several, and what is in each.
    fn split(&self, shape: &[usize], dim: usize) -> Vec<usize> {
        let mut split = shape.to_vec();
        if self.shards > 1 {
            split[dim] /= self.shards;
            split.insert(dim, self.shards);
        }
        split
    }

    /// The dim of what is in each shard, of such a shape.
    fn within(&self, dim: usize) -> usize {
        dim + usize::from(self.shards > 1)
    }

    /// The type of a value for a piece of it.
    fn typed(&self, v: ValueId, shape: &[usize]) -> Result<ShardingType, Error> {
        let of = |s: &Sharding| Sharding::parse(s.mesh(), shape, &s.to_string());
        let is = &self.program.get(v).ty;
        Ok(ShardingType { value: of(&is.value)?, gradient: is.gradient.as_ref().map(of).transpose()? })
    }

    fn name(&self, graph: &Graph, v: ValueId, piece: usize) -> String {
        let name = format!("{}.piece{piece}", self.program.get(v).name);
        if graph.knows(&name) { graph.fresh(&name) } else { name }
    }
}

/// The block of a dim that each rank has, where all are as large and each is a multiple of it from the beginning.
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
