//! An op: a rule bound to the shapes of one call.
//!
//! Binding gives every factor its size and every dim of every operand its factors, and expands the rule's strategies into
//! rows over *dims*, which is what the search works on:
//!
//! ```text
//! mk,kn->mn   on [64,32],[32,16]      m = 64, k = 32, n = 16       S(m0),R -> S(m0)   R,S(n1) -> S(n1)   ..
//! ...,...->...  on [8,16],[16]        a factor for each dim of the ellipsis; [1] where 16 is wanted is broadcast
//! ```
//!
//! The dim `(ij)` is the mixed-radix number of its factors. A shard of the major one is a plain shard of the dim; a shard
//! of a minor one is strided: it skips what is left locally of the factors before it,
//!
//! ```text
//! split factor of j in (ij)  =  |i| / (what earlier axes took of i)  *  (the split factor of the kind)
//! ```
//!
//! so that a factor with another one after it has to be cut evenly: into `k n` equal parts by a kind with split factor
//! `k` over `n` ranks. And a kind with `k > 1` cuts a factor behind others into pieces of pieces, which start where those
//! others do only if `k` divides it: `(ij)` with `|j| = 3` and `SS(0,2|i|)` does not.

use core::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::rules::factor::{Dim, Role, Slicing};
use crate::rules::rule::{Equation, Form, Rule};
use crate::rules::strategy::{Part, Strategy};
use reshard_planner::internal::WordHasher;
use reshard_sharding::internal::Shape;
use reshard_sharding::{Placement, ReduceOp};

/// A call of an op: its name, the shapes of its operands, and how it may be sharded.
///
/// ```
/// use reshard_ops::rules::{Op, Rule};
/// let mm: Rule = "mk,kn->mn".parse()?;
/// let op = Op::new("mm", &mm, &[&[64, 32], &[32, 16]])?;
/// assert_eq!(op.outputs()[0].as_slice(), [64, 16]);
/// assert_eq!(op.strategies()[2].to_string(), "S(k1),S(k0) -> P");
/// let wrong = Op::new("mm", &mm, &[&[64, 32], &[48, 16]]).unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "mm(mk,kn->mn) on [64,32] and [48,16]: k is 32 in input 0 and 48 in input 1"
/// );
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Op(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    /// A hash of the rest: ops are keys of caches.
    hash: u64,
    name: String,
    inputs: Vec<Shape>,
    outputs: Vec<Shape>,
    body: Body,
    rule: Stated,
}

/// The rule that was bound, for readers. The body is all that matters, so that it makes no op another one.
#[derive(Clone, Debug)]
struct Stated(Option<Rule>);

impl PartialEq for Stated {
    fn eq(&self, _: &Stated) -> bool {
        true
    }
}

impl Eq for Stated {}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Op {}

impl Hash for Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    /// One strategy per mesh axis, any combination.
    Rows(Bound),
    /// The same elements in another shape: all axes at once.
    View,
}

/// A factor of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BoundFactor {
    /// Its letter, or none for a dim of an ellipsis.
    pub(crate) name: Option<char>,
    pub(crate) size: usize,
    /// Whether every cut must divide it.
    pub(crate) even: bool,
}

/// The factors of one dim, most significant first; `None` for a dim of any size that must stay whole.
pub(crate) type DimFactors = Option<SmallVec<[u16; 2]>>;

/// The factors, dims and rows of one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bound {
    pub(crate) factors: Vec<BoundFactor>,
    /// The dims of each operand, inputs before outputs; empty for a list of strategies.
    pub(crate) dims: Vec<SmallVec<[DimFactors; 4]>>,
    pub(crate) rows: Vec<Row>,
    /// What [`Entry::Fixed`] counts.
    pub(crate) fixed: Vec<Placement>,
}

/// One strategy: an entry for each operand, inputs before outputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) entries: Vec<Entry>,
}

/// What an operand is along an axis, in its dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    Replicate,
    Partial(ReduceOp),
    /// A shard of this dim, of the kind that fills the row; with the factor that it shards.
    Shard {
        dim: u16,
        factor: Option<u16>,
    },
    /// Exactly this placement of the list.
    Fixed(u16),
}

impl Op {
    /// An op with a rule whose output shapes follow from the inputs'.
    pub fn new(name: &str, rule: &Rule, inputs: &[&[usize]]) -> Result<Op, Error> {
        Op::bind(name, rule, inputs, None)
    }

