//! The validator: is a rule true of an op?
//!
//! A strategy claims: if the inputs are placed along an axis as it states and each rank runs the op on its
//! shards, the outputs are placed as it states. The validator runs the op and checks:
//!
//! ```text
//! assemble(declared outputs, [op(shard of rank 0), op(shard of rank 1), ..])  ==  op(assemble(inputs))
//! ```
//!
//! on one axis of 2 and of 3 ranks, with plain and strided shards, on all given shapes. These should include
//! sizes that divide, sizes that do not, and sizes that leave a rank nothing. The other side of the equation
//! is the op on whole tensors, so that the op itself need not be known.
//!
//! **What that proves.** A strategy that fails is wrong: the failing data are reported. One that passes is
//! true of these shapes and data; of others it is tested, not proved. Of an op that is polynomial in its
//! inputs, a false equation holds for random data only with a small probability (Schwartz and Zippel: at most
//! degree over the number of values, for each element), and each strategy is tried on several data sets. Of
//! an op with branches (max, threshold), the data have to reach them. Partial values are therefore offset in
//! both signs, each rank holds the extreme of some elements, and identities are among the partial values. One
//! axis is enough: the next axis runs the same op on the remaining part.
//!
//! **Data that could prove too much** are rejected: results that are zero or the same everywhere, or NaN;
//! inputs that change nothing; a strategy that fits none of the given sizes. No rank's partial value is the
//! whole.
//!
//! **Missing strategies** are a warning: [`Verdict::missing`] are the true strategies that follow from no
//! declared one, found among all combinations within a budget. `R` is also `P(avg)`, `P(max)` and `P(min)`,
//! so that much follows. [`Verifier::discover`] makes a rule from nothing but the op.
#![forbid(unsafe_code)]

mod candidate;
mod data;
mod local;
mod mutants;
mod on_mesh;
mod search;
mod trial;
mod verdict;

use core::fmt;
use core::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use data::{Data, Random};
pub use local::{LocalOp, LocalView, Tensor};
pub use mutants::Mutants;
pub use verdict::{Discovery, Found, Verdict};

use candidate::{Candidate, KINDS, fill, is_even, is_fixed, is_minor, plain};
use trial::{Shapes, Trial};

use reshard_ops::Error;
use reshard_ops::rules::internal::{Brackets, Entry, bound_of};
use reshard_ops::rules::{Op, Strategy};
use reshard_sharding::{Placement, ReduceOp};

/// The default number of data sets that a strategy has to pass.
const SETS: usize = 6;

/// The required agreement between the replicas of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replicas {
    /// Equal bit by bit.
    Equal,
    /// Within the tolerance that applies to results.
    Near,
}

/// An op to run, and its known properties.
///
/// ```
/// use reshard_verify::{Tensor, Verifier};
/// use reshard_ops::rules::{Op, Rule};
/// let relu = Verifier::new("relu", |local| {
///     let x = local.inputs[0];
///     Ok(vec![Tensor::new(&x.shape, x.data.iter().map(|v| v.max(0.0)).collect())])
/// });
/// let right: Rule = "...->... {increasing}".parse()?;
/// let verdict = relu.verify(&[Op::new("relu", &right, &[&[6, 5]])?])?;
/// assert!(verdict.missing.is_empty());
///
/// let wrong: Rule = "...->... {linear}".parse()?;
/// let error = relu.verify(&[Op::new("relu", &wrong, &[&[6, 5]])?]).unwrap_err().to_string();
/// assert!(error.starts_with("relu on [6,5]: P -> P is wrong on 2 ranks: element [0,"), "{error}");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[allow(clippy::struct_excessive_bools, reason = "independent properties of the op")]
pub struct Verifier<'a> {
    name: String,
    op: Box<LocalOp<'a>>,
    data: Vec<Data>,
    tolerance: f64,
    replicas: Replicas,
    constant: bool,
    idle: bool,
    wants: bool,
    without_regions: bool,
    budget: usize,
    sets: usize,
    ranks: RangeInclusive<usize>,
    seed: u64,
}

impl fmt::Debug for Verifier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier of {}", self.name)
    }
}

impl<'a> Verifier<'a> {
    /// A verifier of an op that runs on local tensors.
    pub fn new(name: &str, run: impl Fn(&LocalView<'_>) -> Result<Vec<Tensor>, String> + 'a) -> Verifier<'a> {
        Verifier {
            name: name.to_owned(),
            op: Box::new(run),
            data: Vec::new(),
            tolerance: 0.0,
            replicas: Replicas::Equal,
            constant: false,
            idle: false,
            wants: false,
            without_regions: false,
            budget: 4096,
            sets: SETS,
            ranks: 2..=3,
            seed: 1,
        }
    }

