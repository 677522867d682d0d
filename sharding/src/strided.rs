//! The kinds of strided shards: an order of axes, the result of a view, or plain; and PyTorch's two readings
//! of them.

use reshard_layout::{AxisStride, InlineVec, Mode};
use smallvec::SmallVec;

use crate::notation::dims::same_elements;
use crate::sharding::{AxisCut, Cuts, made};
use crate::{Error, Mesh, Placement, Sharding};

/// The modes above an axis in the dim that it shards.
///
/// The split factor of an axis is the product of the modes above its own in its dim that earlier axes have
/// not taken. Each of those goes along a later axis or is local:
///
/// ```text
/// SS(0,4),S(0)  ->  [tp 4][dp 2][local]      later axes only: the order (tp, dp), FSDP over tensor parallelism
/// SS(0,4),R     ->  [local 4][dp 2][local]   local only: the result of a flatten of (4, ..)
/// SS(0,1)       ->  [dp 2][local]            nothing: plain
/// ```
///
/// PyTorch has used `_StridedShard` for both. The literal reading (split into chunks, chunk each) is that of
/// [`Sharding::new`]. The other one chunks the dim in the order of axes that the factors spell,
/// [`Sharding::with_axis_order`]. Both are the same where the dim divides, and differ for most other sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Strided {
    /// Nothing: a plain shard.
    Plain,
    /// Only later axes, in this order: the dim is chunked by them first.
    Order(InlineVec<usize, 4>),
    /// Only local modes, of this product: the result of a view.
    View(usize),
    /// Local modes of this product among later axes.
    Mixed {
        /// The product of the local modes.
        local: usize,
        /// The later axes, in their order above the axis.
        axes: InlineVec<usize, 4>,
    },
}

/// The two readings of placements with strided shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    /// Chunks of chunks, as [`Sharding::new`] reads them.
    pub literal: Sharding,
    /// Plain chunks in the order of axes that the split factors spell.
    pub ordered: Sharding,
    /// `true` if every rank holds the same elements in both.
    pub agree: bool,
}

impl Sharding {
    /// Returns the kind of a mesh axis in the dim that it shards.
    ///
    /// Returns `None` if it shards none, or there is no layout.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, Strided};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64], "SS(0,4),S(0)")?;
    /// assert_eq!(s.strided(0), Some(Strided::Order([1].into_iter().collect())));
    /// let s = Sharding::parse(&mesh, &[64], "SS(0,4),R")?;
    /// assert_eq!(s.strided(0), Some(Strided::View(4)));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn strided(&self, axis: usize) -> Option<Strided> {
        let goes = |m: &Mode<AxisStride>| m.stride.axis() == Some(axis as u32);
        let dims: SmallVec<[&[Mode<AxisStride>]; 4]> = self.layout()?.flat_modes().collect();
        let dim = dims.iter().rev().find(|dim| dim.iter().any(goes))?;
        let (mut local, mut axes) = (1, InlineVec::<usize, 4>::new());
        for m in dim.iter().rev().take_while(|m| !goes(m)) {
            match m.stride.axis().map(|a| a as usize) {
                None => local *= m.extent as usize,
                Some(a) if a > axis && !axes.contains(&a) => axes.push(a),
                Some(_) => {}
            }
        }
        Some(match (local, axes.is_empty()) {
            (1, true) => Strided::Plain,
            (1, false) => Strided::Order(axes),
            (local, true) => Strided::View(local),
            (local, false) => Strided::Mixed { local, axes },
        })
    }

    /// Returns PyTorch's other reading of strided shards.
    ///
    /// It is plain chunks, in the order of axes that the split factors spell.
    ///
    /// `SS(d, k)` on an axis means that later axes of `d` whose sizes multiply to `k` chunk the dim before
    /// it. The order is found from the last axis to the first: each goes after the axes already ordered that
    /// multiply to its `k`.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=4,tp=2".parse()?;
    /// let placements: reshard_sharding::Placements = "SS(0,2),S(0)".parse()?;
    /// let s = Sharding::with_axis_order(&mesh, &[15], &placements)?;
    /// assert_eq!(s.to_string(), "S(0),S(0) order={tp,dp}");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Sharding::new`], and with `not_expressible` where no order of axes has these factors.
    pub fn with_axis_order(
        mesh: &Mesh,
        shape: &[usize],
        placements: &[Placement],
    ) -> Result<Sharding, Error> {
        let literal = Sharding::new(mesh, shape, placements)?;
        let cuts = ordered_cuts(mesh, placements)?;
        Sharding::from_cuts(mesh, shape, cuts, literal.partial().iter().copied().collect())
    }

    /// Returns both readings of placements with strided shards, and whether they agree.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Placements, Sharding};
    /// let mesh: Mesh = "dp=4,tp=2".parse()?;
    /// let placements: Placements = "SS(0,2),S(0)".parse()?;
    /// assert!(Sharding::strided_readings(&mesh, &[16], &placements)?.agree);
    /// // 9 rows: tiles of 5 and 4, and dp=3 has none of the first: its row 8 goes to tp=0 or, in order, to tp=1.
    /// assert!(!Sharding::strided_readings(&mesh, &[9], &placements)?.agree);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Sharding::with_axis_order`].
    #[doc(hidden)]
    pub fn strided_readings(
        mesh: &Mesh,
        shape: &[usize],
        placements: &[Placement],
    ) -> Result<Readings, Error> {
        let literal = Sharding::new(mesh, shape, placements)?;
        let ordered = Sharding::with_axis_order(mesh, shape, placements)?;
        let agree = literal == ordered || {
            let a = made(shape, plain_cuts(mesh, placements))?;
            let b = made(shape, ordered_cuts(mesh, placements)?)?;
            shape.iter().enumerate().all(|(dim, &len)| {
                let of =
                    |cuts: &[AxisCut]| -> Cuts { cuts.iter().filter(|c| c.dim == dim).cloned().collect() };
                same_elements(len, &of(&a), &of(&b))
            })
        };
        Ok(Readings { literal, ordered, agree })
    }
}

/// Returns the splits of placements, in mesh order.
fn plain_cuts(mesh: &Mesh, placements: &[Placement]) -> Cuts {
    let cut = |(axis, p): (usize, &Placement)| {
        let (dim, cut) = p.cut(mesh.axes()[axis].size())?;
        Some(AxisCut { dim, sub: mesh.known_whole(axis), cut })
    };
    placements.iter().enumerate().filter_map(cut).collect()
}

/// Returns the same axes as plain chunks, in the order that the split factors spell.
fn ordered_cuts(mesh: &Mesh, placements: &[Placement]) -> Result<Cuts, Error> {
    let mut order: Cuts = Cuts::new();
    for c in plain_cuts(mesh, placements).into_iter().rev() {
        let mut left = c.cut.pieces();
        let mut at = 0;
        for (i, placed) in order.iter().enumerate() {
            if left > 1 && placed.dim == c.dim {
                if !left.is_multiple_of(placed.cut.ranks()) {
                    break;
                }
                left /= placed.cut.ranks();
                at = i + 1;
            }
        }
        if left > 1 {
            return Err(Error::NotRepresentable {
                notation: "order of axes",
                reason: format!(
                    "{} on {} requires later axes with product {} that chunk dim {} before it, and there are none",
                    placements[c.sub.axis],
                    mesh.axes()[c.sub.axis].name(),
                    c.cut.pieces(),
                    c.dim
                ),
            });
        }
        order.insert(at, AxisCut { cut: c.cut.in_one_piece(), ..c });
    }
    Ok(order)
}
