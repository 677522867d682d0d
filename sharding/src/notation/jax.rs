//! JAX's `PartitionSpec`: for each dim an axis, a tuple of axes, or `None`.
//!
//! ```text
//! PartitionSpec('dp', None, ('tp', 'pp'))        missing dims at the end are whole
//! P(None, 'tp', unreduced={'dp'})                P in short
//! P(P.UNCONSTRAINED, 'dp')                       the compiler chooses: retained and printed, but not a sharding
//! ```
//!
//! `P()` is one where it is the whole text; `P` and `P(sum)` are partial placements.

use core::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

use super::cursor::Cursor;
use super::dims::{Token, axes_of_dims, build, sums};
use super::{Reading, value_of};
use crate::axis::{AxisName, SubAxis};
use crate::sharding::PartialAxis;
use crate::{Error, Mesh, ReduceOp, Sharding};

const NOTATION: &str = "PartitionSpec";

/// A JAX `PartitionSpec`, whatever the mesh.
///
/// ```
/// use reshard_sharding::notation::PartitionSpec;
/// let spec: PartitionSpec = "P('x', None, ('y', 'z'), P.UNCONSTRAINED,)".parse()?;
/// assert_eq!(spec.to_string(), "PartitionSpec('x', None, ('y', 'z'), UNCONSTRAINED)");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct PartitionSpec {
    /// The entries of the dims; missing dims are not sharded.
    pub dims: Vec<SpecDim>,
    /// The axes whose ranks hold partial sums.
    pub unreduced: Vec<AxisName>,
    /// The replicated axes whose gradient is unreduced.
    ///
    /// Only a [`ShardingType`](crate::ShardingType) distinguishes them from the other replicated axes.
    pub reduced: Vec<AxisName>,
}

/// The entry of a `PartitionSpec` for a dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SpecDim {
    /// Its axes, most significant first; `None` for none.
    Axes(Vec<AxisName>),
    /// Whatever the compiler chooses.
    Unconstrained,
}

/// Returns `true` if a text is one: `P(` alone could also be a partial placement, whose op has no quotes.
pub(super) fn is_spec(text: &str) -> bool {
    const FIRST: [&str; 8] = ["'", "\"", "None", "(", "unreduced", "reduced", "UNCONSTRAINED", "P"];
    let mut r = Cursor::new(NOTATION, text);
    let mut empty = r.clone();
    if empty.eat("P") && empty.eat("(") && empty.eat(")") && empty.is_done() {
        return true;
    }
    r.eat(NOTATION)
        || (r.eat("P")
            && r.eat("(")
            && (FIRST.iter().any(|t| r.rest().starts_with(t)) || (r.eat(")") && r.is_done())))
}

impl FromStr for PartitionSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<PartitionSpec, Error> {
        let mut r = Cursor::new(NOTATION, text);
        if !r.eat(NOTATION) {
            r.expect("P")?;
        }
        r.expect("(")?;
        let mut used: Vec<AxisName> = Vec::new();
        let mut spec = PartitionSpec::default();
        while !r.eat(")") {
            let named = if r.eat("unreduced") {
                &mut spec.unreduced
            } else if r.eat("reduced") {
                &mut spec.reduced
            } else {
                spec.dims.push(read_dim(&mut r, &mut used)?);
                if r.eat(",") {
                    continue;
                }
                r.expect(")")?;
                break;
            };
            r.expect("=")?;
            r.expect("{")?;
            named.extend(read_axes(&mut r, "}", &mut used)?);
            if !r.eat(",") {
                r.expect(")")?;
                break;
            }
        }
        r.finish()?;
        Ok(spec)
    }
}

fn read_dim(r: &mut Cursor<'_>, used: &mut Vec<AxisName>) -> Result<SpecDim, Error> {
    if r.eat("None") {
        return Ok(SpecDim::Axes(Vec::new()));
    }
    if ["UNCONSTRAINED", "P.UNCONSTRAINED", "PartitionSpec.UNCONSTRAINED"].iter().any(|word| r.eat(word)) {
        return Ok(SpecDim::Unconstrained);
    }
    if r.eat("(") {
        return Ok(SpecDim::Axes(read_axes(r, ")", used)?));
    }
    Ok(SpecDim::Axes(vec![read_axis(r, used)?]))
}

/// Reads axes with commas between, up to the closing bracket.
fn read_axes(r: &mut Cursor<'_>, close: &str, used: &mut Vec<AxisName>) -> Result<Vec<AxisName>, Error> {
    let mut axes = Vec::new();
    while !r.eat(close) {
        axes.push(read_axis(r, used)?);
        if !r.eat(",") {
            r.expect(close)?;
            break;
        }
    }
    Ok(axes)
}

