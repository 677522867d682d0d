//! The text of a solved program is parsed as that program.

use std::fmt::Write;

use reshard_kernels::DType;
use reshard_program::{Graph, Program, ShardingSolver};
use reshard_sharding::{Mesh, ShardingType};

/// Returns the program of a text; asserts that its text round-trips.
fn read_back(text: &str) -> Program {
    let program = ShardingSolver::new().solve(&text.parse::<Graph>().unwrap()).unwrap();
    let again: Program = program.to_string().parse().unwrap_or_else(|e| panic!("{program}\n{e}"));
    assert_eq!(again.to_string(), program.to_string());
    program
}

#[test]
fn what_nobody_names_gets_no_name_that_somebody_gives() {
    // A mean is decomposed before v.3 is computed; d.2 is one of the first gradient names, x.1 that of a
    // redistributed x.
    let program = read_back(
        "mesh dp=2
         x: f32[4,8] S(0)
         w: f32[8,8] S(0)
         v.3: R = x
         a = mean(x, dims=[1])
         v.5 = relu(a)
         h = mm(x, w)
         x.1 = relu(h)
         d.2 = sum(x.1)
         v.9 = sum(v.5)
         v.1 = add(d.2, v.9)
         gradient v.1
         d.0 = sgd(w, dw)",
    );
    let mut names: Vec<&str> = program.values().iter().map(|v| v.name.as_str()).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "{program}");
}

#[test]
fn an_op_that_stops_gradients_takes_a_value_that_has_one() {
    let program = read_back(
        "mesh dp=2
         x: f32[4,8] I
         y = detach(x)
         z = mul(x, y)
         gradient z",
    );
    assert_eq!(program.redistributions().filter(|m| m.forward.received_bytes() > 0).count(), 0);
}

#[test]
fn terms_of_an_average_are_read_where_nothing_has_a_gradient() {
    read_back(
        "mesh dp=2
         x: f32[4,8] S(0)
         l = sum(x)
         gradient l
         no_grad
         m: f32[4,8] P(avg)
         n: P(avg) = mul_scalar(m, value=2)",
    );
}

#[test]
fn means_of_a_gradient_that_has_a_gradient_are_taken_apart() {
    // The formula of layer_norm has means.
    let program = read_back(
        "mesh dp=2,tp=2
         x: f32[4,6] S(0),R
         w: f32[6] R,S(0)
         n = layer_norm(x)
         y = mul(n, w)
         gradient y wrt x
         q = mul(dx, dx)
         l = sum(q)
         gradient l wrt w",
    );
    let trained = program.to_string().split("no_grad").next().unwrap_or_default().to_owned();
    assert!(!trained.contains(" mean("), "{program}");
}

#[test]
fn indices_and_truth_values_are_no_numbers_that_have_gradients() {
    let graph: Graph = "mesh dp=2
        x: f32[2,3,4] S(0)
        edges: f32[5] R
        a, i = max_pool1d_with_indices(x, kernel=2)
        b, j = topk(x, k=1)
        k = bucketize(x, edges)
        t = signbit(x)"
        .parse()
        .unwrap();
    let of = |name: &str| graph.dtype(graph.value(name).unwrap()).to_string();
    assert_eq!(["a", "i", "b", "j", "k", "t"].map(of), ["f32", "i64", "f32", "i64", "i64", "bool"]);
}

/// Three equal layers, and their update.
const LAYERS: &str = "
    mesh dp=2
    x: f32[64,32] S(0)
    repeat 3
      w: f32[32,32] R
      h = mm(x, w)
      x: S(0) = relu(h)
    end
    loss = sum(x)
    gradient loss wrt w
    repeat 3
      w' = sgd(w, dw, lr=0.1)
    end
";

