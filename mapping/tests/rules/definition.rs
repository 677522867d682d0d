//! The slow definition: rules on whole tensors, one element at a time.

use std::collections::{BTreeMap, BTreeSet};

use reshard_mapping::Dtype;

use crate::grammar::{Node, node, side_of_rule, split_at};
use crate::tensor::{Outcome, Tensor, Tensors, indices, offset};

type Bound = BTreeMap<String, String>;

fn names(e: &Node) -> Vec<String> {
    if e.call == "name" { e.words.clone() } else { e.inner.iter().flat_map(names).collect() }
}

/// Replaces the k-th `*` by `{k}` and `#` by `{N}`.
fn numbered(name: &str) -> String {
    let mut parts = name.split('*');
    let first = parts.next().unwrap().to_owned();
    let name = parts.enumerate().fold(first, |name, (k, part)| format!("{name}{{{k}}}{part}"));
    name.replace('#', "{N}")
}

fn fill(name: &str, bound: &Bound) -> String {
    bound.iter().fold(numbered(name), |name, (key, text)| name.replace(&format!("{{{key}}}"), text))
}

/// Tries all texts of the first variable, in order of preference, then the rest.
fn matches(pattern: &str, name: &str, bound: &Bound) -> Option<Bound> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return (pattern == name).then(|| bound.clone());
    };
    let (key, rest) = rest.split_once('}').unwrap();
    let name = name.strip_prefix(before)?;
    if let Some(text) = bound.get(key) {
        return matches(rest, name.strip_prefix(&text[..])?, bound);
    }
    let is_star = key.chars().all(|c| c.is_ascii_digit());
    let fits = |text: &str| {
        is_star
            || !text.is_empty()
                && text.chars().all(|c| if key == "N" { c.is_ascii_digit() } else { c != '.' && c != '/' })
    };
    let mut ends: Vec<usize> =
        (0..=name.len()).filter(|end| name.is_char_boundary(*end) && fits(&name[..*end])).collect();
    if !is_star {
        ends.reverse();
    }
    ends.into_iter().find_map(|end| {
        let mut bound = bound.clone();
        bound.insert(key.to_owned(), name[..end].to_owned());
        matches(rest, &name[end..], &bound)
    })
}

/// Returns a tensor whose element at an index is that of `source` at another index.
fn gathered(shape: &[usize], source: &Tensor, index: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Tensor {
    let element = |x: Vec<usize>| index(&x).map_or(0, |x| source.data[offset(&source.shape, &x)]);
    let data = indices(shape).into_iter().map(element).collect();
    Tensor { shape: shape.to_vec(), dtype: source.dtype, data }
}

fn narrow(t: &Tensor, dim: usize, start: usize, stop: usize) -> Option<Tensor> {
    let mut shape = t.shape.clone();
    (start <= stop && stop <= *shape.get(dim)?).then_some(())?;
    shape[dim] = stop - start;
    Some(gathered(&shape, t, |x| {
        let mut x = x.to_vec();
        x[dim] += start;
        Some(x)
    }))
}

fn cat(parts: &[Tensor], dim: usize) -> Option<Tensor> {
    let mut shape = parts[0].shape.clone();
    shape[dim] = parts.iter().map(|part| part.shape.get(dim).copied()).sum::<Option<usize>>()?;
    let fits = |part: &Tensor| {
        let mut expected = shape.clone();
        expected[dim] = part.shape[dim];
        part.shape == expected && part.dtype == parts[0].dtype
    };
    parts.iter().all(fits).then_some(())?;
    let data = indices(&shape).into_iter().map(|mut x| {
        let mut part = parts.iter();
        let mut found = part.next().unwrap();
        while x[dim] >= found.shape[dim] {
            x[dim] -= found.shape[dim];
            found = part.next().unwrap();
        }
        found.data[offset(&found.shape, &x)]
    });
    Some(Tensor { data: data.collect(), shape, dtype: parts[0].dtype })
}

/// The failures: copies that differ are known only from data, all others from shapes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Invalid,
    Differ,
}

fn valid<T>(value: Option<T>) -> Result<T, Failure> {
    value.ok_or(Failure::Invalid)
}

fn dims(text: &str) -> Vec<Vec<String>> {
    let mut dims = Vec::new();
    for part in split_at(text.trim(), &[' ']).into_iter().filter(|part| !part.is_empty()) {
        let group = part.trim_matches(['(', ')']).split_whitespace().filter(|axis| *axis != "1");
        dims.push(group.map(str::to_owned).collect());
    }
    dims
}

