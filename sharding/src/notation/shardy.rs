//! Shardy's own spelling of meshes and shardings, and XLA's named shardings, which are the same.
//!
//! ```text
//! #sdy.mesh<["dp"=2, "tp"=4]>                                       mesh['dp'=2,'tp'=4]
//! #sdy.mesh<["x"=2, "y"=2], device_ids=[1, 2, 3, 0]>                mesh['x'=2,'y'=2], device_ids=(1,2,3,0): in any order
//! #sdy.sharding<@mesh, [{"dp", "tp":(1)2}, {}], unreduced={"cp"}>   {mesh['dp'=2,'tp'=4], [{'dp'}, {}]}
//! #sdy.sharding<mesh<["dp"=2, "tp"=4]>, [{"dp"}, {}]>               of the mesh itself, which must be the given one
//! ```

use core::fmt::Write as _;

use super::cursor::Cursor;
use super::dims::{axes_of_dims, sums};
use super::hlo::DeviceList;
use super::shardy_text::ShardyMesh;
use super::{Reading, by_tensor};
use crate::axis::{AxisName, SubAxis};
use crate::{Error, Mesh, Sharding};

const NOTATION: &str = "Shardy";

/// Returns `true` if a text is a sharding in this spelling.
pub(super) fn is_sharding(text: &str) -> bool {
    let text = text.trim_start();
    ["#sdy.sharding", "sdy.sharding", "<@", "<mesh", "{mesh"].iter().any(|p| text.starts_with(p))
}

/// Returns `true` if a text is a mesh in this spelling.
pub(crate) fn is_mesh(text: &str) -> bool {
    let text = text.trim_start();
    ["#sdy.mesh", "sdy.mesh", "<[", "mesh[", "mesh<"].iter().any(|p| text.starts_with(p))
}

/// Reads a sharding: the lists by tensor, and the text around them.
pub(super) fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<Reading, Error> {
    let mut r = Cursor::new("Shardy sharding", text);
    let at = r.here();
    let (of, close) = read_mesh_of(&mut r)?;
    if let Some(named) = of.mesh().filter(|&named| named != mesh) {
        return Err(r.error_at(at, format!("a sharding over the mesh {mesh}, and not over {named},")));
    }
    r.expect(",")?;
    let reading = by_tensor::read(&mut r, mesh, shape)?;
    r.expect(close)?;
    r.finish()?;
    Ok(reading)
}

/// Reads the text before the lists; returns the mesh and the closing bracket.
pub(super) fn read_mesh_of(r: &mut Cursor<'_>) -> Result<(ShardyMesh, &'static str), Error> {
    let close = if r.eat("{") {
        "}"
    } else {
        let _ = r.eat("#sdy.sharding") || r.eat("sdy.sharding");
        r.expect("<")?;
        ">"
    };
    if close == ">" && r.eat("@") {
        return Ok((ShardyMesh::Named(r.take_while(AxisName::continues).to_owned()), close));
    }
    let at = r.here();
    if !r.rest().starts_with("mesh") {
        return Err(r.error_at(at, if close == ">" { "@name or mesh<[..]>" } else { "mesh[..]" }));
    }
    let mesh = read_mesh(r)?;
    // The inlined mesh is printed later, so check now that it can be.
    mesh.to_shardy()?;
    Ok((ShardyMesh::Inlined(mesh), close))
}

/// Returns the inlined mesh of Shardy's text of a sharding, if there is one.
///
/// ```
/// use reshard_sharding::notation::inlined_mesh;
/// let mesh = inlined_mesh(r#"#sdy.sharding<mesh<["x"=2, "y"=3]>, [{"x"}, {}]>"#)?;
/// assert_eq!(mesh.unwrap().to_string(), "x=2,y=3");
/// assert_eq!(inlined_mesh("S(0),R")?, None);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
///
/// Fails where the text begins as such a sharding and is malformed after that.
pub fn inlined_mesh(text: &str) -> Result<Option<Mesh>, Error> {
    if !is_sharding(text) {
        return Ok(None);
    }
    let (of, _) = read_mesh_of(&mut Cursor::new("Shardy sharding", text))?;
    Ok(of.mesh().cloned())
}

/// Reads a mesh.
pub(crate) fn parse_mesh(text: &str) -> Result<Mesh, Error> {
    let mut r = Cursor::new("mesh", text);
    let mesh = read_mesh(&mut r)?;
    r.finish()?;
    Ok(mesh)
}

