//! One text for every type.
//!
//! ```text
//! S(0),I                                  axis by axis: a placement has its cotangent, I is R|R
//! R|S(0),S(1)                             any other pair: the value | the gradient
//! S(0)|-,R|-                              no gradient
//! [{dp},{}] unreduced={tp} reduced={cp}   by tensor: P along tp, R (with the gradient P) along cp, I along all other axes
//! PartitionSpec('dp', reduced={'cp'})     JAX's, likewise
//! (S(0),R order={tp,dp})|([{dp},{tp}])    any two shardings, (..)|- for one without a gradient
//! ```
//!
//! It is printed axis by axis where both are placements in the order of the axes, by tensor where that holds
//! both, else as two shardings. A text that is none of these is a sharding's, whose gradient is the cotangent
//! sharding.

use core::fmt;

use crate::notation::brackets::outside_brackets;
use crate::notation::cursor::Cursor;
use crate::notation::{Reading, read_sharding};
use crate::placement::{Placement, Placements};
use crate::sharding::PartialAxis;
use crate::{Error, Mesh, PartitionRegistry, ReduceOp, Sharding, ShardingType, SubAxis};

/// The notation for a missing gradient.
const NONE: &str = "-";
/// The separator between a value and its gradient.
const BAR: char = '|';

impl ShardingType {
    /// Returns the type that a text means on this mesh and shape.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, ShardingType};
    /// let mesh: Mesh = "dp=2,tp=4,cp=2".parse()?;
    /// let by_axis = ShardingType::parse(&mesh, &[8, 16], "S(0),P,R")?;
    /// assert_eq!(by_axis, ShardingType::parse(&mesh, &[8, 16], "[{dp},{}] unreduced={tp} reduced={cp}")?);
    /// assert_eq!(by_axis, ShardingType::parse(&mesh, &[8, 16], "P('dp', unreduced={'tp'}, reduced={'cp'})")?);
    /// // Axes that are not listed are I, as in JAX.
    /// assert_eq!(ShardingType::parse(&mesh, &[8, 16], "[{dp},{}]")?.to_string(), "S(0),I,I");
    /// assert_eq!(ShardingType::parse(&mesh, &[8, 16], "S(0)|-,R|-,R|-")?.gradient, None);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails as [`Sharding::parse`], and with `no_gradient` where the implied cotangent sharding does not
    /// exist.
    pub fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<ShardingType, Error> {
        ShardingType::read(mesh, shape, text)?.written(text)
    }

    /// Returns the shardings that a text means.
    fn read(mesh: &Mesh, shape: &[usize], text: &str) -> Result<ShardingType, Error> {
        if let Some((value, gradient)) = two_shardings(text) {
            let value = Sharding::parse(mesh, shape, value)?;
            let gradient = match gradient {
                None => None,
                Some(text) => Some(Sharding::parse(mesh, shape, text)?),
            };
            return Ok(ShardingType::new(value, gradient));
        }
        let words: Vec<&str> = outside_brackets(text, ',').collect();
        if words.iter().any(|word| *word == "I" || outside_brackets(word, BAR).count() > 1) {
            return axis_by_axis(mesh, shape, text, &words);
        }
        match read_sharding(&PartitionRegistry::new(), mesh, shape, text)? {
            Reading::ByDim { value, reduced } => ShardingType::invariant(value, &reduced),
            Reading::ByAxis(value) => ShardingType::from_value(value),
        }
    }

    /// Returns the type of which only some axes are reduced, `R|P`; the others that replicate are `R|R`.
    fn invariant(value: Sharding, reduced: &[SubAxis]) -> Result<ShardingType, Error> {
        // Fails for a value without a cotangent sharding.
        value.cotangent()?;
        let terms = reduced.iter().map(|&sub| PartialAxis { sub, op: ReduceOp::Sum });
        let gradient = Some(value.with_partial(terms)?);
        Ok(ShardingType::new(value, gradient))
    }

    /// Returns the type by tensor, `[{dp},{}] unreduced={tp} reduced={cp}`.
    ///
    /// Fails where this notation cannot hold it.
    ///
    /// Fails with `not_expressible` where the gradient is split differently from the value or is missing,
    /// with `no_gradient` for values that are partial by an op other than sum, and as
    /// [`Sharding::to_dims_notation`].
    pub fn to_dims_notation(&self) -> Result<String, Error> {
        if let Some(kept) = self.kept(ShardingType::to_dims_notation) {
            return kept;
        }
        let reduced = self.reduced_axes("by tensor")?;
        let mut text = self.value.to_dims_notation()?;
        if !reduced.is_empty() {
            let names: Vec<String> = reduced.iter().map(|s| s.printed(self.value.mesh().axes())).collect();
            text = format!("{text} reduced={{{}}}", names.join(","));
        }
        Ok(text)
    }

    /// Returns the type as a JAX `PartitionSpec`.
    ///
    /// An example is `PartitionSpec('dp', None, unreduced={'tp'}, reduced={'cp'})`. Fails where that notation
    /// cannot hold it.
    ///
    /// Fails as [`ShardingType::to_dims_notation`] and [`Sharding::to_partition_spec`].
    pub fn to_partition_spec(&self) -> Result<String, Error> {
        if let Some(kept) = self.kept(ShardingType::to_partition_spec) {
            return kept;
        }
        self.value.spec_with(&self.reduced_axes("PartitionSpec")?)
    }

