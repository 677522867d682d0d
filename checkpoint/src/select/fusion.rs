//! A tensor and its parts along one dim: `*.qkv.weight = *.q.weight + *.k.weight + *.v.weight`.
//!
//! Each part has some indices of a dim of the whole, ascending: part `i`, of `n[i]` indices in `b` blocks, is
//! the layout
//!
//! ```text
//! (n[i]/b, b) : (1, sum(n)/b)  +  the sum of n[j]/b for j < i
//! ```
//!
//! from its own indices to those of the whole. So a file's range of a part is a region of the whole, and its
//! range of the whole is a set of regions of the parts. Fusing and splitting are exactly this: the resulting
//! tensors consist of the same bytes of the same files at other regions. They are read, split, redistributed
//! and compared like any others. No byte is copied for it.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::internal::shared;
use reshard_sharding::{Interval, Intervals};

use crate::bytes::Bytes;
use crate::bytes::strided;
use crate::error::Error;
use crate::model::checkpoint::{Data, Tensor};
use crate::model::placed::{Known, Placed};
use crate::model::stored;
use crate::model::units::Units;
use crate::select::pattern;
use crate::shown::Shown;

/// The largest number of blocks that a dim is split into.
const MOST_BLOCKS: usize = 1 << 16;

/// A rule that fuses parts into a whole or splits it, for every text that `*` stands for.
///
/// The syntax is `WHOLE = PART + PART + ..`, then `on DIM` if the dim is not 0, and `by BLOCKS` if the parts
/// are interleaved. With `by BLOCKS` each part is split into that many equal blocks. The whole has the first
/// block of each part, then the second of each, and so on, like the query groups of fused attention. For
/// splitting, a number before a part is its number of shares, by default one:
/// `*.qkv = 4 *.q + *.k + *.v by 8` splits 8 groups of four query heads, a key head and a value head. A `*`
/// is the same text in all names of the rule. Names with `=`, `+` or blanks cannot be written.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, Fusion};
///
/// let block = Checkpoint::open(None)?;
/// let qkv: Fusion = "*.qkv.* = *.query.* + *.key.* + *.value.* by 4".parse()?;
/// let fused = block.fused(&qkv)?; // weights and biases, in four groups of heads
/// assert_eq!(fused.tensor("attention.qkv.weight")?.shape(), [3 * 256, 256]);
/// assert!(fused.tensor("attention.key.bias").is_err());
/// let again = fused.split(&qkv)?;
/// assert!(reshard_checkpoint::diff(&block, &again, &mut ())?.equal);
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusion {
    whole: String,
    parts: Vec<Part>,
    dim: usize,
    blocks: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    /// The number of shares of the whole, if it is given.
    shares: Option<usize>,
}

impl Part {
    fn shares(&self) -> usize {
        self.shares.unwrap_or(1)
    }
}

impl FromStr for Fusion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            let said = text.shown();
            Error::malformed(
                "fusion",
                format!("`{said}` is not of the form `WHOLE = PART + PART on 0 by 1`: {why}"),
            )
        };
        let number =
            |text: &str| text.parse::<usize>().map_err(|_| bad(&format!("`{text}` is not a number")));
        let (whole, rest) = text.split_once('=').ok_or_else(|| bad("it has no ="))?;
        let mut words: Vec<&str> = rest.split_whitespace().collect();
        let (mut dim, mut blocks) = (0, 1);
        if let [.., "by", said] = words[..] {
            blocks = number(said)?;
            words.truncate(words.len() - 2);
        }
        if let [.., "on", said] = words[..] {
            dim = number(said)?;
            words.truncate(words.len() - 2);
        }
        if !(1..=MOST_BLOCKS).contains(&blocks) {
            return Err(bad(&format!("there must be 1 to {MOST_BLOCKS} blocks, not {blocks}")));
        }
        let part = |said: &str| match said.split_whitespace().collect::<Vec<_>>()[..] {
            [name] => Ok(Part { name: name.to_owned(), shares: None }),
            [shares, name] => match number(shares)? {
                shares @ 1..=MOST_BLOCKS => Ok(Part { name: name.to_owned(), shares: Some(shares) }),
                shares => Err(bad(&format!("a part must have 1 to {MOST_BLOCKS} shares, not {shares}"))),
            },
            _ => Err(bad("each part must be one name")),
        };
        let parts = words.join(" ").split('+').map(part).collect::<Result<Vec<_>, _>>()?;
        let whole = match whole.split_whitespace().collect::<Vec<_>>()[..] {
            [name] => name.to_owned(),
            _ => return Err(bad("the whole must be one name")),
        };
        let this = Self { whole, parts, dim, blocks };
        if this.parts.len() < 2 {
            return Err(bad("there must be at least two parts"));
        }
        let stars = |name: &str| name.matches('*').count();
        if this.names().any(|name| stars(name) != stars(&this.whole)) {
            return Err(bad("all names must have the same number of *"));
        }
        let mut names: Vec<&str> = this.names().collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(bad("all names must be different"));
        }
        Ok(this)
    }
}

