//! Distances, grids and blocks.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let real = [Data::Real; 2];
    for (call, shapes) in [
        ("cdist", "6,5 4,5; 3,6 6,6"),
        ("cdist(p=1)", "6,5 4,5; 3,6 6,6"),
        ("cdist(p=inf)", "6,5 4,5; 3,6 6,6"),
        ("pairwise_distance", "6,5 6,5; 2,6 2,6"),
        ("pairwise_distance(p=1)", "6,5 6,5; 2,6 2,6"),
        ("pairwise_distance(eps=0.25)", "6,5 6,5; 2,6 2,6"),
        ("dist", "6,2 6,2; 5,3 5,3"),
        ("dist(p=1)", "6,2 6,2; 5,3 5,3"),
        ("dist(p=inf)", "6,2 6,2; 5,3 5,3"),
        ("cosine_similarity", "6,5 6,5; 2,3 2,3"),
        ("cosine_similarity(eps=2.5)", "6,5 6,5; 2,3 2,3"),
        ("weight_norm", "6,5 6,1; 2,3 2,1"),
    ] {
        out.push(example(call, shapes).data(&real).near().budget(300));
    }
    for (call, shapes) in [
        ("pdist", "4,6; 3,5"),
        ("pdist(p=1)", "4,6; 3,5"),
        ("pdist(p=inf)", "4,6; 3,5"),
        ("renorm(dim=0,maxnorm=2)", "6,5; 2,3"),
        ("renorm(dim=0,p=1.5,maxnorm=2.5)", "6,5; 2,3"),
    ] {
        out.push(example(call, shapes).data(&real[..1]).near());
    }
    out.push(example("meshgrid", "6 5; 2 6"));
    out.push(example("cartesian_prod", "6 6; 4 12; 2 3"));
    out.push(example("block_diag", "2,3 1,2; 3,1 2,2"));
    out
}
