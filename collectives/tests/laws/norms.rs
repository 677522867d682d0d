//! Partial values of norms on threads, compared with the definition in f64.
//!
//! The tests cover every pair of placements, an exponent for every algorithm, and every float. The global
//! tensor of such shards is the p-th root of the sum of the p-th powers of their magnitudes; for infinity,
//! the maximum of the magnitudes. So no code here combines two norms.
#![allow(clippy::wildcard_enum_match_arm, reason = "only f64 is left of the four floats")]

use half::{bf16, f16};
use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Exponent, Mesh, Sharding};
use reshard_test_support::{Sweep, every};

use crate::pair::{check_promises, term_of};

/// The types that have norms.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Float {
    F64,
    F32,
    BF16,
    F16,
}

impl Float {
    const ALL: [Float; 4] = [Float::F64, Float::F32, Float::BF16, Float::F16];

    fn dtype(self) -> DType {
        match self {
            Float::F64 => DType::F64,
            Float::F32 => DType::F32,
            Float::BF16 => DType::BF16,
            Float::F16 => DType::F16,
        }
    }

    fn bytes_of(self, x: f64) -> Vec<u8> {
        match self {
            Float::F64 => x.to_ne_bytes().to_vec(),
            Float::F32 => (x as f32).to_ne_bytes().to_vec(),
            Float::BF16 => bf16::from_f64(x).to_ne_bytes().to_vec(),
            Float::F16 => f16::from_f64(x).to_ne_bytes().to_vec(),
        }
    }

    fn read(self, bytes: &[u8]) -> Vec<f64> {
        let one = |b: &[u8]| match self {
            Float::F64 => f64::from_ne_bytes(b.try_into().unwrap()),
            Float::F32 => f64::from(f32::from_ne_bytes(b.try_into().unwrap())),
            Float::BF16 => bf16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
            Float::F16 => f16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
        };
        bytes.chunks_exact(self.dtype().element_bytes().unwrap()).map(one).collect()
    }

    /// The unit of rounding.
    fn rounding(self) -> f64 {
        match self {
            Float::F64 => f64::EPSILON,
            Float::F32 => f64::from(f32::EPSILON),
            Float::BF16 => bf16::EPSILON.to_f64(),
            Float::F16 => f16::EPSILON.to_f64(),
        }
    }
}

/// Parses a sharding from a text with `NORM` for the partial values.
fn sharding(mesh: &Mesh, shape: &[usize], text: &str, op: &str) -> Sharding {
    Sharding::parse(mesh, shape, &text.replace("NORM", &format!("P({op})"))).unwrap()
}

/// Returns the global tensor of shards, by the definition.
fn denoted(mesh: &Mesh, shape: &[usize], text: &str, p: Exponent, shards: &[Vec<f64>]) -> Vec<f64> {
    if !text.contains("NORM") {
        return sharding(mesh, shape, text, "").assemble(shards).unwrap();
    }
    let of = |f: &dyn Fn(f64) -> f64, op: &str| {
        let made: Vec<Vec<f64>> = shards.iter().map(|s| s.iter().map(|&x| f(x.abs())).collect()).collect();
        sharding(mesh, shape, text, op).assemble(&made).unwrap()
    };
    if p.is_infinite() {
        return of(&|x| x, "max");
    }
    of(&|x| x.powf(p.value()), "sum").into_iter().map(|x| x.powf(1.0 / p.value())).collect()
}

