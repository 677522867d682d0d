//! Rematerialized and chunked values equal the originals bit by bit, on ranks and by schedules.

use reshard_planner::Planner;
use reshard_program::{Program, ShardingSolver, ValueId};
use reshard_reference::{Number, Ranks, Values, on_ranks};
use reshard_test_support::Random;

use crate::programs::{inputs, same_as_one_device};
use crate::schedules::{bits, do_what_the_program_does, traces_are_equal, ways};

/// The program with some values rematerialized in backward, drawn at random.
pub(crate) fn some_again(program: &Program, r: &mut Random) -> Program {
    let made: Vec<ValueId> = program.forward().iter().flat_map(|item| item.outputs().to_vec()).collect();
    let share = 1 + r.below(4);
    let chosen: Vec<ValueId> = made.into_iter().filter(|_| r.below(4) < share).collect();
    program.rematerialize(&chosen).unwrap()
}

/// Compares programs that rematerialize values with the original.
pub(crate) fn made_again_is_the_same<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    ranks: &Ranks<T>,
) -> Result<(), String> {
    let mut r = Random(program.values().len() as u64);
    for _ in 0..2 {
        is_the_same(program, &some_again(program, &mut r), inputs, ranks, &mut r)?;
    }
    Ok(())
}

/// Compares programs with two and three overlap chunks with the original, and returns their number.
pub(crate) fn in_pieces_is_the_same<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    ranks: &Ranks<T>,
) -> Result<usize, String> {
    let mut r = Random(program.values().len() as u64);
    // Plans are those of the planner that made them.
    let asked = program.redistributions().next().map(|m| Planner::from(m.forward.options().clone()));
    let elaborator = ShardingSolver::new().planner(asked.unwrap_or_default());
    let mut found = 0;
    for pieces in [2, 3] {
        let chunked = program.overlap_all(pieces, &elaborator).map_err(|e| format!("{program}{e}"))?;
        let moves =
            |of: &Program| of.redistributions().filter(|m| m.forward.communicating_steps() > 0).count();
        if moves(&chunked) > moves(program) {
            found += 1;
            is_the_same(program, &chunked, inputs, ranks, &mut r)?;
        }
    }
    Ok(found)
}

/// Checks that another program makes equal values where both have them, and that its schedules do.
fn is_the_same<T: Number>(
    program: &Program,
    other: &Program,
    inputs: &Values<T>,
    ranks: &Ranks<T>,
    r: &mut Random,
) -> Result<(), String> {
    let at = |e: String| format!("{other}{e}");
    let did = on_ranks(other, inputs).map_err(|e| at(e.to_string()))?;
    for value in program.values().iter().filter(|value| other.value(&value.name).is_some()) {
        let shards = |of: &Ranks<T>| of.shards(&value.name).map(bits);
        if shards(&did) != shards(ranks) {
            return Err(at(format!("{} is another", value.name)));
        }
    }
    let all = ways();
    let two = [all[0].clone(), all[1 + r.below(all.len() - 1)].clone()];
    traces_are_equal(other, &two).map_err(at)?;
    do_what_the_program_does(other, inputs, &did, &two).map_err(at)
}

/// Runs a program as it is and with overlap chunks, and returns the number of chunked variants.
fn ways_in_pieces(text: &str) -> usize {
    let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    let given = inputs::<f64>(&program, 5);
    let ranks = same_as_one_device(&program, &given, 1e-12);
    in_pieces_is_the_same(&program, &given, &ranks).unwrap_or_else(|e| panic!("{e}"))
}

/// Chunks along a gathered dim, next to a dim sharded over another axis or unsharded, and of backward.
#[test]
fn pieces_of_every_kind_are_the_whole() {
    let texts = [
        "mesh tp=2\nx: f32[12,5] S(0)\nw: f32[5,6] S(1)\ng: R = x\ny: S(1) = mm(g, w)\n",
        "mesh dp=2,tp=2\nx: f32[12,4,5] S(0),S(1)\nw: f32[5,6] R,S(1)\ng: S(0),R = x\n\
         y: S(0),S(2) = bsd,df->bsf(g, w)\n",
        "mesh tp=2\nx: f32[12,6] S(1)\nw: f32[6,4] S(1)\ng: R = x\ny: S(1) = mm(g, w)\nz = relu(y)\n",
        "mesh tp=2\nx: f32[12,8] S(1)\nw: f32[8,6] S(0)|-\nh = mm(x, w)\ny: S(0) = h\nz = square(y)\nloss = sum(z)\n\
         gradient loss wrt x\n",
        "mesh tp=2\nx: f32[12,6] P|-\ng: S(1)|- = x\ny, i = max(g, dim=1)\n",
    ];
    for text in texts {
        assert_eq!(ways_in_pieces(text), 2, "{text}");
    }
    // A part of the redistributed value makes no part of the result, or the target has another order of
    // chunks.
    let whole = [
        "mesh a=2\nx: f32[4] S(0)\nu: f32[8] R\ng: R = x\ny: R = tile(g, times=[2])\nz = mul(y, u)\n",
        "mesh a=2\nx: f32[4,2] S(1)\ng: R = x\ny0: R; y1: R = chunk(g, chunks=2, dim=0)\nl = sum(y0)\n",
        "mesh a=2\nx: f32[8] S(0)\nu: f32[8] R\ng: R = x\ny: R = reshape(g, shape=[1,8])\nz: R = channel_shuffle(y, groups=2)\n",
        "mesh a=2\nx: f32[8,4] S(0)\ng: R = x\ny: R = expand(g, shape=[2,8,4])\n",
        "mesh a=4\nx: f32[16,8] SS(0,2)|-\ng: R|- = x\ny: R|- = cumsum(g, dim=1)\n",
        "mesh a=4\nx: f32[16,8] P|-\ng: RG(0,[6,2,4,4])|- = x\ny: RG(0,[6,2,4,4])|- = relu(g)\n",
        "mesh a=2\nx: f32[2,8] P|-\ng: S(0)|- = x\ny: S(0)|- = cumsum(g, dim=1)\n",
    ];
    for text in whole {
        // If dim 0 is sharded, the other dim is chunked.
        assert!(ways_in_pieces(text) == 0 || text.contains("|-"), "{text}");
    }
}
