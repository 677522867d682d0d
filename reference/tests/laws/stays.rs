//! Ops declared as local no-ops are: every rank's result has the elements of its operand, in the same order.

use ndarray::{ArrayD, IxDyn};
use reshard_ops::rules::{OpCall, OpTable, ShardRegion};
use reshard_reference::{Local, run_local};
use reshard_sharding::{Mesh, Placement, Sharding};

/// Calls of one operand that permute, sum and repeat.
const CALLS: &[(&str, &[usize])] = &[
    ("permute(dims=[1,0,2])", &[2, 4, 3]),
    ("permute(dims=[2,0,1])", &[2, 4, 3]),
    ("transpose(dim0=0,dim1=1)", &[4, 3]),
    ("t", &[4, 2]),
    ("movedim(source=[0],destination=[2])", &[2, 2, 4]),
    ("sum(dims=[0])", &[4, 3]),
    ("sum(dims=[1],keepdim=true)", &[2, 3]),
    ("sum(dims=[0])", &[3, 4]),
    ("amax(dims=[1])", &[4, 2]),
    ("roll(shifts=[1],dims=[0])", &[4, 2]),
    ("roll(shifts=[1],dims=[1])", &[4, 1]),
    ("flip(dims=[0])", &[2, 3]),
    ("flip(dims=[1])", &[4, 1]),
    ("expand(shape=[4,3])", &[1, 3]),
    ("expand(shape=[2,4,3])", &[4, 3]),
    ("split_shards(parts=2)", &[8, 2]),
    ("split_shards(parts=4,dim=1,at=1)", &[2, 8]),
    ("split_shards(parts=2,cut=strided,tiles=3)", &[6, 2]),
    ("join_shards", &[2, 4, 2]),
    ("split_shards(parts=2,cut=ragged,counts=[2,4])", &[6, 2]),
    ("join_shards(dim=1,at=1)", &[2, 4, 2]),
    ("softmax(dim=0)", &[2, 3]),
    ("relu", &[2, 3]),
    ("tril", &[2, 3]),
];

/// All placements of an operand along an axis.
fn placements(dims: usize) -> Vec<Placement> {
    let mut all = vec![Placement::Replicate];
    for dim in 0..dims {
        all.extend([Placement::Shard(dim), Placement::zigzag(dim), Placement::rolled(dim, 1)]);
        all.push(Placement::StridedShard { dim, split_factor: 3 });
    }
    all
}

#[test]
fn what_stays_on_ranks_is_the_same_there() {
    let table = OpTable::standard();
    let (mut stay, mut go) = (0, 0);
    for ranks in [1, 2, 4] {
        let mesh: Mesh = format!("x={ranks}").parse().unwrap();
        for (call, shape) in CALLS {
            let call: OpCall = call.parse().unwrap();
            let op = table.op(&call, &[shape]).unwrap();
            let made = &op.outputs()[0];
            for (from, to) in placements(shape.len())
                .iter()
                .flat_map(|from| placements(made.len()).into_iter().map(move |to| (from.clone(), to)))
            {
                let (Ok(from), Ok(to)) =
                    (Sharding::new(&mesh, shape, &[from]), Sharding::new(&mesh, made, &[to]))
                else {
                    continue;
                };
                let Some((takes, makes)) = from.common_local_shape().zip(to.common_local_shape()) else {
                    continue;
                };
                if !op.is_local_noop(&takes, &makes) {
                    go += 1;
                    continue;
                }
                for rank in mesh.ranks() {
                    let place = |s: &Sharding| ShardRegion {
                        region: s.region(rank).unwrap(),
                        whole: s.shape().to_vec(),
                    };
                    let (place, wanted) = (place(&from), place(&to));
                    let mut next = 0.0;
                    let input = ArrayD::from_shape_simple_fn(IxDyn(&takes), || {
                        next += 1.0;
                        next
                    });
                    let inputs = [input];
                    let local = Local { inputs: &inputs, places: vec![&place], wanted: vec![&wanted] };
                    // Between other shards an op has to communicate, which a rank alone cannot.
                    let Ok(made) = run_local::<f64>(&table, &call, &local) else { continue };
                    if made[0].shape() == makes.as_slice() {
                        assert!(
                            made[0].iter().eq(inputs[0].iter()),
                            "{call} from {from} to {to} on rank {rank} of {ranks}: {:?} of {:?}",
                            made[0],
                            inputs[0]
                        );
                        stay += 1;
                    }
                }
            }
        }
    }
    assert!(stay > 200 && go > 1000, "{stay} stay, {go} go");
}
