//! Worked examples: the communication of well-known strategies to shard a layer.
//!
//! It is counted forward and backward, in bytes of the worst rank.

use crate::programs::{communicated, written};

/// A gated MLP with these types of its inputs, and with redistributions of inputs and results.
fn gated_mlp(x: &str, up: &str, down: &str, out: &str) -> String {
    format!(
        "mesh dp=2,tp=2
         x: f32[4,8,16] {x}
         w1: f32[16,32] {up}
         w3: f32[16,32] {up}
         w2: f32[32,16] {down}
         xr: S(1),R = x
         w1r: R,S(1) = w1
         w3r: R,S(1) = w3
         w2r: R,S(0) = w2
         h1 = sbh,hi->sbi(xr, w1r)
         h3 = sbh,hi->sbi(xr, w3r)
         a = silu(h1)
         h = mul(a, h3)
         o: S(1),P = sbi,ih->sbh(h, w2r)
         out: {out} = o
         gradient out"
    )
}

#[test]
fn a_gated_mlp_of_natural_types_communicates_nothing() {
    let program = written(&gated_mlp("S(1),R", "R,S(1)", "R,S(0)", "S(1),P")).unwrap();
    let type_of = |name: &str| program.get(program.value(name).unwrap()).ty.to_string();
    for (value, is) in [("h1", "S(1),S(2)"), ("h3", "S(1),S(2)"), ("h", "S(1),S(2)"), ("out", "S(1),P(sum)")]
    {
        assert_eq!(type_of(value), is);
    }
    for (gradient, is) in [("dx", "S(1)|-,P(sum)|-"), ("dw1", "P(sum)|-,S(1)|-"), ("dw2", "P(sum)|-,S(0)|-")]
    {
        assert_eq!(type_of(gradient), is);
    }
    assert_eq!(communicated(&program), [""; 0]);
}

#[test]
fn a_gated_mlp_that_is_kept_the_same_everywhere_is_reduced_once() {
    let kept = written(&gated_mlp("S(1),I", "I,S(1)", "I,S(0)", "S(1),I")).unwrap();
    // One all_reduce of dx: the contributions of w1 and w3 are added before.
    let all = [
        "out: all_reduce 1024",
        "dw2: all_reduce 1024",
        "dw3: all_reduce 1024",
        "dw1: all_reduce 1024",
        "dx: all_reduce 1024",
    ];
    assert_eq!(communicated(&kept), all);
}

#[test]
fn a_gated_mlp_that_is_cut_gathers_and_scatters() {
    let sequences = written(&gated_mlp("S(1),S(0)", "R,S(1)", "R,S(0)", "S(1),S(0)")).unwrap();
    let moves =
        ["xr: all_gather 512", "out: reduce_scatter 512", "do: all_gather 512", "dx: reduce_scatter 512"];
    assert_eq!(communicated(&sequences), moves);
    let weights = written(&gated_mlp("S(1),R", "S(0),S(1)", "S(1),S(0)", "S(1),P")).unwrap();
    let moves = [
        "w1r: all_gather 512",
        "w3r: all_gather 512",
        "w2r: all_gather 512",
        "dw2: reduce_scatter 512",
        "dw3: reduce_scatter 512",
        "dw1: reduce_scatter 512",
    ];
    assert_eq!(communicated(&weights), moves);
}

/// Columns and rows, between activations of this type.
fn megatron(is: &str) -> String {
    format!(
        "mesh tp=4
         x: f32[8,2,16] {is}
         up: f32[16,64] S(1)
         down: f32[64,16] S(0)
         xr: R = x
         h = sbh,hi->sbi(xr, up)
         a = gelu(h)
         o = sbi,ih->sbh(a, down)
         y: {is} = o
         gradient y"
    )
}

#[test]
fn megatron_reduces_once_forward_and_once_backward() {
    let same = written(&megatron("I")).unwrap();
    assert_eq!(communicated(&same), ["y: all_reduce 1536", "dx: all_reduce 1536"]);
    let sequences = written(&megatron("S(0)")).unwrap();
    let moves =
        ["xr: all_gather 768", "y: reduce_scatter 768", "do: all_gather 768", "dx: reduce_scatter 768"];
    assert_eq!(communicated(&sequences), moves);
}

#[test]
fn ulysses_exchanges_sequences_for_heads_and_back() {
    let text = "
        mesh cp=4
        q: f32[2,16,4,8] S(1)
        k: f32[2,16,4,8] S(1)
        v: f32[2,16,4,8] S(1)
        qh: S(2) = q
        kh: S(2) = k
        vh: S(2) = v
        qt = transpose(qh, dim0=1, dim1=2)
        kt = transpose(kh, dim0=1, dim1=2)
        vt = transpose(vh, dim0=1, dim1=2)
        o = scaled_dot_product_attention(qt, kt, vt, causal=true)
        ot = transpose(o, dim0=1, dim1=2)
        y: S(1) = ot
        gradient y
    ";
    let all = ["qh", "kh", "vh", "y", "dot", "dv", "dk", "dq"].map(|name| format!("{name}: all_to_all 768"));
    assert_eq!(communicated(&written(text).unwrap()), all);
}

