//! Parameters of a draw, computed from key, draw and dtype: the same for all elements and on every machine.
//!
//! ```text
//! (key, draw, dtype) --once, on the host--> Formula          Formula, index --everywhere--> element
//!                                             = Recipe, as plain numbers, for devices
//! ```

use bytemuck::{Pod, Zeroable};

use super::draw::{Draw, range_of};
use super::integer;
use super::key::{Generator, Key};
use super::real::{in_dtype, next_in_dtype, tiny_of};
use super::special;
use crate::{DType, Error};

/// The transform of the words of an index; [`Recipe::kind`] is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(super) enum Kind {
    /// The lowest bits.
    Bits,
    /// `base` plus a remainder by `modulus`.
    ///
    /// Threefry combines two words, the upper one multiplied by `power`.
    Remainder,
    /// 1 if a fraction of f32 is below `a`, else 0.
    Below,
    /// A scaled fraction.
    Stretched,
    /// `sqrt(2) erfinv` of a scaled fraction.
    Normal,
    /// `a + b` times the normal number.
    NormalOf,
    /// The normal number, clamped to `a` and `b`.
    Clamped,
    /// `-ln(1 - fraction)`.
    Exponential,
    /// `-ln(-ln fraction)`.
    Gumbel,
}

/// The scaling of a fraction of [0, 1) to `span` from `low` on; [`Recipe::stretch`] is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(super) enum Stretch {
    /// No scaling is needed.
    None,
    /// Product and sum in the wide type, rounded to the element once.
    ///
    /// For philox, and wherever the variants agree.
    Plain,
    /// The product is not rounded: threefry of f32 and f64.
    Fused,
    /// Product and sum are each rounded to the element: threefry of f16 and bf16.
    Twice,
}

/// The parameters that all elements of a drawn tensor share, as plain numbers for devices.
///
/// ```text
/// fill(key, draw, dtype, ..)  writes, for every index i, the element that Recipe::new(..) defines for i
/// ```
///
/// Floats are elements of the dtype, integers wrap as its words do.
///
/// ```
/// use reshard_kernels::{DType, random::{Draw, Key, Recipe}};
/// let recipe = Recipe::new(&Key::new(7), Draw::Uniform { low: -1.0, high: 1.0 }, DType::F32)?;
/// assert_eq!((recipe.key[1], recipe.low, recipe.span), (7, -1.0, 2.0));
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Recipe {
    /// The two words of the key.
    pub key: [u64; 2],
    /// The words of a second key, which gives the lower words of remainders by threefry.
    pub second: [u64; 2],
    /// The lower bound of scaled fractions.
    pub low: f64,
    /// The width of their interval.
    pub span: f64,
    /// A probability, a mean or a lower end.
    pub a: f64,
    /// A deviation or an upper end.
    pub b: f64,
    /// The least integer, in the word type.
    pub base: u64,
    /// The divisor of remainders; 0 stands for all words.
    pub modulus: u64,
    /// The factor of an upper word.
    pub power: u64,
    /// 0 for threefry, 1 for philox.
    pub generator: u32,
    /// The transform of words.
    ///
    /// 0: the lowest bits; 1: remainders; 2: 1 if a fraction is below `a`, else 0; 3: scaled fractions. From
    /// scaled fractions: 4: normal numbers; 5: normal of mean `a` and deviation `b`; 6: truncated from `a` to
    /// `b`; 7: exponential; 8: Gumbel.
    pub kind: u32,
    /// The scaling of a fraction.
    ///
    /// 0: none; 1: product and sum, rounded to the element once; 2: both fused; 3: rounded after each.
    pub stretch: u32,
    unused: u32,
}

/// The content of a recipe, in the types of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formula {
    pub(super) key: Key,
    /// The key of the lower words of remainders by threefry.
    pub(super) second: Key,
    pub(super) kind: Kind,
    pub(super) stretch: Stretch,
    pub(super) low: f64,
    pub(super) span: f64,
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) base: u64,
    pub(super) modulus: u64,
    pub(super) power: u64,
}

impl Recipe {
    /// Computes the recipe of a draw.
    ///
    /// Errors: those of [`fill`](super::fill) that do not depend on a shape.
    pub fn new(key: &Key, draw: Draw, dtype: DType) -> Result<Recipe, Error> {
        let f = Formula::new(key, draw, dtype)?;
        let words = |key: Key| match key {
            Key::Threefry(words) => words.map(u64::from),
            Key::Philox { seed, offset } => [seed, offset],
        };
        let generator = match f.key.generator() {
            Generator::Threefry => 0,
            Generator::Philox => 1,
        };
        Ok(Recipe {
            key: words(f.key),
            second: words(f.second),
            low: f.low,
            span: f.span,
            a: f.a,
            b: f.b,
            base: f.base,
            modulus: f.modulus,
            power: f.power,
            generator,
            kind: f.kind as u32,
            stretch: f.stretch as u32,
            unused: 0,
        })
    }
}

