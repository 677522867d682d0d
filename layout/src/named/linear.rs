//! Operations on layouts of integers that are linear in the strides, for layouts with axes.
//!
//! `A o B` takes the values of `B` as indices of `A`, and requires no property of the values of `A`: they may
//! be points. So any map `phi` from points to integers that is linear, and different for different points as
//! far as `A` reaches, gives the answer:
//!
//! ```text
//! (phi A) o B  =  phi (A o B)          phi(point) = sum_a w_a point_a        w_0 = 1, w_(k+1) = w_k b_k
//! ```
//!
//! The operation runs on `phi A`, and every stride of the result is a value of `phi A`, whose digits in the
//! bases `b_k` are the steps. Bases are more than four times the reach along an axis, so coalescing never
//! confuses a multiple of a stride with the next one. A second set of bases must give the same answer. If an
//! operation (the extended forms) goes too far beyond the domain of `A`, the answers differ, and the result
//! is an `overflow`.

use super::{NamedLayout, NamedStride, Names};
use crate::algebra::Outer;
use crate::modes::Mode;
use crate::stride::{AxisStride, Stride};
use crate::{Error, Layout, Quantity};

/// A direction: the side of a pair, and its axis or the local buffer.
type Direction = (usize, Option<u32>);

/// A linear map from strides to integers.
struct Code {
    directions: Vec<Direction>,
    /// The base of every direction but the last.
    bases: Vec<i64>,
}

impl Code {
    /// Returns two maps that distinguish all points that these modes reach.
    fn of<S: NamedStride>(modes: &[Mode<S>]) -> Result<[Self; 2], Error> {
        let mut reached: Vec<(Direction, i64)> = Vec::new();
        let overflow = |left, right| Error::Overflow { quantity: Quantity::Span, left, right };
        for mode in modes {
            for (side, at) in mode.stride.steps().into_iter().enumerate().filter(|(_, at)| at.step() != 0) {
                let wide = || overflow(mode.extent, at.step());
                let far = at
                    .step()
                    .checked_abs()
                    .and_then(|step| step.checked_mul(mode.extent))
                    .ok_or_else(wide)?;
                let direction = (side, at.axis());
                match reached.iter_mut().find(|(known, _)| *known == direction) {
                    None => reached.push((direction, far)),
                    Some((_, sum)) => *sum = sum.checked_add(far).ok_or_else(wide)?,
                }
            }
        }
        // The last one has no base, so it is the one that reaches farthest.
        reached.sort_by_key(|(direction, far)| (*far, *direction));
        // A base is more than four times the reach.
        let bits = |far: i64| 66 - i64::from(far.leading_zeros());
        let needed: i64 = reached.iter().map(|(_, far)| bits(*far)).sum();
        let count = reached.len().saturating_sub(1) as i64;
        let spare = 63 - needed;
        if spare < 0 && count > 0 {
            let farthest = reached.last().map_or(0, |(_, far)| *far);
            return Err(overflow(farthest, reached.first().map_or(0, |(_, far)| *far)));
        }
        let base = |(_, far): &(Direction, i64)| 1_i64 << (bits(*far) + spare / (count + 1));
        let bases: Vec<i64> = reached.iter().take(count as usize).map(base).collect();
        let directions: Vec<Direction> = reached.iter().map(|(direction, _)| *direction).collect();
        let others = bases.iter().map(|base| base - 1).collect();
        Ok([Self { directions: directions.clone(), bases }, Self { directions, bases: others }])
    }

    /// Returns the integer of a stride.
    fn encode<S: NamedStride>(&self, stride: S) -> i64 {
        let steps = stride.steps();
        let mut weight = 1_i64;
        let mut sum = 0_i64;
        for (k, (side, axis)) in self.directions.iter().enumerate() {
            let step = steps.get(*side).filter(|at| at.axis() == *axis).map_or(0, |at| at.step());
            sum = sum.wrapping_add(step.wrapping_mul(weight));
            weight = weight.wrapping_mul(self.bases.get(k).copied().unwrap_or(1));
        }
        sum
    }

