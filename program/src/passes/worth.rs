//! Which moves are worth making in pieces, by the timeline.

use reshard_sharding::Type;

use crate::graph::{Graph, ValueId};
use crate::passes::chunk::{Chunk, rewritten};
use crate::program::Item;
use crate::schedule::{Options, Schedule, Timeline};
use crate::{Elaborator, Error, Moves, Program};

impl Program {
    /// The same program with [pieces](Program::chunked) where they are worth it, in the number of pieces that is best: of each move with its op alone all numbers to 32 that are powers of two are tried, and all
    /// together are taken where the whole takes less time than without, by the [timeline](Timeline) of all ranks with these options.
    ///
    /// ```
    /// use reshard_program::{Elaborator, Rates, schedule::Options};
    /// use reshard_planner::{Planner, Topology};
    /// let elaborator = Elaborator::new().planner(Planner::new().topology(Topology::h100())).rates(Rates::h100());
    /// let program = elaborator.elaborate(&"
    ///     mesh tp=8
    ///     x: bf16[8192,8192] S(0)
    ///     w: bf16[8192,28672] S(1)
    ///     g: R = x
    ///     y: S(1) = mm(g, w)
    /// ".parse()?)?;
    /// let options = Options { hoist_bytes: 1 << 30, ..Options::default() };
    /// let chunked = program.chunk(&options, &elaborator)?;
    /// assert_eq!(chunked.moves().filter(|m| m.forward.communicating_steps() > 0).count(), 8);
    /// // Nothing travels beside computing where each move ends where it begins.
    /// assert_eq!(program.chunk(&Options::default(), &elaborator)?.to_string(), program.to_string());
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn chunk(&self, options: &Options, elaborator: &Elaborator) -> Result<Program, Error> {
        if options.hoist_bytes == 0 {
            return Ok(self.clone());
        }
        let mut known: Vec<(String, Option<usize>)> = Vec::new();
        let mut chunks: Vec<Chunk<'_>> = Vec::new();
        for chunk in Chunk::all(self, 1) {
            let alone = chunk.alone()?;
            let text = alone.to_string();
            let best = if let Some((_, best)) = known.iter().find(|(of, _)| *of == text) {
                *best
            } else {
                let best = best_alone(&alone, options, elaborator)?;
                known.push((text, best));
                best
            };
            if let Some(pieces) = best {
                chunks.push(chunk.in_pieces(pieces));
            }
        }
        if chunks.is_empty() {
            return Ok(self.clone());
        }
        let program = rewritten(self, &chunks, elaborator)?;
        let is_less = time_us(&program, options, elaborator)? < time_us(self, options, elaborator)?;
        Ok(if is_less { program } else { self.clone() })
    }
}

/// In how many pieces a program of one move and one op takes least time; none where it takes least as it is.
fn best_alone(graph: &Graph, options: &Options, elaborator: &Elaborator) -> Result<Option<usize>, Error> {
    let whole = elaborator.clone().moves(Moves::Written).elaborate(graph)?;
    let mut best = (time_us(&whole, options, elaborator)?, None);
    for pieces in [2, 4, 8, 16, 32] {
        let Some(chunk) = Chunk::all(&whole, pieces).pop() else { continue };
        let us = time_us(&rewritten(&whole, &[chunk], elaborator)?, options, elaborator)?;
        if us < best.0 {
            best = (us, Some(pieces));
        }
    }
    Ok(best.1)
}

fn time_us(program: &Program, options: &Options, elaborator: &Elaborator) -> Result<f64, Error> {
    let schedules: Result<Vec<Schedule>, Error> =
        program.mesh().ranks().map(|rank| program.compile(rank, options)).collect();
    Ok(Timeline::of(&schedules?, &elaborator.rates)?.total_us())
}

impl Chunk<'_> {
    /// A program of the move and the op alone.
    fn alone(&self) -> Result<Graph, Error> {
        let items = self.program.items();
        let mut graph = Graph::on_meshes(self.program.meshes().clone(), self.program.table().clone());
        let (Item::Move { from, to, .. }, Item::Op { call, inputs, outputs, .. }) =
            (&items[self.moves], &items[self.computes])
        else {
            return Ok(graph);
        };
        let input = |graph: &mut Graph, v: ValueId, name: String| {
            let value = self.program.get(v);
            graph.input_of(&name, value.dtype, Type { gradient: None, ..value.is.clone() })
        };
        let x = input(&mut graph, *from, "x".to_owned())?;
        let mut takes = Vec::with_capacity(inputs.len());
        for (i, &v) in inputs.iter().enumerate() {
            takes.push(if v == *to {
                graph.moved(x, "g", Type { gradient: None, ..self.program.get(v).is.clone() })?
            } else {
                input(&mut graph, v, format!("w{i}"))?
            });
        }
        let names: Vec<String> = (0..outputs.len()).map(|o| format!("y{o}")).collect();
        let results = graph.apply(call, &takes, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (result, output) in results.into_iter().zip(outputs) {
            let value = self.program.get(*output);
            graph.values[result.index()].dtype = value.dtype;
            graph.pin(result, Type { gradient: None, ..value.is.clone() })?;
        }
        Ok(graph)
    }
}
