//! Parts written over, filled and reduced into, and elements picked by a mask or by their number.

use reshard_verify::{Data, Random};

use super::indexing::different;
use super::{Example, example};

/// Three of these are true.
fn three(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n = shape.iter().product();
    r.permutation(n).into_iter().map(|i| f64::from(u8::from(i < 3))).collect()
}

pub fn all() -> Vec<Example> {
    let (int, five, apart) = (Data::Integers, Data::Index { below: 5 }, Data::Made(different));
    let mask = Data::Mask { ones: 50 };
    let small = Data::Made(|s, r| {
        Data::Index { below: 4 }.whole(s, r).into_iter().map(|v| [1.0, -1.0, 2.0, -0.5][v as usize]).collect()
    });
    let mut out = vec![
        example("slice_scatter(dim=1,start=1,end=5,step=2)", "6,6 6,2; 5,5 5,2; 2,5 2,2"),
        example("select_scatter(dim=1,index=1)", "6,6 6; 5,4 5; 2,3 2"),
        example("diagonal_scatter", "6,4,4 6,4; 2,3,3 2,3"),
        example("take", "6,2 4; 5,3 3; 2,3 6").data(&[int, five]),
        example("masked_scatter", "6,2 6,2 12; 2,3 2,3 6").data(&[int, mask, int]).budget(200),
        example("masked_select(count=3)", "6,2 6,2; 2,3 2,3").data(&[int, Data::Made(three)]),
        example("nonzero(count=3)", "6,2; 3,4").data(&[Data::Made(three)]),
    ];
    for call in ["index_fill(dim=0,value=7)", "index_fill(dim=0,value=0)", "index_fill(dim=0,value=1)"] {
        out.push(example(call, "6,6 3; 5,4 4").data(&[int, five]));
    }
    for (call, index) in [("put", apart), ("put(accumulate=true)", five)] {
        out.push(example(call, "6,2 3 3; 5,3 4 4; 2,3 3 3").data(&[int, index, int]).budget(300));
    }
    for (one_index, all_dims, data) in [
        ("index_reduce(reduce=sum)", "scatter_reduce(reduce=sum,dim=1)", int),
        ("index_reduce(reduce=prod)", "scatter_reduce(reduce=prod,dim=1)", small),
        ("index_reduce(reduce=amax)", "scatter_reduce(reduce=amax,dim=1)", int),
        ("index_reduce(reduce=amin)", "scatter_reduce(reduce=amin,dim=1)", int),
        ("index_reduce(reduce=mean)", "scatter_reduce(reduce=mean,dim=1)", int),
    ] {
        let data = [data, five, data];
        out.push(example(one_index, "6,6 3 3,6; 5,4 6 6,4").data(&data).near().budget(300));
        out.push(example(all_dims, "6,6 6,3 6,3; 4,5 4,6 4,6").data(&data).near().budget(300));
    }
    out
}
