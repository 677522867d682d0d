//! Windows over space.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    for (call, shapes) in [
        ("conv1d", "6,3,4 6,3,2; 2,6,3 5,6,2"),
        ("conv2d(stride=[2,2],padding=[1,1])", "6,3,4,3 6,3,2,2; 2,6,3,3 5,6,2,3"),
        ("conv1d(dilation=2,padding=1)", "6,3,4 6,3,2; 2,6,3 5,6,2"),
        ("conv3d", "6,3,2,2,2 6,3,2,2,1; 2,6,2,1,2 5,6,2,1,1"),
        ("convolution", "6,3,4 6,3,2; 2,6,3 5,6,2"),
        ("conv1d", "6,3,4 6,3,2 6; 2,6,3 5,6,2 5"),
        ("conv1d(groups=6)", "6,12,3 18,2,2; 5,24,3 6,4,2"),
        ("conv1d(groups=6)", "6,12,3 18,2,2 18; 5,24,3 6,4,2 6"),
        ("conv1d(groups=3)", "4,6,3 6,2,2"),
        ("conv_transpose1d", "6,3,4 3,6,2; 2,6,3 6,5,2"),
        ("conv_transpose2d(stride=2)", "6,3,2,2 3,6,2,2; 2,6,3,2 6,5,2,3"),
        ("conv_transpose1d(stride=2,padding=1)", "6,3,4 3,6,2; 2,6,3 6,5,2"),
        ("conv_transpose3d", "6,3,2,1,2 3,6,2,1,1; 2,6,1,2,1 6,5,2,1,1"),
        ("conv_transpose1d", "6,3,4 3,6,2 6; 2,6,3 6,5,2 5"),
        ("conv_transpose1d(groups=6)", "6,12,3 12,2,2; 5,24,2 24,1,2"),
        ("max_pool1d(kernel=2)", "6,5,4; 2,6,6"),
        ("max_pool1d(kernel=3,stride=2,padding=1)", "6,5,4; 2,6,6"),
        ("max_pool2d(kernel=2)", "6,5,4,2; 2,6,2,4"),
        ("max_pool3d(kernel=2)", "6,5,4,2,2; 2,6,2,2,4"),
        ("pixel_shuffle(factor=2)", "6,24,2,3; 2,12,5,2"),
        ("interpolate(size=6)", "6,5,3; 2,6,4"),
        ("interpolate(size=6,mode=nearest_exact)", "6,5,3; 2,6,4"),
    ] {
        out.push(example(call, shapes));
    }
    for (call, shapes) in [
        ("avg_pool1d(kernel=2)", "6,5,4; 2,6,6"),
        ("avg_pool1d(kernel=3,stride=2,padding=1)", "6,5,4; 2,6,6"),
        ("avg_pool2d(kernel=2)", "6,5,4,2; 2,6,2,4"),
        ("avg_pool3d(kernel=2)", "6,5,4,2,2; 2,6,2,2,4"),
        ("interpolate(size=5,mode=linear,align_corners=true)", "6,5,3; 2,6,4"),
        ("interpolate(size=5,mode=linear)", "6,5,3; 2,6,4"),
        ("interpolate(size=[3,4],mode=linear)", "6,5,3,2; 2,6,4,5"),
        ("interpolate(size=2,mode=area)", "6,5,3; 2,6,4"),
        ("interpolate(size=6,mode=cubic)", "6,5,3; 2,6,4"),
    ] {
        out.push(example(call, shapes).near());
    }
    out.push(example("max_pool2d_with_indices(kernel=2)", "6,5,4,2; 2,6,2,4").data(&[Data::Distinct]));
    out
}
