//! Databases made for the tests: well-formed ones of any shape, and every kind of damage to them.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::formats::orbax::ocdbt::frame::Magic;
use crate::formats::orbax::ocdbt::frame::tests::frame;
use crate::formats::orbax::ocdbt::{Entries, MANIFEST, Source, Value, manifest, node, read};

/// Files in memory.
#[derive(Clone, Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    reads: Cell<usize>,
}

impl Source for Memory {
    fn whole(&self, path: &str, most: usize) -> Result<Vec<u8>, Error> {
        let file = self.files.get(path).filter(|file| file.len() <= most);
        file.cloned().ok_or_else(|| Error::unreadable(format!("no file {path}")))
    }

    fn part(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.reads.set(self.reads.get() + 1);
        let file = self.files.get(path).ok_or_else(|| Error::unreadable(format!("no file {path}")))?;
        let bytes = usize::try_from(offset).ok().and_then(|offset| file.get(offset..)?.get(..len));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::malformed("orbax", format!("{path} is too short")))
    }
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn varints(to: &mut Vec<u8>, values: impl IntoIterator<Item = u64>) {
    values.into_iter().for_each(|value| varint(to, value));
}

/// Appends the lengths and suffixes of keys; `shared` is the column between them.
fn keys(to: &mut Vec<u8>, keys: &[&[u8]], shared: &[u64]) {
    let prefix = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let mut prefixes = vec![0];
    prefixes.extend(keys.windows(2).map(|pair| prefix(pair[0], pair[1])));
    varints(to, prefixes[1..].iter().map(|prefix| *prefix as u64));
    varints(to, keys.iter().zip(&prefixes).map(|(key, prefix)| (key.len() - prefix) as u64));
    varints(to, shared.iter().copied());
    keys.iter().zip(&prefixes).for_each(|(key, prefix)| to.extend(&key[*prefix..]));
}

/// A reference to a node: its first key, offset and length, all in the file `d/0`.
type Child = (Vec<u8>, u64, u64);

fn table(to: &mut Vec<u8>) {
    to.extend([1, 3, 0]);
    to.extend(b"d/0");
}

fn leaf(entries: &[(&[u8], Value)]) -> Vec<u8> {
    let mut body = vec![0];
    table(&mut body);
    varint(&mut body, entries.len() as u64);
    keys(&mut body, &entries.iter().map(|(key, _)| *key).collect::<Vec<_>>(), &[]);
    let (mut kinds, mut numbers, mut offsets, mut inline) = (vec![], vec![], vec![], vec![]);
    for (_, value) in entries {
        match value {
            Value::Inline(bytes) => {
                varint(&mut body, bytes.len() as u64);
                kinds.push(0);
                inline.extend(bytes);
            }
            Value::InFile { offset, len, .. } => {
                varint(&mut body, *len);
                kinds.push(1);
                varint(&mut numbers, 0);
                varint(&mut offsets, *offset);
            }
        }
    }
    body.extend([kinds, numbers, offsets, inline].concat());
    body
}

fn interior(height: u8, children: &[Child], shared: &[u64]) -> Vec<u8> {
    let mut body = vec![height];
    table(&mut body);
    varint(&mut body, children.len() as u64);
    keys(&mut body, &children.iter().map(|(key, ..)| &key[..]).collect::<Vec<_>>(), shared);
    varints(&mut body, children.iter().map(|_| 0));
    varints(&mut body, children.iter().map(|(_, offset, _)| *offset));
    varints(&mut body, children.iter().map(|(_, _, len)| *len));
    varints(&mut body, children.iter().flat_map(|_| [1, 1, 1]));
    body
}

fn manifest_body(height: u8, offset: u64, len: u64) -> Vec<u8> {
    let mut body = vec![7; 16];
    body.push(0);
    varints(&mut body, [1024, 100_000_000]);
    body.extend([4, 1, 0, 0, 0, 0]);
    table(&mut body);
    body.extend([1, 1, height]);
    varints(&mut body, [0, offset, len, 3, 4, 5]);
    body.extend(9_u64.to_le_bytes());
    body.push(0);
    body
}

fn add(file: &mut Vec<u8>, body: &[u8], compression: u8) -> (u64, u64) {
    let node = frame(Magic::Node, body, 0, compression);
    let offset = file.len() as u64;
    file.extend(&node);
    (offset, node.len() as u64)
}

/// Returns a database with this root, which has the given height.
fn database(mut file: Vec<u8>, root: &[u8], height: u8, compression: u8) -> Memory {
    let (offset, len) = add(&mut file, root, compression);
    let manifest = frame(Magic::Manifest, &manifest_body(height, offset, len), 0, compression);
    let files = [(MANIFEST.to_owned(), manifest), ("d/0".to_owned(), file)];
    Memory { files: files.into(), reads: Cell::new(0) }
}

