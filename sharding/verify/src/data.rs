//! Data that proves something: whole tensors, and partial values of them.
//!
//! Partial values are made from the whole, so that their reduction is it exactly:
//!
//! ```text
//! sum    offsets of both signs; the last partial value compensates for them
//! avg    the same, for n times the whole
//! prod   random signs and powers of two, whose inverses are exact
//! max    a random rank holds the value, the others random lesser ones or the identity, as an empty shard does
//! min    likewise
//! norm   random shares of the remaining power, of both signs; of a whole that is never negative
//! ```

use reshard_sharding::ReduceOp;

/// A small generator of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// The numbers below `n` in random order.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            all.swap(i, self.below(i + 1));
        }
        all
    }
}

/// The kind of numbers of an input.
#[derive(Clone, Copy, Debug)]
pub enum Data {
    /// Whole numbers from -9 to 9.
    Integers,
    /// Integers of both signs, all different.
    Distinct,
    /// Multiples of 1/64 between -3 and 3.
    Real,
    /// Multiples of 1/64 above 0, at most 4.
    Positive,
    /// Indices.
    Index {
        /// One more than the greatest.
        below: usize,
    },
    /// Truth values, of which `ones` percent are true; in every third tensor half of them.
    Mask {
        /// Percent.
        ones: usize,
    },
    /// The data that this function makes for a shape.
    Made(fn(&[usize], &mut Random) -> Vec<f64>),
}

impl Data {
    /// A whole tensor.
    pub fn whole(self, shape: &[usize], r: &mut Random) -> Vec<f64> {
        let n: usize = shape.iter().product();
        match self {
            Data::Integers => (0..n).map(|_| r.below(19) as f64 - 9.0).collect(),
            Data::Distinct => r.permutation(n).into_iter().map(|i| 3.0 * i as f64 - n as f64).collect(),
            Data::Real => (0..n).map(|_| (r.below(383) as f64 - 191.0) / 64.0).collect(),
            Data::Positive => (0..n).map(|_| (1 + r.below(256)) as f64 / 64.0).collect(),
            Data::Index { below } => (0..n).map(|_| r.below(below) as f64).collect(),
            Data::Mask { ones } => {
                let ones = if r.below(3) == 0 { 50 } else { ones };
                (0..n).map(|_| f64::from(u8::from(r.below(100) < ones))).collect()
            }
            Data::Made(make) => make(shape, r),
        }
    }

    /// The bounds within which a lesser or greater value is still valid.
    fn bounds(self) -> (f64, f64) {
        match self {
            Data::Integers | Data::Distinct | Data::Real => (f64::NEG_INFINITY, f64::INFINITY),
            Data::Positive => (1.0 / 64.0, f64::INFINITY),
            Data::Index { below } => (0.0, below as f64 - 1.0),
            Data::Mask { .. } => (0.0, 1.0),
            Data::Made(_) => (0.0, f64::INFINITY),
        }
    }

    /// Returns the granularity of these numbers; partial values are at least as fine.
    fn grain(self) -> f64 {
        match self {
            Data::Integers | Data::Distinct | Data::Index { .. } | Data::Mask { .. } => 1.0,
            Data::Real | Data::Positive | Data::Made(_) => 1.0 / 64.0,
        }
    }

