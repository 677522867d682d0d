//! The fixed lists of propagations that are timed: matrix products and sums of two tensors on meshes of 1 to 5 axes.

use reshard_kernels::DType;
use reshard_ops::Error;
use reshard_ops::propagate::Operand;
use reshard_ops::rules::Op;
use reshard_sharding::{Mesh, Sharding};

/// One list.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The name of the op: `mm` or `add`.
    pub op: &'static str,
    /// Its rule.
    pub rule: &'static str,
    /// The number of mesh axes, of 2 ranks each.
    pub axes: usize,
    /// `true` if every pair has partial values on some axis, `false` if none has.
    pub terms: bool,
    /// The target time, in microseconds.
    pub target_us: f64,
}

const OPS: [(&str, &str); 2] = [("mm", "mk,kn->mn"), ("add", "...,...->... {linear, increasing}")];
const TARGETS_US: [f64; 5] = [5.0, 15.0, 40.0, 150.0, 600.0];

/// Returns all lists.
pub fn lists() -> Vec<List> {
    let mut all = Vec::new();
    for (op, rule) in OPS {
        for (axes, target_us) in (1..).zip(TARGETS_US) {
            all.extend([false, true].map(|terms| List { op, rule, axes, terms, target_us }));
        }
    }
    all
}

/// Maximum number of pairs of a list.
///
/// A list has all pairs of the placements R, S(0), S(1) and P, or a sample of this size. The sample is drawn
/// by a fixed generator.
const PAIRS: usize = 48;

/// The mesh, the op and the inputs of a list.
#[derive(Debug)]
pub struct Problems {
    /// The mesh.
    pub mesh: Mesh,
    /// The op.
    pub op: Op,
    /// Pairs of inputs.
    pub inputs: Vec<[Operand; 2]>,
}

impl List {
    /// Returns the name: `mm_3` or `mm_3_terms`.
    pub fn name(&self) -> String {
        format!("{}_{}{}", self.op, self.axes, if self.terms { "_terms" } else { "" })
    }

    /// Returns the problems that are timed.
    pub fn problems(&self) -> Result<Problems, Error> {
        let names = ["a", "b", "c", "d", "e"];
        let mesh = Mesh::new(names[..self.axes].iter().map(|n| (*n, 2)))?;
        let shape = [1024usize, 1024];
        let op = Op::new(self.op, &self.rule.parse()?, &[&shape, &shape])?;
        let words = ["R", "S(0)", "S(1)", "P"];
        let all = 16u64.pow(self.axes as u32);
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 24) % all
        };
        let codes: Vec<u64> =
            if all <= 256 { (0..all).collect() } else { (0..8192).map(|_| draw()).collect() };
        let text = |code: u64| {
            let of = |axis: usize| words[(code >> (2 * axis)) as usize & 3];
            (0..self.axes).map(of).collect::<Vec<_>>().join(",")
        };
        let operand =
            |code: u64| Sharding::parse(&mesh, &shape, &text(code)).map(|s| Operand::new(DType::F32, s));
        let has_terms = |code: &u64| (0..2 * self.axes).any(|axis| code >> (2 * axis) & 3 == 3);
        let mut picked: Vec<u64> = codes.into_iter().filter(|c| has_terms(c) == self.terms).collect();
        // All pairs of two axes are more than the maximum: about every fifth is used.
        let step = if all <= 256 { picked.len().div_ceil(PAIRS) } else { 1 };
        picked = picked.into_iter().step_by(step).take(PAIRS).collect();
        let inputs = picked
            .into_iter()
            .map(|code| Ok([operand(code)?, operand(code >> (2 * self.axes))?]))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Problems { mesh, op, inputs })
    }
}
