//! The inputs of `reshard step`: random numbers, and integers below the size of the dim that they index.

use ndarray::{ArrayD, IxDyn};
use reshard_kernels::DType;
use reshard_program::{Program, Statement, ValueId};
use reshard_reference::{Number, Values, on_one_device};
use reshard_sharding::ReduceOp;

use super::error::CliError;

/// Returns random inputs with which a program runs, and all its values on one device.
pub(crate) fn on_random_numbers<T: Number>(
    program: &Program,
    seed: u64,
) -> Result<(Values<T>, Values<T>), CliError> {
    let inputs = program.statements().iter().filter_map(|item| match item {
        Statement::Input(v) => Some((*v, bounds(program, *v))),
        Statement::Op { .. } | Statement::Redistribute { .. } | Statement::NoGrad => None,
    });
    let inputs: Vec<(ValueId, Vec<usize>)> = inputs.collect();
    let most = inputs.iter().map(|(_, bounds)| bounds.len()).max().unwrap_or(0).max(1);
    let mut at = 0;
    loop {
        let values: Values<T> = (inputs.iter())
            .map(|(v, bounds)| {
                let bound = bounds.get(at.min(bounds.len().saturating_sub(1))).copied();
                let value = program.get(*v);
                let numbers = random::<T>(&value.name, value.shape(), seed, bound);
                // Partial values of a norm are not negative.
                let is_norm =
                    value.ty.value.partial().iter().any(|terms| matches!(terms.op, ReduceOp::Norm(_)));
                let numbers = if is_norm { numbers.mapv(|x| T::of(x.wide().abs())) } else { numbers };
                (value.name.clone(), numbers)
            })
            .collect();
        match on_one_device(program, &values) {
            Ok(whole) => return Ok((values, whole)),
            Err(error) if at + 1 >= most => return Err(error.into()),
            // An index was too large: try the next smaller size.
            Err(_) => at += 1,
        }
    }
}

/// Returns the upper bounds to try for an integer input, the largest first; empty for real numbers.
fn bounds(program: &Program, input: ValueId) -> Vec<usize> {
    let whole = |v: ValueId| program.get(v).dtype.is_integral();
    if !whole(input) {
        return Vec::new();
    }
    if program.get(input).dtype == DType::Bool {
        return vec![2];
    }
    let mut same = vec![false; program.values().len()];
    same[input.index()] = true;
    let mut sizes = vec![1];
    for item in program.statements() {
        match item {
            Statement::Redistribute { from, to, .. } => same[to.index()] = same[from.index()],
            Statement::Op { inputs, outputs, .. } if inputs.iter().any(|v| same[v.index()]) => {
                let others = inputs.iter().filter(|v| !same[v.index()]);
                sizes.extend(others.flat_map(|v| program.get(*v).shape()));
                for v in outputs.iter().filter(|v| whole(**v)) {
                    same[v.index()] = true;
                }
            }
            Statement::Op { .. } | Statement::Input(_) | Statement::NoGrad => {}
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    sizes
}

/// Draws numbers that depend on the seed, the name and the index: in (-1, 1), or integers below a bound.
fn random<T: Number>(name: &str, shape: &[usize], seed: u64, bound: Option<usize>) -> ArrayD<T> {
    let of_name =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut state = mixed(of_name ^ mixed(seed));
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let unit = (mixed(state) >> 11) as f64 / (1u64 << 53) as f64;
        T::of(bound.map_or(2.0 * unit - 1.0, |bound| (unit * bound as f64).floor()))
    })
}

/// The bits of splitmix64.
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
