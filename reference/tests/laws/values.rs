//! Values by hand.
#![expect(clippy::float_cmp, reason = "infinite ones")]

use ndarray::{ArrayD, IxDyn};
use reshard_ops::rules::OpTable;
use reshard_reference::run;

/// A shape and its numbers.
type Given<'a> = (&'a [usize], &'a [f64]);

fn check(call: &str, inputs: &[Given<'_>], wants: &[f64]) {
    let inputs: Vec<ArrayD<f64>> =
        inputs.iter().map(|(s, v)| ArrayD::from_shape_vec(IxDyn(s), v.to_vec()).unwrap()).collect();
    let made = run(&OpTable::standard(), &call.parse().unwrap(), &inputs).unwrap().remove(0);
    let near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() < 1e-9 || (a.is_nan() && b.is_nan());
    assert!(
        made.len() == wants.len() && made.iter().zip(wants).all(near),
        "{call}: {made} and not {wants:?}"
    );
}

#[test]
fn casts_to_integers_are_towards_zero_and_modulo_their_range() {
    let numbers: (&[usize], &[f64]) = (&[6], &[-2.7, -0.5, 0.0, 1.0, 300.5, 70_000.0]);
    check("cast(dtype=i64)", &[numbers], &[-2.0, 0.0, 0.0, 1.0, 300.0, 70_000.0]);
    check("cast(dtype=i16)", &[numbers], &[-2.0, 0.0, 0.0, 1.0, 300.0, 4_464.0]);
    check("cast(dtype=i8)", &[numbers], &[-2.0, 0.0, 0.0, 1.0, 44.0, 112.0]);
    check("cast(dtype=u8)", &[numbers], &[254.0, 0.0, 0.0, 1.0, 44.0, 112.0]);
    check("cast(dtype=bool)", &[numbers], &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    check("cast", &[numbers], numbers.1);
    let table = OpTable::standard();
    let of = |call: &str| table.gradient(&call.parse().unwrap(), &[&[4]]).unwrap();
    assert_eq!(of("cast(dtype=i32)").input_gradients(), [None]);
    assert_eq!(of("cast(dtype=bf16)").input_gradients(), [Some(0)]);
    // Partial sums of numbers are not the partial sums of integers or booleans.
    let rule = |call: &str| {
        table.op(&call.parse().unwrap(), &[&[4]]).unwrap().rule().map(ToString::to_string).unwrap_or_default()
    };
    let (integers, floats) = (rule("cast(dtype=i32)"), rule("cast(dtype=f64)"));
    assert!(!integers.contains("selecting") && floats.contains("selecting"), "{integers} {floats}");
}

#[test]
fn ops_have_the_values_of_their_formulas() {
    let three: (&[usize], &[f64]) = (&[3], &[-1.0, 0.0, 2.0]);
    check("leaky_relu", &[three], &[-0.01, 0.0, 2.0]);
    check(
        "softplus(beta=2)",
        &[three],
        &[0.126_928_011_042_972_5 / 2.0, 0.5 * 2f64.ln(), 4.018_149_927_917_81 / 2.0],
    );
    check("clamp(min=-0.5,max=1)", &[three], &[-0.5, 0.0, 1.0]);
    check("rsub_scalar(value=3)", &[three], &[4.0, 3.0, 1.0]);
    check("remainder", &[three, (&[], &[1.5])], &[0.5, 0.0, 0.5]);
    check("round", &[(&[4], &[0.5, 1.5, -2.5, 2.4])], &[0.0, 2.0, -2.0, 2.0]);
    check("round(decimals=1)", &[(&[2], &[0.26, -1.25])], &[0.3, -1.2]);
    check("var", &[three], &[7.0 / 3.0]);
    check("var(correction=0)", &[three], &[14.0 / 9.0]);
    check("logsumexp", &[(&[2], &[1000.0, 1000.0])], &[1000.0 + 2f64.ln()]);
    check("softmax", &[(&[2], &[1000.0, 1000.0])], &[0.5, 0.5]);
    // Rows and their classes.
    let logits: (&[usize], &[f64]) = (&[2, 2], &[0.0, 0.0, 3f64.ln(), 0.0]);
    let (half, three_quarters) = (2f64.ln(), (4f64 / 3.0).ln());
    check("cross_entropy", &[logits, (&[2], &[1.0, 0.0])], &[0.5 * (half + three_quarters)]);
    check("cross_entropy(ignore_index=1)", &[logits, (&[2], &[1.0, 0.0])], &[three_quarters]);
    check(
        "cross_entropy(reduction=none,label_smoothing=0.5)",
        &[logits, (&[2], &[1.0, 0.0])],
        &[half, 0.5 * three_quarters + 0.25 * (three_quarters + 4f64.ln())],
    );
    // One head, of width 4: the scale is a half.
    let row: (&[usize], &[f64]) = (&[1, 1, 1, 4], &[2.0, 0.0, 0.0, 0.0]);
    let keys: (&[usize], &[f64]) = (&[1, 1, 2, 4], &[3f64.ln(), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let values: (&[usize], &[f64]) = (&[1, 1, 2, 1], &[4.0, 8.0]);
    check("scaled_dot_product_attention", &[row, keys, values], &[5.0]);
    check("scaled_dot_product_attention(causal=true)", &[row, keys, values], &[4.0]);
    check("scaled_dot_product_attention(scale=0)", &[row, keys, values], &[6.0]);
    // One step of Adam changes the parameter by the rate, whatever the gradient, if the bias is corrected.
    let (p, g, zero): (Given<'_>, Given<'_>, Given<'_>) = ((&[1], &[1.0]), (&[1], &[1e-3]), (&[1], &[0.0]));
    check("adam(lr=0.25,eps=0,step=1)", &[p, g, zero, zero], &[0.75]);
    check("adamw(lr=0.25,eps=0,step=1,weight_decay=0.5)", &[p, g, zero, zero], &[0.625]);
    check("sgd_momentum(lr=0.5,momentum=0.5)", &[p, (&[1], &[1.0]), (&[1], &[2.0])], &[0.0]);
    check("layer_norm(eps=0)", &[(&[2], &[1.0, 3.0])], &[-1.0, 1.0]);
    check("rms_norm(eps=7)", &[(&[2], &[3.0, 3.0])], &[0.75, 0.75]);
    check("group_norm(groups=2,eps=0)", &[(&[1, 4], &[1.0, 3.0, 10.0, 30.0])], &[-1.0, 1.0, -1.0, 1.0]);
    check(
        "conv1d(padding=1)",
        &[(&[1, 1, 3], &[1.0, 2.0, 3.0]), (&[1, 1, 3], &[1.0, 0.0, -1.0])],
        &[-2.0, -2.0, 2.0],
    );
    check(
        "conv_transpose1d(stride=2)",
        &[(&[1, 1, 2], &[1.0, 2.0]), (&[1, 1, 2], &[3.0, 4.0])],
        &[3.0, 4.0, 6.0, 8.0],
    );
    check("avg_pool1d(kernel=2,stride=2,padding=1)", &[(&[1, 1, 2], &[4.0, 8.0])], &[2.0, 4.0]);
    check("roll(shifts=1)", &[(&[2, 2], &[1.0, 2.0, 3.0, 4.0])], &[4.0, 1.0, 2.0, 3.0]);
    check("rot90", &[(&[2, 2], &[0.0, 1.0, 2.0, 3.0])], &[1.0, 3.0, 0.0, 2.0]);
    check("pad(pads=[2,1],mode=reflect)", &[(&[3], &[1.0, 2.0, 3.0])], &[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    check(
        "view(shape=[3,-1])",
        &[(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])],
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    );
    check(
        "scatter(dim=1)",
        &[(&[1, 3], &[0.0; 3]), (&[1, 2], &[2.0, 0.0]), (&[1, 2], &[5.0, 6.0])],
        &[6.0, 0.0, 5.0],
    );
    check("interpolate(size=4,mode=linear)", &[(&[1, 1, 2], &[0.0, 4.0])], &[0.0, 1.0, 3.0, 4.0]);
    check(
        "interpolate(size=3,mode=linear,align_corners=true)",
        &[(&[1, 1, 2], &[0.0, 4.0])],
        &[0.0, 2.0, 4.0],
    );
    check("matmul", &[(&[2], &[1.0, 2.0]), (&[2, 2, 1], &[1.0, 1.0, 3.0, 4.0])], &[3.0, 11.0]);
    check("topk(k=2,largest=false)", &[three], &[-1.0, 0.0]);
    check("arange(size=3,start=1,step=-0.5)", &[], &[1.0, 0.5, 0.0]);
}
