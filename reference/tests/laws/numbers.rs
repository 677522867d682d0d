//! Every number that an op declares affects its result.

use ndarray::{ArrayD, IxDyn};
use reshard_ops::rules::{Argument, DefaultValue, OpCall, OpTable, ParameterKind};
use reshard_reference::run;

/// Calls of ops that declare numbers, and of some of every other class, with shapes that fit.
#[rustfmt::skip]
pub(crate) const CALLS: &[(&str, &[&[usize]])] = &[
    ("add_scalar(value=3)", &[&[4, 6]]), ("sub_scalar(value=3)", &[&[4, 6]]), ("rsub_scalar(value=3)", &[&[4, 6]]),
    ("mul_scalar(value=3)", &[&[4, 6]]), ("div_scalar(value=3)", &[&[4, 6]]), ("pow_scalar(exponent=2)", &[&[4, 6]]),
    ("full_like(fill_value=3)", &[&[4, 6]]), ("leaky_relu", &[&[4, 6]]), ("elu", &[&[4, 6]]), ("celu", &[&[4, 6]]),
    ("gelu", &[&[4, 6]]), ("softplus(beta=40)", &[&[4, 6]]), ("threshold(threshold=0.1,value=7)", &[&[4, 6]]),
    ("hardtanh(min_val=-0.3,max_val=0.3)", &[&[4, 6]]), ("hardshrink", &[&[4, 6]]), ("softshrink", &[&[4, 6]]),
    ("clamp(min=-0.3,max=0.3)", &[&[4, 6]]), ("clamp_min(min=-0.3)", &[&[4, 6]]), ("clamp_max(max=0.3)", &[&[4, 6]]),
    ("nan_to_num", &[&[4, 6]]), ("isclose(rtol=0.01,atol=0.01)", &[&[4, 6], &[4, 6]]), ("logit(eps=0.1)", &[&[4, 6]]),
    ("addcmul", &[&[4, 6], &[4, 6], &[4, 6]]), ("addcdiv", &[&[4, 6], &[4, 6], &[4, 6]]), ("sgd", &[&[4, 6], &[4, 6]]),
    ("sgd_momentum(momentum=0.5)", &[&[4, 6], &[4, 6], &[4, 6]]), ("adam(step=2)", &[&[4], &[4], &[4], &[4]]),
    ("adamw(step=2)", &[&[4], &[4], &[4], &[4]]), ("adam_amsgrad(step=2)", &[&[4], &[4], &[4], &[4], &[4]]),
    ("nadam", &[&[4], &[4], &[4], &[4]]), ("radam(step=9)", &[&[4], &[4], &[4], &[4]]), ("adamax", &[&[4], &[4], &[4], &[4]]),
    ("adagrad", &[&[4], &[4], &[4]]), ("rmsprop", &[&[4], &[4], &[4]]), ("adadelta", &[&[4], &[4], &[4], &[4]]),
    ("rprop(min_step=0.2,max_step=0.4)", &[&[24], &[24], &[24], &[24]]), ("lion(lr=0.5)", &[&[24], &[24], &[24]]),
    ("scale_by_norm(max_norm=0.1)", &[&[4, 6], &[]]), ("dropout", &[&[4, 6]]), ("native_dropout", &[&[4, 6]]),
    ("alpha_dropout", &[&[4, 6]]), ("feature_dropout", &[&[4, 6, 2]]), ("feature_alpha_dropout", &[&[4, 6, 2]]),
    ("rrelu", &[&[4, 6]]), ("uniform", &[&[4, 6]]), ("exponential", &[&[4, 6]]), ("geometric(p=0.5)", &[&[4, 6]]),
    ("log_normal", &[&[4, 6]]), ("cauchy", &[&[4, 6]]), ("normalize(eps=0.1)", &[&[4, 6]]), ("clip_by_norm(max_norm=0.1)", &[&[4, 6]]),
    ("layer_norm", &[&[4, 6], &[6], &[6]]), ("native_layer_norm", &[&[4, 6], &[6], &[6]]), ("rms_norm(eps=0.1)", &[&[4, 6], &[6]]),
    ("fused_rms_norm(eps=0.1)", &[&[4, 6], &[6]]), ("group_norm(groups=3)", &[&[4, 6, 2]]), ("native_group_norm(groups=3)", &[&[4, 6, 2], &[6], &[6]]),
    ("batch_norm", &[&[4, 6, 2]]), ("batch_norm(training=false)", &[&[4, 6], &[6], &[6], &[6], &[6]]),
    ("native_batch_norm", &[&[4, 6, 2], &[6], &[6]]), ("instance_norm", &[&[4, 6, 2]]), ("addmm", &[&[4, 3], &[4, 6], &[6, 3]]),
    ("addmv", &[&[4], &[4, 6], &[6]]), ("addr", &[&[4, 6], &[4], &[6]]), ("baddbmm", &[&[2, 4, 3], &[2, 4, 6], &[2, 6, 3]]),
    ("addbmm", &[&[4, 3], &[2, 4, 6], &[2, 6, 3]]), ("full(shape=[2,3],fill_value=2)", &[]), ("arange(size=5)", &[]),
    ("pad(pads=[1,2])", &[&[4, 6]]), ("scaled_dot_product_attention(scale=0.5)", &[&[2, 4, 3, 2], &[2, 2, 5, 2], &[2, 2, 5, 3]]),
    ("scaled_dot_product_attention(causal=true)", &[&[2, 4, 3, 2], &[2, 2, 3, 2], &[2, 2, 3, 3], &[3, 3]]),
    ("smooth_l1_loss", &[&[4, 6], &[4, 6]]), ("huber_loss(delta=0.1)", &[&[4, 6], &[4, 6]]),
    ("cross_entropy(label_smoothing=0.1)", &[&[4, 6], &[4]]), ("nll_loss(ignore_index=2)", &[&[4, 6, 3], &[4, 3]]),
    ("kl_div(log_target=true)", &[&[4, 6], &[4, 6]]), ("hinge_embedding_loss", &[&[4, 6], &[4, 6]]),
    ("poisson_nll_loss(log_input=false)", &[&[4, 6], &[4, 6]]), ("gaussian_nll_loss(eps=0.6)", &[&[4, 6], &[4, 6], &[4, 6]]),
    ("margin_ranking_loss", &[&[4, 6], &[4, 6], &[4, 6]]), ("triplet_margin_loss", &[&[4, 6], &[4, 6], &[4, 6]]),
    ("cosine_embedding_loss(margin=-0.5)", &[&[4, 6], &[4, 6], &[4]]), ("multi_margin_loss", &[&[4, 6], &[4]]),
    ("pairwise_distance", &[&[4, 6], &[4, 6]]), ("cosine_similarity(eps=3)", &[&[4, 6], &[4, 6]]), ("renorm(dim=0,maxnorm=0.1)", &[&[4, 6]]),
    ("gumbel_softmax", &[&[4, 6]]), ("local_response_norm(size=3)", &[&[4, 6, 2]]), ("lp_pool1d(kernel=2)", &[&[4, 6, 6]]),
    ("lp_pool2d(kernel=2)", &[&[2, 3, 4, 6]]), ("lp_pool3d(kernel=2)", &[&[1, 2, 2, 4, 2]]), ("quantile(q=0.3)", &[&[4, 6]]),
    ("nanquantile(q=0.3)", &[&[4, 6]]), ("linspace(size=5,start=0,end=1)", &[]), ("logspace(size=5,start=0,end=1)", &[]),
    ("hamming_window(size=6)", &[]), ("kaiser_window(size=6)", &[]), ("fftfreq(size=6)", &[]), ("rfftfreq(size=6)", &[]),
    // Without numbers.
    ("mm", &[&[4, 6], &[6, 3]]), ("linear", &[&[2, 4, 6], &[3, 6], &[3]]), ("matmul", &[&[3, 1, 4, 6], &[2, 6, 3]]), ("matmul", &[&[6], &[2, 6, 3]]),
    ("matmul", &[&[4, 6], &[6]]), ("where", &[&[4, 6], &[6], &[4, 1]]), ("sum(dims=[0,2],keepdim=true)", &[&[4, 6, 2]]), ("max(dim=1)", &[&[4, 6]]),
    ("max", &[&[4, 6]]), ("softmax", &[&[4, 6]]), ("sort(dim=0)", &[&[4, 6]]), ("topk(k=2)", &[&[4, 6]]), ("cumsum", &[&[4, 6]]),
    ("embedding", &[&[7, 6], &[4, 3]]), ("gather(dim=1)", &[&[4, 6], &[4, 3]]), ("index_select(dim=1)", &[&[4, 6], &[3]]),
    ("scatter_add(dim=1)", &[&[4, 6], &[4, 3], &[4, 3]]), ("index_add(dim=1)", &[&[4, 6], &[3], &[4, 3]]), ("one_hot(classes=5)", &[&[4, 6]]),
    ("cat(dim=1)", &[&[4, 6], &[4, 2]]), ("stack", &[&[4, 6], &[4, 6]]), ("split(size=4,dim=1)", &[&[4, 6]]), ("chunk(chunks=4,dim=1)", &[&[4, 6]]),
    ("slice(dim=1,start=-5,step=2)", &[&[4, 6]]), ("narrow(dim=1,start=1,length=3)", &[&[4, 6]]), ("select(dim=1,index=-2)", &[&[4, 6]]),
    ("split_shards(parts=3,dim=1)", &[&[4, 6]]), ("join_shards(dim=1)", &[&[3, 4, 2]]),
    ("split_shards(parts=2,cut=counts,counts=[1,0,2,1],room=4)", &[&[4, 6]]), ("join_shards(cut=ragged,counts=[2,0,1])", &[&[3, 4, 2]]),
    ("roll", &[&[4, 6]]), ("flip", &[&[4, 6]]), ("view(shape=[3,-1])", &[&[4, 6]]), ("flatten", &[&[4, 6]]), ("unflatten(dim=1,sizes=[2,-1])", &[&[4, 6]]),
    ("permute(dims=[2,0,1])", &[&[4, 6, 2]]), ("expand(shape=[3,4,-1])", &[&[1, 6]]), ("squeeze", &[&[4, 1, 6]]), ("unsqueeze(dim=-1)", &[&[4, 6]]),
    ("repeat(times=[2,1,3])", &[&[4, 6]]), ("conv2d(stride=2,padding=1,dilation=2,groups=2)", &[&[2, 4, 5, 6], &[6, 2, 2, 3], &[6]]),
    ("conv_transpose2d(stride=2,padding=1,groups=2)", &[&[2, 4, 3, 2], &[4, 3, 2, 3], &[6]]), ("max_pool2d_with_indices(kernel=2)", &[&[2, 3, 4, 6]]),
    ("avg_pool2d(kernel=3,stride=1,padding=1)", &[&[2, 3, 4, 6]]), ("interpolate(size=[3,7],mode=cubic)", &[&[2, 3, 4, 6]]), ("rotary", &[&[2, 5, 4], &[5, 4], &[5, 4]]),
    ("mse_loss", &[&[4, 6], &[4, 6]]), ("tril_indices(rows=3,columns=4)", &[]), ("nextafter", &[&[4, 6], &[4, 6]]), ("tensordot(dims=1)", &[&[4, 6], &[6, 3]]),
    ("sum", &[&[0, 6]]), ("softmax", &[&[0, 6]]), ("cat", &[&[0, 6], &[2, 6]]), ("mm", &[&[4, 0], &[0, 3]]), ("layer_norm", &[&[0, 6], &[6], &[6]]),
];