    /// Sets the kind of numbers of each input; integers by default.
    #[must_use]
    pub fn data(mut self, data: &[Data]) -> Self {
        self.data = data.to_vec();
        self
    }

    /// Sets the tolerance of results, relative to one plus their magnitude; 0 by default.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Allows replicas to differ by the tolerance of results, as those of a numerical derivative do.
    ///
    /// By default replicas are equal bit by bit.
    #[must_use]
    pub fn near_replicas(mut self) -> Self {
        self.replicas = Replicas::Near;
        self
    }

    /// Declares that the results are the same for all data, as of `zeros_like`.
    #[must_use]
    pub fn constant(mut self) -> Self {
        (self.constant, self.idle) = (true, true);
        self
    }

    /// Declares that some inputs affect nothing but shapes, or too little for small data to show it.
    #[must_use]
    pub fn idle_inputs(mut self) -> Self {
        self.idle = true;
        self
    }

    /// Declares that the op reads [`LocalView::output_regions`] and has to be run for every placement of its outputs.
    #[must_use]
    pub fn wants_outputs(mut self) -> Self {
        self.wants = true;
        self
    }

    /// Presents every shard to the op as if it were the whole: strategies that still hold need no region.
    #[must_use]
    pub fn without_regions(mut self) -> Self {
        self.without_regions = true;
        self
    }

    /// Sets the number of combinations of inputs that are searched for missing strategies; 0 for none.
    #[must_use]
    pub fn budget(mut self, budget: usize) -> Self {
        self.budget = budget;
        self
    }

    /// The largest number of data sets per strategy: all of them are in memory at once.
    pub const MOST_SETS: usize = 1024;

    /// Sets the number of data sets that a strategy has to pass; six by default.
    ///
    /// It is 1 to [`MOST_SETS`](Verifier::MOST_SETS); otherwise everything that runs the op fails.
    #[must_use]
    pub fn sets(mut self, sets: usize) -> Self {
        self.sets = sets;
        self
    }

