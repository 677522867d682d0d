//! Factors: the loops of an op, one letter each.

use core::fmt;

use reshard_sharding::ReduceOp;

/// The effect of sharding a factor on the op.
///
/// | role | the loop | inputs that carry it | outputs that carry it | outputs that do not |
/// |---|---|---|---|---|
/// | `Pass` | independent iterations | `S` | `S` | none |
/// | `Reduce(op)` | iterations combined by `op` | `S` | `S` | `P(op)` |
/// | `Replicate` | needs all its iterations | never sharded | never sharded | |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactorKind {
    /// Every output carries it: each rank computes its own part.
    PassThrough,
    /// Some output does not carry it: each rank computes a partial value of that output.
    Reduction(ReduceOp),
    /// An iteration depends on all others: the factor may not be sharded.
    NeedReplication,
}

/// The requirement of a factor on the split that shards it.
///
/// All operands that carry a factor are always split equally. One strategy splits them with one placeholder,
/// which is filled with one kind, so a plain shard is never combined with a strided one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[doc(hidden)]
pub enum Slicing {
    /// Any split, uneven ones too.
    #[default]
    Any,
    /// Every rank holds equally many indices.
    Even,
}

/// One factor of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct Factor {
    /// Its letter.
    pub name: char,
    /// The effect of sharding it.
    pub role: FactorKind,
    /// Its requirement on a split.
    pub slicing: Slicing,
    /// `true` if an op that runs on a shard of it has to know which part of the whole that is.
    pub region: bool,
    /// The number of iterations, where the rule fixes that.
    pub size: Option<usize>,
}

/// One dim of an operand in an equation.
///
/// ```
/// use reshard_ops::rules::Dim;
/// assert_eq!(Dim::from('m').to_string(), "m");
/// assert_eq!(Dim::compound(['h', 'g']).to_string(), "(hg)");
/// assert_eq!(Dim::ONE.to_string(), "1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// The product of these factors, most significant first; none for a dim of size 1.
    Factors(Vec<char>),
    /// `...`: any number of dims, aligned at the right and broadcast, as NumPy does.
    Rest,
    /// `*`: a dim of any size that may not be sharded.
    Whole,
}

impl Dim {
    /// A dim of size 1.
    #[doc(hidden)]
    pub const ONE: Dim = Dim::Factors(Vec::new());

    /// The dim that is the product of these factors, most significant first.
    pub fn compound(factors: impl IntoIterator<Item = char>) -> Dim {
        Dim::Factors(factors.into_iter().collect())
    }

    /// Its factors; none for `...` and `*`.
    #[doc(hidden)]
    pub fn factors(&self) -> &[char] {
        match self {
            Dim::Factors(list) => list,
            Dim::Rest | Dim::Whole => &[],
        }
    }
}

impl From<char> for Dim {
    fn from(factor: char) -> Dim {
        Dim::Factors(vec![factor])
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Rest => f.write_str("..."),
            Dim::Whole => f.write_str("*"),
            Dim::Factors(list) => match list[..] {
                [] => f.write_str("1"),
                [factor] => write!(f, "{factor}"),
                _ => write!(f, "({})", list.iter().collect::<String>()),
            },
        }
    }
}
