//! Compositions that are not layouts: an operation on one is the operation on its function.

use reshard_layout::algebra::{ComposedLayout, Outer, Tiler};
use reshard_layout::{Layout, Mode, Swizzle, reference};

use crate::small::{for_each_two, one_in, up_to_two};

/// The values of a composition, from the definitions; none outside the domain of the outer function.
pub(crate) fn values(composed: &ComposedLayout) -> Vec<Option<i64>> {
    let outer = match composed.outer() {
        Outer::Layout(layout) => Some(reference::values(layout)),
        Outer::Swizzle(_) => None,
    };
    let at = |value: &i64| {
        let index = usize::try_from(composed.offset() + value).ok()?;
        match (composed.outer(), &outer) {
            (Outer::Swizzle(s), _) => Some(reference::swizzle(s.bits(), s.base(), s.shift(), index as i64)),
            (Outer::Layout(_), Some(outer)) => outer.get(index).copied(),
            (Outer::Layout(_), None) => None,
        }
    };
    reference::values(composed.inner()).iter().map(at).collect()
}

fn swizzles() -> impl Iterator<Item = Swizzle> {
    (0..3).flat_map(|bits| {
        (0..3).flat_map(move |base| (-3..4).filter_map(move |shift| Swizzle::new(bits, base, shift).ok()))
    })
}

#[test]
fn a_composition_has_the_values_of_its_definition_and_no_others() {
    let mut taken = one_in(7);
    for_each_two(|a, b| {
        if !taken() {
            return;
        }
        for offset in [-1, 0, 3] {
            let composed = ComposedLayout::partial(a.clone().into(), offset, b.clone());
            let expected = values(&composed);
            let found: Vec<Option<i64>> = (0..b.size()).map(|index| composed.at(index).ok()).collect();
            assert_eq!(found, expected, "{composed}");
            assert_eq!(composed.is_total(), expected.iter().all(Option::is_some), "{composed}");
            assert_eq!(ComposedLayout::new(a.clone().into(), offset, b.clone()).is_ok(), composed.is_total());
            assert_eq!(composed.to_string().parse().as_ref(), Ok(&composed));
        }
    });
}

#[test]
fn what_acts_on_indices_acts_on_what_is_applied_first() {
    let swizzle: Swizzle = "Sw<2,0,2>".parse().expect("a swizzle");
    for_each_two(|b, t| {
        if b.min_value() < 0 {
            return;
        }
        let f = ComposedLayout::partial(swizzle.into(), 1, b.clone());
        // f o T, and (f o T, f o T*), by looking values up.
        let picked = |indices: &Layout| {
            let all = values(&f);
            reference::values(indices).iter().map(|i| all[*i as usize]).collect::<Vec<_>>()
        };
        if let Ok(tile) = f.map_inner(|b| b.compose(t)) {
            assert_eq!(values(&tile), picked(t), "{f} o {t}");
        }
        if let (Ok(tiles), Ok(rest)) =
            (f.map_inner(|b| b.logical_divide(&Tiler::Layout(t.clone()))), t.complement(b.size()))
        {
            let both = Layout::concat(&[t.clone(), rest]).expect("divided");
            assert_eq!(values(&tiles), picked(&both), "{f} / {t}");
        }
    });
}

