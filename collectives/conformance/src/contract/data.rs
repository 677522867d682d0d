//! Generated tensors, and the expected results of redistributing them.
//!
//! A tensor is a function of (seed, partial value, element). It has numbers for reductions, which are exact
//! in the dtype, and plain bits if nothing is computed, so that every bit of every element is checked.

use half::{bf16, f16};
use reshard_kernels::DType;
use reshard_sharding::shards::Reducible;
use reshard_sharding::{ReduceOp, Sharding};

/// Mixes numbers into one (splitmix64).
pub(super) fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |state, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// The tested kinds of elements: each with a different arithmetic, and one without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    U8,
    Bool,
}

impl Kind {
    pub(super) const ALL: [Kind; 8] =
        [Kind::F64, Kind::F32, Kind::F16, Kind::BF16, Kind::I64, Kind::I32, Kind::U8, Kind::Bool];

    /// Returns the kind of a dtype, if it is tested.
    pub(super) fn of(dtype: DType) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.dtype() == dtype)
    }

    pub(super) fn dtype(self) -> DType {
        match self {
            Kind::F64 => DType::F64,
            Kind::F32 => DType::F32,
            Kind::F16 => DType::F16,
            Kind::BF16 => DType::BF16,
            Kind::I64 => DType::I64,
            Kind::I32 => DType::I32,
            Kind::U8 => DType::U8,
            Kind::Bool => DType::Bool,
        }
    }

    pub(super) fn item_bytes(self) -> usize {
        match self {
            Kind::F64 | Kind::I64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::F16 | Kind::BF16 => 2,
            Kind::U8 | Kind::Bool => 1,
        }
    }

    /// Returns the unit of rounding, if numbers are rounded.
    pub(super) fn rounding(self) -> Option<f64> {
        match self {
            Kind::F64 => Some(f64::EPSILON / 2.0),
            Kind::F32 => Some(f64::from(f32::EPSILON) / 2.0),
            Kind::F16 => Some(f64::from(f16::EPSILON) / 2.0),
            Kind::BF16 => Some(f64::from(bf16::EPSILON) / 2.0),
            Kind::I64 | Kind::I32 | Kind::U8 | Kind::Bool => None,
        }
    }

    /// Returns `true` if tensors of this kind support this reduction.
    pub(super) fn has(self, op: ReduceOp) -> bool {
        let needs_floats = op.divides() || op.is_of_magnitudes();
        self != Kind::Bool && (!needs_floats || self.rounding().is_some())
    }
}

/// A number of a dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

/// Returns a number that the dtype represents exactly: any integer, or a bounded float.
///
/// Floats are such that the sum or product of a few stays finite.
pub(super) fn number(kind: Kind, op: ReduceOp, seed: u64, term: usize, element: usize) -> Number {
    let bits = mix(&[seed, term as u64, element as u64]);
    if kind.rounding().is_some() {
        let (least, count) = if op == ReduceOp::Prod { (-1, 2) } else { (-2, 6) };
        let exponent = least + ((bits >> 8) % count) as i32;
        // As many bits as the dtype has, so that sums must round.
        let digits = match kind {
            Kind::F64 => f64::MANTISSA_DIGITS,
            Kind::F32 => f32::MANTISSA_DIGITS,
            Kind::F16 => f16::MANTISSA_DIGITS,
            Kind::BF16 | Kind::I64 | Kind::I32 | Kind::U8 | Kind::Bool => bf16::MANTISSA_DIGITS,
        } - 1;
        let fraction = (mix(&[bits]) >> (64 - digits)) as f64 / (1_u64 << digits) as f64;
        let magnitude = (1.0 + fraction) * 2f64.powi(exponent);
        // No partial value of a norm is negative.
        let negative = bits & 1 == 1 && !op.is_of_magnitudes();
        return Number::Float(if negative { -magnitude } else { magnitude });
    }
    Number::Int(match kind {
        Kind::U8 | Kind::Bool => i64::from(bits as u8),
        Kind::I32 => i64::from(bits as i32),
        Kind::F64 | Kind::F32 | Kind::F16 | Kind::BF16 | Kind::I64 => bits as i64,
    })
}