/// Checks one pair: partial inputs have numbers of both signs, others that become partial have none below 0.
#[allow(clippy::too_many_arguments, reason = "all parameters of one test case")]
fn check(
    world: &mut World,
    planner: &Planner,
    (float, p): (Float, Exponent),
    (mesh, shape): (&Mesh, &[usize]),
    [from, to]: [&str; 2],
) {
    let op = format!("norm{p}");
    let (source, target) = (sharding(mesh, shape, from, &op), sharding(mesh, shape, to, &op));
    let what = format!("{float:?}: {source} on {mesh} -> {target} of {shape:?}");
    let plan = planner.plan(&source, &target, float.dtype()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let placements = source.placements().unwrap().to_vec();
    let shard = |rank: usize| -> Vec<u8> {
        let term = term_of(mesh, &placements, rank);
        let value = |e: usize| {
            let x = 1.0 + ((e * 7 + term * 11) % 13) as f64 * 0.37;
            // Some partial values are 0, and some are negative.
            let sign = if source.is_partial() { [1.0, -1.0, 0.0, 1.0, -1.0][(e + term) % 5] } else { 1.0 };
            sign * x
        };
        source.global_indices(rank).unwrap().into_iter().flat_map(|e| float.bytes_of(value(e))).collect()
    };
    let data: Vec<Vec<u8>> = mesh.ranks().map(shard).collect();
    let (result, trace) = world.redistribute(&plan, &data).unwrap_or_else(|e| panic!("{what}: {e}\n{plan}"));
    check_promises(&plan, &trace, &what);
    let numbers = |shards: &[Vec<u8>]| shards.iter().map(|s| float.read(s)).collect::<Vec<_>>();
    let before = denoted(mesh, shape, from, p, &numbers(&data));
    // `meaning` rejects replicas that differ in some bit.
    let after = denoted(mesh, shape, to, p, &numbers(&result));
    // Each of the world's partial values rounds once, and its root by 1/p units.
    let allowed = float.rounding() * mesh.size() as f64 * (1.0 + 1.0 / p.value());
    for (a, b) in before.iter().zip(&after) {
        assert!((a - b).abs() <= allowed * a, "{what}: {b} is not {a}\n{plan}");
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn norms_keep_their_meaning_between_all_pairs() {
    let per_axis = ["R", "S(0)", "S(1)", "SS(0,2)", "NORM"];
    let (sweep, mut number, mut done) = (Sweep::asked(), 0, 0);
    for (m, mesh) in ["x=2", "x=3", "x=2,y=2", "x=2,y=3", "x=4,y=2"].into_iter().enumerate() {
        let mesh: Mesh = mesh.parse().unwrap();
        let mut world = World::new(mesh.size()).unwrap();
        let lists = every(&per_axis, mesh.axes().len());
        for shape in [&[12, 12][..], &[7, 5], &[1, 2], &[0, 5]] {
            for (i, from) in lists.iter().enumerate() {
                for (j, to) in lists.iter().enumerate() {
                    let (from, to) = (from.join(","), to.join(","));
                    if !from.contains("NORM") && !to.contains("NORM") {
                        continue;
                    }
                    // All exponents and floats on one axis, each pair with one of them on two.
                    let exponents = ["2", "1", "3", "inf", "2.5", "0.5"].map(|p| p.parse().unwrap());
                    for (k, (p, float)) in
                        exponents.iter().flat_map(|p| Float::ALL.map(|f| (*p, f))).enumerate()
                    {
                        number += 1;
                        if (m < 2 || k == (i * 5 + j) % 24) && sweep.picks(8, number) {
                            let objective = Objective::ALL[(i + j) % Objective::ALL.len()];
                            let planner = Planner::new().objective(objective).deterministic(k % 4 == 3);
                            check(&mut world, &planner, (float, p), (&mesh, shape), [&from, &to]);
                            done += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(done > sweep.least(400, 4000), "{done}");
}

#[test]
fn a_norm_of_what_no_square_holds_is_right() {
    let mesh: Mesh = "x=4".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[2], text).unwrap();
    let mut world = World::new(4).unwrap();
    for float in [Float::F64, Float::F32] {
        let plan = Planner::new().plan(&of("P(norm2)"), &of("R"), float.dtype()).unwrap();
        // The square of the first is infinite, and that of the second 0, in f32 and in f64.
        let (big, small) = if float == Float::F64 { (3e200, 3e-200) } else { (3e30, 3e-30) };
        let data = vec![[float.bytes_of(big), float.bytes_of(small)].concat(); 4];
        let (result, _) = world.redistribute(&plan, &data).unwrap();
        for x in result.iter().map(|bytes| float.read(bytes)) {
            assert!(
                (x[0] / (2.0 * big) - 1.0).abs() < 1e-6 && (x[1] / (2.0 * small) - 1.0).abs() < 1e-6,
                "{x:?}"
            );
        }
    }
}

#[test]
fn norms_of_integers_are_refused_in_a_sentence() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[4], text).unwrap();
    for (dtype, message) in [
        (DType::I32, "norm2 is not defined for i32"),
        (DType::Bool, "norm2 is not defined for bool"),
        (DType::C64, "norm2 is not defined for c64"),
    ] {
        let error = Planner::new().plan(&of("P(norm2)"), &of("R"), dtype).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.code()), (message, "arithmetic"));
    }
}
