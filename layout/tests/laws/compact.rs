//! Compact layouts in an order, modes that are picked, and workers that are distributed over a domain.

use reshard_layout::algebra::{SlicePattern, Tiler};
use reshard_layout::{IntTuple, Layout, reference};

use crate::small::{for_each_one, nestings, one_in};

/// The coordinates of every index, leftmost fastest.
fn coordinates(extents: &[i64]) -> Vec<Vec<i64>> {
    extents.iter().fold(vec![Vec::new()], |below, &extent| {
        let one = |c: i64| below.iter().map(move |coordinate| [coordinate.clone(), vec![c]].concat());
        (0..extent).flat_map(one).collect()
    })
}

/// The number of coordinates before each in the given order.
///
/// Coordinates are compared by the leaf that is last in the order, then the one before.
fn ranks(extents: &[i64], leaves: &[usize]) -> Vec<i64> {
    let key =
        |coordinate: &[i64]| -> Vec<i64> { leaves.iter().rev().map(|leaf| coordinate[*leaf]).collect() };
    let mut keys: Vec<Vec<i64>> = coordinates(extents).iter().map(|coordinate| key(coordinate)).collect();
    let all = keys.clone();
    keys.sort();
    keys.dedup();
    all.iter().map(|key| keys.binary_search(key).expect("one of them") as i64).collect()
}

/// The selected leaves by key, those of equal keys from left to right.
fn by_key(keys: &[i64], taken: impl Fn(usize) -> bool) -> Vec<usize> {
    let least = keys.iter().copied().min().unwrap_or(0);
    let greatest = keys.iter().copied().max().unwrap_or(0);
    (least..=greatest)
        .flat_map(|key| (0..keys.len()).filter(move |at| keys[*at] == key))
        .filter(|at| taken(*at))
        .collect()
}

#[test]
fn a_compact_layout_in_an_order_numbers_the_coordinates_in_that_order() {
    for extents in [vec![1], vec![3], vec![2, 3], vec![3, 1], vec![2, 3, 4], vec![4, 1, 2], vec![2, 2, 3, 2]]
    {
        let shape = IntTuple::flat(&extents).expect("some");
        for order in coordinates(&vec![3; extents.len()]) {
            let keys = IntTuple::flat(&order).expect("some");
            let layout = Layout::make_ordered(&shape, &keys).expect("small");
            let expected = ranks(&extents, &by_key(&order, |_| true));
            assert_eq!(reference::values(&layout), expected, "{shape} in the order {keys} is {layout}");
            assert!(layout.shape() == shape && layout.is_compact());
        }
        let nested = IntTuple::tuple(&[shape.clone(), 5.into()]).expect("two");
        for (order, first) in [("(0,1)", 1), ("(1,0)", 5), ("7", 1)] {
            let layout = Layout::make_ordered(&nested, &order.parse().expect("an order")).expect("small");
            let part = layout.mode(0).expect("two").flat().iter().map(|leaf| leaf.extent).product::<i64>();
            assert!(layout.is_compact(), "{layout}");
            assert_eq!(layout.at(i64::from(part > 1)).expect("inside"), if part > 1 { first } else { 0 });
        }
    }
    for (shape, order) in [("(2,3)", "(1,0,2)"), ("4", "(0,1)"), ("(2,3)", "(0,(1,2))")] {
        let parse = |text: &str| text.parse::<IntTuple>().expect("a tuple");
        let refused =
            Layout::make_ordered(&parse(shape), &parse(order)).expect_err("not nested like the shape");
        assert_eq!(refused.code(), "not_congruent");
    }
}

#[test]
fn a_layout_like_another_numbers_its_coordinates_in_the_order_of_its_strides() {
    for_each_one(|a| {
        let extents: Vec<i64> = a.leaves().map(|(extent, _)| extent).collect();
        let keys: Vec<i64> = a.leaves().map(|(_, stride)| stride.abs()).collect();
        let like = a.make_like().expect("no greater than the size");
        let expected = ranks(&extents, &by_key(&keys, |at| keys[at] != 0));
        assert_eq!(reference::values(&like), expected, "{a}: {like}");
        assert_eq!(like.shape(), a.shape());
        assert_eq!(like.make_like().as_ref(), Ok(&like));
    });
}

#[test]
fn column_major_of_a_nested_shape_is_the_identity() {
    for_each_one(|a| {
        for nested in nestings(a) {
            let column = Layout::column_major_of(&nested.shape()).expect("small");
            assert!(column.values().eq(0..a.size()) && column.shape() == nested.shape());
            let row = Layout::row_major_of(&nested.shape()).expect("small");
            assert_eq!(reference::values_lexicographic(&row.reversed()), (0..a.size()).collect::<Vec<_>>());
            assert_eq!(row.reversed().shape(), nested.shape());
        }
    });
}