/// An input of a call: numbers from -1 to 1, or the kind that the op requires.
pub(crate) fn input(call: &OpCall, i: usize, shape: &[usize]) -> ArrayD<f64> {
    let name = call.name().unwrap_or_default();
    let n: usize = shape.iter().product();
    let mixed = |e: usize| ((e * 7919 + i * 104_729 + 13) % 101) as f64 / 50.5 - 1.0;
    let index = |e: usize| ((e * 31 + 2) % 3) as f64;
    let of = |e: usize| match (name, i) {
        ("nan_to_num", 0) => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5][e % 4],
        ("logit" | "div" | "poisson_nll_loss", _) => f64::midpoint(mixed(e), 1.0),
        ("pow_scalar" | "renorm", 0) | ("addcdiv" | "gaussian_nll_loss", 2) => mixed(e).abs() + 0.25,
        ("adamax", 3) => 2.0,
        ("rprop", 3) => mixed(e).abs(),
        ("isclose", 1) => ((e * 7919 + 13) % 101) as f64 / 50.5 - 1.0 + 0.002 * e as f64,
        ("adam" | "adamw" | "nadam" | "radam" | "adam_amsgrad" | "adamax", 3 | 4)
        | ("adagrad" | "rmsprop", 2)
        | ("adadelta" | "rprop", 2 | 3)
        | ("batch_norm", 4)
        | ("scale_by_norm", 1) => {
            mixed(e).abs() * 0.01
                + 0.1
                    * f64::from(u8::from(name == "rprop" || name == "scale_by_norm" || name == "batch_norm"))
        }
        ("hinge_embedding_loss", 1) | ("margin_ranking_loss" | "cosine_embedding_loss", 2) => {
            if e.is_multiple_of(2) { 1.0 } else { -1.0 }
        }
        (
            "cross_entropy" | "nll_loss" | "multi_margin_loss" | "embedding" | "gather" | "index_select"
            | "scatter_add" | "index_add",
            1,
        )
        | ("one_hot", 0) => index(e),
        ("where", 0) => (e % 2) as f64,
        _ => mixed(e),
    };
    ArrayD::from_shape_vec(IxDyn(shape), (0..n).map(of).collect()).unwrap()
}

