//! The two copies around a call, on bytes, for callers without the strided views of a framework.

use reshard_kernels::{DType, LoopNest, PreparedCombine, PreparedCopy, PreparedDivide};
use reshard_layout::Mode;

use super::{RankCall, View};
use crate::Error;

/// Returns the copy from a view to contiguous elements that begin at `start`, or the reverse.
fn nest(view: &View, start: usize, to_view: bool) -> LoopNest {
    let mut dense = 1;
    let modes = view.layout().flat().iter().map(|mode| {
        let strides = if to_view { (dense, mode.stride) } else { (mode.stride, dense) };
        dense *= mode.extent;
        Mode::new(mode.extent, strides)
    });
    let modes: Vec<Mode<(i64, i64)>> = modes.collect();
    let (from, to) = if to_view { (start, view.offset()) } else { (view.offset(), start) };
    // The offset of a view is below 2^63.
    LoopNest::new(from as i64, to as i64, modes)
}

impl RankCall {
    /// Packs a buffer: the elements of the views [`pack`](RankCall#structfield.pack), in sequence.
    ///
    /// Requires `packed` of [`packed_len`](RankCall::packed_len) elements. Errors: [`Error::Phase`] if a
    /// buffer has another size.
    ///
    /// ```
    /// use reshard_collectives::calls::{FrameworkGroups, RankCalls};
    /// use reshard_kernels::DType;
    /// use reshard_planner::Planner;
    /// use reshard_sharding::{Mesh, Sharding};
    ///
    /// let mesh: Mesh = "x=2".parse()?;
    /// let from = Sharding::parse(&mesh, &[2, 2], "S(0)")?;
    /// let plan = Planner::new().plan(&from, &Sharding::parse(&mesh, &[2, 2], "S(1)")?, DType::U8)?;
    /// let calls = RankCalls::new(&plan, 1, DType::U8, &FrameworkGroups::new([("x", [0, 1])])?)?;
    /// let call = calls.iter().next().expect("one call");
    /// let (mut packed, mut target) = ([0; 2], [0; 2]);
    /// call.pack_into(DType::U8, &[3, 4], &mut packed)?;
    /// // The other rank packs 1 and 2, and an all-to-all brings 2 and 4.
    /// call.unpack_into(DType::U8, &[2, 4], &mut target)?;
    /// assert_eq!((packed, target), ([3, 4], [2, 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pack_into(&self, dtype: DType, source: &[u8], packed: &mut [u8]) -> Result<(), Error> {
        self.fits(dtype, "source", source.len(), self.source_len)?;
        self.fits(dtype, "packed", packed.len(), self.packed_len())?;
        let mut start = 0;
        for view in &self.pack {
            PreparedCopy::new(&nest(view, start, false), dtype.element_bytes()?)?.run(packed, source)?;
            start += view.len();
        }
        Ok(())
    }

    /// Computes the buffer after the call from the received elements: fills, unpacks, combines, and divides.
    ///
    /// Requires `received` of [`received_len`](RankCall::received_len) elements. If the rank only
    /// participates without data (see [`RankCall::is_idle`]), nothing happens. Errors: [`Error::Phase`] if a
    /// buffer has another size; the errors of the kernels for partial values that they cannot reduce.
    pub fn unpack_into(&self, dtype: DType, received: &[u8], target: &mut [u8]) -> Result<(), Error> {
        self.fits(dtype, "received", received.len(), self.received_len())?;
        self.fits(dtype, "target", target.len(), self.target_len)?;
        if self.is_idle() {
            return Ok(());
        }
        let item_bytes = dtype.element_bytes()?;
        if let Some(op) = self.fill {
            let item = dtype.identity(op)?;
            target.chunks_exact_mut(item_bytes).for_each(|element| element.copy_from_slice(&item));
        }
        let copied = |views: &[View], mut start: usize, target: &mut [u8]| {
            views.iter().try_for_each(|view| {
                PreparedCopy::new(&nest(view, start, true), item_bytes)?.run(target, received)?;
                start += view.len();
                Ok::<(), Error>(())
            })
        };
        let Some(combine) = &self.combine else {
            copied(&self.unpack, 0, target)?;
            return self.divides(dtype, target);
        };
        for (at, term) in combine.terms.iter().enumerate() {
            let (views, mut start) = (&self.unpack[term.views.clone()], term.start);
            if at == 0 && self.fill.is_none() {
                copied(views, start, target)?;
                continue;
            }
            for view in views {
                PreparedCombine::new(&nest(view, start, true), dtype, combine.op)?.run(target, received)?;
                start += view.len();
            }
        }
        self.divides(dtype, target)
    }

    fn divides(&self, dtype: DType, target: &mut [u8]) -> Result<(), Error> {
        if self.divisor != 1 {
            let whole = LoopNest::new(0, 0, [Mode::new(self.target_len as i64, (0, 1))]);
            PreparedDivide::new(&whole, dtype, self.divisor)?.run(target)?;
        }
        Ok(())
    }

    fn fits(&self, dtype: DType, which: &str, given: usize, elements: usize) -> Result<(), Error> {
        let needed = elements.saturating_mul(dtype.element_bytes()?);
        if given == needed {
            return Ok(());
        }
        let message =
            format!("the {which} buffer has {given} bytes, but {elements} elements of {dtype} need {needed}");
        Err(Error::Phase { step: self.step, message })
    }
}

