//! Placements: what one mesh axis does to a tensor, PyTorch's words with PyTorch's meaning.
//!
//! One placement per mesh axis, applied from the outermost axis in; each splits what the earlier ones left this rank.

use core::fmt;
use core::num::NonZeroUsize;
use reshard_layout::Few;
use std::str::FromStr;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cut::{Cut, CutRegistry, DimCut, NamedCut};
use crate::notation::cursor::Cursor;
use crate::{Error, ReduceOp};

/// What one mesh axis of `n` ranks does to a tensor.
///
/// ```
/// use reshard_sharding::{Placement, ReduceOp};
/// assert_eq!("S(0)".parse::<Placement>()?, Placement::Shard(0));
/// assert_eq!("_StridedShard(dim=0, sf=2)".parse::<Placement>()?.to_string(), "SS(0,2)");
/// assert_eq!("P".parse::<Placement>()?, Placement::Partial(ReduceOp::Sum));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every rank holds the same.
    Replicate,
    /// `torch.chunk` of this dim: pieces of `ceil(N/n)`, the last ones short or empty.
    Shard(usize),
    /// The dim is chunked into `split_factor` pieces, each piece over the `n` ranks; rank `i` concatenates its `i`-th
    /// pieces.
    StridedShard {
        /// The dim that is sharded.
        dim: usize,
        /// The number of pieces that the dim is first cut into, at least 1.
        split_factor: usize,
    },
    /// The dim is cut into pieces of these sizes, one per rank of the axis; zeros are allowed.
    ///
    /// They add up to what the earlier axes left of the dim, which must be the same on every rank.
    Ragged {
        /// The dim that is sharded.
        dim: usize,
        /// How many indices each rank of the axis keeps.
        sizes: Arc<[usize]>,
    },
    /// Another way to share a dim out among the ranks, with a name: `Z(0)`, zigzag, `BL(0,4)`, blocks, or one that somebody brings.
    Cut {
        /// The dim that is sharded.
        dim: usize,
        /// Which rank of the axis keeps what.
        cut: NamedCut,
    },
    /// Every rank holds a whole term; the value is their reduction.
    Partial(ReduceOp),
}

/// The words of the placements that are no [`Cut`].
pub(crate) const WORDS: [&str; 14] = [
    "R",
    "Replicate",
    "S",
    "Shard",
    "SS",
    "StridedShard",
    "_StridedShard",
    "_S",
    "RG",
    "Ragged",
    "P",
    "Partial",
    "_NormP",
    "_NormPartial",
];

/// Whether a word is the placement R or P with another one behind it, as PyTorch prints specs: `RRS(0)`, `PS(0)`.
pub(crate) fn runs_on(word: &str) -> bool {
    word.starts_with(['R', 'P']) && word[1..].starts_with(['R', 'S', 'P', '_'])
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicate => f.write_str("R"),
            Placement::Shard(dim) => write!(f, "S({dim})"),
            Placement::StridedShard { dim, split_factor } => write!(f, "SS({dim},{split_factor})"),
            Placement::Ragged { dim, sizes } => {
                write!(f, "RG({dim},[")?;
                for (i, n) in sizes.iter().enumerate() {
                    write!(f, "{}{n}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("])")
            }
            Placement::Cut { dim, cut } => cut.write(f, *dim),
            Placement::Partial(op) => write!(f, "P({op})"),
        }
    }
}

