//! Meshes as text, and the inverse.
//!
//! ```text
//! dp=2,tp=4                row-major from rank 0
//! dp=2:8,tp=4:1@32         a layout for each axis, and the rank at coordinate 0
//! x=2,y=2@[1,2,3,0]        the rank at every coordinate, last axis fastest, if they are not a layout
//! ```

use core::fmt;
use std::str::FromStr;

use reshard_layout::Layout;

use crate::axis::AxisName;
use crate::notation::cursor::Cursor;
use crate::{Error, Mesh};

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.is_row_major() || self.rank_table().is_some();
        for (i, a) in self.axes().iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            if plain {
                write!(f, "{}={}", a.name, a.size)?;
            } else {
                write!(f, "{}={}", a.name, a.layout)?;
            }
        }
        if let Some(table) = self.rank_table() {
            write!(f, "@[{}]", crate::notation::join(table))?;
        } else if self.offset() != 0 {
            write!(f, "@{}", self.offset())?;
        }
        Ok(())
    }
}

impl FromStr for Mesh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mesh, Error> {
        if crate::notation::shardy::is_mesh(text) {
            return crate::notation::shardy::parse_mesh(text);
        }
        let mut r = Cursor::new("mesh", text);
        let mut plain: Vec<(AxisName, usize)> = Vec::new();
        let mut strided: Vec<(AxisName, Layout)> = Vec::new();
        while !r.is_done() && !r.rest().starts_with('@') {
            if !plain.is_empty() || !strided.is_empty() {
                r.expect(",")?;
            }
            let at = r.here();
            let name = AxisName::new(r.take_while(AxisName::continues))
                .map_err(|_| r.error_at(at, "an axis name, as in dp=2,tp=4"))?;
            r.expect("=")?;
            let at = r.here();
            let extent = r.until_outside_parens(&[',', '@']);
            if extent.contains(':') {
                let layout = extent
                    .parse::<Layout>()
                    .map_err(|e| r.error_at(at, format!("a layout such as 2:4 ({e})")))?;
                strided.push((name, layout));
            } else if !extent.is_empty() && extent.bytes().all(|b| b.is_ascii_digit()) {
                let n = extent.parse::<usize>().map_err(|_| r.error_at(at, "a size below 2^63"))?;
                plain.push((name, n));
            } else {
                return Err(r.error_at(at, "a size or size:stride"));
            }
            if !plain.is_empty() && !strided.is_empty() {
                return Err(r.error_at(at, "strides for all axes or for none"));
            }
        }
        let listed = r.here();
        let mut ahead = r.clone();
        if ahead.eat("@") && ahead.eat("[") {
            r = ahead;
            let ranks = crate::notation::numbers(&mut r, "a rank")?;
            r.expect("]")?;
            if !strided.is_empty() {
                return Err(r.error_at(
                    listed,
                    "the first rank; a list of ranks goes after sizes, such as x=2,y=2@[1,2,3,0]",
                ));
            }
            r.finish()?;
            return Mesh::from_ranks(plain.iter().map(|(n, s)| (n.as_str(), *s)), &ranks);
        }
        let offset = if r.eat("@") { r.number("the first rank")? } else { 0 };
        r.finish()?;
        if strided.is_empty() {
            let row_major = Mesh::new(plain.iter().map(|(n, s)| (n.as_str(), *s)))?;
            if offset == 0 {
                return Ok(row_major);
            }
            strided = row_major.axes().iter().map(|a| (a.name.clone(), a.layout.clone())).collect();
        }
        Mesh::with_layouts(strided, offset)
    }
}

impl serde::Serialize for Mesh {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Mesh {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Mesh, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
