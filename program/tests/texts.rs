//! The text of an elaborated program is read as that program.

use reshard_program::{Elaborator, Graph, Program};

/// The program of a text, whose own text is read back.
fn read_back(text: &str) -> Program {
    let program = Elaborator::new().elaborate(&text.parse::<Graph>().unwrap()).unwrap();
    let again: Program = program.to_string().parse().unwrap_or_else(|e| panic!("{program}\n{e}"));
    assert_eq!(again.to_string(), program.to_string());
    program
}

#[test]
fn what_nobody_names_gets_no_name_that_somebody_gives() {
    // A mean is taken apart before v.3 is made; d.2 is one of the first names of a gradient, x.1 of a moved x.
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
    assert_eq!(program.moves().filter(|m| m.forward.received_bytes() > 0).count(), 0);
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