impl fmt::Display for Fusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} =", self.whole)?;
        for (at, Part { name, shares }) in self.parts.iter().enumerate() {
            let plus = if at == 0 { "" } else { " +" };
            match shares {
                Some(shares) => write!(f, "{plus} {shares} {name}")?,
                None => write!(f, "{plus} {name}")?,
            }
        }
        if self.dim != 0 {
            write!(f, " on {}", self.dim)?;
        }
        if self.blocks != 1 {
            write!(f, " by {}", self.blocks)?;
        }
        Ok(())
    }
}

impl Fusion {
    /// Returns all names of the rule, the whole's first.
    fn names(&self) -> impl Iterator<Item = &str> {
        [&self.whole[..]].into_iter().chain(self.parts.iter().map(|part| &part.name[..]))
    }

    /// Returns the tensors with the wholes in place of their parts.
    pub(crate) fn fuse(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let parts: Vec<&str> = self.parts.iter().map(|part| &part.name[..]).collect();
        let all = stars(&parts, tensors);
        if all.is_empty() {
            return Err(self.unused("none of its parts is a tensor of the input"));
        }
        let by_name: HashMap<&str, &Tensor> = tensors.iter().map(|one| (&one.name[..], one)).collect();
        let mut maker = Maker::default();
        // The parts; the first of each group carries the fused tensor.
        let mut made: HashMap<&str, Option<Tensor>> = HashMap::new();
        for texts in &all {
            let whole = filled(&self.whole, texts);
            let found = parts.iter().map(|part| {
                let name = filled(part, texts);
                by_name.get(&name[..]).copied().ok_or_else(|| {
                    self.unused(&format!("there is no tensor `{}` for `{whole}`", name.shown()))
                })
            });
            let found = found.collect::<Result<Vec<_>, _>>()?;
            let fused = self.fused(&whole, &found, &mut maker).map_err(|error| error.about_tensor(&whole))?;
            for part in &found {
                made.entry(&part.name).or_default();
            }
            made.insert(&found[0].name, Some(fused));
        }
        let mut result = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            match made.get_mut(&tensor.name[..]) {
                Some(fused) => result.extend(fused.take()),
                None => result.push(tensor.clone()),
            }
        }
        Ok(result)
    }

    /// Returns the tensors with the parts in place of their wholes.
    pub(crate) fn split(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let mut result = Vec::with_capacity(tensors.len());
        let (mut known, mut found) = (Known::default(), false);
        for tensor in tensors {
            let Some(texts) = pattern::stars(&self.whole, &tensor.name) else {
                result.push(tensor.clone());
                continue;
            };
            found = true;
            let parts = self.cut(tensor, &texts, &mut known);
            result.extend(parts.map_err(|error| error.about_tensor(&tensor.name))?);
        }
        if !found {
            return Err(self.unused("its whole is not a tensor of the input"));
        }
        Ok(result)
    }

    fn unused(&self, why: &str) -> Error {
        Error::refused("fusion", format!("`{self}`: {why}"))
    }

    fn fused(&self, name: &str, parts: &[&Tensor], maker: &mut Maker) -> Result<Tensor, Error> {
        let (first, dim) = (parts[0], self.dim);
        let mut shape = first.shape.clone();
        let Some(extent) = shape.get_mut(dim) else {
            let message = format!("`{}` is {:?} and has no dim {dim}", first.name.shown(), first.shape);
            return Err(Error::refused("fusion", message));
        };
        *extent = 0;
        for part in parts {
            let alike = part.shape.len() == shape.len()
                && part.shape.iter().zip(&shape).enumerate().all(|(at, (a, b))| at == dim || a == b);
            if !alike || (part.dtype, part.stored) != (first.dtype, first.stored) {
                let said = |one: &Tensor| format!("`{}` is {} {:?}", one.name.shown(), one.dtype, one.shape);
                let message =
                    format!("{} and {}, which cannot be concatenated on dim {dim}", said(first), said(part));
                return Err(Error::refused("fusion", message));
            }
            shape[dim] = shape[dim].saturating_add(part.shape[dim]);
        }
        if stored::byte_len(first.stored, &shape).is_none() {
            let message =
                format!("{} {shape:?} has more than 2^64 bytes, or ends in the middle of one", first.dtype);
            return Err(Error::refused("fusion", message));
        }
        let whole = Units::of(first.stored, &shape);
        let units: Vec<Units> = parts.iter().map(|part| Units::of(part.stored, &part.shape)).collect();
        if units.iter().any(|units| units.shape().len() != whole.shape().len() || units.shape().len() <= dim)
        {
            return Err(Error::refused(
                "packed",
                format!("elements of {} share bytes, which would be split", first.stored),
            ));
        }
        let sizes: Vec<usize> = units.iter().map(|units| units.shape()[dim]).collect();
        let uneven = parts.iter().zip(&sizes).find(|(_, size)| !size.is_multiple_of(self.blocks));
        if let Some((part, size)) = uneven {
            let message = format!(
                "`{}` has {size} on dim {dim}, which are not {} equal blocks",
                part.name.shown(),
                self.blocks,
                size = counted(size, "index", "indices")
            );
            return Err(Error::refused("fusion", message));
        }
        let said = self.parts.iter().any(|part| part.shares.is_some());
        let shares = said.then(|| self.parts.iter().map(Part::shares).collect::<Vec<usize>>());
        let proportional = |shares: &Vec<usize>| {
            sizes.iter().zip(shares).all(|(size, share)| size * shares[0] == sizes[0] * share)
        };
        if !shares.as_ref().is_none_or(proportional) {
            let message =
                format!("the parts have {sizes:?} indices on dim {dim}, which do not match the given shares");
            return Err(Error::refused("fusion", message));
        }
        let mut sources = Vec::with_capacity(parts.len());
        for (part, units) in parts.iter().zip(&units) {
            sources
                .push(part.source(units, &mut maker.known).map_err(|error| error.about_tensor(&part.name))?);
        }
        let chunks = sources.iter().flat_map(|source| source.files.iter().cloned()).collect();
        let placed = maker.placed(
            sources.iter().map(|source| Arc::clone(&source.placed)).collect(),
            dim,
            self.blocks,
            &sizes,
        );
        let sums: Option<Vec<&Vec<u64>>> = parts.iter().map(|part| part.sums.as_ref()).collect();
        let sums = sums.map(|sums| sums.into_iter().flatten().copied().collect());
        let data = Data::Chunks { placed, chunks };
        Ok(Tensor {
            name: name.to_owned(),
            path: None,
            dtype: first.dtype,
            stored: first.stored,
            shape,
            data,
            sums,
            parts: None,
        })
    }

    /// Splits a whole into its parts.
    fn cut(&self, whole: &Tensor, texts: &[&str], known: &mut Known) -> Result<Vec<Tensor>, Error> {
        let dim = self.dim;
        let refused = |why: String| Err(Error::refused("fusion", why));
        let Some(extent) = whole.shape.get(dim) else {
            return refused(format!("it is {:?} and has no dim {dim}", whole.shape));
        };
        let units = Units::of(whole.stored, &whole.shape);
        if units.shape().len() < whole.shape.len() {
            return Err(Error::refused(
                "packed",
                format!("elements of {} share bytes, which would be split", whole.stored),
            ));
        }
        let shares: Vec<usize> = self.parts.iter().map(Part::shares).collect();
        let all = shares.iter().sum::<usize>() * self.blocks;
        let size = units.shape()[dim];
        if !size.is_multiple_of(all) {
            return refused(format!(
                "its {size} on dim {dim} are not {} of {} equal shares",
                counted(self.blocks, "block", "blocks"),
                all / self.blocks,
                size = counted(size, "index", "indices")
            ));
        }
        let per_unit = extent.checked_div(size).unwrap_or(1);
        let sizes: Vec<usize> = shares.iter().map(|shares| size / all * shares * self.blocks).collect();
        let source = whole.source(&units, known)?;
        let mut parts = Vec::with_capacity(self.parts.len());
        for ((part, size), image) in self.parts.iter().zip(&sizes).zip(images(&sizes, self.blocks)) {
            let mut shape = whole.shape.clone();
            shape[dim] = size * per_unit;
            let (mut placed, mut chunks) = (Placed::apart(Vec::new()), Vec::new());
            for (held, holders) in source.placed.regions.iter().zip(&source.placed.holders) {
                for run in shared(&held.dims[dim], &image) {
                    for turn in 0..run.count {
                        let start = run.target + turn * run.target_step;
                        let mut region = held.clone();
                        region.dims[dim] = [Interval { start, len: run.len }].into_iter().collect();
                        let from = run.source + turn * run.source_step;
                        let files = holders.iter().map(|place| {
                            strided::indices(&source.files[*place], units.bytes, held, dim, from, run.len)
                        });
                        let files: Vec<Bytes> = files.collect::<Result<_, _>>()?;
                        placed.push(region, files.len());
                        chunks.extend(files);
                    }
                }
            }
            let data = if chunks.is_empty() {
                Data::Whole(Bytes::from(Vec::new()))
            } else {
                Data::Chunks { placed: Arc::new(placed), chunks }
            };
            let name = filled(&part.name, texts);
            // A checksum of the whole cannot be used for a part.
            parts.push(Tensor {
                name,
                path: None,
                dtype: whole.dtype,
                stored: whole.stored,
                shape,
                data,
                sums: None,
                parts: None,
            });
        }
        Ok(parts)
    }
}

