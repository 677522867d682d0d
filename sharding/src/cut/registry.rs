//! From names to cuts: what a text may call a cut.

use core::fmt;
use std::sync::Arc;

use super::own::check_name;
use super::{Block, Counts, DimPartition, NamedPartition, Rolled, Zigzag};
use crate::Error;

/// Makes a cut from its arguments.
type Constructor = Arc<dyn Fn(&str) -> Result<Arc<dyn DimPartition>, Error> + Send + Sync>;

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
/// assert_eq!(s.global_indices(2)?, [6, 7, 8, 9]);
/// assert!(Sharding::parse(&mesh, &[10], "Tail(0,4)").unwrap_err().to_string().contains("CutRegistry"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Default)]
pub struct PartitionRegistry {
    added: Vec<(String, Constructor)>,
}

/// A cut of this library: its names, the short one first, how a placement by it is written, and what makes it of its arguments.
struct Shipped {
    names: [&'static str; 2],
    usage: &'static str,
    read: fn(&str) -> Result<Arc<dyn DimPartition>, Error>,
}

/// The cuts that need no adding.
const SHIPPED: [Shipped; 4] = [
    Shipped { names: ["Z", "Zigzag"], usage: "Z(dim)", read: Zigzag::read },
    Shipped { names: ["BL", "Block"], usage: "BL(dim,length)", read: Block::read },
    Shipped { names: ["RO", "Rolled"], usage: "RO(dim,by)", read: Rolled::read },
    Shipped { names: ["CN", "Counts"], usage: "CN(dim,[[counts],..])", read: Counts::read },
];

/// The cut of this library of a name.
fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|cut| cut.names.contains(&name))
}

/// Whether a name is that of a cut of this library.
pub(super) fn is_shipped(name: &str) -> bool {
    shipped(name).is_some()
}

impl PartitionRegistry {
    /// Those of this library: `Z`, `BL`, `RO` and `CN`.
    pub const fn new() -> PartitionRegistry {
        PartitionRegistry { added: Vec::new() }
    }

    /// The same and one more, made from the arguments behind the dim, which are empty where there are none.
    ///
    /// Fails with `placement` where the name cannot be a cut's, or is taken.
    pub fn with(
        mut self,
        name: &str,
        make: impl Fn(&str) -> Result<Arc<dyn DimPartition>, Error> + Send + Sync + 'static,
    ) -> Result<PartitionRegistry, Error> {
        check_name(name)?;
        if is_shipped(name) || self.added.iter().any(|(known, _)| known == name) {
            return Err(Error::Placement { reason: format!("there is a cut named {name} already") });
        }
        self.added.push((name.to_owned(), Arc::new(make)));
        Ok(self)
    }

    /// The names that it knows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let shipped = SHIPPED.iter().map(|cut| cut.names[0]);
        shipped.chain(self.added.iter().map(|(name, _)| name.as_str()))
    }

    /// How placements by them are written, as hints say it.
    pub(crate) fn usages(&self) -> impl Iterator<Item = String> {
        let added = self.added.iter().map(|(name, _)| format!("{name}(dim,..)"));
        SHIPPED.iter().map(|cut| cut.usage.to_owned()).chain(added)
    }

    /// The cut of this name with these arguments; none where it knows no such name.
    ///
    /// Fails as its constructor does, and with `placement` where that makes a cut of another name.
    pub fn cut(&self, name: &str, arguments: &str) -> Result<Option<NamedPartition>, Error> {
        if let Some(cut) = shipped(name) {
            return Ok(Some(NamedPartition::shipped((cut.read)(arguments)?)));
        }
        let Some((_, make)) = self.added.iter().find(|(known, _)| known == name) else { return Ok(None) };
        let cut = NamedPartition::new(make(arguments)?)?;
        if cut.name() == name {
            return Ok(Some(cut));
        }
        Err(Error::Placement {
            reason: format!("{name}({arguments}) makes a cut that is named {}", cut.name()),
        })
    }
}

impl fmt::Debug for PartitionRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
