//! Permutations of dims and elements, and halves of a dim.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    for (call, shapes) in [
        ("movedim(source=[0],destination=[2])", "6,5,2; 3,4,6"),
        ("rot90", "3,4,6; 2,5,3"),
        ("rot90(times=2,dims=[1,2])", "6,4,3; 2,5,3"),
        ("tensor_split(sections=2,dim=1)", "6,5; 4,3"),
        ("tensor_split(indices=[1,3],dim=1)", "6,5; 4,4"),
        ("unfold_dim(dim=1,size=2,step=1)", "6,5; 4,3"),
    ] {
        out.push(example(call, shapes));
    }
    out.push(example("tile(times=[6])", "6,4; 4,3").wants());
    out.push(example("glu(dim=1)", "6,4; 4,6; 2,2").data(&[Data::Real]).near());
    for call in ["softmin(dim=1)", "gumbel_softmax(dim=1)", "gumbel_softmax(dim=1,tau=0.5)"] {
        out.push(example(call, "6,6; 4,5; 2,3").data(&[Data::Real]).near());
    }
    out
}
