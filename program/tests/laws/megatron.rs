//! A transformer layer with given parameter types, compared with Megatron.
//!
//! The activations that the solver chooses cost at most as much as Megatron's.

use std::fmt::Write;

use reshard_planner::{Planner, Topology};
use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Report, ShardingSolver};

/// The size of a layer; `is_cut` shards the activations between products along the sequence over `tp`.
#[derive(Clone, Copy, Debug)]
struct Layer {
    batch: usize,
    sequence: usize,
    is_cut: bool,
}

const WIDTH: usize = 1024;

/// Returns a layer on `dp=2,tp=4`: attention of 16 heads and a gated MLP.
///
/// Columns and then rows of the weights are sharded over `tp`. If `written`, every redistribution of Megatron
/// is explicit.
fn layer(Layer { batch, sequence, is_cut }: Layer, written: bool) -> String {
    let (heads, hidden) = (16, 4 * WIDTH);
    let head = WIDTH / heads;
    let between = if is_cut { "S(0),S(1)" } else { "S(0),I" };
    let mut text = format!("mesh dp=2,tp=4\nx: f32[{batch},{sequence},{WIDTH}] {between}\n");
    let columns = format!("f32[{WIDTH},{heads},{head}] I,S(1)");
    let parameters = [
        ("g1", format!("f32[{WIDTH}] I,I")),
        ("wq", columns.clone()),
        ("wk", columns.clone()),
        ("wv", columns),
        ("wo", format!("f32[{heads},{head},{WIDTH}] I,S(0)")),
        ("g2", format!("f32[{WIDTH}] I,I")),
        ("w1", format!("f32[{WIDTH},{hidden}] I,S(1)")),
        ("w3", format!("f32[{WIDTH},{hidden}] I,S(1)")),
        ("w2", format!("f32[{hidden},{WIDTH}] I,S(0)")),
    ];
    for (name, is) in &parameters {
        writeln!(text, "{name}: {is}").unwrap();
    }
    // The value itself, or its redistributed copy.
    let to = |text: &mut String, name: &str, is: &str| -> String {
        if !written {
            return name.to_owned();
        }
        writeln!(text, "{name}.m: {is} = {name}").unwrap();
        format!("{name}.m")
    };
    let gain = if is_cut { "R,R" } else { "R,I" };
    let normed = |text: &mut String, x: &str, g: &str, n: &str| -> String {
        let g = to(text, g, gain);
        writeln!(text, "{n} = rms_norm({x}, {g})").unwrap();
        to(text, n, "S(0),R")
    };
    let n = normed(&mut text, "x", "g1", "n1");
    for c in ["q", "k", "v"] {
        let w = to(&mut text, &format!("w{c}"), "R,S(1)");
        writeln!(text, "{c} = bsd,dhe->bhse({n}, {w})").unwrap();
    }
    writeln!(text, "o = scaled_dot_product_attention(q, k, v)").unwrap();
    let w = to(&mut text, "wo", "R,S(0)");
    writeln!(text, "p = bhse,hed->bsd(o, {w})").unwrap();
    let p = to(&mut text, "p", between);
    writeln!(text, "y = add(x, {p})").unwrap();
    let n = normed(&mut text, "y", "g2", "n2");
    for i in [1, 3] {
        let w = to(&mut text, &format!("w{i}"), "R,S(1)");
        writeln!(text, "h{i} = bsd,df->bsf({n}, {w})").unwrap();
    }
    let w = to(&mut text, "w2", "R,S(0)");
    writeln!(text, "s = silu(h1)\nh = mul(s, h3)\nm = bsf,fd->bsd(h, {w})").unwrap();
    let m = to(&mut text, "m", between);
    let names: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
    writeln!(text, "z = add(y, {m})\nloss = sum(z)\ngradient loss wrt {}", names.join(", ")).unwrap();
    text
}

fn report(text: &str, topology: &Topology, rates: ComputeRates, moves: ImplicitRedistribution) -> Report {
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    let elaborator = ShardingSolver::new().planner(Planner::new().topology(topology.clone())).rates(rates);
    let program =
        elaborator.implicit_redistribution(moves).solve(&graph).unwrap_or_else(|e| panic!("{text}\n{e}"));
    program.report(&rates)
}

/// Returns the time of a step, in microseconds: communication and computing, forward and backward.
fn total_us(report: &Report) -> f64 {
    let communicating = report.traffic.forward.cost_us + report.traffic.backward.cost_us;
    communicating + report.compute_us.forward + report.compute_us.backward
}

#[test]
fn activations_come_out_no_dearer_than_those_of_megatron() {
    let sizes = [(8, 512, false), (8, 512, true), (2, 128, false)];
    for (batch, sequence, is_cut) in sizes {
        let size = Layer { batch, sequence, is_cut };
        for (topology, rates) in
            [(Topology::uniform(), ComputeRates::uniform()), (Topology::h100(), ComputeRates::h100())]
        {
            let megatron = report(&layer(size, true), &topology, rates, ImplicitRedistribution::Deny);
            let chosen = report(&layer(size, false), &topology, rates, ImplicitRedistribution::Allow);
            let (megatron, chosen) = (total_us(&megatron), total_us(&chosen));
            println!("{size:?} on {topology}: {chosen:.1} us, Megatron {megatron:.1} us");
            // The tolerance is for sums of times that are rounded to a picosecond.
            assert!(chosen <= megatron + 1e-3, "{size:?} on {topology}: {chosen} us, Megatron {megatron} us");
        }
    }
}