    /// Returns the axes where the value is replicated and the gradient partial, if all other axes match.
    fn reduced_axes(&self, notation: &'static str) -> Result<Vec<SubAxis>, Error> {
        let refuse = |reason: String| Err(Error::NotRepresentable { notation, reason });
        let Some(gradient) = &self.gradient else {
            return refuse(format!("{self} has no gradient"));
        };
        self.value.cotangent()?;
        if gradient.reduced() != self.value.reduced() {
            return refuse(format!("in {self}, value and gradient are sharded differently"));
        }
        let reduced: Vec<SubAxis> = gradient.partial().iter().map(|p| p.sub).collect();
        if gradient.partial().iter().any(|p| p.op != ReduceOp::Sum) || self.overlaps_terms(&reduced) {
            return refuse(format!(
                "in {self}, value and gradient are both partial, or partial by an op other than \
                 sum"
            ));
        }
        Ok(reduced)
    }

    /// Returns `true` if the value is partial along one of these.
    fn overlaps_terms(&self, reduced: &[SubAxis]) -> bool {
        let overlap = |a: SubAxis, b: SubAxis| {
            a.axis == b.axis && a.pre_size < b.pre_size * b.size && b.pre_size < a.pre_size * a.size
        };
        self.value.partial().iter().any(|p| reduced.iter().any(|&s| overlap(p.sub, s)))
    }

    /// Returns the words of the axes, if value and gradient are placements in the order of the axes.
    fn words(&self) -> Option<String> {
        let value = self.value.placements().ok()?;
        let gradient = match &self.gradient {
            None => None,
            Some(gradient) if gradient.mesh() == self.value.mesh() => Some(gradient.placements().ok()?),
            Some(_) => return None,
        };
        let words = value.iter().enumerate().map(|(axis, v)| match gradient.as_ref().map(|g| &g[axis]) {
            None => format!("{v}{BAR}{NONE}"),
            Some(g) if dual(v).as_ref() == Some(g) => v.to_string(),
            Some(Placement::Replicate) if *v == Placement::Replicate => "I".to_owned(),
            Some(g) => format!("{v}{BAR}{g}"),
        });
        Some(words.collect::<Vec<_>>().join(","))
    }
}

impl fmt::Display for ShardingType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(words) = self.words() {
            return f.write_str(&self.with_letters(words));
        }
        let gradient = match &self.gradient {
            None => NONE.to_owned(),
            Some(gradient) => format!("({gradient})"),
        };
        write!(f, "({}){BAR}{gradient}", self.value)
    }
}

/// Returns the cotangent placement.
fn dual(p: &Placement) -> Option<Placement> {
    match p {
        Placement::Replicate => Some(Placement::Partial(ReduceOp::Sum)),
        Placement::Partial(ReduceOp::Sum) => Some(Placement::Replicate),
        Placement::Partial(_) => None,
        Placement::Shard { .. }
        | Placement::StridedShard { .. }
        | Placement::Ragged { .. }
        | Placement::Custom { .. } => Some(p.clone()),
    }
}

/// Returns the texts of `(value)|(gradient)` or `(value)|-`.
fn two_shardings(text: &str) -> Option<(&str, Option<&str>)> {
    let text = text.trim();
    let end = closing(text)?;
    let rest = text[end + 1..].trim_start().strip_prefix(BAR)?.trim_start();
    let value = &text[1..end];
    if rest == NONE {
        return Some((value, None));
    }
    let last = closing(rest)?;
    (last + 1 == rest.len()).then_some((value, Some(&rest[1..last])))
}

/// Returns the position of the bracket that closes the first one of a text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    if !text.starts_with('(') {
        return None;
    }
    text.char_indices().find_map(|(i, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(i)
    })
}

/// Reads words of axes: `v`, `I` or `v|g`.
fn axis_by_axis(mesh: &Mesh, shape: &[usize], text: &str, words: &[&str]) -> Result<ShardingType, Error> {
    let r = Cursor::new("type", text);
    // Words are parts of the text.
    let expected = |word: &str, what: &str| r.error_at(word.as_ptr() as usize - text.as_ptr() as usize, what);
    let (mut values, mut gradients): (Vec<String>, Vec<Option<String>>) = (Vec::new(), Vec::new());
    for &word in words {
        let (value, gradient) = match outside_brackets(word, BAR).collect::<Vec<_>>()[..] {
            ["I"] => ("R".to_owned(), Some("R".to_owned())),
            [value] if !value.is_empty() => {
                let own = Placements::parse_with_dims(shape.len(), value)?;
                let [own] = &own[..] else { return Err(expected(word, "one placement for each axis")) };
                let Some(dual) = dual(own) else {
                    return Err(Error::NoGradient {
                        reason: format!(
                            "{own} has no cotangent sharding; give the gradient, such as {own}|R, or {own}|{NONE} for \
                             none"
                        ),
                    });
                };
                (value.to_owned(), Some(dual.to_string()))
            }
            [value, NONE] if !value.is_empty() => (value.to_owned(), None),
            [value, gradient] if !value.is_empty() && !gradient.is_empty() => {
                (value.to_owned(), Some(gradient.to_owned()))
            }
            [] | [..] => {
                return Err(expected(word, "a placement, I, or a value | its gradient, such as R|S(0)"));
            }
        };
        values.push(value);
        gradients.push(gradient);
    }
    let value = Sharding::parse(mesh, shape, &values.join(","))?;
    if gradients.iter().all(Option::is_none) {
        return Ok(ShardingType::new(value, None));
    }
    let Some(gradients) = gradients.into_iter().collect::<Option<Vec<String>>>() else {
        return Err(expected(text, "a gradient along every axis, or |- for none along all"));
    };
    let gradient = Some(Sharding::parse(mesh, shape, &gradients.join(","))?);
    Ok(ShardingType::new(value, gradient))
}
