//! Factors: the loops of an op, one letter each.

use core::fmt;

use reshard_sharding::ReduceOp;

/// What sharding a factor does to the op.
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
    /// Some output does not carry it: each rank computes a term of that output.
    Reduction(ReduceOp),
    /// An iteration depends on all others: no rank may hold a part.
    NeedReplication,
}

/// What a factor demands of the cut that shards it.
///
/// All operands that carry a factor are always cut alike: one strategy cuts them with one placeholder, which is filled
/// with one kind, so a plain shard never meets a strided one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Slicing {
    /// Any cut, uneven ones too.
    #[default]
    Any,
    /// Every rank holds equally many indices.
    Even,
}

/// One factor of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    /// Its letter.
    pub name: char,
    /// What sharding it does.
    pub role: FactorKind,
    /// What it demands of a cut.
    pub slicing: Slicing,
    /// Whether an op that runs on a shard of it has to know which part of the whole that is.
    pub region: bool,
    /// How many iterations it has, where the rule fixes that.
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
    /// `*`: a dim of any size that no rank may hold a part of.
    Whole,
}

impl Dim {
    /// A dim of size 1.
    pub const ONE: Dim = Dim::Factors(Vec::new());

    /// The dim that is the product of these factors, most significant first.
    pub fn compound(factors: impl IntoIterator<Item = char>) -> Dim {
        Dim::Factors(factors.into_iter().collect())
    }

    /// Its factors; none for `...` and `*`.
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