#[test]
fn what_is_repeated_is_what_is_written_out() {
    let graph: Graph = LAYERS.parse().unwrap();
    let mut text = "mesh dp=2\nx: f32[64,32] S(0)\n".to_owned();
    let mut before = "x".to_owned();
    for n in 0..3 {
        writeln!(text, "w_{n}: f32[32,32] R\nh_{n} = mm({before}, w_{n})\nx_{n}: S(0) = relu(h_{n})")
            .unwrap();
        before = format!("x_{n}");
    }
    text += "loss = sum(x_2)\ngradient loss wrt w_0, w_1, w_2\n";
    for n in 0..3 {
        writeln!(text, "w_{n}' = sgd(w_{n}, dw_{n}, lr=0.1)").unwrap();
    }
    assert_eq!(graph, text.parse().unwrap());
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
    assert!(ShardingSolver::new().solve(&graph).is_ok());
}

#[test]
fn blocks_have_names_of_their_own() {
    let text = "
        mesh dp=2
        x: f32[8,8] S(0)
        repeat 2 enc
          w: f32[8,8] R
          x = mm(x, w)
        end
        repeat 2 dec
          w: f32[8,8] R
          x = mm(x, w)
        end
        _, b = split(x, dim=1, size=4)
        gradient b wrt x
    ";
    let graph: Graph = text.parse().unwrap();
    let names = ["w_enc0", "x_enc0", "w_enc1", "x_enc1", "w_dec0", "x_dec0", "w_dec1", "x_dec1", "dx_dec1"];
    assert!(names.iter().all(|name| graph.value(name).is_some()), "{graph}");
    // The second block continues from the end of the first.
    assert!(graph.to_string().contains("x_dec0 = mm(x_enc1, w_dec0)"), "{graph}");
}

#[test]
fn what_cannot_be_repeated_is_refused_where_it_stands() {
    let refused = |body: &str| {
        let text = format!("mesh dp=2\nx: f32[8] S(0)\n{body}\n");
        text.parse::<Graph>().map(|g| g.to_string()).unwrap_err().to_string()
    };
    for (body, expected) in [
        ("repeat 2\ny = relu(x)", "line 3: `repeat` has no end"),
        ("repeat 2\nend", "line 3: repeat 2 of 0 statements"),
        ("repeat 0\ny = relu(x)\nend", "line 3: invalid \"repeat 0\""),
        ("repeat 2 a1\ny = relu(x)\nend", "line 3: invalid \"repeat 2 a1\""),
        ("repeat 99999999999999999999\ny = relu(x)\nend", "line 3: invalid \"repeat 99999999999999999999\""),
        (
            "repeat 18446744073709551615\ny = relu(x)\nend",
            "line 3: repeat 18446744073709551615 of 1 statements",
        ),
        ("repeat 2\nrepeat 2\ny = relu(x)\nend\nend", "line 4: \"repeat 2\" is not allowed between"),
        ("repeat 2\nmesh m: ep=2\nend", "line 4: \"mesh m: ep=2\" is not allowed between"),
        ("repeat 2\nno_grad\nend", "line 4: \"no_grad\" is not allowed between"),
        ("repeat 2\ngradient x\nend", "line 4: `gradient x` is not allowed between"),
        ("repeat 2\ny = relu(x)\ny = relu(x)\nend", "line 5: `y_0` is defined twice"),
        ("repeat 2\ny = relu(z)\nend", "line 4: there is no value `z`"),
        ("end", "line 3: \"end\" is not a statement"),
        ("repeat 2\ny = relu(x)\nend\nrepeat 2\ny = relu(x)\nend", "line 7: `y_0` is defined twice"),
    ] {
        let error = refused(body);
        assert!(error.starts_with(expected), "{body}\n{error}");
    }
}

