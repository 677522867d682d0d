//! XLA's `HloSharding` and the device lists it is written with.
//!
//! ```text
//! {replicated}   {unreduced}   {manual}   {maximal device=3}
//! {devices=[2,2]0,1,2,3}                                      V1: the list of the devices of the tiles
//! {devices=[2,4]<=[8]}   {devices=[2,4]<=[4,2]T(1,0)}         V2: iota, reshaped and transposed
//! {devices=[2,1,4]<=[8] last_tile_dim_replicate}              a last tile dim over which the tiles are copies
//! {devices=[2,2,2]<=[8] last_tile_dims={unreduced, replicated}}
//! {replicated metadata={op_name="jit(f)/dot"}}                its origin, which is not retained
//! {{devices=[2,4]<=[8]}, {replicated}}                        a tuple: one for each of several tensors
//! ```
//!
//! Devices are the positions of [`crate::Mesh::ranks`], as in a device assignment.

use core::fmt;
use std::str::FromStr;

use reshard_layout::{InlineVec, Layout, Mode, Modes};

use crate::Error;
use crate::notation::cursor::Cursor;

/// A list of numbers from 0 on: an array of consecutive ones, reshaped and transposed, or any list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceList {
    /// `<=[4,2]T(1,0)`: the row-major numbers of this shape, with its dims in another order.
    Iota {
        /// The shape of the consecutive numbers.
        reshape: InlineVec<usize, 4>,
        /// The permutation of its dims, slowest first.
        transpose: InlineVec<usize, 4>,
    },
    /// `0,1,2,3`.
    Listed(Vec<usize>),
}

/// The role of the ranks along a tile dim after the tensor's dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LastDim {
    /// They hold copies.
    Replicated,
    /// They hold partial sums.
    Unreduced,
    /// They are sharded manually, which a sharding cannot express.
    Manual,
}

/// An `HloSharding` (see the module).
///
/// ```
/// use reshard_sharding::notation::HloSharding;
/// let text = "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}";
/// assert_eq!(text.parse::<HloSharding>()?.to_string(), text);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HloSharding {
    /// Every device holds everything.
    Replicated,
    /// Every device holds a partial sum.
    Unreduced,
    /// Sharded by hand.
    Manual,
    /// One device holds everything.
    Maximal(usize),
    /// Tiles of equal size, the last ones short or empty.
    Tiled {
        /// The number of tiles of each dim of the tensor, then the sizes of the last dims.
        tiles: InlineVec<usize, 6>,
        /// The devices of the tiles, row-major.
        devices: DeviceList,
        /// The roles of the last tile dims.
        last: InlineVec<LastDim, 2>,
    },
}

impl DeviceList {
    /// Returns the list as the coalesced modes of a layout, position to device, fastest first.
    ///
    /// `None` where it is not one, such as a list that does not start with 0.
    pub(crate) fn modes(&self) -> Option<Modes> {
        match self {
            DeviceList::Iota { reshape, transpose } => {
                let mut weights: InlineVec<i64, 4> = InlineVec::from_elem(1, reshape.len());
                for i in (1..reshape.len()).rev() {
                    weights[i - 1] = weights[i] * reshape[i] as i64;
                }
                let mode = |&i: &usize| Mode::new(reshape[i] as i64, weights[i]);
                Some(transpose.iter().rev().map(mode).collect::<Modes>().coalesce())
            }
            DeviceList::Listed(list) => {
                if *list.first()? != 0 {
                    return None;
                }
                let line: Vec<i64> = list.iter().map(|&x| x as i64).collect();
                let modes = crate::mesh::modes_of_line(&line).ok()?.coalesce();
                // All numbers below the length, each once.
                Layout::from_flat(modes.clone()).ok()?.is_compact().then_some(modes)
            }
        }
    }

    /// Returns the list of these modes, position to device and fastest first, as iota with the fewest dims.
    pub(crate) fn of_modes(modes: &Modes) -> DeviceList {
        let mut modes = modes.coalesce();
        if modes.is_empty() {
            modes.push(Mode::new(1, 1));
        }
        let mut sorted = modes.clone();
        sorted.sort_by_key(|m| core::cmp::Reverse(m.stride));
        let place = |m| sorted.iter().position(|x| x == m).unwrap_or(0);
        DeviceList::Iota {
            reshape: sorted.iter().map(|m| m.extent as usize).collect(),
            transpose: modes.iter().rev().map(place).collect(),
        }
    }