    /// Returns the stride of an integer; the steps, where they go along several axes at once.
    fn decode<S: NamedStride>(&self, mut value: i64) -> Result<S, Vec<AxisStride>> {
        let mut sides = [AxisStride::ZERO; 2];
        let mut steps = Vec::new();
        let mut several = false;
        for (k, (side, axis)) in self.directions.iter().enumerate() {
            let step = match self.bases.get(k) {
                None => value,
                Some(base) => {
                    let digit = value.rem_euclid(*base);
                    let digit = if digit > base / 2 { digit - base } else { digit };
                    value = (value - digit) / base;
                    digit
                }
            };
            if step == 0 {
                continue;
            }
            let at = axis.map_or(AxisStride::local(step), |axis| AxisStride::along(step, axis));
            several |= sides[*side] != AxisStride::ZERO;
            sides[*side] = at;
            steps.push(at);
        }
        if several { Err(steps) } else { Ok(S::of_steps(sides)) }
    }

    /// Returns the layout of a layout of integers.
    fn decode_layout<S: NamedStride>(&self, layout: &Layout, names: &Names) -> Result<NamedLayout<S>, Error> {
        let mut several = None;
        let decoded = layout.map(|stride| {
            self.decode(stride).unwrap_or_else(|steps| {
                several.get_or_insert(steps);
                S::ZERO
            })
        })?;
        let Some(steps) = several else { return NamedLayout::of(&decoded, names) };
        let steps: Vec<String> = steps.iter().map(|at| names.text(*at)).collect();
        let message = format!(
            "the result is not a layout: one of its steps goes along several axes at once, by {}, and a stride may go \
             along one only",
            steps.join("+")
        );
        Err(Error::Along { code: crate::ErrorCode::NotRepresentable, message: message.into() })
    }

    /// Returns an error in which the outer layout is printed with its names.
    fn said<S: NamedStride>(&self, error: Error, names: &Names) -> Error {
        let operands = match &error {
            Error::NotRepresentable { operands, .. } | Error::Undecided { operands, .. } => operands,
            Error::Along { .. }
            | Error::BadExtent { .. }
            | Error::Inadmissible { .. }
            | Error::NoSuchMode { .. }
            | Error::NoSuchRange { .. }
            | Error::NotCongruent { .. }
            | Error::NotNesting { .. }
            | Error::NotOneEach { .. }
            | Error::OutOfDomain { .. }
            | Error::Overflow { .. }
            | Error::Parse(_)
            | Error::TooDeep { .. }
            | Error::TooLarge { .. }
            | Error::TooManyModes { .. } => return error,
        };
        let Outer::Layout(outer) = &operands.0 else { return error };
        let Ok(named) = self.decode_layout::<S>(outer, names) else { return error };
        let message = error.to_string().replace(&outer.to_string(), &named.to_string());
        Error::Along { code: error.error_code(), message: message.into() }
    }
}

#[allow(private_bounds, reason = "the strides that have names are those of this crate")]
impl<S: NamedStride> NamedLayout<S> {
    /// Returns the result of an operation on integer layouts that is linear in the strides.
    ///
    /// Examples are a composition after this layout or a division: the operation depends on which values are
    /// equal and add up, and not on their order.
    ///
    /// ```
    /// use reshard_layout::{Layout, NamedLayout};
    ///
    /// let a: NamedLayout = "(4,2):(1@tp,1@dp)".parse()?;
    /// let b: Layout = "2:4".parse()?;
    /// assert_eq!(a.linear(|a| a.compose(&b))?.to_string(), "2:1@dp");
    /// assert_eq!(a.linear(|a| a.logical_divide(&"2:1".parse()?))?.to_string(), "(2,(2,2)):(1@tp,(2@tp,1@dp))");
    ///
    /// let across: Layout = "2:5".parse()?; // one step along both axes
    /// assert_eq!(a.linear(|a| a.compose(&across)).unwrap_err().code(), "not_representable");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the operation; `not_representable` if a stride of the result goes along several axes;
    /// `overflow` if the steps along all axes do not fit in 64 bits jointly.
    pub fn linear(&self, operation: impl Fn(&Layout) -> Result<Layout, Error>) -> Result<Self, Error> {
        let codes = Code::of(self.layout.flat())?;
        let through = |code: &Code| {
            let encoded = self.layout.map(|stride| code.encode(stride))?;
            let result = operation(&encoded).map_err(|error| code.said::<S>(error, &self.names))?;
            code.decode_layout(&result, &self.names)
        };
        let [first, second] = &codes;
        let result = through(first);
        if first.bases.is_empty() {
            return result;
        }
        match (result, through(second)) {
            (Ok(one), Ok(other)) if one == other => Ok(one),
            (Err(error), Err(_)) => Err(error),
            (_, _) => {
                let size = self.layout.size();
                Err(Error::Overflow { quantity: Quantity::Span, left: size, right: size })
            }
        }
    }
}
