//! The binary form of a part: fixed-size records, which a program uses in memory as they are.
//!
//! All numbers are little-endian and unsigned. After the header, the tables follow without gaps:
//!
//! | table | record | bytes |
//! |---|---|---|
//! | header | `RSHARDTP`, version u32, rank u32, hash u64, ten counts u32 in the order below | 64 |
//! | source names, target names | start u64, size u64, count u64; text and dtype: offset u32, length u32; ranges: first u32, number u32 | 48 |
//! | ranges | first number u32, number of numbers u32 | 8 |
//! | peers | rank u32 | 4 |
//! | loops | extent u64, source stride u64, target stride u64 | 24 |
//! | templates | peers, loops: first u32, number u32 each; conversions: offset u32, length u32 | 24 |
//! | receives, sends, fills | template u32, source base u64, target base u64 | 20 |
//! | text | UTF-8 | 1 |
//!
//! A base is an address: the tensor is the one whose addresses hold it, and the offset in the buffer is the base minus
//! its first address. The addresses of tensor `k` of a name record begin at `start + k * size`. Its name is the text,
//! with a number for each null character: the mixed-radix digits of `k` in the ranges, the last one fastest.
//!
//! A box that replicas want is one entry, whose template has all of them as peers. A fill has no peers.

use std::collections::HashMap;

use reshard_mapping::Dtype;

use crate::dtype;
use crate::error::Error;
use crate::names::{Group, Table, addresses, expanded, grouped};
use crate::part::{Entry, Loop, Named, RankPart, Template};

const MAGIC: &[u8; 8] = b"RSHARDTP";
const VERSION: u32 = 1;
const HEADER: usize = 64;

/// The largest number of boxes of a part that is read, each as often as it has peers, and of loops of its templates.
const MOST_BOXES: usize = 1 << 22;

/// The bytes of a record of each table, in the order of the counts.
const RECORDS: [usize; 10] = [48, 48, 8, 4, 24, 24, 20, 20, 20, 1];

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

/// The templates of a file under construction, each once.
#[derive(Default)]
struct Records {
    peers: Vec<u32>,
    loops: Vec<u64>,
    templates: Vec<u32>,
    /// Entries by list.
    counts: Vec<usize>,
    /// By the templates of the part that differ in the peer alone.
    known: HashMap<Vec<usize>, u32>,
    known_loops: HashMap<Vec<Loop>, u32>,
}

