//! Pools whose windows follow from the output, space sampled at points, and channels in another order.

use reshard_verify::{Data, Random};

use super::{Example, example};

/// Different positions in a space of 9 for every channel.
fn places(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n: usize = shape[2..].iter().product();
    (0..shape[0] * shape[1])
        .flat_map(|_| r.permutation(n).into_iter().map(|p| p as f64).collect::<Vec<_>>())
        .collect()
}

pub fn all() -> Vec<Example> {
    let (real, apart) = ([Data::Real], [Data::Distinct]);
    let spaces = ["6,5,4; 2,6,3", "6,5,4,2; 2,6,3,4", "6,3,2,3,2; 2,6,3,2,2"];
    let mut out = Vec::new();
    for (calls, data) in [
        (["adaptive_avg_pool1d(size=2)", "adaptive_avg_pool2d(size=2)", "adaptive_avg_pool3d(size=2)"], real),
        (["adaptive_max_pool1d(size=2)", "adaptive_max_pool2d(size=2)", "adaptive_max_pool3d(size=2)"], real),
        (["lp_pool1d(kernel=2)", "lp_pool2d(kernel=2)", "lp_pool3d(kernel=2)"], real),
        (
            [
                "lp_pool1d(kernel=2,norm_type=3)",
                "lp_pool2d(kernel=2,norm_type=3)",
                "lp_pool3d(kernel=2,norm_type=3)",
            ],
            real,
        ),
    ] {
        for (call, space) in calls.into_iter().zip(spaces) {
            out.push(example(call, space).data(&data).near());
        }
    }
    for (call, space) in [
        ("adaptive_max_pool1d_with_indices(size=2)", 0),
        ("adaptive_max_pool2d_with_indices(size=2)", 1),
        ("adaptive_max_pool3d_with_indices(size=2)", 2),
        ("max_pool1d_with_indices(kernel=2)", 0),
        ("max_pool3d_with_indices(kernel=2)", 2),
    ] {
        out.push(example(call, spaces[space]).data(&apart));
    }
    for (call, shapes) in [
        ("max_unpool1d(size=9)", "6,5,3 6,5,3; 2,3,4 2,3,4"),
        ("max_unpool2d(size=3)", "6,5,2,2 6,5,2,2; 2,3,2,3 2,3,2,3"),
        ("max_unpool3d(size=2)", "6,5,1,2,2 6,5,1,2,2; 2,3,2,2,2 2,3,2,2,2"),
    ] {
        out.push(example(call, shapes).data(&[Data::Integers, Data::Made(places)]).budget(200));
    }
    let chance = Data::Made(|s, r| Data::Real.whole(s, r).into_iter().map(|v| (v + 3.0) / 6.1).collect());
    let (flat, solid) = ("6,5,7,8 6,5,2; 2,3,9,7 2,3,2", "6,3,5,4,4 6,3,3; 2,3,5,6,4 2,3,3");
    for (call, shapes) in [
        ("fractional_max_pool2d(size=3,kernel=2)", flat),
        ("fractional_max_pool3d(size=3,kernel=2)", solid),
        ("fractional_max_pool2d_with_indices(size=3,kernel=2)", flat),
        ("fractional_max_pool3d_with_indices(size=3,kernel=2)", solid),
    ] {
        out.push(example(call, shapes).data(&[Data::Distinct, chance]).budget(200));
    }
    for call in ["local_response_norm(size=2)", "local_response_norm(size=3,alpha=1.5,beta=0.5,k=2)"] {
        out.push(example(call, "6,5,2; 2,3,3").data(&real).near());
    }
    // Windows of 2 by 2, with a stride of 1.
    out.push(example("im2col(kernel=2)", "6,6,3,2; 4,2,2,3; 2,3,2,2"));
    out.push(example("im2col(kernel=2,stride=2,padding=1)", "6,6,3,2; 4,2,2,3; 2,3,2,2"));
    out.push(example("col2im(size=[3,2],kernel=2)", "6,24,2; 4,8,2; 2,12,2"));
    let points = "6,5,3,4 6,5,4,2; 4,2,2,3 4,3,6,2";
    for call in ["grid_sample", "grid_sample(mode=nearest)"] {
        out.push(example(call, points).data(&[Data::Real, chance]).near().budget(200));
    }
    out.push(example("affine_grid(size=[5,6])", "6,2,3; 4,2,3").near().wants());
    out.push(example("channel_shuffle(groups=6)", "6,36,2; 2,12,2"));
    out.push(example("pixel_unshuffle(factor=2)", "6,6,12,8; 2,3,4,24"));
    out
}
