//! Attention over sharded sequences, as per-device code: a ring of keys and values, and Ulysses; causal too.

use std::fmt::Write as _;

use ndarray::ArrayD;
use reshard_program::schedule::CompileOptions;
use reshard_program::{Program, ShardingSolver};
use reshard_reference::{Values, on_one_device, on_ranks};
use reshard_test_support::Sweep;

use crate::programs::{communicated, inputs, same_as_one_device};

/// The program of ring attention over `n` ranks.
///
/// Each rank has a block of the sequence, `S`, or two chunks of it, `Z`. Every rank keeps its queries. Keys,
/// values and their positions are sent around the ring. The state of the softmax is its greatest score, its
/// sum and its output.
fn ring(n: usize, causal: bool, cut: char) -> String {
    let mut body = String::new();
    let keep = "s_I = where(g_I, d_I, low)";
    for i in 0..n {
        let (last, next) = (i.wrapping_sub(1), i + 1);
        if next < n {
            // The next block is sent before this one is computed.
            let _ = writeln!(body, "k{next} = shift(k{i}, by=1)\nv{next} = shift(v{i}, by=1)");
            if causal {
                let _ = writeln!(body, "p{next} = shift(p{i}, by=1)");
            }
        }
        let _ = writeln!(body, "c_{i} = bqhd,bkhd->bhqk(q, k{i})\nd_{i} = mul_scalar(c_{i}, value=0.5)");
        if causal {
            let _ = writeln!(
                body,
                "w_{i} = unsqueeze(p0, dim=1)\nu_{i} = unsqueeze(p{i}, dim=0)\ng_{i} = ge(w_{i}, u_{i})"
            );
            let _ = writeln!(body, "{}", keep.replace("_I", &format!("_{i}")));
        } else {
            let _ = writeln!(body, "s_{i} = clone(d_{i})");
        }
        let _ = writeln!(body, "t_{i} = amax(s_{i}, dims=[3], keepdim=true)");
        if i == 0 {
            let _ = writeln!(
                body,
                "m_0 = clone(t_0)\na_0 = sub(s_0, m_0)\ne_0 = exp(a_0)\nl_0 = sum(e_0, dims=[3], keepdim=true)\no_0 = bhqk,bkhd->bhqd(e_0, v0)"
            );
        } else {
            let _ = writeln!(
                body,
                "m_{i} = maximum(m_{last}, t_{i})\nf_{i} = sub(m_{last}, m_{i})\nr_{i} = exp(f_{i})\na_{i} = sub(s_{i}, m_{i})\ne_{i} = exp(a_{i})
                 j_{i} = sum(e_{i}, dims=[3], keepdim=true)\nh_{i} = mul(l_{last}, r_{i})\nl_{i} = add(h_{i}, j_{i})
                 b_{i} = mul(o_{last}, r_{i})\nx_{i} = bhqk,bkhd->bhqd(e_{i}, v{i})\no_{i} = add(b_{i}, x_{i})"
            );
        }
    }
    let end = n - 1;
    let positions = if causal { format!("in p0: {cut}(0) = p\nin low: R") } else { String::new() };
    let given = if causal { format!("p: i64[{}] {cut}(0)\nlow: f64[] R|-", 4 * n) } else { String::new() };
    format!(
        "mesh cp={n}
        q: f64[2,{len},2,4] {cut}(1)
        k: f64[2,{len},2,4] {cut}(1)
        v: f64[2,{len},2,4] {cut}(1)
        weight: f64[2,2,{len},4] {cut}(2)|-
        {given}
        local cp
          in q: {cut}(1)
          in k0: {cut}(1) = k
          in v0: {cut}(1) = v
          {positions}
          {body}
          y_ = div(o_{end}, l_{end})
          out y: {cut}(2) = y_
        end
        z = mul(y, weight)
        loss = sum(z)
        gradient loss wrt q, k, v",
        len = 4 * n
    )
}

/// The same on whole tensors, by the attention op of the table.
fn whole(n: usize, causal: bool) -> String {
    let len = 4 * n;
    format!(
        "mesh cp={n}
        q: f64[2,{len},2,4] R
        k: f64[2,{len},2,4] R
        v: f64[2,{len},2,4] R
        weight: f64[2,2,{len},4] R|-
        qh = transpose(q, dim0=1, dim1=2)
        kh = transpose(k, dim0=1, dim1=2)
        vh = transpose(v, dim0=1, dim1=2)
        y = scaled_dot_product_attention(qh, kh, vh, causal={causal})
        z = mul(y, weight)
        loss = sum(z)
        gradient loss wrt q, k, v"
    )
}

fn program(text: &str) -> Program {
    ShardingSolver::new()
        .solve(&text.parse().unwrap_or_else(|e| panic!("{text}\n{e}")))
        .unwrap_or_else(|e| panic!("{text}\n{e}"))
}

fn given(program: &Program, len: usize) -> Values<f64> {
    let mut given = inputs::<f64>(program, 11);
    if let Some(p) = given.get_mut("p") {
        *p = ArrayD::from_shape_fn(vec![len], |i| i[0] as f64);
    }
    if let Some(low) = given.get_mut("low") {
        low.fill(-1e30);
    }
    given
}