impl Placement {
    /// A ragged shard of a dim.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Placement, Sharding};
    /// let mesh: Mesh = "ep=4".parse()?;
    /// let s = Sharding::new(&mesh, &[16, 2], &[Placement::ragged(0, &[3, 5, 0, 8])])?;
    /// assert_eq!(s.to_string(), "RG(0,[3,5,0,8])");
    /// assert_eq!(s.local_shape(1)?.as_slice(), [5, 2]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn ragged(dim: usize, sizes: &[usize]) -> Placement {
        Placement::Ragged { dim, sizes: sizes.into() }
    }

    /// Zigzag over a dim: see [`Zigzag`](crate::cut::Zigzag).
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// assert_eq!(Placement::zigzag(1).to_string(), "Z(1)");
    /// assert_eq!("Z(1)".parse::<Placement>()?, Placement::zigzag(1));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn zigzag(dim: usize) -> Placement {
        Placement::Cut { dim, cut: NamedCut::zigzag() }
    }

    /// Blocks of a dim: see [`Block`](crate::cut::Block).
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// let p = Placement::block(1, 3.try_into()?);
    /// assert_eq!(p.to_string(), "BL(1,3)");
    /// assert_eq!("BL(1,3)".parse::<Placement>()?, p);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block(dim: usize, len: NonZeroUsize) -> Placement {
        Placement::Cut { dim, cut: NamedCut::block(len) }
    }

    /// A dim cut by a cut of one's own: see [`Cut`].
    ///
    /// Fails like [`NamedCut::new`].
    pub fn by(dim: usize, cut: Arc<dyn Cut>) -> Result<Placement, Error> {
        Ok(Placement::Cut { dim, cut: NamedCut::new(cut)? })
    }

    /// Reads a placement that may be one of these cuts.
    pub fn parse_with(cuts: &CutRegistry, text: &str) -> Result<Placement, Error> {
        let mut r = Cursor::new("placement", text);
        let p = Placement::read(&mut r, cuts)?;
        r.finish()?;
        Ok(p)
    }

    /// The dim that it shards, if it shards one.
    pub fn dim(&self) -> Option<usize> {
        match self {
            Placement::Shard(dim)
            | Placement::StridedShard { dim, .. }
            | Placement::Ragged { dim, .. }
            | Placement::Cut { dim, .. } => Some(*dim),
            Placement::Replicate | Placement::Partial(_) => None,
        }
    }

    /// The dim that it shards over `n` ranks, and how.
    #[doc(hidden)]
    #[inline]
    pub fn cut(&self, n: usize) -> Option<(usize, DimCut)> {
        match self {
            Placement::Shard(dim) => Some((*dim, DimCut::chunks(1, n))),
            Placement::StridedShard { dim, split_factor } => Some((*dim, DimCut::chunks(*split_factor, n))),
            Placement::Ragged { dim, sizes } => Some((*dim, DimCut::ragged(sizes))),
            Placement::Cut { dim, cut } => Some((*dim, DimCut::by(cut, n))),
            Placement::Replicate | Placement::Partial(_) => None,
        }
    }

    /// The placement that cuts a dim so.
    pub(crate) fn of_cut(dim: usize, cut: &DimCut) -> Placement {
        match (cut.sizes(), cut.other()) {
            (Some(sizes), _) => Placement::Ragged { dim, sizes: sizes.clone() },
            (None, Some(made)) => Placement::Cut { dim, cut: made.cut().clone() },
            (None, None) => Placement::of_chunks(dim, cut.pieces()),
        }
    }

    /// The placement that chunks a dim in so many pieces.
    #[inline]
    pub(crate) fn of_chunks(dim: usize, pieces: usize) -> Placement {
        if pieces == 1 {
            Placement::Shard(dim)
        } else {
            Placement::StridedShard { dim, split_factor: pieces }
        }
    }

    #[doc(hidden)]
    pub fn read(r: &mut Cursor<'_>, cuts: &CutRegistry) -> Result<Placement, Error> {
        let (at, mut of) = (r.here(), Of::default());
        let p = Placement::read_of(r, cuts, &mut of)?;
        of.needs_no_shape(r, at)?;
        Ok(p)
    }

    /// Reads a placement of a tensor, of which something may be known.
    fn read_of(r: &mut Cursor<'_>, cuts: &CutRegistry, of: &mut Of) -> Result<Placement, Error> {
        let dims = of.dims;
        let at = r.here();
        let start = r.clone();
        let mut word = r.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        // PyTorch prints specs without commas: RRS(0) starts with R.
        if runs_on(word) {
            word = &word[..1];
            *r = start;
            r.expect(word)?;
        }
        match word {
            "R" | "Replicate" => {
                if r.eat("(") {
                    r.expect(")")?;
                }
                Ok(Placement::Replicate)
            }
            "S" | "Shard" => {
                r.expect("(")?;
                keyword(r, &["dim"]);
                let dim = read_dim(r, dims)?;
                r.expect(")")?;
                Ok(Placement::Shard(dim))
            }
            "SS" | "StridedShard" | "_StridedShard" | "_S" => {
                r.expect("(")?;
                keyword(r, &["dim"]);
                let dim = read_dim(r, dims)?;
                r.expect(",")?;
                keyword(r, &["split_factor", "sf"]);
                let place = r.here();
                let split_factor = r.number("a split factor")?;
                if split_factor == 0 {
                    return Err(r.error_at(place, "a split factor of at least 1"));
                }
                r.expect(")")?;
                Ok(Placement::StridedShard { dim, split_factor })
            }
            "RG" | "Ragged" | "RaggedShard" => {
                r.expect("(")?;
                keyword(r, &["dims", "dim"]);
                let dim = if r.eat("(") { read_prefix(r, of)? } else { read_dim(r, dims)? };
                r.expect(",")?;
                of.units |= ["local_units", "units"].into_iter().any(|word| r.eat(word) && r.eat("="));
                keyword(r, &["sizes"]);
                let close = if r.eat("(") { ")" } else { "]" };
                if close == "]" {
                    r.expect("[")?;
                }
                let at = r.here();
                let sizes = crate::notation::numbers(r, "the size of the first rank's piece")?;
                if sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n as i64)).is_none() {
                    return Err(r.error_at(at, "sizes whose sum is below 2^63"));
                }
                r.eat(",");
                r.expect(close)?;
                r.expect(")")?;
                Ok(Placement::Ragged { dim, sizes: sizes.into() })
            }
            "P" | "Partial" => {
                let mut op = ReduceOp::Sum;
                if r.eat("(") {
                    if r.eat(")") {
                        if word == "Partial" {
                            return Ok(Placement::Partial(op));
                        }
                        return Err(r.error_at(at, TWO_READINGS));
                    }
                    keyword(r, &["reduce_op"]);
                    let quote = ["'", "\""].into_iter().find(|q| r.eat(q));
                    op = ReduceOp::read(r)?;
                    if let Some(q) = quote {
                        r.expect(q)?;
                    }
                    r.expect(")")?;
                }
                Ok(Placement::Partial(op))
            }
            // PyTorch's terms of a norm, as it prints them and as earlier versions did, with the op that it reduces powers by.
            "_NormP" | "_NormPartial" => {
                r.expect("(")?;
                keyword(r, &["reduce_op"]);
                if ["sum", "max"].into_iter().any(|op| r.eat(op)) {
                    r.expect(",")?;
                }
                keyword(r, &["norm_type"]);
                let op = ReduceOp::read_norm(r)?;
                r.expect(")")?;
                Ok(Placement::Partial(op))
            }
            name => Placement::read_cut(r, cuts, at, name, dims),
        }
    }

    /// Reads what stands behind the name of a cut: `(dim)` or `(dim,arguments)`.
    fn read_cut(
        r: &mut Cursor<'_>,
        cuts: &CutRegistry,
        at: usize,
        name: &str,
        dims: Option<usize>,
    ) -> Result<Placement, Error> {
        let known = || cuts.names().map(|name| format!("{name}(dim)")).collect::<Vec<_>>().join(", ");
        let all =
            || format!("a placement: R, S(dim), SS(dim,split_factor), RG(dim,[sizes]), {} or P(op)", known());
        if name.is_empty() || !r.eat("(") {
            return Err(r.error_at(at, all()));
        }
        keyword(r, &["dim"]);
        let dim = read_dim(r, dims);
        let place = r.here();
        let arguments = match &dim {
            Ok(_) if r.eat(",") => r.up_to_bracket(),
            Ok(_) | Err(_) => "",
        };
        match cuts.cut(name, arguments) {
            Ok(Some(cut)) => {
                let dim = dim?;
                r.expect(")")?;
                Ok(Placement::Cut { dim, cut })
            }
            Ok(None) => Err(
                r.error_at(at, format!("{}; a cut {name} is read with a CutRegistry that knows it", all()))
            ),
            Err(e) => {
                dim?;
                Err(r.error_at(place, format!("what {name} takes ({e})")))
            }
        }
    }
}

