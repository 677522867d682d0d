//! HLO shardings as digits of the mesh, and back.
//!
//! The number of a device is a mixed-radix number twice: over the mesh axes, last fastest, and over the dims of the
//! device list. A digit `[w, w e)` of the list (weight `w`, extent `e`) is the sub-axes it is cut into where mesh axes
//! end; the tiles are a grouping of these digits, as a view is.

use smallvec::SmallVec;

use super::dims::{Token, axes_of_dims, build, sums};
use super::hlo::{DeviceList, HloSharding, LastDim};
use crate::axis::SubAxis;
use crate::digits::{Digit, Digits, Owner};
use crate::sharding::PartialAxis;
use crate::{Error, Mesh, ReduceOp, Sharding};

const NOTATION: &str = "HLO";

impl Sharding {
    /// The sharding of a tensor of this shape that an HLO sharding means on a mesh of as many devices.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::from_hlo(&mesh, &[64, 32], &"{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}".parse()?)?;
    /// assert_eq!(s.to_string(), "R,S(0)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` where the devices are no digits of the mesh or something is maximal or manual, with
    /// `dim_count` for another number of dims, with `placement` for one of devices, and with `uneven` where a dim's chunks have several readings.
    pub fn from_hlo(mesh: &Mesh, shape: &[usize], hlo: &HloSharding) -> Result<Sharding, Error> {
        let refused = |reason: String| Error::NotExpressible { notation: "placements", reason };
        match hlo {
            HloSharding::Replicated => Sharding::replicated(mesh, shape),
            HloSharding::Unreduced => {
                let all =
                    (0..mesh.axes().len()).map(|a| PartialAxis { sub: mesh.whole(a), op: ReduceOp::Sum });
                Sharding::replicated(mesh, shape)?.with_partial(all)
            }
            HloSharding::Manual => Err(refused(format!("{hlo} does not say who holds what"))),
            HloSharding::Maximal(device) => Err(refused(format!(
                "{hlo} keeps everything on the device {device}, which is no sharding of {mesh}"
            ))),
            HloSharding::Tiled { tiles, devices, last } => {
                if tiles.len() != shape.len() + last.len() {
                    let named = tiles.len().saturating_sub(last.len());
                    return Err(Error::DimCount { named, dims: shape.len(), text: hlo.to_string() });
                }
                let word = word_of(mesh, devices, &hlo.to_string())?;
                let digits = crate::view::regroup(&word, tiles).map_err(|_| {
                    refused(format!(
                        "a tile dim of {hlo} ends inside a digit of {mesh} that does not divide there"
                    ))
                })?;
                let mut dims: Vec<SmallVec<[Token; 4]>> = vec![SmallVec::new(); shape.len()];
                let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
                for sub_of in digits.iter().map(|d| (d.dim, d.sub_axis())) {
                    let (dim, Some(sub)) = sub_of else { continue };
                    match dim.checked_sub(shape.len()).map(|i| last[i]) {
                        None => dims[dim].push(Token::Sub(sub)),
                        Some(LastDim::Replicated) => {}
                        Some(LastDim::Unreduced) => partial.push(PartialAxis { sub, op: ReduceOp::Sum }),
                        Some(LastDim::Manual) => {
                            return Err(refused(format!(
                                "the manual tile dim of {hlo} does not say who holds what"
                            )));
                        }
                    }
                }
                build(mesh, shape, &hlo.to_string(), &dims, partial)
            }
        }
    }

    /// The HLO sharding (V2) of this sharding, or why that notation cannot hold it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),S(0)")?;
    /// assert_eq!(s.hlo()?.to_string(), "{devices=[8,1]<=[2,4]T(1,0)}");
    /// let s = Sharding::parse(&mesh, &[64, 32], "P,S(1)")?;
    /// assert_eq!(s.hlo()?.to_string(), "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={unreduced}}");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` for strided shards and reductions other than sums, and with `uneven`.
    pub fn hlo(&self) -> Result<HloSharding, Error> {
        let dims = axes_of_dims(self, NOTATION)?;
        let unreduced = sums(self, NOTATION)?;
        let replicated = self.replicated_axes();
        let size = |subs: &[SubAxis]| subs.iter().map(|s| s.size).product::<usize>();
        let mut tiles: SmallVec<[usize; 6]> = dims.iter().map(|d| size(d)).collect();
        let mut last: SmallVec<[LastDim; 2]> = SmallVec::new();
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
        let digits: SmallVec<[(usize, usize); 8]> = all.map(|&s| (s.size, weight(self.mesh(), s))).collect();
        Ok(HloSharding::Tiled { tiles, devices: DeviceList::of_digits(&digits), last })
    }
}

impl HloSharding {
    /// The same sharding in V1, with its devices written out.
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

/// What one step of a sub-axis adds to the position in the mesh.
pub(super) fn weight(mesh: &Mesh, s: SubAxis) -> usize {
    let later: usize = mesh.axes()[s.axis + 1..].iter().map(crate::Axis::size).product();
    later * s.post(mesh.axes()[s.axis].size())
}

/// The sub-axes that the digits of a device list are, slowest first.
fn word_of(mesh: &Mesh, devices: &DeviceList, text: &str) -> Result<Digits, Error> {
    if devices.len() != Some(mesh.size()) {
        return Err(Error::Placement {
            reason: format!(
                "{text} has {} devices, but the mesh {mesh} has {} ranks",
                devices.len().unwrap_or_default(),
                mesh.size()
            ),
        });
    }
    let refused = |reason: String| Error::NotExpressible { notation: "placements", reason };
    let digits = devices.digits().ok_or_else(|| {
        refused(format!("the devices of {text} are in an order that is no digits of the mesh {mesh}"))
    })?;
    let mut word = Digits::new();
    for (extent, weight) in digits {
        for sub in sub_axes(mesh, extent, weight).ok_or_else(|| {
            refused(format!("the {extent} devices {weight} apart in {text} are no axes of {mesh}"))
        })? {
            word.push(Digit { dim: 0, owner: Owner::Axis { axis: sub.axis, pre: sub.pre }, radix: sub.size });
        }
    }
    Ok(word)
}

/// The sub-axes of a digit of the position in the mesh, slowest first, if it nests with the axes.
pub(super) fn sub_axes(mesh: &Mesh, extent: usize, weight: usize) -> Option<SmallVec<[SubAxis; 4]>> {
    let mut out = SmallVec::new();
    let mut top = extent.checked_mul(weight)?;
    let mut end = mesh.size();
    for (axis, a) in mesh.axes().iter().enumerate() {
        let start = end / a.size();
        if top > start && weight < end {
            let low = weight.max(start);
            if !end.is_multiple_of(top) || !top.is_multiple_of(low) || !low.is_multiple_of(start) {
                return None;
            }
            out.push(SubAxis { axis, pre: end / top, size: top / low });
            top = low;
        }
        end = start;
    }
    (top == weight).then_some(out)
}
