//! A Shardy sharding as written, for any mesh; preserves open dims and priorities, which shardings do not
//! have.
//!
//! ```text
//! #sdy.sharding<@mesh, [{"dp", "tp":(1)2}, {?}p1], replicated={"cp"}, unreduced={"ep"}>
//! #sdy.sharding<mesh<["x"=2]>, [{"x"}, {}]>                          with the mesh itself
//! ```

use core::fmt;
use std::str::FromStr;

use super::cursor::Cursor;
use super::shardy;
use crate::axis::AxisName;
use crate::{Error, Mesh, Sharding};

/// A Shardy sharding.
///
/// ```
/// use reshard_sharding::notation::ShardySharding;
/// let text = r#"#sdy.sharding<mesh<["x"=2]>, [{"x", ?}p1, {}]>"#;
/// let s: ShardySharding = text.parse()?;
/// assert_eq!(s.to_string(), text);
/// assert_eq!(s.mesh.mesh().unwrap().to_string(), "x=2");
/// assert_eq!(s.dims[0].priority, Some(1));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardySharding {
    /// The mesh of the sharding.
    pub mesh: ShardyMesh,
    /// The entries of the dims.
    pub dims: Vec<ShardyDim>,
    /// The axes that no dim may take.
    pub replicated: Vec<AxisPart>,
    /// The axes whose ranks hold partial sums.
    pub unreduced: Vec<AxisPart>,
}

/// The mesh of a Shardy sharding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardyMesh {
    /// `@mesh`: one that is known by a name.
    Named(String),
    /// `mesh<["x"=2]>`: the mesh itself.
    Inlined(Mesh),
}

impl ShardyMesh {
    /// Returns the inlined mesh, or `None` for a named one.
    pub fn mesh(&self) -> Option<&Mesh> {
        match self {
            ShardyMesh::Named(_) => None,
            ShardyMesh::Inlined(mesh) => Some(mesh),
        }
    }
}

/// The entry of a Shardy sharding for a dim: `{"dp", ?}p1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardyDim {
    /// Its axes, most significant first.
    pub axes: Vec<AxisPart>,
    /// `true` if propagation may shard it further.
    pub open: bool,
    /// Priority in propagation; 0 where it is omitted.
    pub priority: Option<usize>,
}

/// An axis or a sub-axis of one, by name: `"tp":(1)2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPart {
    /// The name of the axis.
    pub axis: AxisName,
    /// The product of the more significant sub-axes and the size, where it is a sub-axis.
    pub part: Option<(usize, usize)>,
}

impl AxisPart {
    fn read(r: &mut Cursor<'_>) -> Result<AxisPart, Error> {
        let at = r.here();
        let quote = ["\"", "'"].into_iter().find(|q| r.eat(q));
        let name = r.take_while(AxisName::continues);
        let axis = AxisName::new(name).map_err(|_| r.error_at(at, "an axis name"))?;
        if let Some(q) = quote {
            r.expect(q)?;
        }
        let mut part = None;
        if r.eat(":") {
            r.expect("(")?;
            let pre = r.number("the product of the more significant sub-axes")?;
            r.expect(")")?;
            part = Some((pre, r.number("the size of the sub-axis")?));
        }
        Ok(AxisPart { axis, part })
    }

    /// Axes with commas between, up to a brace.
    fn read_list(r: &mut Cursor<'_>) -> Result<Vec<AxisPart>, Error> {
        r.expect("=")?;
        r.expect("{")?;
        let mut list = Vec::new();
        while !r.eat("}") {
            if !list.is_empty() {
                r.expect(",")?;
            }
            list.push(AxisPart::read(r)?);
        }
        Ok(list)
    }
}

impl ShardyDim {
    fn read(r: &mut Cursor<'_>) -> Result<ShardyDim, Error> {
        r.expect("{")?;
        let mut dim = ShardyDim::default();
        while !r.eat("}") {
            if !dim.axes.is_empty() {
                r.expect(",")?;
            }
            if r.eat("?") {
                dim.open = true;
                r.expect("}")?;
                break;
            }
            dim.axes.push(AxisPart::read(r)?);
        }
        if r.eat("p") {
            dim.priority = Some(r.number("a priority")?);
        }
        Ok(dim)
    }
}

impl FromStr for ShardySharding {
    type Err = Error;

    fn from_str(text: &str) -> Result<ShardySharding, Error> {
        let mut r = Cursor::new("Shardy sharding", text);
        let (mesh, close) = shardy::read_mesh_of(&mut r)?;
        r.expect(",")?;
        r.expect("[")?;
        let mut dims = Vec::new();
        while !r.eat("]") {
            if !dims.is_empty() {
                r.expect(",")?;
            }
            dims.push(ShardyDim::read(&mut r)?);
        }
        let mut read = ShardySharding { mesh, dims, replicated: Vec::new(), unreduced: Vec::new() };
        while !r.eat(close) {
            let _ = r.eat(",");
            let list = if r.eat("unreduced") {
                &mut read.unreduced
            } else if r.eat("replicated") {
                &mut read.replicated
            } else {
                return Err(r.error(format!("unreduced={{..}}, replicated={{..}} or {close:?}")));
            };
            list.extend(AxisPart::read_list(&mut r)?);
        }
        r.finish()?;
        Ok(read)
    }
}

fn join<T: fmt::Display>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for AxisPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.axis)?;
        self.part.map_or(Ok(()), |(pre, size)| write!(f, ":({pre}){size}"))
    }
}

impl fmt::Display for ShardyDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = match (self.open, self.axes.is_empty()) {
            (false, _) => "",
            (true, true) => "?",
            (true, false) => ", ?",
        };
        write!(f, "{{{}{open}}}", join(&self.axes))?;
        self.priority.map_or(Ok(()), |p| write!(f, "p{p}"))
    }
}

impl fmt::Display for ShardyMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardyMesh::Named(name) => write!(f, "@{name}"),
            ShardyMesh::Inlined(mesh) => match mesh.to_shardy() {
                Ok(text) => f.write_str(text.trim_start_matches("#sdy.")),
                // More ranks than can be listed; no text can denote such a mesh.
                Err(_) => write!(f, "mesh<{mesh}>"),
            },
        }
    }
}

impl fmt::Display for ShardySharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#sdy.sharding<{}, [{}]", self.mesh, join(&self.dims))?;
        for (word, list) in [("replicated", &self.replicated), ("unreduced", &self.unreduced)] {
            if !list.is_empty() {
                write!(f, ", {word}={{{}}}", join(list))?;
            }
        }
        f.write_str(">")
    }
}

impl Sharding {
    /// Returns the sharding of a tensor of this shape that a Shardy sharding means on a mesh.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "x=2".parse()?;
    /// let s = Sharding::from_shardy(&mesh, &[4, 4], &r#"#sdy.sharding<mesh<["x"=2]>, [{}, {"x"}]>"#.parse()?)?;
    /// assert_eq!(s.to_string(), "S(1)");
    /// let e = Sharding::from_shardy(&mesh, &[4, 4], &r#"#sdy.sharding<@mesh, [{?}, {"x"}]>"#.parse()?).unwrap_err();
    /// assert_eq!(e.code(), "not_expressible");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` for open dims and priorities, with `parse` where the mesh in it is
    /// another one, and otherwise like [`Sharding::parse`].
    pub fn from_shardy(mesh: &Mesh, shape: &[usize], sharding: &ShardySharding) -> Result<Sharding, Error> {
        Sharding::parse(mesh, shape, &sharding.to_string())
    }
}