/// What is expected where `P()` stands among placements.
const TWO_READINGS: &str = "P or P(sum) for a partial placement, or R for a replicated one: P() is JAX's replicated PartitionSpec where it is the whole text, and neither here,";

/// What is known of the tensor that placements are of, and what one of them wants to know.
#[derive(Default)]
struct Of {
    /// How many dims it has.
    dims: Option<usize>,
    /// A ragged shard is of so many dims, the first ones.
    prefix: Option<usize>,
    /// Its sizes are shares.
    units: bool,
}

impl Of {
    /// Fails where the placement at a place is only one of a tensor whose shape is known.
    fn needs_no_shape(&self, r: &Cursor<'_>, at: usize) -> Result<(), Error> {
        if self.prefix.is_none() && !self.units {
            return Ok(());
        }
        Err(r.error_at(
            at,
            "sizes of one dim: units, and ragged shards of several dims, are read with the tensor's shape,",
        ))
    }
}

/// Reads the dims of a ragged shard of several, behind their bracket; the placement is of the first.
fn read_prefix(r: &mut Cursor<'_>, of: &mut Of) -> Result<usize, Error> {
    let at = r.here();
    let dims = crate::notation::numbers(r, "the number of a dim, counted from 0")?;
    r.eat(",");
    r.expect(")")?;
    if dims.is_empty() || dims.iter().enumerate().any(|(i, &dim)| i != dim) {
        return Err(r.error_at(at, "the first dims in order, such as (0,1)"));
    }
    if dims.len() > 1 {
        of.prefix = Some(dims.len());
    }
    Ok(0)
}

