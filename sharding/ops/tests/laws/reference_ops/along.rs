//! Ops along a dim in which every element depends on all others.

use reshard_verify::{Data, LocalView};

use super::{Example, example};

/// The number of groups of two channels each.
pub fn in_pairs(l: &LocalView<'_>) -> usize {
    (l.inputs[0].shape[1] / 2).max(1)
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    for call in [
        "softmax(dim=1)",
        "log_softmax(dim=1)",
        "cumsum(dim=1)",
        "cumprod(dim=1)",
        "cummax(dim=1)",
        "cummin(dim=1)",
        "logcumsumexp(dim=1)",
        "normalize(dim=1)",
        "normalize(dim=1,p=1.5)",
        "normalize(dim=1,eps=2.5)",
    ] {
        out.push(example(call, "6,6; 4,5; 2,3; 1,4").data(&[Data::Real]).near());
    }
    for call in
        ["sort(dim=0)", "sort(dim=0,descending=true)", "argsort(dim=0)", "argsort(dim=0,descending=true)"]
    {
        out.push(example(call, "6,6; 5,4").data(&[Data::Distinct]));
    }
    for call in ["topk(k=2,dim=1)", "topk(k=2,dim=1,largest=false)"] {
        out.push(example(call, "6,6; 4,5").data(&[Data::Distinct]));
    }
    // Each of three values twice.
    let twice = Data::Made(|shape, r| {
        let n: usize = shape.iter().product();
        let three: Vec<f64> = r.permutation(9).into_iter().take(3).map(|v| v as f64).collect();
        r.permutation(n).into_iter().map(|i| three[i % 3]).collect()
    });
    out.push(example("unique(count=3)", "6; 9").data(&[twice]));
    // Three runs.
    let runs = Data::Made(|s, r| {
        let values = r.permutation(9);
        (0..s[0]).map(|i| values[3 * i / s[0]] as f64).collect()
    });
    out.push(example("unique_consecutive(count=3)", "6; 9").data(&[runs]));
    for call in ["clip_by_norm(max_norm=2)", "clip_by_norm(max_norm=0.5,eps=0.25)"] {
        out.push(example(call, "6,5; 4,3").data(&[Data::Real]).near());
    }
    let real = [Data::Real; 3];
    let (two, three) = ("6,6 6; 5,4 4", "6,6 6 6; 5,4 4 4");
    let channels = "6,6,2 6 6; 5,4,3 4 4";
    for (call, shapes) in [
        ("layer_norm", three),
        ("layer_norm(eps=0.5)", three),
        ("native_layer_norm", three),
        ("native_layer_norm(eps=0.5)", three),
        ("rms_norm", two),
        ("rms_norm(eps=0.5)", two),
        ("layer_norm(last=2)", "6,2,3; 5,3,2"),
        ("batch_norm", channels),
        ("batch_norm(eps=0.5)", channels),
        ("instance_norm", "6,6,3 6 6; 5,4,4 4 4"),
        ("instance_norm(eps=0.5)", "6,6,3 6 6; 5,4,4 4 4"),
    ] {
        let inputs = shapes.split(';').next().unwrap().split_whitespace().count();
        out.push(example(call, shapes).data(&real[..inputs]).near());
    }
    for (call, shapes) in [
        ("group_norm(groups=6)", "6,12,2 12 12; 5,12,3 12 12"),
        ("group_norm(groups=6,eps=0.5)", "6,12,2 12 12; 5,12,3 12 12"),
        ("group_norm(groups=3)", "4,6,2 6 6"),
    ] {
        let local = |l: &LocalView<'_>| format!("group_norm(groups={})", in_pairs(l));
        let with_eps = |l: &LocalView<'_>| format!("group_norm(groups={},eps=0.5)", in_pairs(l));
        let e = example(call, shapes).data(&real).near();
        out.push(e.locally(if call.contains("eps") { with_eps } else { local }));
    }
    for call in ["batch_norm(training=false)", "batch_norm(training=false,eps=0.5)"] {
        out.push(
            example(call, "6,6,2 6 6 6 6; 5,4,3 4 4 4 4")
                .data(&[Data::Real, Data::Real, Data::Real, Data::Real, Data::Positive])
                .near(),
        );
    }
    out
}
