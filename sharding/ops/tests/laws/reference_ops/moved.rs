//! Dims and elements in other places, and halves of a dim.

use reshard_ops::rules::verify::{Data, LocalView};

use super::shapes::{cut, from};
use super::{A, Example, example, lines, make, noise, x, zip};

fn softmax(v: &[f64]) -> Vec<f64> {
    let s: f64 = v.iter().map(|x| x.exp()).sum();
    v.iter().map(|x| x.exp() / s).collect()
}

pub fn all() -> Vec<Example> {
    let two = "6,6; 4,5; 2,3";
    vec![
        example("movedim(source=[0],destination=[2])", "6,5,2; 3,4,6", |l| {
            vec![x(l, 0).permuted_axes(vec![1, 2, 0])]
        }),
        example("rot90", "3,4,6; 2,5,3", |l| {
            let a = x(l, 0);
            let (rows, columns) = (a.shape()[0], a.shape()[1]);
            vec![make(&[columns, rows, a.shape()[2]], |i| a[[i[1], columns - 1 - i[0], i[2]]])]
        }),
        example("rot90(times=2,dims=[1,2])", "6,4,3; 2,5,3", |l| {
            let a = x(l, 0);
            let (rows, columns) = (a.shape()[1], a.shape()[2]);
            vec![make(a.shape(), |i| a[[i[0], rows - 1 - i[1], columns - 1 - i[2]]])]
        }),
        example("tile(times=[6])", "6,4; 4,3", |l| {
            let columns = l.places[0].whole[1];
            from(l, move |i| vec![i[0], i[1] % columns])
        })
        .wants(),
        example("tensor_split(sections=2,dim=1)", "6,5; 4,3", |l| {
            let a = x(l, 0);
            let n = a.shape()[1];
            vec![cut(&a, 1, 0, n.div_ceil(2)), cut(&a, 1, n.div_ceil(2), n)]
        }),
        example("tensor_split(indices=[1,3],dim=1)", "6,5; 4,4", |l| {
            let a = x(l, 0);
            let n = a.shape()[1];
            vec![cut(&a, 1, 0, 1), cut(&a, 1, 1, 3), cut(&a, 1, 3, n)]
        }),
        example("unfold_dim(dim=1,size=2,step=1)", "6,5; 4,3", |l| {
            let a = x(l, 0);
            vec![make(&[a.shape()[0], a.shape()[1] - 1, 2], |i| a[[i[0], i[1] + i[2]]])]
        }),
        example("glu(dim=1)", "6,4; 4,6; 2,2", |l| {
            let a = x(l, 0);
            let n = a.shape()[1] / 2;
            vec![zip(&cut(&a, 1, 0, n), &cut(&a, 1, n, 2 * n), |a, b| a / (1.0 + (-b).exp()))]
        })
        .data(&[Data::Real])
        .near(),
        example("softmin(dim=1)", two, |l| {
            vec![lines(&x(l, 0), 1, |v| softmax(&v.iter().map(|x| -x).collect::<Vec<_>>()))]
        })
        .data(&[Data::Real])
        .near(),
        example("gumbel_softmax(dim=1)", two, |l: &LocalView<'_>| {
            let a = x(l, 0);
            let drawn: Vec<f64> =
                l.places[0].elements().into_iter().map(|e| -(-noise(e).ln()).ln()).collect();
            let drawn = A::from_shape_vec(a.raw_dim(), drawn).expect("a shape");
            vec![lines(&zip(&a, &drawn, |a, g| a + g), 1, softmax)]
        })
        .data(&[Data::Real])
        .near(),
    ]
}
