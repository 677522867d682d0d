//! A program's results on ranks equal those on one device.

use ndarray::{ArrayD, IxDyn};
use reshard_program::{Error, ImplicitRedistribution, Program, ShardingSolver, Statement};
use reshard_reference::{Number, Ranks, Values, on_one_device, on_ranks};
use reshard_test_support::Random;

use crate::{again, schedules};

/// The tolerance of a result, relative to the largest number of its tensor.
const F64: f64 = 1e-12;
const F32: f64 = 1e-5;

/// Solves a text in which every redistribution is written.
pub(crate) fn written(text: &str) -> Result<Program, Error> {
    ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&text.parse()?)
}

/// Random inputs of a program, in (-1, 1).
pub(crate) fn inputs<T: Number>(program: &Program, seed: u64) -> Values<T> {
    let mut random = Random(seed);
    let items = program.statements().iter().filter_map(|item| match item {
        Statement::Input(v) => Some(program.get(*v)),
        Statement::Op { .. } | Statement::Redistribute { .. } | Statement::NoGrad => None,
    });
    let mut number = |_| T::rounded((random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
    items.map(|v| (v.name.clone(), ArrayD::from_shape_fn(IxDyn(v.shape()), &mut number))).collect()
}

/// Runs a program on ranks and on one device, and compares every value.
pub(crate) fn same_as_one_device<T: Number>(program: &Program, inputs: &Values<T>, bound: f64) -> Ranks<T> {
    let whole = on_one_device(program, inputs).unwrap_or_else(|e| panic!("{program}\n{e}"));
    let ranks = on_ranks(program, inputs).unwrap_or_else(|e| panic!("{program}\n{e}"));
    for (name, expected) in &whole {
        let found = ranks.whole(name).unwrap_or_else(|e| panic!("{program}\n{name}: {e}"));
        let scale = expected.iter().fold(1.0f64, |a, x| a.max(x.wide().abs()));
        let worst = expected.iter().zip(&found).fold(0.0f64, |a, (x, y)| a.max((x.wide() - y.wide()).abs()));
        assert!(worst <= bound * scale, "{program}\n{name} is off by {worst}");
    }
    let ways = schedules::ways();
    schedules::traces_are_equal(program, &ways).unwrap_or_else(|e| panic!("{program}\n{e}"));
    schedules::do_what_the_program_does(program, inputs, &ranks, &ways)
        .unwrap_or_else(|e| panic!("{program}\n{e}"));
    again::made_again_is_the_same(program, inputs, &ranks).unwrap_or_else(|e| panic!("{program}\n{e}"));
    again::in_pieces_is_the_same(program, inputs, &ranks).unwrap_or_else(|e| panic!("{program}\n{e}"));
    ranks
}

/// Returns the communication of a program in f32, forward and backward, by the resulting value.
///
/// Bytes are those of its plans, and those that ranks received. Runs the program in f32 and in f64.
pub(crate) fn communicated(program: &Program) -> Vec<String> {
    let _ = same_as_one_device::<f64>(program, &inputs(program, 1), F64);
    let ranks = same_as_one_device::<f32>(program, &inputs(program, 1), F32);
    let moves = program.redistributions().filter(|m| m.forward.received_bytes() > 0);
    let (names, texts): (Vec<(String, u64)>, Vec<String>) = moves
        .map(|m| {
            let ops: Vec<String> =
                m.forward.steps().iter().filter(|s| s.exchanges() > 0).map(|s| s.op().to_string()).collect();
            let (name, bytes) = (m.to.name.split('.').next().unwrap_or_default(), m.forward.received_bytes());
            ((m.to.name.clone(), bytes), format!("{name}: {} {bytes}", ops.join("+")))
        })
        .unzip();
    assert_eq!(ranks.moves(), names, "{program}");
    texts
}

#[test]
fn a_rank_without_channels_has_terms_of_the_groups_of_its_output() {
    // Two channels over dp=2, each a separate group; of one channel, two of three ranks along tp have none.
    let text = "
        mesh dp=2,tp=3
        x: f64[1,2,3] S(1),S(1)
        w: f64[2,2,2] S(0),S(0)
        y: S(1),P(sum) = conv_transpose1d(x, w, groups=2)
        z: S(1),I = y
        gradient z
    ";
    let program = written(text).unwrap();
    let _ = same_as_one_device::<f64>(&program, &inputs(&program, 1), F64);
}
