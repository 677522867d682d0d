//! Cells of recurrent networks, and products of scaled and grouped matrices.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let rnn = "6,4 6,6 6,4 6,6 6 6; 2,3 2,5 5,3 5,5 5 5";
    for (call, shapes) in [
        ("rnn_tanh_cell", rnn),
        ("rnn_relu_cell", rnn),
        ("lstm_cell", "6,2 6,6 6,6 24,2 24,6 24 24; 2,3 2,5 2,5 20,3 20,5 20 20"),
        ("gru_cell", "6,2 6,6 18,2 18,6 18 18; 2,3 2,5 15,3 15,5 15 15"),
    ] {
        let n = shapes.split(';').next().unwrap().split_whitespace().count();
        out.push(example(call, shapes).data(&[Data::Real; 7][..n]).near().budget(60));
    }
    let sometimes_infinite = Data::Made(|s, r| {
        let odd = r.below(2) == 0;
        let list = Data::Integers.whole(s, r).into_iter();
        list.map(|v| if odd && v > 8.0 { f64::INFINITY } else { v }).collect()
    });
    let found = Data::Mask { ones: 30 };
    out.push(example("check_and_unscale", "6,5 () (); 2,3 () ()").data(&[
        sometimes_infinite,
        found,
        Data::Positive,
    ]));
    let (int, positive) = (Data::Integers, Data::Positive);
    for shapes in ["6,5 5,4 () (); 3,6 6,6 () ()", "6,5 5,4 6,1 1,4; 3,6 6,6 3,1 1,6"] {
        out.push(example("scaled_mm", shapes).data(&[int, int, positive, positive]).near().budget(200));
    }
    // Rows up to the first end belong to the first group, and so on.
    let ends = Data::Made(|s, r| {
        let mut list: Vec<f64> = (0..s[0]).map(|_| r.below(6) as f64).collect();
        list.sort_by(f64::total_cmp);
        list
    });
    out.push(example("grouped_mm", "6,5 6,5,4 6; 5,6 3,6,6 3").data(&[int, int, ends]).budget(200));
    out
}
