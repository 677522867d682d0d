//! The trait of custom dim partitions, and their name.

use core::fmt;
use core::num::NonZeroUsize;
use std::sync::Arc;

use super::RankRanges;
use crate::Error;

/// A rule that distributes a dim among the ranks of a mesh axis.
///
/// For every length and number of ranks it gives a partition: each index goes to exactly one rank, which
/// keeps its indices in ascending order. Equal names and arguments mean equal ranges, so an implementation
/// has no other relevant state. [`check_partition`](super::check_partition) tests all of that.
///
/// It is called when a sharding is created, and its result is verified: a result that is not a partition is
/// an error. One dim partition has at most 2^24 ranges, over at most 2^20 ranks.
///
/// ```
/// use std::sync::Arc;
/// use reshard_sharding::{DimPartition, RankRanges, check_partition};
/// use reshard_sharding::{Error, Mesh, Placement, Sharding};
///
/// /// The last rank has the first chunk.
/// #[derive(Debug)]
/// struct Backwards;
///
/// impl DimPartition for Backwards {
///     fn name(&self) -> &str {
///         "BW"
///     }
///     fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
///         let mut ranges = RankRanges::new(ranks);
///         let chunk = extent.div_ceil(ranks);
///         for i in 0..ranks {
///             ranges.add(ranks - 1 - i, (i * chunk).min(extent)..((i + 1) * chunk).min(extent))?;
///         }
///         Ok(ranges)
///     }
/// }
///
/// check_partition(&Backwards, 0..=24, 1..=6)?;
/// let mesh: Mesh = "cp=2".parse()?;
/// let s = Sharding::new(&mesh, &[5], &[Placement::custom(0, Arc::new(Backwards))?])?;
/// assert_eq!(s.to_string(), "BW(0)");
/// assert_eq!(s.global_indices(0)?, [3, 4]);
/// # Ok::<(), Error>(())
/// ```
pub trait DimPartition: fmt::Debug + Send + Sync {
    /// Returns the name: letters, digits and underscores, the first a letter.
    fn name(&self) -> &str;

    /// Returns the text after the dim, such as `4` in `BC(0,4)`; empty for no arguments.
    ///
    /// One line, in which brackets pair.
    fn arguments(&self) -> String {
        String::new()
    }

    /// Returns the indices of `0..extent` that each of `ranks` ranks keeps.
    ///
    /// Returns an error for an unsupported extent or number of ranks; creating the sharding then fails with
    /// it.
    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error>;
}

/// A dim partition, identified by its name and arguments: equal ones are equal partitions.
///
/// ```
/// use reshard_sharding::NamedPartition;
/// assert_eq!(NamedPartition::zigzag().to_string(), "Z");
/// assert_eq!(NamedPartition::zigzag(), NamedPartition::zigzag());
/// ```
#[derive(Clone)]
pub struct NamedPartition(Arc<Named>);

struct Named {
    name: String,
    arguments: String,
    cut: Arc<dyn DimPartition>,
}

/// Maximum length of a name.
const LONGEST_NAME: usize = 64;

/// Maximum length of the arguments.
const LONGEST_ARGUMENTS: usize = 1 << 12;

impl NamedPartition {
    /// Wraps a custom dim partition.
    ///
    /// Fails with `placement` where its name is not an identifier or is the name of a built-in placement, or
    /// where its arguments would not parse back.
    pub fn new(cut: Arc<dyn DimPartition>) -> Result<NamedPartition, Error> {
        let named = NamedPartition::read_once(cut);
        named.check()?;
        if super::registry::is_shipped(named.name()) {
            return Err(Error::Placement {
                reason: format!("a partition cannot be named {}: that is a built-in one", named.name()),
            });
        }
        Ok(named)
    }

    /// Returns the partition [`Rolled`](super::Rolled).
    pub fn rolled(by: usize) -> NamedPartition {
        NamedPartition::read_once(Arc::new(super::Rolled(by)))
    }

    /// Returns the partition [`Zigzag`](super::Zigzag).
    pub fn zigzag() -> NamedPartition {
        NamedPartition::read_once(Arc::new(super::Zigzag))
    }