#[test]
fn what_a_sum_over_a_cut_batch_makes_is_terms() {
    for n in [2, 4] {
        let text = format!("mesh dp={n}\nx: f32[4,8] S(0)\ns = sum(x, dims=[0])\ny = relu(s)");
        let refused = written(&text).unwrap_err();
        assert_eq!(refused.code(), "needs_redistribute");
        assert!(refused.to_string().starts_with("y = relu(s): s is P(sum)"), "{refused}");
    }
    let reduced = "mesh dp=2\nx: f32[4,8] S(0)\nt = sum(x, dims=[0])\ns: I = t\ny = relu(s)\ngradient y";
    assert_eq!(communicated(&written(reduced).unwrap()), ["s: all_reduce 32"]);
}

/// The modulation block of a diffusion transformer: shifts, scales and gates of two norms from a vector.
///
/// The arguments are the types of the vector, of the weight as stored and as used, and of the modulation as
/// applied.
fn modulation(c: &str, w: &str, taken: &str, m: &str) -> String {
    format!(
        "mesh dp=2,sp=2
         c: f32[4,8] {c}
         w: f32[48,8] {w}
         x: f32[4,16,8] S(0),S(1)
         cr: S(0),R = c
         wr: {taken} = w
         s = silu(cr)
         m = bi,oi->bo(s, wr)
         m6 = view(m, shape=[4,6,8])
         mr: {m} = m6
         shift, scale, gate, shift2, scale2, gate2 = unbind(mr, dim=1)
         n = layer_norm(x)
         scale.s = unsqueeze(scale, dim=1)
         one = add_scalar(scale.s, value=1)
         n.scaled = mul(n, one)
         shift.s = unsqueeze(shift, dim=1)
         n.shifted = add(n.scaled, shift.s)
         gate.s = unsqueeze(gate, dim=1)
         y.gated = mul(n.shifted, gate.s)
         y = add(x, y.gated)
         n2 = layer_norm(y)
         scale2.s = unsqueeze(scale2, dim=1)
         one2 = add_scalar(scale2.s, value=1)
         n2.scaled = mul(n2, one2)
         shift2.s = unsqueeze(shift2, dim=1)
         n2.shifted = add(n2.scaled, shift2.s)
         gate2.s = unsqueeze(gate2, dim=1)
         z.gated = mul(n2.shifted, gate2.s)
         z = add(y, z.gated)
         gradient z"
    )
}

#[test]
fn chunks_of_a_product_cut_by_columns_are_free_where_every_chunk_is_cut() {
    let chunk = |w: &str| {
        let text = format!(
            "mesh dp=2,sp=2
             c: f32[4,8] S(0),R
             w: f32[48,8] {w}
             s = silu(c)
             m = bi,oi->bo(s, w)
             a, b, d, e, f, g = chunk(m, chunks=6, dim=1)
             y = mul(a, g)
             gradient y"
        );
        written(&text)
    };
    let refused = chunk("R,S(0)").unwrap_err();
    assert_eq!(refused.code(), "needs_redistribute");
    assert!(
        refused.to_string().starts_with("a, b, d, e, f, g = chunk(m, chunks=6, dim=1): m is S(0),S(1)"),
        "{refused}"
    );
    assert_eq!(communicated(&chunk("R,SS(0,6)").unwrap()), [""; 0]);
}

#[test]
fn modulation_with_tracked_types_gathers_once_and_scatters_once() {
    let natural = written(&modulation("S(0),R", "R,SS(0,6)", "R,SS(0,6)", "S(0),R")).unwrap();
    assert_eq!(communicated(&natural), ["mr: all_gather 192", "dm6: reduce_scatter 192"]);
    let kept = written(&modulation("S(0),I", "I,SS(0,6)", "R,SS(0,6)", "S(0),R")).unwrap();
    let moves = ["mr: all_gather 192", "dm6: reduce_scatter 192", "dw: all_reduce 768", "dc: all_reduce 64"];
    assert_eq!(communicated(&kept), moves);
    let cut = written(&modulation("S(0),R", "S(1),SS(0,6)", "R,SS(0,6)", "S(0),R")).unwrap();
    let moves =
        ["wr: all_gather 384", "mr: all_gather 192", "dm6: reduce_scatter 192", "dw: reduce_scatter 384"];
    assert_eq!(communicated(&cut), moves);
}

#[test]
fn modulation_gathered_by_hand_is_refused_for_its_gradient() {
    // An all_gather whose backward is its slice declares that all ranks do the same with its result; each has
    // its own sequence.
    let refused = written(&modulation("S(0),R", "R,SS(0,6)", "R,SS(0,6)", "S(0),I")).unwrap_err();
    assert_eq!(refused.code(), "needs_gradient_redistribute");
    let said = refused.to_string();
    assert!(said.contains("along sp one is I and has to be R"), "{said}");
}

#[test]
fn modulation_computed_by_every_rank_is_right_and_reduces_whole_weights() {
    let whole = written(&modulation("S(0),R", "I,I", "R,R", "S(0),R")).unwrap();
    assert_eq!(communicated(&whole), ["dw: all_reduce 2304"]);
}