#[test]
fn a_ring_of_keys_is_attention_forward_and_backward() {
    for (n, causal, cut) in [
        (1, false, 'S'),
        (2, true, 'S'),
        (4, false, 'S'),
        (4, true, 'S'),
        (1, true, 'Z'),
        (2, true, 'Z'),
        (4, true, 'Z'),
    ] {
        let len = 4 * n;
        let (text, whole) = (ring(n, causal, cut), whole(n, causal));
        let (program, whole) = (program(&text), program(&whole));
        let given = given(&program, len);
        let expected: Values<f64> = given
            .iter()
            .filter(|(name, _)| whole.value(name).is_some())
            .map(|(n, x)| (n.clone(), x.clone()))
            .collect();
        let expected = on_one_device(&whole, &expected).unwrap();
        let ranks = on_ranks(&program, &given).unwrap();
        let device = on_one_device(&program, &given).unwrap();
        for name in ["y", "dq", "dk", "dv"] {
            for found in [&ranks.whole(name).unwrap(), &device[name]] {
                let worst = found.iter().zip(&expected[name]).fold(0.0f64, |a, (x, y)| a.max((x - y).abs()));
                assert!(worst < 1e-12, "{name} on {n} is off by {worst}");
            }
        }
        if n == 4 {
            // Three times the keys, the values and, if causal, the positions of one rank; backward the
            // gradients of keys and values.
            let block = 2 * 4 * 2 * 4 * 8;
            let received: u64 = program.redistributions().map(|m| m.forward.received_bytes()).sum();
            let positions = if causal { 4 * 8 } else { 0 };
            assert_eq!(received, 3 * (2 * block + positions) + 3 * 2 * block, "{program}");
        }
    }
}

/// Posted early, the next block is in flight while the products of this one are computed.
#[test]
fn shifts_are_posted_before_the_blocks() {
    let program = program(&ring(4, true, 'Z'));
    let options = CompileOptions { in_flight_bytes: 1 << 30, ..CompileOptions::default() };
    for rank in 0..4 {
        let schedule = program.compile(rank, &options).unwrap().to_string();
        let lines: Vec<&str> = schedule.lines().collect();
        let at = |what: &dyn Fn(&str) -> bool| {
            lines.iter().position(|line| what(line)).unwrap_or_else(|| panic!("{schedule}"))
        };
        for block in 0..3 {
            let product = at(&|line| line.starts_with(&format!("cp.c_{block}@")));
            for of in ["k", "v", "p"] {
                let moved = format!("cp.{of}{block}");
                let post = at(&|line| line.starts_with("post ") && line.contains(&format!(" = {moved}@")));
                let made = lines[post].split(['@', ' ']).nth(1).unwrap();
                let wait =
                    at(&|line| line.starts_with(&format!("wait {made}@")) || line == format!("wait {made}"));
                assert!(
                    post < product && product < wait,
                    "{moved} is posted at {post}, block {block} computed at {product} and waited for at {wait}\n{schedule}"
                );
            }
        }
    }
}

/// Ulysses: sequences to heads before attention, and back, for sequences in blocks and zigzag.
#[test]
fn ulysses_is_attention_forward_and_backward() {
    ulysses('S');
    if Sweep::asked().is_exhaustive() {
        ulysses('Z');
    }
}

fn ulysses(cut: char) {
    let (concat, split) = if cut == 'Z' { (", zigzag=concat", ", zigzag=split") } else { ("", "") };
    let text = format!(
        "mesh cp=4
        q: f32[2,16,4,8] {cut}(1)
        k: f32[2,16,4,8] {cut}(1)
        v: f32[2,16,4,8] {cut}(1)
        local cp
          in q: {cut}(1)
          in k: {cut}(1)
          in v: {cut}(1)
          qh = all_to_all(q, split=2, concat=1{concat})
          kh = all_to_all(k, split=2, concat=1{concat})
          vh = all_to_all(v, split=2, concat=1{concat})
          qt = transpose(qh, dim0=1, dim1=2)
          kt = transpose(kh, dim0=1, dim1=2)
          vt = transpose(vh, dim0=1, dim1=2)
          o = scaled_dot_product_attention(qt, kt, vt, causal=true)
          ot = transpose(o, dim0=1, dim1=2)
          y_ = all_to_all(ot, split=1, concat=2{split})
          out y: {cut}(1) = y_
        end
        z = square(y)
        loss = sum(z)
        gradient loss wrt q, k, v"
    );
    let program = program(&text);
    let given = inputs::<f64>(&program, 4);
    let _ = same_as_one_device::<f64>(&program, &given, 1e-12);
    // Compare with attention on whole tensors.
    let whole: Program = self::program(
        "mesh cp=1
        q: f32[2,16,4,8] R
        k: f32[2,16,4,8] R
        v: f32[2,16,4,8] R
        qt = transpose(q, dim0=1, dim1=2)
        kt = transpose(k, dim0=1, dim1=2)
        vt = transpose(v, dim0=1, dim1=2)
        o = scaled_dot_product_attention(qt, kt, vt, causal=true)
        y = transpose(o, dim0=1, dim1=2)
        z = square(y)
        loss = sum(z)
        gradient loss wrt q, k, v",
    );
    let (found, expected) =
        (on_one_device(&program, &given).unwrap(), on_one_device(&whole, &given).unwrap());
    for name in ["y", "dq", "dk", "dv"] {
        let worst = found[name].iter().zip(&expected[name]).fold(0.0f64, |a, (x, y)| a.max((x - y).abs()));
        assert!(worst < 1e-12, "{name} is off by {worst}");
    }
    let made: Vec<String> = communicated(&program);
    let step = if cut == 'Z' { "exchange 768" } else { "all_to_all 768" };
    assert_eq!(made.iter().filter(|m| m.ends_with(step)).count(), 8, "{made:?}");
    assert_eq!(made.len(), 8, "{made:?}");
}
