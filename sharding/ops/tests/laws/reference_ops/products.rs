//! Products, attention and rotary embedding.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    for (call, shapes) in [
        ("mm", "6,5 5,4; 3,6 6,6; 1,4 4,1; 6,1 1,6"),
        ("mk,kn->mn", "6,5 5,4; 3,6 6,6"),
        ("abc,cd,bd->ad", "4,5,6 6,3 5,3; 6,6,4 4,6 6,6"),
        ("bmm", "6,3,5 6,5,4; 3,6,6 3,6,6"),
        ("dot", "6 6; 5 5"),
        ("vdot", "6 6; 5 5"),
        ("mv", "6,5 5; 5,6 6"),
        ("outer", "6 5; 4 6"),
        ("matmul", "6,3,5 6,5,4; 3,6,6 3,6,6"),
        ("matmul", "6,5 5,4; 3,6 6,6"),
        ("matmul", "6,3,5 5; 3,6,6 6"),
        ("linear", "6,5 4,5; 3,6 6,6"),
        ("linear", "2,6,5 4,5; 3,2,6 6,6"),
        ("addmm", "6,4 6,5 5,4; 3,6 3,6 6,6"),
        ("addmm", "4 6,5 5,4; 6 3,6 6,6"),
        ("addmm", "6,1 6,5 5,4; 3,1 3,6 6,6"),
        ("addmm(beta=2,alpha=-3)", "6,4 6,5 5,4; 3,6 3,6 6,6"),
        ("linear", "6,5 4,5 4; 3,6 6,6 6"),
        ("addmv", "6 6,5 5; 3 3,6 6"),
        ("addmv(beta=2,alpha=-3)", "6 6,5 5; 3 3,6 6"),
    ] {
        out.push(example(call, shapes));
    }
    for call in ["baddbmm", "baddbmm(beta=2,alpha=-3)"] {
        out.push(example(call, "6,3,4 6,3,5 6,5,4; 3,6,6 3,6,6 3,6,6").budget(300));
    }
    let real = [Data::Real; 4];
    for (call, shapes) in [
        ("scaled_dot_product_attention", "6,6,3,2 6,6,4,2 6,6,4,3; 2,3,6,3 2,3,6,3 2,3,6,6"),
        ("scaled_dot_product_attention", "2,12,3,2 2,6,4,2 2,6,4,3; 3,9,2,2 3,3,5,2 3,3,5,2"),
        ("scaled_dot_product_attention(causal=true)", "6,6,3,2 6,6,3,2 6,6,3,3; 2,3,6,3 2,3,6,3 2,3,6,6"),
        ("scaled_dot_product_attention", "2,12,3,2 2,6,4,2 2,6,4,3 12,3,4; 3,18,2,2 3,6,5,2 3,6,5,2 18,2,5"),
        ("scaled_dot_product_attention", "2,6,4,2 2,6,6,2 2,6,6,3 4,6; 3,3,6,2 3,3,5,2 3,3,5,2 6,5"),
        ("scaled_dot_product_attention(scale=0.25)", "2,6,4,2 2,6,6,2 2,6,6,3; 3,3,6,2 3,3,5,2 3,3,5,2"),
    ] {
        let n = shapes.split(';').next().unwrap().split_whitespace().count();
        out.push(example(call, shapes).data(&real[..n]).near().budget(300));
    }
    out.push(example("rotary", "2,6,4 6,4 6,4; 3,5,6 5,6 5,6").near());
    out
}