impl Records {
    /// Returns the record of templates that differ in the peer alone.
    fn add(&mut self, ids: Vec<usize>, all: &[Template], texts: &mut Texts) -> u32 {
        if let Some(record) = self.known.get(&ids) {
            return *record;
        }
        let template = &all[ids[0]];
        let first_peer = self.peers.len() as u32;
        self.peers.extend(ids.iter().filter_map(|id| all[*id].peer).map(|peer| peer as u32));
        let first_loop = self.loops.len() as u32 / 3;
        let first_loop = *self.known_loops.entry(template.loops.clone()).or_insert_with(|| {
            self.loops
                .extend(template.loops.iter().flat_map(|x| [x.extent, x.source_stride, x.target_stride]));
            first_loop
        });
        let cast = template.cast.iter().map(|dtype| dtype::name(*dtype)).collect::<Vec<_>>().join(",");
        self.templates.extend([first_peer, self.peers.len() as u32 - first_peer]);
        self.templates.extend([first_loop, template.loops.len() as u32]);
        self.templates.extend(texts.add(&cast));
        let record = self.templates.len() as u32 / 6 - 1;
        self.known.insert(ids, record);
        record
    }
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
        let (mut records, mut entries) = (Records::default(), Vec::new());
        for list in [&self.receives, &self.sends, &self.fills] {
            let begin = entries.len();
            // Boxes that differ in the peer alone are next to each other.
            for same in list.chunk_by(|a, b| self.differ_in_peer(a, b)) {
                let ids: Vec<usize> = same.iter().map(|entry| entry.template).collect();
                let template = records.add(ids, &self.templates, &mut texts);
                let base = |of: usize, tensor: usize| bases[of].get(tensor).copied().unwrap_or(0);
                put(&mut entries, &[template]);
                let source = base(0, same[0].source) + same[0].source_offset;
                put_long(&mut entries, &[source, base(1, same[0].target) + same[0].target_offset]);
            }
            records.counts.push((entries.len() - begin) / 20);
        }
        put(&mut out, &records.peers);
        put_long(&mut out, &records.loops);
        put(&mut out, &records.templates);
        out.extend(entries);
        counts.extend([records.peers.len(), records.loops.len() / 3, records.templates.len() / 6]);
        counts.extend(&records.counts);
        counts.push(texts.text.len());
        out.extend(texts.text.as_bytes());
        let mut header = MAGIC.to_vec();
        put(&mut header, &[VERSION, self.rank as u32]);
        put_long(&mut header, &[self.hash]);
        put(&mut header, &counts.iter().map(|count| *count as u32).collect::<Vec<_>>());
        out[..HEADER].copy_from_slice(&header);
        out
    }

    /// Returns `true` if two entries are one box for two peers.
    fn differ_in_peer(&self, a: &Entry, b: &Entry) -> bool {
        let (one, other) = (&self.templates[a.template], &self.templates[b.template]);
        Entry { template: 0, ..*a } == Entry { template: 0, ..*b }
            && (one.peer.is_some(), &one.cast, &one.loops)
                == (other.peer.is_some(), &other.cast, &other.loops)
            && one.peer.is_some()
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
        let text = std::str::from_utf8(tables[9]).map_err(|_| invalid("its text is not UTF-8"))?;
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
        let peers: Vec<usize> = tables[3].chunks_exact(4).map(|x| short(x, 0) as usize).collect();
        let loops: Vec<Loop> = tables[4]
            .chunks_exact(24)
            .map(|x| Loop { extent: long(x, 0), source_stride: long(x, 8), target_stride: long(x, 16) })
            .collect();
        let mut records = Vec::with_capacity(tables[5].len() / 24);
        for x in tables[5].chunks_exact(24) {
            let range = |at: usize| {
                let first = short(x, at) as usize;
                first..first.saturating_add(short(x, at + 4) as usize)
            };
            let cast = text_at(short(x, 16), short(x, 20)).filter(|cast| cast.len() <= 1024);
            let (Some(peers), Some(loops), Some(cast)) = (peers.get(range(0)), loops.get(range(8)), cast)
            else {
                return Err(invalid("a template is outside of its tables"));
            };
            let cast = cast.split(',').filter(|name| !name.is_empty()).map(dtype::named);
            records.push(Record { peers, loops, cast: cast.collect::<Result<_, _>>()?, ids: Vec::new() });
        }
        let names = [expanded(&sources)?, expanded(&targets)?];
        let by_address = [Table::new(&sources), Table::new(&targets)];
        let mut templates = Vec::new();
        let mut known: HashMap<Template, usize> = HashMap::new();
        let mut lists = [Vec::new(), Vec::new(), Vec::new()];
        let mut boxes = 0_usize;
        for (list, table) in lists.iter_mut().zip(&tables[6..9]) {
            for x in table.chunks_exact(20) {
                let Some(record) = records.get_mut(short(x, 0) as usize) else {
                    return Err(invalid("an entry has no template"));
                };
                let is_copy = !record.peers.is_empty();
                let source = if is_copy { by_address[0].at(long(x, 4)) } else { Some((0, long(x, 4))) };
                let (Some(source), Some(target)) = (source, by_address[1].at(long(x, 12))) else {
                    return Err(invalid("an entry is outside of its tables"));
                };
                let peers = record.peers.len().max(1);
                boxes = boxes.saturating_add(peers);
                if record.ids.is_empty() {
                    // Each peer has a copy of the loops.
                    boxes =
                        boxes.saturating_add(peers.saturating_mul(record.loops.len() + record.cast.len()));
                }
                if boxes > MOST_BOXES {
                    return Err(invalid(&format!("it has more than {MOST_BOXES} boxes and loops")));
                }
                for template in record.ids(&mut templates, &mut known) {
                    let ((source, source_offset), (target, target_offset)) = (source, target);
                    list.push(Entry { template: *template, source, target, source_offset, target_offset });
                }
            }
        }
        let [receives, sends, fills] = lists;
        let [sources, targets] = names;
        let hash = long(bytes, 16);
        let part = Self { hash, rank: rank as usize, sources, targets, templates, receives, sends, fills };
        part.checked()
    }
}

/// A template of a file: the boxes of several peers.
struct Record<'a> {
    peers: &'a [usize],
    loops: &'a [Loop],
    cast: Vec<Dtype>,
    /// The templates of the part, one per peer, once an entry uses it.
    ids: Vec<usize>,
}

impl Record<'_> {
    /// Returns the templates of the part, which are numbered by first use.
    fn ids(&mut self, templates: &mut Vec<Template>, known: &mut HashMap<Template, usize>) -> &[usize] {
        if self.ids.is_empty() {
            let peers = self.peers.iter().map(|peer| Some(*peer));
            let none = self.peers.is_empty().then_some(None);
            for peer in peers.chain(none) {
                let template = Template { peer, cast: self.cast.clone(), loops: self.loops.to_vec() };
                self.ids.push(*known.entry(template).or_insert_with_key(|template| {
                    templates.push(template.clone());
                    templates.len() - 1
                }));
            }
        }
        &self.ids
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
