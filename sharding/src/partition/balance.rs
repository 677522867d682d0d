//! Ragged sizes that keep blocks whole.
//!
//! Blocks of lengths `b_0, .., b_(m-1)` are contiguous along a dim: the blocks of a quantized tensor, rows
//! that an optimizer must see as one unit, whole tensors of one flat buffer. Each rank keeps consecutive
//! ones, and the one that keeps the most keeps as little as possible:
//!
//! ```text
//! least(cap) = ranks needed if none keeps more than cap                   greedy: take blocks as long as they fit
//! cap        = the least one with least(cap) <= n                         bisection, between max b and sum b
//! ```
//!
//! Many distributions have that maximum. Rank by rank, a share grows while that brings it nearer to the mean
//! of the remaining ranks, as long as the rest still fits into those.

use crate::{Error, Placement};

/// Maximum number of blocks to distribute.
const MAX_BLOCKS: usize = 1 << 24;

/// Returns the number of ranks that the blocks from each index on need, if no rank keeps more than `cap`.
fn least(blocks: &[usize], cap: usize) -> Vec<usize> {
    let mut needed = vec![0; blocks.len() + 1];
    // The share that begins at block `i` ends before block `end`.
    let (mut end, mut sum) = (blocks.len(), 0usize);
    for i in (0..blocks.len()).rev() {
        sum += blocks[i];
        while sum > cap {
            end -= 1;
            sum -= blocks[end];
        }
        needed[i] = 1 + needed[end];
    }
    needed
}

/// Returns the share of each of `ranks` ranks.
///
/// Requires that the sum of the blocks fits, and a rank.
fn shares(blocks: &[usize], ranks: usize) -> Vec<usize> {
    let total: usize = blocks.iter().sum();
    let (mut low, mut high) = (blocks.iter().copied().max().unwrap_or(0).max(total.div_ceil(ranks)), total);
    while low < high {
        let cap = low + (high - low) / 2;
        if least(blocks, cap)[0] <= ranks {
            high = cap;
        } else {
            low = cap + 1;
        }
    }
    let needed = least(blocks, low);
    let (mut at, mut left) = (0, total);
    let mut sizes = Vec::with_capacity(ranks);
    for ranks_left in (1..=ranks).rev() {
        let mut size = 0usize;
        while let Some(&block) = blocks.get(at) {
            let must = needed[at] > ranks_left - 1;
            // Take the block if the size is then nearer to an equal share of the remaining indices with this
            // block than without it.
            let share = left / ranks_left;
            let nearer = (size + block).abs_diff(share) <= share.abs_diff(size);
            if !(must || nearer) || size + block > low {
                break;
            }
            (size, at) = (size + block, at + 1);
        }
        left -= size;
        sizes.push(size);
    }
    sizes
}

fn refused(reason: String) -> Error {
    Error::Placement { reason }
}

impl Placement {
    /// Returns a ragged shard of a dim of contiguous blocks, each of which stays whole on one rank.
    ///
    /// ```text
    /// minimize max_r size_r      where every size_r is a sum of consecutive blocks
    /// ```
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// // A flat buffer of five tensors over three ranks.
    /// let p = Placement::ragged_of_blocks(0, &[300, 20, 500, 100, 80], 3)?;
    /// assert_eq!(p.to_string(), "RG(0,[320,500,180])");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `placement` for no ranks or more than 2^24 blocks or ranks, and with `overflow` where the
    /// blocks' sum does not fit.
    pub fn ragged_of_blocks(dim: usize, blocks: &[usize], ranks: usize) -> Result<Placement, Error> {
        if ranks == 0 || ranks > MAX_BLOCKS || blocks.len() > MAX_BLOCKS {
            return Err(refused(format!(
                "{} blocks over {ranks} ranks: at most {MAX_BLOCKS} blocks can be distributed, over 1 to {MAX_BLOCKS} \
                 ranks",
                blocks.len()
            )));
        }
        blocks
            .iter()
            .try_fold(0i64, |sum, &n| sum.checked_add(i64::try_from(n).ok()?))
            .ok_or_else(|| Error::overflow("the sum of the blocks"))?;
        Ok(Placement::ragged(dim, &shares(blocks, ranks)))
    }

    /// Returns a ragged shard of a dim of `len` indices whose blocks stay whole on one rank.
    ///
    /// Blocks have `block` indices, the last one possibly fewer. The ranks' numbers of blocks differ by at
    /// most one.
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// // 1000 rows in blocks of 128 over four ranks: 8 blocks, two each.
    /// assert_eq!(Placement::ragged_in_blocks(0, 1000, 128, 4)?.to_string(), "RG(0,[256,256,256,232])");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `placement` for blocks of no indices, no ranks, or more than 2^24 ranks.
    pub fn ragged_in_blocks(dim: usize, len: usize, block: usize, ranks: usize) -> Result<Placement, Error> {
        if block == 0 || ranks == 0 || ranks > MAX_BLOCKS {
            return Err(refused(format!(
                "blocks of {block} indices over {ranks} ranks: a block needs at least 1 index, and ranks must be 1 to \
                 {MAX_BLOCKS}"
            )));
        }
        let blocks = len.div_ceil(block);
        // The first `more` ranks have one block more than the others.
        let (each, more) = (blocks / ranks, blocks % ranks);
        let begin = |rank: usize| (rank * each + rank.min(more)).saturating_mul(block).min(len);
        let sizes: Vec<usize> = (0..ranks).map(|rank| begin(rank + 1) - begin(rank)).collect();
        Ok(Placement::ragged(dim, &sizes))
    }

    /// Returns a ragged shard of a dim of `len` indices in relative units.
    ///
    /// Rank `r` keeps `units_r` parts of their sum.
    ///
    /// ```text
    /// size_r = units_r * len / sum(units)
    /// ```
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// assert_eq!(Placement::ragged_in_units(0, 1024, &[1, 2, 1])?.to_string(), "RG(0,[256,512,256])");
    /// assert!(Placement::ragged_in_units(0, 10, &[1, 2, 1]).is_err());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `placement` where the sum of the units does not divide the dim, and with `overflow` where
    /// it does not fit.
    pub fn ragged_in_units(dim: usize, len: usize, units: &[usize]) -> Result<Placement, Error> {
        let sum = units
            .iter()
            .try_fold(0usize, |sum, &n| sum.checked_add(n).filter(|&n| i64::try_from(n).is_ok()))
            .ok_or_else(|| Error::overflow("the sum of the units"))?;
        if sum == 0 && len == 0 {
            return Ok(Placement::ragged(dim, units));
        }
        if sum == 0 || !len.is_multiple_of(sum) {
            return Err(refused(format!(
                "the units {units:?} add up to {sum}, which does not divide the {len} indices of dim {dim}; give \
                 sizes, or units whose sum divides them"
            )));
        }
        let sizes: Vec<usize> = units.iter().map(|&n| n * (len / sum)).collect();
        Ok(Placement::ragged(dim, &sizes))
    }
}
