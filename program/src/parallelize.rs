//! Parallelization: the types of all inputs whose type is open, and the recomputed values, under a memory limit.
//!
//! ```text
//! L(p)     least over all choices of   time + p bytes held at the turn from forward to backward
//! bound    max over p of               L(p) - p limit                                  (Lagrangian duality)
//! ```
//!
//! A program within the limit holds no more than that at any moment, so its time is at least the bound, at every price
//! `p` of memory. `L(p)` is bounded by the [messages](crate::theory) of the solver, whose strategies carry the price of
//! the bytes that they hold: of inputs with their states ([`keeps`]), and of the values that backward reads ([`saved`]).
//!
//! The types of the choice at each price make a program, with its rematerialization. Of those that fit, the fastest is
//! the answer. Its time and peak are those of its report.

mod devices;
mod keeps;
mod problem;
mod saved;
mod updates;

use reshard_planner::{Planner, SearchBudget};
use reshard_sharding::ShardingType;
use rustc_hash::FxHashSet;

use crate::decompose::Apart;
use crate::elaborate::held::MemoryPrice;
use crate::elaborate::lane::Tables;
use crate::graph::{Graph, GraphStatement};
pub use crate::parallelize::devices::MeshBound;
use crate::parallelize::keeps::Prices;
use crate::parallelize::problem::{Chosen, Problem, Times};
use crate::program::Program;
use crate::report::Report;
use crate::{ComputeRates, Error, ShardingSolver};

/// A parallelizer: chooses the types of inputs that a graph leaves open, under a memory limit.
///
/// ```
/// use reshard_program::{Graph, Parallelizer};
/// let graph: Graph = "
///     mesh dp=4
///     x: f32[512,512] S(0)
///     w: f32[512,512] ?
///     h = mm(x, w)
///     y = exp(h)
///     loss = sum(y)
///     gradient loss wrt w
///     w' = sgd(w, dw)
/// ".parse()?;
/// let free = Parallelizer::new().parallelize(&graph)?;
/// let (_, taken) = &free.chosen[0];
/// assert_eq!(taken.to_string(), "S(1)");
/// assert!(free.bound_us <= free.time_us);
/// let refused = Parallelizer::new().memory(1_000_000).parallelize(&graph).unwrap_err();
/// assert!(refused.to_string().contains("use more ranks, or raise the limit"));
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Parallelizer {
    solver: ShardingSolver,
    memory: Option<u64>,
    search_budget: SearchBudget,
}

impl Default for Parallelizer {
    fn default() -> Parallelizer {
        let solver = ShardingSolver::default();
        Parallelizer { solver, memory: None, search_budget: SearchBudget::new(PRICING) }
    }
}

/// A program whose inputs all have types, with its time, its peak and a bound.
#[derive(Clone, Debug)]
pub struct Parallelized {
    /// The program, with every type, redistribution and recomputation.
    pub program: Program,
    /// The time of a step in microseconds, as in its report.
    pub time_us: f64,
    /// The peak in bytes of the worst rank, as in its report.
    pub peak_bytes: u64,
    /// The least time of any assignment of the model within the limit, in microseconds.
    pub bound_us: f64,
    /// The types of the inputs that were open, by name, in the order of the graph.
    pub chosen: Vec<(String, ShardingType)>,
    /// The price of memory at the bound, in microseconds for a gigabyte (10^9 bytes) per rank.
    ///
    /// With another gigabyte the bound is lower by at most that. It is 0 where the limit does not raise the bound.
    pub us_per_gb: f64,
    /// The meshes that were compared, this one among them; empty if the mesh was given.
    pub meshes: Vec<MeshBound>,
}

/// The default budget for prices of redistributions.
const PRICING: u64 = 400_000_000;

/// The most prices of memory that are tried to enclose the best one, and to come closer to it.
const PRICES: usize = 12;

/// The most programs that are written for each share.
const PROGRAMS: usize = 6;

/// The shares of the price for the turn from forward to backward that are tried, in 1/4; the rest is for its end.
const SHARES: [u64; 3] = [4, 0, 2];

/// The most statements that are written to try one input after the other.
const POLISHED: u64 = 20_000;

/// The gap at which nothing more is tried.
const NEGLIGIBLE: f64 = 0.0005;

/// The gap at which the other shares are skipped.
const ENOUGH: f64 = 0.02;

impl Parallelizer {
    /// Returns a parallelizer for the `uniform` network and uniform compute rates, without a memory limit.
    pub fn new() -> Parallelizer {
        Parallelizer::default()
    }