fn rearrange(t: &Tensor, words: &[String], backwards: bool) -> Result<Tensor, Failure> {
    let (left, right) = words[0].trim_matches('\'').split_once("->").unwrap();
    let (left, right) = if backwards { (dims(right), dims(left)) } else { (dims(left), dims(right)) };
    let mut sizes: BTreeMap<String, usize> = words[1..]
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(a, n)| (a.into(), n.parse().unwrap()))
        .collect();
    valid((left.len() == t.shape.len()).then_some(()))?;
    for (group, extent) in left.iter().zip(&t.shape) {
        let known: usize = group.iter().filter_map(|a| sizes.get(a)).product();
        let free: Vec<&String> = group.iter().filter(|a| !sizes.contains_key(*a)).collect();
        let fits = free.len() <= 1 && extent.is_multiple_of(known) && (free.len() == 1 || known == *extent);
        valid(fits.then_some(()))?;
        let solved: Vec<String> = free.into_iter().cloned().collect();
        sizes.extend(solved.into_iter().map(|a| (a, extent / known)));
    }
    let size = |a: &String| sizes.get(a).copied();
    let flat: Vec<&String> = right.iter().flatten().collect();
    let extents = valid(flat.iter().map(|a| size(a)).collect::<Option<Vec<_>>>())?;
    let gone: Vec<&String> = left.iter().flatten().filter(|a| !flat.contains(a)).collect();
    let copies: Vec<usize> = gone.iter().filter_map(|a| size(a)).collect();
    valid((!copies.contains(&0)).then_some(()))?;
    let read = |at: &[usize], copy: &[usize]| {
        let value_of = |a: &String| match flat.iter().position(|one| *one == a) {
            Some(k) => at[k],
            None => copy[gone.iter().position(|one| *one == a).unwrap()],
        };
        let index: Vec<usize> =
            left.iter().map(|group| group.iter().fold(0, |n, a| n * sizes[a] + value_of(a))).collect();
        t.data[offset(&t.shape, &index)]
    };
    let mut data = Vec::new();
    for at in indices(&extents) {
        let all: BTreeSet<u64> = indices(&copies).iter().map(|copy| read(&at, copy)).collect();
        if all.len() != 1 {
            return Err(Failure::Differ);
        }
        data.extend(all);
    }
    let shape = right.iter().map(|group| group.iter().filter_map(size).product()).collect();
    Ok(Tensor { shape, dtype: t.dtype, data })
}

/// Splits a dim into blocks, each into the parts of a concatenation; returns each part.
fn split(t: &Tensor, e: &Node) -> Option<Vec<Tensor>> {
    let (dim, blocks) = (e.dim.unwrap_or(0), e.blocks.unwrap_or(1));
    let total: usize = e.inner.iter().map(|part| part.shares).sum();
    let extent = *t.shape.get(dim)?;
    extent.is_multiple_of(total * blocks).then_some(())?;
    let unit = extent / (total * blocks);
    let mut start = 0;
    let parts = e.inner.iter().map(|part| {
        let ranges = (0..blocks).map(|b| b * total * unit + start);
        let ranges: Vec<Tensor> =
            ranges.map(|from| narrow(t, dim, from, from + part.shares * unit)).collect::<Option<_>>()?;
        start += part.shares * unit;
        cat(&ranges, dim)
    });
    parts.collect()
}

fn join(parts: &[Tensor], e: &Node) -> Option<Tensor> {
    let (dim, blocks) = (e.dim.unwrap_or(0), e.blocks.unwrap_or(1));
    let extents: Vec<usize> = parts.iter().map(|t| t.shape.get(dim).copied()).collect::<Option<_>>()?;
    extents.iter().all(|n| n.is_multiple_of(blocks)).then_some(())?;
    let first = (extents[0], e.inner[0].shares);
    let given = e.inner.iter().any(|part| part.given);
    let in_ratio = extents.iter().zip(&e.inner).all(|(n, part)| n * first.1 == first.0 * part.shares);
    (!given || in_ratio).then_some(())?;
    let mut all = Vec::new();
    for b in 0..blocks {
        for (t, n) in parts.iter().zip(&extents) {
            all.push(narrow(t, dim, b * n / blocks, (b + 1) * n / blocks)?);
        }
    }
    cat(&all, dim)
}

