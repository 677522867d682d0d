//! The builder of formulas: calls of the table's ops on the saved values of an op's call.

use std::sync::Arc;

use super::{Gradient, Saved};
use crate::Error;
use crate::rules::{Argument, BoundCall, Composite, DEEPEST, MOST_CALLS, Op, OpCall, OpTable, Statement};

/// A value of a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variable(pub(super) usize);

/// Builds the formula of one call, from its saved values and calls of the table's ops.
///
/// ```
/// use reshard_ops::rules::OpTable;
/// let mut table = OpTable::standard();
/// table.add("cubed", "...->... {none}".parse()?);
/// table.add_gradient("cubed", |b| {
///     let square = b.op("mul", &[b.x(0), b.x(0)])?;
///     let three = b.op("add", &[square, square])?;
///     let three = b.op("add", &[three, square])?;
///     Ok(vec![Some(b.op("mul", &[b.dy(0), three])?)])
/// });
/// let gradient = table.gradient(&"cubed".parse()?, &[&[4]])?;
/// assert_eq!(gradient.lines(), ["a = mul(x,x)", "b = add(a,a)", "c = add(b,a)", "dx = mul(dy,c)"]);
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Debug)]
pub struct GradientBuilder<'a> {
    table: &'a OpTable,
    call: &'a OpCall,
    inputs: &'a [&'a [usize]],
    op: Op,
    deep: usize,
    /// The shape of every value: inputs, outputs, gradients of outputs, and results of calls.
    shapes: Vec<Vec<usize>>,
    statements: Vec<Statement>,
}

