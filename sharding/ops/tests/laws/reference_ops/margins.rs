//! Losses of pairs, margins and several classes, and of sequences.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let signs =
        Data::Made(|s, r| Data::Mask { ones: 50 }.whole(s, r).into_iter().map(|v| 2.0 * v - 1.0).collect());
    let (real, positive) = (Data::Real, Data::Positive);
    for (call, data) in [
        ("huber_loss", [real; 2]),
        ("huber_loss(reduction=sum,delta=0.5)", [real; 2]),
        ("huber_loss(reduction=none)", [real; 2]),
        ("soft_margin_loss", [real, signs]),
        ("soft_margin_loss(reduction=sum)", [real, signs]),
        ("soft_margin_loss(reduction=none)", [real, signs]),
        ("hinge_embedding_loss", [real, signs]),
        ("hinge_embedding_loss(reduction=sum,margin=0.5)", [real, signs]),
        ("hinge_embedding_loss(reduction=none)", [real, signs]),
        ("poisson_nll_loss", [real, positive]),
        ("poisson_nll_loss(reduction=sum,full=true)", [real, positive]),
        ("poisson_nll_loss(reduction=none,log_input=false,eps=0.5)", [positive, positive]),
    ] {
        out.push(example(call, "6,6 6,6; 5,4 5,4").data(&data).near());
    }
    for (call, data) in [
        ("gaussian_nll_loss", [real, real, positive]),
        ("gaussian_nll_loss(reduction=sum,full=true,eps=0.5)", [real, real, positive]),
        ("gaussian_nll_loss(reduction=none)", [real, real, positive]),
        ("margin_ranking_loss", [real, real, signs]),
        ("margin_ranking_loss(reduction=none,margin=1)", [real, real, signs]),
    ] {
        out.push(example(call, "6,6 6,6 6,6; 5,4 5,4 5,4").data(&data).near().budget(200));
    }
    let classes = Data::Index { below: 4 };
    let masks = Data::Mask { ones: 50 };
    let rows = "6,4 6,4; 4,5 4,5";
    let of_rows: &[(&'static str, &'static str, &[Data])] = &[
        ("triplet_margin_loss", "6,4 6,4 6,4; 4,3 4,3 4,3", &[real; 3]),
        (
            "triplet_margin_loss(reduction=none,margin=2,p=1.5,eps=0.25)",
            "6,4 6,4 6,4; 4,3 4,3 4,3",
            &[real; 3],
        ),
        ("cosine_embedding_loss", "6,4 6,4 6; 4,3 4,3 4", &[real, real, signs]),
        ("cosine_embedding_loss(reduction=none,margin=0.25)", "6,4 6,4 6; 4,3 4,3 4", &[real, real, signs]),
        ("multi_margin_loss", "6,4 6; 4,5 4", &[real, classes]),
        ("multi_margin_loss(reduction=none,p=2,margin=0.5)", "6,4 6; 4,5 4", &[real, classes]),
        ("multilabel_margin_loss", rows, &[real, masks]),
        ("multilabel_margin_loss(reduction=none)", rows, &[real, masks]),
        ("multilabel_soft_margin_loss", rows, &[real, masks]),
        ("multilabel_soft_margin_loss(reduction=none)", rows, &[real, masks]),
    ];
    for &(call, shapes, data) in of_rows {
        out.push(example(call, shapes).data(data).near().budget(200));
    }
    // Sequences of 3 or 4 inputs and of 1 or 2 targets, of two classes and the blank.
    let three =
        Data::Made(|s, r| Data::Index { below: 2 }.whole(s, r).into_iter().map(|v| v + 3.0).collect());
    let one = Data::Made(|s, r| Data::Index { below: 2 }.whole(s, r).into_iter().map(|v| v + 1.0).collect());
    for call in ["ctc_loss", "ctc_loss(reduction=none)"] {
        out.push(
            example(call, "4,6,3 6,2 6 6; 4,4,3 4,2 4 4").data(&[real, one, three, one]).near().budget(100),
        );
    }
    // A class for each point of space.
    for call in [
        "cross_entropy",
        "cross_entropy(reduction=none)",
        "cross_entropy(ignore_index=1)",
        "nll_loss",
        "nll_loss(reduction=none)",
        "nll_loss(ignore_index=1)",
    ] {
        out.push(example(call, "6,4,2 6,2; 4,6,3 4,3").data(&[real, classes]).near().budget(200));
        // And a weight for each.
        let weighted = example(call, "6,4,2 6,2 4; 4,6,3 4,3 6").data(&[real, classes, positive]);
        out.push(weighted.near().budget(200));
    }
    out
}
