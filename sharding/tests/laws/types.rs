//! Types and cotangent shardings: the product of a tensor and a gradient, and one text for every type.
use reshard_sharding::{Error, Mesh, Placement, Sharding, ShardingType};
use reshard_test_support::{Random, Sweep, every, random_mesh, random_shape, random_sharding, shards_of};

/// Shards of small numbers.
fn small(s: &Sharding, seed: u64) -> Vec<Vec<i64>> {
    let all = shards_of(s, seed);
    all.into_iter().map(|shard| shard.into_iter().map(|x| x / 720_720).collect()).collect()
}

fn product<'a>(a: impl IntoIterator<Item = &'a i64>, b: impl IntoIterator<Item = &'a i64>) -> i64 {
    a.into_iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The sum of the products that the ranks compute locally.
fn by_ranks(a: &[Vec<i64>], b: &[Vec<i64>]) -> i64 {
    a.iter().zip(b).map(|(a, b)| product(a, b)).sum()
}

/// Returns `true` if shards of both pair to the product of the tensors that they denote.
fn pairs(s: &Sharding, t: &Sharding, seed: u64) -> bool {
    let (x, y) = (small(s, seed), small(t, seed ^ 0x5bd1_e995));
    by_ranks(&x, &y) == product(&s.assemble(&x).unwrap(), &t.assemble(&y).unwrap())
}

/// All small shardings, then random ones.
fn shardings() -> Vec<Sharding> {
    let mut all = Vec::new();
    for mesh in ["x=1", "x=2", "x=3", "a=2,b=2", "a=2,b=3"].map(|m| m.parse::<Mesh>().unwrap()) {
        for words in every(&["R", "P", "S(0)", "S(1)", "SS(0,2)", "Z(1)"], mesh.axes().len()) {
            for shape in [[4, 6], [5, 3], [0, 2], [1, 1]] {
                all.extend(Sharding::parse(&mesh, &shape, &words.join(",")));
            }
        }
    }
    let mut r = Random(Sweep::asked().seed() + 17);
    for _ in 0..Sweep::asked().count(1_000, 200_000) {
        let (mesh, shape) = (random_mesh(&mut r), random_shape(&mut r));
        all.push(random_sharding(&mut r, &mesh, &shape));
    }
    all
}

#[test]
fn a_sharding_and_its_dual_pair_to_the_product_of_the_tensors() {
    for (i, s) in shardings().iter().enumerate() {
        let dual = s.cotangent().unwrap();
        assert!(pairs(s, &dual, i as u64), "{s} of {:?} on {}, with {dual}", s.shape(), s.mesh());
        assert_eq!(dual.cotangent().as_ref(), Ok(s), "{s} on {}", s.mesh());
    }
}

/// The mutant `R* = R`: the common value of replicas is counted once for each.
#[test]
fn replicas_are_not_their_own_dual() {
    let (mut wrong, mut tried) = (0, 0);
    for (i, s) in shardings().iter().enumerate() {
        let replicas: usize = s.replicated_axes().iter().map(|sub| sub.size).product();
        if replicas == 1 || s.is_partial() {
            continue;
        }
        let whole = small(s, i as u64);
        let product = product(&s.assemble(&whole).unwrap(), &s.assemble(&whole).unwrap());
        tried += 1;
        wrong += usize::from(by_ranks(&whole, &whole) != product);
        assert_eq!(by_ranks(&whole, &whole), product * replicas as i64, "{s}");
    }
    assert!(wrong > tried / 2, "{wrong} of {tried} are seen");
}

fn any_type(r: &mut Random) -> ShardingType {
    let (mesh, shape) = (random_mesh(r), random_shape(r));
    let value = random_sharding(r, &mesh, &shape);
    let gradient = match r.below(6) {
        0 => None,
        1 => Some(value.clone()),
        2 | 3 => Some(random_sharding(r, &mesh, &shape)),
        _ => return ShardingType::from_value(value).unwrap(),
    };
    ShardingType::new(value, gradient)
}