#[test]
fn picked_modes_are_the_modes() {
    // A sample of every fifth layout: many picks of each are many layouts.
    let mut taken = one_in(5);
    for_each_one(|a| {
        if !taken() {
            return;
        }
        let modes: Vec<Layout> = a.modes().collect();
        let rank = modes.len();
        let x: Layout = "(2,3):(7,5)".parse().expect("a layout");
        for first in 0..=rank {
            for second in 0..=rank {
                let picked = a.select(&[first, second]);
                match (modes.get(first), modes.get(second)) {
                    (Some(one), Some(two)) => assert_eq!(picked, Layout::concat(&[one.clone(), two.clone()])),
                    _ => assert_eq!(picked.map_err(|error| error.code()), Err("no_such_mode")),
                }
                match modes.get(first..second) {
                    Some(part) if first < second => assert_eq!(a.take(first..second), Layout::concat(part)),
                    Some(_) | None => assert!(a.take(first..second).is_err()),
                }
            }
            let mut replaced = modes.clone();
            match replaced.get_mut(first) {
                Some(mode) => {
                    *mode = x.clone();
                    let whole = if a.is_scalar() { Ok(x.clone()) } else { Layout::concat(&replaced) };
                    assert_eq!(a.replace(first, &x), whole);
                }
                None => assert_eq!(a.replace(first, &x).map_err(|error| error.code()), Err("no_such_mode")),
            }
        }
        let with = |before: usize, after: usize| {
            Layout::concat(&[vec![x.clone(); before], modes.clone(), vec![x.clone(); after]].concat())
        };
        assert_eq!((a.append(&x), a.prepend(&x)), (with(0, 1), with(1, 0)));
        assert_eq!((a.append_to(rank + 2, &x), a.prepend_to(rank + 2, &x)), (with(0, 2), with(2, 0)));
        assert_eq!(a.append_to(rank - 1, &x).map_err(|error| error.code()), Err("no_such_mode"));
        // A tuple is picked from as its layout is.
        let shape = a.shape();
        assert_eq!(a.append(&x).map(|a| a.shape()), shape.append(&x.shape()));
        assert_eq!(a.take(0..rank).map(|a| a.shape()), shape.take(0..rank));
        assert_eq!(a.replace(0, &x).map(|a| a.shape()), shape.replace(0, &x.shape()));
    });
}

#[test]
fn what_is_distributed_ascends_divides_and_composes_with_every_layout_of_the_shape() {
    for extents in
        [vec![1], vec![6], vec![4, 6], vec![15, 14], vec![2, 3, 4], vec![6, 1, 10], vec![192, 8, 8]]
    {
        let shape = IntTuple::flat(&extents).expect("some");
        let memory = Layout::make_ordered(
            &shape,
            &IntTuple::flat(&(0..extents.len() as i64).rev().collect::<Vec<_>>()).expect("some"),
        );
        let memory = memory.expect("small");
        for count in (1..=48).chain([128, 1024]) {
            let over = Layout::domain_distribute(&shape, count).expect("small");
            let picked = reference::values(&over);
            assert!(picked.windows(2).all(|pair| pair[0] < pair[1]), "{over}");
            assert!(
                count % over.size() == 0 && memory.compose(&over).is_ok(),
                "{count} over {shape}: {over}"
            );
            // Each extent takes the greatest common divisor of it and the rest.
            let mut left = count;
            for extent in &extents {
                left /= (1..=left.min(*extent)).rev().find(|g| extent % g == 0 && left % g == 0).unwrap_or(1);
            }
            assert_eq!(over.size() * left, count, "{count} over {shape}: {over}");
        }
    }
    for (shape, count) in [("(4,0)", 2), ("4", 0)] {
        let refused = Layout::domain_distribute(&shape.parse().expect("a tuple"), count);
        assert_eq!(refused.map_err(|error| error.code()), Err("bad_extent"));
    }
}

#[test]
fn tiles_and_parts_of_threads_cover_a_layout_once() {
    let parse = |text: &str| text.parse::<Layout>().expect("a layout");
    for a in ["(8,6):(6,1)", "(8,6):(1,8)", "((4,2),6):((1,24),4)", "(8,(2,3)):(10,(1,2))"].map(parse) {
        let mut all = reference::values(&a);
        all.sort_unstable();
        let sorted = |parts: Vec<(Layout, i64)>| {
            let values = |(part, start): &(Layout, i64)| {
                reference::values(part).into_iter().map(|value| start + value).collect::<Vec<_>>()
            };
            let mut values = parts.iter().flat_map(values).collect::<Vec<_>>();
            values.sort_unstable();
            values
        };
        for (rows, columns) in [(1, 1), (2, 3), (4, 2), (8, 6), (4, 6)] {
            let tiler = Tiler::of_shape(&IntTuple::flat(&[rows, columns]).expect("two")).expect("positive");
            let tiles = (0..8 / rows).flat_map(|r| (0..6 / columns).map(move |c| (r, c)));
            let tile = |(r, c)| {
                a.local_tile(&tiler, &SlicePattern::Modes(vec![SlicePattern::At(r), SlicePattern::At(c)]))
            };
            let tiles: Result<Vec<_>, _> = tiles.map(tile).collect();
            let tiles = tiles.expect("it divides");
            assert_eq!(tiles[0].0, a.compose_by(&tiler).expect("it divides"));
            assert_eq!(sorted(tiles), all);
            for threads in
                [format!("({rows},{columns}):(1,{rows})"), format!("({rows},{columns}):({columns},1)")]
            {
                let threads = parse(&threads);
                let part = |thread| a.local_partition(&threads, thread);
                let parts: Result<Vec<_>, _> = (0..rows * columns).map(part).collect();
                let parts = parts.expect("it divides");
                // A thread begins at its position on the first tile.
                for r in 0..rows {
                    for c in 0..columns {
                        let thread = threads.offset_of(&[r, c]).expect("inside");
                        assert_eq!(parts[thread as usize].1, a.offset_of(&[r, c]).expect("inside"));
                    }
                }
                assert_eq!(sorted(parts), all);
            }
        }
    }
}
