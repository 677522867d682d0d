//! Gradients: the backward of each op, as calls of other ops of the table.
//!
//! The *sharding* of a backward op is never written by hand: its rows are the forward rows transposed
//! ([`Op::vjp`](crate::rules::Op::vjp)). A table also needs the *numbers*, a formula for each op:
//!
//! ```text
//! silu    x,y,dy -> dx: s = sigmoid(x); c = rsub_scalar(s,value=1); t = mul(y,c); u = add(s,t); dx = mul(dy,u)
//! mm      x0,x1,dy -> dx0,dx1: dx0 = mn,kn->mk(dy,x1); dx1 = mk,mn->kn(x0,dy)
//! ```
//!
//! A formula is a [`Composite`], over inputs `x` (or `x0`, `x1`, ..), outputs `y` and their gradients `dy`;
//! it makes `dx`. So it is printed and run like any composite, its rule follows from the rules of its ops,
//! and it is differentiated again by the same formulas ([`OpTable::gradient`] of a composite reads its body
//! backwards).
//!
//! Not all formulas are written. An op that only permutes elements has a derived one, and an op that is
//! linear along each spatial dim has its own matrix. Many ops are defined by other ops, whose gradients are
//! read backwards. `docs/gradients.md` lists the ops by the kind of their gradient.
//!
//! An input without a gradient, such as an index, has no `dx`. An op whose outputs depend on no input
//! smoothly, such as a comparison, has the empty formula. An op without a formula is rejected by name.

mod attention;
mod builder;
mod definitions;
mod each;
mod einsum;
mod indexed;
mod kernels;
mod linear;
mod losses;
mod moved;
mod normalized;
mod pointwise;
mod pools;
mod product;
mod reduced;
mod sampled;
mod scans;
mod standard;
mod text;
mod through;
mod windows;

use core::fmt;
use std::sync::Arc;

use crate::Error;
use crate::rules::{Composite, DEEPEST, OpCall, OpTable};

pub use builder::{GradientBuilder, Variable};
pub(crate) use standard::formulas;

/// An operand of a gradient formula: an input, an output or an output gradient of the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Saved {
    /// An input, by index.
    Input(usize),
    /// An output, by index.
    Output(usize),
    /// The gradient of an output, by index.
    Gradient(usize),
}

/// The gradient of an op on inputs of some shapes: the values that it takes, and the gradients that it gives.
///
/// ```
/// use reshard_ops::rules::OpTable;
/// let table = OpTable::standard();
/// let gradient = table.gradient(&"mm".parse()?, &[&[8, 6], &[6, 4]])?;
/// assert_eq!(gradient.to_string(), "x0,x1,dy -> dx0,dx1: dx0 = mn,kn->mk(dy,x1); dx1 = mk,mn->kn(x0,dy)");
/// assert_eq!(gradient.input_gradients(), [Some(0), Some(1)]);
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gradient {
    body: Option<Arc<Composite>>,
    inputs: Arc<[Saved]>,
    input_gradients: Arc<[Option<usize>]>,
    is_one_kernel: bool,
}

impl Gradient {
    /// The formula; `None` if no input has a gradient.
    pub fn body(&self) -> Option<&Composite> {
        self.body.as_deref()
    }

    /// The saved value for each input of the formula.
    pub fn inputs(&self) -> &[Saved] {
        &self.inputs
    }

    /// For each input of the op, the index of the formula's output that is its gradient; `None` without one.
    pub fn input_gradients(&self) -> &[Option<usize>] {
        &self.input_gradients
    }

    /// The calls of the formula as texts, in order: `dx = mul(dy,u)`.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let gradient = OpTable::standard().gradient(&"mul".parse()?, &[&[8, 6], &[6]])?;
    /// assert_eq!(gradient.lines(), ["dx0 = mul(dy,x1)", "a = mul(dy,x0)", "dx1 = sum(a,dims=[0])"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn lines(&self) -> Vec<String> {
        self.body().map_or_else(Vec::new, Composite::statements)
    }
}

impl fmt::Display for Gradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Some(body) => body.fmt(f),
            None => f.write_str("no input has a gradient"),
        }
    }
}

/// The gradients of an op's inputs, one for each that has one.
type Given = Result<Vec<Option<Variable>>, Error>;