    /// Sets the seed of the random numbers.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs the op on one rank and returns its results.
    ///
    /// The error text states that it fails or panics, and follows "rank 0" or "it".
    pub fn run(&self, local: &LocalView<'_>) -> Result<Vec<Tensor>, String> {
        match catch_unwind(AssertUnwindSafe(|| (self.op)(local))) {
            Ok(made) => made.map_err(|e| format!("fails: {e}")),
            Err(said) => {
                let text = said.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| said.downcast_ref::<String>().cloned());
                Err(text.map_or_else(|| "panics".to_owned(), |text| format!("panics: {text}")))
            }
        }
    }

    fn error(&self, shapes: &Shapes, reason: impl fmt::Display) -> Error {
        let on: Vec<String> = shapes.inputs.iter().take(8).map(|s| Brackets(s).to_string()).collect();
        let on = if on.is_empty() { "nothing".to_owned() } else { on.join(" and ") };
        Error::Rule { reason: format!("{} on {on}: {reason}", self.name) }
    }

    /// Checks every declared strategy of these calls of one op, and searches for others.
    ///
    /// Fails with the first strategy that is wrong; the error names ranks, shapes and the first element that
    /// differs, or has the op's own failure or panic text. A panic also prints its usual message, so that an
    /// op that returns an error is quieter. Also fails with a strategy that fits no call, and with data that
    /// prove nothing.
    pub fn verify(&self, ops: &[Op]) -> Result<Verdict, Error> {
        let mut verdict = Verdict::default();
        let shapes = Self::shapes(ops);
        let mut tried: Vec<(String, bool)> = Vec::new();
        for (c, (op, shapes)) in ops.iter().zip(&shapes).enumerate() {
            let Some(bound) = bound_of(op) else {
                return Err(self.error(shapes, "a view has no strategies of one axis"));
            };
            let texts: Vec<String> = op.strategies().iter().map(ToString::to_string).collect();
            for n in self.ranks.clone() {
                let trial = Trial::new(self, shapes, n, self.seed ^ ((c as u64) << 8) ^ n as u64, self.sets)?;
                self.guard(&trial)?;
                for (row, text) in bound.rows.iter().zip(&texts) {
                    let at = tried.iter().position(|(t, _)| t == text).unwrap_or_else(|| {
                        tried.push((text.clone(), false));
                        tried.len() - 1
                    });
                    for kind in KINDS {
                        let Some(placements) = fill(bound, row, kind, n) else { continue };
                        // A fixed placement holds wherever there is such a sharding.
                        if is_fixed(row) && !trial.has(&placements) {
                            tried[at].1 = true;
                            continue;
                        }
                        if let Err(e) = trial.check(&placements) {
                            let as_said: Vec<String> = placements.iter().map(ToString::to_string).collect();
                            let filled =
                                if kind == 1 { String::new() } else { format!(" as {}", as_said.join(",")) };
                            return Err(self.error(
                                shapes,
                                format!("{text}{filled} is wrong on {n} ranks: {}", reason(&e)),
                            ));
                        }
                        if !self.wants && trial.depends_on_wanted(&placements)? {
                            return Err(self.error(
                                shapes,
                                format!(
                                    "{text} depends on the requested regions of the outputs; set `wants_outputs`, or \
                                     true strategies are not found"
                                ),
                            ));
                        }
                        verdict.checks += 1;
                        tried[at].1 = true;
                    }
                }
            }
        }
        if let (Some((text, _)), Some(s)) = (tried.iter().find(|(_, t)| !t), shapes.first()) {
            return Err(self.error(s, format!("{text} was never tried; add a call whose sizes divide by 2")));
        }
        if self.budget > 0 {
            for group in groups(ops) {
                let truths = self.truths(&ops[group[0]], &group, &shapes, self.seed ^ 0x55)?;
                verdict.searched = (truths.tried, truths.of);
                let inputs = ops[group[0]].inputs().len();
                let written = ops[group[0]].in_place_inputs();
                let stays =
                    |c: &Candidate| written.iter().all(|&(i, o)| c.entries[i] == c.entries[inputs + o]);
                let mut news = truths.news(&declared(&ops[group[0]]), inputs);
                news.retain(stays);
                let found = |c: &Candidate| Found { strategy: c.strategy(inputs), even: c.even };
                verdict.missing.extend(news.iter().map(found));
                verdict.truths.push(truths);
            }
        }
        Ok(verdict)
    }

    /// Returns the strategies of these calls that fail somewhere.
    ///
    /// For a [`without_regions`](Verifier::without_regions) verifier of a right rule, these are the ones for which the op has to
    /// know its region.
    pub fn failing(&self, ops: &[Op]) -> Result<Vec<Strategy>, Error> {
        let mut out: Vec<Strategy> = Vec::new();
        for (c, (op, shapes)) in ops.iter().zip(&Self::shapes(ops)).enumerate() {
            let Some(bound) = bound_of(op) else { continue };
            for n in self.ranks.clone() {
                let trial = Trial::new(self, shapes, n, self.seed ^ ((c as u64) << 8) ^ n as u64, self.sets)?;
                for (row, strategy) in bound.rows.iter().zip(op.strategies()) {
                    let there = |p: &[Placement]| !is_fixed(row) || trial.has(p);
                    let fails = |kind: &usize| {
                        fill(bound, row, *kind, n).is_some_and(|p| there(&p) && trial.check(&p).is_err())
                    };
                    if !out.contains(&strategy) && KINDS.iter().any(fails) {
                        out.push(strategy);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Makes every strategy of these calls wrong by each small change, and counts the caught mutants.
    ///
    /// The verdict is that of [`Verifier::verify`] on the same calls: its search shows which mutants are
    /// true.
    pub fn mutants(&self, ops: &[Op], verdict: &Verdict) -> Result<Mutants, Error> {
        let shapes = Self::shapes(ops);
        let mut all = Mutants::default();
        for (g, group) in groups(ops).iter().enumerate() {
            let of_group: Vec<&Op> = group.iter().map(|&c| &ops[c]).collect();
            let shapes: Vec<&Shapes> = group.iter().map(|&c| &shapes[c]).collect();
            let more = mutants::mutants(self, &of_group, &shapes, verdict.truths.get(g))?;
            all.caught += more.caught;
            all.equivalent += more.equivalent;
            all.upheld += more.upheld;
            all.missed.extend(more.missed);
        }
        Ok(all)
    }

    /// Every strategy that holds on calls with these shapes of inputs and outputs, and follows from no other.
    ///
    /// All calls need operands with the same numbers of dims.
    ///
    /// ```
    /// use reshard_verify::{Tensor, Verifier};
    /// let transpose = Verifier::new("transpose of a vector", |local| Ok(vec![local.inputs[0].clone()]));
    /// let found = transpose.discover(&[(&[&[6]], &[&[6]]), (&[&[5]], &[&[5]])])?;
    /// assert_eq!(found.to_string(),
    ///     "R -> R; ?0 -> ?0; P -> P; P(avg) -> P(avg); P(prod) -> P(prod); P(min) -> P(min); P(max) -> P(max); \
    ///      P(norm2) -> P(norm2)");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "shapes of inputs and outputs of each call")]
    pub fn discover(&self, calls: &[(&[&[usize]], &[&[usize]])]) -> Result<Discovery, Error> {
        let list = |shapes: &[&[usize]]| shapes.iter().map(|s| s.to_vec()).collect();
        let shapes: Vec<Shapes> =
            calls.iter().map(|(i, o)| Shapes { inputs: list(i), outputs: list(o) }).collect();
        let Some(first) = shapes.first() else {
            return Err(Error::Rule { reason: format!("{}: discovery needs at least one call", self.name) });
        };
        let dims = |s: &Shapes| s.inputs.iter().chain(&s.outputs).map(Vec::len).collect::<Vec<_>>();
        if let Some(other) = shapes.iter().find(|s| dims(s) != dims(first)) {
            return Err(self.error(
                other,
                format!("operands have {:?} dims here, but {:?} before", dims(other), dims(first)),
            ));
        }
        for (c, s) in shapes.iter().enumerate() {
            for n in self.ranks.clone() {
                self.guard(&Trial::new(self, s, n, self.seed ^ ((c as u64) << 8) ^ n as u64, self.sets)?)?;
            }
        }
        let truths = search::search(self, &shapes.iter().collect::<Vec<_>>(), &[], self.seed, 2 * self.sets)?;
        let inputs = first.inputs.len();
        let found = truths
            .news(&[], inputs)
            .iter()
            .map(|c| Found { strategy: c.strategy(inputs), even: c.even })
            .collect();
        Ok(Discovery { found, searched: (truths.tried, truths.of) })
    }

    fn shapes(ops: &[Op]) -> Vec<Shapes> {
        ops.iter().map(|op| Shapes { inputs: op.inputs().to_vec(), outputs: op.outputs().to_vec() }).collect()
    }

    /// The true rows of calls that have the same rows.
    fn truths(
        &self,
        like: &Op,
        group: &[usize],
        shapes: &[Shapes],
        seed: u64,
    ) -> Result<search::Truths, Error> {
        let mut norms: Vec<ReduceOp> = Vec::new();
        for entry in bound_of(like).into_iter().flat_map(|b| &b.rows).flat_map(|row| &row.entries) {
            if let Entry::Partial(op) = entry
                && !ReduceOp::ALL.contains(op)
                && !norms.contains(op)
            {
                norms.push(*op);
            }
        }
        let of_group: Vec<&Shapes> = group.iter().map(|&c| &shapes[c]).collect();
        search::search(self, &of_group, &norms, seed, self.sets)
    }

    /// Rejects data that would prove anything.
    fn guard(&self, trial: &Trial<'_>) -> Result<(), Error> {
        if !self.constant {
            for o in 0..trial.shapes.outputs.len() {
                let mut all = trial.truths().iter().flat_map(|t| &t[o].data).peekable();
                let Some(&&first) = all.peek() else {
                    return Err(
                        self.error(trial.shapes, format!("output {o} is empty, which proves nothing"))
                    );
                };
                if all.all(|x| x.to_bits() == first.to_bits()) {
                    let what =
                        format!("output {o} is {first} everywhere, which proves nothing; give other data");
                    return Err(self.error(trial.shapes, what));
                }
            }
        }
        if !self.idle
            && let Some(i) = trial.idle_inputs().first()
        {
            let what = format!(
                "input {i} does not affect the outputs, so nothing is proved about it; give other \
                 data"
            );
            return Err(self.error(trial.shapes, what));
        }
        Ok(())
    }
}

/// Calls that have the same strategies, by position.
fn groups(ops: &[Op]) -> Vec<Vec<usize>> {
    let mut out: Vec<(Vec<Strategy>, Vec<usize>)> = Vec::new();
    for (c, op) in ops.iter().enumerate() {
        let rows = op.strategies();
        match out.iter_mut().find(|(r, _)| *r == rows) {
            Some((_, list)) => list.push(c),
            None => out.push((rows, vec![c])),
        }
    }
    out.into_iter().map(|(_, list)| list).collect()
}

/// The rows of an op that the search may also find.
fn declared(op: &Op) -> Vec<Candidate> {
    let Some(bound) = bound_of(op) else { return Vec::new() };
    (bound.rows.iter())
        .filter(|row| !is_minor(bound, row) && !is_fixed(row))
        .map(|row| Candidate { entries: plain(row), even: is_even(bound, row) })
        .collect()
}

/// An error's reason without its kind.
fn reason(e: &Error) -> String {
    if let Error::Rule { reason } | Error::Sharding(reshard_sharding::Error::InconsistentShards { reason }) =
        e
    {
        reason.clone()
    } else {
        e.to_string()
    }
}
