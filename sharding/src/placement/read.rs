//! Reading placements, one and a list of them.
//!
//! ```text
//! placement  = R | S(dim) | SS(dim,pieces) | RG(dims,[sizes]) | RG(dims,units=[shares]) | P(op) | CUT(dim [,arguments])
//! placements = [ '[' | '(' ] placement { [','] placement } [ ']' | ')' ]      PyTorch's words too, and its specs without commas
//! ```
//!
//! Dims counted from the end, units and prefixes of dims are valid only where the shape of the tensor is
//! known.

use core::str::FromStr;

use reshard_layout::InlineVec;
use smallvec::SmallVec;

use super::{Placement, Placements};
use crate::notation::cursor::Cursor;
use crate::partition::PartitionRegistry;
use crate::{Error, ReduceOp};

/// The keywords of the placements that are not a [`DimPartition`](crate::DimPartition).
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

/// Returns `true` if `word` is R or P directly followed by another placement.
///
/// PyTorch prints `RRS(0)`, `PS(0)`.
pub(crate) fn runs_on(word: &str) -> bool {
    word.starts_with(['R', 'P']) && word[1..].starts_with(['R', 'S', 'P', '_'])
}

impl Placement {
    /// Reads a placement that may use these dim partitions.
    pub fn parse_with(cuts: &PartitionRegistry, text: &str) -> Result<Placement, Error> {
        let mut r = Cursor::new("placement", text);
        let p = Placement::read(&mut r, cuts)?;
        r.finish()?;
        Ok(p)
    }

    #[doc(hidden)]
    pub fn read(r: &mut Cursor<'_>, cuts: &PartitionRegistry) -> Result<Placement, Error> {
        let (at, mut of) = (r.here(), Of::default());
        let p = Placement::read_of(r, cuts, &mut of)?;
        of.needs_no_shape(r, at)?;
        Ok(p)
    }

    /// Reads a placement of a tensor whose number of dims may be known.
    fn read_of(r: &mut Cursor<'_>, cuts: &PartitionRegistry, of: &mut Of) -> Result<Placement, Error> {
        let dims = of.dims;
        let at = r.here();
        // PyTorch prints specs without commas: RRS(0) starts with R. The word is not read to its end before
        // that is known, or else a text of many would be read once for each.
        let rest = r.rest();
        let word = if runs_on(rest) {
            r.expect(&rest[..1])?;
            &rest[..1]
        } else {
            r.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
        };
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
                let sizes = crate::notation::numbers(r, "the size of the first rank's part")?;
                if sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n as i64)).is_none() {
                    return Err(r.error_at(at, "sizes whose sum is below 2^63"));
                }
                r.eat(",");
                r.expect(close)?;
                r.expect(")")?;
                Ok(Placement::Ragged { dim, sizes: sizes.into() })
            }
            // PyTorch's partial placements of a norm, as it prints them now and before, with the op that
            // reduces the powers.
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
            name => Placement::read_cut(r, cuts, at, name, dims),
        }
    }

    /// Reads the arguments after the name of a dim partition: `(dim)` or `(dim,arguments)`.
    fn read_cut(
        r: &mut Cursor<'_>,
        cuts: &PartitionRegistry,
        at: usize,
        name: &str,
        dims: Option<usize>,
    ) -> Result<Placement, Error> {
        let known = || cuts.usages().collect::<Vec<_>>().join(", ");
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
                Ok(Placement::Custom { dim, cut })
            }
            Ok(None) => {
                Err(r.error_at(at, format!("{}; register a custom partition {name} before parsing", all())))
            }
            Err(e) => {
                dim?;
                Err(r.error_at(place, format!("the arguments of {name} ({e})")))
            }
        }
    }
}

/// The expected text where a placement is `P()`.
const TWO_READINGS: &str = "P or P(sum) for a partial placement, or R for a replicated one: P() alone is JAX's \
     replicated PartitionSpec, and ambiguous here,";

/// The known properties of the tensor, and whether a placement needs its shape.
#[derive(Default)]
struct Of {
    /// The number of dims, if known.
    dims: Option<usize>,
    /// The number of leading dims of a ragged shard of several dims.
    prefix: Option<usize>,
    /// `true` if its sizes are shares.
    units: bool,
}

impl Of {
    /// Fails where the placement at `at` is valid only for a tensor whose shape is known.
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

/// Reads the dims of a ragged shard of several, after the bracket; the placement is of the first.
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
        Placement::parse_with(&PartitionRegistry::new(), s)
    }
}

/// Of each placement, its number in the shard order of its dim, where one is written.
type ShardNumbers = SmallVec<[Option<usize>; 4]>;

/// Placements as written, including those that need the shape of the tensor.
pub(crate) struct Read {
    pub(crate) placements: Placements,
    pub(crate) numbers: ShardNumbers,
    /// The number of leading dims of a ragged shard of several dims.
    pub(crate) prefix: Option<usize>,
    /// For each placement, `true` if its sizes are shares of the remaining length.
    pub(crate) units: SmallVec<[bool; 4]>,
}

impl Placements {
    /// Reads placements and their numbers in PyTorch's shard order, as in `S(0)[1]S(0)[0]`, where given.
    ///
    /// `dims` is the number of dims of the tensor, where it is known.
    pub(crate) fn read(
        r: &mut Cursor<'_>,
        cuts: &PartitionRegistry,
        dims: Option<usize>,
    ) -> Result<Read, Error> {
        let mut numbers = SmallVec::new();
        let (mut prefix, mut units) = (None, SmallVec::new());
        let close = if r.eat("[") {
            Some("]")
        } else if r.eat("(") {
            Some(")")
        } else {
            None
        };
        let mut list = InlineVec::new();
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

    /// Reads placements that may use these dim partitions.
    pub fn parse_with(cuts: &PartitionRegistry, text: &str) -> Result<Placements, Error> {
        Placements::parse(cuts, None, text)
    }

    /// Reads placements of a tensor with `dims` dims; dims may be counted from the end.
    ///
    /// ```
    /// use reshard_sharding::Placements;
    /// assert_eq!(Placements::parse_with_dims(3, "S(-1), R, SS(-3,2)")?.to_string(), "S(2),R,SS(0,2)");
    /// assert!(Placements::parse_with_dims(3, "S(-4)").unwrap_err().to_string().contains("-3 to -1"));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn parse_with_dims(dims: usize, text: &str) -> Result<Placements, Error> {
        Placements::parse(&PartitionRegistry::new(), Some(dims), text)
    }

    fn parse(cuts: &PartitionRegistry, dims: Option<usize>, text: &str) -> Result<Placements, Error> {
        let mut r = Cursor::new("placements", text);
        let Read { placements, numbers, prefix, units } = Placements::read(&mut r, cuts, dims)?;
        if numbers.iter().any(Option::is_some) {
            return Err(r.error_at(0, "placements without [..]; an order of axes needs a mesh"));
        }
        Of { dims, prefix, units: units.contains(&true) }.needs_no_shape(&r, 0)?;
        r.finish()?;
        Ok(placements)
    }
}

impl FromStr for Placements {
    type Err = Error;
    fn from_str(s: &str) -> Result<Placements, Error> {
        Placements::parse_with(&PartitionRegistry::new(), s)
    }
}
