//! What no plan can do without, by brute force: the fewest words of each element, and what must enter each set of ranks.
//!
//! A **word** is what one rank tells another of one element, however it was made. An element has terms, each held by some ranks,
//! and readers, the sets of ranks whose terms of the target add up. Whatever the words are, each reader must depend on each
//! term, and that is all that is asked here:
//!
//! ```text
//! fewest words    breadth first over what each rank depends on: a word makes its receiver depend on all that its sender does
//! entering W      for every set W of ranks, a word of each element that a reader within W wants and no rank of W has a term of
//! ```
//!
//! The mean of all words over the ranks, and that of the words entering over those of each set, bound what the worst rank receives. It is the best
//! bound known here, and it is not always reached.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::shardings;

/// Of one element: by rank which terms it depends on, and the readers as sets of ranks.
type Element = (Vec<u8>, BTreeSet<u32>);

fn all_terms(held: &[u8]) -> u8 {
    held.iter().fold(0, |all, x| all | x)
}

/// The fewest words after which every reader depends on every term.
fn fewest_words((held, readers): &Element) -> usize {
    let all = all_terms(held);
    let done = |state: &[u8]| {
        readers.iter().all(|&reader| {
            let of = |(rank, x): (usize, &u8)| if reader >> rank & 1 == 1 { *x } else { 0 };
            state.iter().enumerate().map(of).fold(0, |all, x| all | x) == all
        })
    };
    let mut seen: HashSet<Vec<u8>> = HashSet::from([held.clone()]);
    let mut level = vec![held.clone()];
    for words in 0.. {
        if level.iter().any(|state| done(state)) {
            return words;
        }
        let mut next = Vec::new();
        for state in &level {
            for to in 0..state.len() {
                for from in (0..state.len()).filter(|&from| state[from] & !state[to] != 0) {
                    let mut more = state.clone();
                    more[to] |= more[from];
                    if seen.insert(more.clone()) {
                        next.push(more);
                    }
                }
            }
        }
        level = next;
    }
    unreachable!("words lead everywhere")
}

/// By kind of element how many there are.
fn elements(from: &Sharding, to: &Sharding) -> HashMap<Element, usize> {
    let mesh = from.mesh();
    let indices = |s: &Sharding, rank: usize| -> Vec<usize> {
        let region = s.region(rank).unwrap();
        let mut all = vec![0];
        for (dim, len) in s.shape().iter().enumerate() {
            let of_dim: Vec<usize> = region.indices(dim).unwrap().collect();
            all = all.iter().flat_map(|e| of_dim.iter().map(move |i| e * len + i)).collect();
        }
        all
    };
    let key = |s: &Sharding, rank: usize, keeps: bool| {
        let mut c = mesh.coordinate(rank).unwrap();
        let owes = |axis: usize| s.partial().iter().any(|p| p.sub.axis == axis);
        (0..c.len()).filter(|&axis| owes(axis) != keeps).for_each(|axis| c[axis] = 0);
        mesh.rank_at(&c).unwrap()
    };
    let mut terms: Vec<_> = mesh.ranks().map(|rank| key(from, rank, true)).collect();
    terms.sort_unstable();
    terms.dedup();
    let mut held = vec![vec![0u8; mesh.size()]; from.numel()];
    let mut readers: Vec<BTreeMap<_, u32>> = vec![BTreeMap::new(); from.numel()];
    for rank in mesh.ranks() {
        let term = terms.iter().position(|t| *t == key(from, rank, true)).unwrap();
        indices(from, rank).into_iter().for_each(|e| held[e][rank] |= 1 << term);
        for e in indices(to, rank) {
            *readers[e].entry(key(to, rank, false)).or_default() |= 1 << rank;
        }
    }
    let mut all: HashMap<Element, usize> = HashMap::new();
    for (held, readers) in held.into_iter().zip(readers) {
        *all.entry((held, readers.into_values().collect())).or_default() += 1;
    }
    all
}

/// Elements that the worst rank receives at least.
fn least(from: &Sharding, to: &Sharding, known: &mut HashMap<Element, usize>) -> f64 {
    let ranks = from.mesh().size();
    let all = elements(from, to);
    let mut words = 0;
    for (element, count) in &all {
        words += count * *known.entry(element.clone()).or_insert_with(|| fewest_words(element));
    }
    let mut least = words as f64 / ranks as f64;
    for set in 1u32..1 << ranks {
        let mut entering = 0;
        for ((held, readers), count) in &all {
            let inside: u8 =
                (0..ranks).filter(|rank| set >> rank & 1 == 1).map(|rank| held[rank]).fold(0, |a, x| a | x);
            let wants = readers.iter().any(|reader| reader & !set == 0);
            entering += if wants && inside != all_terms(held) { *count } else { 0 };
        }
        least = least.max(entering as f64 / f64::from(set.count_ones()));
    }
    least
}

/// Bounds are what brute force finds, and plans at least that; printed is where plans receive more.
#[test]
fn bounds_and_plans_are_on_their_sides_of_what_brute_force_finds() {
    // A byte takes a microsecond, and nothing else takes any.
    let planner = Planner::new().topology("launch=0;message=0;level=*:0:0.001".parse().unwrap());
    let mut known = HashMap::new();
    for (mesh, shape) in [("x=2,y=2", [4, 4]), ("x=2,y=2", [3, 5]), ("x=2,y=3", [6, 6]), ("x=2,y=3", [5, 7])]
    {
        let mesh: Mesh = mesh.parse().unwrap();
        let all = shardings(&mesh, &shape, &["R", "S(0)", "S(1)", "P"]);
        let (mut pairs, mut reached, mut proved) = (0, 0, 0);
        let mut apart: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for from in &all {
            // Of six terms there are too many ways.
            for to in all.iter().filter(|to| *to != from && (mesh.size() == 4 || from.partial().len() < 2)) {
                let plan = planner.plan(from, to, DType::U8).unwrap();
                let bound = planner.lower_bound_us(from, to, DType::U8).unwrap();
                let (cost, least) = (plan.cost_us(), least(from, to, &mut known));
                let text = format!("{from} -> {to} of {shape:?} on {mesh}: {bound} <= {least} <= {cost}");
                assert!(bound <= least * (1.0 + 1e-9) && least <= cost * (1.0 + 1e-9), "{text}\n{plan}");
                pairs += 1;
                reached += usize::from(cost < (least + 1.0) * (1.0 - 1e-9));
                proved += usize::from(bound >= least * (1.0 - 1e-9));
                if cost >= (least + 1.0) * (1.0 - 1e-9) {
                    apart.entry(format!("{:.2}", cost / least)).or_default().push(text);
                }
            }
        }
        println!(
            "{shape:?} on {mesh}: of {pairs} pairs {reached} receive the fewest bytes, to a byte; of {proved} the bound is what \
             brute force finds"
        );
        for (ratio, texts) in apart.iter().rev().take(6) {
            println!("    {ratio}: {} pairs, as {}", texts.len(), texts[0]);
        }
        assert!(reached * 2 > pairs && proved == pairs, "{reached} {proved} {pairs}");
    }
}
