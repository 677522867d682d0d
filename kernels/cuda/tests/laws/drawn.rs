//! Random elements by the CUDA source, on a CPU, are those of the definition, bit for bit.

use crate::emulator::{Emulator, Memory};
use reshard_cuda::{DrawKernel, Program, draws, simulate};
use reshard_kernels::random::{Draw, Generator, Key, Recipe};
use reshard_kernels::{CopySide, DType, LoopNest};
use reshard_layout::Mode;
use reshard_test_support::Sweep;

/// Returns draws that cover every scaling and every kind of remainder.
fn all_draws() -> Vec<Draw> {
    let texts = "uniform uniform(-1,1) uniform(-0.3,2.7) uniform(0,3) normal normal(-2,0.75) truncated_normal \
                 truncated_normal(0.5,4) bernoulli bernoulli(0.3) exponential gumbel bits randint(0,2) randint(3,100) \
                 randint(-128,128) randint(-70,51) randint(0,65536) randint(0,70001) randint(-2147483648,2147483648) \
                 randint(-2000000000,2000000011) randint(0,18446744073709551616) randint(-5,9000000000000000000)";
    texts.split_whitespace().map(|text| text.parse().unwrap()).collect()
}

/// Returns a run, columns of separate rows, a backward transpose, and indices of more than 32 bits.
fn nests() -> [LoopNest; 4] {
    [
        LoopNest::new(0, 0, [Mode::new(1500, (1, 1))]),
        LoopNest::new(3, 1, [Mode::new(33, (4, 1)), Mode::new(20, (401, 37))]),
        LoopNest::new(39, 0, [Mode::new(40, (-1, 30)), Mode::new(30, (40, 1))]),
        LoopNest::new((1 << 40) - 50, 2, [Mode::new(100, (1, 1)), Mode::new(3, (1 << 33, 120))]),
    ]
}

#[test]
fn drawn_elements_are_those_of_the_definition() {
    if crate::emulator::is_missing() {
        return;
    }
    let mut checked = 0usize;
    let random = |program| if let Program::Random(dtype) = program { Some(dtype) } else { None };
    for (program, of) in crate::on_cpu::looked_at(random) {
        let mut emulator = Emulator::new(program, &[]);
        let dtypes = if of == DType::U8 { vec![DType::U8, DType::Bool] } else { vec![of] };
        for dtype in dtypes {
            assert_eq!(Program::Random(DrawKernel::new(dtype).dtype), program);
            for (i, draw) in all_draws().into_iter().enumerate() {
                for generator in Generator::ALL {
                    let key = Key::with(generator, 0x0123_4567_89ab_cdef + i as u64).fold_in(3);
                    let Ok(recipe) = Recipe::new(&key, draw, dtype) else { continue };
                    for nest in &nests() {
                        compare(&mut emulator, nest, (&key, draw, dtype), &recipe);
                        checked += 1;
                    }
                }
            }
        }
    }
    // 4 floats of 10 draws each, including bernoulli, and 9 others of bits, remainders and bernoulli, twice
    // and on 4 nests.
    let least = if Sweep::asked() == Sweep::All { 4 * 2 * (4 * 12 + 9 * 4) } else { 50 };
    assert!(checked > least, "{checked}");
}

fn compare(
    emulator: &mut Emulator,
    nest: &LoopNest,
    (key, draw, dtype): (&Key, Draw, DType),
    recipe: &Recipe,
) {
    let item = dtype.element_bytes().unwrap();
    let size = (nest.extremes(CopySide::Target).unwrap().unwrap().1 as usize + 1) * item;
    let before = vec![0xA5u8; size];
    let (mut want, mut got) = (before.clone(), before);
    for (n, launch) in draws(nest, dtype).unwrap().iter().enumerate() {
        simulate::draw(&mut want, &launch.job, key, draw, dtype).unwrap();
        let target = Memory { shift: 0, bytes: &got };
        let source = Memory { shift: 0, bytes: &[] };
        let recipe: &[i64] = bytemuck::cast_slice(std::slice::from_ref(recipe));
        let name = launch.kernel.name();
        let made = emulator.run(
            name,
            launch.blocks,
            n % 2 == 1,
            0.0,
            bytemuck::bytes_of(&launch.job),
            recipe,
            source,
            target,
        );
        got = made.expect("the sanitizer objects");
    }
    let differs = got.chunks(item).zip(want.chunks(item)).position(|(a, b)| a != b);
    assert!(differs.is_none(), "{key} {draw} {dtype} {nest:?}: element {differs:?}");
}

/// The launches of a nest draw every element once, from its index, with the bits of the host.
#[test]
fn a_shard_that_is_drawn_is_that_of_the_whole() {
    let (key, draw) = (Key::new(5), Draw::Normal { mean: 1.0, std: 2.0 });
    let mut whole = vec![0u8; 6 * 8 * 4];
    let all = [reshard_kernels::random::IndexRun::all(48)];
    reshard_kernels::random::fill(&key, draw, DType::F32, &mut whole, &[6, 8], all).unwrap();
    // Columns 2 to 5 of [6,8], rows last to first.
    let nest = LoopNest::new(5 * 8 + 2, 0, [Mode::new(4, (1, 1)), Mode::new(6, (-8, 4))]);
    let mut shard = vec![0u8; 6 * 4 * 4];
    for launch in &draws(&nest, DType::F32).unwrap() {
        simulate::draw(&mut shard, &launch.job, &key, draw, DType::F32).unwrap();
    }
    for row in 0..6 {
        let from = ((5 - row) * 8 + 2) * 4;
        assert_eq!(shard[row * 16..row * 16 + 16], whole[from..from + 16]);
    }
}

#[test]
fn indices_that_are_none_are_refused() {
    let below = LoopNest::new(2, 0, [Mode::new(4, (-1, 1))]);
    let said = draws(&below, DType::F32).unwrap_err().to_string();
    assert!(said.contains("before its start"), "{said}");
    let twice = LoopNest::new(0, 0, [Mode::new(4, (1, 0))]);
    assert!(draws(&twice, DType::F32).is_err());
    assert!(draws(&LoopNest::new(0, 0, [Mode::new(0, (1, 1))]), DType::F32).unwrap().is_empty());
    assert!(draws(&LoopNest::new(0, 0, [Mode::new(4, (1, 1))]), DType::F4).is_err());
}