    /// An op with a rule and the shapes of all operands.
    pub fn with_outputs(
        name: &str,
        rule: &Rule,
        inputs: &[&[usize]],
        outputs: &[&[usize]],
    ) -> Result<Op, Error> {
        Op::bind(name, rule, inputs, Some(outputs))
    }

    /// The op that sees the elements of a tensor, in row-major order, in another shape.
    pub fn view(input: &[usize], output: &[usize]) -> Result<Op, Error> {
        let (a, b) = (reshard_sharding::internal::numel(input)?, reshard_sharding::internal::numel(output)?);
        if a != b {
            let reason = format!("a view of {input:?} as {output:?}: {a} elements do not become {b}");
            return Err(Error::Sharding(reshard_sharding::Error::View { reason }));
        }
        let shape = |s: &[usize]| vec![Shape::from_slice(s)];
        Ok(Op::made("view", shape(input), shape(output), Body::View, None))
    }

    fn made(name: &str, inputs: Vec<Shape>, outputs: Vec<Shape>, body: Body, rule: Option<Rule>) -> Op {
        let mut hasher = WordHasher::default();
        (name, &inputs, &outputs, &body).hash(&mut hasher);
        Op(Arc::new(Inner {
            hash: hasher.finish(),
            name: name.to_owned(),
            inputs,
            outputs,
            body,
            rule: Stated(rule),
        }))
    }

    /// A hash: equal ops have equal ones.
    pub(crate) fn hash_word(&self) -> u64 {
        self.0.hash
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The shapes of the inputs.
    pub fn inputs(&self) -> &[Shape] {
        &self.0.inputs
    }

    /// The shapes of the outputs.
    pub fn outputs(&self) -> &[Shape] {
        &self.0.outputs
    }

    /// The rule that was bound to these shapes; none for a view.
    ///
    /// ```
    /// use reshard_ops::rules::Table;
    /// let op = Table::standard().op(&"softmax(dim=1)".parse()?, &[&[8, 6]])?;
    /// assert_eq!(op.rule().map(ToString::to_string).as_deref(), Some("ab->ab {b: replicate}"));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn rule(&self) -> Option<&Rule> {
        self.0.rule.0.as_ref()
    }

    /// Whether it only regroups digits: then its axes are not independent and it has no strategies of one axis.
    pub fn is_view(&self) -> bool {
        self.0.body == Body::View
    }

    pub(crate) fn bound(&self) -> Option<&Bound> {
        match &self.0.body {
            Body::Rows(bound) => Some(bound),
            Body::View => None,
        }
    }

    /// The strategies of one mesh axis over the dims of this call; none for a view.
    pub fn strategies(&self) -> Vec<Strategy> {
        let rows = self.bound().map_or(0, |b| b.rows.len());
        (0..rows).filter_map(|row| self.strategy(row)).collect()
    }

    /// One of them.
    pub(crate) fn strategy(&self, row: usize) -> Option<Strategy> {
        let bound = self.bound()?;
        let part = |e: &Entry| match *e {
            Entry::Replicate => Part::Replicate,
            Entry::Partial(op) => Part::Partial(op),
            Entry::Shard { dim, factor } => {
                Part::Dim { label: factor.and_then(|f| bound.factors[usize::from(f)].name), dim: dim.into() }
            }
            Entry::Fixed(i) => Part::Fixed(bound.fixed[usize::from(i)].clone()),
        };
        let (inputs, outputs) = bound.rows.get(row)?.entries.split_at(self.0.inputs.len());
        Some(Strategy {
            inputs: inputs.iter().map(part).collect(),
            outputs: outputs.iter().map(part).collect(),
        })
    }

    fn bind(name: &str, rule: &Rule, inputs: &[&[usize]], outputs: Option<&[&[usize]]>) -> Result<Op, Error> {
        for shape in inputs.iter().chain(outputs.unwrap_or_default()) {
            reshard_sharding::internal::numel(shape)?;
        }
        let call = Call { name, rule, inputs };
        let counts = rule.operands();
        let given = (inputs.len(), outputs.map_or(counts.1, <[_]>::len));
        if given != counts {
            return Err(call.error(format!(
                "the rule has {} inputs and {} outputs, not {} and {}",
                counts.0, counts.1, given.0, given.1
            )));
        }
        let (bound, outputs) = match &*rule.0 {
            Form::Equation(e) => call.equation(e, outputs)?,
            Form::List(_) => call.list(outputs)?,
        };
        let inputs = inputs.iter().map(|s| Shape::from_slice(s)).collect();
        Ok(Op::made(name, inputs, outputs, Body::Rows(bound), Some(rule.clone())))
    }
}

