//! Losses of pairs, margins and several classes, and of sequences.

use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, defined, example, make, x};

/// What is done with the losses: the mean, the sum, or nothing.
fn reduced(e: &A, how: usize) -> Vec<A> {
    let n = e.len() as f64;
    vec![match how {
        0 => make(&[], |_| e.iter().sum::<f64>() / n),
        1 => make(&[], |_| e.iter().sum()),
        _ => e.clone(),
    }]
}

/// The probability of a sequence of targets, with blanks of class 0 between, over all alignments.
fn aligned(logs: &A, b: usize, targets: &[usize], length: usize) -> f64 {
    let with_blanks: Vec<usize> = std::iter::once(0).chain(targets.iter().flat_map(|&t| [t, 0])).collect();
    let n = with_blanks.len();
    let p = |t: usize, s: usize| logs[[t, b, with_blanks[s]]].exp();
    let mut alpha = vec![0.0; n];
    for t in 0..length {
        let before = alpha.clone();
        for s in 0..n {
            let skips = s > 1 && with_blanks[s] != 0 && with_blanks[s] != with_blanks[s - 2];
            let from = if t == 0 {
                f64::from(u8::from(s < 2))
            } else {
                before[s] + if s > 0 { before[s - 1] } else { 0.0 } + if skips { before[s - 2] } else { 0.0 }
            };
            alpha[s] = from * p(t, s);
        }
    }
    -(alpha[n - 1] + alpha[n.max(2) - 2]).ln()
}

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
    let ctc = |how: usize| {
        move |l: &LocalView<'_>| {
            let (logs, targets, lengths, of_targets) = (x(l, 0), x(l, 1), x(l, 2), x(l, 3));
            let b = targets.shape()[0];
            assert!(logs.shape()[1] == b && lengths.len() == b && of_targets.len() == b);
            let losses = make(&[b], |i| {
                let n = of_targets[i] as usize + 1;
                let list: Vec<usize> = (0..n).map(|s| targets[[i[0], s]] as usize + 1).collect();
                let loss = aligned(&logs, i[0], &list, lengths[i] as usize + 3);
                if how == 0 { loss / n as f64 } else { loss }
            });
            reduced(&losses, how)
        }
    };
    for (call, how) in [("ctc_loss", 0), ("ctc_loss(reduction=none)", 2)] {
        // The shortest sequence of inputs is 3, of targets 1.
        let data = [Data::Real, Data::Index { below: 2 }, Data::Index { below: 2 }, Data::Index { below: 2 }];
        out.push(defined(call, "4,6,3 6,2 6 6; 4,4,3 4,2 4 4", ctc(how)).data(&data).near().budget(100));
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
    }
    out
}
