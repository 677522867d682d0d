//! A call on tensors: the op of the name, the equation of a rule, or the body of a composite.

use ndarray::{ArrayD, Axis, IxDyn};
use reshard_ops::rules::{Composite, Dim, OpCall, OpTable, Rule, ShardRegion, Vmapped};
use reshard_sharding::Region;

use crate::Error;
use crate::arrays::{A, einsum};
use crate::ask::Ask;
use crate::ops;
use crate::real::Real;

/// The maximum number of elements of an output: the reference is short and slow, and not for larger tensors.
const MOST: usize = 1 << 28;

/// One rank's part of a call.
#[derive(Clone, Debug)]
pub struct Local<'a, T> {
    /// The rank's part of each input.
    pub inputs: &'a [ArrayD<T>],
    /// The region of that part in the whole input; all of it for partial values.
    pub places: Vec<&'a ShardRegion>,
    /// The region of each output in the whole.
    ///
    /// It is read by ops whose inputs do not determine it, such as factories, `expand`, `one_hot` and views.
    pub wanted: Vec<&'a ShardRegion>,
}

/// Runs a call on whole tensors.
///
/// ```
/// use ndarray::array;
/// use reshard_ops::rules::OpTable;
/// let table = OpTable::standard();
/// let x = array![-2.0f32, 3.0].into_dyn();
/// let run = |call: &str| reshard_reference::run(&table, &call.parse().unwrap(), &[x.clone()]);
/// assert_eq!(run("leaky_relu(negative_slope=0.5)")?, [array![-1.0f32, 3.0].into_dyn()]);
/// assert_eq!(run("softmx").unwrap_err().to_string(), "unknown op softmx; did you mean softmax?");
/// assert_eq!(run("mul_scalar").unwrap_err().to_string(), "mul_scalar: needs the argument `value`");
/// # Ok::<(), reshard_reference::Error>(())
/// ```
///
/// The outputs have the shapes of [`OpTable::op`]. Fails where that does, for an op that is [not here](crate::runs), for indices
/// outside of a tensor, and for outputs of more than 2^28 elements.
pub fn run<T: Real>(table: &OpTable, call: &OpCall, inputs: &[ArrayD<T>]) -> Result<Vec<ArrayD<T>>, Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(ArrayD::shape).collect();
    let op = table.op(call, &shapes)?;
    let wrong = |reason: String| Error::Input { reason: format!("{call}: {reason}") };
    if let Some(shape) = op.outputs().iter().find(|shape| shape.iter().product::<usize>() > MOST) {
        return Err(wrong(format!(
            "an output of {shape:?} has more than {MOST} elements, the limit of the reference"
        )));
    }
    if let Some(body) = composite(table, call) {
        return run_body(table, body, inputs);
    }
    if let OpCall::Each(each) = call {
        return on_slices(each, inputs, each.sizes(), op.outputs(), |at, slices| {
            run(table, &each.call().folded(at), slices)
        });
    }
    let places: Vec<ShardRegion> = shapes.iter().map(|shape| ShardRegion::whole(shape)).collect();
    let wanted: Vec<ShardRegion> = op.outputs().iter().map(|shape| ShardRegion::whole(shape)).collect();
    let local = Local { inputs, places: places.iter().collect(), wanted: wanted.iter().collect() };
    let made = run_local(table, call, &local)?;
    let (has, wants): (Vec<&[usize]>, Vec<&[usize]>) =
        (made.iter().map(ArrayD::shape).collect(), op.outputs().iter().map(Vec::as_slice).collect());
    if has == wants { Ok(made) } else { Err(wrong(format!("gave {has:?} instead of {wants:?}"))) }
}