/// `64,32` in brackets.
pub(crate) struct Brackets<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Brackets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        super::strategy::write_list(f, self.0)?;
        f.write_str("]")
    }
}

/// What is being bound.
struct Call<'a> {
    name: &'a str,
    rule: &'a Rule,
    inputs: &'a [&'a [usize]],
}

impl Call<'_> {
    fn error(&self, reason: impl fmt::Display) -> Error {
        let shapes: Vec<String> = self.inputs.iter().take(8).map(|s| Brackets(s).to_string()).collect();
        let more = if self.inputs.len() > 8 { " and more" } else { "" };
        let on =
            if shapes.is_empty() { String::new() } else { format!(" on {}{more}", shapes.join(" and ")) };
        let rule = if self.inputs.len() > 8 { "..".to_owned() } else { self.rule.to_string() };
        Error::Rule { reason: format!("{}({rule}){on}: {reason}", self.name) }
    }

    fn list(&self, outputs: Option<&[&[usize]]>) -> Result<(Bound, Vec<Shape>), Error> {
        let Some(outputs) = outputs else {
            return Err(self.error("a list of strategies says nothing of shapes: give the outputs'"));
        };
        let mut bound = Bound { factors: Vec::new(), dims: Vec::new(), rows: Vec::new(), fixed: Vec::new() };
        for row in self.rule.strategies() {
            let mut entries = Vec::with_capacity(row.inputs.len() + row.outputs.len());
            let shapes = self.inputs.iter().chain(outputs);
            for (part, shape) in row.inputs.iter().chain(&row.outputs).zip(shapes) {
                let dim = match part {
                    Part::Dim { dim, .. } => Some(*dim),
                    Part::Fixed(p) => p.dim(),
                    Part::Replicate | Part::Partial(_) | Part::Factor(_) => None,
                };
                if let Some(dim) = dim.filter(|&d| d >= shape.len()) {
                    return Err(self.error(format!("{row} shards dim {dim} of {}", Brackets(shape))));
                }
                entries.push(match part {
                    Part::Partial(op) => Entry::Partial(*op),
                    Part::Dim { dim, .. } => Entry::Shard { dim: *dim as u16, factor: None },
                    Part::Fixed(p) => {
                        bound.fixed.push(p.clone());
                        Entry::Fixed(bound.fixed.len() as u16 - 1)
                    }
                    // A list has no factors.
                    Part::Replicate | Part::Factor(_) => Entry::Replicate,
                });
            }
            bound.rows.push(Row { entries });
        }
        Ok((bound, outputs.iter().map(|s| Shape::from_slice(s)).collect()))
    }

    fn equation(&self, e: &Equation, outputs: Option<&[&[usize]]>) -> Result<(Bound, Vec<Shape>), Error> {
        let fixed_dims = |dims: &[Dim]| dims.iter().filter(|d| **d != Dim::Rest).count();
        let known: Vec<(&[Dim], &[usize], String)> = (e.inputs.iter().zip(self.inputs).enumerate())
            .map(|(i, (d, s))| (d.as_slice(), *s, format!("input {i}")))
            .chain(
                (e.outputs.iter().zip(outputs.unwrap_or_default()).enumerate())
                    .map(|(i, (d, s))| (d.as_slice(), *s, format!("output {i}"))),
            )
            .collect();
        let mut rest = 0;
        for (dims, shape, what) in &known {
            let n = fixed_dims(dims);
            if shape.len() < n || (shape.len() > n && !dims.contains(&Dim::Rest)) {
                return Err(self.error(format!("{what} has {} dims, and the rule names {n}", shape.len())));
            }
            rest = rest.max(shape.len() - n);
        }
        let letters = e.factors.len();
        let mut sizes = Sizes {
            call: self,
            equation: e,
            letters,
            known: e.factors.iter().map(|f| f.size.map(|n| (n, "the rule".to_owned()))).collect(),
        };
        sizes.known.resize(letters + rest, None);
        // The dims of the ellipsis are aligned at the right.
        let expand = |dims: &[Dim], rest_here: usize| -> SmallVec<[DimFactors; 4]> {
            let mut out = SmallVec::new();
            for d in dims {
                match d {
                    Dim::Factors(list) => out.push(Some(list.iter().map(|&x| x as u16).collect())),
                    Dim::Whole => out.push(None),
                    Dim::Rest => out.extend(
                        (rest - rest_here..rest).map(|i| Some(SmallVec::from_slice(&[(letters + i) as u16]))),
                    ),
                }
            }
            out
        };
        let mut dims: Vec<SmallVec<[DimFactors; 4]>> = Vec::with_capacity(e.inputs.len() + e.outputs.len());
        for (d, shape, _) in &known {
            dims.push(expand(d, shape.len() - fixed_dims(d)));
        }
        if outputs.is_none() {
            dims.extend(e.outputs.iter().map(|d| expand(d, rest)));
        }
        sizes.solve(&known, &dims)?;
        let missing = |x: usize| {
            self.error(format!("the size of {} is not known: give the outputs' shapes", sizes.name(x)))
        };
        let mut all = SmallVec::<[usize; 8]>::new();
        for x in 0..letters + rest {
            all.push(match &sizes.known[x] {
                Some((n, _)) => *n,
                None if x >= letters => 1,
                None => return Err(missing(x)),
            });
        }
        // What is 1 where its factor is not is broadcast.
        for ((_, shape, _), dims) in known.iter().zip(&mut dims) {
            for (dim, &n) in dims.iter_mut().zip(*shape) {
                if let Some(list) = dim
                    && let [x] = list[..]
                    && usize::from(x) >= letters
                    && n == 1
                    && all[usize::from(x)] != 1
                {
                    list.clear();
                }
            }
        }
        let shapes = match outputs {
            Some(shapes) => shapes.iter().map(|s| Shape::from_slice(s)).collect(),
            None => dims[e.inputs.len()..]
                .iter()
                .map(|dims| self.shape_of(dims, &all))
                .collect::<Result<Vec<Shape>, Error>>()?,
        };
        let bound = self.rows(e, &all, dims);
        Ok((bound, shapes))
    }

    fn shape_of(&self, dims: &[DimFactors], sizes: &[usize]) -> Result<Shape, Error> {
        let len = |d: &DimFactors| match d {
            None => Err(self.error("the size of a dim * is not known: give the outputs' shapes")),
            Some(list) => list
                .iter()
                .try_fold(1usize, |p, &x| p.checked_mul(sizes[usize::from(x)]))
                .ok_or_else(|| Error::overflow(format!("a dim of the output of {}", self.name))),
        };
        let shape: Shape = dims.iter().map(len).collect::<Result<_, _>>()?;
        reshard_sharding::internal::numel(&shape)?;
        Ok(shape)
    }

    /// The rows: factors in order, the dims of the ellipsis, all replicated, terms.
    fn rows(&self, e: &Equation, sizes: &[usize], dims: Vec<SmallVec<[DimFactors; 4]>>) -> Bound {
        let letters = e.factors.len();
        let factors: Vec<BoundFactor> = sizes
            .iter()
            .enumerate()
            .map(|(x, &size)| {
                let is_major = |d: &DimFactors| {
                    d.as_ref().is_some_and(|l| l.iter().rev().skip(1).any(|&y| usize::from(y) == x))
                };
                let even = e.factors.get(x).is_some_and(|f| f.slicing == Slicing::Even)
                    || dims.iter().flatten().any(is_major);
                BoundFactor { name: e.factors.get(x).map(|f| f.name), size, even }
            })
            .collect();
        let operands = dims.len();
        let mut rows = Vec::new();
        for x in 0..sizes.len() {
            let lacking = match e.factors.get(x).map(|f| f.role) {
                None | Some(Role::Pass) => Entry::Replicate,
                Some(Role::Reduce(op)) => Entry::Partial(op),
                Some(Role::Replicate) => continue,
            };
            if x < letters && e.is_diagonal(x) {
                continue;
            }
            let entries = (0..operands)
                .map(|o| {
                    let place = dims[o]
                        .iter()
                        .position(|d| d.as_ref().is_some_and(|l| l.iter().any(|&y| usize::from(y) == x)));
                    match place {
                        Some(dim) => Entry::Shard { dim: dim as u16, factor: Some(x as u16) },
                        None if o < self.inputs.len() => Entry::Replicate,
                        None => lacking,
                    }
                })
                .collect();
            rows.push(Row { entries });
        }
        rows.push(Row { entries: vec![Entry::Replicate; operands] });
        for row in e.partial_rows() {
            let place = |o: usize, name: char| {
                let x = e.factors.iter().position(|f| f.name == name)?;
                let carries =
                    |d: &DimFactors| d.as_ref().is_some_and(|l| l.iter().any(|&y| usize::from(y) == x));
                let dim = dims[o].iter().position(carries)?;
                Some(Entry::Shard { dim: dim as u16, factor: Some(x as u16) })
            };
            let entry = |(o, p): (usize, &Part)| match p {
                Part::Partial(op) => Entry::Partial(*op),
                Part::Factor(name) => place(o, *name).unwrap_or(Entry::Replicate),
                // Rows in braces have nothing else.
                Part::Replicate | Part::Dim { .. } | Part::Fixed(_) => Entry::Replicate,
            };
            rows.push(Row {
                entries: row.inputs.iter().chain(&row.outputs).enumerate().map(entry).collect(),
            });
        }
        Bound { factors, dims, rows, fixed: Vec::new() }
    }
}

