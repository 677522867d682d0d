//! An op: a rule bound to the shapes of one call.

use core::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use crate::Error;
use crate::rules::bind::Binding;
use crate::rules::row::{Bound, DimFactors, Entry, OperandDims, Row};
use crate::rules::rule::Rule;
use crate::rules::strategy::Strategy;
use reshard_planner::internal::WordHasher;
use reshard_sharding::Exponent;

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
    /// A hash of the other fields: ops are keys of caches.
    hash: u64,
    /// `true` if no output ever has a negative element.
    nonnegative: bool,
    name: String,
    inputs: Vec<Vec<usize>>,
    outputs: Vec<Vec<usize>>,
    body: Body,
    rule: Stated,
    /// The number of operations, counted on first use.
    operations: Counted,
}

/// A number that is derived from the other fields.
#[derive(Clone, Debug, Default)]
struct Counted(OnceLock<f64>);

impl PartialEq for Counted {
    fn eq(&self, _: &Counted) -> bool {
        true
    }
}

impl Eq for Counted {}

/// The bound rule, for display only.
///
/// The body alone matters, so that the rule does not make two ops different.
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
enum Body {
    /// One strategy per mesh axis, any combination.
    Rows(Bound),
    /// The same elements in another shape: all axes at once.
    View,
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
        let shape = |s: &[usize]| vec![s.to_vec()];
        Ok(Op::made("view", shape(input), shape(output), Body::View, None))
    }

    fn made(
        name: &str,
        inputs: Vec<Vec<usize>>,
        outputs: Vec<Vec<usize>>,
        body: Body,
        rule: Option<Rule>,
    ) -> Op {
        let mut hasher = WordHasher::default();
        (name, &inputs, &outputs, &body).hash(&mut hasher);
        Op(Arc::new(Inner {
            hash: hasher.finish(),
            nonnegative: false,
            name: name.to_owned(),
            inputs,
            outputs,
            body,
            rule: Stated(rule),
            operations: Counted::default(),
        }))
    }

    /// An op of these rows, over these operands.
    pub(super) fn of_rows(name: &str, inputs: Vec<Vec<usize>>, outputs: Vec<Vec<usize>>, rows: Bound) -> Op {
        Op::made(name, inputs, outputs, Body::Rows(rows), None)
    }

    /// The same op by another name.
    pub(super) fn named(&self, name: &str) -> Op {
        let Inner { inputs, outputs, body, rule, .. } = &*self.0;
        Op::made(name, inputs.clone(), outputs.clone(), body.clone(), rule.0.clone())
    }

    /// Returns the number of operations, counted on the first call.
    pub(super) fn operations_once(&self, count: impl FnOnce() -> f64) -> f64 {
        *self.0.operations.0.get_or_init(count)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The shapes of the inputs.
    pub fn inputs(&self) -> &[Vec<usize>] {
        &self.0.inputs
    }

    /// The shapes of the outputs.
    pub fn outputs(&self) -> &[Vec<usize>] {
        &self.0.outputs
    }

    /// The rule that was bound to these shapes; none for a view.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let op = OpTable::standard().op(&"softmax(dim=1)".parse()?, &[&[8, 6]])?;
    /// assert_eq!(op.rule().map(ToString::to_string).as_deref(), Some("ab->ab {b: replicate}"));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn rule(&self) -> Option<&Rule> {
        self.0.rule.0.as_ref()
    }

    /// The inputs that are written, each with the output that is written there; both counted from 0.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let op = |call: &str, shapes: &[&[usize]]| table.op(&call.parse()?, shapes);
    /// assert!(op("add", &[&[8, 6], &[6]])?.in_place_inputs().is_empty());
    /// assert_eq!(op("add_", &[&[8, 6], &[6]])?.in_place_inputs(), [(0, 0)]);
    /// assert_eq!(op("add.out", &[&[8, 6], &[6], &[8, 6]])?.in_place_inputs(), [(2, 0)]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn in_place_inputs(&self) -> Vec<(usize, usize)> {
        let pairs = self.bound().map_or(&[][..], |b| &b.written);
        pairs.iter().map(|&(i, o)| (i.into(), o.into())).collect()
    }

    /// Adds the strategies that pass partial norms of these exponents, if the op passes those of every norm.
    ///
    /// Rules that do so name one exponent, 2. [Propagation](crate::propagate) requests the exponents that
    /// inputs have.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let clone = OpTable::standard().op(&"clone".parse()?, &[&[4]])?;
    /// let more = clone.with_norms(&["3".parse().unwrap()])?;
    /// assert_eq!(more.strategies().last().map(ToString::to_string).as_deref(), Some("P(norm3) -> P(norm3)"));
    /// assert_eq!(more.strategies().len(), clone.strategies().len() + 1);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn with_norms(&self, exponents: &[Exponent]) -> Result<Op, Error> {
        let (Some(bound), Some(rule)) = (self.bound(), self.rule()) else { return Ok(self.clone()) };
        let inputs: Vec<&[usize]> = self.0.inputs.iter().map(Vec::as_slice).collect();
        let call = Binding { name: &self.0.name, rule, inputs: &inputs };
        let body = Body::Rows(call.with_norms(bound, &self.0.outputs, exponents)?);
        let made =
            Op::made(&self.0.name, self.0.inputs.clone(), self.0.outputs.clone(), body, Some(rule.clone()));
        Ok(if self.0.nonnegative { made.with_nonnegative_outputs() } else { made })
    }

    /// Returns the same op, marked as having no negative output elements.
    ///
    /// Only such tensors become partial values of a norm without communication. Outputs that a rule leaves as
    /// partial norms need not be marked.
    #[must_use]
    pub(crate) fn with_nonnegative_outputs(&self) -> Op {
        let Inner { hash, name, inputs, outputs, body, rule, .. } = &*self.0;
        Op(Arc::new(Inner {
            hash: *hash,
            nonnegative: true,
            name: name.clone(),
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            body: body.clone(),
            rule: rule.clone(),
            operations: Counted::default(),
        }))
    }

    /// Returns `true` if an output is known to have no negative element, given these inputs.
    ///
    /// A strategy that leaves it as a partial norm implies that: the whole is then a norm. If the strategy
    /// requires partial norms of inputs, these must have no negative elements, as only such a tensor is a
    /// partial norm without communication.
    #[doc(hidden)]
    pub fn is_nonnegative(&self, output: usize, inputs: impl Fn(usize) -> bool) -> bool {
        let of_norm = |e: &Entry| matches!(e, Entry::Partial(op) if op.is_of_magnitudes());
        let n = self.0.inputs.len();
        let says = |row: &Row| {
            of_norm(&row.entries[n + output]) && (0..n).all(|i| !of_norm(&row.entries[i]) || inputs(i))
        };
        self.0.nonnegative
            || self.bound().is_some_and(|b| b.rows.iter().any(says))
            || (self.is_view() && inputs(0))
    }

    /// Returns `true` if the op only regroups digits.
    ///
    /// Then its axes are not independent and it has no strategies of one axis.
    #[doc(hidden)]
    pub fn is_view(&self) -> bool {
        self.0.body == Body::View
    }

    /// Returns `true` if each result element depends only on the input elements at the same index.
    ///
    /// All operands then have the same dims, and the op works along each of them index by index.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let op = |call: &str, inputs: &[&[usize]]| table.op(&call.parse()?, inputs).map(|op| op.is_elementwise());
    /// assert!(op("relu", &[&[4, 8]])? && op("sgd(lr=0.1)", &[&[4], &[4]])?);
    /// assert!(!op("softmax(dim=1)", &[&[4, 8]])? && !op("transpose(dim0=0,dim1=1)", &[&[4, 4]])?);
    /// assert!(!op("mm", &[&[4, 4], &[4, 4]])? && !op("sum(dims=[0])", &[&[4]])?);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_elementwise(&self) -> bool {
        let Some(bound) = self.bound() else { return false };
        let Some((first, others)) = bound.dims.split_first() else { return false };
        let along = |factor: u16| {
            let cuts = |entry: &Entry| matches!(entry, Entry::Shard { factor: Some(f), .. } if *f == factor);
            bound.rows.iter().any(|row| row.entries.iter().all(cuts))
        };
        let mut seen: Vec<u16> = Vec::new();
        others.iter().all(|dims| dims == first)
            && first.iter().all(|dim| match dim.as_deref() {
                Some(&[factor]) if !seen.contains(&factor) => {
                    seen.push(factor);
                    along(factor)
                }
                Some(_) | None => false,
            })
    }

    /// Returns the dims of an input that all outputs and no other inputs have, with their output indices.
    ///
    /// The outputs have these dims whole. A part of each output is then the same call on that part of the
    /// input.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let carried = |call: &str, inputs: &[&[usize]]| table.op(&call.parse()?, inputs).map(|op| op.batch_dims(0));
    /// // Rows of a product; the other dim of the input is summed.
    /// assert_eq!(carried("mm", &[&[4, 8], &[8, 16]])?, [(0, vec![0])]);
    /// assert_eq!(carried("transpose(dim0=0,dim1=1)", &[&[4, 8]])?, [(0, vec![1]), (1, vec![0])]);
    /// assert_eq!(carried("tile(times=[2,1])", &[&[4, 8]])?, [(1, vec![1])]);
    /// assert_eq!(carried("softmax(dim=1)", &[&[4, 8]])?, [(0, vec![0])]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn batch_dims(&self, input: usize) -> Vec<(usize, Vec<usize>)> {
        let Some(bound) = self.bound().filter(|bound| !bound.dims.is_empty()) else { return Vec::new() };
        let inputs = self.inputs().len();
        // A factor that is the only one in the only dim of an operand that has it.
        let whole = |operand: usize, factor: u16| {
            let has = |dim: &DimFactors| dim.as_ref().is_some_and(|dim| dim.contains(&factor));
            let mut dims = bound.dims[operand].iter().enumerate().filter(|(_, dim)| has(dim));
            let first = dims.next().filter(|(_, dim)| dim.as_ref().is_some_and(|dim| dim.len() == 1));
            first.filter(|_| dims.next().is_none()).map(|(at, _)| at)
        };
        let mut carried = Vec::new();
        for row in bound.rows.iter().filter(|row| !row.region) {
            let Some(&Entry::Shard { factor: Some(factor), .. }) = row.entries.get(input) else { continue };
            let is_cut =
                |entry: &Entry| matches!(entry, Entry::Shard { factor: Some(f), .. } if *f == factor);
            let (others, outputs) = row.entries.split_at(inputs);
            let alone = others.iter().enumerate().filter(|(i, _)| *i != input);
            let mut alone = alone.map(|(i, entry)| (entry, &bound.dims[i]));
            let has = |dims: &OperandDims| dims.iter().flatten().any(|dim| dim.contains(&factor));
            let is_alone = alone.all(|(entry, dims)| *entry == Entry::Replicate && !has(dims));
            let dims: Option<Vec<usize>> = (outputs.iter().enumerate())
                .map(|(o, e)| whole(inputs + o, factor).filter(|_| is_cut(e)))
                .collect();
            if let (true, Some(dim), Some(dims)) = (is_alone, whole(input, factor), dims)
                && !carried.iter().any(|(known, _)| *known == dim)
            {
                carried.push((dim, dims));
            }
        }
        carried.sort_unstable();
        carried
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

    /// For each of the [`strategies`](Op::strategies), `true` if the op has to know its region for it.
    ///
    /// The region is the part of the whole tensors that a rank holds; without it the op would compute
    /// something else.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let attention = |call: &str| table.op(&call.parse()?, &[&[2, 4, 8, 16], &[2, 4, 8, 16], &[2, 4, 8, 16]]);
    /// let needing = |call: &str| -> Result<Vec<String>, reshard_ops::Error> {
    ///     let op = attention(call)?;
    ///     let rows = op.strategies().into_iter().zip(op.regions());
    ///     Ok(rows.filter(|(_, region)| *region).map(|(strategy, _)| strategy.to_string()).collect())
    /// };
    /// assert_eq!(needing("scaled_dot_product_attention(causal=true)")?, ["S(q2),R,R -> S(q2)"]);
    /// assert!(needing("scaled_dot_product_attention")?.is_empty());
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn regions(&self) -> Vec<bool> {
        self.bound().map_or_else(Vec::new, |b| b.rows.iter().map(|row| row.region).collect())
    }

    /// Returns one strategy.
    pub(crate) fn strategy(&self, row: usize) -> Option<Strategy> {
        let bound = self.bound()?;
        Some(bound.strategy(&bound.rows.get(row)?.entries, self.0.inputs.len()))
    }

    fn bind(name: &str, rule: &Rule, inputs: &[&[usize]], outputs: Option<&[&[usize]]>) -> Result<Op, Error> {
        for shape in inputs.iter().chain(outputs.unwrap_or_default()) {
            reshard_sharding::internal::numel(shape)?;
        }
        let call = Binding { name, rule, inputs };
        let counts = rule.operands();
        let given = (inputs.len(), outputs.map_or(counts.1, <[_]>::len));
        if given != counts {
            return Err(call.error(format!(
                "the rule has {} inputs and {} outputs, not {} and {}",
                counts.0, counts.1, given.0, given.1
            )));
        }
        let (bound, outputs) = call.bound(outputs)?;
        let inputs = inputs.iter().map(|s| s.to_vec()).collect();
        Ok(Op::made(name, inputs, outputs, Body::Rows(bound), Some(rule.clone())))
    }
}

/// Returns the factors, dims and rows of an op; `None` for a view, which has no strategies of one axis.
pub fn bound_of(op: &Op) -> Option<&Bound> {
    op.bound()
}

/// `64,32` in brackets.
#[derive(Debug)]
pub struct Brackets<'a>(pub &'a [usize]);

impl fmt::Display for Brackets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        super::strategy::write_list(f, self.0)?;
        f.write_str("]")
    }
}