/// Runs a call on the shards of one rank. The arguments are those of the call on the whole.
///
/// ```
/// use ndarray::array;
/// use reshard_ops::rules::{OpTable, ShardRegion};
/// use reshard_reference::{Local, run_local};
/// use reshard_sharding::{Mesh, Sharding};
/// // Row 1 of [2, 3], whose diagonal is column 1.
/// let sharding = Sharding::parse(&"x=2".parse::<Mesh>()?, &[2, 3], "S(0)")?;
/// let place = ShardRegion { region: sharding.region(1)?, whole: vec![2, 3] };
/// let inputs = [array![[4.0, 5.0, 6.0]].into_dyn()];
/// let local = Local { inputs: &inputs, places: vec![&place], wanted: vec![&place] };
/// let y = run_local(&OpTable::standard(), &"tril".parse()?, &local)?;
/// assert_eq!(y, [array![[4.0, 5.0, 0.0]].into_dyn()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Fails as [`run`] does, for shards that are not as large as their regions, and for composites, whose inner
/// regions are unknown.
pub fn run_local<T: Real>(
    table: &OpTable,
    call: &OpCall,
    local: &Local<'_, T>,
) -> Result<Vec<ArrayD<T>>, Error> {
    let wrong = |reason: String| Error::Input { reason: format!("{call}: {reason}") };
    let (has, places) = (local.inputs.len(), local.places.len());
    if has != places {
        return Err(wrong(format!("{has} inputs are given, but regions of {places}")));
    }
    for (i, (input, place)) in local.inputs.iter().zip(&local.places).enumerate() {
        if input.shape() != place.shape() || place.region.dims.len() != place.whole.len() {
            return Err(wrong(format!(
                "input {i} has shape {:?}, but its region has {:?}",
                input.shape(),
                place.shape()
            )));
        }
    }
    let inputs: Vec<A> =
        local.inputs.iter().map(|a| A::from_shape_fn(a.raw_dim(), |i| a[&i].wide())).collect();
    let made = match call {
        OpCall::Rule(rule) => vec![run_rule(rule, &inputs)?],
        OpCall::Each(each) => return run_slices(table, each, local),
        OpCall::Named { name, .. } => {
            if composite(table, call).is_some() {
                return Err(wrong(
                    "a composite runs on whole tensors only; run the ops of its body".to_owned(),
                ));
            }
            let Some((op, writes)) = ops::variant(name) else {
                table.request(call, &[])?;
                return Err(Error::NotHere { name: name.clone() });
            };
            // A tensor that is written is not read.
            let read = if writes { has.saturating_sub(local.wanted.len()) } else { has };
            let shapes: Vec<&[usize]> = local.places[..read].iter().map(|p| p.whole.as_slice()).collect();
            let ask = Ask {
                request: table.request(call, &shapes)?,
                inputs: inputs.into_iter().take(read).collect(),
                places: local.places[..read].to_vec(),
                wanted: local.wanted.clone(),
                element: T::ELEMENT,
            };
            op.run(&ask)?
        }
    };
    Ok(made.iter().map(|a| ArrayD::from_shape_fn(a.raw_dim(), |i| T::rounded(a[&i]))).collect())
}

/// The body of a call of a composite.
fn composite<'a>(table: &'a OpTable, call: &OpCall) -> Option<&'a Composite> {
    match call {
        OpCall::Named { name, .. } => table.composite(name),
        OpCall::Rule(_) | OpCall::Each(_) => None,
    }
}

/// Runs a call on each slice that a rank holds.
fn run_slices<T: Real>(
    table: &OpTable,
    each: &Vmapped,
    local: &Local<'_, T>,
) -> Result<Vec<ArrayD<T>>, Error> {
    let without = |place: &ShardRegion, dims: usize| ShardRegion {
        region: Region { dims: place.region.dims.iter().skip(dims).cloned().collect() },
        whole: place.whole.iter().skip(dims).copied().collect(),
    };
    let all = each.sizes().len();
    let places: Vec<ShardRegion> =
        local.places.iter().enumerate().map(|(i, place)| without(place, each.dims_of(i))).collect();
    let wanted: Vec<ShardRegion> = local.wanted.iter().map(|place| without(place, all)).collect();
    let outputs: Vec<Vec<usize>> = local.wanted.iter().map(|place| place.shape()).collect();
    let sizes = outputs.first().map_or(each.sizes(), |shape| shape.get(..all).unwrap_or(each.sizes()));
    // The indices of these slices.
    let numbers = local.wanted.first().map_or_else(
        || Ok(Vec::new()),
        |place| (0..all).map(|dim| place.indices(dim)).collect::<Result<Vec<_>, _>>(),
    )?;
    on_slices(each, local.inputs, sizes, &outputs, |at, slices| {
        let (places, wanted) = (places.iter().collect(), wanted.iter().collect());
        let at: Vec<usize> = at.iter().zip(&numbers).map(|(&i, own)| own[i]).collect();
        run_local(table, &each.call().folded(&at), &Local { inputs: slices, places, wanted })
    })
}