    /// Returns the number of devices; `None` if it does not fit.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            DeviceList::Iota { reshape, .. } => product(reshape),
            DeviceList::Listed(list) => Some(list.len()),
        }
    }

    /// Returns the same list with every number written out.
    pub fn listed(&self) -> Result<DeviceList, Error> {
        self.values().map(DeviceList::Listed)
    }

    /// Returns the numbers as a list.
    pub(crate) fn values(&self) -> Result<Vec<usize>, Error> {
        const MOST: usize = 1 << 20;
        match self {
            DeviceList::Listed(list) => Ok(list.clone()),
            DeviceList::Iota { .. } => {
                let n = self.len().filter(|&n| n <= MOST).ok_or_else(|| Error::NotRepresentable {
                    notation: "HLO (V1)",
                    reason: format!("it lists every device, and {self} has more than {MOST}"),
                })?;
                let layout = Layout::from_flat(self.modes().unwrap_or_default())?;
                Ok(layout.values().take(n).map(|device| device as usize).collect())
            }
        }
    }

    /// Reads `<=[4,2]T(1,0)` or `0,1,2,3`.
    pub(crate) fn read(r: &mut Cursor<'_>) -> Result<DeviceList, Error> {
        if r.eat("<=") {
            DeviceList::read_iota(r)
        } else {
            Ok(DeviceList::Listed(numbers(r, "a device, or <=[..]")?))
        }
    }

    /// Reads `[4,2]T(1,0)` or `0,1,2,3`, as a mesh has its devices.
    pub(crate) fn read_of_mesh(r: &mut Cursor<'_>) -> Result<DeviceList, Error> {
        if r.rest().starts_with('[') {
            DeviceList::read_iota(r)
        } else {
            Ok(DeviceList::Listed(numbers(r, "a device, or [..]")?))
        }
    }

    /// Reads `[4,2]T(1,0)`.
    fn read_iota(r: &mut Cursor<'_>) -> Result<DeviceList, Error> {
        r.expect("[")?;
        let at = r.here();
        let reshape: InlineVec<usize, 4> = numbers(r, "a size")?.into_iter().collect();
        if product(&reshape).is_none_or(|p| p == 0) {
            return Err(r.error_at(at, "sizes of at least 1 whose product fits"));
        }
        r.expect("]")?;
        let mut transpose: InlineVec<usize, 4> = (0..reshape.len()).collect();
        let mut ahead = r.clone();
        let _ = ahead.eat(",");
        if ahead.eat("T") {
            *r = ahead;
            r.expect("(")?;
            let at = r.here();
            transpose = numbers(r, "the number of a dim")?.into_iter().collect();
            let mut sorted = transpose.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..reshape.len()) {
                return Err(r.error_at(at, format!("each of the {} dims once", reshape.len())));
            }
            r.expect(")")?;
        }
        Ok(DeviceList::Iota { reshape, transpose })
    }
}

pub(crate) fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1i64, |p, &n| p.checked_mul(i64::try_from(n).ok()?)).map(|p| p as usize)
}

/// Returns one number or more, with commas.
pub(crate) fn numbers(r: &mut Cursor<'_>, what: &str) -> Result<Vec<usize>, Error> {
    let mut list = vec![r.number(what)?];
    loop {
        let mut ahead = r.clone();
        if !ahead.eat(",") || !ahead.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(list);
        }
        *r = ahead;
        list.push(r.number(what)?);
    }
}

/// Numbers with commas between.
pub(crate) fn join(list: &[usize]) -> String {
    list.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceList::Iota { reshape, transpose } => {
                write!(f, "<=[{}]", join(reshape))?;
                if transpose.windows(2).any(|w| w[0] > w[1]) {
                    write!(f, "T({})", join(transpose))?;
                }
                Ok(())
            }
            DeviceList::Listed(list) => f.write_str(&join(list)),
        }
    }
}

impl LastDim {
    fn as_str(self) -> &'static str {
        match self {
            LastDim::Replicated => "replicated",
            LastDim::Unreduced => "unreduced",
            LastDim::Manual => "manual",
        }
    }
}

impl fmt::Display for HloSharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HloSharding::Replicated => f.write_str("{replicated}"),
            HloSharding::Unreduced => f.write_str("{unreduced}"),
            HloSharding::Manual => f.write_str("{manual}"),
            HloSharding::Maximal(device) => write!(f, "{{maximal device={device}}}"),
            HloSharding::Tiled { tiles, devices, last } => {
                write!(f, "{{devices=[{}]{devices}", join(tiles))?;
                match last[..] {
                    [] => {}
                    [LastDim::Replicated] => f.write_str(" last_tile_dim_replicate")?,
                    _ => {
                        let names: Vec<&str> = last.iter().map(|l| l.as_str()).collect();
                        write!(f, " last_tile_dims={{{}}}", names.join(", "))?;
                    }
                }
                f.write_str("}")
            }
        }
    }
}

/// The value of XLA's `sharding=` attribute: one sharding, or a tuple with one for each tensor of a tuple.
///
/// ```
/// use reshard_sharding::notation::{HloSharding, HloShardings};
/// let text = "{{devices=[2,4]<=[8]}, {replicated}}";
/// let HloShardings::Tuple(all) = text.parse()? else { unreachable!() };
/// assert_eq!(all[1], HloSharding::Replicated);
/// assert_eq!(HloShardings::Tuple(all).to_string(), text);
/// assert!(text.parse::<HloSharding>().unwrap_err().to_string().contains("a tuple of 2"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HloShardings {
    /// `{replicated}`.
    One(HloSharding),
    /// `{{replicated}, {replicated}}`, at least one.
    Tuple(Vec<HloSharding>),
}

