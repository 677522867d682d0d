//! The by-tensor notation (Shardy's): for each dim the axes that shard it, most significant first.
//!
//! ```text
//! [{dp,tp},{}]                      dim 0 over dp, then tp; dim 1 whole
//! [{tp:(1)2},{}]                    over the major half of tp=4
//! [{4,dp},{}] unreduced={cp:max}    a local digit of 4, then dp; cp: a max is pending        (Shardy has no local digits)
//! ```
//!
//! Unnamed axes are replicated. The list of a dim reads as digits. On a dim that does not divide, where
//! nested chunks, strided chunks and flat chunks differ, it is rejected unless all readings agree.

use core::fmt;

use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use crate::axis::{AxisName, SubAxis};
use crate::notation::Reading;
use crate::notation::cursor::Cursor;
use crate::notation::dims::{Token, build, only_chunks};
use crate::sharding::PartialAxis;
use crate::{Error, Mesh, ReduceOp, Sharding};

/// Reads a sharding by tensor.
pub(crate) fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<Reading, Error> {
    let mut r = Cursor::new("sharding by tensor", text);
    let reading = read(&mut r, mesh, shape)?;
    r.finish()?;
    Ok(reading)
}

/// Reads a sharding by tensor up to the end, `>` or `}`.
pub(crate) fn read(r: &mut Cursor<'_>, mesh: &Mesh, shape: &[usize]) -> Result<Reading, Error> {
    let mut used: SmallVec<[SubAxis; 8]> = SmallVec::new();
    let mut dims: SmallVec<[SmallVec<[Token; 4]>; 4]> = SmallVec::new();
    r.expect("[")?;
    if !r.eat("]") {
        loop {
            r.expect("{")?;
            dims.push(read_dim(r, mesh, &mut used)?);
            if r.rest().starts_with('p') {
                return Err(unsettled(r, "a priority, as p1", "leave the priority out"));
            }
            if !r.eat(",") {
                break;
            }
        }
        r.expect("]")?;
    }
    let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
    let mut reduced: SmallVec<[SubAxis; 2]> = SmallVec::new();
    while !r.is_done() && !r.rest().starts_with(['>', '}']) {
        let _ = r.eat(",");
        if r.eat("unreduced") {
            r.expect("=")?;
            r.expect("{")?;
            partial.extend(read_unreduced(r, mesh, &mut used)?);
        } else if r.eat("replicated") {
            read_sub_axes(r, mesh, &mut used)?;
        } else if r.eat("reduced") {
            reduced.extend(read_sub_axes(r, mesh, &mut used)?);
        } else {
            return Err(r.error("unreduced={..}, replicated={..} or the end"));
        }
    }
    if dims.len() != shape.len() {
        return Err(Error::DimCount { named: dims.len(), dims: shape.len(), text: r.input().to_owned() });
    }
    Ok(Reading::ByDim { value: build(mesh, shape, r.input(), &dims, partial)?, reduced })
}

/// Reads `={tp,cp}`.
fn read_sub_axes(
    r: &mut Cursor<'_>,
    mesh: &Mesh,
    used: &mut SmallVec<[SubAxis; 8]>,
) -> Result<SmallVec<[SubAxis; 2]>, Error> {
    r.expect("=")?;
    r.expect("{")?;
    let mut all = SmallVec::new();
    while !r.eat("}") {
        all.push(read_sub_axis(r, mesh, used)?);
        let _ = r.eat(",");
    }
    Ok(all)
}

fn read_dim(
    r: &mut Cursor<'_>,
    mesh: &Mesh,
    used: &mut SmallVec<[SubAxis; 8]>,
) -> Result<SmallVec<[Token; 4]>, Error> {
    let mut tokens = SmallVec::new();
    while !r.eat("}") {
        if !tokens.is_empty() {
            r.expect(",")?;
        }
        let at = r.here();
        if r.rest().starts_with('?') {
            return Err(unsettled(r, "an open dim, ?", "leave the ? out"));
        }
        if r.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let n = r.number("a local digit")?;
            if n == 0 {
                return Err(r.error_at(at, "a local digit of at least 1"));
            }
            tokens.push(Token::Local(n));
        } else {
            tokens.push(Token::Sub(read_sub_axis(r, mesh, used)?));
        }
    }
    Ok(tokens)
}

/// Returns the error for a part that matters only to propagation, before the sharding is fixed.
fn unsettled(r: &Cursor<'_>, what: &str, way_out: &str) -> Error {
    Error::NotRepresentable {
        notation: "placements",
        reason: format!(
            "{} has {what}, which is for propagation and does not determine which rank holds which elements; \
             {way_out}",
            r.input()
        ),
    }
}

