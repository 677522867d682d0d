//! Calls of every class of ops that has gradients, on operands that fit.

use reshard_program::ValueId;

use super::draw::{Draw, Numbers};
use super::layers::{attention, loss, normalisation, product, window};

/// A class of ops, and a function that calls one of them.
pub(crate) type Class = (&'static str, fn(&mut Draw));

#[rustfmt::skip]
pub(crate) const CLASSES: &[Class] = &[
    ("pointwise", pointwise), ("pointwise", pointwise), ("binary", binary), ("binary", binary), ("product", product),
    ("product", product), ("product", product), ("reduction", reduction), ("normalisation", normalisation),
    ("view", view), ("view", view), ("part", part), ("part", part), ("index", index), ("attention", attention),
    ("window", window), ("loss", loss), ("selection", selection),
];

/// Ops of one operand of any numbers.
const ONE: &[&str] = &[
    "relu",
    "silu",
    "gelu",
    "gelu(approximate=tanh)",
    "tanh",
    "sigmoid",
    "softplus",
    "sin",
    "cos",
    "erf",
    "elu",
    "abs",
    "neg",
    "softsign",
    "mish",
    "log_sigmoid",
    "leaky_relu(negative_slope=0.2)",
    "hardswish",
    "hardtanh",
    "clamp(min=-0.5,max=0.7)",
    "atan",
    "asinh",
    "tanhshrink",
    "square",
    "selu",
    "celu(alpha=1.5)",
    "mul_scalar(value=0.7)",
    "add_scalar(value=0.3)",
    "rsub_scalar(value=1)",
    "div_scalar(value=3)",
    "clone",
    "contiguous",
    "detach",
    "positive",
    "threshold(threshold=0.1,value=-1)",
    "softshrink(lambd=0.2)",
    "hardsigmoid",
    "relu6",
    "dropout",
];

/// Ops of one operand of numbers from 1/2 on.
const POSITIVE: &[&str] =
    &["log", "sqrt", "rsqrt", "reciprocal", "log2", "log1p", "pow_scalar(exponent=1.5)", "log10"];

/// Ops of one operand of numbers from -1 to 1.
const SMALL: &[&str] = &["exp", "expm1", "exp2", "sinh", "cosh", "pow_scalar(exponent=3)"];

/// Numbers from 1/2 on.
pub(super) fn positive(d: &mut Draw, x: ValueId) -> ValueId {
    let y = d.call("square", &[x])[0];
    d.call("add_scalar(value=0.5)", &[y])[0]
}

fn pointwise(d: &mut Draw) {
    let x = d.of_rank(0, 4);
    match d.r.below(8) {
        0 => {
            let x = positive(d, x);
            let op = *d.r.pick(POSITIVE);
            d.call(op, &[x]);
        }
        1 => {
            let x = d.call("tanh", &[x])[0];
            let op = *d.r.pick(SMALL);
            d.call(op, &[x]);
        }
        _ => {
            let op = *d.r.pick(ONE);
            d.call(op, &[x]);
        }
    }
}

/// Returns a shape that broadcasts against another: some of its last dims, of which some are 1.
fn beside(d: &mut Draw, shape: &[usize]) -> Vec<usize> {
    let from = if d.r.below(2) == 0 { 0 } else { d.r.below(shape.len() + 1) };
    shape[from..].iter().map(|&n| if d.r.below(4) == 0 { 1 } else { n }).collect()
}

fn binary(d: &mut Draw) {
    let x = d.of_rank(1, 4);
    let shape = d.shape_of(x);
    let other = if d.r.below(2) == 0 { shape.clone() } else { beside(d, &shape) };
    let y = d.of_shape(&other);
    match d.r.below(10) {
        0 => {
            let y = positive(d, y);
            let op = *d.r.pick(&["div", "xlogy", "atan2"]);
            let x = if op == "div" { x } else { positive(d, x) };
            d.call(op, &[x, y]);
        }
        1 => {
            let bits = d.input(&shape, Numbers::Below(2));
            let mask = d.call("cast(dtype=bool)", &[bits])[0];
            let op = *d.r.pick(&["where", "masked_fill(value=0.5)"]);
            if op == "where" {
                d.call(op, &[mask, x, y])
            } else {
                d.call(op, &[x, mask])
            };
        }
        2 => {
            let z = d.of_shape(&other);
            let op = *d.r.pick(&["lerp", "fma", "addcmul(value=0.5)"]);
            d.call(op, &[x, y, z]);
        }
        3 => {
            let op = *d.r.pick(&["maximum", "minimum", "logaddexp", "fmax", "fmin"]);
            d.call(op, &[x, y]);
        }
        // Different shapes, also in the other order.
        4 => {
            d.call("sub", &[y, x]);
        }
        _ => {
            let op = *d.r.pick(&["add", "mul", "sub", "mul"]);
            d.call(op, &[x, y]);
        }
    }
}

/// A dim of a shape.
pub(super) fn dim(d: &mut Draw, shape: &[usize]) -> usize {
    d.r.below(shape.len())
}

fn reduction(d: &mut Draw) {
    let x = d.of_rank(1, 4);
    let shape = d.shape_of(x);
    let at = dim(d, &shape);
    let keep = *d.r.pick(&["", ",keepdim=true"]);
    let op = *d.r.pick(&[
        "all",
        "inf",
        "sum",
        "mean",
        "sum",
        "mean",
        "amax",
        "amin",
        "logsumexp",
        "var",
        "prod",
        "std",
        "norm",
        "cumsum",
        "sums",
        "max",
    ]);
    match op {
        "var" | "std" | "norm" if shape[at] < 2 => return,
        "std" => {
            let v = d.call(&format!("var(dims=[{at}]{keep})"), &[x])[0];
            let v = d.call("add_scalar(value=0.1)", &[v])[0];
            d.call("sqrt", &[v])
        }
        "norm" => {
            let x = positive(d, x);
            d.call(&format!("norm(dims=[{at}]{keep})"), &[x])
        }
        "all" => {
            let op = *d.r.pick(&["max", "amin", "sum", "logsumexp", "norm(p=3)"]);
            d.call(op, &[x])
        }
        "inf" => d.call(&format!("linalg_vector_norm(p=inf,dims=[{at}]{keep})"), &[x]),
        "cumsum" => d.call(&format!("cumsum(dim={at})"), &[x]),
        "max" => d.call(&format!("max(dim={at}{keep})"), &[x]),
        "sums" => {
            let all: Vec<String> =
                (0..shape.len()).filter(|_| d.r.below(2) == 0).map(|i| i.to_string()).collect();
            if all.is_empty() {
                return;
            }
            d.call(&format!("sum(dims=[{}]{keep})", all.join(",")), &[x])
        }
        _ => d.call(&format!("{op}(dims=[{at}]{keep})"), &[x]),
    };
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn view(d: &mut Draw) {
    let x = d.of_rank(1, 4);
    let shape = d.shape_of(x);
    let rank = shape.len();
    let at = dim(d, &shape);
    match d.r.below(9) {
        0 => d.call("flatten", &[x]),
        1 if rank > 1 => {
            let i = d.r.below(rank - 1);
            let mut merged = shape.clone();
            merged[i] *= merged.remove(i + 1);
            let op = *d.r.pick(&["view", "reshape"]);
            d.call(&format!("{op}(shape=[{}])", list(&merged)), &[x])
        }
        2 | 3 => {
            let Some(f) = (2..shape[at]).find(|f| shape[at].is_multiple_of(*f)) else { return };
            if rank > 3 {
                return;
            }
            let mut split = shape.clone();
            split.splice(at..=at, [f, shape[at] / f]);
            if d.r.below(2) == 0 {
                d.call(&format!("unflatten(dim={at},sizes=[{f},{}])", shape[at] / f), &[x])
            } else {
                d.call(&format!("reshape(shape=[{}])", list(&split)), &[x])
            }
        }
        4 => {
            let mut dims: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                dims.swap(i, d.r.below(i + 1));
            }
            d.call(&format!("permute(dims=[{}])", list(&dims)), &[x])
        }
        5 if rank > 1 => {
            let to = dim(d, &shape);
            d.call(&format!("transpose(dim0={at},dim1={to})"), &[x])
        }
        6 if rank < 4 => d.call(&format!("unsqueeze(dim={at})"), &[x]),
        7 => d.call("squeeze", &[x]),
        _ if rank < 4 && shape.iter().product::<usize>() < 100 => {
            let wide = [vec![3], shape].concat();
            d.call(&format!("expand(shape=[{}])", list(&wide)), &[x])
        }
        _ => return,
    };
}

fn part(d: &mut Draw) {
    let x = d.of_rank(1, 4);
    let shape = d.shape_of(x);
    let at = dim(d, &shape);
    let n = shape[at];
    match d.r.below(20) {
        0 => {
            let mut other = shape.clone();
            other[at] = d.size();
            let y = d.of_shape(&other);
            d.call(&format!("cat(dim={at})"), &[x, y])
        }
        1 if shape.len() < 4 => {
            let y = d.of_shape(&shape);
            d.call(&format!("stack(dim={at})"), &[x, y])
        }
        2 if n > 1 => d.call(&format!("split(size={},dim={at})", n.div_ceil(2)), &[x]),
        3 if n > 1 => d.call(&format!("chunk(chunks=2,dim={at})"), &[x]),
        4 if n < 5 && shape.len() > 1 => d.call(&format!("unbind(dim={at})"), &[x]),
        5 if n > 2 => d.call(&format!("slice(dim={at},start=1,end={n},step=2)"), &[x]),
        6 if n > 1 => d.call(&format!("narrow(dim={at},start=1,length={})", n - 1), &[x]),
        7 if shape.len() > 1 => d.call(&format!("select(dim={at},index=-1)"), &[x]),
        8 => d.call(&format!("flip(dims=[{at}])"), &[x]),
        9 => d.call(&format!("roll(shifts=[1],dims=[{at}])"), &[x]),
        10 => d.call("pad(pads=[1,2])", &[x]),
        11 if shape.len() > 1 => {
            let op = *d.r.pick(&["tril", "triu"]);
            d.call(op, &[x])
        }
        12 if shape.iter().product::<usize>() < 150 => {
            d.call(&format!("repeat_interleave(times=2,dim={at})"), &[x])
        }
        13 if shape.iter().product::<usize>() < 150 => {
            let times: Vec<usize> = (0..shape.len()).map(|i| if i == at { 2 } else { 1 }).collect();
            d.call(&format!("repeat(times=[{}])", list(&times)), &[x])
        }
        14 if shape.len() > 1 => {
            let mut one = shape.clone();
            one.remove(at);
            let y = d.of_shape(&one);
            d.call(&format!("select_scatter(dim={at},index=-1)"), &[x, y])
        }
        15 if n > 1 => {
            let mut some = shape.clone();
            some[at] = n - 1;
            let y = d.of_shape(&some);
            d.call(&format!("slice_scatter(dim={at},start=1)"), &[x, y])
        }
        16 if shape.len() > 1 && shape[shape.len() - 2] == shape[shape.len() - 1] => d.call("diagonal", &[x]),
        17 if shape.len() < 3 && n < 6 => d.call("diag_embed", &[x]),
        18 if n > 2 => d.call(&format!("tensor_split(sections=2,dim={at})"), &[x]),
        _ if n.is_multiple_of(2) => d.call(&format!("glu(dim={at})"), &[x]),
        _ => return,
    };
}

fn index(d: &mut Draw) {
    let x = d.of_rank(1, 3);
    let shape = d.shape_of(x);
    let at = dim(d, &shape);
    let n = shape[at];
    let mut some = shape.clone();
    some[at] = 1 + d.r.below(n);
    match d.r.below(8) {
        0 => {
            let (v, width, ids) = (d.size(), d.size(), d.shape(1, 2));
            let (w, i) = (d.input(&[v, width], Numbers::Any), d.input(&ids, Numbers::Below(v)));
            d.call("embedding", &[w, i])
        }
        1 | 2 => {
            let i = d.input(&some, Numbers::Below(n));
            let op = *d.r.pick(&["gather", "take_along_dim"]);
            d.call(&format!("{op}(dim={at})"), &[x, i])
        }
        3 => {
            let many = d.size();
            let i = d.input(&[many], Numbers::Below(n));
            d.call(&format!("index_select(dim={at})"), &[x, i])
        }
        4 => {
            let (i, y) = (d.input(&some, Numbers::Below(n)), d.of_shape(&some));
            d.call(&format!("scatter_add(dim={at})"), &[x, i, y])
        }
        5 => {
            let (i, y) = (d.input(&[some[at]], Numbers::Below(n)), d.of_shape(&some));
            d.call(&format!("index_add(dim={at})"), &[x, i, y])
        }
        6 if at + 1 == shape.len() => {
            let (i, y) = (d.input(&some, Numbers::Once(n)), d.of_shape(&some));
            d.call(&format!("scatter(dim={at})"), &[x, i, y])
        }
        7 => {
            let (i, y) = (d.input(&[some[at]], Numbers::Once(n)), d.of_shape(&some));
            d.call(&format!("index_copy(dim={at})"), &[x, i, y])
        }
        _ => return,
    };
}

fn selection(d: &mut Draw) {
    let x = d.of_rank(1, 3);
    let shape = d.shape_of(x);
    let at = dim(d, &shape);
    match d.r.below(4) {
        0 => d.call(&format!("sort(dim={at})"), &[x]),
        1 if shape[at] > 1 => d.call(&format!("topk(k=2,dim={at})"), &[x]),
        2 => d.call(&format!("min(dim={at})"), &[x]),
        _ if shape.len() > 2 => {
            let w = d.of_shape(&[shape[1]]);
            d.call("prelu", &[x, w])
        }
        _ => return,
    };
}