    /// Returns `n` partial values whose reduction is the whole.
    pub fn terms(self, op: ReduceOp, whole: &[f64], n: usize, r: &mut Random) -> Vec<Vec<f64>> {
        let mut terms = vec![Vec::with_capacity(whole.len()); n];
        let (low, high) = self.bounds();
        let grain = self.grain();
        // The number of grains that make about 12.
        let most = (12.0 / grain) as usize;
        for &x in whole {
            let last = r.below(n);
            if !x.is_finite() {
                odd_terms(op, x, last, &mut terms, r);
                continue;
            }
            let mut left = if op.divides() { x * n as f64 } else { x };
            for i in (0..n).filter(|&i| i != last) {
                let less = if r.below(6) == 0 { f64::INFINITY } else { r.below(most / 2) as f64 * grain };
                let t = match op {
                    ReduceOp::Sum | ReduceOp::Avg => (r.below(2 * most + 1) as f64 - most as f64) * grain,
                    ReduceOp::Prod => [1.0, -1.0, 2.0, -2.0, 0.5, -0.5][r.below(6)],
                    ReduceOp::Max => (x - less).max(low),
                    ReduceOp::Min => (x + less).min(high),
                    ReduceOp::Norm(_) => left * [0.0, 0.25, -0.5, 0.75, -0.875, 0.5][r.below(6)],
                };
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => left -= t,
                    ReduceOp::Prod => left /= t,
                    ReduceOp::Min | ReduceOp::Max => {}
                    ReduceOp::Norm(p) if p.is_infinite() || t == 0.0 => {}
                    ReduceOp::Norm(p) => {
                        left = (left.powf(p.value()) - t.abs().powf(p.value())).powf(1.0 / p.value());
                    }
                }
                terms[i].push(t);
            }
            terms[last].push(left);
        }
        terms
    }
}

/// Makes partial values of an infinity or NaN: infinities of both signs, or one such value among finite ones.
fn odd_terms(op: ReduceOp, x: f64, last: usize, terms: &mut [Vec<f64>], r: &mut Random) {
    let other = r.below(8) as f64 + 0.5;
    let n = terms.len();
    let opposed = x.is_nan() && r.below(2) == 0;
    for (i, term) in terms.iter_mut().enumerate() {
        let (here, next) = (i == last, i == (last + 1) % n);
        term.push(match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod if opposed && here => f64::INFINITY,
            ReduceOp::Sum | ReduceOp::Avg if opposed && next => f64::NEG_INFINITY,
            ReduceOp::Prod if opposed && next => 0.0,
            ReduceOp::Sum | ReduceOp::Avg if here || (next && x.is_infinite()) => x,
            ReduceOp::Max if here || x == f64::NEG_INFINITY => x,
            ReduceOp::Min if here || x == f64::INFINITY => x,
            ReduceOp::Prod | ReduceOp::Norm(_) if here => x,
            ReduceOp::Sum
            | ReduceOp::Avg
            | ReduceOp::Prod
            | ReduceOp::Min
            | ReduceOp::Max
            | ReduceOp::Norm(_) => other,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_reduce_to_the_whole_and_differ_on_every_rank() {
        for data in [Data::Integers, Data::Distinct, Data::Real, Data::Positive, Data::Index { below: 5 }] {
            for op in ReduceOp::ALL {
                for n in [2, 3] {
                    let mut r = Random::new(7);
                    let mut whole = data.whole(&[40], &mut r);
                    if op.is_of_magnitudes() {
                        for x in &mut whole {
                            *x = x.abs();
                        }
                    }
                    let terms = data.terms(op, &whole, n, &mut r);
                    for (e, &x) in whole.iter().enumerate() {
                        let all = terms.iter().map(|t| t[e]);
                        let value = match op {
                            ReduceOp::Sum => all.sum::<f64>(),
                            ReduceOp::Avg => all.sum::<f64>() / n as f64,
                            ReduceOp::Prod => all.product(),
                            ReduceOp::Min => all.fold(f64::INFINITY, f64::min),
                            ReduceOp::Max => all.fold(f64::NEG_INFINITY, f64::max),
                            ReduceOp::Norm(_) => all.map(|t| t * t).sum::<f64>().sqrt(),
                        };
                        assert!((value - x).abs() < 1e-12, "{op} of {n}: {value} is not {x}");
                    }
                    // No rank's partial value is the whole, and each one matters.
                    for t in &terms {
                        assert_ne!(t, &whole);
                        assert!(t.iter().zip(&whole).any(|(a, b)| a.to_bits() == b.to_bits()
                            || op == ReduceOp::Sum
                            || op == ReduceOp::Avg
                            || op.is_of_magnitudes()));
                    }
                    assert!((1..n).all(|i| terms[i] != terms[0]));
                }
            }
        }
    }
}
