//! Lower bounds over all algorithms, by exhaustive search on four ranks: between the bound and the plan.
//!
//! A rank *knows* a subspace of the sums of an element's partial values, modulo 2: at first its own partial
//! value. A **word** is any sum that one rank knows and another receives. A reader is the set of ranks whose
//! results of the target add up. It is complete when its ranks jointly know the sum of all partial values.
//! The least words that ranks of a set `U` receive until all readers are complete is found breadth first.
//! Words to ranks outside of `U` cost nothing, so these ranks know everything.
//!
//! ```text
//! words(e, r)   words of element e that rank r receives
//! max_r sum_e words(e, r)  >=  1 / |U| sum_e sum_(r in U) words(e, r)  >=  1 / |U| sum_e least_U(e)
//! ```
//!
//! for every `U`; the bound is the maximum over all fifteen. It holds for algorithms of any kind: each
//! element takes its own path, in any number of steps. Where a plan receives more, some of these algorithms
//! are combined, with separate paths for halves of blocks, so that no rank receives more than the bound. So
//! the bound is not the loose side.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use reshard_kernels::DType;
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::every;

const RANKS: usize = 4;
const SIDE: usize = 16;
/// All shards begin at multiples of this.
const BLOCK: usize = 4;

/// A subspace of sums of at most four partial values, as a bit per sum.
///
/// A sum has a bit for each partial value.
type Subspace = u16;

/// The subspace that each rank knows.
type Known = [Subspace; RANKS];

/// The number of words that each rank receives.
type Load = [usize; RANKS];

/// The subspace of the empty sum only.
const NOTHING: Subspace = 1;

fn with(space: Subspace, sum: usize) -> Subspace {
    (0..16).filter(|s| space >> s & 1 == 1).fold(space, |all, s| all | 1 << (s ^ sum))
}

fn together(a: Subspace, b: Subspace) -> Subspace {
    (0..16).filter(|s| b >> s & 1 == 1).fold(a, with)
}

/// One element: the initial knowledge of the ranks, the readers, and the sum of all partial values.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Element {
    known: Known,
    readers: Vec<Vec<usize>>,
    whole: usize,
}

impl Element {
    fn is_complete(&self, known: Known) -> bool {
        let knows = |reader: &Vec<usize>| reader.iter().fold(NOTHING, |all, &r| together(all, known[r]));
        self.readers.iter().all(|reader| knows(reader) >> self.whole & 1 == 1)
    }

    /// Returns the least words that the ranks of a set, as bits, receive.
    fn least(&self, told: usize) -> usize {
        let all = self.known.iter().fold(NOTHING, |all, &k| together(all, k));
        let mut first = self.known;
        for r in (0..RANKS).filter(|r| told >> r & 1 == 0) {
            first[r] = all;
        }
        let mut seen = HashSet::from([first]);
        let (mut level, mut words) = (vec![first], 0);
        while !level.iter().any(|known| self.is_complete(*known)) {
            let mut next = Vec::new();
            for known in &level {
                for to in (0..RANKS).filter(|r| told >> r & 1 == 1) {
                    let news = known.iter().fold(0, |news, &k| news | k) & !known[to];
                    for sum in (0..16).filter(|s| news >> s & 1 == 1) {
                        let mut more = *known;
                        more[to] = with(known[to], sum);
                        if seen.insert(more) {
                            next.push(more);
                        }
                    }
                }
            }
            (level, words) = (next, words + 1);
        }
        words
    }

    /// Returns the words per rank of all algorithms with the fewest words.
    fn loads(&self) -> BTreeSet<Load> {
        let mut level = HashSet::from([(self.known, [0; RANKS])]);
        let complete = |level: &HashSet<(Known, Load)>| -> BTreeSet<Load> {
            level.iter().filter(|(known, _)| self.is_complete(*known)).map(|x| x.1).collect()
        };
        while complete(&level).is_empty() {
            let mut next = HashSet::new();
            for (known, load) in &level {
                for to in 0..RANKS {
                    let news = known.iter().fold(0, |news, &k| news | k) & !known[to];
                    for sum in (0..16).filter(|s| news >> s & 1 == 1) {
                        let (mut known, mut load) = (*known, *load);
                        known[to] = with(known[to], sum);
                        load[to] += 1;
                        next.insert((known, load));
                    }
                }
            }
            level = next;
        }
        complete(&level)
    }
}

/// Returns the least words that the worst rank receives, if two halves of each element take separate paths.
///
/// Each path has the fewest words.
fn reached(elements: &[Element]) -> usize {
    let mut all = BTreeSet::from([[0; RANKS]]);
    for loads in elements.iter().flat_map(|e| [e.loads(), e.loads()]) {
        let sums = all.iter().flat_map(|a| loads.iter().map(|b| std::array::from_fn(|r| a[r] + b[r])));
        all = sums.collect();
    }
    all.iter().map(|load| *load.iter().max().unwrap()).min().unwrap()
}

