//! HLO shardings as modes of the mesh, and back.
//!
//! The number of a device is a mixed-radix number twice: over the mesh axes, last fastest, and over the dims
//! of the device list. A mode `e:w` of the list is split into sub-axes where mesh axes end; the tiles are
//! these modes split at their sizes, as a view is.
//!
//! A list of devices in any other order is a separate mesh: an axis for each tile dim, and the list as its
//! ranks.

use reshard_layout::algebra::split_into;
use reshard_layout::{AxisStride, InlineVec, Mode, Modes};
use smallvec::SmallVec;

use super::dims::{Reading, Token, axes_of_dims_as, build_as, sums};
use super::hlo::{DeviceList, HloSharding, LastDim};
use crate::axis::SubAxis;
use crate::layout::of_modes;
use crate::sharding::PartialAxis;
use crate::{Error, Mesh, Placement, ReduceOp, Sharding};

const NOTATION: &str = "HLO";

impl Sharding {
    /// Returns the sharding of a tensor that an HLO sharding denotes on a mesh of the same number of devices.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::from_hlo(&mesh, &[64, 32], &"{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}".parse()?)?;
    /// assert_eq!(s.to_string(), "R,S(0)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Devices that are not digits of the mesh become a separate mesh over the same ranks, which is then the
    /// sharding's mesh:
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "d=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[8], "{devices=[4]0,2,3,1}")?;
    /// assert_eq!((s.mesh().to_string(), s.to_string()), ("d0=4@[0,2,3,1]".to_owned(), "S(0)".to_owned()));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// So do tiles of a dim that does not divide, where no digits of the mesh express them, as over parts of
    /// several axes:
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "x=2,y=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[5], "{devices=[4,2]<=[8] last_tile_dim_replicate}")?;
    /// assert_eq!((s.mesh().to_string(), s.to_string()), ("d0=4,d1=2".to_owned(), "S(0),R".to_owned()));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` where something is maximal or manual or more than 2^20 devices would be
    /// written out, with `dim_count` for another number of dims, and with `placement` for one of devices.
    pub fn from_hlo(mesh: &Mesh, shape: &[usize], hlo: &HloSharding) -> Result<Sharding, Error> {
        let refused = |reason: String| Error::NotRepresentable { notation: "placements", reason };
        match hlo {
            HloSharding::Replicated => Sharding::replicated(mesh, shape),
            HloSharding::Unreduced => {
                let all = mesh.whole_axes().map(|sub| PartialAxis { sub, op: ReduceOp::Sum });
                Sharding::replicated(mesh, shape)?.with_partial(all)
            }
            HloSharding::Manual => {
                Err(refused(format!("{hlo} does not determine which device holds which elements")))
            }
            HloSharding::Maximal(device) => Err(refused(format!(
                "{hlo} stores the whole tensor on device {device}, which is not a sharding of {mesh}"
            ))),
            HloSharding::Tiled { tiles, devices, last } => {
                if tiles.len() != shape.len() + last.len() {
                    let named = tiles.len().saturating_sub(last.len());
                    return Err(Error::DimCount { named, dims: shape.len(), text: hlo.to_string() });
                }
                if devices.len() != Some(mesh.size()) {
                    return Err(Error::Placement {
                        reason: format!(
                            "{hlo} has {} devices, but the mesh {mesh} has {} ranks",
                            devices.len().unwrap_or_default(),
                            mesh.size()
                        ),
                    });
                }
                let digits = modes_of(mesh, devices).and_then(|modes| of_modes(tiles, modes.coalesce()).ok());
                let Some(tiled) = digits else { return in_any_order(mesh, shape, hlo, tiles, devices, last) };
                let mut dims: Vec<SmallVec<[Token; 4]>> = vec![SmallVec::new(); shape.len()];
                let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
                let tile_dims: SmallVec<[&[Mode<AxisStride>]; 6]> = tiled.flat_modes().collect();
                let slowest_first = tile_dims.iter().rev().enumerate();
                let subs_of =
                    |(dim, modes): (usize, &&[Mode<AxisStride>])| -> SmallVec<[(usize, SubAxis); 4]> {
                        modes.iter().rev().filter_map(|&m| Some((dim, mesh.sub_axis(m)?))).collect()
                    };
                for (dim, sub) in slowest_first.flat_map(subs_of) {
                    match dim.checked_sub(shape.len()).map(|i| last[i]) {
                        None => dims[dim].push(Token::Sub(sub)),
                        Some(LastDim::Replicated) => {}
                        Some(LastDim::Unreduced) => partial.push(PartialAxis { sub, op: ReduceOp::Sum }),
                        Some(LastDim::Manual) => {
                            return Err(refused(format!(
                                "the manual tile dim of {hlo} does not determine which device holds which elements"
                            )));
                        }
                    }
                }
                match build_as(Reading::Flat, mesh, shape, &hlo.to_string(), &dims, partial) {
                    // Flat chunks over parts of axes have no notation on this mesh; on a separate one they
                    // are chunks.
                    Err(Error::Uneven { .. }) => in_any_order(mesh, shape, hlo, tiles, devices, last),
                    built => built,
                }
            }
        }
    }