/// Reads a mesh in the notation of XLA or Shardy.
///
/// Examples: `mesh['a'=2]`, `mesh['a'=2], device_ids=([2,4]T(1,0))`, `mesh<["a"=2]>` or
/// `#sdy.mesh<["a"=2], device_ids=[..]>`.
pub(super) fn read_mesh(r: &mut Cursor<'_>) -> Result<Mesh, Error> {
    let short = r.eat("mesh");
    let angle = !short || r.rest().starts_with('<');
    if angle {
        let _ = !short && (r.eat("#sdy.mesh") || r.eat("sdy.mesh"));
        r.expect("<")?;
    }
    r.expect("[")?;
    let mut axes: Vec<(String, usize)> = Vec::new();
    while !r.eat("]") {
        if !axes.is_empty() {
            r.expect(",")?;
        }
        let quote = ["\"", "'"].into_iter().find(|q| r.eat(q));
        let at = r.here();
        let name = r.take_while(AxisName::continues);
        if name.is_empty() {
            return Err(r.error_at(at, "an axis name"));
        }
        if let Some(q) = quote {
            r.expect(q)?;
        }
        r.expect("=")?;
        axes.push((name.to_owned(), r.number("the size of the axis")?));
    }
    let mut ids = None;
    let mut ahead = r.clone();
    if ahead.eat(",") && ahead.eat("device_ids") {
        *r = ahead;
        r.expect("=")?;
        // XLA's notation, which allows an iota; else Shardy's.
        ids = Some(if r.eat("(") {
            let devices = DeviceList::read_of_mesh(r)?;
            r.expect(")")?;
            devices.values()?
        } else {
            r.expect("[")?;
            let devices = super::hlo::numbers(r, "a device")?;
            r.expect("]")?;
            devices
        });
    }
    if angle {
        r.expect(">")?;
    }
    match ids {
        Some(ids) => Mesh::from_ranks(axes, &ids),
        None => Mesh::new(axes),
    }
}

/// Returns a sub-axis with its name in quotes.
pub(super) fn quoted(mesh: &Mesh, s: SubAxis, quote: char) -> String {
    let a = &mesh.axes()[s.axis];
    let part = if mesh.is_whole(s) { String::new() } else { format!(":({}){}", s.pre_size, s.size) };
    format!("{quote}{}{quote}{part}", a.name())
}

impl Sharding {
    /// Returns the sharding as a Shardy attribute, or why that notation cannot hold it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "[{tp:(1)2},{}] unreduced={dp}")?;
    /// let text = s.to_shardy()?;
    /// assert_eq!(text, r#"#sdy.sharding<@mesh, [{"tp":(1)2}, {}], unreduced={"dp"}>"#);
    /// assert_eq!(Sharding::parse(&mesh, &[64, 32], &text)?, s);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` for strided shards and reductions other than sums, and with `uneven`.
    pub fn to_shardy(&self) -> Result<String, Error> {
        let names = |subs: &[SubAxis]| {
            subs.iter().map(|&s| quoted(self.mesh(), s, '"')).collect::<Vec<_>>().join(", ")
        };
        let dims: Vec<String> =
            axes_of_dims(self, NOTATION)?.iter().map(|d| format!("{{{}}}", names(d))).collect();
        let mut text = format!("#sdy.sharding<@mesh, [{}]", dims.join(", "));
        let unreduced = sums(self, NOTATION)?;
        if !unreduced.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, ", unreduced={{{}}}", names(&unreduced));
        }
        text.push('>');
        Ok(text)
    }
}

impl Mesh {
    /// Returns the mesh as a Shardy attribute; ranks that are not in row-major order from 0 are listed.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// assert_eq!(mesh.to_shardy()?, r#"#sdy.mesh<["dp"=2, "tp"=4]>"#);
    /// let turned = "a=2:1,b=2:2".parse::<Mesh>()?.to_shardy()?;
    /// assert_eq!(turned, r#"#sdy.mesh<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>"#);
    /// assert_eq!(turned.parse::<Mesh>()?.to_string(), "a=2:1,b=2:2");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` where a list of ranks would be needed and have more than 2^20.
    pub fn to_shardy(&self) -> Result<String, Error> {
        const MOST: usize = 1 << 20;
        let axes: Vec<String> =
            self.axes().iter().map(|a| format!("\"{}\"={}", a.name(), a.size())).collect();
        let mut text = format!("#sdy.mesh<[{}]", axes.join(", "));
        if !self.is_row_major() || self.offset() > 0 {
            if self.size() > MOST {
                return Err(Error::NotRepresentable {
                    notation: NOTATION,
                    reason: format!("it lists every rank, and {self} has more than {MOST}"),
                });
            }
            let ids: Vec<String> = self.ranks().map(|r| r.to_string()).collect();
            // Writing to a string does not fail.
            let _ = write!(text, ", device_ids=[{}]", ids.join(", "));
        }
        text.push('>');
        Ok(text)
    }
}
