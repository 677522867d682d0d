//! The registry from names in texts to dim partitions.

use core::fmt;
use std::sync::Arc;

use super::own::check_name;
use super::{Block, Counts, DimPartition, NamedPartition, Rolled, Zigzag};
use crate::Error;

/// Creates a dim partition from its arguments.
type Constructor = Arc<dyn Fn(&str) -> Result<Arc<dyn DimPartition>, Error> + Send + Sync>;

/// The dim partitions that a parser knows by name: the built-in ones, and those that are added.
///
/// ```
/// use std::sync::Arc;
/// use reshard_sharding::{DimPartition, PartitionRegistry, RankRanges};
/// use reshard_sharding::{Error, Mesh, Sharding};
///
/// /// The first rank keeps all but the last `n` indices, which the last rank keeps.
/// #[derive(Debug)]
/// struct Tail(usize);
///
/// impl DimPartition for Tail {
///     fn name(&self) -> &str {
///         "Tail"
///     }
///     fn arguments(&self) -> String {
///         self.0.to_string()
///     }
///     fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
///         let mut ranges = RankRanges::new(ranks);
///         ranges.add(0, 0..extent.saturating_sub(self.0))?;
///         ranges.add(ranks - 1, extent.saturating_sub(self.0)..extent)?;
///         Ok(ranges)
///     }
/// }
///
/// let cuts = PartitionRegistry::new().with("Tail", |arguments| match arguments.parse() {
///     Ok(n) => Ok(Arc::new(Tail(n))),
///     Err(_) => Err(Error::Placement { reason: format!("Tail takes a number, not {arguments:?}") }),
/// })?;
/// let mesh: Mesh = "x=3".parse()?;
/// let s = Sharding::parse_with(&cuts, &mesh, &[10], "Tail(0,4)")?;
/// assert_eq!(s.to_string(), "Tail(0,4)");
/// assert_eq!(s.global_indices(2)?, [6, 7, 8, 9]);
/// assert!(Sharding::parse(&mesh, &[10], "Tail(0,4)").unwrap_err().to_string().contains("custom partition"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Default)]
pub struct PartitionRegistry {
    added: Vec<(String, Constructor)>,
}

/// A built-in partition: its names, the short one first, its notation as a placement, and its parser.
struct Shipped {
    names: [&'static str; 2],
    usage: &'static str,
    read: fn(&str) -> Result<Arc<dyn DimPartition>, Error>,
}

/// The built-in dim partitions.
const SHIPPED: [Shipped; 4] = [
    Shipped { names: ["Z", "Zigzag"], usage: "Z(dim)", read: Zigzag::read },
    Shipped { names: ["BL", "Block"], usage: "BL(dim,length)", read: Block::read },
    Shipped { names: ["RO", "Rolled"], usage: "RO(dim,by)", read: Rolled::read },
    Shipped { names: ["CN", "Counts"], usage: "CN(dim,[[counts],..])", read: Counts::read },
];

/// Returns the built-in partition of a name.
fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|cut| cut.names.contains(&name))
}

/// Returns `true` if a name is that of a built-in partition.
pub(super) fn is_shipped(name: &str) -> bool {
    shipped(name).is_some()
}

impl PartitionRegistry {
    /// Returns a registry of the built-in partitions: `Z`, `BL`, `RO` and `CN`.
    pub const fn new() -> PartitionRegistry {
        PartitionRegistry { added: Vec::new() }
    }

    /// Adds a partition, created from the arguments after the dim, which may be empty.
    ///
    /// Fails with `placement` where the name is invalid or already in use.
    pub fn with(
        mut self,
        name: &str,
        make: impl Fn(&str) -> Result<Arc<dyn DimPartition>, Error> + Send + Sync + 'static,
    ) -> Result<PartitionRegistry, Error> {
        check_name(name)?;
        if is_shipped(name) || self.added.iter().any(|(known, _)| known == name) {
            return Err(Error::Placement { reason: format!("the partition {name} already exists") });
        }
        self.added.push((name.to_owned(), Arc::new(make)));
        Ok(self)
    }

    /// Returns the names of the added partitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let shipped = SHIPPED.iter().map(|cut| cut.names[0]);
        shipped.chain(self.added.iter().map(|(name, _)| name.as_str()))
    }

    /// Returns the notations of the placements, for hints.
    pub(crate) fn usages(&self) -> impl Iterator<Item = String> {
        let added = self.added.iter().map(|(name, _)| format!("{name}(dim,..)"));
        SHIPPED.iter().map(|cut| cut.usage.to_owned()).chain(added)
    }

    /// Returns the partition of this name with these arguments; `None` for an unknown name.
    ///
    /// Fails as its constructor does, and with `placement` where that creates a partition of another name.
    #[doc(hidden)]
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
            reason: format!("{name}({arguments}) returned a partition named {}", cut.name()),
        })
    }
}

impl fmt::Debug for PartitionRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