#[test]
fn a_swizzle_through_a_layout_is_the_layout_after_the_swizzle() {
    let mut found = 0;
    for a in up_to_two() {
        for swizzle in swizzles() {
            let through = swizzle.through(&a);
            let at = |index: i64| reference::swizzle(swizzle.bits(), swizzle.base(), swizzle.shift(), index);
            let all = reference::values(&a);
            if let Some(through) = through {
                found += usize::from(swizzle.bits() > 0);
                for (index, value) in all.iter().enumerate() {
                    let after = all.get(at(index as i64) as usize).copied();
                    let before = reference::swizzle(through.bits(), through.base(), through.shift(), *value);
                    assert_eq!(after, Some(before), "{a} after {swizzle} is {through} after {a} at {index}");
                }
            }
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn inverses_of_a_swizzled_layout_are_inverses() {
    let mut found = [0, 0];
    for b in up_to_two().iter().filter(|b| b.min_value() >= 0) {
        for swizzle in swizzles() {
            let f = ComposedLayout::partial(swizzle.into(), 0, b.clone());
            let of_f = values(&f);
            if let Ok(right) = f.right_inverse() {
                found[0] += usize::from(right.size() > 1);
                for (index, at) in values(&right).iter().enumerate() {
                    let value = at.and_then(|at| of_f[at as usize]);
                    assert_eq!(value, Some(index as i64), "{f} after {right}");
                }
            }
            if let Ok(left) = f.left_inverse() {
                found[1] += usize::from(b.size() > 1);
                let back = values(&left);
                for value in &of_f {
                    let index = value.and_then(|value| back.get(value as usize).copied().flatten());
                    assert_eq!(index.and_then(|index| of_f[index as usize]), *value, "{left} after {f}");
                }
            }
        }
    }
    assert!(found.iter().all(|found| *found > 200), "{found:?}");
}

#[test]
fn a_recast_composition_reads_the_same_memory() {
    for b in up_to_two().iter().filter(|b| b.min_value() >= 0) {
        let outers = swizzles().map(Outer::from).chain(
            ["(8,4):(4,1)", "(4,12):(1,5)"]
                .map(|text| Outer::from(text.parse::<Layout>().expect("a layout"))),
        );
        for outer in outers {
            for width in [1, 2, 3, 4] {
                let words = ComposedLayout::partial(outer.clone(), 1, b.clone());
                let Ok(narrow) = words.downcast(width) else { continue };
                // The elements of each word, which follow each other.
                let mut expected: Vec<Option<i64>> = values(&words)
                    .iter()
                    .flat_map(|word| (0..width).map(move |k| word.map(|word| word * width + k)))
                    .collect();
                let mut found = values(&narrow);
                expected.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, expected, "{words} as {width} each is {narrow}");
                if let Ok(back) = narrow.upcast(width) {
                    assert_eq!(values(&back), values(&words), "{narrow}");
                }
            }
        }
    }
}

#[test]
fn composition_from_an_offset_goes_backwards_where_strides_are_negative() {
    let signed = [-3, -2, -1, 1, 2];
    for a in up_to_two() {
        let all = reference::values(&a);
        for (offset, extent, stride, other) in (0..a.size()).flat_map(|k| {
            (2..=3)
                .flat_map(move |s| signed.into_iter().flat_map(move |d| (1..=2).map(move |e| (k, s, d, e))))
        }) {
            let inner = [Mode::new(extent, stride), Mode::new(2, -other)];
            let b = Layout::from_modes(&[(extent, stride), (2, -other)]).expect("small");
            let expected: Option<Vec<i64>> = reference::values(&b)
                .iter()
                .map(|value| usize::try_from(offset + value).ok().and_then(|at| all.get(at).copied()))
                .collect();
            match (a.compose_at(offset, &inner), expected) {
                (Ok((start, modes)), Some(expected)) => {
                    let found = Layout::from_flat(modes).expect("small");
                    let found: Vec<i64> =
                        reference::values(&found).iter().map(|value| start + value).collect();
                    assert_eq!(found, expected, "{a} from {offset} o {b}");
                }
                (Err(error), Some(_)) => {
                    assert_eq!(error.code(), "not_representable", "{a} from {offset} o {b}");
                }
                (Err(error), None) => assert_eq!(error.code(), "out_of_domain", "{a} from {offset} o {b}"),
                (Ok(found), None) => panic!("{a} from {offset} o {b} is {found:?}"),
            }
            // Into one mode everything that stays inside is accepted.
            let line = Layout::scalar(64, 3).expect("small");
            assert!(line.compose_at(offset + 30, &inner).is_ok());
        }
    }
}
