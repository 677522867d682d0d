//! The calls on which the table is checked: shapes, data, and expected results.
//!
//! `reshard-reference` computes the results or, where it has no such op, a definition in f64 next to the
//! call.
#![allow(unreachable_pub, reason = "a module of tests")]
#![allow(clippy::type_complexity, clippy::float_cmp, reason = "lists of functions; exact data")]
#![allow(clippy::wildcard_enum_match_arm, clippy::items_after_statements, reason = "short definitions")]

mod along;
mod cells;
mod distances;
mod elementwise;
mod eliminations;
mod indexing;
mod margins;
mod matrices;
mod moved;
mod normed;
mod optimizers;
mod pointwise;
mod pools;
mod products;
mod random;
mod reductions;
mod scatters;
mod sequences;
mod shapes;
mod special;
mod spectra;
mod statistics;
mod windows;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ndarray::{ArrayD, Axis, IxDyn};
use reshard_ops::rules::{Op, OpCall, OpTable, ShardRegion};
use reshard_reference::{Local, run_local};
use reshard_verify::{Data, LocalView, Tensor, Verifier};

pub type A = ArrayD<f64>;
type Run = Box<dyn Fn(&LocalView<'_>) -> Result<Vec<A>, String>>;
type LocalCall = fn(&LocalView<'_>) -> String;

/// A call of the table, its test shapes, and its reference implementation.
pub struct Example {
    pub call: &'static str,
    pub shapes: Vec<Vec<Vec<usize>>>,
    data: Vec<Data>,
    tolerance: f64,
    pub constant: bool,
    idle: bool,
    pub wants: bool,
    budget: usize,
    run: Run,
    local_call: Option<LocalCall>,
}

/// Returns an example of an op that the reference has.
///
/// Shapes are written `6,5 7; 2,3 1`: calls by `;`, inputs by blanks, `()` for a scalar, `-` for none.
pub fn example(call: &'static str, shapes: &str) -> Example {
    let parsed: OpCall = call.parse().unwrap();
    if let OpCall::Named { name, .. } = &parsed {
        assert!(reshard_reference::runs(name), "the reference has no {name}");
    }
    made(call, shapes, Box::new(move |l| by_reference(&parsed, l)))
}

/// An example of an op with its definition.
pub fn defined(
    call: &'static str,
    shapes: &str,
    run: impl Fn(&LocalView<'_>) -> Vec<A> + 'static,
) -> Example {
    made(call, shapes, Box::new(move |l| Ok(run(l))))
}

/// Computes one rank's part of a call with the reference.
fn by_reference(call: &OpCall, l: &LocalView<'_>) -> Result<Vec<A>, String> {
    static TABLE: std::sync::LazyLock<OpTable> = std::sync::LazyLock::new(OpTable::standard);
    let inputs: Vec<A> = (0..l.inputs.len()).map(|i| x(l, i)).collect();
    let local = Local { inputs: &inputs, places: l.input_regions.clone(), wanted: l.output_regions.clone() };
    run_local(&TABLE, call, &local).map_err(|e| e.to_string())
}

fn made(call: &'static str, shapes: &str, run: Run) -> Example {
    let sizes = |s: &str| -> Vec<usize> {
        if s == "()" { Vec::new() } else { s.split(',').map(|n| n.parse().expect("a size")).collect() }
    };
    let inputs = |s: &str| s.split_whitespace().filter(|s| *s != "-").map(sizes).collect();
    Example {
        call,
        shapes: shapes.split(';').map(inputs).collect(),
        data: Vec::new(),
        tolerance: 0.0,
        constant: false,
        idle: false,
        wants: false,
        budget: 1024,
        run,
        local_call: None,
    }
}

impl Example {
    pub fn data(mut self, data: &[Data]) -> Example {
        self.data = data.to_vec();
        self
    }

    pub fn near(mut self) -> Example {
        self.tolerance = 1e-9;
        self
    }

    pub fn constant(mut self) -> Example {
        self.constant = true;
        self
    }

    pub fn idle(mut self) -> Example {
        self.idle = true;
        self
    }

    pub fn wants(mut self) -> Example {
        self.wants = true;
        self
    }

    /// Sets the call of a rank that takes its shards for the whole: size arguments are those of the shards.
    pub fn locally(mut self, call: LocalCall) -> Example {
        self.local_call = Some(call);
        self
    }

    /// The kind of numbers of an input.
    pub fn data_of(&self, input: usize) -> Data {
        self.data.get(input).copied().unwrap_or(Data::Integers)
    }

    /// Sets the number of input combinations that are searched.
    pub fn budget(mut self, budget: usize) -> Example {
        self.budget = budget;
        self
    }

    /// The name of the op.
    pub fn name(&self) -> String {
        match self.call.parse().unwrap() {
            OpCall::Named { name, .. } => name,
            OpCall::Rule(rule) => rule.to_string(),
            OpCall::Each(each) => each.to_string(),
        }
    }

    /// The calls, bound by a table.
    pub fn ops(&self, table: &OpTable) -> Vec<Op> {
        let call: OpCall = self.call.parse().unwrap();
        self.shapes
            .iter()
            .map(|shapes| {
                let inputs: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
                table.op(&call, &inputs).unwrap()
            })
            .collect()
    }

    pub fn verifier(&self) -> Verifier<'_> {
        self.verifier_of(|l| (self.run)(l))
    }

    /// The verifier whose ranks see every shard as the whole.
    pub fn blind(&self) -> Verifier<'_> {
        let run = |l: &LocalView<'_>| match self.local_call {
            Some(call) => by_reference(&call(l).parse().map_err(|e: reshard_ops::Error| e.to_string())?, l),
            None => (self.run)(l),
        };
        self.verifier_of(run).without_regions()
    }

    fn verifier_of<'a>(
        &'a self,
        run: impl Fn(&LocalView<'_>) -> Result<Vec<A>, String> + 'a,
    ) -> Verifier<'a> {
        let run = move |l: &LocalView<'_>| {
            quietly(|| run(l))?.map(|list| {
                list.into_iter()
                    .map(|a| Tensor::new(a.shape(), a.iter().copied().collect()))
                    .collect::<Vec<_>>()
            })
        };
        let mut v =
            Verifier::new(self.call, run).data(&self.data).tolerance(self.tolerance).budget(self.budget);
        if self.constant {
            v = v.constant();
        }
        if self.idle {
            v = v.idle_inputs();
        }
        if self.wants {
            v = v.wants_outputs();
        }
        v
    }
}