fn value(seed: usize) -> Value {
    if seed.is_multiple_of(3) {
        Value::InFile { path: "d/0".into(), offset: 5 + seed as u64, len: 1 << (seed % 40) }
    } else {
        Value::Inline(vec![seed as u8; seed % 50])
    }
}

/// Returns a database of `count` keys in nodes of `arity` entries, and its entries.
fn tree(count: usize, arity: usize, compression: u8) -> (Memory, Entries) {
    let entries: Entries =
        (0..count).map(|at| (format!("params.layer_{at:04}.kernel/{}", at % 7), value(at))).collect();
    let mut file = Vec::new();
    let all: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.clone())).collect();
    // The first 8 bytes of all keys are their prefix from the second level on.
    let shared = 8;
    let mut bodies: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for part in all.chunks(arity) {
        let cut = if count > arity { shared } else { 0 };
        let relative: Vec<_> = part.iter().map(|(key, value)| (&key[cut..], value.clone())).collect();
        bodies.push((part[0].0.to_vec(), leaf(&relative)));
    }
    let mut height = 0;
    while bodies.len() > 1 {
        height += 1;
        let children: Vec<Child> = bodies
            .iter()
            .map(|(key, body)| {
                let (offset, len) = add(&mut file, body, compression);
                (key.clone(), offset, len)
            })
            .collect();
        let is_root = children.len() <= arity;
        bodies = children
            .chunks(arity)
            .map(|part| {
                let from = if is_root { 0 } else { shared };
                let relative: Vec<Child> =
                    part.iter().map(|(key, offset, len)| (key[from..].to_vec(), *offset, *len)).collect();
                let shared = (shared - from) as u64;
                (part[0].0.clone(), interior(height, &relative, &vec![shared; part.len()]))
            })
            .collect();
    }
    (database(file, &bodies[0].1, height, compression), entries)
}

#[test]
fn trees_of_every_height_have_their_keys() {
    for (count, arity) in [(1, 5), (5, 5), (6, 5), (300, 7), (300, 2), (1000, 1000)] {
        for compression in [0, 1] {
            let (database, entries) = tree(count, arity, compression);
            assert_eq!(read(&database).unwrap(), entries, "{count} {arity}");
        }
    }
    let mut file = Vec::new();
    add(&mut file, &[], 0);
    let manifest = frame(Magic::Manifest, &manifest_body(0, u64::MAX, u64::MAX), 0, 1);
    let files = [(MANIFEST.to_owned(), manifest), ("d/0".to_owned(), file)];
    assert_eq!(read(&Memory { files: files.into(), reads: Cell::new(0) }).unwrap(), Entries::new());
}

#[test]
fn a_damaged_file_is_an_error() {
    let (database, _) = tree(20, 4, 1);
    for path in [MANIFEST, "d/0"] {
        let whole = &database.files[path];
        for at in 0..whole.len() {
            let mut damaged = database.clone();
            damaged.files.insert(path.to_owned(), whole[..at].to_vec());
            read(&damaged).unwrap_err();
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                damaged.files.insert(path.to_owned(), bytes);
                read(&damaged).unwrap_err();
            }
        }
    }
}

/// Damage with a correct checksum: only the parser can find it.
type Parse<'a> = &'a dyn Fn(&[u8]) -> Result<(), Error>;