#[test]
fn every_text_of_a_type_comes_back() {
    let mut r = Random(Sweep::asked().seed() + 5);
    let (mut by_tensor, mut specs, mut rounds) = (0, 0, 0);
    for _ in 0..Sweep::asked().count(1_000, 200_000) {
        let t = any_type(&mut r);
        let comes_back = |text: &str| {
            assert_eq!(
                ShardingType::parse(t.value.mesh(), t.value.shape(), text).as_ref(),
                Ok(&t),
                "{text} on {}",
                t.value.mesh()
            );
            1
        };
        rounds += comes_back(&t.to_string());
        by_tensor += t.to_dims_notation().map_or(0, |text| comes_back(&text));
        specs += t.to_partition_spec().map_or(0, |text| comes_back(&text));
        assert_eq!(t.gradient_type().and_then(|t| t.gradient_type()), t.gradient.as_ref().map(|_| t.clone()));
    }
    assert!(by_tensor > rounds / 6 && specs > rounds / 8, "{by_tensor} and {specs} of {rounds}");
}

#[test]
fn spellings_of_one_type() {
    let mesh: Mesh = "dp=2,tp=4".parse().unwrap();
    let all: [&[&str]; 8] = [
        &[
            "S(0),R",
            "[{dp},{}] reduced={tp}",
            "P('dp', reduced={'tp'})",
            "S(0)|S(0),R|P",
            "(S(0),R)|(S(0),P)",
        ],
        &["S(0),I", "[{dp},{}]", "P('dp')", "S(0),R|R", "S(0), I", "PartitionSpec('dp', None)"],
        &["S(0),P(sum)", "S(0),P", "[{dp},{}] unreduced={tp}", "P('dp', unreduced={'tp'})", "S(0),P|R"],
        &["R|S(0),S(1)", "(R,S(1))|(S(0),S(1))", "([{},{tp}])|([{dp},{tp}])"],
        &["S(0)|-,R|-", "(S(0),R)|-", "(P('dp'))|-"],
        &["I,I", "[{},{}]", "P()", "#sdy.sharding<@mesh, [{}, {}]>"],
        &["R,R", "[{},{}] reduced={dp,tp}", "RR", "P(reduced={'dp', 'tp'})"],
        &["P(max)|R,R|R", "P(max)|R,I", "(P(max),R)|(R,R)"],
    ];
    for spellings in all {
        let first = ShardingType::parse(&mesh, &[8, 8], spellings[0]).unwrap();
        for text in spellings {
            assert_eq!(ShardingType::parse(&mesh, &[8, 8], text).as_ref(), Ok(&first), "{text}");
        }
    }
    for spellings in &all[..7] {
        assert_eq!(ShardingType::parse(&mesh, &[8, 8], spellings[0]).unwrap().to_string(), spellings[0]);
    }
}

#[test]
fn refusals_of_types_have_their_kind() {
    let mesh: Mesh = "dp=2,tp=4".parse().unwrap();
    for (text, kind) in [
        ("P(max),R", "no_gradient"),
        ("P(avg),I", "no_gradient"),
        ("[{dp},{}] unreduced={tp:max}", "no_gradient"),
        ("I", "placement_count"),
        ("S(0)|-,R", "parse"),
        ("S(0)|R|R,R", "parse"),
        ("S(0)|,R", "parse"),
        ("I|R,R", "parse"),
        ("(S(0),R)|", "parse"),
        ("S(7)|R,I", "no_such_dim"),
        ("[{dp},{}] reduced={dp}", "parse"),
        ("[{dp},{}] reduced={pp}", "no_such_axis"),
        ("P('dp', reduced={'dp'})", "parse"),
        ("", "placement_count"),
    ] {
        let e = ShardingType::parse(&mesh, &[8, 8], text).unwrap_err();
        assert_eq!(e.code(), kind, "{text:?}: {e}");
        assert!(e.to_string().len() < 2_000);
    }
    // A sharding is of values.
    for text in ["[{dp},{}] reduced={tp}", "P('dp', reduced={'tp'})"] {
        assert_eq!(Sharding::parse(&mesh, &[8, 8], text).unwrap_err().code(), "not_expressible", "{text}");
    }
    assert_eq!(Sharding::parse(&mesh, &[8, 8], "I,R").unwrap_err().code(), "parse");
}