/// Writes a number's bytes, with integers truncated to the width.
pub(super) fn write(kind: Kind, number: Number, bytes: &mut Vec<u8>) {
    let (float, int) = match number {
        Number::Float(x) => (x, 0),
        Number::Int(i) => (0.0, i),
    };
    match kind {
        Kind::F64 => bytes.extend(float.to_ne_bytes()),
        Kind::F32 => bytes.extend((float as f32).to_ne_bytes()),
        Kind::F16 => bytes.extend(f16::from_f64(float).to_ne_bytes()),
        Kind::BF16 => bytes.extend(bf16::from_f64(float).to_ne_bytes()),
        Kind::I64 => bytes.extend(int.to_ne_bytes()),
        Kind::I32 => bytes.extend((int as i32).to_ne_bytes()),
        Kind::U8 | Kind::Bool => bytes.push(int as u8),
    }
}

/// Returns the floats of these bytes; none if the kind is not a float.
fn floats(kind: Kind, bytes: &[u8]) -> Vec<f64> {
    fn all<const N: usize>(bytes: &[u8], one: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).filter_map(|item| item.try_into().ok().map(&one)).collect()
    }
    match kind {
        Kind::F64 => all(bytes, f64::from_ne_bytes),
        Kind::F32 => all(bytes, |b| f64::from(f32::from_ne_bytes(b))),
        Kind::F16 => all(bytes, |b| f16::from_ne_bytes(b).to_f64()),
        Kind::BF16 => all(bytes, |b| bf16::from_ne_bytes(b).to_f64()),
        Kind::I64 | Kind::I32 | Kind::U8 | Kind::Bool => Vec::new(),
    }
}

/// Writes the bits of an element that takes part in no arithmetic.
pub(super) fn bits(kind: Kind, seed: u64, element: usize, bytes: &mut Vec<u8>) {
    let bits = mix(&[seed, element as u64]).to_ne_bytes();
    if kind == Kind::Bool {
        bytes.push(bits[0] & 1);
    } else {
        bytes.extend(&bits[..kind.item_bytes()]);
    }
}

/// Returns the index of a rank's partial value: its coordinates along the partial axes as one number.
fn term_of(sharding: &Sharding, rank: usize) -> usize {
    let Some(coordinate) = sharding.mesh().coordinate(rank) else { return 0 };
    let axes = sharding.mesh().axes();
    let digit = |axis: &reshard_sharding::PartialAxis| {
        axis.sub.known_digit(coordinate[axis.sub.axis], axes[axis.sub.axis].size())
    };
    sharding.partial().iter().fold(0, |term, axis| term * axis.sub.size + digit(axis))
}

/// Returns the number of partial values per element.
pub(super) fn terms(sharding: &Sharding) -> usize {
    sharding.partial().iter().map(|axis| axis.sub.size).product()
}

/// A tensor of numbers or of bits, sharded.
pub(super) struct Tensor<'a> {
    pub(super) sharding: &'a Sharding,
    pub(super) kind: Kind,
    pub(super) seed: u64,
    /// The reduction for which numbers are generated; `None` for bits.
    pub(super) op: Option<ReduceOp>,
    /// `true` if partial values are combined in the order of the definition, to the bit in f64 and f32.
    pub(super) in_order: bool,
}

/// The global tensor.
pub(super) enum Whole {
    /// Every element's bytes.
    Exact(Vec<u8>),
    /// Every element, and the magnitude that rounding is relative to.
    Near(Vec<(f64, f64)>),
}

