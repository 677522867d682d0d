//! From names to cuts: what a text may call a cut.

use core::fmt;
use std::sync::Arc;

use super::own::check_name;
use super::{Block, Counts, Cut, NamedCut};
use crate::Error;

/// Makes a cut from its arguments.
type Constructor = Arc<dyn Fn(&str) -> Result<Arc<dyn Cut>, Error> + Send + Sync>;

/// The cuts that a reader knows by name: those of this library, and what is added.
///
/// ```
/// use std::sync::Arc;
/// use reshard_sharding::{Cut, CutRegistry, Pieces};
/// use reshard_sharding::{Error, Mesh, Sharding};
///
/// /// The first rank keeps everything but the last so many, which are the last rank's.
/// #[derive(Debug)]
/// struct Tail(usize);
///
/// impl Cut for Tail {
///     fn name(&self) -> &str {
///         "Tail"
///     }
///     fn arguments(&self) -> String {
///         self.0.to_string()
///     }
///     fn pieces(&self, extent: usize, ranks: usize) -> Result<Pieces, Error> {
///         let mut pieces = Pieces::new(ranks);
///         pieces.add(0, 0..extent.saturating_sub(self.0))?;
///         pieces.add(ranks - 1, extent.saturating_sub(self.0)..extent)?;
///         Ok(pieces)
///     }
/// }
///
/// let cuts = CutRegistry::new().with("Tail", |arguments| match arguments.parse() {
///     Ok(n) => Ok(Arc::new(Tail(n))),
///     Err(_) => Err(Error::Placement { reason: format!("Tail takes a number, not {arguments:?}") }),
/// })?;
/// let mesh: Mesh = "x=3".parse()?;
/// let s = Sharding::parse_with(&cuts, &mesh, &[10], "Tail(0,4)")?;
/// assert_eq!(s.to_string(), "Tail(0,4)");
/// assert_eq!(reshard_sharding::meaning::held(&s, 2)?, [6, 7, 8, 9]);
/// assert!(Sharding::parse(&mesh, &[10], "Tail(0,4)").unwrap_err().to_string().contains("CutRegistry"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Default)]
pub struct CutRegistry {
    added: Vec<(String, Constructor)>,
}

/// The names that need no adding, the short one first.
const ZIGZAG: [&str; 2] = ["Z", "Zigzag"];

const BLOCK: [&str; 2] = ["BL", "Block"];

const COUNTS: [&str; 2] = ["CN", "Counts"];

/// Whether a name is that of a cut of this library.
pub(super) fn is_shipped(name: &str) -> bool {
    [ZIGZAG, BLOCK, COUNTS].iter().any(|names| names.contains(&name))
}

impl CutRegistry {
    /// Those of this library: `Z`, `BL` and `CN`.
    pub const fn new() -> CutRegistry {
        CutRegistry { added: Vec::new() }
    }

    /// The same and one more, made from the arguments behind the dim, which are empty where there are none.
    ///
    /// Fails with `placement` where the name cannot be a cut's, or is taken.
    pub fn with(
        mut self,
        name: &str,
        make: impl Fn(&str) -> Result<Arc<dyn Cut>, Error> + Send + Sync + 'static,
    ) -> Result<CutRegistry, Error> {
        check_name(name)?;
        if is_shipped(name) || self.added.iter().any(|(known, _)| known == name) {
            return Err(Error::Placement { reason: format!("there is a cut named {name} already") });
        }
        self.added.push((name.to_owned(), Arc::new(make)));
        Ok(self)
    }

    /// The names that it knows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [ZIGZAG[0], BLOCK[0], COUNTS[0]].into_iter().chain(self.added.iter().map(|(name, _)| name.as_str()))
    }

    /// How placements by them are written, as hints say it.
    pub(crate) fn usages(&self) -> impl Iterator<Item = String> {
        let added = self.added.iter().map(|(name, _)| format!("{name}(dim,..)"));
        let [zigzag, block, counts] = [ZIGZAG, BLOCK, COUNTS].map(|names| names[0]);
        let shipped =
            [format!("{zigzag}(dim)"), format!("{block}(dim,length)"), format!("{counts}(dim,counts)")];
        shipped.into_iter().chain(added)
    }

    /// The cut of this name with these arguments; none where it knows no such name.
    ///
    /// Fails as its constructor does, and with `placement` where that makes a cut of another name.
    pub fn cut(&self, name: &str, arguments: &str) -> Result<Option<NamedCut>, Error> {
        if BLOCK.contains(&name) {
            return Ok(Some(NamedCut::shipped(Block::read(arguments)?)));
        }
        if COUNTS.contains(&name) {
            return Ok(Some(NamedCut::shipped(Counts::read(arguments)?)));
        }
        if is_shipped(name) {
            if arguments.is_empty() {
                return Ok(Some(NamedCut::zigzag()));
            }
            return Err(Error::Placement { reason: format!("{name} takes a dim alone, not {arguments:?}") });
        }
        let Some((_, make)) = self.added.iter().find(|(known, _)| known == name) else { return Ok(None) };
        let cut = NamedCut::new(make(arguments)?)?;
        if cut.name() == name {
            return Ok(Some(cut));
        }
        Err(Error::Placement {
            reason: format!("{name}({arguments}) makes a cut that is named {}", cut.name()),
        })
    }
}

impl fmt::Debug for CutRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