#[test]
fn a_second_gradient_of_a_value_has_a_name_of_its_own() {
    let text = "
        mesh x=2
        repeat 2
          w: f32[8] R
          a = exp(w)
        end
        a = sum(a_0)
        b = sum(a_1)
        c = add(a, b)
        gradient a wrt w
        gradient c wrt w as g
        no_grad
        repeat 2
          s = add(dw, g)
        end
    ";
    let graph: Graph = text.parse().unwrap();
    assert!(graph.to_string().contains("gradient c wrt w_0, w_1 as g_0, g_1\n"), "{graph}");
    assert!(graph.to_string().contains("s_1 = add(dw_1, g_1)\n"), "{graph}");
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
    let program = ShardingSolver::new().solve(&graph).unwrap();
    assert!(program.value("g_1").is_some() && program.value("dw_1").is_some(), "{program}");
    let refused =
        |body: &str| format!("mesh x=2\nw: f32[8] R\na = exp(w)\ngradient a\n{body}").parse::<Graph>();
    for (body, expected) in [
        ("gradient a", "line 5: `dw` is defined twice; name this gradient, as in `gradient a wrt w as dw."),
        ("gradient a wrt w as g, h", "line 5: there are 1 values after `wrt` but 2 names after `as`"),
        ("gradient a as g", "line 5: names after `as` need values after `wrt`"),
        ("gradient a wrt w as w", "line 5: `w` is defined twice"),
        ("gradient a wrt w as 1", "line 5: invalid value name \"1\""),
    ] {
        let error = refused(body).map(|g| g.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{body}\n{error}");
    }
}

/// Below `no_grad` a constraint holds only for the value's sharding.
///
/// `parse(print(g)) = g` for every pair of placements, given by a text, inherited from an input, or given by
/// calls.
#[test]
fn pins_below_the_mark_are_read_as_they_are_printed() {
    let spelled = ["R", "I", "S(0)", "P"];
    let types = spelled.iter().flat_map(|value| {
        std::iter::once((*value).to_owned()).chain(spelled.iter().map(move |dual| format!("{value}|{dual}")))
    });
    let mesh: Mesh = "x=2".parse().unwrap();
    let (mut said, mut kept) = (0, 0);
    for text in types {
        let Ok(is) = ShardingType::parse(&mesh, &[8], &text) else { continue };
        for below in [
            format!("w' = neg(w)\nv: {text} = w"),
            format!("v: {text} = neg(w)\nw' = relu(v)"),
            format!("u: f32[8] {text}\nw': {text} = add(u, u)"),
        ] {
            let program = format!("mesh x=2\nw: f32[8] {text}\ny = exp(w)\nno_grad\n{below}\n");
            let graph: Graph = program.parse().unwrap();
            assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph, "{program}");
            let value = |name: &str| graph.constraint(graph.value(name).unwrap()).unwrap().clone();
            assert_eq!(value("w").gradient, is.gradient, "{program}");
            assert_eq!(value("w'"), value("w'").without_gradient(), "{program}");
            said += 1;
        }
        let mut graph = Graph::new(&mesh);
        let w = graph.input("w", DType::F32, &[8], "S(0)").unwrap();
        graph.no_grad();
        graph.constrain(w, is.clone()).unwrap();
        let v = graph.redistribute(w, "v", is.clone()).unwrap();
        // A value computed above the mark keeps its gradient.
        assert_eq!(graph.constraint(w), Some(&is));
        assert_eq!(graph.constraint(v), Some(&is.clone().without_gradient()));
        assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph, "{graph}");
        kept += usize::from(is.gradient.is_some());
    }
    assert!(said > 30 && kept > 10, "{said} programs, {kept} types with gradients");
}

/// A sum of booleans counts the `true` ones, as the gradient of a maximum requires for ties.
///
/// Half of `true` is not a boolean.
#[test]
fn truths_are_counted_in_whole_numbers() {
    for (sum, dtype) in [
        ("sum(e, dims=[0])", "i64"),
        ("cumsum(e, dim=1)", "i64"),
        ("amax(e, dims=[0])", "bool"),
        ("mul_scalar(e, value=2)", "i64"),
        ("mul_scalar(e, value=0.5)", "f32"),
        ("pow_scalar(e, exponent=-0.5)", "f32"),
    ] {
        let program = read_back(&format!(
            "mesh dp=2
             x: f32[4,8] S(0)
             y: f32[4,8] S(0)
             e = eq(x, y)
             n = {sum}
             m: R = n"
        ));
        let said = |name: &str| program.values().iter().find(|v| v.name == name).unwrap().dtype.to_string();
        assert_eq!([said("e"), said("n"), said("m")], ["bool", dtype, dtype], "{sum}");
    }
}

