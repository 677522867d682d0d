//! JAX's `PartitionSpec`: for each dim an axis, a tuple of axes, or `None`.
//!
//! ```text
//! PartitionSpec('dp', None, ('tp', 'pp'))        missing dims at the end are whole
//! P(None, 'tp', unreduced={'dp'})                P in short
//! ```

use core::fmt::Write as _;

use smallvec::SmallVec;

use super::cursor::Cursor;
use super::dims::{Token, axes_of_dims, build, sums};
use crate::axis::{AxisName, SubAxis};
use crate::sharding::PartialAxis;
use crate::{Error, Mesh, ReduceOp, Sharding};

const NOTATION: &str = "PartitionSpec";

/// Whether a text is one: `P(` alone could also be a partial placement, whose op has no quotes. `P()` is the spec that
/// shards nothing, on a mesh of any axes.
pub(super) fn is_spec(text: &str) -> bool {
    let mut r = Cursor::new(NOTATION, text);
    let mut empty = r.clone();
    if empty.eat("P") && empty.eat("(") && empty.eat(")") && empty.is_done() {
        return true;
    }
    r.eat(NOTATION)
        || (r.eat("P")
            && r.eat("(")
            && ["'", "\"", "None", "(", "unreduced", "reduced"].iter().any(|t| r.rest().starts_with(t)))
}

/// Reads a spec.
pub(super) fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<Sharding, Error> {
    let mut r = Cursor::new(NOTATION, text);
    let _ = r.eat(NOTATION) || r.eat("P");
    r.expect("(")?;
    let mut used: SmallVec<[usize; 8]> = SmallVec::new();
    let mut dims: Vec<SmallVec<[Token; 4]>> = Vec::new();
    let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
    while !r.eat(")") {
        let at = r.here();
        if r.eat("None") {
            dims.push(SmallVec::new());
        } else if r.eat("unreduced") {
            r.expect("=")?;
            r.expect("{")?;
            while !r.eat("}") {
                let sub = read_axis(&mut r, mesh, &mut used)?;
                partial.push(PartialAxis { sub, op: ReduceOp::Sum });
                let _ = r.eat(",");
            }
        } else if r.rest().starts_with("reduced") || r.rest().starts_with("PartitionSpec.UNCONSTRAINED") {
            return Err(r.error_at(at, "axes, None or unreduced={..} (a sharding is complete and of values)"));
        } else if r.eat("(") {
            let mut tokens = SmallVec::new();
            while !r.eat(")") {
                tokens.push(Token::Sub(read_axis(&mut r, mesh, &mut used)?));
                let _ = r.eat(",");
            }
            dims.push(tokens);
        } else {
            dims.push(SmallVec::from_iter([Token::Sub(read_axis(&mut r, mesh, &mut used)?)]));
        }
        if !r.eat(",") {
            r.expect(")")?;
            break;
        }
    }
    r.finish()?;
    if dims.len() > shape.len() {
        return Err(Error::DimCount { named: dims.len(), dims: shape.len(), text: text.to_owned() });
    }
    dims.resize(shape.len(), SmallVec::new());
    build(mesh, shape, text, &dims, partial)
}

fn read_axis(r: &mut Cursor<'_>, mesh: &Mesh, used: &mut SmallVec<[usize; 8]>) -> Result<SubAxis, Error> {
    let at = r.here();
    let Some(quote) = ["'", "\""].into_iter().find(|q| r.eat(q)) else {
        return Err(r.error_at(at, "an axis name in quotes, a tuple of them, or None"));
    };
    let name = r.take_while(AxisName::continues);
    r.expect(quote)?;
    let axis = mesh.axis(name)?;
    if used.contains(&axis) {
        return Err(r.error_at(at, format!("each axis at most once ({name} stands here twice)")));
    }
    used.push(axis);
    Ok(mesh.whole(axis))
}

impl Sharding {
    /// The sharding as a JAX `PartitionSpec`, or why that notation cannot hold it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),S(0)")?;
    /// assert_eq!(s.partition_spec()?, "PartitionSpec(('tp', 'dp'), None)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` for sub-axes, strided shards and reductions other than sums, and with `uneven`.
    pub fn partition_spec(&self) -> Result<String, Error> {
        let whole = |s: &SubAxis| {
            if *s == self.mesh().whole(s.axis) {
                return Ok(format!("'{}'", self.mesh().axes()[s.axis].name()));
            }
            Err(Error::NotExpressible {
                notation: NOTATION,
                reason: format!("{self} splits the axis {} into sub-axes", self.mesh().axes()[s.axis].name()),
            })
        };
        let mut text = String::from("PartitionSpec(");
        for (i, dim) in axes_of_dims(self, NOTATION)?.iter().enumerate() {
            let names = dim.iter().map(whole).collect::<Result<Vec<String>, Error>>()?;
            let comma = if i > 0 { ", " } else { "" };
            // Writing to a string does not fail.
            let _ = match &names[..] {
                [] => write!(text, "{comma}None"),
                [one] => write!(text, "{comma}{one}"),
                many => write!(text, "{comma}({})", many.join(", ")),
            };
        }
        let unreduced = sums(self, NOTATION)?.iter().map(whole).collect::<Result<Vec<String>, Error>>()?;
        if !unreduced.is_empty() {
            let comma = if text.ends_with('(') { "" } else { ", " };
            let _ = write!(text, "{comma}unreduced={{{}}}", unreduced.join(", "));
        }
        text.push(')');
        Ok(text)
    }
}