fn read_axis(r: &mut Cursor<'_>, used: &mut Vec<AxisName>) -> Result<AxisName, Error> {
    let at = r.here();
    let Some(quote) = ["'", "\""].into_iter().find(|q| r.eat(q)) else {
        return Err(r.error_at(at, "an axis name in quotes, a tuple of them, None or UNCONSTRAINED"));
    };
    let name =
        AxisName::new(r.take_while(AxisName::continues)).map_err(|_| r.error_at(at, "an axis name"))?;
    r.expect(quote)?;
    if used.contains(&name) {
        return Err(r.error_at(at, format!("each axis at most once ({name} is here twice)")));
    }
    used.push(name.clone());
    Ok(name)
}

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted =
            |names: &[AxisName]| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        let dim = |dim: &SpecDim| match dim {
            SpecDim::Unconstrained => "UNCONSTRAINED".to_owned(),
            SpecDim::Axes(names) => match names[..] {
                [] => "None".to_owned(),
                [_] => quoted(names),
                _ => format!("({})", quoted(names)),
            },
        };
        let mut parts: Vec<String> = self.dims.iter().map(dim).collect();
        for (word, names) in [("unreduced", &self.unreduced), ("reduced", &self.reduced)] {
            if !names.is_empty() {
                parts.push(format!("{word}={{{}}}", quoted(names)));
            }
        }
        write!(f, "PartitionSpec({})", parts.join(", "))
    }
}

impl Sharding {
    /// Returns the sharding of a tensor of this shape that a `PartitionSpec` means on a mesh.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::from_partition_spec(&mesh, &[64, 32], &"P(None, 'tp')".parse()?)?;
    /// assert_eq!(s.to_string(), "R,S(1)");
    /// let e = Sharding::from_partition_spec(&mesh, &[64, 32], &"P(P.UNCONSTRAINED, 'tp')".parse()?).unwrap_err();
    /// assert_eq!(e.code(), "not_expressible");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` where a dim is unconstrained, with `no_such_axis`, with `dim_count` for
    /// more dims than the tensor has, and with `uneven` where a dim's chunks have several readings.
    pub fn from_partition_spec(
        mesh: &Mesh,
        shape: &[usize],
        spec: &PartitionSpec,
    ) -> Result<Sharding, Error> {
        let text = spec.to_string();
        value_of(of_spec(mesh, shape, spec, &text)?, &text)
    }

    /// Returns the sharding as a JAX `PartitionSpec`, or why that notation cannot hold it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),S(0)")?;
    /// assert_eq!(s.to_partition_spec()?, "PartitionSpec(('tp', 'dp'), None)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` for sub-axes, strided shards and reductions other than sums, and with
    /// `uneven`.
    pub fn to_partition_spec(&self) -> Result<String, Error> {
        self.spec_with(&[])
    }

    /// Returns the same with the axes to be marked `reduced`.
    pub(crate) fn spec_with(&self, reduced: &[SubAxis]) -> Result<String, Error> {
        let whole = |s: &SubAxis| {
            let name = self.mesh().axes()[s.axis].name();
            if self.mesh().is_whole(*s) {
                return Ok(name.clone());
            }
            Err(Error::NotRepresentable {
                notation: NOTATION,
                reason: format!("{self} splits the axis {name} into sub-axes"),
            })
        };
        let names = |subs: &[SubAxis]| subs.iter().map(whole).collect::<Result<Vec<AxisName>, Error>>();
        let dims = axes_of_dims(self, NOTATION)?;
        let dims = dims.iter().map(|d| Ok(SpecDim::Axes(names(d)?))).collect::<Result<_, Error>>()?;
        let unreduced = names(&sums(self, NOTATION)?)?;
        Ok(PartitionSpec { dims, unreduced, reduced: names(reduced)? }.to_string())
    }
}

/// Reads a spec as a sharding.
pub(super) fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<Reading, Error> {
    of_spec(mesh, shape, &text.parse()?, text)
}

fn of_spec(mesh: &Mesh, shape: &[usize], spec: &PartitionSpec, text: &str) -> Result<Reading, Error> {
    let whole = |name: &AxisName| Ok(mesh.known_whole(mesh.axis(name.as_str())?));
    let mut dims: Vec<SmallVec<[Token; 4]>> = Vec::new();
    for (at, dim) in spec.dims.iter().enumerate() {
        match dim {
            SpecDim::Axes(names) => {
                dims.push(names.iter().map(|n| whole(n).map(Token::Sub)).collect::<Result<_, Error>>()?);
            }
            SpecDim::Unconstrained => {
                return Err(Error::NotRepresentable {
                    notation: "placements",
                    reason: format!(
                        "{text} leaves dim {at} to the compiler (UNCONSTRAINED), so the sharding is not determined; \
                         give its axes, or None"
                    ),
                });
            }
        }
    }
    let term = |name: &AxisName| Ok(PartialAxis { sub: whole(name)?, op: ReduceOp::Sum });
    let partial = spec.unreduced.iter().map(term).collect::<Result<_, Error>>()?;
    if dims.len() > shape.len() {
        return Err(Error::DimCount { named: dims.len(), dims: shape.len(), text: text.to_owned() });
    }
    dims.resize(shape.len(), SmallVec::new());
    let reduced = spec.reduced.iter().map(whole).collect::<Result<_, Error>>()?;
    Ok(Reading::ByDim { value: build(mesh, shape, text, &dims, partial)?, reduced })
}