/// Reads the number of a dim, counted from 0, or from the end as `-1` where it is known how many there are.
fn read_dim(r: &mut Cursor<'_>, dims: Option<usize>) -> Result<usize, Error> {
    let at = r.here();
    if !r.eat("-") {
        return r.number("the number of a dim, counted from 0");
    }
    let back = r.number("how many dims from the end, as in -1")?;
    match dims {
        Some(dims) if (1..=dims).contains(&back) => Ok(dims - back),
        Some(0) => Err(r.error_at(at, "no shards: the tensor has no dims")),
        Some(dims) => {
            Err(r.error_at(at, format!("a dim of the {dims} from 0 to {} or -{dims} to -1", dims - 1)))
        }
        None => {
            Err(r.error_at(at, "a dim counted from 0 (from the end only where the tensor's shape is known)"))
        }
    }
}

/// Takes `name=` if it comes next.
fn keyword(r: &mut Cursor<'_>, names: &[&str]) {
    for name in names {
        let mut ahead = r.clone();
        if ahead.eat(name) && ahead.eat("=") {
            *r = ahead;
            return;
        }
    }
}

impl FromStr for Placement {
    type Err = Error;
    fn from_str(s: &str) -> Result<Placement, Error> {
        Placement::parse_with(&CutRegistry::new(), s)
    }
}

/// One placement per mesh axis, outermost first.
///
/// ```
/// use reshard_sharding::Placements;
/// assert_eq!("S(0), R, SS(0,2), P".parse::<Placements>()?.to_string(), "S(0),R,SS(0,2),P(sum)");
/// assert_eq!("(Shard(dim=0), Replicate())".parse::<Placements>()?.to_string(), "S(0),R");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placements(pub Few<Placement, 4>);

impl core::ops::Deref for Placements {
    type Target = [Placement];
    fn deref(&self) -> &[Placement] {
        &self.0
    }
}

impl FromIterator<Placement> for Placements {
    fn from_iter<I: IntoIterator<Item = Placement>>(items: I) -> Placements {
        Placements(items.into_iter().collect())
    }
}

