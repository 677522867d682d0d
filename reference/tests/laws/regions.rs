//! Local regions on ranks equal one device, forward and backward, and out_specs are proved or rejected.

use reshard_program::{Error, Graph, ImplicitRedistribution, Program, ShardingSolver};
use reshard_test_support::Sweep;

use crate::programs::{communicated, inputs, same_as_one_device, written};

/// Returns the error of a rejected text.
fn refused(text: &str) -> Error {
    let made = text.parse::<Graph>().and_then(|graph| ShardingSolver::new().solve(&graph));
    made.map_or_else(|e| e, |program| panic!("{text}\nis accepted:\n{program}"))
}

fn elaborated(text: &str) -> Program {
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    assert_eq!(graph.to_string().parse::<Graph>().as_ref(), Ok(&graph), "{graph}");
    ShardingSolver::new().solve(&graph).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Two products and the all_reduce of Megatron, as per-device code along tp; along dp everything is global.
fn megatron(y: &str, between: &str) -> String {
    format!(
        "mesh dp=2,tp=4
        x: f32[8,16] S(0),R
        up: f32[16,32] R,S(1)
        down: f32[32,16] R,S(0)
        local tp
          in x: R
          in up: S(1)
          in down: S(0)
          h = mm(x, up)
          a = gelu(h)
          o = mm(a, down)
          {between}
          out y: {y}
        end
        z = square(y)
        loss = sum(z)
        gradient loss wrt x, up, down"
    )
}

#[test]
fn per_device_code_is_the_program_along_the_other_axes() {
    let program = written(&megatron("R = r", "r = all_reduce(o)")).unwrap();
    assert_eq!(communicated(&program), ["tp: all_reduce 384", "dtp: all_reduce 384"]);
    // The sum may be declared as partial, and reduced outside.
    let program = elaborated(&megatron("P = o", ""));
    let _ = same_as_one_device::<f64>(&program, &inputs(&program, 2), 1e-12);
    assert_eq!(program.value("y").map(|y| program.get(y).ty.to_string()).as_deref(), Some("S(0),P(sum)"));
}

#[test]
fn a_forgotten_reduction_is_refused_whatever_the_size_of_the_axis() {
    for tp in [1, 4, 64] {
        let text = megatron("R = o", "").replace("tp=4", &format!("tp={tp}")).replace("32", "64");
        let e = refused(&text);
        assert!(
            e.to_string().ends_with(
                "`y` varies over tp but is declared R: mm sums a dim that tp shards; declare P, or all_reduce it"
            ),
            "{e}"
        );
    }
    for (y, between, says) in [
        ("R = a", "", "tp shards its dim 1; declare S(1), or all_gather it"),
        (
            "P = x",
            "",
            "is the same on all of tp but is declared P: its sum would count it 4 times; declare R",
        ),
        ("S(0) = x", "", "which would repeat it 4 times; declare R, or convert it to S(0) inside"),
        ("I = r", "r = all_reduce(o)", "is R along tp but is declared I"),
        ("R = p", "p: P = o", "is partial over tp but is declared R: no coordinate has the sum"),
        ("R = c", "c = coordinate()", "varies over tp but is declared R; declare P if"),
        ("S(0),S(1) = o", "", "write 1 placements, one for each axis"),
        ("RG(0,[1,2,3,9]) = o", "", "has slices with a capacity of 8, but a part of 9"),
        (
            "CN(0,[[8]]) = o",
            "",
            "which `local` does not support; redistribute it outside to a shard S(0), Z(0)",
        ),
        ("S(2) = o", "", "has 2 dims inside `local` but is declared S(2)"),
    ] {
        let e = refused(&megatron(y, between)).to_string();
        assert!(e.contains(says), "{y}: {e}");
    }
}

#[test]
fn what_a_region_cannot_mean_is_one_sentence() {
    for (between, says) in [
        ("q = add(a, p)\np: R = o", "there is no value `p` in `local tp`"),
        ("i: I = all_reduce(o)\nq = mul(i, o)", "an invariant operand (I) cannot be combined with others"),
        ("p: P = o\nq = mul(p, o)", "partial (P) and varying (V) operands cannot be combined"),
        ("p: P = o\nq = relu(p)", "does not accept these partial operands (P); all_reduce them first"),
        ("q = all_reduce(x)", "is the same on all of tp but is declared P"),
        ("q = shift(x, by=1)", "nothing is shifted"),
        ("q = all_gather(o, dim=0, stack=0)", "`stack` is for a new dim and excludes `dim`"),
        (
            "q = all_gather(o, dim=0, zigzag=concat)",
            "`zigzag` must name the dim that is Z instead of S, such as `zigzag=dim`",
        ),
        ("q = all_gather(o, dim=9, zigzag=dim)", "has 2 dims inside `local`, so tp cannot shard dim 9"),
        ("q = reduce_scatter(o, dim=9, zigzag=dim)", "has 2 dims inside `local`, so tp cannot shard dim 9"),
        (
            "g = unsqueeze(o, dim=0)\nq = reduce_scatter(g, dim=0, zigzag=dim)",
            "which tp does not split into 8 equal chunks",
        ),
        ("in b: RG(0,[1,2,3,2]) = x", "4 sizes are given, but tp has 3 ranks"),
        (
            "in b: RG(0,[1,2,3]) = x",
            "`b` has 8 indices along dim 0, but the sizes of its parts over tp add up to 6",
        ),
        (
            "in b: CN(0,[[8]]) = x",
            "which `local` does not support; redistribute it outside to a shard S(0), Z(0)",
        ),
        ("in b: Z(7) = x", "has 2 dims inside `local`, so tp cannot shard dim 7"),
        ("in b: SS(1,3) = x", "has 16 indices along dim 1, which tp does not split into 9 equal chunks"),
        ("in b: SS(1,9223372036854775807) = x", "does not split into"),
        ("q = all_gather(o)", "`dim` must be an integer, such as `dim=0`"),
        ("q = all_gather(o, dim=-1)", "must not be negative"),
        ("q = all_reduce(o, axis=dp)", "dp is not an axis of `local tp`"),
        ("q = all_reduce(o, dim=1)", "unknown argument `dim`; expected one of: axis, via"),
        ("q = all_reduce(o, o)", "expected 1 operands, but 2 are given"),
        ("q: I = mm(a, down)", "the output of mm has no declared placement"),
        ("q = mm(a, down) by R; R -> R", "in `local tp` an op has no strategy"),
        ("q: R = a", "`a` varies over tp and cannot be converted to R"),
        ("in x: R", "`x` is defined twice in `local tp`"),
        ("in w: R", "there is no value `w`"),
        ("in b: S(0) = x\n", "has 8 indices along dim 0"),
        ("local tp", "tp is already an axis of this or an outer `local`"),
        ("local cp", "cp"),
        ("gradient o", "is not allowed in `local tp`"),
        ("no_grad", "is not allowed in `local tp`"),
        ("x2: f32[4] R", "is not allowed in `local tp`"),
    ] {
        let text = megatron("R = r", &format!("r = all_reduce(o)\n{between}"));
        let text = if between.starts_with("in b") {
            text.replace("tp=4", "tp=3").replace("[16,32]", "[16,33]").replace("[32,16]", "[33,16]")
        } else {
            text
        };
        let e = refused(&text).to_string();
        assert!(e.contains(says), "{between}: {e}");
    }
    for (out, says) in [
        ("out y: Z(0) = e", "which cannot be split into 2 equal chunks"),
        ("out y: Z(3) = e", "has 1 dims inside `local`, so tp cannot shard dim 3"),
    ] {
        let text = format!("mesh tp=2\nx: f32[6] S(0)\nlocal tp\nin x: S(0)\ne = exp(x)\n{out}\nend");
        let e = refused(&text).to_string();
        assert!(e.contains(says), "{e}");
    }
    let both = "mesh dp=2,tp=2\nx: f32[16] R,R\nlocal dp,tp\nin x: S(0),Z(0)\nend";
    let e = refused(both).to_string();
    assert!(e.contains("tp and dp both shard dim 0, and one of them not into blocks"), "{e}");
    let e = refused("mesh tp=2\nx: f32[4] R\nlocal tp\nin x: R").to_string();
    assert_eq!(e, "line 3: `local tp` has no end; write `end` below its lines");
    assert!(
        refused("mesh tp=2\nx: f32[4] R\nlocal\nend").to_string().starts_with("line 3"),
        "an axis is missing"
    );
}

#[test]
fn collectives_of_a_region_are_those_of_the_framework() {
    let body = |lines: &str| {
        format!(
            "mesh dp=2,cp=3
            x: f32[6,18] S(0),S(1)
            y: f32[6,18] S(0),I
            local cp
              in x: S(1)
              in y: I
              {lines}
            end
            z = square(o)
            loss = sum(z)
            gradient loss wrt x, y"
        )
    };
    let cases = [
        ("s = sum(x, dims=[1])\nr = all_reduce(s)\nout o: R = r", &["cp: all_reduce 16"][..]),
        ("s = sum(x, dims=[1])\nr: I = all_reduce(s)\nout o: I = r", &["cp: all_reduce 16"]),
        ("g = all_gather(x, dim=1)\nout o: R = g", &["cp: all_gather 144"]),
        ("g = all_gather(x, dim=0)\nout o: R = g", &["cp: all_gather 144"]),
        ("g = all_gather(x, dim=1, zigzag=dim)\nout o: R = g", &["cp: all_gather 144"]),
        ("g = all_gather(x, stack=0)\nout o: R = g", &["cp: all_gather 144"]),
        ("g: I = all_gather(x, stack=2)\nout o: I = g", &["cp: all_gather 144"]),
        ("r = reduce_scatter(x, dim=1)\nout o: S(1) = r", &["cp: reduce_scatter"]),
        ("r = reduce_scatter(x, dim=1, zigzag=dim)\nout o: Z(1) = r", &["cp: reduce_scatter"]),
        ("w: Z(1) = y\nu = mul(x, w)\nout o: Z(1) = u", &[]),
        ("t = all_to_all(x, split=0, concat=1)\nout o: S(0) = t", &["cp: exchange 72"]),
        ("t = shift(x, by=1)\nu = mul(x, t)\nout o: S(1) = u", &["cp: exchange 72"]),
        (
            "t = shift(x, by=-2)\nu = shift(t, by=2)\nv = add(t, u)\nout o: S(1) = v",
            &["cp: exchange 72", "cp: exchange 72"],
        ),
        (
            "r: R = y\np: P = r\nq = add(p, p)\ns: S(1) = q\nu = mul(s, x)\nout o: S(1) = u",
            &["cp: reduce_scatter"],
        ),
        ("c = coordinate()\nd = add(x, c)\nout o: S(1) = d", &[]),
        ("w: S(1) = y\nu = mul(x, w)\nout o: S(1) = u", &[]),
    ];
    let looked_at = |(number, _): &(usize, _)| Sweep::asked().takes_one_in(3, *number);
    for (_, (lines, moved)) in cases.into_iter().enumerate().filter(looked_at) {
        let text = body(lines);
        let program = written(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let made: Vec<String> = communicated(&program).into_iter().filter(|m| m.starts_with("cp")).collect();
        let starts = made.len() == moved.len() && made.iter().zip(moved).all(|(a, b)| a.starts_with(b));
        assert!(starts, "{lines}: {made:?}");
    }
}

#[test]
fn regions_stand_in_regions_and_in_layers() {
    let text = "
        mesh dp=2,tp=2,pp=2
        x: f64[8,16] S(0),S(1),R
        w: f64[16,8] R,S(0),R
        repeat 2
          local dp
            in x: S(0)
            in w: R
            local tp
              in x: S(1)
              in v: S(0) = w
              h = mm(x, v)
              r = reduce_scatter(h, dim=1, axis=tp)
              g: I = all_gather(r, dim=1, axis=tp)
              m = all_reduce(r, axis=dp)
              out o: I = g
              out p: S(1) = r
              out q: S(0) = m
            end
            a = relu(o)
            b = mean(p, dims=[1])
            out m: S(0) = a
            out n: S(0) = b
            out k: R = q
          end
          u = sum(m)
          t = sum(n)
          kk = square(k)
          s = sum(kk)
        end
        l = add(u, t)
        loss = add(l, s)
        gradient loss wrt x, w";
    let program = elaborated(text);
    let _ = same_as_one_device::<f64>(&program, &inputs(&program, 3), 1e-12);
    assert_eq!(program.value("dp.tp.h").map(|v| program.get(v).shape().to_vec()), None);
    assert_eq!(program.value("tp.h").map(|v| program.get(v).shape().to_vec()), Some(vec![2, 2, 4, 8]));
}

/// Values with and without a dim of each axis, in all orders of the axes' placements.
#[test]
fn axes_cut_dims_together_and_apart() {
    let cases = [
        ("S(0),S(1)", "R,S(0)"),
        ("S(0),S(0)", "R,R"),
        ("S(1),S(0)", "S(0),R"),
        ("R,S(1)", "I,S(0)"),
        ("S(1),S(1)", "S(0),S(0)"),
        // Not in blocks: on 2 ranks 2 x 2 chunks, on 3 ranks 3 x 2.
        ("Z(0),S(1)", "R,S(0)"),
        ("S(0),Z(1)", "R,Z(0)"),
        ("Z(1),Z(0)", "Z(0),R"),
        ("SS(1,3),Z(0)", "SS(0,3),R"),
        ("R,SS(1,2)", "I,SS(0,2)"),
        ("Z(1),R", "Z(0),R"),
    ];
    for (_, (x, b)) in cases.into_iter().enumerate().filter(|(i, _)| Sweep::asked().takes_one_in(4, *i)) {
        let same = if b.starts_with('I') { "bb: R,_ = b" } else { "bb = mul_scalar(b, value=2)" };
        let text = format!(
            "mesh dp=2,tp=3,cp=2
            x: f32[12,12] R,R,S(0)
            b: f32[12] R,I,R
            local dp,tp
              in x: {x}
              in b: {b}
              {same}
              h = add(x, bb)
              e = exp(h)
              out y: {x} = e
            end
            z = square(y)
            loss = sum(z)
            gradient loss wrt x, b"
        );
        let program = elaborated(&text);
        let _ = same_as_one_device::<f64>(&program, &inputs(&program, 5), 1e-12);
    }
}

/// The 16 transitions of a value between R, I, P and a shard, in a region, forward and backward.
#[test]
fn a_value_becomes_whatever_it_may_be_inside() {
    let steps = |program: &Program, back: bool| -> String {
        let of = |m: reshard_program::RedistributionRef<'_>| {
            let plan = if back { m.backward } else { Some(m.forward) };
            plan.map_or_else(Vec::new, |p| p.steps().iter().map(|s| s.op().to_string()).collect::<Vec<_>>())
        };
        let list: Vec<String> =
            program.redistributions().filter(|m| m.from.name.starts_with("x.")).flat_map(of).collect();
        if list.is_empty() { "-".to_owned() } else { list.join("+") }
    };
    let table = [
        ("R", "I", "-", "zero_fill"),
        ("R", "S(0)", "slice", "zero_fill"),
        ("R", "P", "zero_fill", "zero_fill"),
        ("I", "R", "-", "all_reduce"),
        ("I", "S(0)", "slice", "all_gather"),
        ("I", "P", "zero_fill", "-"),
        ("P", "R", "all_reduce", "all_reduce"),
        ("P", "I", "all_reduce", "-"),
        ("P", "S(0)", "reduce_scatter", "all_gather"),
        ("R", "R", "-", "-"),
        ("I", "I", "-", "-"),
        ("P", "P", "-", "-"),
        ("S(0)", "R", "all_gather", "reduce_scatter"),
        ("S(0)", "I", "all_gather", "slice"),
        ("S(0)", "S(1)", "all_to_all", "all_to_all"),
        ("S(0)", "P", "-", "-"),
    ];
    for (from, to, forward, backward) in table {
        let line = match (from, to) {
            ("S(0)", "R" | "I") => format!("b: {to} = all_gather(a, dim=0)"),
            ("S(0)", "S(1)") => "b = all_to_all(a, split=1, concat=0)".to_owned(),
            ("S(0)", _) => "b: P = a".to_owned(),
            _ if from == to => "b = mul_scalar(a, value=2)".to_owned(),
            _ => format!("b: {to} = a"),
        };
        let text = format!(
            "mesh x=4
            v: f32[16,8] {from}
            local x
              in a: {from} = v
              {line}
              out y: {to} = b
            end
            w = mul_scalar(y, value=3)
            loss = sum(w)
            gradient loss wrt v"
        );
        let program = written(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let _ = same_as_one_device::<f64>(&program, &inputs(&program, 9), 1e-12);
        // In a region V to P is the sum of the coordinates' own values, which is free in both directions.
        assert_eq!(
            (steps(&program, false), steps(&program, true)),
            (forward.to_owned(), backward.to_owned()),
            "{text}\n{program}"
        );
    }
}

/// Without a written redistribution nothing communicates, in a region or around it.
#[test]
fn entering_is_a_move_that_is_written_and_nothing_else_is_moved() {
    let text = "mesh dp=2,tp=2
        x: f32[4,8] S(0),R
        local tp
          in x: S(1)
          h = mul_scalar(x, value=2)
          out y: S(1) = h
        end
        z: S(0),R = y";
    let program = ShardingSolver::new()
        .implicit_redistribution(ImplicitRedistribution::Deny)
        .solve(&text.parse().unwrap())
        .unwrap();
    let moves: Vec<String> =
        program.redistributions().map(|m| m.to_string()).filter(|m| !m.contains("forward 0 bytes")).collect();
    assert_eq!(moves, ["y: S(0),S(1) -> S(0),R: forward 32 bytes, backward 32 bytes"]);
}
