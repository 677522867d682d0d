//! Selects the redistributions for which overlap chunks are profitable, by the timeline.

use std::collections::BTreeMap;

use reshard_sharding::ShardingType;

use crate::graph::{Graph, ValueId};
use crate::schedule::{CompileOptions, Schedule, Timeline};
use crate::transforms::overlap_value::{Chunk, rewritten};
use crate::{Error, ImplicitRedistribution, Program, ShardingSolver};

impl Program {
    /// Returns the program with [overlap chunks](Program::overlap_value) where they save time.
    ///
    /// The number of chunks is the best one.
    /// For each redistribution and its op alone, all powers of two up to 32 are tried. The best of each are
    /// applied jointly if the whole program then takes less time by the [timeline](Timeline) of all ranks
    /// with these options.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, ComputeRates, schedule::CompileOptions};
    /// use reshard_planner::{Planner, Topology};
    /// let elaborator = ShardingSolver::new().planner(Planner::new().topology(Topology::h100())).rates(ComputeRates::h100());
    /// let program = elaborator.solve(&"
    ///     mesh tp=8
    ///     x: bf16[8192,8192] S(0)
    ///     w: bf16[8192,28672] S(1)
    ///     g: R = x
    ///     y: S(1) = mm(g, w)
    /// ".parse()?)?;
    /// let options = CompileOptions { in_flight_bytes: 1 << 30, ..CompileOptions::default() };
    /// let chunked = program.overlap(&options, &elaborator)?;
    /// assert_eq!(chunked.redistributions().filter(|m| m.forward.communicating_steps() > 0).count(), 8);
    /// // Without overlap, each redistribution ends where it begins.
    /// assert_eq!(program.overlap(&CompileOptions::default(), &elaborator)?.to_string(), program.to_string());
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn overlap(&self, options: &CompileOptions, elaborator: &ShardingSolver) -> Result<Program, Error> {
        if options.in_flight_bytes == 0 {
            return Ok(self.clone());
        }
        let mut known: BTreeMap<String, Option<usize>> = BTreeMap::new();
        let mut chunks: Vec<Chunk<'_>> = Vec::new();
        for chunk in Chunk::all(self, 1) {
            let alone = chunk.alone()?;
            let text = alone.to_string();
            let best = match known.get(&text) {
                Some(best) => *best,
                None => *known.entry(text).or_insert(best_alone(&alone, options, elaborator)?),
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

/// Returns the best number of chunks for one redistribution and one op; `None` if unsplit is best.
fn best_alone(
    graph: &Graph,
    options: &CompileOptions,
    elaborator: &ShardingSolver,
) -> Result<Option<usize>, Error> {
    let whole = elaborator.clone().implicit_redistribution(ImplicitRedistribution::Deny).solve(graph)?;
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

fn time_us(program: &Program, options: &CompileOptions, elaborator: &ShardingSolver) -> Result<f64, Error> {
    let schedules: Result<Vec<Schedule>, Error> =
        program.mesh().ranks().map(|rank| program.compile(rank, options)).collect();
    Ok(Timeline::of(&schedules?, &elaborator.rates)?.total_us())
}

impl Chunk<'_> {
    /// Returns a program of the redistribution and the op alone.
    fn alone(&self) -> Result<Graph, Error> {
        let Chunk { program, from, to, inputs, outputs, .. } = *self;
        let mut graph = Graph::on_meshes(program.meshes().clone(), program.table().clone());
        let without_gradient = |v: ValueId| ShardingType::new(program.get(v).ty.value.clone(), None);
        let input = |graph: &mut Graph, v: ValueId, name: String| {
            graph.input_with_type(&name, program.get(v).dtype, without_gradient(v))
        };
        let x = input(&mut graph, from, "x".to_owned())?;
        let mut takes = Vec::with_capacity(inputs.len());
        for (i, &v) in inputs.iter().enumerate() {
            takes.push(if v == to {
                graph.redistribute(x, "g", without_gradient(v))?
            } else {
                input(&mut graph, v, format!("w{i}"))?
            });
        }
        let names: Vec<String> = (0..outputs.len()).map(|o| format!("y{o}")).collect();
        self.computed(&mut graph, &takes, &names, |v, _| Ok(without_gradient(v)))?;
        Ok(graph)
    }
}
