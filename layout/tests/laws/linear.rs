//! Operations after layouts whose strides go along axes: against their definition, index by index.

use std::collections::BTreeMap;

use reshard_layout::algebra::Tiler;
use reshard_layout::expression::evaluate;
use reshard_layout::{AxisStride, Layout, NamedLayout};
use reshard_test_support::Random;

/// The names that axes have.
const NAMES: [&str; 3] = ["dp", "tp", "x"];

/// A stride in the local buffer or along an axis, small or not.
fn stride(r: &mut Random) -> AxisStride {
    let step = [0, 1, 1, 2, 3, -1, -2, 4, 6, 1 << 20][r.below(10)];
    match r.below(4) {
        3 => AxisStride::local(step),
        axis => AxisStride::along(step, axis as u32),
    }
}

/// Extents with a product of at most 64.
fn extents(r: &mut Random) -> Vec<i64> {
    let mut size = 1;
    let drawn: Vec<i64> = (0..=r.below(4)).map(|_| [1, 2, 2, 3, 4, 6][r.below(6)]).collect();
    drawn
        .into_iter()
        .filter(|extent| {
            size *= extent;
            size <= 64
        })
        .collect()
}

fn text(extents: &[i64], strides: &[String]) -> String {
    let extents: Vec<String> = extents.iter().map(ToString::to_string).collect();
    format!("({},):({},)", extents.join(","), strides.join(","))
}

/// A layout with axes.
///
/// In half of them strides continue from mode to mode, so that there are modes to coalesce.
fn outer(r: &mut Random) -> NamedLayout {
    let extents = extents(r);
    let (mut strides, mut last, mut below) = (Vec::new(), AxisStride::local(1), 1);
    for extent in &extents {
        let next = last.with_step(last.step() * below);
        last = if r.below(2) == 0 && below > 1 { next } else { stride(r) };
        below = *extent;
        strides.push(match last.axis() {
            Some(axis) => format!("{}@{}", last.step(), NAMES[axis as usize]),
            None => last.step().to_string(),
        });
    }
    text(&extents, &strides).parse().unwrap()
}

/// A layout of indices of one of this size.
fn inner(r: &mut Random, size: i64) -> Layout {
    let extents = extents(r);
    let strides: Vec<String> = extents.iter().map(|_| r.below(size as usize + 1).to_string()).collect();
    text(&extents, &strides).parse().unwrap()
}

/// The value at an index, by direction.
fn at(layout: &NamedLayout, index: i64) -> BTreeMap<String, i64> {
    let point = layout.layout().value(index).unwrap();
    let names: Vec<&str> = layout.names().collect();
    let steps = point.steps().iter().map(|at| (names[at.axis().unwrap() as usize].to_owned(), at.step()));
    steps.chain([("local".to_owned(), point.local)]).filter(|(_, step)| *step != 0).collect()
}

type Point = BTreeMap<String, i64>;

fn times(point: &Point, n: i64) -> Point {
    point.iter().map(|(name, step)| (name.clone(), n * step)).filter(|(_, step)| *step != 0).collect()
}

fn sum(a: &Point, b: &Point) -> Point {
    let mut sum = a.clone();
    for (name, step) in b {
        *sum.entry(name.clone()).or_default() += step;
    }
    sum.retain(|_, step| *step != 0);
    sum
}

/// Returns `true` if values over one extent are those of modes that each step along one direction.
///
/// The first stride is the value at 1, and the first extent the greatest up to which it continues; the rest
/// likewise.
fn are_modes(values: &[Point]) -> bool {
    let [first, step, ..] = values else { return true };
    assert!(first.is_empty());
    if step.len() > 1 {
        return false;
    }
    let run = (1..values.len()).take_while(|n| values[*n] == times(step, *n as i64)).count() + 1;
    if !values.len().is_multiple_of(run) {
        return false;
    }
    let tops: Vec<Point> = values.iter().step_by(run).cloned().collect();
    let adds = |(index, value): (usize, &Point)| {
        *value == sum(&tops[index / run], &times(step, (index % run) as i64))
    };
    values.iter().enumerate().all(adds) && are_modes(&tops)
}

/// Returns `true` if `outer o inner` is a layout that refines the leaves of `inner`, by enumeration.
fn is_layout(outer: &NamedLayout, inner: &Layout) -> bool {
    let value = |index: i64| at(outer, inner.at(index).unwrap());
    let mut below = 1;
    let mut leaves = Vec::new();
    for leaf in inner.flat() {
        let alone: Vec<Point> = (0..leaf.extent).map(|n| value(n * below)).collect();
        if !are_modes(&alone) {
            return false;
        }
        leaves.push((below, leaf.extent, alone));
        below *= leaf.extent;
    }
    (0..inner.size()).all(|index| {
        let alone = leaves.iter().map(|(below, extent, values)| &values[(index / below % extent) as usize]);
        value(index) == alone.fold(Point::new(), |all, one| sum(&all, one))
    })
}

#[test]
fn composition_after_axes_is_its_definition_or_proved_not_to_be_a_layout() {
    let mut r = Random(71);
    let mut found = [0; 2];
    for _ in 0..6000 {
        let a = outer(&mut r);
        let b = inner(&mut r, a.layout().size());
        let outside = b.max_value() >= a.layout().size();
        match a.linear(|a| a.compose(&b)) {
            Ok(c) => {
                assert!(!outside && c.layout().size() == b.size(), "{a} o {b} = {c}");
                for index in 0..b.size() {
                    assert_eq!(at(&c, index), at(&a, b.at(index).unwrap()), "{a} o {b} = {c} at {index}");
                }
                found[0] += 1;
            }
            Err(error) if outside => assert_eq!(error.code(), "out_of_domain", "{a} o {b}"),
            Err(error) => {
                assert_eq!(error.code(), "not_representable", "{a} o {b}: {error}");
                assert!(!is_layout(&a, &b), "{a} o {b} is a layout, but: {error}");
                found[1] += 1;
            }
        }
    }
    assert!(found.iter().all(|count| *count > 200), "{found:?}");
}