/// Element types are preserved by printing and parsing.
///
/// They are so too if no operand determines them: the first gradient, and real numbers of truth values.
#[test]
fn element_types_are_read_as_they_are_printed() {
    for dtype in ["f64", "f32", "bf16", "f16"] {
        let program = read_back(&format!(
            "mesh dp=2
             x: {dtype}[4,8] S(0)
             w: {dtype}[8] R
             n: {dtype}[8] R = ones(shape=[8])
             i: i32[8] R = arange(size=8)
             h = mul(x, w)
             k = mul(h, n)
             m = gt(k, x)
             c: {dtype}[4,8] = mul_scalar(m, value=0.5)
             r = relu(k)
             l = sum(r)
             gradient l"
        ));
        let again: Program = program.to_string().parse().unwrap();
        let types = |p: &Program| -> Vec<(String, DType)> {
            p.values().iter().map(|v| (v.name.clone(), v.dtype)).collect()
        };
        assert_eq!(types(&again), types(&program));
        let said = |name: &str| types(&program).iter().find(|(n, _)| n == name).unwrap().1.to_string();
        for name in ["n", "k", "c", "l", "dw"] {
            assert_eq!(said(name), dtype, "{name}");
        }
        assert_eq!((said("i"), said("m")), ("i32".to_owned(), "bool".to_owned()));
    }
    for (line, message) in [
        ("y: f32[4] = gt(x, x)", "`y` is declared f32[4], but gt gives bool[4]"),
        ("y: bool[4] = argsort(x)", "`y` is declared bool[4], but argsort gives i64[4]"),
        ("y: f64[4] = exp(x)", "`y` is declared f64[4], but exp gives f32[4]"),
        ("y: f32[5] = exp(x)", "`y` is declared f32[5], but exp gives f32[4]"),
        ("y: f32[4 = exp(x)", "`y`: the shape after f32 has no closing `]`"),
        ("y: f32[four] = exp(x)", "invalid shape `[four]`"),
    ] {
        let error = format!("mesh x=2\nx: f32[4] S(0)\n{line}\n").parse::<Graph>().unwrap_err().to_string();
        assert!(error.contains(message), "{line}: {error}");
    }
}

/// The error for a line that is nearly valid explains how to correct it.
#[test]
fn what_is_written_wrong_is_told_how_to_write_it() {
    for (line, says) in [
        ("y = relu(mm(a, a))", "calls cannot be nested, so write `a = mm(a, a)` above"),
        ("y = relu(a", "a call has matching parentheses and ends with `)`"),
        ("y = split(a, 2, dim=0)", "numbers are named arguments, such as `dim=2`"),
        ("y = relu()", "has 1 inputs and 1 outputs, not 0 and 1"),
        ("y = mm(a,, a) by R; R -> S(0),S(0)", "the strategy of mm, y"),
        ("y = sum(a)\ngradient y wrt", "has no values after `wrt`"),
        ("y: S(0) on other = relu(a) by R -> R", "no strategy `R -> R` here; it runs on other"),
    ] {
        let text = format!("mesh x=2\nmesh other: y=2\na: f32[8,8] R\n{line}\n");
        let error = text
            .parse::<Graph>()
            .and_then(|graph| ShardingSolver::new().solve(&graph))
            .map(|_| ())
            .unwrap_err();
        assert!(
            error.to_string().contains(says) && error.to_string().lines().count() == 1,
            "{line}: {error}"
        );
    }
    let long = format!("mesh x=2\n{}: f32[8] R\n", "n".repeat(70_000));
    let error = long.parse::<Graph>().unwrap_err().to_string();
    assert!(error.contains("has 70000 characters") && error.len() < 200, "{error}");
}