/// The differentiation rule of an op.
#[derive(Clone)]
pub(crate) struct Formula(Arc<dyn Fn(&mut GradientBuilder<'_>) -> Given + Send + Sync>);

impl Formula {
    fn new(formula: impl Fn(&mut GradientBuilder<'_>) -> Given + Send + Sync + 'static) -> Formula {
        Formula(Arc::new(formula))
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("formula")
    }
}

impl OpTable {
    /// Sets or replaces the gradient formula of an op.
    ///
    /// It is a function that calls ops of the table on the saved values, and returns for each input its
    /// gradient or `None`.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let mut table = OpTable::standard();
    /// table.add("twice", "...->... {linear}".parse()?);
    /// table.add_gradient("twice", |b| {
    ///     let dx = b.op("twice", &[b.dy(0)])?;
    ///     Ok(vec![Some(dx)])
    /// });
    /// assert_eq!(table.gradient(&"twice".parse()?, &[&[4]])?.to_string(), "dy -> dx: dx = twice(dy)");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn add_gradient(
        &mut self,
        name: &str,
        formula: impl Fn(&mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> + Send + Sync + 'static,
    ) {
        self.changed();
        self.gradients.insert(name.to_owned(), Formula::new(formula));
    }

    /// Returns the gradient of a call on inputs of these shapes.
    ///
    /// That of a rule is the gradient of an einsum; that of an op is its formula. A composite without a
    /// separate formula has its body read backwards. Any other op without a formula needs a rule that only
    /// permutes elements (`selecting`, or partial sums, products, maxima and minima that all pass). Its
    /// gradient follows from the positions that it gives them.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let mut table = OpTable::standard();
    /// table.add("turned", "ij->ji {selecting}".parse()?);
    /// let gradient = table.gradient(&"turned".parse()?, &[&[2, 3]])?;
    /// assert_eq!(gradient.lines()[..3], ["a = arange(size=6,start=1)", "b = reshape(a,shape=[2,3])", "c = turned(b)"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let refused = table.gradient(&"cholesky".parse()?, &[&[4, 4]]).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "cholesky has no gradient; add a gradient formula, or make it a composite of ops that have one",
    /// );
    /// assert_eq!(refused.code(), "no_gradient");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails as [`OpTable::op`] does, with `no_gradient` for an op without a formula, and where a formula calls
    /// an op that does not take its operands.
    pub fn gradient(&self, call: &OpCall, inputs: &[&[usize]]) -> Result<Gradient, Error> {
        self.differentiated.of(call, inputs, || self.gradient_within(call, inputs, DEEPEST))
    }

    pub(crate) fn gradient_within(
        &self,
        call: &OpCall,
        inputs: &[&[usize]],
        deep: usize,
    ) -> Result<Gradient, Error> {
        let mut builder = GradientBuilder::new(self, call, inputs, deep)?;
        let given = match call {
            OpCall::Rule(rule) => einsum::gradient(&mut builder, rule)?,
            OpCall::Each(call) => each::gradient(&mut builder, call)?,
            OpCall::Named { name, .. } => match (self.gradients.get(name), self.composite(name)) {
                (Some(formula), _) => (formula.0)(&mut builder)?,
                (None, Some(body)) => through::gradient(&mut builder, &body.clone())?,
                (None, None) => moved::gradient(&mut builder)?.ok_or_else(|| refused(name))?,
            },
        };
        let gradient = builder.finish(&given)?;
        Ok(Gradient { is_one_kernel: kernels::is_one_kernel(call, gradient.body()), ..gradient })
    }

    /// The names of the ops that have a separate formula, in order.
    #[doc(hidden)]
    pub fn gradients(&self) -> impl Iterator<Item = &str> {
        self.gradients.keys().map(String::as_str)
    }

    /// Returns `true` if an op has a separate formula.
    #[doc(hidden)]
    pub fn has_gradient(&self, name: &str) -> bool {
        self.gradients.contains_key(name)
    }
}

fn refused(name: &str) -> Error {
    Error::Sharding(reshard_sharding::Error::NoGradient {
        reason: format!(
            "{name} has no gradient; add a gradient formula, or make it a composite of ops that have one"
        ),
    })
}