    /// Returns the partition [`Block`](super::Block).
    pub fn block(len: NonZeroUsize) -> NamedPartition {
        NamedPartition::read_once(Arc::new(super::Block(len)))
    }

    /// Wraps a built-in partition.
    pub(super) fn shipped(cut: Arc<dyn DimPartition>) -> NamedPartition {
        NamedPartition::read_once(cut)
    }

    /// Reads the name and arguments once.
    fn read_once(cut: Arc<dyn DimPartition>) -> NamedPartition {
        NamedPartition(Arc::new(Named { name: cut.name().to_owned(), arguments: cut.arguments(), cut }))
    }

    /// Returns its name.
    #[doc(hidden)]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns its arguments, empty for none.
    #[doc(hidden)]
    pub fn arguments(&self) -> &str {
        &self.0.arguments
    }

    /// Returns the partition itself.
    #[doc(hidden)]
    pub fn cut(&self) -> &Arc<dyn DimPartition> {
        &self.0.cut
    }

    /// Writes it as the placement of a dim.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, dim: usize) -> fmt::Result {
        match self.arguments() {
            "" => write!(f, "{}({dim})", self.name()),
            arguments => write!(f, "{}({dim},{arguments})", self.name()),
        }
    }

    /// Fails unless its text round-trips.
    fn check(&self) -> Result<(), Error> {
        check_name(self.name())?;
        check_arguments(self.name(), self.arguments())
    }
}

/// Fails unless a dim partition can have this name.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let bad = |why: &str| {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        Err(Error::Placement { reason: format!("a partition cannot be named {shown:?}: {why}") })
    };
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word || name.len() > LONGEST_NAME {
        return bad("a name must be letters, digits and `_`, at most 64, and begin with a letter");
    }
    if crate::placement::WORDS.contains(&name) || name.starts_with("PartitionSpec") {
        return bad("that is a built-in placement");
    }
    // PyTorch prints specs without commas: RRS(0) starts with R.
    if crate::placement::runs_on(name) {
        return bad("it can be parsed as the placement R or P and another one");
    }
    Ok(())
}

fn check_arguments(name: &str, arguments: &str) -> Result<(), Error> {
    let mut open = Vec::new();
    let pairs = arguments.chars().all(|c| match c {
        '(' | '[' | '{' => {
            open.push(c);
            true
        }
        ')' => open.pop() == Some('('),
        ']' => open.pop() == Some('['),
        '}' => open.pop() == Some('{'),
        _ => !c.is_control(),
    });
    if pairs && open.is_empty() && arguments.trim() == arguments && arguments.len() <= LONGEST_ARGUMENTS {
        return Ok(());
    }
    let shown: String = arguments.chars().take(80).collect();
    Err(Error::Placement {
        reason: format!(
            "invalid arguments {shown:?} of the partition {name}: they must be one line of at most \
             {LONGEST_ARGUMENTS} bytes with balanced brackets, without blanks around it"
        ),
    })
}

/// Fails unless the name and arguments are valid and equal on each call.
pub(super) fn check_text(cut: &dyn DimPartition) -> Result<(), Error> {
    check_name(cut.name())?;
    check_arguments(cut.name(), &cut.arguments())?;
    let (first, again) = (cut.arguments(), cut.arguments());
    if first != again {
        return Err(Error::Placement {
            reason: format!(
                "the partition {} has the arguments {first:?} on one call and {again:?} on the next",
                cut.name()
            ),
        });
    }
    Ok(())
}

impl fmt::Display for NamedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.arguments() {
            "" => f.write_str(self.name()),
            arguments => write!(f, "{}({arguments})", self.name()),
        }
    }
}

impl fmt::Debug for NamedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for NamedPartition {
    fn eq(&self, other: &NamedPartition) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.name() == other.name() && self.arguments() == other.arguments())
    }
}

impl Eq for NamedPartition {}

impl core::hash::Hash for NamedPartition {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
        self.arguments().hash(state);
    }
}