fn read_unreduced(
    r: &mut Cursor<'_>,
    mesh: &Mesh,
    used: &mut SmallVec<[SubAxis; 8]>,
) -> Result<SmallVec<[PartialAxis; 2]>, Error> {
    let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
    while !r.eat("}") {
        if !partial.is_empty() {
            r.expect(",")?;
        }
        let sub = read_sub_axis(r, mesh, used)?;
        let op = if r.eat(":") { ReduceOp::read(r)? } else { ReduceOp::Sum };
        partial.push(PartialAxis { sub, op });
    }
    Ok(partial)
}

/// Reads `tp`, `"tp"` or `tp:(pre)size`, and fails if any of it was used before.
pub(crate) fn read_sub_axis(
    r: &mut Cursor<'_>,
    mesh: &Mesh,
    used: &mut SmallVec<[SubAxis; 8]>,
) -> Result<SubAxis, Error> {
    let at = r.here();
    let quote = ["\"", "'"].into_iter().find(|q| r.eat(q));
    let name = r.take_while(AxisName::continues);
    if name.is_empty() {
        return Err(r.error_at(at, "an axis name"));
    }
    if let Some(q) = quote {
        r.expect(q)?;
    }
    let axis = mesh.axis(name)?;
    let n = mesh.axes()[axis].size();
    let mut sub = mesh.known_whole(axis);
    let mut ahead = r.clone();
    if ahead.eat(":") && ahead.eat("(") {
        let pre = ahead.number("the product of the more significant sub-axes")?;
        ahead.expect(")")?;
        let size = ahead.number("the size of the sub-axis")?;
        if pre == 0 || size == 0 || pre.checked_mul(size).is_none_or(|p| !n.is_multiple_of(p)) {
            return Err(
                r.error_at(at, format!("a sub-axis (pre)size whose product divides the {n} of {name}"))
            );
        }
        sub = SubAxis { axis, pre_size: pre, size };
        *r = ahead;
    }
    let overlap = |u: &SubAxis| {
        u.axis == axis && u.pre_size < sub.pre_size * sub.size && sub.pre_size < u.pre_size * u.size
    };
    if sub.size > 1 && used.iter().any(overlap) {
        return Err(r.error_at(at, format!("each axis at most once ({name} is here twice)")));
    }
    if let Some(u) = used.iter().find(|u| !u.nests_beside(sub)) {
        let (u, sub) = (u.printed(mesh.axes()), sub.printed(mesh.axes()));
        return Err(r.error_at(
            at,
            format!("sub-axes of {name} that are digits of one factorization, unlike {u} and {sub}"),
        ));
    }
    used.push(sub);
    Ok(sub)
}

/// Prints a sharding by tensor; where dims do not divide, that may have other readings.
pub(crate) fn write(s: &Sharding, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let axes = s.mesh().axes();
    let cuts = s.cuts().unwrap_or_default();
    f.write_str("[")?;
    for dim in 0..s.shape().len() {
        f.write_str(if dim == 0 { "{" } else { ",{" })?;
        // Fastest first, as the modes of a dim that divides are.
        let chunks =
            || cuts.iter().rev().filter(|c| c.dim == dim).map(|c| s.mesh().known_mode(c.sub)).collect();
        let modes: Modes<AxisStride> = s.dim_modes(dim).unwrap_or_else(chunks);
        // Trailing local digits are implied and not printed.
        let shown = modes.iter().position(|m| !m.stride.is_local()).unwrap_or(modes.len());
        for (i, &m) in modes[shown..].iter().rev().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match s.mesh().sub_axis(m) {
                Some(sub) => sub.write(f, axes)?,
                None => write!(f, "{}", m.extent)?,
            }
        }
        f.write_str("}")?;
    }
    f.write_str("]")?;
    if s.is_partial() {
        f.write_str(" unreduced={")?;
        for (i, p) in s.partial().iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            p.sub.write(f, axes)?;
            if p.op != ReduceOp::Sum {
                write!(f, ":{}", p.op)?;
            }
        }
        f.write_str("}")?;
    }
    Ok(())
}

impl Sharding {
    /// Returns the sharding by tensor, such as `[{dp,tp},{}] unreduced={cp}`.
    ///
    /// Fails where this notation cannot hold it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),S(0)")?;
    /// assert_eq!(s.to_dims_notation()?, "[{tp,dp},{}]");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn to_dims_notation(&self) -> Result<String, Error> {
        if self.layout().is_some() {
            return Ok(ByTensor(self).to_string());
        }
        only_chunks(self, "by-tensor")?;
        let text = ByTensor(self).to_string();
        match parse(self.mesh(), self.shape(), &text) {
            Ok(Reading::ByDim { value, .. }) if value == *self => Ok(text),
            Ok(_) | Err(_) => Err(Error::Uneven {
                reason: format!(
                    "{self} of {:?} does not divide, and in the dims notation its chunks would be ambiguous",
                    self.shape()
                ),
            }),
        }
    }
}

struct ByTensor<'a>(&'a Sharding);

impl fmt::Display for ByTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, f)
    }
}
