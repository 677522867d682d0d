//! An op: a rule bound to the shapes of one call.

use core::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::Error;
use crate::rules::bind::Binding;
use crate::rules::row::Bound;
use crate::rules::rule::Rule;
use crate::rules::strategy::Strategy;
use reshard_planner::internal::WordHasher;

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
    inputs: Vec<Vec<usize>>,
    outputs: Vec<Vec<usize>>,
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
    /// use reshard_ops::rules::Table;
    /// let op = Table::standard().op(&"softmax(dim=1)".parse()?, &[&[8, 6]])?;
    /// assert_eq!(op.rule().map(ToString::to_string).as_deref(), Some("ab->ab {b: replicate}"));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn rule(&self) -> Option<&Rule> {
        self.0.rule.0.as_ref()
    }

    /// The inputs that are written, each with the output that is written there; both counted from 0.
    ///
    /// ```
    /// use reshard_ops::rules::Table;
    /// let table = Table::standard();
    /// let op = |call: &str, shapes: &[&[usize]]| table.op(&call.parse()?, shapes);
    /// assert!(op("add", &[&[8, 6], &[6]])?.written().is_empty());
    /// assert_eq!(op("add_", &[&[8, 6], &[6]])?.written(), [(0, 0)]);
    /// assert_eq!(op("add.out", &[&[8, 6], &[6], &[8, 6]])?.written(), [(2, 0)]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn written(&self) -> Vec<(usize, usize)> {
        let pairs = self.bound().map_or(&[][..], |b| &b.written);
        pairs.iter().map(|&(i, o)| (i.into(), o.into())).collect()
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

/// `64,32` in brackets.
pub(crate) struct Brackets<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Brackets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        super::strategy::write_list(f, self.0)?;
        f.write_str("]")
    }
}
