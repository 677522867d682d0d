//! Typed strategies from a cache: the same as without one, whatever was requested before.

use reshard_ops::propagate::{Propagator, TypedLists, TypedStrategy, TypedStrategyQuery};
use reshard_ops::rules::{Op, OpTable};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, shardings};

/// The maximum number of strategies: so few that some lists are truncated.
const MOST: usize = 60;

/// Ops with shapes in common, so that operands of several are the same.
fn ops() -> Vec<Op> {
    let table = OpTable::standard();
    let calls: [(&str, &[&[usize]]); 20] = [
        ("mm", &[&[8, 12], &[12, 8]]),
        ("mm", &[&[12, 8], &[8, 12]]),
        ("mm", &[&[9, 12], &[12, 8]]),
        ("add", &[&[8, 16], &[8, 16]]),
        ("clone", &[&[8, 16]]),
        ("neg", &[&[8, 12]]),
        ("add", &[&[8, 12], &[8, 12]]),
        ("add", &[&[8, 12], &[12]]),
        ("mul", &[&[8, 12], &[8, 12]]),
        ("relu", &[&[8, 12]]),
        ("clone", &[&[8, 12]]),
        ("sum(dims=[0])", &[&[8, 12]]),
        ("amax(dims=[1])", &[&[8, 12]]),
        ("softmax(dim=1)", &[&[8, 12]]),
        ("rms_norm", &[&[8, 12], &[12]]),
        ("reshape(shape=[96])", &[&[8, 12]]),
        ("reshape(shape=[2,4,12])", &[&[8, 12]]),
        ("transpose(dim0=0,dim1=1)", &[&[8, 12]]),
        ("bsd,dhe->bhse", &[&[4, 6, 8], &[8, 2, 6]]),
        ("bsd,df->bsf", &[&[4, 6, 8], &[8, 12]]),
    ];
    calls.iter().map(|(call, shapes)| table.op(&call.parse().unwrap(), shapes).unwrap()).collect()
}

const SHARDS: [&str; 9] =
    ["R", "S(0)", "S(1)", "SS(0,2)", "P", "P(max)", "P(norm3)", "P(norm5)", "RG(0,[1,3,2,2])"];

/// Splits along parts of an axis of 8.
const SUB_AXES: [&str; 4] = ["[{x:(1)2},{}]", "[{x:(1)4},{}]", "[{},{x:(1)4}]", "[{},{x:(1)2}]"];

#[test]
fn a_list_out_of_a_memory_is_the_list() {
    let (ops, mut r) = (ops(), Random(41));
    let (mut known, mut asked, mut kept, mut cut_off) = (TypedLists::default(), 0, 0, 0);
    let meshes: Vec<Mesh> =
        ["x=2", "x=4", "y=4", "x=8", "x=2,y=2", "x=2,y=4"].iter().map(|m| m.parse().unwrap()).collect();
    let propagator = Propagator::new();
    for _ in 0..3000 {
        let (op, mesh) = (&ops[r.below(ops.len())], &meshes[r.below(meshes.len())]);
        let some = |r: &mut Random, shape: &[usize]| -> Sharding {
            let mut all: Vec<Sharding> = shardings(mesh, shape, &SHARDS);
            all.extend(SUB_AXES.iter().filter_map(|text| Sharding::parse(mesh, shape, text).ok()));
            all[r.below(all.len())].clone()
        };
        let mut inputs: Vec<Vec<Sharding>> = Vec::new();
        for shape in op.inputs() {
            let count = 1 + r.below(3);
            inputs.push((0..count).map(|_| some(&mut r, shape)).collect());
        }
        let also: Vec<Sharding> = (0..r.below(2)).map(|_| some(&mut r, &op.outputs()[0])).collect();
        let trained = r.below(2) == 1;
        let input_gradients: Vec<bool> = op.inputs().iter().map(|_| trained && r.below(3) > 0).collect();
        let output_gradients = vec![trained; op.outputs().len()];
        let nonnegative: Vec<bool> = op.inputs().iter().map(|_| r.below(2) == 1).collect();
        let question = TypedStrategyQuery {
            inputs: &inputs,
            also: &also,
            input_gradients: &input_gradients,
            output_gradients: &output_gradients,
            nonnegative: &nonnegative,
        };
        let before = known.len();
        let own = propagator.typed(op, mesh, &question, MOST);
        let once = propagator.typed_once(op, mesh, &question, MOST, &mut known);
        match (own, once) {
            (Ok(own), Ok(once)) => {
                let once: Vec<TypedStrategy> = known.get(once).iter().map(|s| (**s).clone()).collect();
                assert_eq!(once, own, "{} on {mesh} of {inputs:?}", op.name());
                asked += 1;
                kept += usize::from(known.len() == before);
                cut_off += usize::from(own.len() == MOST);
            }
            (own, once) => assert_eq!(own.err(), once.err(), "{} on {mesh} of {inputs:?}", op.name()),
        }
    }
    assert!(
        asked > 2500 && kept > 500 && cut_off > 10,
        "{asked} requests, {kept} of them retained, {cut_off} pruned"
    );
}