#[cfg(test)]
mod tests {
    use reshard_planner::Planner;
    use reshard_sharding::{Mesh, Sharding};

    use super::super::interpret::{landed, pack};
    use super::super::{FrameworkGroups, RankCalls};
    use super::*;

    /// Both copies agree with `interpret`, for every call between plain shardings and partial values.
    #[test]
    fn copies_are_what_calls_mean() {
        let mesh: Mesh = "x=2,y=2".parse().unwrap();
        let texts = [
            "S(0),S(1)",
            "S(1),S(0)",
            "R,S(0)",
            "S(0),S(0)",
            "P,S(1)",
            "P,P",
            "R,R",
            "P(avg),P(avg)",
            "S(1),P(max)",
        ];
        let offered = FrameworkGroups::new([("x", [0, 2]), ("x", [1, 3]), ("y", [1, 0])]).unwrap();
        let none = FrameworkGroups::none();
        let (dtype, mut seen, mut terms) = (DType::F64, 0, 0);
        let numbers = |n: usize, salt: usize| -> Vec<u8> {
            (0..n).flat_map(|i| ((i * 7 + salt) as f64).to_ne_bytes()).collect()
        };
        let elements = |bytes: &[u8]| -> Vec<Vec<u8>> { bytes.chunks(8).map(<[u8]>::to_vec).collect() };
        for (from, to) in texts.iter().flat_map(|from| texts.iter().map(move |to| (from, to))) {
            for shape in [[4, 8], [3, 5]] {
                let parse = |text: &str| Sharding::parse(&mesh, &shape, text).unwrap();
                let Ok(plan) = Planner::new().plan(&parse(from), &parse(to), dtype) else { continue };
                for (rank, offers) in (0..4).flat_map(|rank| [(rank, &offered), (rank, &none)]) {
                    for call in RankCalls::new(&plan, rank, dtype, offers).unwrap().iter() {
                        let (source, received) =
                            (numbers(call.source_len, rank), numbers(call.received_len(), 3));
                        let mut packed = vec![0; call.packed_len() * 8];
                        call.pack_into(dtype, &source, &mut packed).unwrap();
                        assert_eq!(packed, pack(call, &elements(&source)).concat(), "{call}");
                        let mut target = vec![0; call.target_len * 8];
                        call.unpack_into(dtype, &received, &mut target).unwrap();
                        if !call.is_idle() {
                            assert_eq!(
                                target,
                                landed(call, dtype, elements(&received)).unwrap().concat(),
                                "{call}"
                            );
                        }
                        assert!(call.pack_into(dtype, &source, &mut vec![0; packed.len() + 8]).is_err());
                        assert!(call.unpack_into(dtype, &received, &mut vec![0; target.len() + 8]).is_err());
                        (seen, terms) = (seen + 1, terms + usize::from(call.combine.is_some()));
                    }
                }
            }
        }
        assert!(seen > 400 && terms > 20, "{seen} calls, {terms} with partial values");
    }
}
