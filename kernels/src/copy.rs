//! Copies between two layouts, in one call.

use reshard_layout::Layout;

use crate::prepared::{byte_range, check_range};
use crate::{CopySide, Error, LoopNest, PreparedCopy};

/// Copies `src[src_layout(i)]` to `dst[dst_layout(i)]` for every `i`, in elements of `item_bytes` bytes.
///
/// Strides of the source may be zero (broadcast). Bytes of `dst` that are not in the image of its layout stay as they
/// are.
///
/// ```
/// use reshard_kernels::copy;
/// // From row-major 2 x 3 to column-major: (2,3):(3,1) to (2,3):(1,2).
/// let (source, mut target) = ([1u8, 2, 3, 4, 5, 6], [0; 6]);
/// copy(&mut target, &"(2,3):(1,2)".parse()?, &source, &"(2,3):(3,1)".parse()?, 1)?;
/// assert_eq!(target, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Ensures: as `reference::copy`.
/// Errors: [`Error::SizeMismatch`], [`Error::Overlap`] (the target's layout is not injective), [`Error::OutOfBounds`],
/// [`Error::ZeroItem`], [`Error::Overflow`]; then nothing was written.
pub fn copy(
    dst: &mut [u8],
    dst_layout: &Layout,
    src: &[u8],
    src_layout: &Layout,
    item_bytes: usize,
) -> Result<usize, Error> {
    copy_at(dst, 0, dst_layout, src, 0, src_layout, item_bytes)
}

/// Copies as [`copy`], with the offset of element 0 in both buffers, counted in elements.
///
/// ```
/// use reshard_kernels::copy_at;
/// let (source, mut target) = ([1u8, 2, 3, 4], [0; 4]);
/// copy_at(&mut target, 0, &"4:1".parse()?, &source, 3, &"4:-1".parse()?, 1)?;
/// assert_eq!(target, [4, 3, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Errors: as [`copy`].
#[doc(hidden)]
pub fn copy_at(
    dst: &mut [u8],
    dst_offset: i64,
    dst_layout: &Layout,
    src: &[u8],
    src_offset: i64,
    src_layout: &Layout,
    item_bytes: usize,
) -> Result<usize, Error> {
    if let Some(mut nest) = LoopNest::between(dst_layout, src_layout)? {
        (nest.source_offset, nest.target_offset) = (src_offset, dst_offset);
        return PreparedCopy::new(&nest, item_bytes)?.run(dst, src);
    }
    // The layouts do not nest: bounds and overlap from each alone, then element by element.
    let side = |offset: i64, layout: &Layout| {
        LoopNest::new(offset, offset, layout.flat().iter().map(|mode| mode.map(|stride| (stride, stride))))
    };
    let (source, target) = (side(src_offset, src_layout), side(dst_offset, dst_layout));
    target.check_target_is_injective()?;
    if item_bytes == 0 {
        return Err(Error::ZeroItem);
    }
    check_range(
        &byte_range(&source.scale(item_bytes)?, CopySide::Source, item_bytes)?,
        src.len(),
        CopySide::Source,
    )?;
    check_range(
        &byte_range(&target.scale(item_bytes)?, CopySide::Target, item_bytes)?,
        dst.len(),
        CopySide::Target,
    )?;
    for (to, from) in dst_layout.values().zip(src_layout.values()) {
        let to = (dst_offset + to) as usize * item_bytes;
        let from = (src_offset + from) as usize * item_bytes;
        dst[to..to + item_bytes].copy_from_slice(&src[from..from + item_bytes]);
    }
    Ok(dst_layout.size() as usize * item_bytes)
}