    /// Returns the same with another planner, whose costs are the prices of redistributions.
    #[must_use]
    pub fn planner(self, planner: Planner) -> Parallelizer {
        Parallelizer { solver: self.solver.planner(planner), ..self }
    }

    /// Returns the same with other compute rates.
    #[must_use]
    pub fn rates(self, rates: ComputeRates) -> Parallelizer {
        Parallelizer { solver: self.solver.rates(rates), ..self }
    }

    /// Returns the same with a limit for the peak of every rank, in bytes.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Parallelizer {
        Parallelizer { memory: Some(bytes), ..self }
    }

    /// Returns the same with another budget for prices of redistributions.
    ///
    /// Beyond it prices are estimates, which count as nothing in the bound. The default is 400 million units, about
    /// four seconds.
    #[must_use]
    pub fn search_budget(self, budget: SearchBudget) -> Parallelizer {
        Parallelizer { search_budget: budget, ..self }
    }

    /// Chooses the open types of a graph, and the values that backward recomputes.
    ///
    /// An optimizer state has the sharding of its parameter's gradient.
    ///
    /// Fails for a graph on several meshes or without exactly one `gradient`, for a state that is not of its
    /// parameter's shape, and if no program that was found fits in the memory.
    pub fn parallelize(&self, graph: &Graph) -> Result<Parallelized, Error> {
        let mut search = Search::of(self, graph)?;
        let free = search.at(Prices::default())?;
        search.completes(&free)?;
        search.answer()
    }
}

/// The cheapest choices at a price, in ops as they are and in their parts.
struct AtPrice {
    prices: Prices,
    /// A lower bound on time and priced bytes, in picoseconds.
    bound: u64,
    types: Vec<Chosen>,
}

/// The search for a price, and for the best program.
struct Search<'a> {
    solver: &'a ShardingSolver,
    graph: &'a Graph,
    limit: u64,
    /// The graph in primitive ops, and with reductions along a dim decomposed, if that is another.
    problems: Vec<Problem<'a>>,
    /// They know all of these, and the programs that are written.
    tables: Tables,
    /// The largest bound so far, in picoseconds, and its prices.
    bound: i128,
    prices: Prices,
    answer: Option<Parallelized>,
    /// The least bytes that a program which does not fit needs, and its types.
    least: Option<(u64, Chosen)>,
    /// The number of statements that were written.
    work: u64,
    tried: FxHashSet<String>,
}

