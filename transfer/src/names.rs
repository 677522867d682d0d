//! Names of many tensors in few records: texts with numbers, and ranges of the numbers.
//!
//! `layers.0.experts.0.up` to `layers.93.experts.127.up` are the text `layers.#.experts.#.up` with two ranges. The
//! tensors of a table have addresses: each begins after the one before it, so that a base of an entry is one number.

use crate::dtype;
use crate::error::Error;
use crate::part::Named;

/// The largest number of names of a table, and of bytes of all names.
const MOST_NAMES: usize = 1 << 20;
const MOST_BYTES: usize = 1 << 26;

/// Splits a name into its text, with `\0` for each number, and its numbers.
///
/// Numbers with leading zeros or more than 9 digits stay in the text.
pub(crate) fn name_key(name: &str) -> (String, Vec<u32>) {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let (number, after) = rest.split_at(digits);
        let is_plain = digits <= 9 && (digits == 1 || !number.starts_with('0'));
        match number.parse().ok().filter(|_| is_plain) {
            Some(number) => {
                text.push('\0');
                numbers.push(number);
            }
            None => text.push_str(number),
        }
        rest = after;
    }
    (text, numbers)
}

/// Tensors with equal texts, types and counts, for all combinations of some numbers, the last fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Address of the first tensor.
    pub(crate) start: u64,
    /// Addresses per tensor, at least 1.
    pub(crate) size: u64,
    /// Elements of the buffer of the rank.
    pub(crate) count: u64,
    pub(crate) text: String,
    pub(crate) dtype: String,
    /// First number and the number of numbers, for each number of the text.
    pub(crate) ranges: Vec<(u32, u32)>,
}

impl Group {
    fn tensors(&self) -> Option<usize> {
        self.ranges.iter().try_fold(1_usize, |n, (_, count)| n.checked_mul(*count as usize))
    }
}

/// Returns the groups of tensors in canonical order; `sizes` are the addresses that each needs.
///
/// Returns `None` if the addresses do not fit into 64 bits.
pub(crate) fn grouped(tensors: &[Named], sizes: &[u64]) -> Option<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for (tensor, size) in tensors.iter().zip(sizes) {
        let (text, numbers) = name_key(&tensor.name);
        let ranges = numbers.into_iter().map(|number| (number, 1)).collect();
        let (size, count) = ((*size).max(1), tensor.count);
        groups.push(Group { start: 0, size, count, text, dtype: dtype::name(tensor.dtype), ranges });
    }
    let most = tensors.iter().map(|tensor| name_key(&tensor.name).1.len()).max().unwrap_or(0);
    for from_end in 0..most {
        let mut joined: Vec<Group> = Vec::with_capacity(groups.len());
        for group in groups {
            if let Some(last) = joined.last_mut()
                && continues(last, &group, from_end)
            {
                let dim = group.ranges.len() - 1 - from_end;
                last.ranges[dim].1 += group.ranges[dim].1;
                last.size = last.size.max(group.size);
                continue;
            }
            joined.push(group);
        }
        groups = joined;
    }
    let mut start: u64 = 0;
    for group in &mut groups {
        group.start = start;
        start = start.checked_add(group.size.checked_mul(group.tensors()? as u64)?)?;
    }
    Some(groups)
}

/// Returns `true` if a group has the next numbers of a dim, and is equal in all else.
fn continues(last: &Group, next: &Group, from_end: usize) -> bool {
    let Some(dim) = next.ranges.len().checked_sub(1 + from_end) else { return false };
    let is_equal = (&last.text, &last.dtype, last.count) == (&next.text, &next.dtype, next.count);
    is_equal
        && last.ranges.len() == next.ranges.len()
        && (0..next.ranges.len()).all(|k| {
            let (one, other) = (last.ranges[k], next.ranges[k]);
            if k == dim { one.0 + one.1 == other.0 } else { one == other }
        })
}

/// Returns the address of each tensor of the groups, in order.
pub(crate) fn addresses(groups: &[Group]) -> Vec<u64> {
    let of_group = |group: &Group| {
        let (start, size) = (group.start, group.size);
        (0..group.tensors().unwrap_or(0) as u64).map(move |k| start + k * size)
    };
    groups.iter().flat_map(of_group).collect()
}

/// Returns the tensors of groups that were read.
pub(crate) fn expanded(groups: &[Group]) -> Result<Vec<Named>, Error> {
    let (mut tensors, mut bytes, mut start) = (Vec::new(), 0_usize, 0_u64);
    for group in groups {
        let count = group.tensors().filter(|count| *count <= MOST_NAMES - tensors.len());
        let numbers = group.text.matches('\0').count();
        let is_known =
            count.filter(|_| numbers == group.ranges.len() && group.start == start && group.size > 0);
        let next = is_known.and_then(|count| start.checked_add(group.size.checked_mul(count as u64)?));
        let (Some(count), Some(next)) = (is_known, next) else {
            let message = "a name record is not valid or over the limits; export the plan again";
            return Err(Error::invalid(message));
        };
        let longest = group.text.len() + 10 * numbers;
        bytes = bytes.saturating_add(longest.saturating_mul(count));
        if bytes > MOST_BYTES {
            return Err(Error::invalid(format!(
                "the names have over {MOST_BYTES} bytes; export the plan again"
            )));
        }
        let dtype = dtype::named(&group.dtype)?;
        for k in 0..count {
            tensors.push(Named { name: filled(group, k), dtype, count: group.count });
        }
        start = next;
    }
    Ok(tensors)
}

/// Returns the name of tensor `k` of a group.
fn filled(group: &Group, k: usize) -> String {
    let mut numbers = vec![0; group.ranges.len()];
    let mut left = k;
    for (number, (first, count)) in numbers.iter_mut().zip(&group.ranges).rev() {
        *number = u64::from(*first) + (left % *count as usize) as u64;
        left /= *count as usize;
    }
    let mut parts = group.text.split('\0');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for (number, part) in numbers.iter().zip(parts) {
        name.push_str(&number.to_string());
        name.push_str(part);
    }
    name
}

/// The groups of a table, to find tensors by address.
pub(crate) struct Table<'a> {
    groups: &'a [Group],
    /// The number of tensors before each group.
    before: Vec<usize>,
}

impl<'a> Table<'a> {
    /// Returns the table of groups that [`expanded`] accepts.
    pub(crate) fn new(groups: &'a [Group]) -> Self {
        let before = groups.iter().scan(0, |next, group| {
            let before = *next;
            *next += group.tensors().unwrap_or(0);
            Some(before)
        });
        Self { groups, before: before.collect() }
    }

    /// Returns the tensor at an address, and the offset in it.
    pub(crate) fn at(&self, address: u64) -> Option<(usize, u64)> {
        let number = self.groups.partition_point(|group| group.start <= address).checked_sub(1)?;
        let group = &self.groups[number];
        let k = usize::try_from((address - group.start) / group.size).ok()?;
        let offset = (address - group.start) % group.size;
        (k < group.tensors()?).then_some((self.before[number] + k, offset))
    }
}
