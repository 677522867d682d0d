//! Reductions and losses.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let (two, three) = ("6,6; 4,5; 2,3; 1,4", "6,5,6; 4,3,2");
    let (real, nonzero) = (Data::Real, Data::Mask { ones: 60 });
    // Over all dims, over one, and over two with `keepdim`.
    for (calls, data) in [
        (["sum", "sum(dims=[1])", "sum(dims=[0,2],keepdim=true)"], Data::Integers),
        (["mean", "mean(dims=[1])", "mean(dims=[0,2],keepdim=true)"], Data::Integers),
        (["amax", "amax(dims=[1])", "amax(dims=[0,2],keepdim=true)"], real),
        (["amin", "amin(dims=[1])", "amin(dims=[0,2],keepdim=true)"], real),
        (["var", "var(dims=[1])", "var(dims=[0,2],keepdim=true)"], real),
        (["std", "std(dims=[1])", "std(dims=[0,2],keepdim=true)"], real),
        (["logsumexp", "logsumexp(dims=[1])", "logsumexp(dims=[0,2],keepdim=true)"], real),
        (["count_nonzero", "count_nonzero(dims=[1])", "count_nonzero(dims=[0,2],keepdim=true)"], nonzero),
        (["norm", "norm(dims=[1])", "norm(dims=[0,2],keepdim=true)"], real),
        (["norm(p=1)", "norm(p=1,dims=[1])", "norm(p=1,dims=[0,2],keepdim=true)"], real),
        (["norm(p=inf)", "norm(p=inf,dims=[1])", "norm(p=inf,dims=[0,2],keepdim=true)"], real),
        (["norm(p=3)", "norm(p=3,dims=[1])", "norm(p=3,dims=[0,2],keepdim=true)"], real),
        (["norm(p=-inf)", "norm(p=-inf,dims=[1])", "norm(p=-inf,dims=[0,2],keepdim=true)"], real),
        (["norm(p=-1)", "norm(p=-1,dims=[1])", "norm(p=-1,dims=[0,2],keepdim=true)"], Data::Positive),
        (["norm(p=0)", "norm(p=0,dims=[1])", "norm(p=0,dims=[0,2],keepdim=true)"], nonzero),
    ] {
        for (call, shapes) in calls.into_iter().zip([two, two, three]) {
            out.push(example(call, shapes).data(&[data]).near());
        }
    }
    for call in [
        "linalg_vector_norm(p=2.5)",
        "linalg_vector_norm(p=0.5)",
        "linalg_vector_norm",
        "var(correction=0)",
        "std(dims=[1],correction=0)",
    ] {
        out.push(example(call, two).data(&[real]).near());
    }
    let small = Data::Made(|shape, r| {
        let of = |v: f64| match v {
            v if v < -6.0 => -2.0,
            v if v < 0.0 => -1.0,
            v if v < 4.0 => 1.5,
            _ => 1.0,
        };
        Data::Integers.whole(shape, r).into_iter().map(of).collect()
    });
    out.push(example("prod", "6,2; 4,3; 2,3").data(&[small]).near());
    out.push(example("prod(dims=[1])", two).data(&[small]).near());
    for (calls, ones) in [(["any", "any(dims=[1])"], 3), (["all", "all(dims=[1])"], 97)] {
        for (call, shapes) in calls.into_iter().zip(["6,2; 4,2; 2,3", two]) {
            out.push(example(call, shapes).data(&[Data::Mask { ones }]));
        }
    }
    for call in [
        "argmax(dim=1)",
        "argmin(dim=1)",
        "argmax",
        "argmin",
        "max(dim=0)",
        "min(dim=0,keepdim=true)",
        "median(dim=1)",
    ] {
        out.push(example(call, "6,6; 4,5").data(&[Data::Distinct]));
    }
    out.push(example("max", "6,6; 4,5").data(&[real]));
    out.push(example("median", "6,6; 4,5").data(&[real]));
    let chance = Data::Made(|s, r| Data::Real.whole(s, r).into_iter().map(|v| (v + 3.5) / 7.0).collect());
    let (mask, both) = (Data::Mask { ones: 50 }, [real; 2]);
    for (call, data) in [
        ("mse_loss", both),
        ("mse_loss(reduction=sum)", both),
        ("mse_loss(reduction=none)", both),
        ("l1_loss", both),
        ("l1_loss(reduction=sum)", both),
        ("l1_loss(reduction=none)", both),
        ("smooth_l1_loss", both),
        ("smooth_l1_loss(reduction=sum,beta=0.5)", both),
        ("smooth_l1_loss(reduction=none)", both),
        ("binary_cross_entropy_with_logits", [real, mask]),
        ("binary_cross_entropy_with_logits(reduction=sum)", [real, mask]),
        ("binary_cross_entropy_with_logits(reduction=none)", [real, mask]),
        ("binary_cross_entropy", [chance, mask]),
        ("binary_cross_entropy(reduction=sum)", [chance, mask]),
        ("binary_cross_entropy(reduction=none)", [chance, mask]),
        ("kl_div", [real, Data::Positive]),
        ("kl_div(reduction=sum)", [real, Data::Positive]),
        ("kl_div(reduction=none)", [real, Data::Positive]),
        ("kl_div(reduction=sum,log_target=true)", both),
    ] {
        out.push(example(call, "6,6 6,6; 5,4 5,4").data(&data).near());
    }
    for call in [
        "cross_entropy",
        "cross_entropy(reduction=sum)",
        "cross_entropy(reduction=none)",
        "cross_entropy(label_smoothing=0.25)",
        "cross_entropy(ignore_index=2)",
        "cross_entropy(reduction=sum,ignore_index=2,label_smoothing=0.5)",
        "nll_loss",
        "nll_loss(reduction=sum)",
        "nll_loss(reduction=none)",
        "nll_loss(ignore_index=2)",
        "nll_loss(reduction=sum,ignore_index=2)",
    ] {
        out.push(example(call, "6,5 6; 4,6 4").data(&[real, Data::Index { below: 5 }]).near());
    }
    out
}