impl Formula {
    /// Computes the formula of a draw.
    ///
    /// Errors: [`Draw::check`]'s, and a remainder that would be far from even.
    pub(super) fn new(key: &Key, draw: Draw, dtype: DType) -> Result<Formula, Error> {
        draw.check(dtype)?;
        integer::check_span(key, draw, dtype)?;
        // A checked draw has only numbers that the dtype represents.
        let of = |x: f64| in_dtype(dtype, x).unwrap_or(x);
        let next = |x: f64, up: bool| next_in_dtype(dtype, x, up).unwrap_or(x);
        let whole = Some((0.0, 1.0));
        let is_of_philox = key.generator() == Generator::Philox;
        let (kind, (a, b), ends) = match draw {
            Draw::Bits => (Kind::Bits, (0.0, 0.0), None),
            // By philox, the draw of all integers of a dtype is its bits.
            Draw::RandInt { low, high } if is_of_philox && range_of(dtype) == Some((low, high)) => {
                (Kind::Bits, (0.0, 0.0), None)
            }
            Draw::RandInt { .. } => (Kind::Remainder, (0.0, 0.0), None),
            Draw::Bernoulli { p } => (Kind::Below, (in_dtype(DType::F32, p).unwrap_or(p), 0.0), None),
            Draw::Uniform { low, high } => (Kind::Stretched, (0.0, 0.0), Some((of(low), of(high)))),
            Draw::Normal { mean, std } => {
                let of_mean = (of(mean), of(std));
                let kind = if of_mean == (0.0, 1.0) { Kind::Normal } else { Kind::NormalOf };
                (kind, of_mean, Some((next(-1.0, true), 1.0)))
            }
            Draw::TruncatedNormal { low, high } => {
                let (low, high) = (of(low), of(high));
                let root = of(std::f64::consts::SQRT_2);
                let at = |x: f64| of(libm::erf(of(x / root)));
                (Kind::Clamped, (next(low, true), next(high, false)), Some((at(low), at(high))))
            }
            Draw::Exponential => (Kind::Exponential, (0.0, 0.0), whole),
            Draw::Gumbel => (Kind::Gumbel, (0.0, 0.0), tiny_of(dtype).map(|tiny| (tiny, 1.0))),
        };
        let (low, high) = ends.unwrap_or((0.0, 0.0));
        // No zero is negative.
        let (low, span) = (low + 0.0, of(high - low));
        let stretch = stretch(key, dtype, low, span);
        let (second, base, modulus, power) = (*key, 0, 0, 0);
        let mut made = Formula { key: *key, second, kind, stretch, low, span, a, b, base, modulus, power };
        if let (Kind::Remainder, Draw::RandInt { low, high }) = (kind, draw) {
            made.remainders((low, high), dtype.bits().max(32));
        }
        Ok(made)
    }

    /// Sets the parameters of remainders, for words of `bits` bits.
    fn remainders(&mut self, (low, high): (i128, i128), bits: usize) {
        let all = u64::MAX >> (64 - bits);
        (self.base, self.modulus) = (low as u64 & all, (high - low) as u64 & all);
        let remainder = |x: u64| (x & all).checked_rem(self.modulus).unwrap_or(x & all);
        if self.key.generator() == Generator::Threefry {
            // `2^bits` modulo the divisor, as the square of its root.
            let root = remainder(1 << (bits / 2));
            self.power = remainder(root.wrapping_mul(root));
            (self.key, self.second) = (self.key.fold_in(0), self.key.fold_in(1));
        }
    }
}

fn stretch(key: &Key, dtype: DType, low: f64, span: f64) -> Stretch {
    // A product with a power of two is exact, and a product without a sum is rounded once.
    let exact = low == 0.0 || special::is_power_of_two(span);
    match key.generator() {
        Generator::Philox => Stretch::Plain,
        Generator::Threefry if low == 0.0 && span == 1.0 => Stretch::None,
        Generator::Threefry if dtype.bits() == 16 => Stretch::Twice,
        Generator::Threefry if exact => Stretch::Plain,
        Generator::Threefry => Stretch::Fused,
    }
}