/// Each number is given two different values: the one of the call, and another.
#[test]
fn every_number_changes_a_result() {
    let table = OpTable::standard();
    let mut tried = std::collections::BTreeSet::new();
    for (text, shapes) in CALLS {
        let call: OpCall = text.parse().unwrap();
        let OpCall::Named { name, .. } = &call else { continue };
        let inputs: Vec<ArrayD<f64>> = shapes.iter().enumerate().map(|(i, s)| input(&call, i, s)).collect();
        for p in table.parameters(name).unwrap().iter() {
            let ParameterKind::Real { least } = p.kind() else { continue };
            // The value of the call, or the default, or some number.
            let now = match (call.argument(p.name()), p.default_value()) {
                (Some(value), _) | (None, DefaultValue::Value(value)) => value.to_string().parse().unwrap(),
                (None, _) => 0.5,
            };
            let said = |x: f64| {
                if x.fract() == 0.0 { Argument::Number(x as i64) } else { Argument::Word(x.to_string()) }
            };
            let base =
                format!("{:?}", run(&table, &call.clone().with(p.name(), said(now)), &inputs).unwrap());
            let others = [now + 0.25, now + 1.0, now * 0.5, now + 12.0, now - 1.0, now + 0.05];
            let differs = |x: &f64| {
                least.is_none_or(|least| *x >= least as f64)
                    && run(&table, &call.clone().with(p.name(), said(*x)), &inputs)
                        .is_ok_and(|made| format!("{made:?}") != base)
            };
            if others.iter().any(differs) {
                tried.insert(format!("{name}.{}", p.name()));
            }
        }
    }
    let mut lacking = Vec::new();
    for name in table.names() {
        for p in
            table.parameters(name).unwrap().iter().filter(|p| matches!(p.kind(), ParameterKind::Real { .. }))
        {
            if !tried.contains(&format!("{name}.{}", p.name())) {
                lacking.push(format!("{name}.{}", p.name()));
            }
        }
    }
    assert!(lacking.is_empty(), "no result changes: {lacking:?}");
    println!("{} numbers", tried.len());
}

/// Frequencies follow NumPy's documentation: those after the middle are negative.
#[test]
fn frequencies_are_cycles_per_unit_of_the_spacing() {
    let of = |call: &str| {
        let none: [ArrayD<f64>; 0] = [];
        run(&OpTable::standard(), &call.parse::<OpCall>().unwrap(), &none).unwrap()[0]
            .as_slice()
            .unwrap()
            .to_vec()
    };
    assert_eq!(of("fftfreq(size=5,d=0.5)"), [0.0, 0.4, 0.8, -0.8, -0.4]);
    assert_eq!(of("fftfreq(size=4,d=0.25)"), [0.0, 1.0, -2.0, -1.0]);
    assert_eq!(of("rfftfreq(size=5,d=0.5)"), [0.0, 0.4, 0.8]);
}
