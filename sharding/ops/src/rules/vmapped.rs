//! A call on each of several slices: a region of per-device code, seen on the whole tensor.
//!
//! ```text
//! each[4:1,0] mm(x, w)      x[4,m,k], w[k,n] -> [4,m,n]      for z in 0..4:  y[z] = mm(x[z], w)
//! each[2,3:11,01] add       x[2,3,n], b[3,n] -> [2,3,n]      a digit for each size: whether the operand has that dim
//! ```
//!
//! The dims come first, in the order of the sizes. A dim that no operand has, no output has; every output has
//! each dim that any operand has. Along such a dim, operands that have it are shards of it and the others
//! replicas, so that its row is that of a factor that passes. All other rows are those of the call. A
//! gradient is the formula of the call on each slice, summed for an operand over the dims that it does not
//! have: along the axis of such a dim it is a partial sum.

use core::fmt;

use smallvec::SmallVec;

use crate::Error;
use crate::rules::call::{Argument, OpCall};
use crate::rules::composite::{Composite, Statement};
use crate::rules::op::Op;
use crate::rules::row::{Bound, BoundFactor, Entry, OperandDims, Row};

/// For each of the dims, `true` if an operand has it.
pub(crate) type Has = SmallVec<[bool; 4]>;

/// A call, and the slices of its operands on which it is made.
///
/// ```text
/// each[4:1,0] mm(x, w)      x[4,m,k], w[k,n] -> [4,m,n]      for z in 0..4:  y[z] = mm(x[z], w)
/// ```
///
/// ```
/// use reshard_ops::rules::{OpCall, OpTable};
/// let table = OpTable::standard();
/// let call: OpCall = "each[4:1,0] mm".parse()?;
/// let op = table.op(&call, &[&[4, 8, 16], &[16, 32]])?;
/// assert_eq!(op.outputs()[0].as_slice(), [4, 8, 32]);
/// let rows: Vec<String> = op.strategies().iter().map(ToString::to_string).collect();
/// assert_eq!(rows[..3], ["?0,R -> ?0", "S(m1),R -> S(m1)", "R,S(n1) -> S(n2)"]);
/// // The gradient of an operand that all slices share is the sum over them.
/// let gradient = table.gradient(&call, &[&[4, 8, 16], &[16, 32]])?;
/// assert_eq!(gradient.lines().last().map(String::as_str), Some("dx1 = sum(a,dims=[0])"));
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vmapped {
    sizes: Vec<usize>,
    has: Vec<Has>,
    call: Box<OpCall>,
}

/// The maximum number of dims.
const MOST_DIMS: usize = 16;

impl Vmapped {
    /// Returns the call on each slice of operands that have these of the dims.
    ///
    /// Fails for operands that list another number of dims, and if no operand has a dim.
    #[doc(hidden)]
    pub fn new(sizes: &[usize], has: &[Vec<bool>], call: &OpCall) -> Result<Vmapped, Error> {
        let each = Vmapped {
            sizes: sizes.to_vec(),
            has: has.iter().map(|has| has.iter().copied().collect()).collect(),
            call: Box::new(call.clone()),
        };
        let idle = (0..sizes.len()).find(|&d| !each.has.iter().any(|has| has.get(d) == Some(&true)));
        let reason = if sizes.is_empty() || sizes.len() > MOST_DIMS {
            format!("it has {} dims, but must have 1 to {MOST_DIMS}", sizes.len())
        } else if let Some(other) = each.has.iter().find(|has| has.len() != sizes.len()) {
            format!("an operand has {} digits, but there are {} sizes", other.len(), sizes.len())
        } else if matches!(call, OpCall::Each(_)) {
            "the call on slices must not be `each` itself; give it the dims of both".to_owned()
        } else if let Some(idle) = idle {
            format!("no operand has the dim of size {}; remove it", sizes[idle])
        } else {
            return Ok(each);
        };
        Err(Error::Rule { reason: format!("{each}: {reason}") })
    }

    /// The call on a slice.
    pub fn call(&self) -> &OpCall {
        &self.call
    }

    /// The sizes of the dims over which it is made.
    #[doc(hidden)]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// For each operand, the dims that it has.
    #[doc(hidden)]
    pub fn operands(&self) -> impl Iterator<Item = &[bool]> {
        self.has.iter().map(SmallVec::as_slice)
    }

