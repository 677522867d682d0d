//! Exchanges that are one collective of contiguous blocks: all members find the same one, and the collective,
//! run by its definition on the members' buffers, has the result of the exchange.

use std::collections::BTreeMap;
use std::ops::Range;

use reshard_collectives::{Collective, CompiledPlan, Exchange};
use reshard_kernels::{DType, LoopNest, PreparedCombine};
use reshard_layout::Mode;
use reshard_planner::{Objective, Planner, StepOp};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;

/// The members' buffers, by rank.
type Buffers = BTreeMap<usize, Vec<u8>>;

fn kind(collective: &Collective) -> &'static str {
    match collective {
        Collective::AllGather { .. } => "all_gather",
        Collective::AllToAll { .. } => "all_to_all",
        Collective::ReduceScatter { .. } => "reduce_scatter",
        Collective::AllReduce { .. } => "all_reduce",
    }
}

/// Returns the target by messages: the reference.
fn by_receives(exchange: &Exchange, sources: &Buffers) -> Vec<u8> {
    let mut target = vec![0; exchange.target_bytes()];
    exchange.init_target(&mut target).unwrap();
    for receive in exchange.receives() {
        receive.take(&mut target, &sources[&receive.peer()]).unwrap();
    }
    exchange.finalize_target(&mut target).unwrap();
    target
}

/// Returns the target by the collective's definition, from every member's own description.
fn by_definition(exchange: &Exchange, all: &BTreeMap<usize, &Exchange>, sources: &Buffers) -> Vec<u8> {
    let mut target = vec![0; exchange.target_bytes()];
    let me = exchange.group_rank(exchange.rank()).unwrap();
    let others =
        || exchange.members().iter().map(|member| (all[member].collective().unwrap(), &sources[member]));
    match exchange.collective().unwrap() {
        Collective::AllGather { theirs, .. } => {
            for (into, (its, source)) in theirs.iter().zip(others()) {
                let Collective::AllGather { mine, .. } = its else { panic!("{its:?}") };
                target[into.clone()].copy_from_slice(&source[mine.clone()]);
            }
        }
        Collective::AllToAll { into, .. } => {
            for (into, (its, source)) in into.iter().zip(others()) {
                let Collective::AllToAll { out, .. } = its else { panic!("{its:?}") };
                target[into.clone()].copy_from_slice(&source[out[me].clone()]);
            }
        }
        Collective::ReduceScatter { mine, reduction, .. } => {
            let terms = others().map(|(its, source)| {
                let Collective::ReduceScatter { theirs, .. } = its else { panic!("{its:?}") };
                &source[theirs[me].clone()]
            });
            reduce(&mut target, mine, reduction.dtype, reduction.op, terms);
        }
        Collective::AllReduce { target: into, reduction, .. } => {
            let terms = others().map(|(its, source)| {
                let Collective::AllReduce { source: from, .. } = its else { panic!("{its:?}") };
                &source[from.clone()]
            });
            reduce(&mut target, into, reduction.dtype, reduction.op, terms);
        }
    }
    exchange.finalize_target(&mut target).unwrap();
    target
}

fn reduce<'a>(
    target: &mut [u8],
    into: &Range<usize>,
    dtype: DType,
    op: reshard_kernels::CombineOp,
    terms: impl Iterator<Item = &'a [u8]>,
) {
    let target = &mut target[into.clone()];
    let count = target.len() / dtype.element_bytes().unwrap();
    for (i, term) in terms.enumerate() {
        if i == 0 {
            target.copy_from_slice(term);
        } else {
            let nest = LoopNest::new(0, 0, [Mode::new(count as i64, (1, 1))]);
            PreparedCombine::new(&nest, dtype, op).unwrap().run(target, term).unwrap();
        }
    }
}