impl Example {
    /// The same op on a list of two, whose operands come in sequence.
    pub fn for_each_of_two(&self) -> Verifier<'_> {
        let run = move |l: &LocalView<'_>| {
            let (inputs, outputs) = (l.inputs.len() / 2, l.output_regions.len() / 2);
            let half = |k: usize| LocalView {
                inputs: l.inputs[k * inputs..(k + 1) * inputs].to_vec(),
                input_regions: l.input_regions[k * inputs..(k + 1) * inputs].to_vec(),
                output_regions: l.output_regions[k * outputs..(k + 1) * outputs].to_vec(),
            };
            let made = quietly(|| Ok::<_, String>([(self.run)(&half(0))?, (self.run)(&half(1))?].concat()))??;
            Ok(made.into_iter().map(|a| Tensor::new(a.shape(), a.iter().copied().collect())).collect())
        };
        let mut v = Verifier::new(self.call, run)
            .data(&[self.data.clone(), self.data.clone()].concat())
            .tolerance(self.tolerance)
            .budget(0);
        if self.constant {
            v = v.constant();
        }
        if self.idle {
            v = v.idle_inputs();
        }
        v
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs an op; if shapes do not fit, its panic becomes an error and nothing is printed.
fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    result.map_err(|e| {
        let text = e.downcast_ref::<String>().cloned();
        text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
    })
}

/// Runs the reference of a call that is an example on tensors that look whole to the op.
pub fn run(examples: &[Example], call: &OpCall, inputs: &[&Tensor]) -> Result<Vec<Tensor>, String> {
    let text = call.to_string();
    let known =
        examples.iter().find(|e| e.call == text).ok_or_else(|| format!("{call} is not an example"))?;
    let regions: Vec<ShardRegion> = inputs.iter().map(|t| ShardRegion::whole(&t.shape)).collect();
    let view = LocalView {
        inputs: inputs.to_vec(),
        input_regions: regions.iter().collect(),
        output_regions: Vec::new(),
    };
    let made = quietly(|| (known.run)(&view))??;
    Ok(made.into_iter().map(|a| Tensor::new(a.shape(), a.iter().copied().collect())).collect())
}

/// An input.
pub fn x(l: &LocalView<'_>, i: usize) -> A {
    A::from_shape_vec(IxDyn(&l.inputs[i].shape), l.inputs[i].data.clone()).expect("a shape")
}

/// A tensor by its elements.
pub fn make(shape: &[usize], f: impl Fn(&[usize]) -> f64) -> A {
    A::from_shape_fn(IxDyn(shape), |i| f(ndarray::Dimension::slice(&i)))
}

/// The shape of an array with another size along a dim.
pub fn with_size(a: &A, dim: usize, n: usize) -> Vec<usize> {
    let mut s = a.shape().to_vec();
    s[dim] = n;
    s
}

/// Each line along a dim as another line.
pub fn lines(a: &A, dim: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> A {
    let list: Vec<Vec<f64>> = a.lanes(Axis(dim)).into_iter().map(|l| f(&l.to_vec())).collect();
    // The lines come in the row-major order of the other dims.
    let n = list.first().map_or_else(|| f(&vec![0.0; a.shape()[dim]]).len(), Vec::len);
    let mut other = a.shape().to_vec();
    other.remove(dim);
    make(&with_size(a, dim, n), |i| {
        let line = i.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, c)| c);
        let at = line.zip(&other).fold(0, |at, (c, n)| at * n + c);
        list[at][i[dim]]
    })
}

/// Each line along a dim as a number.
pub fn fold(a: &A, dim: usize, f: impl Fn(&[f64]) -> f64) -> A {
    a.map_axis(Axis(dim), |l| f(&l.to_vec()))
}

pub fn all() -> Vec<Example> {
    [
        pointwise::all(),
        elementwise::all(),
        special::all(),
        random::all(),
        optimizers::all(),
        reductions::all(),
        along::all(),
        normed::all(),
        products::all(),
        matrices::all(),
        cells::all(),
        distances::all(),
        windows::all(),
        pools::all(),
        spectra::all(),
        statistics::all(),
        margins::all(),
        indexing::all(),
        scatters::all(),
        shapes::all(),
        moved::all(),
        sequences::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
