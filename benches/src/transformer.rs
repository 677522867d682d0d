//! The forward graph of a transformer, whose propagation is timed: 24 layers, 18 ops each.

use reshard_kernels::DType;
use reshard_ops::Error;
use reshard_ops::propagate::{Graph, Operand, Value};
use reshard_ops::rules::Op;
use reshard_sharding::{Mesh, Sharding};

/// The shardings of a model's tensors on a mesh.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// Its name.
    pub name: &'static str,
    /// The mesh.
    pub mesh: &'static str,
    /// Activations `[batch, sequence, model]`.
    pub activations: &'static str,
    /// Weights `[in, out]` whose outputs are sharded.
    pub columns: &'static str,
    /// Weights `[in, out]` whose inputs are sharded.
    pub rows: &'static str,
    /// Vectors of the norms.
    pub vectors: &'static str,
}

/// Data and tensor parallel, and both with sharded weights and sequences.
pub const SCHEMES: [Scheme; 2] = [
    Scheme {
        name: "dp, tp",
        mesh: "dp=4,tp=8",
        activations: "S(0),R",
        columns: "R,S(1)",
        rows: "R,S(0)",
        vectors: "R,R",
    },
    Scheme {
        name: "dp, fsdp, cp, tp",
        mesh: "dp=2,fsdp=4,cp=2,tp=4",
        activations: "S(0),S(0),S(1),R",
        columns: "R,S(0),R,S(1)",
        rows: "R,S(1),R,S(0)",
        vectors: "R,S(0),R,R",
    },
];

const LAYERS: usize = 24;
const BATCH: usize = 32;
const SEQUENCE: usize = 2048;
const MODEL: usize = 2048;
const HEADS: usize = 16;
const HIDDEN: usize = 8192;

/// Returns the graph; its last value is the residual stream after all layers.
pub fn graph(scheme: &Scheme) -> Result<(Graph, Value), Error> {
    let mesh: Mesh = scheme.mesh.parse()?;
    let mut graph = Graph::new(&mesh);
    let operand = |shape: &[usize], text: &str| {
        Sharding::parse(&mesh, shape, text).map(|s| Operand::new(DType::BF16, s))
    };
    let rule = |name: &str, rule: &str, shapes: &[&[usize]]| Op::new(name, &rule.parse()?, shapes);
    let stream: &[usize] = &[BATCH, SEQUENCE, MODEL];
    let wide: &[usize] = &[BATCH, SEQUENCE, HIDDEN];
    let heads: &[usize] = &[BATCH, SEQUENCE, HEADS, MODEL / HEADS];
    let norm = rule("rms_norm", "bsd,d->bsd {d: replicate}", &[stream, &[MODEL]])?;
    let square = rule("linear", "bsd,de->bse", &[stream, &[MODEL, MODEL]])?;
    let up = rule("linear", "bsd,de->bse", &[stream, &[MODEL, HIDDEN]])?;
    let down = rule("linear", "bsd,de->bse", &[wide, &[HIDDEN, MODEL]])?;
    let attention = "bshe,bthe,bthd->bshd {e: replicate, t: replicate, none}";
    let attention = rule("attention", attention, &[heads, heads, heads])?;
    let (split, merge) = (Op::view(stream, heads)?, Op::view(heads, stream)?);
    let add = rule("add", "...,...->... {linear, increasing}", &[stream, stream])?;
    let silu = rule("silu", "...->... {none}", &[wide])?;
    let mul = rule("mul", "...,...->...", &[wide, wide])?;
    let first = operand(stream, scheme.activations)?;
    let residual = first.sharding.clone();
    let mut x = graph.input("x", first)?;
    for layer in 0..LAYERS {
        let mut weight = |name: &str, shape: &[usize], text: &str| {
            graph.input(&format!("{layer}.{name}"), operand(shape, text)?)
        };
        let (g, k) = (weight("norm1", &[MODEL], scheme.vectors)?, weight("norm2", &[MODEL], scheme.vectors)?);
        let columns = [0, 1, 2].map(|_| weight("qkv", &[MODEL, MODEL], scheme.columns));
        let [wq, wk, wv] = columns;
        let (wq, wk, wv) = (wq?, wk?, wv?);
        let wo = weight("o", &[MODEL, MODEL], scheme.rows)?;
        let gate = weight("gate", &[MODEL, HIDDEN], scheme.columns)?;
        let wide_up = weight("up", &[MODEL, HIDDEN], scheme.columns)?;
        let wide_down = weight("down", &[HIDDEN, MODEL], scheme.rows)?;
        let mut run = |op: &Op, inputs: &[Value]| graph.apply(op, inputs).map(|out| out[0]);
        let h = run(&norm, &[x, g])?;
        let mut split_heads = |w: Value| {
            let y = run(&square, &[h, w])?;
            run(&split, &[y])
        };
        let (q, key, v) = (split_heads(wq)?, split_heads(wk)?, split_heads(wv)?);
        let attended = run(&attention, &[q, key, v])?;
        let merged = run(&merge, &[attended])?;
        let y = run(&square, &[merged, wo])?;
        x = run(&add, &[x, y])?;
        // As in models, the residual stream retains its sharding.
        graph.constrain(x, residual.clone())?;
        let mut run = |op: &Op, inputs: &[Value]| graph.apply(op, inputs).map(|out| out[0]);
        let h = run(&norm, &[x, k])?;
        let (a, b) = (run(&up, &[h, gate])?, run(&up, &[h, wide_up])?);
        let a = run(&silu, &[a])?;
        let c = run(&mul, &[a, b])?;
        let y = run(&down, &[c, wide_down])?;
        x = run(&add, &[x, y])?;
        graph.constrain(x, residual.clone())?;
    }
    Ok((graph, x))
}