impl HloShardings {
    /// Returns the shardings, in order.
    pub fn all(&self) -> &[HloSharding] {
        match self {
            HloShardings::One(one) => core::slice::from_ref(one),
            HloShardings::Tuple(all) => all,
        }
    }
}

impl fmt::Display for HloShardings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HloShardings::One(one) => one.fmt(f),
            HloShardings::Tuple(all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                write!(f, "{{{}}}", all.join(", "))
            }
        }
    }
}

impl FromStr for HloShardings {
    type Err = Error;

    fn from_str(text: &str) -> Result<HloShardings, Error> {
        let mut r = Cursor::new("HLO sharding", text);
        let mut ahead = r.clone();
        let read = if ahead.eat("{") && ahead.rest().starts_with('{') {
            r.expect("{")?;
            let mut all = vec![read_one(&mut r)?];
            while r.eat(",") {
                all.push(read_one(&mut r)?);
            }
            r.expect("}")?;
            HloShardings::Tuple(all)
        } else {
            HloShardings::One(read_one(&mut r)?)
        };
        r.finish()?;
        Ok(read)
    }
}

impl FromStr for HloSharding {
    type Err = Error;

    fn from_str(text: &str) -> Result<HloSharding, Error> {
        match text.parse()? {
            HloShardings::One(one) => Ok(one),
            HloShardings::Tuple(all) => {
                let many = format!("one sharding, where this is a tuple of {}: name one of them", all.len());
                Err(Cursor::new("HLO sharding", text).error(many))
            }
        }
    }
}

/// Reads a sharding from its brace to the other one.
fn read_one(r: &mut Cursor<'_>) -> Result<HloSharding, Error> {
    r.expect("{")?;
    let at = r.here();
    let sharding = match r.take_while(|c| c.is_ascii_alphabetic() || c == '_') {
        "replicated" => HloSharding::Replicated,
        "unreduced" => HloSharding::Unreduced,
        "manual" => HloSharding::Manual,
        "maximal" => {
            r.expect("device")?;
            r.expect("=")?;
            HloSharding::Maximal(r.number("a device")?)
        }
        "devices" => read_tiled(r)?,
        _ => return Err(r.error_at(at, "devices=[..], replicated, unreduced, manual or maximal device=")),
    };
    skip_metadata(r)?;
    r.expect("}")?;
    Ok(sharding)
}

/// Skips `metadata={op_name="..." source_line=3}`, which does not affect the sharding.
fn skip_metadata(r: &mut Cursor<'_>) -> Result<(), Error> {
    let mut ahead = r.clone();
    let _ = ahead.eat(",");
    if !ahead.eat("metadata") {
        return Ok(());
    }
    *r = ahead;
    r.expect("=")?;
    r.expect("{")?;
    let mut open = 1usize;
    while open > 0 {
        r.take_while(|c| !matches!(c, '{' | '}' | '"'));
        if r.eat("{") {
            open += 1;
        } else if r.eat("\"") {
            // Quotes inside a text are escaped.
            while !r.eat("\"") {
                r.take_while(|c| !matches!(c, '"' | '\\'));
                let escape = r.eat("\\") && (r.eat("\\") || r.eat("\"") || !r.is_done());
                if !escape && r.is_done() {
                    return Err(r.error("the quote that closes a text of the metadata"));
                }
            }
        } else if r.eat("}") {
            open -= 1;
        } else {
            return Err(r.error("the brace that closes the metadata"));
        }
    }
    Ok(())
}

fn read_tiled(r: &mut Cursor<'_>) -> Result<HloSharding, Error> {
    r.expect("=")?;
    r.expect("[")?;
    let at = r.here();
    let tiles: InlineVec<usize, 6> = numbers(r, "a number of tiles")?.into_iter().collect();
    r.expect("]")?;
    let devices = DeviceList::read(r)?;
    let count = product(&tiles);
    if count.is_none() || count != devices.len() || count == Some(0) {
        return Err(r.error_at(at, format!("as many tiles as devices, {}", devices.len().unwrap_or(0))));
    }
    let mut ahead = r.clone();
    let _ = ahead.eat(",");
    if ahead.rest().starts_with("last_tile_dim") {
        *r = ahead;
    }
    let mut last = InlineVec::new();
    if r.eat("last_tile_dims") {
        r.expect("=")?;
        r.expect("{")?;
        loop {
            let at = r.here();
            last.push(match r.take_while(|c| c.is_ascii_alphabetic()) {
                "replicated" => LastDim::Replicated,
                "unreduced" => LastDim::Unreduced,
                "manual" => LastDim::Manual,
                _ => return Err(r.error_at(at, "replicated, unreduced or manual")),
            });
            if !r.eat(",") {
                break;
            }
        }
        r.expect("}")?;
    } else if r.eat("last_tile_dim_replicate") {
        last.push(LastDim::Replicated);
    }
    if last.len() > tiles.len() {
        return Err(r.error_at(at, format!("at least the {} last tile dims", last.len())));
    }
    Ok(HloSharding::Tiled { tiles, devices, last })
}
