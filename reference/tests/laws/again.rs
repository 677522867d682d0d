//! What backward makes again is what forward made, to the bit, on ranks and by schedules.

use reshard_program::{Item, Program, ValueId};
use reshard_reference::{Number, Ranks, Values, on_ranks};
use reshard_test_support::Random;

use crate::schedules::{bits, do_what_the_program_does, traces_are_equal, ways};

/// The program in which backward makes some values again, drawn at random.
pub(crate) fn some_again(program: &Program, r: &mut Random) -> Program {
    let forward = program.items().iter().take_while(|item| !matches!(item, Item::NoGrad));
    let made: Vec<ValueId> = forward.flat_map(|item| item.makes().to_vec()).collect();
    let share = 1 + r.below(4);
    let chosen: Vec<ValueId> = made.into_iter().filter(|_| r.below(4) < share).collect();
    program.again(&chosen).unwrap()
}

/// Holds what programs that make values again do against what the program did.
pub(crate) fn made_again_is_the_same<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    ranks: &Ranks<T>,
) -> Result<(), String> {
    let mut r = Random(program.values().len() as u64);
    for _ in 0..2 {
        let again = some_again(program, &mut r);
        let at = |e: String| format!("{again}{e}");
        let did = on_ranks(&again, inputs).map_err(|e| at(e.to_string()))?;
        for value in program.values() {
            let shards = |of: &Ranks<T>| of.shards(&value.name).map(bits);
            if shards(&did) != shards(ranks) {
                return Err(at(format!("{} is another", value.name)));
            }
        }
        let all = ways();
        let two = [all[0].clone(), all[1 + r.below(all.len() - 1)].clone()];
        traces_are_equal(&again, &two).map_err(at)?;
        do_what_the_program_does(&again, inputs, &did, &two).map_err(at)?;
    }
    Ok(())
}