fn value(e: &Node, sources: &Tensors, used: &mut BTreeSet<String>, bound: &Bound) -> Result<Tensor, Failure> {
    let dim = e.dim.unwrap_or(0);
    if e.call == "name" {
        let name = fill(&e.words[0], bound);
        let found = valid(sources.iter().find(|(one, _)| *one == name))?;
        used.insert(name);
        return Ok(found.1.clone());
    }
    if e.call == "cat" {
        let parts =
            e.inner.iter().map(|part| value(part, sources, used, bound)).collect::<Result<Vec<_>, _>>()?;
        return valid(join(&parts, e));
    }
    if e.call == "stack" {
        let pattern = numbered(&names(e)[0]);
        let found: BTreeSet<usize> = sources
            .iter()
            .filter_map(|(name, _)| matches(&pattern, name, bound))
            .map(|found| found["N"].parse().unwrap())
            .collect();
        valid((!found.is_empty() && found.iter().copied().eq(0..found.len())).then_some(()))?;
        let mut parts = Vec::new();
        for n in found {
            let mut bound = bound.clone();
            bound.insert("N".to_owned(), n.to_string());
            let mut t = value(&e.inner[0], sources, used, &bound)?;
            valid((dim <= t.shape.len()).then_some(()))?;
            t.shape.insert(dim, 1);
            parts.push(t);
        }
        return valid(cat(&parts, dim));
    }
    let t = value(&e.inner[0], sources, used, bound)?;
    match &e.call[..] {
        "slice" => {
            let mut t = t;
            for (dim, range) in
                e.words.iter().enumerate().filter(|(_, range)| !range.is_empty() && *range != ":")
            {
                let (start, stop) = range.split_once(':').unwrap();
                let extent = *valid(t.shape.get(dim))?;
                t = valid(narrow(&t, dim, start.parse().unwrap_or(0), stop.parse().unwrap_or(extent)))?;
            }
            Ok(t)
        }
        "pad" => {
            let mut shape = t.shape.clone();
            let extent = *valid(shape.get(dim))?;
            shape[dim] = e.words[0].parse().unwrap();
            valid((shape[dim] >= extent).then_some(()))?;
            Ok(gathered(&shape, &t, |x| (x[dim] < extent).then(|| x.to_vec())))
        }
        "rearrange" => rearrange(&t, &e.words, false),
        "cast" => {
            let dtype =
                [("f16", Dtype::F16), ("bf16", Dtype::BF16), ("f32", Dtype::F32), ("f64", Dtype::F64)];
            let found = dtype.into_iter().find(|(name, _)| *name == e.words[0]).unwrap().1;
            Ok(Tensor { dtype: found, ..t })
        }
        call => panic!("unknown {call}"),
    }
}

fn assign(e: &Node, t: Tensor, made: &mut Tensors, bound: &Bound) -> Result<(), Failure> {
    match &e.call[..] {
        "name" => {
            let name = fill(&e.words[0], bound);
            valid(made.iter().all(|(one, _)| *one != name).then_some(()))?;
            made.push((name, t));
            Ok(())
        }
        "cat" => {
            let parts = valid(split(&t, e))?;
            e.inner.iter().zip(parts).try_for_each(|(part, t)| assign(part, t, made, bound))
        }
        "stack" => {
            let dim = e.dim.unwrap_or(0);
            for n in 0..*valid(t.shape.get(dim))? {
                let mut one = valid(narrow(&t, dim, n, n + 1))?;
                one.shape.remove(dim);
                let mut bound = bound.clone();
                bound.insert("N".to_owned(), n.to_string());
                assign(&e.inner[0], one, made, &bound)?;
            }
            Ok(())
        }
        "rearrange" => assign(&e.inner[0], rearrange(&t, &e.words, true)?, made, bound),
        call => panic!("{call} on the left"),
    }
}

fn rule(
    text: &str,
    sources: &Tensors,
    used: &mut BTreeSet<String>,
    made: &mut Tensors,
) -> Result<(), Failure> {
    let (left, right) = text.split_once(" = ").unwrap();
    let ((mut left, ..), (mut right, dim, blocks)) = (side_of_rule(left), side_of_rule(right));
    if right.call == "unstack" {
        left = Node { dim: right.dim, ..node("stack", vec![left], Vec::new()) };
        right = right.inner[0].clone();
    } else if left.call == "cat" && right.call != "cat" {
        (left.dim, left.blocks) = (dim, blocks);
    }
    let pattern = numbered(&names(&right)[0]);
    let mut all: Vec<Bound> = Vec::new();
    for (name, _) in sources {
        if let Some(mut bound) = matches(&pattern, name, &Bound::new()) {
            bound.remove("N");
            if !all.contains(&bound) {
                all.push(bound);
            }
        }
    }
    valid((!all.is_empty()).then_some(()))?;
    for bound in all {
        let t = value(&right, sources, used, &bound)?;
        assign(&left, t, made, &bound)?;
    }
    Ok(())
}

/// Applies the lines of a mapping, without options; tensors that no rule names keep their names.
pub(crate) fn apply(lines: &str, sources: &Tensors) -> Result<Outcome, Failure> {
    let (mut used, mut made) = (BTreeSet::new(), Vec::new());
    for line in lines.lines() {
        let done = match line.trim().strip_prefix("drop ") {
            Some(rest) => {
                let (name, same) = rest.split_once(" == ").unwrap_or((rest, rest));
                let find = |name: &str| valid(sources.iter().find(|(one, _)| one == name));
                let (a, b) = (find(name)?, find(same)?);
                used.insert(name.to_owned());
                if a.1.data == b.1.data { Ok(()) } else { Err(Failure::Differ) }
            }
            None => rule(line.trim(), sources, &mut used, &mut made),
        };
        match done {
            Ok(()) => {}
            Err(Failure::Differ) => return Ok(None),
            Err(Failure::Invalid) => return Err(Failure::Invalid),
        }
    }
    for (name, t) in sources.iter().filter(|(name, _)| !used.contains(name)) {
        assign(&node("name", Vec::new(), vec![name.clone()]), t.clone(), &mut made, &Bound::new())?;
    }
    Ok(Some(made.into_iter().collect()))
}
