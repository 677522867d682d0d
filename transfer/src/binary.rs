//! The binary form of a part: fixed-size records, which a program uses in memory as they are.
//!
//! All numbers are little-endian and unsigned. After the header, the tables follow without gaps:
//!
//! | table | record | bytes |
//! |---|---|---|
//! | header | `RSHARDTP`, version u32, rank u32, hash u64, ten counts u32 in the order below | 64 |
//! | source names, target names | start u64, size u64, count u64; text and dtype: offset u32, length u32; ranges: first u32, number u32 | 48 |
//! | ranges | first number u32, number of numbers u32 | 8 |
//! | loops | extent u64, source stride u64, target stride u64 | 24 |
//! | templates | peer u32 (2^32 - 1 for zeros); loops: first u32, number u32; conversions: offset u32, length u32 | 20 |
//! | receives, sends, fills | template u32, source base u64, target base u64 | 20 |
//! | text | UTF-8 | 1 |
//!
//! A base is an address: the tensor is the one whose addresses hold it, and the offset in the buffer is the base minus
//! its first address. The addresses of tensor `k` of a name record begin at `start + k * size`. Its name is the text,
//! with a number for each null character: the mixed-radix digits of `k` in the ranges, the last one fastest.

use std::collections::HashMap;

use crate::dtype;
use crate::error::{Error, ErrorKind};
use crate::names::{Group, Table, addresses, expanded, grouped};
use crate::part::{Entry, Loop, Named, RankPart, Template};

const MAGIC: &[u8; 8] = b"RSHARDTP";
const VERSION: u32 = 1;
const HEADER: usize = 64;
const NO_PEER: u32 = u32::MAX;

/// The bytes of a record of each table, in the order of the counts.
const RECORDS: [usize; 10] = [48, 48, 8, 24, 20, 20, 20, 20, 1, 0];

/// The text of a file under construction, each text once.
#[derive(Default)]
struct Texts {
    text: String,
    known: HashMap<String, u32>,
}

