//! Functions of shapes, coordinates and other tuples.

use super::evaluate::{Operation, Placed};
use super::{Function, Value};
use crate::{Banks, Error, IntTuple, Layout};

impl Operation<'_> {
    /// Returns the answer of a function that takes tuples, alone or together with layouts.
    pub(super) fn call_with_tuples(
        &self,
        function: Function,
        arguments: &[Placed],
    ) -> Option<Result<Value, Error>> {
        use Function as F;
        let tuple = |value| self.tuple(value);
        let related = |a, b, holds: fn(&IntTuple, &IntTuple) -> bool| {
            Ok(Value::Bool(holds(&self.shape_of(a)?, &self.shape_of(b)?)))
        };
        let two = |a, b, of: fn(&IntTuple, &IntTuple) -> Result<IntTuple, Error>| {
            of(&tuple(a)?, &tuple(b)?).map(Value::from)
        };
        Some(match (function, arguments) {
            (F::ColumnMajor, [shape]) => {
                tuple(shape).and_then(|shape| Layout::column_major_of(&shape)).map(Value::Layout)
            }
            (F::RowMajor, [shape]) => {
                tuple(shape).and_then(|shape| Layout::row_major_of(&shape)).map(Value::Layout)
            }
            (F::MakeOrderedLayout, [shape, order]) => {
                tuple(shape).and_then(|shape| Layout::make_ordered(&shape, &tuple(order)?)).map(Value::Layout)
            }
            (F::DomainDistribute, [shape, count]) => self
                .shape_of(shape)
                .and_then(|shape| Layout::domain_distribute(&shape, self.shape_of(count)?.product()?))
                .map(Value::Layout),
            (F::CeilDiv, [a, b]) => two(a, b, IntTuple::ceil_div),
            (F::ShapeDiv, [a, b]) => two(a, b, IntTuple::shape_div),
            (F::ElemScale, [a, b]) => two(a, b, IntTuple::elem_scale),
            (F::Product, [a]) => self.shape_of(a).and_then(|a| a.product()).map(Value::Integer),
            (F::ProductEach, [a]) => self.shape_of(a).and_then(|a| a.product_each()).map(Value::from),
            (F::InnerProduct, [a, b]) => {
                tuple(a).and_then(|a| a.inner_product(&tuple(b)?)).map(Value::Integer)
            }
            (F::Crd2Idx, [coordinate, layout]) => self.index_of(coordinate, layout),
            (F::Crd2Idx, [coordinate, shape, stride]) => tuple(shape)
                .and_then(|shape| Layout::new(shape, tuple(stride)?)?.offset_at(&tuple(coordinate)?))
                .map(Value::Integer),
            (F::Idx2Crd, [index, shape]) => {
                self.shape_of(shape).and_then(|shape| shape.coordinate(&tuple(index)?)).map(Value::from)
            }
            (F::Idx2Crd, [index, shape, stride]) => tuple(shape)
                .and_then(|shape| Layout::new(shape, tuple(stride)?)?.digits(self.integer(index)?))
                .map(Value::from),
            (F::Crd2Crd, [coordinate, from, to]) => self
                .shape_of(from)
                .and_then(|from| Layout::column_major_of(&from)?.offset_at(&tuple(coordinate)?))
                .and_then(|index| self.shape_of(to)?.coordinate(&index.into()))
                .map(Value::from),
            (F::BankSwizzle, [row, element, access]) => self.bank_swizzle(row, element, access),
            (F::BankWays, [a, element, access]) => self.bank_ways(a, element, access),
            (F::Compatible, [a, b]) => related(a, b, IntTuple::is_compatible),
            (F::WeaklyCompatible, [a, b]) => related(a, b, IntTuple::is_weakly_compatible),
            (F::SoftlyCompatible, [a, b]) => related(a, b, IntTuple::is_softly_compatible),
            (F::Congruent, [a, b]) => related(a, b, IntTuple::is_congruent),
            (F::WeaklyCongruent, [a, b]) => related(a, b, IntTuple::is_weakly_congruent),
            (_, [(_, Value::Tuple(whole)), rest @ ..]) => return self.pick(function, whole, rest),
            (_, _) => return None,
        })
    }

    fn bank_swizzle(&self, row: &Placed, element: &Placed, access: &Placed) -> Result<Value, Error> {
        let [row_length, bytes, chunk] = [self.integer(row)?, self.integer(element)?, self.integer(access)?];
        Banks::SHARED.swizzle(row_length, bytes, chunk).map(Value::Swizzle).ok_or_else(|| {
            let message = format!(
                "rows of {row_length} elements of {bytes} bytes, accessed by {chunk} bytes, have no swizzle; all \
                 three must be powers of two, and an access whole elements, part of a row, and at most 128 bytes"
            );
            self.refused(row.0, message)
        })
    }

    fn bank_ways(&self, a: &Placed, element: &Placed, access: &Placed) -> Result<Value, Error> {
        let (bytes, chunk) = (self.integer(element)?, self.integer(access)?);
        let size = self.shape_of(a)?.product()?;
        let (1..=128, 1..=1024) = (chunk, size) else {
            let message =
                format!("an access must be 1 to 128 bytes of 1 to 1024 threads, not {chunk} of {size}");
            return Err(self.refused(access.0, message));
        };
        let at = |index: i64| {
            if let Some(composed) = a.1.as_composed() {
                composed.at(index)
            } else {
                self.layout(a)?.at(index)
            }
        };
        let addresses: Result<Vec<i64>, Error> =
            (0..size).map(|index| Ok(at(index)?.saturating_mul(bytes))).collect();
        Ok(Value::Integer(Banks::SHARED.conflicts(addresses?, chunk as u32) as i64))
    }

    /// Components of a tuple.
    fn pick(&self, function: Function, whole: &IntTuple, rest: &[Placed]) -> Option<Result<Value, Error>> {
        use Function as F;
        let tuple = |value| self.tuple(value);
        let range = |begin, end| Ok::<_, Error>(self.index(begin)?..self.index(end)?);
        let picked = match (function, rest) {
            (F::Select, [_, ..]) => self.indices(rest).and_then(|modes| whole.select(&modes)),
            (F::Take, [begin, end]) => range(begin, end).and_then(|range| whole.take(range)),
            (F::Append, [part]) => tuple(part).and_then(|part| whole.append(&part)),
            (F::Append, [part, rank]) => {
                tuple(part).and_then(|part| whole.append_to(self.index(rank)?, &part))
            }
            (F::Prepend, [part]) => tuple(part).and_then(|part| whole.prepend(&part)),
            (F::Prepend, [part, rank]) => {
                tuple(part).and_then(|part| whole.prepend_to(self.index(rank)?, &part))
            }
            (F::Replace, [k, part]) => tuple(part).and_then(|part| whole.replace(self.index(k)?, &part)),
            (F::Mode, [k]) => self.index(k).and_then(|k| whole.mode(k)),
            (F::Flatten, []) => IntTuple::flat(whole.leaves()),
            (F::Group, [begin, end]) => range(begin, end).and_then(|range| whole.group(range)),
            (_, _) => return None,
        };
        Some(picked.map(Value::from))
    }

    /// Returns the value of a layout at a coordinate, or the index of a coordinate into a shape.
    fn index_of(&self, coordinate: &Placed, layout: &Placed) -> Result<Value, Error> {
        let at = self.tuple(coordinate)?;
        layout.1.at(&at).unwrap_or_else(|| {
            Layout::column_major_of(&self.shape_of(layout)?)?.offset_at(&at).map(Value::Integer)
        })
    }
}
