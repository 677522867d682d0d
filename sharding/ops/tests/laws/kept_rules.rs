//! Golden test of every op of the table: rule, outputs and strategies of a list of calls, as exact text.
//!
//! `RESHARD_WRITE=1 cargo test -p reshard-ops --test laws kept_rules` regenerates `data/rules.txt`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use reshard_ops::rules::{Op, OpCall, OpTable, Rule, Strategy};

/// Calls that the examples of the other tests do not reach: every choice that a family makes, and errors.
#[rustfmt::skip]
const MORE: &[&str] = &[
    "sum | ()", "sum(dims=[0]) | 8,6", "sum(dims=[-1],keepdim=true) | 8,6,4", "mean(dims=[0,2]) | 8,6,4",
    "mean(keepdim=true) | 8,6", "prod(dims=[1],keepdim=true) | 8,6", "any(dims=[0]) | 8,6", "sum(dims=[]) | 8,6",
    "norm(p=1,dims=[0]) | 8,6", "norm(p=0) | 8,6", "norm(p=inf,dims=[1],keepdim=true) | 8,6", "norm(p=2) | 8",
    "argmax | 8,6", "argmax(dim=0,keepdim=true) | 8,6", "max(dim=-1) | 8,6", "max | 8,6", "argmax | ()",
    "softmax | 8,6,4", "softmax(dim=0) | 8", "softmax | ()", "cummax(dim=0) | 8,6", "sort | 8,6,4", "topk(k=3) | 8,6",
    "unique(count=3) | ()", "unique(count=3) | 8,6", "fft | 8,6,2", "fft(dims=[0]) | 8,6,2", "fft | 2", "fft | 3",
    "clip_by_norm | ()", "layer_norm | 8,6", "layer_norm | 8,6; 6", "layer_norm | 8,6; 6; 6", "layer_norm(last=3) | 8,6",
    "layer_norm(last=2) | 8,6,4; 6,4; 6,4", "rms_norm | 8,6", "rms_norm | 8,6; 6", "rms_norm | 8,6; 6; 6",
    "native_layer_norm(last=2) | 8,6,4; 6,4; 6,4", "native_layer_norm(last=1) | 6; 6; 6",
    "group_norm(groups=2) | 8,6", "group_norm(groups=2) | 8,6,4; 6", "group_norm(groups=3) | 8,6,4,2; 6; 6",
    "group_norm(groups=4) | 8,6,4", "group_norm(groups=2) | 8", "batch_norm | 8,6", "batch_norm | 8,6,4; 6",
    "batch_norm(training=false) | 8,6,4; 6; 6; 6; 6", "batch_norm(training=false) | 8,6,4; 6; 6", "instance_norm | 8,6,4",
    "instance_norm | 8,6,4,2; 6", "instance_norm | 8,6,4; 6; 6", "matmul | 8; 8", "matmul | 8; 8,6", "matmul | 8,6; 6",
    "matmul | 8,6; 6,4", "matmul | 2,8,6; 6,4", "matmul | 6; 2,6,4", "matmul | 2,8,6; 6", "matmul | 3,1,8,6; 2,6,4",
    "matmul | (); 6", "linear | 8,6; 4,6", "linear | 2,8,6; 4,6; 4", "addmm | 8,4; 8,6; 6,4", "addmm | 1,4; 8,6; 6,4",
    "addmm | 4; 8,6; 6,4", "addmm | (); 8,6; 6,4", "addmm | 1; 8,6; 6,4", "addmm | 2,8,4; 8,6; 6,4",
    "addmm | 1,4; 1,6; 6,4", "baddbmm | 1,8,1; 2,8,6; 2,6,4", "addmv | 1; 8,6; 6", "conv1d | 2,6,8; 4,6,3",
    "conv1d | 2,6,8; 4,6,3; 4", "conv2d(groups=2) | 2,6,8,8; 4,3,3,3", "conv2d(groups=2) | 2,6,8,8; 4,3,3,3; 4",
    "convolution(stride=2,padding=1,dilation=2) | 2,6,8,8; 4,6,3,3; 4", "convolution | 2,6; 4,6",
    "conv3d | 2,6,4,4,4; 4,6,2,2,2", "conv1d(stride=0) | 2,6,8; 4,6,3", "conv_transpose1d | 2,6,8; 6,4,3",
    "conv_transpose1d | 2,6,8; 6,4,3; 4", "conv_transpose2d(groups=2,stride=2) | 2,6,4,4; 6,2,3,3",
    "conv_transpose2d(groups=2) | 2,6,4,4; 6,2,3,3; 4", "conv_transpose1d(padding=9) | 2,6,4; 6,4,1",
    "max_pool1d(kernel=2) | 2,6,8", "max_pool2d(kernel=[2,3],stride=1,padding=[1,0]) | 2,6,8,8", "max_pool1d | 2,6,8",
    "max_pool2d_with_indices(kernel=2) | 2,6,8,8", "avg_pool3d(kernel=2) | 2,6,4,4,4", "avg_pool1d(kernel=2) | 2,6",
    "interpolate(size=4) | 2,6,8", "interpolate(size=[4,4],mode=linear) | 2,6,8,8", "interpolate | 2,6,8",
    "interpolate(size=4,mode=cubic) | 2,6,8", "interpolate(size=4) | 2,6", "pixel_shuffle(factor=2) | 2,8,3,3",
    "gather | 8,6; 8,4", "gather(dim=0) | 8,6; 4,5", "gather | 8,6; 9,6", "gather | 8; 8,6", "gather(dim=0) | 8; 5",
    "take_along_dim(dim=1) | 8,6,4; 8,2,4", "index_select(dim=1) | 8,6,4; 3", "index_select | 8; 3",
    "scatter(dim=1) | 8,6; 8,3; 8,3", "scatter(dim=1) | 8,6; 8,3; 8,2", "scatter(dim=0) | 8,6; 3,4; 3,4",
    "scatter_add(dim=1) | 8,6; 8,3; 8,3", "scatter_amax(dim=0) | 8; 3; 3", "index_copy(dim=1) | 8,6; 3; 8,3",
    "index_add(dim=0) | 8,6; 3; 3,6", "index_put | 8,6; 3; 3,6", "index_put(accumulate=true) | 8,6; 3; 3,6",
    "one_hot(classes=4) | 8,6", "one_hot(classes=4) | ()", "one_hot | 8", "bincount(classes=4) | 8",
    "nll_loss | 8,6; 8; 6", "nll_loss(reduction=sum) | 8,6; 8; 6", "cross_entropy(reduction=none) | 8,6,4; 8,4; 6",
    "embedding_bag | 8,6; 4,3", "embedding_bag(mode=mean) | 8,6; 4,3", "masked_fill | 8,6; 6", "masked_fill(value=0) | 8,6; 6",
    "masked_fill(value=1) | 8,6; 8,1", "masked_fill(value=2) | 8; 8", "cat | 8,6; 4,6", "cat(dim=-1) | 8,6; 8,4; 8,1",
    "cat | 8,6", "cat(dim=1) | 8,6; 8", "cat | ()", "stack | 8,6; 8,6", "stack(dim=-1) | 8; 8; 8", "stack | (); ()",
    "split(size=3) | 8,6", "split(sizes=[2,4],dim=1) | 8,6", "split(sizes=[2,3],dim=1) | 8,6", "split | 8,6",
    "chunk(chunks=3) | 8,6", "chunk(chunks=2,dim=-1) | 8,5", "unbind | 3,6", "unbind(dim=1) | 8,2,4", "unbind | 3",
    "select | 8", "select(dim=1,index=-1) | 8,6", "select(index=9) | 8,6", "slice | 8,6", "slice(dim=1,start=-3,step=2) | 8,6",
    "narrow(dim=1,start=2,length=3) | 8,6", "narrow(start=7,length=3) | 8,6", "pad(pads=[1,1]) | 8,6", "pad(pads=[]) | 8,6",
    "pad(pads=[1,1,0,2],value=3) | 8,6", "pad(pads=[0,0,1,1],mode=reflect,value=3) | 8,6", "pad(pads=[1]) | 8,6",
    "pad(pads=[-9,0]) | 8,6", "pad(pads=[]) | ()", "roll(dims=[0]) | 8,6", "roll | 8,6", "flip | ()", "flip(dims=[1]) | 8,6,4",
    "permute(dims=[1,0]) | 8,6", "permute(dims=[0]) | 8,6", "permute | 8,6", "permute(dims=[]) | ()", "transpose | 8,6,4",
    "transpose(dim0=0,dim1=0) | 8,6", "expand(shape=[4,-1]) | 6", "expand(shape=[2,8,-1]) | 1,6", "expand(shape=[3]) | ()",
    "expand(shape=[8,5]) | 8,6", "expand(shape=[-1,6]) | 6", "expand(shape=[1,6]) | 1,6", "repeat(times=[2,3]) | 8,6",
    "repeat(times=[2,1,3]) | 8,6", "repeat(times=[1,1]) | 8,6", "repeat(times=[2]) | 8,6", "repeat(times=[2]) | ()",
    "repeat_interleave(times=3) | 8,6", "repeat_interleave(times=2,dim=1) | 8,6,4", "repeat_interleave(times=2) | 8",
    "squeeze | 8,1,6,1", "squeeze(dims=[1]) | 8,1,6,1", "squeeze(dims=[0]) | 8,1", "squeeze | 1", "unsqueeze | ()",
    "unsqueeze(dim=-1) | 8,6", "unsqueeze(dim=1) | 8,6", "view(shape=[2,-1]) | 8,6", "reshape(shape=[48]) | 8,6",
    "flatten | 8,6,4", "flatten(start=1) | 8,6,4", "flatten | ()", "unflatten(dim=0,sizes=[2,-1]) | 8,6",
    "zeros(shape=[2,3]) | -", "zeros(shape=[]) | -", "zeros | -", "arange(size=5) | -", "eye(size=4) | -", "eye | -",
    "mse_loss | 8,6; 8,6", "mse_loss(reduction=sum) | 8,6; 8,6", "mse_loss(reduction=none) | 8,6; 8,6", "mse_loss | (); ()",
    "mse_loss(reduction=none) | (); ()", "binary_cross_entropy | 8; 8", "binary_cross_entropy(reduction=none) | 8; 8",
    "kl_div(reduction=sum) | 8,6; 8,6", "cross_entropy | 8,6; 8", "cross_entropy(reduction=sum) | 8,6; 8",
    "cross_entropy(reduction=none) | 8,6; 8", "nll_loss | 8,6; 8", "nll_loss(reduction=none) | 8,6; 8",
    "scaled_dot_product_attention | 2,6,3,4; 2,6,5,4; 2,6,5,7", "scaled_dot_product_attention | 2,6,3,4; 2,2,5,4; 2,2,5,7",
    "scaled_dot_product_attention | 2,6,3,4; 2,2,5,4; 2,2,5,7; 3,5", "scaled_dot_product_attention | 2,6,3,4; 2,2,5,4; 2,2,5,7; 2,6,3,5",
    "scaled_dot_product_attention | 2,6,3,4; 2,6,5,4; 2,6,5,7; 1,1,3,5", "scaled_dot_product_attention | 2,6,3,4; 2,6,5,4; 2,6,5,7; ()",
    "scaled_dot_product_attention(causal=true) | 1,6,3,4; 1,6,5,4; 1,6,5,7; 1,1,3,5",
    "add | 8,1,6; 5,1", "add | (); 8,6", "add | 8,6; 8,5", "where | 8,6; 6; ()", "mm | 8,6; 6,4", "mm | 8,6; 5,4", "mm | 8,6",
    "embedding | 8,6; 3,4", "trace | 6,6", "diagonal | 2,6,6", "rotary | 2,3,8,6; 8,6; 8,6", "outer | 8; 6",
    "mk,kn->mn | 8,6; 6,4", "(ij)k->i(jk) {i: 4, none} | 12,5", "?0,R -> ?0 | 8,6; 6,4",
];