#[test]
fn collectives_are_what_their_exchanges_are() {
    let texts = ["R", "S(0)", "S(1)", "P(sum)", "SS(0,2)", "P(avg)"];
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut none = 0;
    for mesh in ["x=2,y=2", "x=2:1,y=3:2", "x=4", "x=2,y=2,z=2", "x=3@2"] {
        let mesh: Mesh = mesh.parse().unwrap();
        let axes = mesh.axes().len();
        let kinds = if axes == 3 { 4 } else { texts.len() };
        let all: Vec<String> = (0..kinds.pow(axes as u32))
            .map(|n| {
                let one = |axis: usize| texts[n / kinds.pow(axis as u32) % kinds];
                (0..axes).map(one).collect::<Vec<_>>().join(",")
            })
            .collect();
        for shape in [&[12, 24][..], &[7, 5], &[0, 3]] {
            let shardings: Vec<Sharding> =
                all.iter().filter_map(|text| Sharding::parse(&mesh, shape, text).ok()).collect();
            for (n, (from, to)) in
                shardings.iter().flat_map(|from| shardings.iter().map(move |to| (from, to))).enumerate()
            {
                if axes == 3 && n % 7 != 0 || !Sweep::asked().picks(8, n) {
                    continue;
                }
                let objective = Objective::ALL[n % 3];
                let Ok(plan) = Planner::new().objective(objective).plan(from, to, DType::F32) else {
                    continue;
                };
                let ranks: Vec<CompiledPlan> =
                    plan.ranks().into_iter().map(|rank| CompiledPlan::new(&plan, rank).unwrap()).collect();
                let mut together: BTreeMap<_, BTreeMap<usize, &Exchange>> = BTreeMap::new();
                for exchange in ranks.iter().flat_map(CompiledPlan::exchanges_and_all_reduces) {
                    let is_whole = matches!(exchange.collective(), Some(Collective::AllReduce { .. }));
                    let key = (exchange.step(), exchange.phase(), is_whole, exchange.members().to_vec());
                    together.entry(key).or_default().insert(exchange.rank(), exchange);
                }
                for ((step, ..), members) in &together {
                    let kinds: Vec<Option<&str>> =
                        members.values().map(|exchange| exchange.collective().map(kind)).collect();
                    assert!(kinds.iter().all(|k| *k == kinds[0]), "step {step} of\n{plan}\n{kinds:?}");
                    let Some(kind) = kinds[0] else {
                        none += 1;
                        continue;
                    };
                    let source = |exchange: &&Exchange| -> Vec<u8> {
                        let numbers = 0..exchange.source_bytes() / 4;
                        let salt = exchange.rank() as f32 * 100.0;
                        numbers.flat_map(|i| (salt + i as f32).to_ne_bytes()).collect()
                    };
                    let sources: Buffers =
                        members.iter().map(|(rank, exchange)| (*rank, source(exchange))).collect();
                    for exchange in members.values() {
                        let right = by_receives(exchange, &sources);
                        assert!(
                            right == by_definition(exchange, members, &sources),
                            "step {step} of\n{plan}"
                        );
                    }
                    *seen.entry(kind).or_default() += 1;
                }
            }
        }
    }
    println!("{seen:?}, not contiguous {none}");
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn the_plain_ones_are_recognised() {
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let kinds = |shape: &[usize], from: &str, to: &str| -> Vec<Option<&str>> {
        let parse = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
        let plan = Planner::new().plan(&parse(from), &parse(to), DType::F32).unwrap();
        let compiled = CompiledPlan::new(&plan, 2).unwrap();
        compiled.exchanges_and_all_reduces().map(|exchange| exchange.collective().map(kind)).collect()
    };
    assert_eq!(kinds(&[8, 4], "S(0)", "R"), [Some("all_gather")]);
    assert_eq!(kinds(&[8, 4], "S(1)", "R"), [None]);
    assert_eq!(kinds(&[8, 4], "P", "S(0)"), [Some("reduce_scatter")]);
    let large = [1 << 20];
    assert_eq!(kinds(&large, "P", "R"), [Some("reduce_scatter"), Some("all_gather"), Some("all_reduce")]);
    assert_eq!(kinds(&[7], "P", "R"), [Some("reduce_scatter"), Some("all_gather"), Some("all_reduce")]);
    // One row of a rank's block for each peer: the target is strided.
    assert_eq!(kinds(&[8, 4], "S(0)", "S(1)"), [None]);
    let plan = Planner::new();
    let parse = |text: &str| Sharding::parse(&mesh, &[8, 4], text).unwrap();
    let plan = plan.plan(&parse("S(0)"), &parse("S(1)"), DType::F32).unwrap();
    let compiled = CompiledPlan::new(&plan, 2).unwrap();
    assert_eq!(compiled.exchanges().next().unwrap().op(), Some(StepOp::AllToAll));
}
