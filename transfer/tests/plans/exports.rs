//! The forms of a part: round trips, sizes, an independent reader, and hostile bytes.

use reshard_test_support::Random;
use reshard_transfer::{RankPart, Transfer};

use crate::faults::plan;

#[test]
fn both_forms_round_trip() {
    let plan: Transfer = plan();
    for rank in [plan.ranks(), &[999]].concat() {
        let part = plan.part(rank);
        let (text, bytes) = (part.to_json(), part.to_bytes());
        assert_eq!(RankPart::from_json(&text).unwrap(), part);
        assert_eq!(RankPart::from_bytes(&bytes).unwrap(), part);
        assert_eq!(RankPart::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        assert_eq!((part.rank(), part.hash()), (rank, plan.hash()));
    }
}

#[test]
fn the_binary_form_is_read_without_parsing() {
    read_by_the_table(0);
    read_by_the_table(5);
}

/// Reads the entries of a binary part by the table of the format alone.
fn read_by_the_table(rank: usize) {
    let part = plan().part(rank);
    let bytes = part.to_bytes();
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!((&bytes[..8], short(8), short(12), long(16)), (&b"RSHARDTP"[..], 1, rank, part.hash()));
    let records = [48, 48, 8, 4, 24, 24, 20, 20, 20, 1];
    let mut tables = vec![64];
    for (k, record) in records.iter().enumerate() {
        tables.push(tables[k] + record * short(24 + 4 * k));
    }
    assert_eq!(tables[10], bytes.len());
    let text = |at: usize| {
        let start = tables[9] + short(at);
        std::str::from_utf8(&bytes[start..start + short(at + 4)]).unwrap().to_owned()
    };
    // The name at an address: the last record that starts at or before it, with the digits of its number.
    let name = |table: usize, address: u64| {
        let at = (tables[table]..tables[table + 1]).step_by(48).rfind(|at| long(*at) <= address).unwrap();
        let (mut k, offset) = ((address - long(at)) / long(at + 8), (address - long(at)) % long(at + 8));
        let (first, count) = (short(at + 40), short(at + 44));
        let mut numbers = Vec::new();
        for range in (first..first + count).rev() {
            let (low, n) = (short(tables[2] + 8 * range), short(tables[2] + 8 * range + 4) as u64);
            numbers.push(low as u64 + k % n);
            k /= n;
        }
        let mut name = text(at + 24);
        while let Some(number) = numbers.pop() {
            name = name.replacen('\0', &number.to_string(), 1);
        }
        (name, offset)
    };
    for (list, copies) in [(6, part.receives().collect::<Vec<_>>()), (7, part.sends().collect())] {
        let mut copies = copies.into_iter();
        for entry in (tables[list]..tables[list + 1]).step_by(20) {
            let template = tables[5] + 24 * short(entry);
            let first = tables[4] + 24 * short(template + 8);
            let loops: Vec<[u64; 3]> = (0..short(template + 12))
                .map(|k| [long(first + 24 * k), long(first + 24 * k + 8), long(first + 24 * k + 16)])
                .collect();
            for peer in short(template)..short(template) + short(template + 4) {
                let copy = copies.next().unwrap();
                assert_eq!(Some(short(tables[3] + 4 * peer)), copy.peer);
                let expected: Vec<[u64; 3]> =
                    copy.loops.iter().map(|one| [one.extent, one.source_stride, one.target_stride]).collect();
                assert_eq!(loops, expected);
                assert_eq!(name(0, long(entry + 4)), (copy.source.to_owned(), copy.source_offset));
                assert_eq!(name(1, long(entry + 12)), (copy.target.to_owned(), copy.target_offset));
                assert_eq!(text(template + 16), if copy.cast.is_empty() { "" } else { "f32,bf16" });
            }
        }
        assert_eq!(copies.next(), None);
    }
}

#[test]
fn hostile_bytes_and_texts_are_errors() {
    let plan = plan();
    let mut random = Random(11);
    for rank in [0, 5] {
        let part = plan.part(rank);
        let (bytes, text) = (part.to_bytes(), part.to_json());
        for length in 0..bytes.len() {
            assert!(RankPart::from_bytes(&bytes[..length]).is_err());
        }
        for _ in 0..3000 {
            let mut changed = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(changed.len());
                changed[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, changed[at] ^ 1]);
            }
            // Any answer but a panic, and an accepted part has both forms.
            if let Ok(part) = RankPart::from_bytes(&changed) {
                assert_eq!(
                    RankPart::from_json(&part.to_json()).as_ref().map(RankPart::rank),
                    Ok(part.rank())
                );
                let _ = reshard_transfer::check([Ok(part)]);
            }
        }
        let numbers = ["18446744073709551615", "1152921504606846976", "-1", "0", "1e300", "\"\""];
        for _ in 0..2000 {
            let start = random.below(text.len());
            let Some(at) = text[start..].find(|c: char| c.is_ascii_digit()).map(|k| start + k) else {
                continue;
            };
            let end = text[at..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |k| at + k);
            let changed = format!("{}{}{}", &text[..at], random.pick(&numbers), &text[end..]);
            if let Ok(part) = RankPart::from_json(&changed) {
                assert_eq!(RankPart::from_bytes(&part.to_bytes()), Ok(part.clone()), "{changed}");
                let _ = reshard_transfer::check([Ok(part)]);
            }
        }
    }
}

#[test]
fn a_small_file_cannot_declare_many_names() {
    let part = plan().part(5);
    let mut bytes = part.to_bytes();
    let ranges = 64
        + 48 * (u32::from_le_bytes(bytes[24..28].try_into().unwrap()) as usize
            + u32::from_le_bytes(bytes[28..32].try_into().unwrap()) as usize);
    bytes[ranges + 4..ranges + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = RankPart::from_bytes(&bytes).unwrap_err();
    assert!(error.to_string().contains("name record"), "{error}");
}
