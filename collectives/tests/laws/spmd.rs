//! Properties of plans between plain shardings as calls, and of one program for all ranks.
//!
//! Each exchange is one view at each end, and the program at a rank is that rank's calls.

use std::collections::{BTreeMap, BTreeSet};

use reshard_collectives::Error;
use reshard_collectives::calls::{
    CollectiveCall, CommPattern, RankCall, RankCalls, SpmdProgram, View, interpret,
};
use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, Sweep, every};

use crate::calls::{dtype_of, exact, kind, offers, planner, sources};

/// Returns all shardings of two dims without partial values.
///
/// Every axis shards one dim or is replicated. The axes of one dim come in any order: 11 shardings for two
/// axes, 49 for three.
fn plain(mesh: &Mesh, shape: &[usize; 2]) -> Vec<Sharding> {
    let names: Vec<String> = mesh.axes().iter().map(|axis| axis.name().to_string()).collect();
    // Every order of the axes, with every assignment of them to a dim or to none.
    let mut orders = vec![Vec::new()];
    for _ in &names {
        let longer = |order: &Vec<usize>| {
            let left: Vec<usize> = (0..names.len()).filter(|axis| !order.contains(axis)).collect();
            left.into_iter().map(|axis| [&order[..], &[axis]].concat()).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    let mut texts = BTreeSet::new();
    for (order, dims) in
        orders.iter().flat_map(|order| every(&[0, 1, 2], names.len()).into_iter().map(move |d| (order, d)))
    {
        let of = |dim: usize| -> Vec<&str> {
            order.iter().filter(|axis| dims[**axis] == dim).map(|axis| names[*axis].as_str()).collect()
        };
        texts.insert([0, 1].map(|dim| format!("{{{}}}", of(dim).join(","))).join(","));
    }
    texts.iter().map(|text| Sharding::parse(mesh, shape, &format!("[{text}]")).unwrap()).collect()
}

/// Returns all plans from one plain sharding to another on a mesh.
fn plans_of_pairs(mesh: &str, shape: &[usize; 2]) -> Vec<Plan> {
    let all = plain(&mesh.parse().unwrap(), shape);
    let pairs =
        all.iter().flat_map(|from| all.iter().map(move |to| (from, to))).filter(|(from, to)| from != to);
    pairs.map(|(from, to)| Planner::new().plan(from, to, DType::I64).unwrap()).collect()
}

/// Returns the exchanges of all ranks, and the greatest number of views that pack or unpack one.
fn fused(plans: &[Plan]) -> (usize, usize) {
    let mut random = Random(3);
    let (mut exchanges, mut most) = (0, 0);
    for plan in plans {
        let sorted: Vec<Vec<usize>> = exact(plan, &mut random)
            .into_iter()
            .map(|mut g| {
                g.sort_unstable();
                g
            })
            .collect();
        let offers = offers(&sorted);
        for rank in plan.ranks() {
            let calls = RankCalls::new(plan, rank, DType::F32, &offers).unwrap();
            for call in calls.iter().filter(|call| call.call.group().is_some()) {
                exchanges += 1;
                most = most.max(call.pack.len()).max(call.unpack.len());
            }
        }
    }
    (exchanges, most)
}

#[test]
fn every_exchange_between_plain_shardings_is_one_view_at_each_end() {
    let (two, three) = (plans_of_pairs("x=2,y=4", &[64, 32]), plans_of_pairs("x=2,y=2,z=2", &[64, 32]));
    assert_eq!((two.len(), three.len()), (110, 2352));
    println!("2x4 {:?}, 2x2x2 {:?}", fused(&two), fused(&three));
    assert_eq!((fused(&two).1, fused(&three).1), (1, 1));
    for (mesh, shape) in [("x=4,y=6", &[48, 48]), ("x=2,y=3,z=4", &[48, 48])] {
        println!("{mesh} {:?}", fused(&plans_of_pairs(mesh, shape)));
    }
}

/// The source elements for each peer, the target elements from each, in order, and a key of all else.
type Moves = (BTreeMap<usize, Vec<usize>>, BTreeMap<usize, Vec<usize>>, String);

/// Returns the data of a call, in a form independent of its kind: peers without data are omitted.
fn moves(rank: usize, call: &RankCall) -> Moves {
    let elements = |views: &[View]| -> Vec<usize> { views.iter().flat_map(View::elements).collect() };
    let (packed, mut landed) = (elements(&call.pack), elements(&call.unpack));
    let mut order = Vec::new();
    if let Some(combine) = &call.combine {
        let mut terms: Vec<_> = combine.terms.iter().collect();
        terms.sort_by_key(|term| term.start);
        landed = terms.iter().flat_map(|term| elements(&call.unpack[term.views.clone()])).collect();
        order = combine.terms.iter().map(|term| term.start).collect();
    }
    let of_members = |counts: &[usize]| -> Vec<(usize, usize)> {
        call.call.group().unwrap().members().iter().copied().zip(counts.iter().copied()).collect()
    };
    let (sends, receives, name) = match &call.call {
        CollectiveCall::Local => {
            (vec![(rank, packed.len())], vec![(rank, landed.len())], "blocks".to_string())
        }
        CollectiveCall::Messages { sends, receives } => {
            (sends.clone(), receives.clone(), "blocks".to_string())
        }
        CollectiveCall::AllToAll { sends, receives, .. } => {
            (of_members(sends), of_members(receives), "blocks".to_string())
        }
        CollectiveCall::AllGather { .. }
        | CollectiveCall::ReduceScatter { .. }
        | CollectiveCall::AllReduce { .. } => {
            let name = format!("{} {:?}", kind(&call.call), call.call.group().unwrap().members());
            (vec![(0, packed.len())], vec![(0, landed.len())], name)
        }
    };
    let cut = |counts: Vec<(usize, usize)>, mut all: Vec<usize>| {
        let mut cut = BTreeMap::new();
        for (peer, count) in counts {
            let rest = all.split_off(count);
            if count > 0 {
                assert!(cut.insert(peer, all).is_none(), "{call}");
            }
            all = rest;
        }
        cut
    };
    // Partial values are identified by their senders, in the order in which they are combined.
    let mut starts: Vec<(usize, usize)> = Vec::new();
    receives.iter().filter(|message| message.1 > 0).fold(0, |start, (peer, count)| {
        starts.push((start, *peer));
        start + count
    });
    let order: Vec<usize> = order
        .iter()
        .map(|start| starts.iter().find(|(at, _)| at == start).map_or(0, |(_, peer)| *peer))
        .collect();
    let rest =
        format!("{name} {order:?} {:?} {} {} {}", call.fill, call.divisor, call.source_len, call.target_len);
    (cut(sends, packed), cut(receives, landed), rest)
}

/// Checks all properties of a plan as one program; returns `true` if it is one program.
///
/// Counts the patterns of its calls.
fn check_spmd(plan: &Plan, patterns: &mut BTreeMap<&'static str, usize>) -> bool {
    let spmd = match SpmdProgram::new(plan, plan.dtype()) {
        Ok(spmd) => spmd,
        Err(Error::PlanMismatch { .. }) => return false,
        Err(error) => panic!("{error}: {plan}"),
    };
    let ranks = plan.ranks();
    let world = ranks.len();
    let sorted: BTreeSet<Vec<usize>> = exact(plan, &mut Random(1))
        .into_iter()
        .map(|mut group| {
            group.sort_unstable();
            group
        })
        .collect();
    let offers = offers(&sorted.into_iter().collect::<Vec<_>>());
    let at: Vec<RankCalls> =
        ranks.iter().map(|rank| spmd.at(*rank).unwrap_or_else(|e| panic!("{e}: {plan}\n{spmd}"))).collect();
    for (rank, at) in ranks.iter().zip(&at) {
        let own = RankCalls::new(plan, *rank, plan.dtype(), &offers).unwrap();
        assert_eq!(at.iter().len(), own.iter().len(), "{plan}\n{at}\nand\n{own}");
        for (a, b) in at.iter().zip(own.iter()) {
            assert_eq!(moves(*rank, a), moves(*rank, b), "{plan}\n{at}\nand\n{own}");
        }
    }
    for call in spmd.calls() {
        let (name, peers) = match &call.pattern {
            CommPattern::Local => ("local", 1),
            CommPattern::AllGather { groups } => ("all_gather", groups[0].len()),
            CommPattern::ReduceScatter { groups, .. } => ("reduce_scatter", groups[0].len()),
            CommPattern::AllReduce { groups, .. } => ("all_reduce", groups[0].len()),
            CommPattern::AllToAll { groups } => ("all_to_all", groups[0].len()),
            CommPattern::Permute { rounds } => {
                for pairs in rounds {
                    let ends: BTreeSet<(usize, usize)> =
                        pairs.iter().flat_map(|(from, to)| [(0, *from), (1, *to)]).collect();
                    assert_eq!(ends.len(), 2 * pairs.len(), "{plan}\n{spmd}");
                }
                let most = |end: fn(&(usize, usize)) -> usize| {
                    let edges = || rounds.iter().flatten().map(end);
                    ranks.iter().map(|rank| edges().filter(|other| other == rank).count()).max().unwrap()
                };
                assert_eq!(rounds.len(), most(|pair| pair.0).max(most(|pair| pair.1)), "{plan}\n{spmd}");
                ("permute", rounds.len())
            }
        };
        *patterns.entry(name).or_default() += 1;
        // If ranks fill elements that others have, there is a target offset for each of these.
        let places = if call.fill.is_some() { world } else { peers };
        assert!(call.target_offsets.len() <= places, "{plan}\n{spmd}");
        let columns = (call.source_offsets.columns(), call.arrival_order.columns());
        assert!(columns.0 <= peers && columns.1 <= places, "{plan}\n{spmd}");
    }
    let sources = sources(plan);
    let mut threads = World::new(ranks[world - 1] + 1).unwrap();
    let (want, _) = threads.redistribute(plan, &sources).unwrap();
    let place = |rank: &usize| plan.from().mesh().ranks().position(|other| other == *rank).unwrap();
    let before: Vec<Vec<u8>> = ranks.iter().map(|rank| sources[place(rank)].clone()).collect();
    let after = interpret(&at, &before).unwrap_or_else(|error| panic!("{error}: {plan}\n{spmd}"));
    for (rank, want) in plan.to().mesh().ranks().zip(want) {
        assert!(after[ranks.binary_search(&rank).unwrap()] == want, "rank {rank} of {plan}\n{spmd}");
    }
    true
}

/// Returns the number of calls between ranks of one program: of rounds, those that are not only copies.
fn collectives(plan: &Plan) -> usize {
    let talks = |pairs: &&Vec<(usize, usize)>| pairs.iter().any(|(from, to)| from != to);
    let count = |pattern: &CommPattern| match pattern {
        CommPattern::Local => 0,
        CommPattern::AllGather { .. }
        | CommPattern::ReduceScatter { .. }
        | CommPattern::AllReduce { .. }
        | CommPattern::AllToAll { .. } => 1,
        CommPattern::Permute { rounds } => rounds.iter().filter(talks).count(),
    };
    let spmd = SpmdProgram::new(plan, plan.dtype());
    spmd.map_or(0, |spmd| spmd.calls().iter().map(|call| count(&call.pattern)).sum())
}

#[test]
fn one_program_for_all_ranks_is_what_each_rank_calls() {
    let mut patterns = BTreeMap::new();
    // All plans are checked; one in `judged` of them is also executed.
    let mut alike = |mesh: &str, shape: &[usize; 2], judged: usize| {
        let plans = plans_of_pairs(mesh, shape);
        for plan in plans.iter().step_by(judged) {
            check_spmd(plan, &mut patterns);
        }
        let alike = plans.iter().filter(|plan| SpmdProgram::new(plan, plan.dtype()).is_ok()).count();
        println!(
            "{mesh}: {alike} of {}, {} calls",
            plans.len(),
            plans.iter().map(collectives).sum::<usize>()
        );
        (alike, plans.len())
    };
    assert_eq!(alike("x=2,y=4", &[64, 32], 1), (110, 110));
    assert_eq!(alike("x=2,y=2,z=2", &[64, 32], Sweep::asked().one_in(29)), (2352, 2352));
    // If shardings do not nest, some plans are not one program.
    assert_eq!(alike("x=4,y=6", &[48, 48], 1), (96, 110));
    let (some, all) = alike("x=2,y=3,z=4", &[48, 48], Sweep::asked().one_in(53));
    assert!(some < all && some * 4 > all * 3, "{some} of {all}");
    println!("{patterns:?}");
}

#[test]
fn one_program_for_random_plans_is_what_each_rank_calls() {
    let (mut random, mut patterns, mut alike, mut all) =
        (Random(Sweep::asked().seed() + 77), BTreeMap::new(), 0, 0);
    let ops = ["P", "P(max)", "P(avg)", "P(norm2)"];
    for case in 0..Sweep::asked().count(160, 20_000) as usize {
        let mesh: Mesh =
            random.pick(&["x=4", "x=2,y=2", "x=2,y=4", "x=2,y=2,z=2", "x=4@[1,2,3,0]"]).parse().unwrap();
        let texts = ["R", "S(0)", "S(1)", "SS(0,2)", ops[case % ops.len()]];
        let mut drawn = || (0..mesh.axes().len()).map(|_| *random.pick(&texts)).collect::<Vec<_>>().join(",");
        let (from, to) = (drawn(), drawn());
        let parse = |text: &str| Sharding::parse(&mesh, &[16, 24], text);
        let (Ok(from), Ok(to)) = (parse(&from), parse(&to)) else { continue };
        let Ok(plan) = planner(&mut random).plan(&from, &to, dtype_of(&from, &to)) else { continue };
        for plan in std::iter::once(plan.clone()).chain(plan.transposed().ok()) {
            alike += usize::from(check_spmd(&plan, &mut patterns));
            all += 1;
        }
    }
    println!("{alike} of {all} {patterns:?}");
    assert!(alike * 10 > all * 9 && patterns.len() == 6, "{alike} of {all} {patterns:?}");
}
