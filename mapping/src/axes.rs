//! The pattern of a `rearrange`: `'(h two d) e -> (h d two) e', h=32, two=2`.

use std::fmt;

use crate::error::{Error, ErrorKind, shown};
use crate::number::{Number, Numbers};

/// The most axes of a pattern.
const MOST_AXES: usize = 64;

/// The axes of the dims on both sides, and the given extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axes {
    pub(crate) left: Vec<Vec<String>>,
    pub(crate) right: Vec<Vec<String>>,
    pub(crate) sizes: Vec<(String, Number)>,
}

impl Axes {
    /// Parses the text between the quotes and the extents.
    pub(crate) fn parse(text: &str, sizes: Vec<(String, Number)>) -> Result<Self, Error> {
        let bad = |why: String| Error::new(ErrorKind::Syntax, format!("rearrange '{}': {why}", shown(text)));
        let Some((left, right)) = text.split_once("->") else {
            return Err(bad("expected two lists of axes with -> between them".to_owned()));
        };
        let axes = Self { left: dims(left).map_err(bad)?, right: dims(right).map_err(bad)?, sizes };
        for side in [&axes.left, &axes.right] {
            let flat: Vec<&String> = side.iter().flatten().collect();
            if flat.len().max(side.len()) > MOST_AXES {
                return Err(bad(format!("a side has more than {MOST_AXES} axes")));
            }
            if let Some(twice) = flat.iter().enumerate().find(|(k, axis)| flat[..*k].contains(axis)) {
                return Err(bad(format!("the axis {} is twice on one side", twice.1)));
            }
        }
        for (k, (axis, _)) in axes.sizes.iter().enumerate() {
            if axes.sizes[..k].iter().any(|(earlier, _)| earlier == axis) {
                return Err(bad(format!("the extent of {} is given twice", shown(axis))));
            }
            if !axes.left.iter().chain(&axes.right).flatten().any(|one| one == axis) {
                return Err(bad(format!("{0}=.. is given, but no axis is named {0}", shown(axis))));
            }
        }
        Ok(axes)
    }

    /// Returns the pattern read from right to left.
    pub(crate) fn reversed(&self) -> Self {
        Self { left: self.right.clone(), right: self.left.clone(), sizes: self.sizes.clone() }
    }

    /// Returns the extents of all axes, for a tensor of this shape.
    pub(crate) fn extents(&self, shape: &[usize], numbers: &Numbers) -> Result<Vec<(String, usize)>, Error> {
        let bad = |kind, why: String| Error::new(kind, format!("rearrange {self}: {why}"));
        let mut extents = Vec::new();
        for (axis, number) in &self.sizes {
            extents.push((axis.clone(), number.value(numbers)?));
        }
        if self.left.len() != shape.len() {
            let why =
                format!("the left side has {} dims, and the tensor has the shape {shape:?}", self.left.len());
            return Err(bad(ErrorKind::Shape, why));
        }
        for (group, extent) in self.left.iter().zip(shape) {
            let mut known = Some(1_usize);
            let mut free = Vec::new();
            for axis in group {
                match extent_of(axis, &extents) {
                    Some(given) => known = known.and_then(|product| product.checked_mul(given)),
                    None => free.push(axis),
                }
            }
            if let [_, second, ..] = free[..] {
                let why = format!(
                    "({}) has two axes of unknown extent; add {second}=N after the pattern",
                    group.join(" ")
                );
                return Err(bad(ErrorKind::Syntax, why));
            }
            match known {
                Some(known) if free.is_empty() && known == *extent => {}
                Some(known) if free.len() == 1 && known > 0 && extent.is_multiple_of(known) => {
                    extents.push((free[0].clone(), extent / known));
                }
                Some(_) | None => {
                    let known = known.map_or("more than all integers".to_owned(), |known| known.to_string());
                    let why = format!(
                        "the known axes of ({}) have {known} indices, which do not make the extent {extent}",
                        group.join(" ")
                    );
                    return Err(bad(ErrorKind::Indivisible, why));
                }
            }
        }
        if let Some(axis) = self.right.iter().flatten().find(|axis| extent_of(axis, &extents).is_none()) {
            let why = format!("{axis} is only on the side that is made; add {axis}=N after the pattern");
            return Err(bad(ErrorKind::Syntax, why));
        }
        Ok(extents)
    }
}