/// `6,5 ; ()`: the inputs of a call.
fn inputs(text: &str) -> Vec<Vec<usize>> {
    let sizes = |s: &str| match s.trim() {
        "()" => Vec::new(),
        s => s.split(',').map(|n| n.parse().unwrap()).collect(),
    };
    if text.trim() == "-" { Vec::new() } else { text.split(';').map(sizes).collect() }
}

fn texts(rows: &[Strategy]) -> String {
    rows.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn listed(op: &Op) -> String {
    let outputs: Vec<&[usize]> = op.outputs().iter().map(|s| &s[..]).collect();
    let mut text = format!(" -> {outputs:?}\n");
    if let Some(rule) = op.rule() {
        writeln!(text, "    {rule}\n    {}", texts(&rule.strategies())).unwrap();
    }
    writeln!(text, "    {}", texts(&op.strategies())).unwrap();
    text
}

fn all() -> Vec<(OpCall, Vec<Vec<usize>>)> {
    let examples = crate::reference_ops::all();
    let tried = examples.iter().flat_map(|e| e.shapes.iter().map(|s| (e.call.parse().unwrap(), s.clone())));
    let more = MORE.iter().map(|line| {
        let (call, shapes) = line.split_once(" | ").unwrap();
        (call.parse().unwrap(), inputs(shapes))
    });
    tried.chain(more).collect()
}

#[test]
fn every_rule_is_what_it_was() {
    let table = OpTable::standard();
    let mut made = String::new();
    let mut names = BTreeSet::new();
    for (call, inputs) in all() {
        if let OpCall::Named { name, .. } = &call {
            names.insert(name.clone());
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
        write!(made, "{call} of {inputs:?}").unwrap();
        match table.op(&call, &shapes) {
            Ok(op) => made.push_str(&listed(&op)),
            Err(e) => writeln!(made, "\n    error: {e}").unwrap(),
        }
    }
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), table.names().collect::<Vec<_>>());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rules.txt");
    if std::env::var_os("RESHARD_WRITE").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert_eq!(kept.lines().count(), made.lines().count());
    for (kept, made) in kept.lines().zip(made.lines()) {
        assert_eq!(kept, made);
    }
}

/// The rules of families round-trip through their texts.
#[test]
fn rules_of_calls_read_back() {
    let table = OpTable::standard();
    let mut read = 0;
    for (call, inputs) in all() {
        let shapes: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
        let Some(rule) = table.op(&call, &shapes).ok().and_then(|op| op.rule().cloned()) else { continue };
        assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(&rule), "{call}");
        read += 1;
    }
    assert!(read > 400, "{read}");
}