    /// Returns the HLO sharding (V2) of this sharding, or why that notation cannot hold it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),S(0)")?;
    /// assert_eq!(s.to_hlo()?.to_string(), "{devices=[8,1]<=[2,4]T(1,0)}");
    /// let s = Sharding::parse(&mesh, &[64, 32], "P,S(1)")?;
    /// assert_eq!(s.to_hlo()?.to_string(), "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={unreduced}}");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` for strided shards and reductions other than sums, and with `uneven`.
    pub fn to_hlo(&self) -> Result<HloSharding, Error> {
        let dims = axes_of_dims_as(Reading::Flat, self, NOTATION)?;
        let unreduced = sums(self, NOTATION)?;
        let replicated = self.replicated_axes();
        let size = |subs: &[SubAxis]| subs.iter().map(|s| s.size).product::<usize>();
        let mut tiles: InlineVec<usize, 6> = dims.iter().map(|d| size(d)).collect();
        let mut last: InlineVec<LastDim, 2> = InlineVec::new();
        for (subs, kind) in [(&unreduced[..], LastDim::Unreduced), (&replicated[..], LastDim::Replicated)] {
            if size(subs) > 1 {
                last.push(kind);
                tiles.push(size(subs));
            }
        }
        let sharded = tiles[..dims.len()].iter().any(|&n| n > 1);
        match (sharded, &last[..]) {
            (false, [] | [LastDim::Replicated]) => return Ok(HloSharding::Replicated),
            (false, [LastDim::Unreduced]) => return Ok(HloSharding::Unreduced),
            (false | true, _) => {}
        }
        let all = dims.iter().flatten().chain(&unreduced).chain(&replicated);
        let mut modes: Modes =
            all.map(|&s| Mode::new(s.size as i64, weight(self.mesh(), s) as i64)).collect();
        modes.reverse();
        Ok(HloSharding::Tiled { tiles, devices: DeviceList::of_modes(&modes), last })
    }
}

impl HloSharding {
    /// Returns the same sharding in V1, with its devices written out.
    pub fn v1(&self) -> Result<HloSharding, Error> {
        match self {
            HloSharding::Tiled { tiles, devices, last } => Ok(HloSharding::Tiled {
                tiles: tiles.clone(),
                devices: devices.listed()?,
                last: last.clone(),
            }),
            HloSharding::Replicated
            | HloSharding::Unreduced
            | HloSharding::Manual
            | HloSharding::Maximal(_) => Ok(self.clone()),
        }
    }
}

/// Returns the step of a sub-axis in positions of the mesh.
pub(super) fn weight(mesh: &Mesh, s: SubAxis) -> usize {
    let later: usize = mesh.axes()[s.axis + 1..].iter().map(crate::Axis::size).product();
    later * s.known_post(mesh.axes()[s.axis].size())
}

/// Returns the sharding on a mesh with an axis for each tile dim, whose ranks are the list of devices.
fn in_any_order(
    mesh: &Mesh,
    shape: &[usize],
    hlo: &HloSharding,
    tiles: &[usize],
    devices: &DeviceList,
    last: &[LastDim],
) -> Result<Sharding, Error> {
    let list = devices.values()?;
    let rank_of = |&device: &usize| {
        let rank = mesh.coordinate_at(device).and_then(|c| mesh.rank_at(&c));
        rank.ok_or_else(|| Error::Placement {
            reason: format!(
                "{hlo} names the device {device}, but the mesh {mesh} has {} ranks; devices count from 0",
                mesh.size()
            ),
        })
    };
    let ranks = list.iter().map(rank_of).collect::<Result<Vec<usize>, Error>>()?;
    let (mut axes, mut placements) = (Vec::new(), Vec::new());
    for (dim, &n) in tiles.iter().enumerate() {
        let placement = match dim.checked_sub(shape.len()).map(|i| last[i]) {
            None => Placement::Shard(dim),
            Some(LastDim::Replicated) => Placement::Replicate,
            Some(LastDim::Unreduced) => Placement::Partial(ReduceOp::Sum),
            Some(LastDim::Manual) => {
                return Err(Error::NotRepresentable {
                    notation: "placements",
                    reason: format!(
                        "the manual tile dim of {hlo} does not determine which device holds which \
                         elements"
                    ),
                });
            }
        };
        if n > 1 {
            axes.push((format!("d{dim}"), n));
            placements.push(placement);
        }
    }
    Sharding::new(&Mesh::from_ranks(axes, &ranks)?, shape, &placements)
}

/// Returns the modes of axes that a device list is, fastest first, if it is digits of the mesh.
fn modes_of(mesh: &Mesh, devices: &DeviceList) -> Option<Modes<AxisStride>> {
    let mut modes = Modes::new();
    for &Mode { extent, stride } in &devices.modes()? {
        let subs = sub_axes(mesh, extent as usize, stride as usize)?;
        modes.extend(subs.iter().rev().map(|&s| mesh.known_mode(s)));
    }
    Some(modes)
}

/// Returns the sub-axes of a mode of the position in the mesh, slowest first, if it nests with the axes.
///
/// They are the middle part of the mesh's axes, last fastest, split at its weight and at its end.
pub(super) fn sub_axes(mesh: &Mesh, extent: usize, weight: usize) -> Option<SmallVec<[SubAxis; 4]>> {
    let axes: Modes<AxisStride> = mesh.whole_axes().rev().map(|a| mesh.known_mode(a)).collect();
    let (mut parts, mut ends) = (Modes::new(), SmallVec::<[usize; 2]>::new());
    split_into(&axes, [weight as i64, extent as i64], &mut parts, |end| ends.push(end)).ok()?;
    let middle = &parts[ends[0]..];
    let size: i64 = middle.iter().map(|m| m.extent).product();
    (size == extent as i64).then(|| middle.iter().rev().filter_map(|&m| mesh.sub_axis(m)).collect())
}