const PIECES: [&str; 19] = [
    "I",
    "R",
    "S(0)",
    "P",
    "|",
    "||",
    ",",
    "(",
    ")",
    "-",
    "[{dp},{}]",
    " reduced={",
    "tp}",
    "é",
    "P('dp', reduced=",
    "order={dp,tp}",
    "{",
    "]",
    " ",
];

#[test]
fn no_text_makes_the_reader_of_types_panic() {
    let mesh: Mesh = "dp=2,tp=4".parse().unwrap();
    let mut r = Random(3);
    for _ in 0..Sweep::asked().count(4_000, 1_000_000) {
        let text: String = (0..r.below(9)).map(|_| *r.pick(&PIECES)).collect();
        if let Ok(t) = ShardingType::parse(&mesh, &[8, 8], &text) {
            assert_eq!(ShardingType::parse(&mesh, &[8, 8], &t.to_string()), Ok(t), "{text}");
        }
    }
}

/// A type on axes of one rank is written as on two ranks each, in all notations.
#[test]
fn types_of_one_rank_are_written_as_those_of_two() {
    let words = ["R", "I", "S(0)", "S(1)", "P", "R|S(0)"];
    let on = |[a, b]: [usize; 2]| -> Mesh { format!("a={a},b={b}").parse().unwrap() };
    let mut types: Vec<String> = every(&words, 2).into_iter().map(|words| words.join(",")).collect();
    types.extend(["S(0)|-,R|-", "R|-,P(max)|-", "R,P(max)", "P(max),S(0)"].map(str::to_owned));
    for dims in ["{},{a}", "{a},{b}", "{a,b},{}", "{b,a},{}", "{},{}"] {
        types.push(format!("[{dims}]"));
    }
    types
        .extend(["[{},{a}] reduced={b}", "[{b},{}] unreduced={a}", "[{},{}] reduced={a}"].map(str::to_owned));
    let (mut right, mut wrong) = (0, 0);
    for text in &types {
        let two = ShardingType::parse(&on([2, 2]), &[16, 16], text);
        for sizes in [[1, 2], [2, 1], [1, 1]] {
            let one = ShardingType::parse(&on(sizes), &[16, 16], text);
            let two = match (&one, &two) {
                // Chunks that one axis leaves to another are of sizes.
                (_, Ok(two)) if two.to_string().contains("SS(") => continue,
                (Ok(_), Ok(two)) => two,
                (one, two) => {
                    let code = |of: &Result<ShardingType, Error>| of.as_ref().err().map(Error::code);
                    assert_eq!(code(one), code(two), "{text} on {sizes:?}");
                    wrong += 1;
                    continue;
                }
            };
            let one = one.unwrap();
            let written = |of: &ShardingType| {
                let other = [of.to_dims_notation(), of.to_partition_spec()].map(Result::ok);
                (of.to_string(), other, of.gradient_type().map(|of| of.to_string()))
            };
            assert_eq!(written(&one), written(two), "{text} on {sizes:?}");
            assert_eq!(written(&one.clone().without_gradient()), written(&two.clone().without_gradient()));
            // Equality is that of the shardings.
            assert_eq!(one, ShardingType::new(one.value.clone(), one.gradient.clone()), "{text}");
            right += 1;
        }
    }
    assert!(right > 100 && wrong > 5, "{right} and {wrong}");
    // Placements are the same as their text.
    let placed = [Placement::Shard(0), Placement::Replicate];
    let is = ShardingType::from_placements(&on([1, 1]), &[16, 16], &placed).unwrap();
    assert_eq!((is.to_string().as_str(), is.value.to_string().as_str()), ("S(0),R", "R,R"));
}
