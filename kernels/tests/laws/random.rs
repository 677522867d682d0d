//! Properties of random numbers: `fill` equals the definition, texts round-trip, keys differ, and the numbers
//! have the right distribution.

use std::collections::HashSet;

use reshard_kernels::random::{Draw, Generator, IndexRun, Key, definition, fill};
use reshard_kernels::{DType, Error};
use reshard_test_support::{Arbitrary, Gen, properties};

#[derive(Clone, Copy, Debug)]
struct AnyKey(Key);

impl Arbitrary for AnyKey {
    fn arbitrary(g: &mut Gen) -> Self {
        let seed = u64::arbitrary(g);
        AnyKey(match u8::arbitrary(g) % 4 {
            0 => Key::new(seed),
            1 => Key::with(Generator::Philox, seed),
            2 => Key::Threefry([seed as u32, u32::arbitrary(g)]),
            // Counters wrap at the end of 64 bits.
            _ => Key::Philox { seed, offset: u64::MAX - u64::from(u8::arbitrary(g)) },
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct AnyDraw(Draw);

impl Arbitrary for AnyDraw {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut number = || f64::from(i16::arbitrary(g)) / 64.0 * 10f64.powi(i32::from(i8::arbitrary(g) % 4));
        let (a, b) = (number(), number());
        let (low, high) = if a < b { (a, b) } else { (b, a + 1.0) };
        let (i, j) = (i128::from(i64::arbitrary(g)), i128::from(u64::arbitrary(g)));
        AnyDraw(match u8::arbitrary(g) % 10 {
            0 => Draw::Bits,
            1 | 2 => Draw::Uniform { low, high },
            3 => Draw::Normal { mean: a, std: b.abs() },
            4 => Draw::TruncatedNormal { low, high },
            5 => Draw::Bernoulli { p: f64::from(u8::arbitrary(g)) / 255.0 },
            6 => Draw::RandInt { low: i.min(j), high: i.max(j) + 1 },
            7 => Draw::RandInt { low: -100, high: i128::from(u8::arbitrary(g)) - 99 },
            8 => Draw::Exponential,
            _ => Draw::Gumbel,
        })
    }
}

/// Runs of a tensor of 2^40 elements: short and long, around 2^32, some of them repeated.
#[derive(Clone, Debug)]
struct AnyRuns(Vec<IndexRun>);

const SHAPE: [usize; 2] = [1 << 20, 1 << 20];

impl Arbitrary for AnyRuns {
    fn arbitrary(g: &mut Gen) -> Self {
        let count = usize::arbitrary(g) % 5;
        let run = |g: &mut Gen| {
            let near = *g.choose(&[0, 1000, (1 << 32) - 300, 7 << 32]).unwrap();
            let len = *g.choose(&[0, 1, 2, 3, 15, 16, 17, 100, 255, 256, 257, 513, 700]).unwrap();
            let stride = *g.choose(&[1, 1, 1, 2, 3, 1 << 20]).unwrap();
            IndexRun { start: near + u64::from(u16::arbitrary(g)), len, stride }
        };
        AnyRuns((0..count).map(|_| run(g)).collect())
    }
}

properties! {
    fn what_is_filled_is_the_definition(key: AnyKey, draw: AnyDraw, runs: AnyRuns) -> bool {
        let (AnyKey(key), AnyDraw(draw), AnyRuns(runs)) = (key, draw, runs);
        let elements: u64 = runs.iter().map(|run| run.len).sum();
        for dtype in DType::ALL {
            let Ok(item) = dtype.element_bytes() else { continue };
            let mut bytes = vec![0; elements as usize * item];
            match fill(&key, draw, dtype, &mut bytes, &SHAPE, runs.iter().copied()) {
                Ok(()) => {}
                // The dtype does not support this draw, for the definition too; or its remainder would be far
                // from even.
                Err(Error::Draw { reason, .. }) if reason.contains("far from uniform") => continue,
                Err(error) => {
                    assert_eq!(definition::element(&key, draw, dtype, 0), Err(error));
                    continue;
                }
            }
            let indices = runs.iter().flat_map(|run| run.indices());
            // Whole blocks and partial blocks, with every offset in a block.
            for (index, got) in indices.zip(bytes.chunks_exact(item)).step_by(7) {
                assert_eq!(definition::element(&key, draw, dtype, index).unwrap(), got, "{key} {draw} {dtype} {index}");
            }
        }
        true
    }

    fn pieces_are_those_of_the_whole(key: AnyKey, draw: AnyDraw, start: u16, len: u16, stride: u8) -> bool {
        let (AnyKey(key), AnyDraw(draw)) = (key, draw);
        let dtype = DType::ALL.into_iter().rev().find(|dtype| draw.check(*dtype).is_ok());
        let Some(dtype) = dtype else { return true };
        let item = dtype.element_bytes().unwrap();
        let (start, len, stride) = (u64::from(start % 1500), u64::from(len % 900), u64::from(stride % 4));
        let numel = start + len * stride + 1;
        let shape = [numel as usize];
        let mut whole = vec![0; numel as usize * item];
        fill(&key, draw, dtype, &mut whole, &shape, [IndexRun::all(numel)]).unwrap();
        let run = IndexRun { start, len, stride };
        let mut piece = vec![0; len as usize * item];
        fill(&key, draw, dtype, &mut piece, &shape, [run]).unwrap();
        run.indices().zip(piece.chunks_exact(item)).all(|(i, got)| got == &whole[i as usize * item..][..item])
    }

    fn keys_are_read_as_they_are_printed(key: AnyKey) -> bool {
        key.0.to_string().parse() == Ok(key.0)
    }

    fn draws_are_read_as_they_are_printed(draw: AnyDraw) -> bool {
        draw.0.to_string().parse() == Ok(draw.0)
    }

    fn a_text_that_is_read_as_a_key_prints_as_one_that_is_the_same(text: String) -> bool {
        text.parse::<Key>().is_err() && text.parse::<Draw>().is_err()
            || text.parse::<Draw>().is_ok_and(|draw| draw.to_string().parse() == Ok(draw))
    }

    fn keys_that_are_split_off_or_folded_in_differ(key: AnyKey, data: Vec<u64>) -> bool {
        let AnyKey(key) = key;
        let mut seen: HashSet<Key> = key.split(100).collect();
        assert_eq!(seen.len(), 100);
        let data: HashSet<u64> = data.into_iter().filter(|&i| i >= 100).collect();
        data.iter().all(|&i| seen.insert(key.fold_in(i)))
    }
}

#[test]
fn standard_draws_are_read_by_their_names() {
    for draw in Draw::STANDARD {
        assert_eq!(draw.name().parse(), Ok(draw));
        assert_eq!(draw.to_string().parse(), Ok(draw));
    }
    for generator in Generator::ALL {
        assert_eq!(generator.to_string().parse(), Ok(generator));
    }
    let draw = Draw::Uniform { low: 1e-300, high: 0.1 + 0.2 };
    assert_eq!(draw.to_string(), "uniform(1e-300,0.30000000000000004)");
}

/// Returns `n` numbers, ascending.
fn sample(key: &Key, draw: Draw, n: usize) -> Vec<f64> {
    let mut bytes = vec![0; n * 8];
    fill(key, draw, DType::F64, &mut bytes, &[n], [IndexRun::all(n as u64)]).unwrap();
    let mut numbers: Vec<f64> =
        bytes.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// Returns the allowed distance between the distribution of a sample and `cdf`.
///
/// It is exceeded with a probability of 1e-9 (Dvoretzky, Kiefer and Wolfowitz). For numbers of another
/// distribution, the distance does not decrease with their count.
fn distance_allowed(n: usize) -> f64 {
    ((2.0f64 / 1e-9).ln() / (2.0 * n as f64)).sqrt()
}

fn distance(sample: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    let n = sample.len() as f64;
    let at = |(i, &x): (usize, &f64)| (cdf(x) - i as f64 / n).abs().max((cdf(x) - (i + 1) as f64 / n).abs());
    sample.iter().enumerate().map(at).fold(0.0, f64::max)
}

/// The probability of a value below a number.
type Cdf<'a> = &'a dyn Fn(f64) -> f64;

#[test]
fn numbers_are_distributed_as_they_should_be() {
    let n = 200_000;
    let below = |x: f64| f64::midpoint(1.0, libm::erf(x / 2f64.sqrt()));
    let (least, most) = (below(-1.0), below(2.5));
    let euler = 0.577_215_664_901_532_9;
    let cases: [(&str, Cdf<'_>, f64, f64); 6] = [
        ("uniform", &|x| x, 0.5, 1.0 / 12.0),
        ("uniform(-3,5)", &|x| (x + 3.0) / 8.0, 1.0, 64.0 / 12.0),
        ("normal", &below, 0.0, 1.0),
        ("normal(10,0.5)", &|x| below((x - 10.0) / 0.5), 10.0, 0.25),
        ("exponential", &|x| 1.0 - (-x).exp(), 1.0, 1.0),
        ("gumbel", &|x| (-(-x).exp()).exp(), euler, std::f64::consts::PI.powi(2) / 6.0),
    ];
    for key in [Key::new(2), Key::with(Generator::Philox, 2), Key::new(2).fold_in(5)] {
        for (draw, cdf, mean, variance) in cases {
            let numbers = sample(&key, draw.parse().unwrap(), n);
            let far = distance(&numbers, cdf);
            assert!(far < distance_allowed(n), "{key} {draw}: {far}");
            let found = numbers.iter().sum::<f64>() / n as f64;
            // Six deviations of a mean of n.
            assert!((found - mean).abs() < 6.0 * (variance / n as f64).sqrt(), "{key} {draw}: mean {found}");
            let found = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            // The fourth moment of none of these is more than 10 squares of the variance.
            assert!(
                (found / variance - 1.0).abs() < 6.0 * (10.0 / n as f64).sqrt(),
                "{key} {draw}: variance {found}"
            );
        }
        let truncated = sample(&key, "truncated_normal(-1,2.5)".parse().unwrap(), n);
        assert!(truncated[0] > -1.0 && truncated[n - 1] < 2.5);
        assert!(distance(&truncated, |x| (below(x) - least) / (most - least)) < distance_allowed(n));
        // Another distribution is distinguished from it.
        assert!(distance(&truncated, below) > 2.0 * distance_allowed(n));
    }
}

#[test]
fn integers_and_masks_are_as_likely_as_they_should_be() {
    let n = 120_000;
    for key in [Key::new(3), Key::with(Generator::Philox, 3)] {
        let mut bytes = vec![0u8; n];
        let randint = Draw::RandInt { low: 10, high: 16 };
        fill(&key, randint, DType::U8, &mut bytes, &[n], [IndexRun::all(n as u64)]).unwrap();
        for value in 10..16 {
            let (found, p) = (bytes.iter().map(|&x| f64::from(u8::from(x == value))).sum::<f64>(), 1.0 / 6.0);
            assert!(
                (found - n as f64 * p).abs() < 6.0 * (n as f64 * p * (1.0 - p)).sqrt(),
                "{value}: {found}"
            );
        }
        assert!(bytes.iter().all(|x| (10..16).contains(x)));
        for p in [0.0, 0.25, 0.9, 1.0] {
            fill(&key, Draw::Bernoulli { p }, DType::Bool, &mut bytes, &[n], [IndexRun::all(n as u64)])
                .unwrap();
            let found = bytes.iter().map(|&x| f64::from(x)).sum::<f64>();
            let allowed = 6.0 * (n as f64 * p * (1.0 - p)).sqrt();
            assert!((found - n as f64 * p).abs() <= allowed, "{p}: {found}");
            // A mask is the same in every dtype.
            let mut floats = vec![0u8; 4 * n];
            fill(&key, Draw::Bernoulli { p }, DType::F32, &mut floats, &[n], [IndexRun::all(n as u64)])
                .unwrap();
            let ones = floats.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap()));
            assert!(ones.zip(&bytes).all(|(x, &y)| x.to_bits() == f32::from(y).to_bits()));
        }
    }
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let said = |draw: Draw, dtype: DType, bytes: usize, shape: &[usize], runs: &[IndexRun]| {
        let error =
            fill(&Key::new(0), draw, dtype, &mut vec![0; bytes], shape, runs.iter().copied()).unwrap_err();
        (error.code(), error.to_string())
    };
    let draw = |draw: Draw, dtype: DType| said(draw, dtype, 0, &[0], &[]);
    assert_eq!(
        draw(Draw::RandInt { low: 0, high: 2 }, DType::F32),
        ("dtype", "cannot draw randint(0,2) as f32; supported dtypes: integers".into())
    );
    assert_eq!(
        draw(Draw::Bits, DType::I32),
        ("dtype", "cannot draw bits as i32; supported dtypes: u8, u16, u32, u64".into())
    );
    assert_eq!(draw(Draw::Gumbel, DType::F8_E4M3).0, "dtype");
    assert_eq!(draw(Draw::Bernoulli { p: 0.5 }, DType::F4).0, "dtype");
    let uniform = |low: f64, high: f64, dtype: DType| draw(Draw::Uniform { low, high }, dtype);
    assert_eq!(
        uniform(1.0, 0.0, DType::F32),
        ("draw", "invalid distribution uniform(1,0): 1 is not less than 0".into())
    );
    assert_eq!(
        uniform(1.0, 1.0001, DType::BF16).1,
        "invalid distribution uniform(1,1.0001): both bounds round to 1 in bf16"
    );
    assert_eq!(
        uniform(f64::NAN, 1.0, DType::F32).1,
        "invalid distribution uniform(NaN,1): NaN is not finite"
    );
    assert_eq!(
        uniform(0.0, 1e39, DType::F32).1,
        "invalid distribution uniform(0,1e39): out of the range of f32"
    );
    assert_eq!(uniform(-3e38, 3e38, DType::F32).0, "draw");
    for p in [-0.1, 1.1, f64::NAN] {
        assert_eq!(draw(Draw::Bernoulli { p }, DType::Bool).0, "draw");
    }
    assert_eq!(
        draw(Draw::Normal { mean: 0.0, std: -1.0 }, DType::F32).1,
        "invalid distribution normal(0,-1): the standard deviation -1 is negative"
    );
    assert_eq!(
        draw(Draw::RandInt { low: 0, high: 300 }, DType::U8).1,
        "invalid distribution randint(0,300): u8 only has integers from 0 to 255"
    );
    assert_eq!(draw(Draw::RandInt { low: 5, high: 5 }, DType::U8).0, "draw");
    let wide = Draw::RandInt { low: 0, high: 300_000_000 };
    let philox = Key::with(Generator::Philox, 0);
    let error = fill(&philox, wide, DType::I32, &mut [], &[0], []).unwrap_err();
    assert!(error.to_string().contains("use i64, u64, threefry or a power of two"), "{error}");
    assert_eq!(fill(&philox, wide, DType::I64, &mut [], &[0], []), Ok(()));

    let run = |start, len, stride| [IndexRun { start, len, stride }];
    let bits =
        |bytes: usize, shape: &[usize], runs: &[IndexRun]| said(Draw::Bits, DType::U32, bytes, shape, runs);
    assert_eq!(
        bits(12, &[2, 3], &run(4, 3, 1)),
        ("out_of_bounds", "the indices 4 + 3 x 1 are outside a tensor of 6 elements".into())
    );
    assert_eq!(bits(12, &[2, 3], &run(u64::MAX, 3, u64::MAX)).0, "out_of_bounds");
    assert_eq!(
        bits(8, &[2, 3], &run(0, 3, 1)),
        ("size", "3 elements have 12 bytes, but the target has 8".into())
    );
    let large = [1 << 33, 1 << 32];
    assert_eq!(
        bits(0, &large, &[]).1,
        "a tensor of shape [8589934592, 4294967296] has more than 2^64 elements, the limit of 64-bit indices"
    );
    // As many elements as there are indices, and no element of a tensor that has an empty dim.
    let key = Key::new(0);
    let last = [IndexRun { start: u64::MAX, len: 1, stride: 1 }];
    assert_eq!(fill(&key, Draw::Bits, DType::U32, &mut [0; 4], &[1 << 32, 1 << 32], last), Ok(()));
    assert_eq!(fill(&key, Draw::Bits, DType::U32, &mut [], &[usize::MAX, 0, usize::MAX], []), Ok(()));
    for (text, kind) in
        [("unifrom", "parse"), ("uniform(0", "parse"), ("uniform(0,x)", "parse"), ("uniform(2,1)", "draw")]
    {
        assert_eq!(text.parse::<Draw>().unwrap_err().code(), kind, "{text}");
    }
    assert!("threefry2x32:0,1".parse::<Key>().unwrap_err().to_string().contains("invalid key"));
    assert!("mt19937".parse::<Generator>().unwrap_err().to_string().contains("expected threefry or philox"));
}
