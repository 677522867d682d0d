//! Indexing, in which a rank leaves out the elements that it does not hold.

use reshard_verify::{Data, Random};

use super::{Example, example};

/// Different indices below 5 along the last dim.
pub fn different(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let (&k, outer) = shape.split_last().expect("a dim");
    let lines: usize = outer.iter().product();
    (0..lines)
        .flat_map(|_| r.permutation(5).into_iter().take(k).map(|i| i as f64).collect::<Vec<_>>())
        .collect()
}

/// The same along the first dim.
fn different_rows(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let columns: Vec<Vec<usize>> = (0..shape[1]).map(|_| r.permutation(5)).collect();
    (0..shape[0]).flat_map(|i| columns.iter().map(move |c| c[i] as f64)).collect()
}

fn sorted(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let mut v = Data::Real.whole(shape, r);
    v.sort_by(f64::total_cmp);
    v
}

pub fn all() -> Vec<Example> {
    let (int, five, apart) = (Data::Integers, Data::Index { below: 5 }, Data::Made(different));
    let mut out = vec![example("embedding_bag(mode=mean)", "6,5 6,6; 5,6 4,3").data(&[int, five]).near()];
    for (call, shapes) in [
        ("embedding", "6,5 6,4; 5,6 3,6"),
        ("embedding_bag", "6,5 6,6; 5,6 4,3"),
        ("gather(dim=1)", "6,5 6,4; 4,6 4,6"),
        ("gather(dim=1)", "6,6 4,6; 5,5 3,4"),
        ("take_along_dim(dim=0)", "6,5 4,5; 5,6 6,6"),
        ("index_select(dim=0)", "6,5 4; 5,6 6"),
        ("index_select(dim=1)", "6,5 4; 5,6 6"),
    ] {
        out.push(example(call, shapes).data(&[int, five]));
    }
    for (call, shapes, index) in [
        ("scatter(dim=1)", "6,6 6,3 6,3; 4,5 4,4 4,4", apart),
        ("scatter(dim=0)", "6,6 3,6 3,6; 5,4 4,4 4,4", Data::Made(different_rows)),
        ("scatter_add(dim=1)", "6,6 6,3 6,3; 4,5 4,6 4,6", five),
        ("scatter_amax(dim=1)", "6,6 6,3 6,3; 4,5 4,6 4,6", five),
        ("index_copy(dim=0)", "6,6 3 3,6; 5,4 4 4,4", apart),
        ("index_add(dim=0)", "6,6 3 3,6; 5,4 6 6,4", five),
        ("index_add(dim=1)", "6,6 3 6,3; 4,5 6 4,6", five),
        ("index_put", "6,6 3 3,6; 5,4 4 4,4", apart),
        ("index_put(accumulate=true)", "6,6 3 3,6; 5,4 6 6,4", five),
    ] {
        out.push(example(call, shapes).data(&[int, index, int]));
    }
    out.push(example("one_hot(classes=6)", "6; 4").data(&[five]).wants());
    out.push(example("bincount(classes=6)", "6; 5").data(&[five]).wants());
    out.push(example("searchsorted", "6 4,6; 5 6,3").data(&[Data::Made(sorted), Data::Real]));
    out.push(example("bucketize", "4,6 6; 6,3 5").data(&[Data::Real, Data::Made(sorted)]));
    out.push(example("isin", "4,6 6; 6,3 5"));
    out
}