#[test]
fn division_after_axes_is_composition_with_the_tile_and_its_complement() {
    let mut r = Random(72);
    let mut divided = 0;
    for _ in 0..4000 {
        let a = outer(&mut r);
        let tile = inner(&mut r, a.layout().size());
        let tiler = Tiler::Layout(tile.clone());
        let Ok(c) = a.linear(|a| a.logical_divide(&tiler)) else { continue };
        let rest = tile.complement(a.layout().size()).unwrap();
        let both = Layout::concat(&[tile.clone(), rest]).unwrap();
        for index in 0..both.size() {
            assert_eq!(at(&c, index), at(&a, both.at(index).unwrap()), "{a} / {tile} = {c} at {index}");
        }
        divided += 1;
    }
    assert!(divided > 300, "{divided}");
}

/// Without axes the answer is that of integers.
#[test]
fn without_axes_it_is_the_operation_on_integers() {
    let mut r = Random(73);
    for _ in 0..500 {
        let extents = extents(&mut r);
        let strides: Vec<String> = extents.iter().map(|_| r.below(40).to_string()).collect();
        let a: Layout = text(&extents, &strides).parse().unwrap();
        let b = inner(&mut r, a.size());
        let through = NamedLayout::from(&a).linear(|a| a.compose(&b)).map(|c| c.to_string());
        assert_eq!(through.ok(), a.compose(&b).ok().map(|c| c.to_string()), "{a} o {b}");
    }
}

#[test]
fn expressions_take_layouts_with_axes_wherever_no_order_is_needed() {
    for (text, value) in [
        ("composition((4,2):(1@tp,1@dp), 2:4)", "2:1@dp"),
        ("composition((4,2):(1@tp,1@dp), 8:1)", "(4,2):(1@tp,1@dp)"),
        ("composition((4,2):(1@tp,1@dp), (2,2):(4,2))", "(2,2):(1@dp,2@tp)"),
        ("composition((8,4):(1@tp,16), <2:4,4:1>)", "(2,4):(4@tp,16)"),
        ("composition((4,2):((1,1@tp),(4,1@dp)), (2,2):(4,1))", "(2,2):((4,1@dp),(1,1@tp))"),
        ("composition_extended((4,2):(1@tp,1@dp), 4:4)", "4:1@dp"),
        ("logical_divide((4,2):(1@tp,1@dp), 2)", "(2,(2,2)):(1@tp,(2@tp,1@dp))"),
        ("zipped_divide((8,6):(6@tp,1@dp), <4,3>)", "((4,3),(2,2)):((6@tp,1@dp),(24@tp,3@dp))"),
        ("tiled_divide((8,6):(6@tp,1@dp), <4,3>)", "((4,3),2,2):((6@tp,1@dp),24@tp,3@dp)"),
        ("flat_divide((8,6):(6@tp,1@dp), <4,3>)", "(4,3,2,2):(6@tp,1@dp,24@tp,3@dp)"),
        ("logical_divide_extended(10:2@tp, 4)", "(4,3):(2@tp,8@tp)"),
        ("filter((4,2,3):(1@tp,0,4@tp))", "12:1@tp"),
        ("select((4,2,3):(1@tp,1@dp,5), 2, 0)", "(3,4):(5,1@tp)"),
        ("take((4,2,3):(1@tp,1@dp,5), 1, 3)", "(2,3):(1@dp,5)"),
        ("append((4,2):(1@tp,1@dp), 3:2@dp)", "(4,2,3):(1@tp,1@dp,2@dp)"),
        ("prepend(4:1@tp, 3:2)", "(3,4):(2,1@tp)"),
        ("replace((4,2):(1@tp,1@dp), 0, 3:7@x)", "(3,2):(7@x,1@dp)"),
    ] {
        let found = evaluate(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(found.to_string(), value, "{text}");
    }
    for (text, kind, said) in [
        ("composition((4,2):(1@tp,1@dp), 2:5)", "not_representable", "1@dp+1@tp"),
        ("composition((4,2):(1@tp,1@dp), 3:3)", "not_representable", "(4,2):(1@tp,1@dp) o 3:3"),
        ("composition((4,2):(1@tp,1@dp), 3:4)", "out_of_domain", "[0, 8)"),
        ("logical_product((4,2):(1@tp,1@dp), 2:1)", "inadmissible", "integer strides"),
        ("right_inverse((4,2):(1@tp,1@dp))", "inadmissible", "integer strides"),
        ("composition(8:1, 2:1@tp)", "inadmissible", "integer strides"),
    ] {
        let error = evaluate(text).err().unwrap_or_else(|| panic!("{text} has an answer"));
        assert_eq!(error.code(), kind, "{text}: {error}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
}

/// Steps that jointly do not fit into 64 bits are rejected, and never confused.
#[test]
fn what_is_too_far_along_all_axes_together_is_an_overflow() {
    let a: NamedLayout = "(2,2,2):(1000000000000@dp,1000000000000@tp,1)".parse().unwrap();
    assert_eq!(a.linear(|a| a.compose(&"2:1".parse()?)).unwrap_err().code(), "overflow");
    let a: NamedLayout = "(1024,2,2):(1@dp,1@tp,1099511627776)".parse().unwrap();
    assert_eq!(a.linear(|a| a.compose(&"2:2048".parse()?)).unwrap().to_string(), "2:1099511627776");
}