impl<'a> Search<'a> {
    fn of(of: &'a Parallelizer, graph: &'a Graph) -> Result<Search<'a>, Error> {
        let refused = |reason: String| Err(Error::Graph { reason });
        if graph.meshes.named().next().is_some() {
            return refused("parallelize takes a program on one mesh; this one has several".to_owned());
        }
        let gradients = graph.statements.iter().filter(|s| matches!(s, GraphStatement::Gradient { .. }));
        let gradients = gradients.count();
        if gradients != 1 {
            return refused(format!(
                "parallelize takes a training step with one `gradient`; this program has {gradients}"
            ));
        }
        let mut times = Times::default();
        let whole = graph.in_parts(Apart { means: true, rows: false })?.into_owned();
        let parted = graph.in_parts(Apart { means: true, rows: true })?.into_owned();
        let is_same = parted.statements.len() == whole.statements.len();
        let mut tables =
            Tables::new(&of.solver, graph).within(&of.solver.planner, of.search_budget).in_one_piece(graph);
        let mut problems = vec![Problem::of(&of.solver, whole, &mut tables, &mut times)?];
        if !is_same {
            problems.push(Problem::of(&of.solver, parted, &mut tables, &mut times)?);
        }
        Ok(Search {
            solver: &of.solver,
            graph,
            limit: of.memory.unwrap_or(u64::MAX),
            problems,
            tables,
            bound: 0,
            prices: Prices::default(),
            answer: None,
            least: None,
            work: 0,
            tried: FxHashSet::default(),
        })
    }

    /// Returns the choices at a price, and a bound on all.
    fn at(&mut self, prices: Prices) -> Result<AtPrice, Error> {
        let choices = self.problems.iter().map(|problem| problem.at(&mut self.tables, prices));
        let choices = choices.collect::<Result<Vec<_>, _>>()?;
        let bound = choices.iter().map(|choice| choice.bound).min().unwrap_or(0);
        Ok(AtPrice { prices, bound, types: choices.into_iter().map(|choice| choice.types).collect() })
    }

    /// Looks for the best program, from the choices without a price.
    fn completes(&mut self, free: &AtPrice) -> Result<(), Error> {
        self.bound = i128::from(free.bound);
        let fits = self.offers(&free.types[0])?;
        for types in free.types.iter().skip(1) {
            self.offers(types)?;
        }
        if !fits {
            self.goes_on(free)?;
        }
        self.polish()
    }

    /// Returns the best program with the bound.
    fn answer(self) -> Result<Parallelized, Error> {
        let Search { answer, least, bound, limit, prices, .. } = self;
        let bound_us = bound.max(0) as f64 / 1e6;
        let us_per_gb = prices.sum() as f64 / 1024.0 * 1e3;
        answer.map(|answer| Parallelized { bound_us, us_per_gb, ..answer }).ok_or_else(|| Error::Memory {
            needed: least.as_ref().map_or(0, |(needed, _)| *needed),
            reason: format!(
                "no types were found for which the program fits in {limit} bytes per rank; the least that was found to be enough is {}; use more ranks, or raise the limit",
                least.as_ref().map_or(0, |(needed, _)| *needed)
            ),
        })
    }

    /// Returns the bound at these prices for programs within the limit, in picoseconds.
    fn within(&self, at: &AtPrice) -> i128 {
        let fixed = self.problems.iter().map(|problem| problem.fixed).min().unwrap_or(0);
        let room = i128::from(self.limit) - i128::from(fixed);
        i128::from(at.bound) - ((i128::from(at.prices.sum()) * room) >> 10) - 1
    }

    /// Writes the program with these types and the recomputation that it needs; keeps it if it is the best.
    ///
    /// Returns `true` if nothing has to be computed again.
    fn offers(&mut self, types: &Chosen) -> Result<bool, Error> {
        let text: Vec<String> = types.iter().map(|(_, is)| is.to_string()).collect();
        if !self.tried.insert(text.join(";")) {
            return Ok(false);
        }
        let program = self.solver.solve_with(&typed(self.graph, types)?, &mut self.tables)?;
        self.work += program.statements().len() as u64;
        let rates = &self.solver.rates;
        let report = program.report(rates);
        let peak = report.peak.bytes;
        let fits = peak <= self.limit;
        let (program, report) = match self.fitted(program, report)? {
            Ok(fitted) => fitted,
            Err(needed) => {
                if self.least.as_ref().is_none_or(|(least, _)| needed < *least) {
                    self.least = Some((needed, types.clone()));
                }
                return Ok(false);
            }
        };
        let (time_us, peak_bytes) = (report.total_us(), report.peak.bytes);
        if self.answer.as_ref().is_none_or(|best| time_us < best.time_us) {
            let (chosen, meshes) = (types.clone(), Vec::new());
            let (bound_us, us_per_gb) = (0.0, 0.0);
            self.answer =
                Some(Parallelized { program, time_us, peak_bytes, bound_us, chosen, us_per_gb, meshes });
        }
        Ok(fits)
    }

    /// Returns the program with the recomputation for which it fits in the least time, or the least bytes that it needs.
    ///
    /// With all parameters re-gathered for backward too: the selection of values to recompute does not find that.
    fn fitted(&self, program: Program, report: Report) -> Result<Result<(Program, Report), u64>, Error> {
        if report.peak.bytes <= self.limit {
            return Ok(Ok((program, report)));
        }
        let rates = &self.solver.rates;
        let gathered = program.gathered_parameters();
        let regathered = (!gathered.is_empty()).then(|| program.rematerialize(&gathered)).transpose()?;
        let mut best: Option<(Program, Report)> = None;
        let mut least = u64::MAX;
        for program in core::iter::once(program).chain(regathered) {
            match program.rematerialize_to_fit(self.limit, rates) {
                Ok(fitted) => {
                    let report = fitted.report(rates);
                    if best.as_ref().is_none_or(|(_, best)| report.total_us() < best.total_us()) {
                        best = Some((fitted, report));
                    }
                }
                Err(Error::Memory { needed, .. }) => least = least.min(needed),
                Err(error) => return Err(error),
            }
        }
        Ok(best.ok_or(least))
    }

    /// Returns `true` if the best program is near the bound.
    fn is_near(&self, gap: f64) -> bool {
        self.answer.as_ref().is_some_and(|best| self.bound as f64 >= best.time_us * 1e6 * (1.0 - gap))
    }

    /// Tries every other storage of one input, as long as that makes the best program better.
    ///
    /// It is for small programs, whose peak is often within backward.
    fn polish(&mut self) -> Result<(), Error> {
        loop {
            let best = self.answer.as_ref().map(|best| best.chosen.clone());
            let Some(from) = best.or_else(|| self.least.as_ref().map(|(_, types)| types.clone())) else {
                return Ok(());
            };
            let reached = self.reached();
            for input in 0..self.problems[0].count() {
                for other in self.problems[0].next_to(&self.tables.types, &from, input) {
                    if self.work > POLISHED || self.is_near(NEGLIGIBLE) {
                        return Ok(());
                    }
                    self.offers(&other)?;
                }
            }
            if self.reached() == reached {
                return Ok(());
            }
        }
    }

    /// Returns the time of the best program, or else the least peak.
    fn reached(&self) -> (Option<f64>, Option<u64>) {
        let best = self.answer.as_ref().map(|best| best.time_us);
        (best, self.least.as_ref().map(|(peak, _)| *peak).filter(|_| best.is_none()))
    }

    /// Looks for the price with the largest bound, and for programs that fit around it.
    fn goes_on(&mut self, free: &AtPrice) -> Result<(), Error> {
        for share in SHARES {
            if self.is_near(ENOUGH) {
                break;
            }
            self.along(free, share)?;
        }
        Ok(())
    }

    /// Does the same with this share of the price, in 1/4, for the turn from forward to backward.
    fn along(&mut self, free: &AtPrice, share: u64) -> Result<(), Error> {
        let at_price = |price: u64| {
            let turn = price / 4 * share + price % 4 * share / 4;
            Prices { turn: MemoryPrice(turn), end: MemoryPrice(price - turn) }
        };
        // A price at which the memory costs a hundredth of the time, and then twice as much each time.
        let start = u128::from(free.bound.max(1)) * 1024 / 100 / u128::from(self.limit.max(1));
        let mut price = u64::try_from(start.max(1)).unwrap_or(u64::MAX >> PRICES);
        let mut known: Vec<(i128, AtPrice)> = Vec::new();
        for _ in 0..PRICES {
            let at = self.at(at_price(price))?;
            let value = self.within(&at);
            let falls = known.last().is_some_and(|(last, _)| value < *last);
            known.push((value, at));
            if falls {
                break;
            }
            price = price.saturating_mul(2);
        }
        // The bound is concave in the price: the best one is next to the best that is known.
        for _ in 0..PRICES {
            known.sort_by_key(|(_, at)| at.prices.sum());
            let top = highest(&known);
            let price = |n: usize| known.get(n).map(|(_, at)| at.prices.sum());
            let below = top.checked_sub(1).and_then(price).unwrap_or(0);
            let at = price(top).unwrap_or(0);
            let above = price(top + 1).unwrap_or(at);
            let middle = if above - at > at - below { at.midpoint(above) } else { below.midpoint(at) };
            if middle == at || middle == below || (above - below) * 200 < at {
                break;
            }
            let at = self.at(at_price(middle))?;
            known.push((self.within(&at), at));
        }
        known.sort_by_key(|(_, at)| at.prices.sum());
        // Around the best price the choice changes from one that does not fit to one that does.
        let top = highest(&known);
        if let Some((bound, at)) = known.get(top).filter(|(bound, _)| *bound > self.bound) {
            (self.bound, self.prices) = (*bound, at.prices);
        }
        let mut order: Vec<usize> = (0..known.len()).collect();
        order.sort_by_key(|&n| (n.abs_diff(top), n < top));
        let tried = self.tried.len();
        for types in order.iter().flat_map(|&n| &known[n].1.types) {
            if self.tried.len() >= tried + PROGRAMS && self.answer.is_some() {
                break;
            }
            self.offers(types)?;
        }
        Ok(())
    }
}

/// Returns the number of the largest bound.
fn highest(known: &[(i128, AtPrice)]) -> usize {
    (0..known.len()).max_by_key(|&n| known[n].0).unwrap_or(0)
}

/// Returns the graph with these types of open inputs, and of their values after the step.
fn typed(graph: &Graph, types: &Chosen) -> Result<Graph, Error> {
    let mut graph = graph.clone();
    for (name, is) in types {
        let Some(v) = graph.value(name) else { continue };
        graph.values[v.0].open = None;
        graph.constrain(v, is.clone())?;
        let next = graph.value(&format!("{name}'")).filter(|next| graph.shape(*next) == graph.shape(v));
        if let Some(next) = next.filter(|next| graph.constraint(*next).is_none()) {
            graph.constrain(next, is.clone())?;
        }
    }
    Ok(graph)
}