/// Computes regions of wholes; layers are equal, so recent results are cached.
#[derive(Default)]
struct Maker {
    known: Known,
    last: Vec<Made>,
}

/// The regions of the parts, their sizes, and the regions of the whole.
type Made = (Vec<Arc<Placed>>, Vec<usize>, Arc<Placed>);

/// The number of cached results.
const REMEMBERED: usize = 8;

impl Maker {
    fn placed(&mut self, parts: Vec<Arc<Placed>>, dim: usize, blocks: usize, sizes: &[usize]) -> Arc<Placed> {
        let same = |other: &[Arc<Placed>]| other.iter().zip(&parts).all(|(a, b)| Arc::ptr_eq(a, b));
        if let Some((.., made)) = self.last.iter().find(|(other, of, _)| same(other) && of == sizes) {
            return Arc::clone(made);
        }
        let mut made = Placed::apart(Vec::new());
        for (placed, image) in parts.iter().zip(images(sizes, blocks)) {
            made.append(placed, |region| {
                let mut region = region.clone();
                region.dims[dim] = through(&region.dims[dim], &image);
                region
            });
        }
        let made = Arc::new(made);
        self.last.insert(0, (parts, sizes.to_vec(), Arc::clone(&made)));
        self.last.truncate(REMEMBERED);
        made
    }
}

