//! Fuses many blocks into few views: one view if the block offsets are the digits of a number.
//!
//! Between shardings that nest, the blocks of the peers, in the group's order, have equal loops and offsets
//! that are mixed radix in the peer's group rank: a layout of the group rank. The concatenated blocks are
//! therefore one view, with that layout as its outer loops:
//!
//! ```text
//! offsets 0 1 8 9 16 17, each of 4:2      (0 1) (8 9) (16 17)   each 2:1      (0 8 16) each 3:8      0+(3:8,2:1,4:2)
//! ```
//!
//! Equal loops whose offsets ascend evenly become one view with one more loop, and this step repeats. A list
//! of offsets that is a layout thus becomes one view. Its first run has the length of its first mode, since a
//! coalesced mode never continues evenly into the next one, and the same holds for all other runs.

use reshard_kernels::CopySide;
use reshard_layout::{Mode, Modes};
use reshard_planner::Block;
use smallvec::SmallVec;

use super::{View, Views};
use crate::Error;

/// Returns the loops of a block on one side.
pub(crate) fn loops(block: &Block, side: CopySide) -> Modes {
    block.modes.iter().map(|mode| mode.map(|strides| side.of(strides))).collect()
}

pub(crate) fn offset(block: &Block, side: CopySide) -> i64 {
    side.of((block.source_offset as i64, block.target_offset as i64))
}

/// Returns `true` if two blocks have the same loops on one side.
fn alike(a: &Block, b: &Block, side: CopySide) -> bool {
    let on_side = |block: &'_ Block| -> Modes { loops(block, side) };
    a.modes == b.modes || on_side(a) == on_side(b) || on_side(a).coalesce() == on_side(b).coalesce()
}

/// Returns `true` if two blocks are the same elements on one side.
pub(crate) fn same_block(a: &Block, b: &Block, side: CopySide) -> bool {
    offset(a, side) == offset(b, side) && alike(a, b, side)
}

/// Returns the elements of blocks on one side, block after block, as few views. Requires non-empty blocks.
pub(crate) fn fuse(blocks: &[&Block], side: CopySide) -> Result<Views, Error> {
    let mut views = Views::new();
    let mut offsets: SmallVec<[i64; 32]> = SmallVec::new();
    for run in blocks.chunk_by(|a, b| alike(a, b, side)) {
        offsets.clear();
        offsets.extend(run.iter().map(|block| offset(block, side)));
        spread(&offsets, &loops(run[0], side).coalesce(), &mut views)?;
    }
    Ok(views)
}

/// Adds views with these inner loops at all of these offsets.
pub(crate) fn spread(offsets: &[i64], inner: &Modes, views: &mut Views) -> Result<(), Error> {
    if let [one] = offsets {
        views.push(View::of(*one, inner)?);
        return Ok(());
    }
    let (mut at, mut last): (usize, Option<Mode>) = (0, None);
    let mut starts: SmallVec<[i64; 16]> = SmallVec::new();
    let mut outer = |last: Option<Mode>, starts: &mut SmallVec<[i64; 16]>| {
        let Some(mode) = last else { return Ok(()) };
        let mut modes = inner.clone();
        modes.push(mode);
        spread(starts, &modes, views)?;
        starts.clear();
        Ok::<(), Error>(())
    };
    while at < offsets.len() {
        let rest = &offsets[at..];
        let stride = rest.get(1).map_or(0, |next| next - rest[0]);
        // Not longer than the run before: the next offsets may continue evenly by coincidence.
        let most = last.filter(|mode| mode.stride == stride).map_or(rest.len(), |mode| mode.extent as usize);
        let run = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] == stride).take(most - 1).count();
        let mode = Mode::new(run as i64, stride);
        if last != Some(mode) {
            outer(last, &mut starts)?;
            last = Some(mode);
        }
        starts.push(rest[0]);
        at += run;
    }
    outer(last, &mut starts)
}

#[cfg(test)]
mod tests {
    use reshard_layout::Layout;
    use reshard_test_support::properties;

    use super::*;

    fn spread_views(offsets: &[i64]) -> Views {
        let mut views = Views::new();
        spread(offsets, &Modes::from_slice(&[Mode::new(2, 1000)]), &mut views).unwrap();
        views
    }

    properties! {
        /// The views have the elements of the blocks in their order.
        fn fusing_keeps_elements_and_order(offsets: Vec<u8>) -> bool {
            let offsets: Vec<i64> = offsets.iter().map(|offset| i64::from(offset % 16)).collect();
            let views = if offsets.is_empty() { Views::new() } else { spread_views(&offsets) };
            let want = offsets.iter().flat_map(|o| [*o as usize, *o as usize + 1000]);
            views.iter().flat_map(View::elements).eq(want)
        }

        /// Offsets that are a layout's values are one view.
        fn mixed_radix_is_one_view(modes: Vec<(u8, u8)>) -> bool {
            let modes: Vec<(i64, i64)> =
                modes.iter().take(4).map(|(e, s)| (i64::from(e % 4) + 1, i64::from(s % 11))).collect();
            let layout = Layout::from_modes(&modes).unwrap();
            spread_views(&layout.values().collect::<Vec<_>>()).len() == 1
        }
    }
}
