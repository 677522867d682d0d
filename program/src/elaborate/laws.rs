//! Tests that the joint search finds the cheapest program: compares with exhaustive enumeration.

use std::fmt::Write;

use reshard_planner::SearchBudget;
use reshard_test_support::{Random, Sweep};
use rustc_hash::FxHashMap;

use crate::elaborate::ahead::Ahead;
use crate::elaborate::lane::Tables;
use crate::elaborate::limits::Limits;
use crate::elaborate::moves::{Estimates, TypeId, Types};
use crate::elaborate::search::Shared;
use crate::elaborate::segment::{Facts, NEGLIGIBLE, Segment};
use crate::elaborate::ways::{Way, Ways};
use crate::graph::{GraphStatement, ValueId};
use crate::program::Program;
use crate::{ComputeRates, Graph, ShardingSolver};

/// Exhaustive search over the same strategies: states are not shared, and pruned only by cost.
///
/// An input comes from an available type, or from a copy made before in any type that some op could take it
/// in.
struct All<'a> {
    graph: &'a Graph,
    statements: &'a [GraphStatement],
    facts: &'a Facts,
    looked: &'a [Option<Shared>],
    best: u64,
}

impl All<'_> {
    fn from(&mut self, types: &mut Types, n: usize, at_hand: &FxHashMap<usize, Vec<TypeId>>, cost: u64) {
        if cost >= self.best {
            return;
        }
        let Some(statement) = self.statements.get(n) else {
            self.best = cost;
            return;
        };
        match statement {
            GraphStatement::Input(v) => {
                let is = self.facts.pinned(self.graph, *v).expect("an input has a type");
                let mut here = at_hand.clone();
                here.insert(v.0, vec![types.id(self.graph.dtype(*v), is)]);
                self.from(types, n + 1, &here, cost);
            }
            GraphStatement::Op { .. } => {
                let ways = self.looked[n].clone().expect("an op has strategies");
                for way in &ways.list {
                    self.with_input(types, n, way, 0, at_hand, cost + way.picoseconds);
                }
            }
            GraphStatement::Move { .. } | GraphStatement::Gradient { .. } | GraphStatement::NoGrad => {
                panic!("none here")
            }
        }
    }

    /// Tries the inputs of an op from number `i` on, and then its outputs.
    fn with_input(
        &mut self,
        types: &mut Types,
        n: usize,
        way: &Way,
        i: usize,
        at_hand: &FxHashMap<usize, Vec<TypeId>>,
        cost: u64,
    ) {
        let GraphStatement::Op { inputs, outputs, .. } = &self.statements[n] else { panic!("an op") };
        if cost >= self.best {
            return;
        }
        let (Some(v), Some(&wanted)) = (inputs.get(i), way.inputs.get(i)) else {
            let (mut here, mut cost) = (at_hand.clone(), cost);
            for (v, &made) in outputs.iter().zip(&way.outputs) {
                let pin = self.facts.pinned(self.graph, *v).map(|is| types.id(self.graph.dtype(*v), is));
                let is = pin.unwrap_or(made);
                let Some(more) = types.price(made, is) else { return };
                cost += more;
                here.insert(v.0, vec![is]);
            }
            return self.from(types, n + 1, &here, cost);
        };
        let known: Vec<TypeId> = at_hand[&v.0].clone();
        if known.contains(&wanted) {
            return self.with_input(types, n, way, i + 1, at_hand, cost);
        }
        // For a value that is not needed later, only the taken copy is made: a plan finds its own
        // intermediates.
        let again = inputs[i + 1..].contains(v) || self.facts.last[v.0] > n;
        let could_be = if again { self.could_be(*v) } else { Vec::new() };
        for first in core::iter::once(None).chain(could_be.into_iter().map(Some)) {
            let (mut known, mut cost): (Vec<TypeId>, u64) = (known.clone(), cost);
            for is in first.into_iter().chain([wanted]) {
                let Some(more) = known.iter().filter_map(|&from| types.price(from, is)).min() else {
                    continue;
                };
                cost += more;
                known.push(is);
            }
            if known.contains(&wanted) {
                let mut here = at_hand.clone();
                here.insert(v.0, known);
                self.with_input(types, n, way, i + 1, &here, cost);
            }
        }
    }

    /// Returns the types in which some op could take or produce a value.
    fn could_be(&self, v: ValueId) -> Vec<TypeId> {
        let mut out = Vec::new();
        for (statement, ways) in self.statements.iter().zip(self.looked) {
            let (GraphStatement::Op { inputs, outputs, .. }, Some(ways)) = (statement, ways) else {
                continue;
            };
            for way in &ways.list {
                let all = inputs.iter().zip(&way.inputs).chain(outputs.iter().zip(&way.outputs));
                out.extend(all.filter(|(of, _)| **of == v).map(|(_, is)| *is));
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// Returns a random program of ops on square matrices; with a second mesh, some values are on that.
pub(super) fn program(random: &mut Random, meshes: &[&str], ops: usize) -> String {
    let words = ["R", "I", "S(0)", "S(1)", "P"];
    let mut text = format!("mesh {}\n", meshes[0]);
    if let Some(second) = meshes.get(1) {
        writeln!(text, "mesh e: {second}").unwrap();
    }
    let typed = |random: &mut Random, words: &[&str]| {
        let second = meshes.len() > 1 && random.below(2) == 0;
        let axes = meshes[usize::from(second)].split(',').count();
        let placements: Vec<&str> = (0..axes).map(|_| *random.pick(words)).collect();
        format!("{}{}", placements.join(","), if second { " on e" } else { "" })
    };
    let mut values: Vec<String> = Vec::new();
    for i in 0..2 {
        writeln!(text, "x{i}: f32[512,512] {}", typed(random, &words)).unwrap();
        values.push(format!("x{i}"));
    }
    let calls = [
        "mm({a}, {b})",
        "add({a}, {b})",
        "mul({a}, {b})",
        "relu({a})",
        "softmax({a}, dim=1)",
        "transpose({a}, dim0=0, dim1=1)",
    ];
    for i in 0..ops {
        let (a, b) = (random.pick(&values).clone(), random.pick(&values).clone());
        let call = random.pick(&calls).replace("{a}", &a).replace("{b}", &b);
        let pin =
            if random.below(4) == 0 { format!(": {}", typed(random, &words[..4])) } else { String::new() };
        writeln!(text, "y{i}{pin} = {call}").unwrap();
        values.push(format!("y{i}"));
    }
    text
}

/// Runs `then` on the only segment of a text without gradients, and the program before it.
fn with_segment<A>(text: &str, then: impl FnOnce(&mut Segment<'_>, Program) -> A) -> A {
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
    let mut known = FxHashMap::default();
    let made_on = graph.made_on();
    let program = Program::new(&graph.meshes, &graph.table);
    let mut segment = Segment {
        graph: &graph,
        made_on: &made_on,
        statements: &graph.statements,
        trains: true,
        strict: false,
        wanted: None,
        known: &mut known,
        held: None,
    };
    then(&mut segment, program)
}

/// Runs `ask` on that segment, with its facts.
fn of_segment<A>(
    text: &str,
    elaborator: &ShardingSolver,
    ask: impl FnOnce(&Segment<'_>, &Facts, &mut Types, &mut Ways) -> A,
) -> A {
    let mut types = Types::new(&elaborator.planner);
    with_segment(text, |segment, program| {
        let mut ways = Ways::new(&elaborator.planner, &program.table, elaborator.rates);
        let facts = segment.facts(&program).unwrap();
        ask(segment, &facts, &mut types, &mut ways)
    })
}

/// Returns the cost of the search, that of the exhaustive search over the same strategies, and the bound.
fn both(text: &str) -> (u64, u64, u64) {
    let elaborator = ShardingSolver::new().beam_width(usize::MAX);
    of_segment(text, &elaborator, |segment, facts, types, ways| {
        let Segment { graph, statements, .. } = *segment;
        let least: Vec<u64> =
            (0..statements.len()).map(|n| segment.least(&elaborator, ways, facts, n)).collect();
        let hasty = segment.search(&elaborator, types, ways, facts, &least, &Limits::hasty()).unwrap();
        let bound = hasty.frontier.least();
        let mut factors = segment.factors(types, facts, &hasty.looked, Estimates::Count);
        factors.bound(u64::MAX);
        let ahead = Some(Ahead::new(factors, types, statements.len()));
        let could_be = hasty.frontier.seen;
        let limits = Limits { known: bound, could_be, ahead, work: u64::MAX, most: usize::MAX };
        let found = segment.search(&elaborator, types, ways, facts, &least, &limits).unwrap();
        assert_eq!(found.frontier.bound_of_all(), found.frontier.least(), "nothing was dropped");
        let mut all = All { graph, statements, facts, looked: &found.looked, best: bound + 1 };
        all.from(types, 0, &FxHashMap::default(), 0);
        let bound = segment.factors(types, facts, &found.looked, Estimates::Count).bound(u64::MAX);
        (found.frontier.least(), all.best, bound)
    })
}

/// Returns the cost of the statements that are written.
fn written(text: &str) -> u64 {
    let elaborator = ShardingSolver::new().beam_width(usize::MAX);
    with_segment(text, |segment, mut program| {
        let mut tables = Tables::new(&elaborator, segment.graph);
        segment.elaborate(&elaborator, &mut program, &mut tables).unwrap().0
    })
}

#[test]
fn a_choice_is_the_cheapest_of_all_and_the_bound_is_near() {
    let sweep = Sweep::asked();
    let (mut all, mut near) = (0, 0);
    let meshes: [(&[&str], usize, u64); 6] = [
        (&["x=4"], 6, 40),
        (&["x=3"], 6, 20),
        (&["x=2,y=2"], 3, 12),
        (&["x=2,y=3"], 3, 6),
        (&["x=4", "z=2@2"], 3, 12),
        (&["x=2,y=2", "z=4"], 2, 6),
    ];
    for (meshes, most, times) in meshes {
        for case in
            (0..if sweep.is_exhaustive() { 8 * times } else { times }).filter(|&case| sweep.takes(case))
        {
            let mut random = Random(case * 31 + most as u64);
            let ops = 1 + random.below(most);
            let text = program(&mut random, meshes, ops);
            let (found, least, bound) = both(&text);
            assert_eq!(found, least, "{text}");
            let written = written(&text);
            assert!(written.abs_diff(least) <= NEGLIGIBLE, "{text}{written} is written, {least} is least");
            assert!(bound <= least, "{text}{bound} > {least}");
            all += 1;
            near += u64::from(least - bound <= least / 100);
        }
    }
    assert!(near * 4 >= all * 3, "{near} of {all} bounds are within 1 % of the least");
}

#[test]
fn the_least_computing_of_an_op_is_at_most_that_of_its_strategies() {
    let sides = ["4,4096", "4096,4", "4,4", "512,512", "3,5"];
    let calls = [
        "transpose(x, dim0=0, dim1=1)",
        "permute(x, dims=[1,0])",
        "sum(x, dims=[0])",
        "amax(x, dims=[1])",
        "flip(x, dims=[0])",
        "relu(x)",
        "softmax(x, dim=1)",
        "mm(x, w)",
    ];
    for (side, call) in sides.iter().flat_map(|side| calls.map(|call| (side, call))) {
        for of_x in ["S(0),R", "S(0),S(0)", "S(1),S(1)", "S(0),S(1)"] {
            let columns = side.split(',').next_back().unwrap();
            let text = format!("mesh x=2,y=2\nx: f32[{side}] {of_x}\nw: f32[{columns},8] R,R\ny = {call}\n");
            let elaborator = ShardingSolver::new();
            let (least, cheapest) = of_segment(&text, &elaborator, |segment, facts, types, ways| {
                let least: Vec<u64> = (0..3).map(|n| segment.least(&elaborator, ways, facts, n)).collect();
                let found =
                    segment.search(&elaborator, types, ways, facts, &least, &Limits::hasty()).unwrap();
                let cheapest = found.looked[2].as_ref().unwrap().list.iter().map(|way| way.picoseconds).min();
                (least[2], cheapest.unwrap())
            });
            assert!(least <= cheapest, "{text}{least} > {cheapest}");
        }
    }
}

/// Returns equal layers, each with a separate weight.
fn layers(random: &mut Random, mesh: &str, count: usize) -> String {
    let axes = mesh.split(',').count();
    let words = ["R", "I", "S(0)", "S(1)"];
    let mut drawn = || -> String {
        let placements: Vec<&str> = (0..axes).map(|_| *random.pick(&words)).collect();
        placements.join(",")
    };
    let (x, w) = (drawn(), drawn());
    let last = ["add", "mul", "mm"][random.below(3)];
    let mut text = format!("mesh {mesh}\nh0: f32[512,512] {x}\n");
    for n in 1..=count {
        let before = n - 1;
        writeln!(text, "w{n}: f32[512,512] {w}\na{n} = mm(h{before}, w{n})\nb{n} = relu(a{n})").unwrap();
        writeln!(text, "h{n} = {last}(b{n}, h{before})").unwrap();
    }
    text
}

/// Returns the cost of a program, its gap, and `true` if some prices were estimates.
///
/// `looks` is the budget of rank-by-rank pricing.
fn uneven(text: &str, looks: u64) -> (u64, u64, bool) {
    let elaborator = ShardingSolver::new();
    with_segment(text, |segment, mut program| {
        let budget = SearchBudget::new(looks);
        let mut tables = Tables::new(&elaborator, segment.graph).within(&elaborator.planner, budget);
        let (cost, _) = segment.elaborate(&elaborator, &mut program, &mut tables).unwrap();
        (cost, program.gap, tables.types.stand_in())
    })
}

#[test]
fn no_given_type_makes_a_program_cheaper_than_its_bound() {
    let sweep = Sweep::asked();
    let (mut refused, mut dearer) = (0, 0);
    let cases = if sweep.is_exhaustive() { 1200 } else { 150 };
    for case in (0..cases).filter(|&case| sweep.takes(case)) {
        let mut random = Random(case * 97 + 11);
        let mesh = *random.pick(&["x=2,y=4", "x=2,y=2", "x=2,y=3"]);
        let ops = 3 + random.below(4);
        let side = *random.pick(&["64", "256", "33"]);
        let mut text = program(&mut random, &[mesh], ops).replace("512", side);
        let last = format!("y{}", ops - 1);
        writeln!(text, "s0 = sum({last})\ns1 = sum(y{})\nt = add(s0, s1)", random.below(ops)).unwrap();
        let line = format!("\ny{} =", random.below(ops));
        if !text.contains(&line) {
            continue;
        }
        let words = ["R", "I", "S(0)", "S(1)"];
        let ty = format!("{},{}", random.pick(&words), random.pick(&words));
        let given = text.replace(&line, &line.replace(" =", &format!(": {ty} =")));
        let solved = |text: &str| {
            let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
            ShardingSolver::new().solve(&graph).ok()
        };
        let cost = |program: &Program| program.report(&ComputeRates::uniform()).total_us();
        let (Some(free), Some(fixed)) = (solved(&text), solved(&given)) else {
            refused += 1;
            continue;
        };
        let bound = cost(&free) - free.optimality_gap_us();
        dearer += usize::from(cost(&fixed) > cost(&free) + 1e-3);
        assert!(cost(&fixed) >= bound - 2e-3, "{given}{} is below {bound}", cost(&fixed));
    }
    assert!(dearer > 20 * refused, "{dearer} cost more, {refused} failed");
}

#[test]
fn where_prices_stand_in_the_gap_covers_what_is_lost() {
    let (mut stood, mut lost) = (0, 0);
    let sweep = Sweep::asked();
    for case in 0..sweep.count(24, 240) {
        let mut random = Random(case * 13 + 3);
        let ops = 1 + random.below(3);
        let mesh = ["x=4", "x=3", "x=2,y=3"][case as usize % 3];
        let side = ["5", "7", "33"][case as usize / 3 % 3];
        let text = program(&mut random, &[mesh], ops).replace("512", side);
        let (exact, _, stands_in) = uneven(&text, u64::MAX);
        assert!(!stands_in, "{text}");
        let (cost, claimed, stands_in) = uneven(&text, 0);
        stood += u64::from(stands_in);
        lost += u64::from(cost > exact);
        assert!(cost - claimed <= exact, "{text}{cost} - {claimed}, {exact}");
    }
    assert!(stood >= 8 && lost > 0, "{stood} approximated programs, of which {lost} cost more");
}

#[test]
fn a_search_that_would_not_finish_goes_on_in_haste() {
    let elaborator = ShardingSolver::new();
    for case in 0..Sweep::asked().count(1, 8) {
        let of = |count: usize| {
            let text = layers(&mut Random(case * 17 + 5), "x=2,y=2", count);
            of_segment(&text, &elaborator, |segment, facts, types, ways| {
                let least = vec![0; segment.statements.len()];
                let search = |types: &mut Types, ways: &mut Ways, limits: &Limits| {
                    segment.search(&elaborator, types, ways, facts, &least, limits).unwrap().frontier
                };
                let hasty = search(types, ways, &Limits::hasty());
                let limits =
                    Limits { known: hasty.least(), could_be: hasty.seen.clone(), ..Limits::thorough(256) };
                search(types, ways, &limits).gave_up()
            })
        };
        assert!(!of(2), "case {case}: two layers");
        assert!(of(100), "case {case}: a hundred layers");
    }
}
