//! Ranges of dims, other orders, other shapes, and tensors without inputs.

use reshard_verify::LocalView;

use super::{Example, example};

/// Splits dim 1 into ranges of the wanted lengths.
fn as_wanted(l: &LocalView<'_>, dim: usize) -> String {
    let sizes: Vec<String> = l.output_regions.iter().map(|w| w.shape()[dim].to_string()).collect();
    format!("split(sizes=[{}],dim={dim})", sizes.join(","))
}

/// The second of three parts of dim 1.
fn second_third(l: &LocalView<'_>) -> String {
    let n = l.inputs[0].shape[1] / 3;
    assert_eq!(l.inputs[0].shape[1], 3 * n);
    format!("narrow(dim=1,start={n},length={n})")
}

pub fn all() -> Vec<Example> {
    let two = "6,5; 4,6; 2,3";
    let mut out = Vec::new();
    for (call, shapes) in [
        ("split(size=4,dim=1)", "6,12; 5,12"),
        ("split(size=2,dim=1)", "4,3; 5,5"),
        ("split(size=4,dim=1)", "6,6; 5,10"),
        ("split(sizes=[1,3],dim=1)", "6,4; 5,4"),
        ("split(sizes=[12,4,4],dim=1)", "6,20; 5,20"),
        ("split(sizes=[9,3,3],dim=1)", "6,15; 5,15"),
        ("chunk(chunks=2,dim=1)", "6,8; 5,6; 3,12; 2,10; 1,2"),
        ("chunk(chunks=2,dim=1)", "4,3; 5,5"),
    ] {
        out.push(example(call, shapes).locally(|l| as_wanted(l, 1)).wants());
    }
    out.push(example("chunk(chunks=3,dim=0)", "12,5; 6,4; 9,3; 15,2").locally(|l| as_wanted(l, 0)).wants());
    // If a shard is taken for the whole, other dims may be 1 too.
    out.push(example("squeeze", "6,1,5; 4,1,6").locally(|_| "squeeze(dims=[1])".to_owned()));
    out.push(example("slice(dim=1,start=4,end=8)", "6,12; 5,12").locally(second_third));
    out.push(example("narrow(dim=1,start=4,length=4)", "6,12; 5,12").locally(second_third));
    for (call, shapes) in [
        ("cat(dim=1)", "6,4 6,4; 5,6 5,6; 3,5 3,5; 2,1 2,1"),
        ("cat(dim=1)", "6,5 6,2; 4,3 4,6; 2,1 2,3"),
        ("cat(dim=0)", "6,5 4,5 3,5; 4,6 2,6 6,6"),
        ("stack(dim=1)", "6,5 6,5; 4,6 4,6"),
        ("cat(dim=1)", "6,12 6,4 6,4; 5,6 5,2 5,2; 3,15 3,5 3,5"),
        ("unbind(dim=1)", "6,2; 5,2"),
        ("select(dim=1,index=1)", "6,6; 5,4"),
        ("select(dim=1,index=-1)", "6,6; 5,4"),
        ("slice(dim=1,start=1,end=5,step=2)", "6,6; 5,5"),
        ("slice(dim=1)", "6,6; 5,4"),
        ("narrow(dim=1,start=1,length=3)", "6,6; 5,4"),
        ("pad(pads=[1,2])", two),
        ("pad(pads=[1,2],value=-4)", two),
        ("pad(pads=[1,2],value=0.5)", two),
        ("pad(pads=[1,2],mode=circular)", "6,6; 5,4"),
        ("pad(pads=[1,2],mode=reflect)", "6,6; 5,4"),
        ("pad(pads=[1,2],mode=replicate)", "6,6; 5,4"),
        ("roll(shifts=[1],dims=[1])", two),
        ("roll(shifts=2)", "6,5; 4,6"),
        ("flip(dims=[1])", two),
        ("tril", "6,6; 5,4"),
        ("triu", "6,6; 5,4"),
        ("tril", "2,6,6; 3,5,4"),
        ("diagonal", "6,6; 4,4"),
        ("trace", "6,6; 4,4"),
        ("matrix_transpose", "6,5,4; 2,3,6"),
        ("diag_embed", "6,5; 2,3"),
        ("t", two),
        ("transpose(dim0=0,dim1=2)", "6,5,2; 3,4,6"),
        ("permute(dims=[2,0,1])", "6,5,2; 3,4,6"),
        ("unsqueeze(dim=1)", two),
    ] {
        out.push(example(call, shapes));
    }
    for (call, shapes) in [
        ("expand(shape=[6,-1])", "5; 6"),
        ("expand(shape=[-1,6,5])", "6,1,5; 4,1,5"),
        ("repeat(times=[6,2])", "6,4; 4,3"),
        ("repeat_interleave(times=3,dim=0)", "6,4; 5,3"),
        ("split_shards(parts=2)", "8,3; 12,2"),
        ("split_shards(parts=6,dim=1,at=1)", "3,12; 2,24"),
        ("split_shards(parts=2,cut=strided,tiles=3,at=-1)", "18,3; 6,2"),
        ("join_shards", "2,4,3; 4,2,2"),
        ("join_shards(at=1,dim=1)", "3,6,2; 2,6,4"),
        ("join_shards(at=-1,cut=strided,tiles=3)", "9,3,2; 3,2,4"),
        ("split_shards(parts=2,cut=ragged,counts=[4,2],room=5)", "6,3"),
        ("split_shards(parts=3,cut=counts,counts=[1,0,2,2,1,0,0,3,1],at=-1)", "10,2"),
        ("join_shards(cut=ragged,counts=[1,3,2])", "3,3,2"),
        ("join_shards(cut=counts,counts=[1,2,0,3],dim=1,at=1)", "2,2,6"),
        ("arange(size=6)", "-"),
        ("arange(size=6,start=-1.5,step=0.5)", "-"),
        ("eye(size=6)", "-"),
    ] {
        out.push(example(call, shapes).wants());
    }
    for call in ["zeros(shape=[6,5])", "ones(shape=[6,5])", "full(shape=[6,5],fill_value=7)"] {
        out.push(example(call, "-").wants().constant());
    }
    out
}
