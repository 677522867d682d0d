//! Properties in which nesting matters.

use reshard_layout::algebra::{SlicePattern, Tiler};
use reshard_layout::{IntTuple, Layout, reference};

use crate::small::{for_each_one, nestings, up_to_two};

#[test]
fn display_then_from_str_is_the_identity() {
    for_each_one(|a| {
        for a in nestings(a) {
            assert_eq!(a.to_string().parse().as_ref(), Ok(&a));
            let (shape, stride) = (a.shape(), a.stride());
            assert_eq!(shape.to_string().parse::<IntTuple>().as_ref(), Ok(&shape));
            assert_eq!(Layout::new(shape, stride), Ok(a));
        }
    });
}

#[test]
fn modes_concatenate_to_the_layout() {
    for_each_one(|a| {
        for a in nestings(a) {
            let modes: Vec<Layout> = a.modes().collect();
            assert_eq!(modes.len(), a.rank());
            let whole = if a.is_scalar() { Ok(modes[0].clone()) } else { Layout::concat(&modes) };
            assert_eq!(whole, Ok(a));
        }
    });
}

#[test]
fn nesting_does_not_change_the_function() {
    for_each_one(|a| {
        for nested in nestings(a) {
            assert!(nested.is_equivalent(a));
            assert_eq!(nested.flatten().shape().leaves(), a.shape().leaves());
            assert_eq!(nested.reversed().reversed(), nested);
            assert_eq!(nested.coalesce(), a.coalesce());
            if nested.rank() > 1 {
                assert!(nested.group(0..2).is_ok_and(|grouped| grouped.is_equivalent(a)));
            }
        }
    });
}

#[test]
fn compose_keeps_the_nesting_of_the_inner_layout() {
    let all = up_to_two();
    for a in all.iter().step_by(7) {
        for b in &all {
            let flat = a.compose(b).map(|r| r.flatten().coalesce());
            for nested in nestings(b) {
                let r = a.compose(&nested);
                if let Ok(r) = &r {
                    assert!(nested.is_compatible(r), "{a} o {nested} = {r}");
                    assert_eq!(
                        r.rank(),
                        if r.size() == nested.size() && nested.is_scalar() {
                            r.rank()
                        } else {
                            nested.rank()
                        }
                    );
                }
                assert_eq!(r.map(|r| r.coalesce()).map_err(|e| e.code()), flat.clone().map_err(|e| e.code()));
            }
        }
    }
}

#[test]
fn by_mode_is_mode_by_mode() {
    let all = up_to_two();
    for a in all.iter().filter(|a| a.rank() == 2).step_by(3) {
        for t in all.iter().filter(|t| t.rank() == 2).step_by(11) {
            let tiles: Vec<Layout> = t.modes().collect();
            let tiler = Tiler::Modes(tiles.iter().cloned().map(Tiler::Layout).collect());
            let lift = |op: &dyn Fn(&Layout, &Layout) -> Result<Layout, reshard_layout::Error>| {
                let modes: Result<Vec<_>, _> = a.modes().zip(&tiles).map(|(a, t)| op(&a, t)).collect();
                modes.and_then(|modes| Layout::concat(&modes))
            };
            assert_eq!(a.compose_by(&tiler), lift(&|a, t| a.compose(t)));
            let divide = |a: &Layout, t: &Layout| a.logical_divide(&Tiler::Layout(t.clone()));
            assert_eq!(a.logical_divide(&tiler), lift(&divide));
            if let Ok(divided) = a.logical_divide(&tiler) {
                let zipped = a.zipped_divide(&tiler).expect("divided");
                let part = |k: usize, l: usize| divided.mode(k).and_then(|mode| mode.mode(l));
                let expected = |l| Layout::concat(&[part(0, l)?, part(1, l)?]);
                assert_eq!(zipped.mode(0), expected(0), "{a} / {tiler}");
                assert_eq!(zipped.mode(1), expected(1), "{a} / {tiler}");
            }
            assert_eq!(tiler.to_string().parse(), Ok(tiler));
        }
    }
}

#[test]
fn slice_and_dice_split_the_function() {
    for_each_one(|a| {
        if a.rank() < 2 || a.size() > 12 {
            return;
        }
        let rank = a.rank();
        for fixed in 0..rank {
            for index in 0..a.mode(fixed).map_or(0, |mode| mode.size()) {
                let patterns =
                    (0..rank).map(|k| if k == fixed { SlicePattern::At(index) } else { SlicePattern::Any });
                let pattern = SlicePattern::Modes(patterns.collect());
                assert_eq!(pattern.to_string().parse().as_ref(), Ok(&pattern));
                let (open, offset) = a.slice(&pattern).expect("in the domain");
                let values: Vec<i64> = (0..a.size())
                    .filter(|i| a.coordinates(*i).is_ok_and(|c| c.leaves()[fixed] == index))
                    .filter_map(|i| a.at(i).ok())
                    .collect();
                assert!(open.values().map(|v| v + offset).eq(values), "{a} at {pattern}");
                assert_eq!(
                    a.dice(&pattern).map(|dice| dice.coalesce()),
                    a.mode(fixed).map(|mode| mode.coalesce())
                );
            }
        }
    });
}

#[test]
fn row_major_is_the_order_of_memory() {
    for shape in [vec![2, 3], vec![4, 1, 3], vec![2, 2, 2, 3], vec![5]] {
        let layout = Layout::row_major(&shape).expect("small");
        assert!(reference::values(&layout).into_iter().eq(0..layout.size()));
        // Dim d of the tensor is mode n - 1 - d, with the stride that NumPy gives it.
        let mut stride = layout.size();
        for (dim, extent) in shape.iter().enumerate() {
            stride /= extent;
            assert_eq!(
                layout.mode(shape.len() - 1 - dim).map(|mode| mode.leaves().next()),
                Ok(Some((*extent, stride)))
            );
        }
    }
}