    /// Returns the number of the dims that an operand has; they are its first.
    #[doc(hidden)]
    pub fn dims_of(&self, operand: usize) -> usize {
        self.has.get(operand).map_or(0, |has| count(has))
    }

    /// Returns the call over the slices of these operands; the call itself if none of them has a dim.
    pub(crate) fn of(&self, has: &[Has], call: &OpCall) -> OpCall {
        let used: Vec<usize> = (0..self.sizes.len()).filter(|&d| has.iter().any(|has| has[d])).collect();
        if used.is_empty() {
            return call.clone();
        }
        OpCall::Each(Vmapped {
            sizes: used.iter().map(|&d| self.sizes[d]).collect(),
            has: has.iter().map(|has| used.iter().map(|&d| has[d]).collect()).collect(),
            call: Box::new(call.clone()),
        })
    }

    /// Returns the dims of an output: those that any operand has.
    pub(crate) fn union(&self, has: &[Has]) -> Has {
        (0..self.sizes.len()).map(|d| has.iter().any(|has| has[d])).collect()
    }

    /// The dims of the operands, in order.
    pub(crate) fn has(&self) -> &[Has] {
        &self.has
    }

    /// Returns the shapes of a slice of each operand.
    ///
    /// Fails for another number of operands, and where a dim is of another size.
    pub fn slices(&self, inputs: &[&[usize]]) -> Result<Vec<Vec<usize>>, Error> {
        if inputs.len() != self.has.len() {
            return Err(Error::Rule {
                reason: format!(
                    "{self}: it is called with {} operands, but has digits for {}",
                    inputs.len(),
                    self.has.len()
                ),
            });
        }
        let slice = |(shape, has): (&&[usize], &Has)| {
            let sizes: Vec<usize> = had(&self.sizes, has).collect();
            match shape.strip_prefix(sizes.as_slice()) {
                Some(rest) => Ok(rest.to_vec()),
                None => Err(Error::Rule {
                    reason: format!("{self}: an operand is {shape:?}, but its first dims must be {sizes:?}"),
                }),
            }
        };
        inputs.iter().zip(&self.has).map(slice).collect()
    }

    /// Returns the op on whole operands, given the op on a slice.
    pub(crate) fn op(&self, slice: &Op, inputs: &[&[usize]]) -> Result<Op, Error> {
        if !slice.in_place_inputs().is_empty() {
            return Err(Error::Rule {
                reason: format!(
                    "{self}: the call on slices must return new tensors, but this one writes into an input"
                ),
            });
        }
        for shape in inputs {
            reshard_sharding::internal::numel(shape)?;
        }
        let all: Has = self.sizes.iter().map(|_| true).collect();
        let outputs: Vec<Vec<usize>> =
            slice.outputs().iter().map(|shape| [&self.sizes[..], shape].concat()).collect();
        for shape in &outputs {
            reshard_sharding::internal::numel(shape)?;
        }
        let Some(bound) = slice.bound() else { return Op::view(inputs[0], &outputs[0]) };
        let operands: Vec<&Has> = self.has.iter().chain(core::iter::repeat_n(&all, outputs.len())).collect();
        let inputs = inputs.iter().map(|s| s.to_vec()).collect();
        Ok(Op::of_rows(&self.to_string(), inputs, outputs, self.rows(bound, &operands)))
    }

    /// The rows of the call, and one for each dim.
    fn rows(&self, bound: &Bound, operands: &[&Has]) -> Bound {
        let first = bound.factors.len();
        let mut factors = bound.factors.clone();
        factors.extend(self.sizes.iter().map(|&size| BoundFactor { name: None, size, even: false }));
        let listed = bound.dims.is_empty();
        let dims: Vec<OperandDims> = (bound.dims.iter().zip(operands))
            .map(|(dims, has)| {
                let own = (0..self.sizes.len()).filter(|&d| has[d]);
                let own = own.map(|d| Some(SmallVec::from_slice(&[(first + d) as u16])));
                own.chain(dims.iter().cloned()).collect()
            })
            .collect();
        let mut fixed = Vec::new();
        // Random numbers on a slice depend on its index.
        let region = self.call().argument("key").is_some();
        let mut rows: Vec<Row> = (0..self.sizes.len())
            .map(|d| {
                let factor = (!listed).then_some((first + d) as u16);
                let entry = |has: &&Has| {
                    let dim = count(&has[..d]) as u16;
                    if has[d] { Entry::Shard { dim, factor } } else { Entry::Replicate }
                };
                Row { entries: operands.iter().map(entry).collect(), region }
            })
            .collect();
        rows.extend(bound.rows.iter().map(|row| {
            let entries = row.entries.iter().zip(operands).map(|(entry, has)| {
                let more = count(has);
                match *entry {
                    Entry::Replicate => Entry::Replicate,
                    Entry::Partial(op) => Entry::Partial(op),
                    Entry::Shard { dim, factor } => Entry::Shard { dim: dim + more as u16, factor },
                    Entry::Fixed(i) => {
                        let placement = &bound.fixed[usize::from(i)];
                        fixed.push(placement.with_dim(placement.dim().map_or(0, |d| d + more)));
                        Entry::Fixed((fixed.len() - 1) as u16)
                    }
                }
            });
            Row { entries: entries.collect(), region: row.region }
        }));
        Bound { factors, dims, rows, fixed, written: Vec::new() }
    }