impl Texts {
    fn add(&mut self, text: &str) -> [u32; 2] {
        if let Some(offset) = self.known.get(text) {
            return [*offset, text.len() as u32];
        }
        let offset = self.text.len() as u32;
        self.text.push_str(text);
        self.known.insert(text.to_owned(), offset);
        [offset, text.len() as u32]
    }
}

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn put_long(out: &mut Vec<u8>, numbers: &[u64]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

impl RankPart {
    /// Returns the binary form, which [`RankPart::from_bytes`] reads.
    ///
    /// A part that [`Transfer::part`](crate::Transfer::part) or the JSON form returned always has one.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut texts, mut ranges, mut counts) = (Texts::default(), Vec::new(), Vec::new());
        let mut out = vec![0; HEADER];
        let mut bases = Vec::new();
        for (tensors, sizes) in [&self.sources, &self.targets].into_iter().zip(self.sizes()) {
            let groups = grouped(tensors, &sizes).unwrap_or_default();
            for group in &groups {
                put_long(&mut out, &[group.start, group.size, group.count]);
                let (text, dtype) = (texts.add(&group.text), texts.add(&group.dtype));
                let of_ranges = [ranges.len() as u32 / 2, group.ranges.len() as u32];
                put(&mut out, &[text, dtype, of_ranges].concat());
                ranges.extend(group.ranges.iter().flat_map(|(first, count)| [*first, *count]));
            }
            counts.push(groups.len());
            bases.push(addresses(&groups));
        }
        put(&mut out, &ranges);
        counts.push(ranges.len() / 2);
        let (mut loops, mut templates) = (Vec::new(), Vec::new());
        for template in &self.templates {
            let cast = template.cast.iter().map(|dtype| dtype::name(*dtype)).collect::<Vec<_>>().join(",");
            let peer = template.peer.map_or(NO_PEER, |peer| peer as u32);
            put(&mut templates, &[peer, loops.len() as u32 / 3, template.loops.len() as u32]);
            put(&mut templates, &texts.add(&cast));
            loops.extend(template.loops.iter().flat_map(|x| [x.extent, x.source_stride, x.target_stride]));
        }
        put_long(&mut out, &loops);
        counts.extend([loops.len() / 3, self.templates.len()]);
        out.extend(templates);
        for entries in [&self.receives, &self.sends, &self.fills] {
            counts.push(entries.len());
            for entry in entries {
                let base = |of: usize, tensor: usize| bases[of].get(tensor).copied().unwrap_or(0);
                put(&mut out, &[entry.template as u32]);
                let source = base(0, entry.source) + entry.source_offset;
                put_long(&mut out, &[source, base(1, entry.target) + entry.target_offset]);
            }
        }
        counts.extend([texts.text.len(), 0]);
        out.extend(texts.text.as_bytes());
        let mut header = MAGIC.to_vec();
        put(&mut header, &[VERSION, self.rank as u32]);
        put_long(&mut header, &[self.hash]);
        put(&mut header, &counts.iter().map(|count| *count as u32).collect::<Vec<_>>());
        out[..HEADER].copy_from_slice(&header);
        out
    }

    /// Returns the addresses that each source and each target needs: its own elements, and those of its boxes.
    pub(crate) fn sizes(&self) -> [Vec<u64>; 2] {
        let count = |tensors: &[Named]| tensors.iter().map(|tensor| tensor.count).collect::<Vec<_>>();
        let (mut sources, mut targets) = (count(&self.sources), count(&self.targets));
        for entry in self.receives.iter().chain(&self.sends).chain(&self.fills) {
            let template = &self.templates[entry.template];
            let (source, target) = template.spans();
            let size = &mut targets[entry.target];
            *size = (*size).max(entry.target_offset.saturating_add(target).saturating_add(1));
            if template.peer.is_some() {
                let size = &mut sources[entry.source];
                *size = (*size).max(entry.source_offset.saturating_add(source).saturating_add(1));
            }
        }
        [sources, targets]
    }

    /// Reads the binary form.
    ///
    /// Errors: `invalid` for bytes that are not a part. Lengths are checked first, so that memory stays proportional to
    /// the bytes and the names.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let invalid =
            |reason: &str| Error::invalid(format!("not a part of a plan: {reason}; export it again"));
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(invalid("the header is missing"));
        }
        let (version, rank) = (short(bytes, 8), short(bytes, 12));
        if version != VERSION {
            return Err(invalid(&format!("it has version {version}, and {VERSION} is supported")));
        }
        let mut tables: Vec<&[u8]> = Vec::with_capacity(RECORDS.len());
        let mut start = HEADER;
        for (k, record) in RECORDS.iter().enumerate() {
            let count = short(bytes, 24 + 4 * k) as usize;
            let end = count.checked_mul(*record).and_then(|length| start.checked_add(length));
            let Some(table) = end.and_then(|end| bytes.get(start..end)) else {
                return Err(invalid(&format!("its tables need more than its {} bytes", bytes.len())));
            };
            tables.push(table);
            start += table.len();
        }
        if start != bytes.len() {
            return Err(invalid(&format!("its tables need {start} bytes, and it has {}", bytes.len())));
        }
        let text = std::str::from_utf8(tables[8]).map_err(|_| invalid("its text is not UTF-8"))?;
        let text_at = |offset: u32, length: u32| {
            let end = (offset as usize).checked_add(length as usize)?;
            text.get(offset as usize..end)
        };
        let ranges: Vec<(u32, u32)> = tables[2].chunks_exact(8).map(|x| (short(x, 0), short(x, 4))).collect();
        let groups_of = |table: &[u8]| -> Option<Vec<Group>> {
            let group = |x: &[u8]| {
                let first = short(x, 40) as usize;
                let of_group = ranges.get(first..first.checked_add(short(x, 44) as usize)?)?;
                Some(Group {
                    start: long(x, 0),
                    size: long(x, 8),
                    count: long(x, 16),
                    text: text_at(short(x, 24), short(x, 28))?.to_owned(),
                    dtype: text_at(short(x, 32), short(x, 36))?.to_owned(),
                    ranges: of_group.to_vec(),
                })
            };
            table.chunks_exact(48).map(group).collect()
        };
        let groups = [tables[0], tables[1]].map(groups_of);
        let [Some(sources), Some(targets)] = groups else {
            return Err(invalid("a name record is outside of its tables"));
        };
        let loops: Vec<Loop> = tables[3]
            .chunks_exact(24)
            .map(|x| Loop { extent: long(x, 0), source_stride: long(x, 8), target_stride: long(x, 16) })
            .collect();
        let mut templates = Vec::with_capacity(tables[4].len() / 20);
        let mut listed = 0_usize;
        for x in tables[4].chunks_exact(20) {
            let (first, length) = (short(x, 4) as usize, short(x, 8) as usize);
            let of_template = first.checked_add(length).and_then(|end| loops.get(first..end));
            listed = listed.saturating_add(length);
            let cast = text_at(short(x, 12), short(x, 16)).filter(|cast| cast.len() <= 1024);
            let (Some(of_template), Some(cast)) = (of_template, cast) else {
                return Err(invalid("a template is outside of its tables"));
            };
            // Templates may share loops, but not so that they need more memory than the file.
            if listed > bytes.len() {
                return Err(invalid("its templates have more loops than it has bytes"));
            }
            let cast = cast.split(',').filter(|name| !name.is_empty()).map(dtype::named);
            let peer = Some(short(x, 0)).filter(|peer| *peer != NO_PEER).map(|peer| peer as usize);
            templates.push(Template {
                peer,
                cast: cast.collect::<Result<_, _>>()?,
                loops: of_template.to_vec(),
            });
        }
        let names = [expanded(&sources)?, expanded(&targets)?];
        let by_address = [Table::new(&sources), Table::new(&targets)];
        let entries_of = |table: &[u8]| -> Option<Vec<Entry>> {
            let entry = |x: &[u8]| {
                let template = short(x, 0) as usize;
                let is_copy = templates.get(template)?.peer.is_some();
                let (source, source_offset) =
                    if is_copy { by_address[0].at(long(x, 4))? } else { (0, long(x, 4)) };
                let (target, target_offset) = by_address[1].at(long(x, 12))?;
                Some(Entry { template, source, target, source_offset, target_offset })
            };
            table.chunks_exact(20).map(entry).collect()
        };
        let entries = [tables[5], tables[6], tables[7]].map(entries_of);
        let [Some(receives), Some(sends), Some(fills)] = entries else {
            return Err(Error::new(
                ErrorKind::Invalid,
                invalid("an entry is outside of its tables").to_string(),
            ));
        };
        let [sources, targets] = names;
        let hash = long(bytes, 16);
        let part = Self { hash, rank: rank as usize, sources, targets, templates, receives, sends, fills };
        part.checked()
    }
}

/// Returns the number at an offset that is within the bytes.
fn short(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Returns the number at an offset that is within the bytes.
fn long(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
