//! PyTorch's rules of one mesh axis beside ours, each row of either side tried by the validator.
//!
//! `data/torch_rules.json` holds what torch 2.15.0 registers for 56 calls: rows of outputs, then inputs. A row that one
//! side has and the other has not is a difference. Who is right is not an opinion: the row is run on reference ops.

mod reference_ops;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use reference_ops::Example;
use reshard_sharding::rules::verify::Verifier;
use reshard_sharding::rules::{Op, Part, Rule, Strategy, Table};
use reshard_sharding::{Placement, ReduceOp};

/// How a call of torch's is written here: the call, which of our inputs its inputs are, and likewise the outputs; the
/// shapes on which rows are tried.
struct Same {
    torch: &'static str,
    call: &'static str,
    /// The examples whose reference it is.
    shapes: &'static str,
    /// Which of torch's outputs are ours; all where empty.
    outputs: &'static [usize],
    /// Which of torch's inputs are ours; all where empty.
    inputs: &'static [usize],
}

const fn same(torch: &'static str, call: &'static str, shapes: &'static str) -> Same {
    Same { torch, call, shapes, outputs: &[], inputs: &[] }
}

const fn part(
    torch: &'static str,
    call: &'static str,
    shapes: &'static str,
    outputs: &'static [usize],
    inputs: &'static [usize],
) -> Same {
    Same { torch, call, shapes, outputs, inputs }
}

const ALL: &[Same] = &[
    same("mm", "mm", "6,5 5,4; 3,6 6,6"),
    same("bmm", "bmm", "6,3,5 6,5,4; 3,6,6 3,6,6"),
    same("addmm", "addmm", "4 6,5 5,4; 6 3,6 6,6"),
    same("dot", "dot", "6 6; 5 5"),
    same("baddbmm", "baddbmm", "6,3,4 6,3,5 6,5,4; 3,6,6 3,6,6 3,6,6"),
    same("t", "t", "6,5; 4,6"),
    same("add", "add", "6,5 6,5; 4,6 4,6"),
    same("add_bcast", "add", "6,5 5; 4,6 6"),
    same("add_scalar", "add_scalar", "6,5; 4,6"),
    same("mul", "mul", "6,5 6,5; 4,6 4,6"),
    same("mul_scalar", "mul_scalar", "6,5; 4,6"),
    same("div", "div", "6,5 6,5; 4,6 4,6"),
    same("relu", "relu", "6,5; 4,6"),
    same("exp", "exp", "6,5; 4,6"),
    same("neg", "neg", "6,5; 4,6"),
    same("where", "where", "6,5 6,5 6,5; 4,6 4,6 4,6"),
    same("maximum", "maximum", "6,5 6,5; 4,6 4,6"),
    same("copy_", "copy_", "6,5 6,5; 4,6 4,6"),
    same("sum", "sum", "6,6; 4,5"),
    same("sum0", "sum(dims=[0])", "6,6; 4,5"),
    same("mean", "mean", "6,6; 4,5"),
    same("mean1", "mean(dims=[1])", "6,6; 4,5"),
    same("amax", "amax(dims=[1])", "6,6; 4,5"),
    same("prod", "prod", "6,2; 4,3"),
    same("var", "var(dims=[1])", "6,6; 4,5"),
    same("all", "all", "6,2; 4,2"),
    same("norm", "norm", "6,6; 4,5"),
    same("argmax", "argmax(dim=1)", "6,6; 4,5"),
    same("cumsum", "cumsum(dim=1)", "6,6; 4,5"),
    same("topk", "topk(k=2,dim=1)", "6,6; 4,5"),
    same("sort", "sort(dim=1)", "6,6; 4,5"),
    same("softmax", "softmax(dim=1)", "6,6; 4,5"),
    same("log_softmax", "log_softmax(dim=1)", "6,6; 4,5"),
    same("layer_norm", "native_layer_norm", "6,6 6 6; 5,4 4 4"),
    same("embedding", "embedding", "6,5 6,4; 5,6 3,6"),
    same("cat0", "cat(dim=0)", "6,5 4,5; 4,6 2,6"),
    same("gather", "gather(dim=1)", "6,5 6,4; 4,6 4,6"),
    same("index_select", "index_select(dim=0)", "6,5 4; 5,6 6"),
    same("scatter_add", "scatter_add(dim=1)", "6,6 6,3 6,3; 4,5 4,6 4,6"),
    same("slice", "slice(dim=1)", "6,6; 5,5"),
    same("select", "select(dim=0,index=1)", "6,6; 5,4"),
    same("split", "split(size=2,dim=0)", "4,6; 3,5"),
    same("flip", "flip(dims=[0])", "6,6; 5,4"),
    same("roll", "roll(shifts=[1],dims=[0])", "6,6; 5,4"),
    same("tril", "tril", "6,6; 5,4"),
    same("unbind", "unbind(dim=0)", "2,6; 2,5"),
    same("clone", "clone", "6,5; 4,6"),
    same("detach", "detach", "6,5; 4,6"),
    same("zeros_like", "zeros_like", "6,5; 4,6"),
    same("to_copy", "cast", "6,5; 4,6"),
    same("dropout", "native_dropout", "6,5; 4,6"),
    same("bernoulli", "bernoulli", "6,5; 4,6"),
    same("fft", "fft(dims=[1])", "6,4,2; 5,6,2"),
    same("max_pool2d", "max_pool2d_with_indices(kernel=2)", "6,5,4,2; 2,6,2,4"),
    part("conv", "conv1d", "6,3,4 6,3,2 6; 2,6,3 5,6,2 5", &[], &[]),
    part(
        "sdpa",
        "scaled_dot_product_attention",
        "6,6,3,2 6,6,3,2 6,6,3,2; 2,3,6,3 2,3,6,3 2,3,6,3",
        &[0],
        &[],
    ),
];