    /// Returns a body with every call made on each slice; `None` if an output of the body lacks a dim.
    #[doc(hidden)]
    pub fn over(&self, body: &Composite) -> Option<Composite> {
        let all = self.union(&self.has);
        let (body, outputs) = self.body(body, &self.has);
        outputs.iter().all(|has| *has == all).then_some(body)
    }

    /// Returns a body on each slice of its inputs, which have these dims, and the dims of its outputs.
    pub(crate) fn body(&self, body: &Composite, inputs: &[Has]) -> (Composite, Vec<Has>) {
        let mut has = inputs.to_vec();
        let each = |s: &Statement| {
            let operands: Vec<Has> = s.operands.iter().map(|&v| has[v].clone()).collect();
            let made = self.union(&operands);
            has.extend(s.results.iter().map(|_| made.clone()));
            Statement { call: self.of(&operands, &s.call), ..s.clone() }
        };
        let statements: Vec<Statement> = body.statements.iter().map(each).collect();
        let outputs = body.outputs.iter().map(|&v| has[v].clone()).collect();
        (body.with(statements), outputs)
    }

    /// The first part of the text: `each[4:1,0] `.
    pub(crate) fn head(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let digits = |has: &Has| has.iter().map(|&has| if has { '1' } else { '0' }).collect::<String>();
        let operands: Vec<String> = self.has.iter().map(digits).collect();
        format!("each[{}:{}] ", sizes.join(","), operands.join(","))
    }

    /// Adds an argument to the call, or replaces its value.
    pub(super) fn set(&mut self, key: &str, value: Argument) {
        *self.call = (*self.call).clone().with(key, value);
    }

    /// Parses a text; `rest` is the text after `each[`.
    pub(super) fn read(text: &str, rest: &str) -> Result<Vmapped, Error> {
        let wrong = |reason: &str| Error::Rule {
            reason: format!(
                "call {text:?}: {reason}, such as each[4:1,0] mm, where the first of two operands has an extra dim of \
                 size 4"
            ),
        };
        let (head, call) = rest.split_once(']').ok_or_else(|| wrong("each[ has no ]"))?;
        let (sizes, has) =
            head.split_once(':').ok_or_else(|| wrong("the sizes must be followed by : and the operands"))?;
        let sizes: Option<Vec<usize>> = sizes.split(',').map(|n| n.trim().parse().ok()).collect();
        let sizes = sizes.ok_or_else(|| wrong("the sizes must be whole numbers, separated by commas"))?;
        let digits = |text: &str| -> Option<Vec<bool>> {
            let digit = |c| match c {
                '0' => Some(false),
                '1' => Some(true),
                _ => None,
            };
            text.trim().chars().map(digit).collect()
        };
        let has: Option<Vec<Vec<bool>>> = has.split(',').map(digits).collect();
        let has = has.ok_or_else(|| wrong("an operand must have a 0 or 1 per size, 1 if it has that dim"))?;
        Vmapped::new(&sizes, &has, &call.parse()?)
    }
}

/// Returns the number of `true` entries.
pub(crate) fn count(has: &[bool]) -> usize {
    has.iter().filter(|has| **has).count()
}

/// Returns the elements of a list at the dims that an operand has.
pub(crate) fn had<'a, T: Copy>(list: &'a [T], has: &'a [bool]) -> impl Iterator<Item = T> + 'a {
    list.iter().zip(has).filter(|(_, has)| **has).map(|(item, _)| *item)
}

impl fmt::Display for Vmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.head(), self.call)
    }
}
