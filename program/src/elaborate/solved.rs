//! Equal segments are solved once: the layers of a model, and the gradients of equal statements.

use std::sync::Arc;

use reshard_kernels::DType;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::search::Shared;
use crate::elaborate::segment::{Facts, Segment};
use crate::elaborate::states::Choice;
use crate::elaborate::ways::Ways;
use crate::graph::{GraphStatement, ValueId};
use crate::local_type::Along;

/// The choices for a segment.
#[derive(Debug)]
pub(crate) struct Solved {
    /// The strategies of each op that were considered.
    pub(crate) looked: Vec<Option<Shared>>,
    /// The choices, in order.
    pub(crate) best: Vec<Choice>,
    /// A lower bound on the cost of all, in picoseconds.
    pub(crate) bound: u64,
}

/// The segments solved so far.
pub(crate) type SolvedSegments = FxHashMap<Likeness, Arc<Solved>>;

/// All that the search over a segment depends on, with values by position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Likeness {
    outside: Vec<(u32, TypeId)>,
    statements: Vec<Like>,
}

/// The same of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Like {
    kind: Kind,
    takes: SmallVec<[u32; 4]>,
    makes: SmallVec<[u32; 2]>,
    /// The required types of the values that it makes.
    pins: SmallVec<[Option<TypeId>; 2]>,
    least: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Input,
    Redistribution {
        along: Option<Vec<(usize, Along)>>,
        via: Option<DType>,
    },
    /// The number of its strategy query, the available types of an op whose strategy is given, and its mesh.
    Op(u32, Option<SmallVec<[AtHand; 4]>>, usize),
    Other,
}

impl Segment<'_> {
    /// Returns what the search over this segment depends on; `least` is the least computing of each statement.
    pub(super) fn likeness(
        &self,
        types: &mut Types,
        ways: &mut Ways,
        facts: &Facts,
        least: &[u64],
    ) -> Likeness {
        let mut numbers: FxHashMap<ValueId, u32> = FxHashMap::default();
        let mut number = |v: &ValueId| {
            let next = numbers.len() as u32;
            *numbers.entry(*v).or_insert(next)
        };
        let outside = facts.outside.iter().map(|(v, is)| {
            let id = types.id(self.graph.dtype(*v), Arc::clone(is));
            (number(v), id)
        });
        let outside = outside.collect();
        let of = |(n, statement): (usize, &GraphStatement)| {
            let plain = self.plain(types, ways, (facts, n), &[]);
            let kind = match statement {
                GraphStatement::Input(_) => Kind::Input,
                GraphStatement::Move { to, along, via, .. } => Kind::Redistribution {
                    along: self.graph.moves_partly(along, *to).then(|| along.clone()),
                    via: *via,
                },
                GraphStatement::Op { .. } => Kind::Op(plain.question, plain.given.clone(), plain.on),
                GraphStatement::Gradient { .. } | GraphStatement::NoGrad => Kind::Other,
            };
            Like {
                kind,
                takes: statement.takes().iter().map(&mut number).collect(),
                makes: statement.makes().iter().map(&mut number).collect(),
                pins: plain.outputs.iter().map(|(_, pin)| *pin).collect(),
                least: least[n],
            }
        };
        let statements = self.statements.iter().enumerate().map(of).collect();
        Likeness { outside, statements }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use crate::elaborate::lane::Tables;
    use crate::{Graph, ShardingSolver};

    /// Returns a step of these layers; each has its activation, and the type of its weight.
    fn step(layers: &[(&str, &str)]) -> Graph {
        let mut text = "mesh a=2,b=2\nh0: f32[64,64] S(0),R\n".to_owned();
        for (n, (act, is)) in layers.iter().enumerate() {
            writeln!(text, "w{n}: f32[64,64] {is}\na{n} = mm(h{n}, w{n})\nh{} = {act}(a{n})", n + 1).unwrap();
        }
        write!(text, "loss = sum(h{})\ngradient loss", layers.len()).unwrap();
        text.parse().unwrap()
    }

    /// Returns the program, and the number of segments that were solved.
    fn solved(graph: &Graph, tables: &mut Tables) -> (String, usize) {
        let program = ShardingSolver::new().solve_with(graph, tables).unwrap();
        (program.to_string(), tables.ways.solved.len())
    }

    #[test]
    fn equal_layers_are_solved_once() {
        let of = |graph: &Graph| solved(graph, &mut Tables::new(&ShardingSolver::new(), graph)).1;
        let same = |layers| step(&vec![("exp", "S(1),R"); layers]);
        let (few, many) = (of(&same(4)), of(&same(12)));
        assert!(many <= few + 1, "{few} segments of 4 layers, {many} of 12");
        let differ = [("exp", "S(1),R"), ("exp", "S(0),R"), ("exp", "R,S(1)"), ("silu", "S(1),R")];
        assert!(of(&step(&differ)) > few, "types and ops count");
    }

    #[test]
    fn tables_of_other_programs_change_no_answer() {
        let is = ["S(0),R", "S(1),R", "R,S(0)", "I,S(1)", "S(0),S(1)", "R,R"];
        let acts = ["exp", "silu", "relu"];
        let graphs: Vec<Graph> = (0..24)
            .map(|n| {
                step(&[(acts[n % 3], is[n % 6]), (acts[n % 2], is[n / 2 % 6]), (acts[n % 3], is[n % 6])])
            })
            .collect();
        let mut shared = Tables::new(&ShardingSolver::new(), &graphs[0]);
        for graph in &graphs {
            let alone = solved(graph, &mut Tables::new(&ShardingSolver::new(), graph)).0;
            assert_eq!(solved(graph, &mut shared).0, alone);
        }
    }
}