impl fmt::Display for Placements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            p.fmt(f)?;
        }
        Ok(())
    }
}

/// Of each placement, its number in the shard order of its dim, where one is written.
pub(crate) type ShardNumbers = SmallVec<[Option<usize>; 4]>;

/// Placements as they are written, with what only the shape of the tensor tells the meaning of.
pub(crate) struct Read {
    pub(crate) placements: Placements,
    pub(crate) numbers: ShardNumbers,
    /// Ragged shards are of so many dims, the first ones.
    pub(crate) prefix: Option<usize>,
    /// Of each, whether its sizes are shares of what is left.
    pub(crate) units: SmallVec<[bool; 4]>,
}

impl Placements {
    /// Reads placements; of each, its number in PyTorch's shard order, as in `S(0)[1]S(0)[0]`, where it has one.
    ///
    /// `dims` is the number of dims of the tensor, where it is known.
    pub(crate) fn read(r: &mut Cursor<'_>, cuts: &CutRegistry, dims: Option<usize>) -> Result<Read, Error> {
        let mut numbers = SmallVec::new();
        let (mut prefix, mut units) = (None, SmallVec::new());
        let close = if r.eat("[") {
            Some("]")
        } else if r.eat("(") {
            Some(")")
        } else {
            None
        };
        let mut list = Few::new();
        loop {
            let ended = close.map_or(r.is_done(), |c| r.rest().starts_with(c));
            if ended && (list.is_empty() || close.is_some()) {
                break;
            }
            let (at, mut of) = (r.here(), Of { dims, ..Of::default() });
            let p = Placement::read_of(r, cuts, &mut of)?;
            if dims.is_none() {
                of.needs_no_shape(r, at)?;
            }
            if of.prefix.is_some() && prefix.is_some() && of.prefix != prefix {
                return Err(r.error_at(at, "a ragged shard of the same dims as the one before it"));
            }
            prefix = of.prefix.or(prefix);
            units.push(of.units);
            let numbered = matches!(p, Placement::Shard(_)) && r.eat("[");
            list.push(p);
            numbers.push(if numbered { Some(r.number("a number in the order of axes")?) } else { None });
            if numbered {
                r.expect("]")?;
            }
            // PyTorch prints specs without commas.
            let next = r.rest().starts_with(['R', 'S', 'P', '_']);
            if !r.eat(",") && !next {
                break;
            }
        }
        if let Some(c) = close {
            r.expect(c)?;
        }
        Ok(Read { placements: Placements(list), numbers, prefix, units })
    }

    /// Reads placements that may be some of these cuts.
    pub fn parse_with(cuts: &CutRegistry, text: &str) -> Result<Placements, Error> {
        Placements::parse(cuts, None, text)
    }

    /// Reads placements of a tensor with so many dims, of which some may be counted from the end.
    ///
    /// ```
    /// use reshard_sharding::Placements;
    /// assert_eq!(Placements::of_dims(3, "S(-1), R, SS(-3,2)")?.to_string(), "S(2),R,SS(0,2)");
    /// assert!(Placements::of_dims(3, "S(-4)").unwrap_err().to_string().contains("-3 to -1"));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn of_dims(dims: usize, text: &str) -> Result<Placements, Error> {
        Placements::parse(&CutRegistry::new(), Some(dims), text)
    }

    fn parse(cuts: &CutRegistry, dims: Option<usize>, text: &str) -> Result<Placements, Error> {
        let mut r = Cursor::new("placements", text);
        let Read { placements, numbers, prefix, units } = Placements::read(&mut r, cuts, dims)?;
        if numbers.iter().any(Option::is_some) {
            return Err(r.error_at(0, "placements without [..] (an order of axes is read with a mesh)"));
        }
        Of { dims, prefix, units: units.contains(&true) }.needs_no_shape(&r, 0)?;
        r.finish()?;
        Ok(placements)
    }
}

impl FromStr for Placements {
    type Err = Error;
    fn from_str(s: &str) -> Result<Placements, Error> {
        Placements::parse_with(&CutRegistry::new(), s)
    }
}
