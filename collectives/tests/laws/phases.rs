//! Phases that come from no plan, with numbers that no plan has: they are rejected or run, without a panic
//! and without a buffer of the size that they declare.

use reshard_collectives::threads::World;
use reshard_collectives::{CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_layout::{InlineVec, Mode, Modes};
use reshard_planner::{Block, Message, Phase, Reduce, StepOp};
use reshard_sharding::ReduceOp;
use reshard_test_support::Random;

const LENGTHS: [usize; 8] = [0, 1, 2, 4, 1 << 31, 1 << 62, 1 << 63, usize::MAX];
const MEMBERS: [&[usize]; 6] = [&[0], &[0], &[0, 1], &[], &[usize::MAX], &[1, 0]];
const STRIDES: [i64; 8] = [0, 1, -1, 4, 1 << 31, 1 << 62, i64::MAX, i64::MIN];

fn message(random: &mut Random) -> Message {
    let mode = |random: &mut Random| {
        Mode::new(*random.pick(&LENGTHS) as i64, (*random.pick(&STRIDES), *random.pick(&STRIDES)))
    };
    let modes: Vec<_> = (0..random.below(3)).map(|_| mode(random)).collect();
    let (source_offset, target_offset) = (*random.pick(&LENGTHS), *random.pick(&LENGTHS));
    let block = Block { source_offset, target_offset, modes: Modes::from_slice(&modes) };
    Message { peer: *random.pick(&[0, 0, 1, usize::MAX]), blocks: InlineVec::from_iter([block]) }
}

#[test]
fn no_phase_makes_an_engine_panic() {
    let mut random = Random(5);
    let mut world = World::new(1).unwrap();
    let mut ran = 0;
    for _ in 0..50_000 {
        let (source_len, target_len) = (*random.pick(&LENGTHS), *random.pick(&LENGTHS));
        let step = *random.pick(&[0, 1, 1 << 40, usize::MAX]);
        let members = random.pick(&MEMBERS);
        let members = members.to_vec();
        let (sends, receives) = (random.below(2), random.below(3));
        let reduce = [None, Some(Reduce { op: ReduceOp::Sum, divisor: 1 })][random.below(2)];
        let phase = Phase {
            source_len,
            target_len,
            fill_identity: None,
            sends: (0..sends).map(|_| message(&mut random)).collect(),
            receives: (0..receives).map(|_| message(&mut random)).collect(),
            reduce,
            members,
        };
        let dtype = [DType::U8, DType::F64][random.below(2)];
        let Ok(one) = CompiledPlan::from_phases(0, dtype, &[(step, StepOp::Exchange, phase)]) else {
            continue;
        };
        if one.source_bytes().max(one.target_bytes()) > 64 {
            continue;
        }
        ran += 1;
        let results = world.run(|comm| {
            let mut scratch = one.scratch(comm)?;
            let mut target = vec![0; one.target_bytes()];
            one.run(comm, &vec![0; one.source_bytes()], &mut target, &mut scratch)
        });
        assert!(!matches!(results[0], Err(Error::Panicked { .. })), "{:?}", results[0]);
    }
    assert!(ran > 100, "{ran}");
}