/// Combines the results of a function on each slice, into outputs of these shapes.
///
/// There are `sizes` slices along the dims.
fn on_slices<T: Real>(
    each: &Vmapped,
    inputs: &[ArrayD<T>],
    sizes: &[usize],
    outputs: &[Vec<usize>],
    slice: impl Fn(&[usize], &[ArrayD<T>]) -> Result<Vec<ArrayD<T>>, Error>,
) -> Result<Vec<ArrayD<T>>, Error> {
    let mut made: Vec<ArrayD<T>> =
        outputs.iter().map(|shape| ArrayD::from_elem(IxDyn(shape), T::rounded(0.0))).collect();
    let wrong = |has: &[usize]| Error::Input {
        reason: format!("{each}: a slice gives {has:?}, which is not a slice of {outputs:?}"),
    };
    for at in ndarray::indices(sizes) {
        let at = ndarray::Dimension::slice(&at).to_vec();
        let taken: Vec<ArrayD<T>> = (inputs.iter().zip(each.operands()))
            .map(|(input, has)| {
                let own = at.iter().zip(has).filter(|(_, has)| **has).map(|(&z, _)| z);
                own.fold(input.view(), |view, z| view.index_axis_move(Axis(0), z)).to_owned()
            })
            .collect();
        for (into, of) in made.iter_mut().zip(slice(&at, &taken)?) {
            let mut into = at.iter().fold(into.view_mut(), |view, &z| view.index_axis_move(Axis(0), z));
            if into.shape() != of.shape() {
                return Err(wrong(of.shape()));
            }
            into.assign(&of);
        }
    }
    Ok(made)
}

/// Runs the calls of a composite in sequence.
fn run_body<T: Real>(
    table: &OpTable,
    body: &Composite,
    inputs: &[ArrayD<T>],
) -> Result<Vec<ArrayD<T>>, Error> {
    let mut values: Vec<ArrayD<T>> = inputs.to_vec();
    for (call, takes, _) in body.calls() {
        let operands: Vec<ArrayD<T>> = takes.iter().map(|&v| values[v].clone()).collect();
        // Values are numbered in the order in which they are made.
        values.extend(run(table, call, &operands)?);
    }
    Ok(body.output_values().iter().map(|&v| values[v].clone()).collect())
}

/// Runs an equation that only declares the summed letters: einsum.
fn run_rule(rule: &Rule, inputs: &[A]) -> Result<A, Error> {
    let wrong = |reason: &str| Error::Input { reason: format!("{rule}: {reason}") };
    let no_einsum = || wrong("is not an einsum and cannot be computed");
    let equation = rule.equation().ok_or_else(no_einsum)?;
    let letters = |dims: &Vec<Dim>| -> Option<String> {
        dims.iter().map(|dim| if let [one] = dim.factors() { Some(*one) } else { None }).collect()
    };
    let list = |operands: &[Vec<Dim>]| -> Option<String> {
        Some(operands.iter().map(letters).collect::<Option<Vec<_>>>()?.join(","))
    };
    let text = (list(&equation.inputs).zip(list(&equation.outputs)))
        .map(|(left, right)| format!("{left}->{right}"))
        .filter(|text| text.parse::<Rule>().is_ok_and(|plain| plain == *rule) && equation.outputs.len() == 1)
        .ok_or_else(no_einsum)?;
    if equation.inputs.len() != inputs.len() {
        return Err(wrong(&format!("takes {} inputs, not {}", equation.inputs.len(), inputs.len())));
    }
    einsum(&text, &inputs.iter().collect::<Vec<_>>()).map_err(|reason| wrong(&reason))
}