impl Tensor<'_> {
    /// Returns `true` if floats must equal the definition's result bit for bit.
    pub(super) fn is_exact(&self) -> bool {
        match self.op {
            None | Some(ReduceOp::Min | ReduceOp::Max) => true,
            // The definition uses the powers and roots of the standard library, and the kernels do not.
            Some(ReduceOp::Norm(_)) => false,
            Some(ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod) => {
                self.in_order && (self.kind == Kind::F64 || self.kind == Kind::F32)
            }
        }
    }

    /// Returns a rank's shard, dense and row-major; empty for a rank outside of the mesh.
    pub(super) fn shard(&self, rank: usize) -> Result<Vec<u8>, reshard_sharding::Error> {
        let mut bytes = Vec::new();
        if self.sharding.mesh().contains(rank) {
            let term = term_of(self.sharding, rank);
            for element in self.sharding.global_indices(rank)? {
                match self.op {
                    Some(op) => {
                        write(self.kind, number(self.kind, op, self.seed, term, element), &mut bytes);
                    }
                    None => bits(self.kind, self.seed, element, &mut bytes),
                }
            }
        }
        Ok(bytes)
    }

    fn meaning<T: Reducible>(&self, value: impl Fn(Number) -> T) -> Result<Vec<T>, reshard_sharding::Error> {
        let op = self.op.unwrap_or(ReduceOp::Sum);
        let shard = |rank: usize| -> Result<Vec<T>, reshard_sharding::Error> {
            let term = term_of(self.sharding, rank);
            let elements = self.sharding.global_indices(rank)?.into_iter();
            Ok(elements.map(|e| value(number(self.kind, op, self.seed, term, e))).collect())
        };
        let shards = self.sharding.mesh().ranks().map(shard).collect::<Result<Vec<_>, _>>()?;
        self.sharding.assemble(&shards)
    }

    /// Returns the global tensor of all shards, by the definition.
    pub(super) fn whole(&self) -> Result<Whole, reshard_sharding::Error> {
        let mut bytes = Vec::new();
        if self.op.is_none() {
            (0..self.sharding.numel()).for_each(|e| bits(self.kind, self.seed, e, &mut bytes));
            return Ok(Whole::Exact(bytes));
        }
        if self.kind.rounding().is_some() {
            let float = |number| match number {
                Number::Float(x) => x,
                Number::Int(i) => i as f64,
            };
            let values = if self.in_order && self.kind == Kind::F32 {
                self.meaning(|number| float(number) as f32)?.into_iter().map(f64::from).collect()
            } else {
                self.meaning(float)?
            };
            // The same reduction of the magnitudes: the sum of the magnitudes, or their product.
            let magnitudes = self.meaning(|number| float(number).abs())?;
            return Ok(Whole::Near(values.into_iter().zip(magnitudes).collect()));
        }
        let integers = self.meaning(|number| match number {
            Number::Int(i) => i,
            Number::Float(x) => x as i64,
        })?;
        for i in integers {
            write(self.kind, Number::Int(i), &mut bytes);
        }
        Ok(Whole::Exact(bytes))
    }
}

impl Whole {
    /// Returns the first difference of these bytes from the elements `held`; `None` if they agree.
    ///
    /// `rounded` is the tolerance of floats in units of rounding of the dtype, relative to their magnitude; 0
    /// for none.
    pub(super) fn differs(&self, kind: Kind, held: &[usize], bytes: &[u8], rounded: f64) -> Option<String> {
        let item = kind.item_bytes();
        if bytes.len() != held.len() * item {
            return Some(format!("the shard has {} bytes, not {}", bytes.len(), held.len() * item));
        }
        match self {
            Whole::Exact(whole) => {
                let mut items = bytes.chunks_exact(item).zip(held).enumerate();
                let (at, (is, e)) = items.find(|(_, (is, e))| **is != whole[**e * item..(**e + 1) * item])?;
                let should = &whole[e * item..(e + 1) * item];
                Some(format!(
                    "element {at} of the shard, {e} of the tensor, is {is:02x?}, expected {should:02x?}"
                ))
            }
            Whole::Near(whole) => {
                let unit = kind.rounding().unwrap_or(0.0);
                floats(kind, bytes).into_iter().zip(held).enumerate().find_map(|(at, (is, &e))| {
                    let (should, magnitude) = whole[e];
                    let allowed = rounded * unit * magnitude;
                    let off = (is - should).abs();
                    (off.is_nan() || off > allowed).then(|| {
                        format!("element {at} of the shard, {e} of the tensor, is {is}, expected {should} within {allowed}")
                    })
                })
            }
        }
    }
}