#[test]
fn a_damaged_body_is_an_error_or_another_tree() {
    let parse_manifest = |body: &[u8]| manifest::root(&frame(Magic::Manifest, body, 0, 0)).map(drop);
    let leaf = leaf(&[(b"a/.zarray", value(1)), (b"a/0.0", value(3)), (b"b", value(47)), (b"bc", value(6))]);
    let parse_leaf = |body: &[u8]| node::parse(body, 0, "x/").map(drop);
    let interior = interior(2, &[(b"a".to_vec(), 4, 5), (b"abc".to_vec(), 6, 7)], &[1, 1]);
    let parse_interior = |body: &[u8]| node::parse(body, 2, "").map(drop);
    let manifest = manifest_body(1, 300, 400);
    let cases: [(&[u8], Parse<'_>); 3] =
        [(&manifest, &parse_manifest), (&leaf, &parse_leaf), (&interior, &parse_interior)];
    for (body, parse) in cases {
        parse(body).unwrap();
        for at in 0..body.len() {
            parse(&body[..at]).unwrap_err();
            parse(&[body, &[0][..]].concat()).unwrap_err();
            for byte in 0..=255 {
                let mut damaged = body.to_vec();
                damaged[at] = byte;
                let _ = parse(&damaged);
                // A varint of 2^64 - 1, of 2^63 and of 65535 instead of the byte.
                for wide in [
                    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..],
                    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
                    &[0xff, 0xff, 3],
                ] {
                    let _ = parse(&[&body[..at], wide, &body[at + 1..]].concat());
                    let mut both = [&body[..at], wide, &body[at + 1..]].concat();
                    if let Some(next) = both.get_mut(at + wide.len()) {
                        *next = byte;
                        let _ = parse(&both);
                    }
                }
            }
        }
    }
}

#[test]
fn keys_outside_the_range_of_their_parent_are_an_error() {
    let children = |first: &[u8], second: &[u8]| {
        let mut file = Vec::new();
        let (offset, len) = add(&mut file, &leaf(&[(b"b", value(1))]), 0);
        let (other, other_len) = add(&mut file, &leaf(&[(b"d", value(1))]), 0);
        let root =
            interior(1, &[(first.to_vec(), offset, len), (second.to_vec(), other, other_len)], &[0, 0]);
        read(&database(file, &root, 1, 0))
    };
    assert_eq!(children(b"", b"c").unwrap().len(), 2);
    assert_eq!(children(b"c", b"d").unwrap_err().kind(), ErrorKind::Parse);
    assert_eq!(children(b"b", b"e").unwrap_err().kind(), ErrorKind::Parse);
    // Of two references to one node without a common prefix, the second repeats its keys.
    let mut file = Vec::new();
    let (offset, len) = add(&mut file, &leaf(&[(b"b", value(1))]), 0);
    let root = interior(1, &[(b"a".to_vec(), offset, len), (b"b".to_vec(), offset, len)], &[0, 0]);
    assert_eq!(read(&database(file, &root, 1, 0)).unwrap_err().kind(), ErrorKind::Parse);
}

/// Returns a database whose nodes refer to one node `fan` times each, by different prefixes.
fn bomb(body: &[u8], fan: u32, height: u8) -> Memory {
    let mut file = Vec::new();
    let (mut offset, mut len) = add(&mut file, body, 1);
    let mut root = body.to_vec();
    for height in 1..=height {
        let children: Vec<Child> =
            (0..fan).map(|at| (format!("{at:04}").into_bytes(), offset, len)).collect();
        let mut children = children;
        children.sort();
        let shared: Vec<u64> = children.iter().map(|(key, ..)| key.len() as u64).collect();
        root = interior(height, &children, &shared);
        (offset, len) = add(&mut file, &root, 1);
    }
    database(file, &root, height, 1)
}

#[test]
fn the_work_of_a_small_file_is_bounded() {
    // 1000 * 1000 * 1000 references to a leaf.
    let database = bomb(&leaf(&[(b"\0", value(1))]), 1000, 3);
    assert!(database.files["d/0"].len() < 20_000);
    assert_eq!(read(&database).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(database.reads.get() < 1_100_000);
    // A leaf of 60 MB of zeros, which takes some 10 KB: the sum of the nodes is limited.
    let large = leaf(&[(b"\0", Value::Inline(vec![0; 1 << 20]))]);
    let database = bomb(&large, 1000, 2);
    assert_eq!(read(&database).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(database.reads.get() < 2_000);
    // More levels than any tree has.
    assert_eq!(read(&bomb(&leaf(&[(b"a", value(1))]), 1, 33)).unwrap_err().kind(), ErrorKind::Unsupported);
    read(&bomb(&leaf(&[(b"a", value(1))]), 1, 32)).unwrap();
    // A node of more than 128 MiB.
    let mut file = Vec::new();
    add(&mut file, &vec![0; (128 << 20) + 1], 1);
    let len = file.len() as u64;
    let manifest = frame(Magic::Manifest, &manifest_body(0, 0, len), 0, 0);
    let files = [(MANIFEST.to_owned(), manifest), ("d/0".to_owned(), file)];
    assert_eq!(
        read(&Memory { files: files.into(), reads: Cell::new(0) }).unwrap_err().kind(),
        ErrorKind::Parse
    );
    // Keys that repeat 64 KiB of the previous one each: 3 bytes per key become 64 KiB.
    let count = 10_000_u64;
    let mut body = vec![0];
    table(&mut body);
    varint(&mut body, count);
    varints(&mut body, (1..count).map(|_| 60_000));
    varints(&mut body, (0..count).map(|at| if at == 0 { 60_000 } else { 2 }));
    body.extend(vec![b'k'; 60_000]);
    (1..count).for_each(|at| body.extend((at as u16).to_be_bytes()));
    body.extend(vec![0; 2 * count as usize]);
    assert_eq!(node::parse(&body, 0, "").unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn the_kinds_of_a_manifest_are_named() {
    let with = |at: usize, byte: u8| {
        let mut body = manifest_body(0, 1, 2);
        body[at] = byte;
        manifest::root(&frame(Magic::Manifest, &body, 0, 0))
    };
    with(16, 0).unwrap().unwrap();
    let numbered = with(16, 1).unwrap_err();
    assert!(numbered.kind() == ErrorKind::Unsupported && numbered.to_string().contains("numbered"));
    assert_eq!(with(16, 2).unwrap_err().kind(), ErrorKind::Parse);
}