/// Returns the extent of an axis, if it is known.
pub(crate) fn extent_of(axis: &str, extents: &[(String, usize)]) -> Option<usize> {
    extents.iter().find(|(name, _)| name == axis).map(|(_, extent)| *extent)
}

/// Parses the dims of one side; an axis `1` is left out.
fn dims(text: &str) -> Result<Vec<Vec<String>>, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let (mut dims, mut open): (Vec<Vec<String>>, Option<Vec<String>>) = (Vec::new(), None);
    for word in spaced.split_whitespace() {
        match (word, &mut open) {
            ("(", None) => open = Some(Vec::new()),
            ("(", Some(_)) => return Err("a ( within a (; axes are nested one level deep".to_owned()),
            (")", None) => return Err("a ) without a (".to_owned()),
            (")", Some(group)) => {
                dims.push(std::mem::take(group));
                open = None;
            }
            ("1", None) => dims.push(Vec::new()),
            ("1", Some(_)) => {}
            (axis, open) => {
                let is_first = |c: char| c.is_alphabetic() || c == '_';
                if !axis.starts_with(is_first) || !axis.chars().all(|c| c.is_alphanumeric() || c == '_') {
                    return Err(format!("`{}` is not a valid axis; use letters, digits and _", shown(axis)));
                }
                match open {
                    Some(group) => group.push(axis.to_owned()),
                    None => dims.push(vec![axis.to_owned()]),
                }
            }
        }
    }
    if open.is_some() { Err("a ( without a )".to_owned()) } else { Ok(dims) }
}

impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |dims: &[Vec<String>]| {
            let dims = dims.iter().map(|group| match &group[..] {
                [] => "1".to_owned(),
                [axis] => axis.clone(),
                _ => format!("({})", group.join(" ")),
            });
            dims.collect::<Vec<_>>().join(" ")
        };
        write!(f, "'{} -> {}'", side(&self.left), side(&self.right))?;
        self.sizes.iter().try_for_each(|(axis, number)| write!(f, ", {axis}={number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Axes;
    use crate::error::ErrorKind;
    use crate::number::{Number, Numbers};

    fn parsed(text: &str, sizes: &[(&str, usize)]) -> Result<Axes, ErrorKind> {
        let sizes = sizes.iter().map(|(axis, n)| ((*axis).to_owned(), Number::Literal(*n)));
        Axes::parse(text, sizes.collect()).map_err(|error| error.kind())
    }

    #[test]
    fn patterns_are_printed_in_one_form() {
        let axes = parsed("( h two d )e->(h d two) (e)  1", &[("h", 2)]).unwrap();
        assert_eq!(axes.to_string(), "'(h two d) e -> (h d two) e 1', h=2");
        assert_eq!(parsed(" -> a", &[("a", 2)]).unwrap().to_string(), "' -> a', a=2");
        for text in ["a b", "a -> (a", "a -> a)", "((a)) -> a", "a a -> a", "a -> a a", "2 -> a", "a$ -> b"] {
            assert_eq!(parsed(text, &[]), Err(ErrorKind::Syntax), "{text}");
        }
        assert_eq!(parsed("a -> a", &[("b", 2)]), Err(ErrorKind::Syntax));
        assert_eq!(parsed("a -> a", &[("a", 2), ("a", 2)]), Err(ErrorKind::Syntax));
    }

    #[test]
    fn extents_are_solved_from_the_shape() {
        let axes = parsed("(h two d) e -> (h d two) e r", &[("h", 2), ("two", 2), ("r", 3)]).unwrap();
        let extents = axes.extents(&[12, 5], &Numbers::new()).unwrap();
        let extents: Vec<(&str, usize)> = extents.iter().map(|(axis, n)| (&axis[..], *n)).collect();
        assert_eq!(extents, [("h", 2), ("two", 2), ("r", 3), ("d", 3), ("e", 5)]);
        let kind = |shape: &[usize]| axes.extents(shape, &Numbers::new()).unwrap_err().kind();
        assert_eq!(kind(&[10, 5]), ErrorKind::Indivisible);
        assert_eq!(kind(&[12]), ErrorKind::Shape);
        let unknown = parsed("(a b) -> a b", &[]).unwrap().extents(&[4], &Numbers::new()).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Syntax);
        let huge = parsed("(a b) -> a b", &[("a", usize::MAX), ("b", 2)]).unwrap();
        assert_eq!(huge.extents(&[4], &Numbers::new()).unwrap_err().kind(), ErrorKind::Indivisible);
    }
}