/// The sizes of factors, and who said so.
struct Sizes<'a> {
    call: &'a Call<'a>,
    equation: &'a Equation,
    letters: usize,
    known: Vec<Option<(usize, String)>>,
}

impl Sizes<'_> {
    fn name(&self, x: usize) -> String {
        self.equation
            .factors
            .get(x)
            .map_or_else(|| format!("dim -{} of the ellipsis", self.known.len() - x), |f| f.name.to_string())
    }

    fn set(&mut self, x: usize, n: usize, what: &str) -> Result<(), Error> {
        match &self.known[x] {
            Some((known, who)) if *known != n => {
                let sense = |who: &str| if who == "the rule" { String::new() } else { format!(" in {who}") };
                Err(self.call.error(format!("{} is {known}{} and {n} in {what}", self.name(x), sense(who))))
            }
            Some(_) => Ok(()),
            None => {
                self.known[x] = Some((n, what.to_owned()));
                Ok(())
            }
        }
    }

    /// Reads the sizes off the dims, until nothing more is learned.
    fn solve(
        &mut self,
        known: &[(&[Dim], &[usize], String)],
        dims: &[SmallVec<[DimFactors; 4]>],
    ) -> Result<(), Error> {
        let pairs = || {
            known.iter().zip(dims).flat_map(|((_, shape, what), dims)| {
                dims.iter()
                    .zip(*shape)
                    .enumerate()
                    .filter_map(move |(d, (list, &n))| list.as_ref().map(|l| (l, n, d, what)))
            })
        };
        for (list, n, d, what) in pairs() {
            match list[..] {
                [] if n != 1 => {
                    return Err(self.call.error(format!("dim {d} of {what} is {n}, and the rule says 1")));
                }
                [x] if usize::from(x) >= self.letters && n == 1 => {}
                [x] => self.set(x.into(), n, what)?,
                _ => {}
            }
        }
        loop {
            let mut learned = false;
            for (list, n, d, what) in pairs().filter(|(l, ..)| l.len() > 1) {
                let mut product = 1usize;
                let mut unknown = None;
                let mut unknowns = 0;
                for &x in list {
                    if let Some((m, _)) = &self.known[usize::from(x)] {
                        product = product.saturating_mul(*m);
                    } else {
                        unknown = Some(usize::from(x));
                        unknowns += 1;
                    }
                }
                let fails = || {
                    let names: String = list.iter().map(|&x| self.name(x.into())).collect();
                    self.call.error(format!(
                        "dim {d} of {what} is {n}, which is not ({names}) with the other factors {product}"
                    ))
                };
                match (unknowns, unknown) {
                    (0, _) if product != n => return Err(fails()),
                    (1, Some(x)) if product > 0 => {
                        if !n.is_multiple_of(product) {
                            return Err(fails());
                        }
                        self.known[x] = Some((n / product, what.clone()));
                        learned = true;
                    }
                    _ => {}
                }
            }
            if !learned {
                return Ok(());
            }
        }
    }
}