impl<'a> GradientBuilder<'a> {
    pub(super) fn new(
        table: &'a OpTable,
        call: &'a OpCall,
        inputs: &'a [&'a [usize]],
        deep: usize,
    ) -> Result<Self, Error> {
        let op = table.op(call, inputs)?;
        let shapes = [op.inputs(), op.outputs(), op.outputs()].concat();
        Ok(GradientBuilder { table, call, inputs, op, deep, shapes, statements: Vec::new() })
    }

    /// The number of values.
    pub(super) fn values(&self) -> usize {
        self.shapes.len()
    }

    /// The number of calls.
    pub(super) fn made(&self) -> usize {
        self.statements.len()
    }

    /// The calls from index `first` on.
    pub(super) fn made_since(&self, first: usize) -> &[Statement] {
        &self.statements[first..]
    }

    /// An error about this formula.
    pub(super) fn wrong(&self, reason: &str) -> Error {
        Error::Rule { reason: format!("in the gradient of {}: {reason}", self.call) }
    }

    /// The op whose gradient this is, bound to its inputs.
    pub fn forward(&self) -> &Op {
        &self.op
    }

    /// The name of the op; of a rule its text.
    pub(super) fn name(&self) -> &str {
        self.call.name().unwrap_or_else(|| self.op.name())
    }

    /// An input of the op; requires one of its inputs.
    pub fn x(&self, input: usize) -> Variable {
        debug_assert!(input < self.op.inputs().len(), "{} has no input {input}", self.call);
        Variable(input)
    }

    /// An output of the op; requires one of its outputs.
    pub fn y(&self, output: usize) -> Variable {
        debug_assert!(output < self.op.outputs().len(), "{} has no output {output}", self.call);
        Variable(self.op.inputs().len() + output)
    }

    /// The gradient of an output; requires one of its outputs.
    pub fn dy(&self, output: usize) -> Variable {
        debug_assert!(output < self.op.outputs().len(), "{} has no output {output}", self.call);
        Variable(self.op.inputs().len() + self.op.outputs().len() + output)
    }

    /// The shape of a value.
    pub fn shape(&self, value: Variable) -> &[usize] {
        &self.shapes[value.0]
    }

    /// Reads an argument of the call by what the op's family declares.
    pub fn argument<T>(&self, read: impl FnOnce(&BoundCall<'_>) -> Result<T, Error>) -> Result<T, Error> {
        read(&self.table.request(self.call, self.inputs)?)
    }

    /// The value of an argument that is a number and that the formula depends on.
    pub(crate) fn real(&self, key: &str) -> Result<f64, Error> {
        self.argument(|r| {
            if r.has(key)? {
                return r.real(key);
            }
            Err(r.error(format!("its gradient depends on {key}; give it, such as {key}=2")))
        })
    }

    /// Calls an op of one output: its name, or its name with arguments, like `sum(dims=[0])`.
    pub fn op(&mut self, call: &str, operands: &[Variable]) -> Result<Variable, Error> {
        self.call(&call.parse()?, operands)
    }

    /// Calls an op of one output.
    pub fn call(&mut self, call: &OpCall, operands: &[Variable]) -> Result<Variable, Error> {
        match self.calls(call, operands)?.as_slice() {
            [one] => Ok(*one),
            several => Err(Error::Rule {
                reason: format!("{call} has {} outputs, but the formula uses one", several.len()),
            }),
        }
    }

    /// Calls an op of any number of outputs.
    pub fn calls(&mut self, call: &OpCall, operands: &[Variable]) -> Result<Vec<Variable>, Error> {
        if self.statements.len() >= MOST_CALLS {
            return Err(Error::Rule {
                reason: format!("the gradient of {} makes more than {MOST_CALLS} calls", self.call),
            });
        }
        let shapes: Vec<&[usize]> = operands.iter().map(|&v| self.shape(v)).collect();
        let op = self.table.op(call, &shapes).map_err(|e| self.wrong(&e.to_string()))?;
        let first = self.shapes.len();
        self.shapes.extend_from_slice(op.outputs());
        let results: Vec<usize> = (first..self.shapes.len()).collect();
        let made = results.iter().map(|&v| Variable(v)).collect();
        self.statements.push(Statement {
            call: call.clone(),
            operands: operands.iter().map(|v| v.0).collect(),
            results,
        });
        Ok(made)
    }

    /// Returns an explicitly given argument; `None` if it has its default.
    pub(crate) fn given(&self, key: &str) -> Option<Argument> {
        self.call.argument(key).cloned()
    }

    /// The call whose gradient this is.
    pub(super) fn same_call(&self) -> OpCall {
        self.call.clone()
    }

    /// Calls the same op on another operand.
    pub(crate) fn again(&mut self, value: Variable) -> Result<Variable, Error> {
        let call = self.call;
        self.call(call, &[value])
    }

    /// Calls the same op with one argument changed, on another operand.
    pub(crate) fn again_with(
        &mut self,
        key: &str,
        argument: Argument,
        value: Variable,
    ) -> Result<Variable, Error> {
        let call = self.call.clone().with(key, argument);
        self.call(&call, &[value])
    }

    /// Calls an op of one operand and a number: `add_scalar(value=0.5)`.
    pub(crate) fn with_number(
        &mut self,
        name: &str,
        key: &str,
        by: f64,
        value: Variable,
    ) -> Result<Variable, Error> {
        self.call(&OpCall::new(name).with(key, number(by)), &[value])
    }

    /// Multiplies `value` by a number.
    pub(crate) fn scaled(&mut self, value: Variable, by: f64) -> Result<Variable, Error> {
        #[allow(clippy::float_cmp, reason = "multiplying by one changes nothing")]
        if by == 1.0 {
            return Ok(value);
        }
        self.with_number("mul_scalar", "value", by, value)
    }

    /// Reshapes `value` to a shape with equally many elements.
    pub(crate) fn reshaped(&mut self, value: Variable, shape: &[usize]) -> Result<Variable, Error> {
        if self.shape(value) == shape {
            return Ok(value);
        }
        self.call(&OpCall::new("reshape").with("shape", numbers(shape)), &[value])
    }

    /// Returns a call of another op with the given arguments of these keys.
    pub(super) fn with_arguments(&self, name: &str, keys: &[&str]) -> OpCall {
        keys.iter().fold(OpCall::new(name), |call, key| match self.given(key) {
            Some(value) => call.with(key, value),
            None => call,
        })
    }

    /// Calls an op along a dim: `cat(dim=1)`.
    pub(crate) fn along(&mut self, name: &str, dim: usize, operands: &[Variable]) -> Result<Variable, Error> {
        self.call(&along(name, dim), operands)
    }

    /// Returns `length` indices of a dim, beginning at `start`.
    pub(crate) fn narrowed(
        &mut self,
        value: Variable,
        dim: usize,
        start: usize,
        length: usize,
    ) -> Result<Variable, Error> {
        let call = along("narrow", dim).with("start", whole(start)).with("length", whole(length));
        self.call(&call, &[value])
    }

    /// Permutes the dims.
    pub(crate) fn permuted(&mut self, value: Variable, dims: &[usize]) -> Result<Variable, Error> {
        self.call(&OpCall::new("permute").with("dims", numbers(dims)), &[value])
    }

    /// Returns the sum over these dims, which stay with size 1 if `keepdim` is set.
    pub(crate) fn summed(
        &mut self,
        value: Variable,
        dims: &[usize],
        keepdim: bool,
    ) -> Result<Variable, Error> {
        if dims.is_empty() {
            return Ok(value);
        }
        if keepdim {
            return self.folded("sum", value, dims);
        }
        self.call(&OpCall::new("sum").with("dims", numbers(dims)), &[value])
    }

    /// Reduces over these dims, which stay with size 1.
    pub(crate) fn folded(&mut self, name: &str, value: Variable, dims: &[usize]) -> Result<Variable, Error> {
        let call = OpCall::new(name).with("dims", numbers(dims)).with("keepdim", Argument::Flag(true));
        self.call(&call, &[value])
    }

    /// Returns zeros like the first input, with values written by an index along a dim.
    pub(crate) fn written(
        &mut self,
        name: &str,
        dim: usize,
        index: Variable,
        values: Variable,
    ) -> Result<Variable, Error> {
        let zeros = self.op("zeros_like", &[self.x(0)])?;
        self.along(name, dim, &[zeros, index, values])
    }

    /// Broadcasts `value` to this shape.
    pub(crate) fn expanded(&mut self, value: Variable, shape: &[usize]) -> Result<Variable, Error> {
        if self.shape(value) == shape {
            return Ok(value);
        }
        self.call(&OpCall::new("expand").with("shape", numbers(shape)), &[value])
    }

    /// Sums `value` to `shape`, over the dims along which a tensor of that shape was broadcast.
    pub(crate) fn fitted(&mut self, value: Variable, shape: &[usize]) -> Result<Variable, Error> {
        let has = self.shape(value).to_vec();
        let Some(more) = has.len().checked_sub(shape.len()) else { return self.reshaped(value, shape) };
        let repeated = (0..has.len()).filter(|&d| d < more || (shape[d - more] == 1 && has[d] != 1));
        let dims: Vec<usize> = repeated.collect();
        let keeps = dims.iter().any(|&d| d >= more);
        let sum = self.summed(value, &dims, keeps)?;
        self.reshaped(sum, shape)
    }

    /// Adds the calls of a body on these values, and returns the variables of its outputs.
    pub(crate) fn spliced(&mut self, body: &Composite, inputs: &[Variable]) -> Result<Vec<Variable>, Error> {
        let mut values = inputs.to_vec();
        for (call, takes, _) in body.calls() {
            let operands: Vec<Variable> = takes.iter().map(|&v| values[v]).collect();
            // A copy of a value is represented by that value; `finish` inserts copies where separate values
            // are needed.
            if *call == OpCall::new("clone") {
                values.extend(operands);
            } else {
                values.extend(self.calls(call, &operands)?);
            }
        }
        Ok(body.output_values().iter().map(|&v| values[v]).collect())
    }

    /// Returns the gradient of another call, with the depth increased by one.
    pub(super) fn of_slice(&self, call: &OpCall, inputs: &[&[usize]]) -> Result<Gradient, Error> {
        self.table.gradient_within(call, inputs, self.deeper()?)
    }

    fn deeper(&self) -> Result<usize, Error> {
        self.deep.checked_sub(1).ok_or_else(|| Error::Rule {
            reason: format!("{} is a composite within {DEEPEST} others", self.call),
        })
    }

    /// The gradients of the inputs of another call, whose outputs have these gradients.
    pub(super) fn backward(
        &mut self,
        call: &OpCall,
        inputs: &[Variable],
        outputs: &[Variable],
        gradients: &[Option<Variable>],
    ) -> Result<Vec<Option<Variable>>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|&v| self.shape(v)).collect();
        let gradient = self.of_slice(call, &shapes)?;
        let Some(body) = gradient.body() else { return Ok(vec![None; inputs.len()]) };
        let mut given = Vec::with_capacity(gradient.inputs().len());
        for saved in gradient.inputs() {
            given.push(match *saved {
                Saved::Input(i) => inputs[i],
                Saved::Output(o) => outputs[o],
                Saved::Gradient(o) => match gradients[o] {
                    Some(gradient) => gradient,
                    None => self.op("zeros_like", &[outputs[o]])?,
                },
            });
        }
        let made = self.spliced(body, &given)?;
        Ok(gradient.input_gradients().iter().map(|g| g.map(|g| made[g])).collect())
    }

    /// Returns the finished formula, without unused calls.
    pub(super) fn finish(mut self, given: &[Option<Variable>]) -> Result<Gradient, Error> {
        let n = self.op.inputs().len();
        if given.len() != n {
            return Err(Error::Rule {
                reason: format!(
                    "the formula of {} returns {} gradients for {n} inputs; return `none` for an input without a \
                     gradient",
                    self.call,
                    given.len()
                ),
            });
        }
        let saved = n + 2 * self.op.outputs().len();
        // A gradient is a separate value: neither an input of the formula nor another gradient.
        let mut own: Vec<Option<usize>> = Vec::with_capacity(n);
        for (i, &gradient) in given.iter().enumerate() {
            let Some(gradient) = gradient else {
                own.push(None);
                continue;
            };
            if self.shape(gradient) != self.op.inputs()[i] {
                return Err(Error::Rule {
                    reason: format!(
                        "the formula of {} returns a gradient of shape {:?} for input {i}, whose shape is {:?}",
                        self.call,
                        self.shape(gradient),
                        self.op.inputs()[i]
                    ),
                });
            }
            let known = gradient.0 < saved || own.contains(&Some(gradient.0));
            let value = if known { self.op("clone", &[gradient])? } else { gradient };
            own.push(Some(value.0));
        }
        let wanted: Vec<usize> = own.iter().flatten().copied().collect();
        let mut used = vec![false; self.shapes.len()];
        for &v in &wanted {
            used[v] = true;
        }
        let mut kept: Vec<Statement> = Vec::new();
        for statement in self.statements.iter().rev() {
            if statement.results.iter().any(|&v| used[v]) {
                for &v in &statement.operands {
                    used[v] = true;
                }
                kept.push(statement.clone());
            }
        }
        kept.reverse();
        if wanted.is_empty() {
            return Ok(Gradient {
                body: None,
                inputs: Arc::default(),
                input_gradients: vec![None; n].into(),
                is_one_kernel: false,
            });
        }
        let names = self.names(&own, &used);
        // The used saved values come first, then the results of calls, in order.
        let inputs: Vec<usize> = (0..saved).filter(|&v| used[v]).collect();
        let made = kept.iter().flat_map(|s| s.results.iter().copied());
        let order: Vec<usize> = inputs.iter().copied().chain(made).collect();
        let mut place = vec![0; used.len()];
        for (at, &v) in order.iter().enumerate() {
            place[v] = at;
        }
        let placed = |values: &[usize]| values.iter().map(|&v| place[v]).collect::<Vec<_>>();
        let statements = kept
            .iter()
            .map(|s| Statement {
                call: s.call.clone(),
                operands: placed(&s.operands),
                results: placed(&s.results),
            })
            .collect();
        let body = Composite::of(
            order.iter().map(|&v| names[v].clone()).collect(),
            inputs.len(),
            placed(&wanted),
            statements,
        );
        let outputs = self.op.outputs().len();
        let takes = inputs.iter().map(|&v| match v {
            v if v < n => Saved::Input(v),
            v if v < n + outputs => Saved::Output(v - n),
            v => Saved::Gradient(v - n - outputs),
        });
        let mut count = 0..;
        let gives = own.iter().map(|o| o.and_then(|_| count.next())).collect();
        let (body, inputs) = (Some(Arc::new(body)), takes.collect());
        Ok(Gradient { body, inputs, input_gradients: gives, is_one_kernel: false })
    }

    /// `x0`, `y`, `dy`, `dx0`, and letters for intermediate values; `_` for unused results.
    fn names(&self, own: &[Option<usize>], used: &[bool]) -> Vec<String> {
        let (n, outputs) = (self.op.inputs().len(), self.op.outputs().len());
        let numbered = |what: &str, i: usize, of: usize| {
            if of == 1 { what.to_owned() } else { format!("{what}{i}") }
        };
        let mut names = vec![String::new(); used.len()];
        for (i, gradient) in own.iter().enumerate() {
            names[i] = numbered("x", i, n);
            if let Some(gradient) = *gradient {
                names[gradient] = numbered("dx", i, n);
            }
        }
        for o in 0..outputs {
            names[n + o] = numbered("y", o, outputs);
            names[n + outputs + o] = numbered("dy", o, outputs);
        }
        let mut letters = (0..).map(letters);
        for (name, &used) in names.iter_mut().zip(used).filter(|(name, _)| name.is_empty()) {
            *name = if used { letters.next().unwrap_or_default() } else { "_".to_owned() };
        }
        names
    }
}

/// `a`, `b`, .. `w`, then `a1`, `b1`, ..: neither `x` nor `y`, which belong to the op.
fn letters(i: usize) -> String {
    const LETTERS: &[u8] = b"abcefghijklmnopqrstuvw";
    let letter = char::from(LETTERS[i % LETTERS.len()]);
    match i / LETTERS.len() {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

/// A number as an argument.
pub(super) fn number(x: f64) -> Argument {
    #[allow(clippy::float_cmp, reason = "whole numbers are exact")]
    if x.fract() == 0.0 && x.abs() < 9e15 {
        Argument::Number(x as i64)
    } else {
        Argument::Word(x.to_string())
    }
}

/// A size or a dim as an argument.
pub(super) fn whole(n: usize) -> Argument {
    Argument::Number(n as i64)
}

/// A call of an op along a dim.
pub(super) fn along(name: &str, dim: usize) -> OpCall {
    OpCall::new(name).with("dim", whole(dim))
}

/// Sizes or dims as an argument.
pub(super) fn numbers(list: &[usize]) -> Argument {
    Argument::Numbers(list.iter().map(|&n| n as i64).collect())
}