/// Returns for each part the indices of the whole that it has, in the part's order.
fn images(sizes: &[usize], blocks: usize) -> Vec<Intervals> {
    let all = sizes.iter().sum::<usize>() / blocks;
    let mut before = 0;
    let image = |size: &usize| {
        let len = size / blocks;
        let start = before;
        before += len;
        let mut list = Intervals::default();
        for block in 0..blocks {
            push(&mut list, Interval { start: block * all + start, len });
        }
        list
    };
    sizes.iter().map(image).collect()
}

/// Maps indices of a part to those of the whole.
fn through(list: &Intervals, image: &Intervals) -> Intervals {
    let mut result = Intervals::default();
    let mut blocks = image.iter();
    let (mut block, mut before) = (blocks.next(), 0);
    for x in list {
        let (mut start, end) = (x.start, x.start + x.len);
        while let Some(there) = block.filter(|_| start < end) {
            if start >= before + there.len {
                before += there.len;
                block = blocks.next();
                continue;
            }
            let len = (before + there.len).min(end) - start;
            push(&mut result, Interval { start: there.start + start - before, len });
            start += len;
        }
    }
    result
}

/// Appends an interval, merged with the last one if they touch.
fn push(list: &mut Intervals, x: Interval) {
    match list.last_mut() {
        _ if x.len == 0 => {}
        Some(last) if last.start + last.len == x.start => last.len += x.len,
        _ => list.push(x),
    }
}

/// Replaces each `*` of a name by a text.
fn filled(name: &str, texts: &[&str]) -> String {
    let mut texts = texts.iter();
    let mut pieces = name.split('*');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + texts.next().map_or("", |text| text) + piece)
}

/// Returns all texts that `*` matches in a tensor for at least one of these names.
fn stars<'a>(names: &[&str], tensors: &'a [Tensor]) -> Vec<Vec<&'a str>> {
    let found = |tensor: &'a Tensor| names.iter().filter_map(|name| pattern::stars(name, &tensor.name));
    let mut all: Vec<_> = tensors.iter().flat_map(found).collect();
    all.sort_unstable();
    all.dedup();
    all
}
