//! What a cut is to those who bring one, and its name.

use core::fmt;
use core::num::NonZeroUsize;
use std::sync::Arc;

use super::RankRanges;
use crate::Error;

/// A way to share out a dim among the ranks of a mesh axis.
///
/// Of every length and number of ranks it makes a partition: each index goes to exactly one rank, which keeps its indices
/// in ascending order. Equal names and arguments mean equal pieces, so a cut has no other state that matters.
/// [`check_cut`](super::check_cut) tests all of that.
///
/// It is asked when a sharding is made, and not trusted: what is no partition is an error there, and one cut of a dim has at
/// most 2^24 pieces, over 2^20 ranks.
///
/// ```
/// use std::sync::Arc;
/// use reshard_sharding::{Cut, Pieces, check_cut};
/// use reshard_sharding::{Error, Mesh, Placement, Sharding};
///
/// /// The last rank has the first chunk.
/// #[derive(Debug)]
/// struct Backwards;
///
/// impl Cut for Backwards {
///     fn name(&self) -> &str {
///         "BW"
///     }
///     fn pieces(&self, extent: usize, ranks: usize) -> Result<Pieces, Error> {
///         let mut pieces = Pieces::new(ranks);
///         let chunk = extent.div_ceil(ranks);
///         for i in 0..ranks {
///             pieces.add(ranks - 1 - i, (i * chunk).min(extent)..((i + 1) * chunk).min(extent))?;
///         }
///         Ok(pieces)
///     }
/// }
///
/// check_cut(&Backwards, 0..=24, 1..=6)?;
/// let mesh: Mesh = "cp=2".parse()?;
/// let s = Sharding::new(&mesh, &[5], &[Placement::by(0, Arc::new(Backwards))?])?;
/// assert_eq!(s.to_string(), "BW(0)");
/// assert_eq!(s.global_indices(0)?, [3, 4]);
/// # Ok::<(), Error>(())
/// ```
pub trait DimPartition: fmt::Debug + Send + Sync {
    /// A word: letters, digits and underscores, the first a letter.
    fn name(&self) -> &str;

    /// What stands behind the dim in its text, such as `4` in `BC(0,4)`; empty where nothing does.
    ///
    /// One line, in which brackets pair.
    fn arguments(&self) -> String {
        String::new()
    }

    /// Which of the indices `0..extent` each of `ranks` ranks keeps.
    ///
    /// An error where it does not cut this; a sharding is refused with it.
    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error>;
}

/// A cut, known by its name and arguments: equal ones are equal cuts.
///
/// ```
/// use reshard_sharding::NamedCut;
/// assert_eq!(NamedCut::zigzag().to_string(), "Z");
/// assert_eq!(NamedCut::zigzag(), NamedCut::zigzag());
/// ```
#[derive(Clone)]
pub struct NamedPartition(Arc<Named>);

struct Named {
    name: String,
    arguments: String,
    cut: Arc<dyn DimPartition>,
}

/// The longest name.
const LONGEST_NAME: usize = 64;

/// The longest arguments.
const LONGEST_ARGUMENTS: usize = 1 << 12;

impl NamedPartition {
    /// A cut that somebody brings.
    ///
    /// Fails with `placement` where its name is no word, is that of a placement here, or its arguments would not be read
    /// back.
    pub fn new(cut: Arc<dyn DimPartition>) -> Result<NamedPartition, Error> {
        let named = NamedPartition::read_once(cut);
        named.check()?;
        if super::registry::is_shipped(named.name()) {
            return Err(Error::Placement {
                reason: format!("a cut cannot be named {}: that is one of this library's", named.name()),
            });
        }
        Ok(named)
    }

    /// The cut of [`Rolled`](super::Rolled).
    pub fn rolled(by: usize) -> NamedPartition {
        NamedPartition::read_once(Arc::new(super::Rolled(by)))
    }

    /// The cut of [`Zigzag`](super::Zigzag).
    pub fn zigzag() -> NamedPartition {
        NamedPartition::read_once(Arc::new(super::Zigzag))
    }

    /// The cut of [`Block`](super::Block).
    pub fn block(len: NonZeroUsize) -> NamedPartition {
        NamedPartition::read_once(Arc::new(super::Block(len)))
    }

    /// A cut of this library.
    pub(super) fn shipped(cut: Arc<dyn DimPartition>) -> NamedPartition {
        NamedPartition::read_once(cut)
    }

    /// Its name and arguments are asked for once.
    fn read_once(cut: Arc<dyn DimPartition>) -> NamedPartition {
        NamedPartition(Arc::new(Named { name: cut.name().to_owned(), arguments: cut.arguments(), cut }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its arguments, empty for none.
    pub fn arguments(&self) -> &str {
        &self.0.arguments
    }

    /// The cut itself.
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

    /// Fails unless its text reads back.
    fn check(&self) -> Result<(), Error> {
        check_name(self.name())?;
        check_arguments(self.name(), self.arguments())
    }
}

/// Fails unless a cut can have this name.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let bad = |why: &str| {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        Err(Error::Placement { reason: format!("a cut cannot be named {shown:?}: {why}") })
    };
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word || name.len() > LONGEST_NAME {
        return bad("a name is a letter and then letters, digits and underscores, at most 64 in all");
    }
    if crate::placement::WORDS.contains(&name) || name.starts_with("PartitionSpec") {
        return bad("that is another placement");
    }
    // PyTorch prints specs without commas: RRS(0) starts with R.
    if crate::placement::runs_on(name) {
        return bad("it reads as the placement R or P and another one");
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
            "the cut {name} has the arguments {shown:?}: they are one line of at most {LONGEST_ARGUMENTS} bytes in which \
             brackets pair, without blanks around it"
        ),
    })
}

/// Fails unless the name and arguments of a cut are such, and the same each time.
pub(super) fn check_text(cut: &dyn DimPartition) -> Result<(), Error> {
    check_name(cut.name())?;
    check_arguments(cut.name(), &cut.arguments())?;
    let (first, again) = (cut.arguments(), cut.arguments());
    if first != again {
        return Err(Error::Placement {
            reason: format!("the cut {} has the arguments {first:?} and then {again:?}", cut.name()),
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