/// A sharding over `x=2,y=2`, and per axis `true` if it is partial.
struct End {
    sharding: Sharding,
    partial: [bool; 2],
}

impl End {
    fn new(placements: &[&str]) -> End {
        let mesh: Mesh = "x=2,y=2".parse().unwrap();
        let sharding = Sharding::parse(&mesh, &[SIDE, SIDE], &placements.join(",")).unwrap();
        End { sharding, partial: [placements[0] == "P", placements[1] == "P"] }
    }

    fn holds(&self, rank: usize, at: [usize; 2]) -> bool {
        let region = self.sharding.region(rank).unwrap();
        (0..2).all(|dim| region.indices(dim).unwrap().any(|i| i == at[dim]))
    }

    /// Returns the part of a rank's coordinate in axes that are partial, or that are not.
    fn part(&self, rank: usize, partial: bool) -> usize {
        (0..2).filter(|&axis| self.partial[axis] == partial).map(|axis| rank & (2 >> axis)).sum()
    }
}

fn element(from: &End, to: &End, at: [usize; 2]) -> Element {
    let terms: Vec<usize> = (0..RANKS).filter(|&part| from.part(part, false) == 0).collect();
    let term = |rank| terms.iter().position(|&t| t == from.part(rank, true)).unwrap();
    let known =
        std::array::from_fn(|r| if from.holds(r, at) { with(NOTHING, 1 << term(r)) } else { NOTHING });
    let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for rank in (0..RANKS).filter(|&r| to.holds(r, at)) {
        readers.entry(to.part(rank, false)).or_default().push(rank);
    }
    Element { known, readers: readers.into_values().collect(), whole: (1 << terms.len()) - 1 }
}

#[test]
fn bounds_are_what_all_algorithms_need_and_plans_reach_all_but_ten_of_them() {
    // A network in which only bytes take time: 1 us for 1000 B.
    let planner = Planner::new().topology("launch=0;message=0;level=*:0:1".parse().unwrap());
    let thrifty = planner.clone().objective(Objective::Bytes);
    let ends: Vec<(String, End)> =
        every(&["R", "S(0)", "S(1)", "P"], 2).iter().map(|p| (p.join(","), End::new(p))).collect();
    let mut known: HashMap<(Element, usize), usize> = HashMap::new();
    let (mut tight, mut loose) = (0, Vec::new());
    for (a, from) in &ends {
        for (b, to) in &ends {
            let at = (0..SIDE * SIDE / BLOCK / BLOCK).map(|n| [n / BLOCK * BLOCK, n % BLOCK * BLOCK]);
            let elements: Vec<Element> = at.map(|at| element(from, to, at)).collect();
            let mut need = |told: usize| {
                let mut least =
                    |e: &Element| *known.entry((e.clone(), told)).or_insert_with(|| e.least(told));
                let words: usize = elements.iter().map(&mut least).sum();
                (words * BLOCK * BLOCK * 4) as f64 / f64::from(told.count_ones())
            };
            let need = (1..1 << RANKS).map(&mut need).fold(0.0, f64::max);
            let plan =
                thrifty.plan(&from.sharding, &to.sharding, DType::F32).unwrap().received_bytes() as f64;
            let bound = 1e3 * planner.lower_bound_us(&from.sharding, &to.sharding, DType::F32).unwrap();
            assert!(
                (bound - need).abs() < 1e-6,
                "{a} -> {b}: the bound is {bound} B, and {need} B of all algorithms"
            );
            assert!(need <= plan + 1e-6, "{a} -> {b}: the plan receives {plan} B, and {need} B are needed");
            if plan <= need + 1e-6 {
                tight += 1;
                continue;
            }
            let reached = (reached(&elements) * BLOCK * BLOCK * 4 / 2) as f64;
            assert!(
                (reached - need).abs() < 1e-6,
                "{a} -> {b}: {reached} B are reached, and {need} B are needed"
            );
            loose.push(format!("{a} -> {b}: {plan:.0} B for {need:.0} B"));
        }
    }
    assert_eq!(tight, 246);
    // Reductions in two steps with two different worst ranks.
    let one_way = [
        "S(0),P -> R,S(0): 768 B for 512 B",
        "S(0),P -> S(1),S(0): 512 B for 384 B",
        "S(1),P -> R,S(1): 768 B for 512 B",
        "S(1),P -> S(0),S(1): 512 B for 384 B",
        "P,S(0) -> S(0),R: 768 B for 512 B",
        "P,S(0) -> S(0),S(0): 512 B for 384 B",
        "P,S(0) -> S(0),S(1): 512 B for 384 B",
        "P,S(1) -> S(1),R: 768 B for 512 B",
        "P,S(1) -> S(1),S(0): 512 B for 384 B",
        "P,S(1) -> S(1),S(1): 512 B for 384 B",
    ];
    assert_eq!(loose, one_way);
}
