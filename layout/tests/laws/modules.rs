//! Properties of layouts whose strides are steps along axes and pairs.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck gives every argument by value")]

use std::collections::HashMap;

use reshard_layout::{AxisStride, Layout, MAX_LEAVES, Mode, Modes, Stride};
use reshard_test_support::property;

use crate::drawn::{Drawn, List, check, cut};
use crate::slow::{Place, Slow, for_each_list, is_shortest, pairs, read, steps, values};

fn flat<S: Slow>(modes: &[Mode<S>]) -> Layout<S> {
    Layout::from_flat(modes.iter().copied().collect()).expect("small")
}

/// Coalescing preserves the function, is idempotent and shortest.
///
/// Of all these lists, those and only those of the same function have the same coalesced form.
fn coalesced_forms_are_unique<S: Slow>(extents: &[i64], strides: &[S], count: usize) -> usize {
    let mut forms: HashMap<Vec<Place>, Modes<S>> = HashMap::new();
    let mut lists = 0;
    for_each_list(extents, strides, count, &mut |modes| {
        lists += 1;
        let function = values(modes);
        let form = Modes::from_slice(modes).coalesce();
        assert_eq!(values(&form), function, "{modes:?}");
        assert!(is_shortest(&form) && form.len() <= modes.len(), "{modes:?}");
        assert_eq!(form.coalesce(), form);
        let (layout, shortest) = (flat(modes), flat(modes).coalesce());
        assert_eq!(read(&layout), function, "{modes:?}");
        assert!(layout.is_equivalent(&shortest) && shortest.flat().len() == form.len().max(1));
        // Different functions have different forms because a form has the values of its list.
        let other = forms.entry(function).or_insert_with(|| form.clone());
        assert_eq!(*other, form, "{modes:?}");
    });
    lists
}

#[test]
fn coalesced_forms_are_unique_in_every_module() {
    let few = [
        AxisStride::local(0),
        AxisStride::local(1),
        AxisStride::local(2),
        AxisStride::along(1, 0),
        AxisStride::along(2, 0),
    ];
    let integers: Vec<i64> = (-1..=4).collect();
    assert_eq!(coalesced_forms_are_unique(&[1, 2, 3, 4], &integers, 3), 1 + 24 + 24 * 24 + 24_usize.pow(3));
    assert_eq!(coalesced_forms_are_unique(&[1, 2, 4], &steps(), 3), 1 + 30 + 30 * 30 + 30_usize.pow(3));
    assert_eq!(coalesced_forms_are_unique(&[1, 2, 3], &pairs(&[0, 1, 2, 3], &[0, 1, 2]), 3), 47_989);
    assert_eq!(coalesced_forms_are_unique(&[1, 2], &pairs(&few, &few), 3), 127_551);
    assert_eq!(coalesced_forms_are_unique(&[2, 4], &pairs(&few, &[0, 1, 2]), 3), 27_931);
}

#[test]
fn coalesced_forms_of_random_lists_are_unique() {
    fn law<S: Drawn>(a: List<S>, b: List<S>, where_to: Vec<u8>) -> bool {
        let again = cut(&a.0, &where_to);
        let (function, other) = (values(&a.0), values(&b.0));
        let form = Modes::from_slice(&a.0).coalesce();
        let same = |modes: &[Mode<S>]| Modes::from_slice(modes).coalesce() == form;
        values(&again) == function
            && values(&form) == function
            && is_shortest(&form)
            && same(&again)
            && same(&b.0) == (function == other)
    }
    check(property!(), law as fn(List<i64>, List<i64>, Vec<u8>) -> bool);
    check(property!(), law as fn(List<AxisStride>, List<AxisStride>, Vec<u8>) -> bool);
    check(property!(), law as fn(List<(i64, i64)>, List<(i64, i64)>, Vec<u8>) -> bool);
    check(
        property!(),
        law as fn(List<(AxisStride, AxisStride)>, List<(AxisStride, AxisStride)>, Vec<u8>) -> bool,
    );
}

#[test]
fn a_step_of_zero_has_no_axis() {
    for step in steps() {
        for other in steps() {
            let place = |at: AxisStride| values(&[Mode::new(2, at)]);
            assert_eq!(step == other, place(step) == place(other), "{step:?}, {other:?}");
            assert!(step != other || (step.axis() == other.axis() && step.to_string() == other.to_string()));
            assert!(step != other || step.is_local() == other.is_local());
        }
    }
}

/// Returns `true` if the length of the interval of values fits, counted in more bits.
fn fits(modes: &[Mode<AxisStride>]) -> bool {
    let size = modes.iter().try_fold(1_i64, |size, mode| size.checked_mul(mode.extent));
    let along = |axis: Option<u32>| {
        let (mut min, mut max) = (0_i128, 0_i128);
        for mode in modes.iter().filter(|mode| mode.stride.axis() == axis) {
            let reach = i128::from(mode.extent - 1) * i128::from(mode.stride.step());
            if reach < 0 { min += reach } else { max += reach }
        }
        max - min < i128::from(i64::MAX)
    };
    modes.iter().all(|mode| mode.extent >= 1)
        && size.is_some()
        && [None, Some(0), Some(1)].into_iter().all(along)
}

#[test]
fn what_fits_along_every_axis_is_accepted_and_nothing_else() {
    const MAX: i64 = i64::MAX;
    let lengths = [0, 1, -1, MAX / 3, MAX / 2, MAX / 2 + 1, MAX - 1, MAX, -MAX, i64::MIN];
    let strides: Vec<AxisStride> = lengths
        .into_iter()
        .flat_map(|step| [AxisStride::local(step), AxisStride::along(step, 0), AxisStride::along(step, 1)])
        .collect();
    let (mut accepted, mut refused) = (0, 0);
    for_each_list(&[0, 1, 2, 3], &strides, 2, &mut |modes| {
        let sealed = AxisStride::seal(modes.iter().copied());
        assert_eq!(sealed.is_ok(), fits(modes), "{modes:?}");
        // A pair fits exactly if both sides do; integers have only one direction.
        let integers: Vec<Mode> = modes.iter().map(|mode| mode.map(AxisStride::step)).collect();
        let local: Vec<Mode<AxisStride>> = integers.iter().map(|mode| mode.map(AxisStride::local)).collect();
        assert_eq!(i64::seal(integers.iter().copied()).is_ok(), fits(&local), "{integers:?}");
        let both = <(AxisStride, i64)>::seal(modes.iter().map(|mode| mode.map(|at| (at, at.step()))));
        assert_eq!(both.is_ok(), fits(modes) && fits(&local), "{modes:?}");
        *if sealed.is_ok() { &mut accepted } else { &mut refused } += 1;
    });
    assert!(accepted > 4_000 && refused > 4_000, "{accepted} and {refused}");
    let wide: Vec<Mode<AxisStride>> =
        (0..3).map(|axis| Mode::new(2, AxisStride::along(MAX - 1, axis))).collect();
    assert!(AxisStride::seal(wide.iter().copied()).is_ok_and(|(size, ())| size == 8));
    assert!(
        AxisStride::seal([Mode::new(MAX, AxisStride::ZERO), Mode::new(2, AxisStride::ZERO)].into_iter())
            .is_err()
    );
}

/// All splits of a list of this length into consecutive parts, empty ones included, as the ends of the parts.
fn ends(len: usize, parts: usize) -> Vec<Vec<usize>> {
    if parts == 0 {
        return if len == 0 { vec![Vec::new()] } else { Vec::new() };
    }
    (0..=len)
        .flat_map(|last| {
            ends(last, parts - 1).into_iter().map(move |mut ends| {
                ends.push(len);
                ends
            })
        })
        .collect()
}

#[test]
fn nested_and_flat_modes_are_inverse() {
    let strides = [AxisStride::local(0), AxisStride::local(1), AxisStride::along(1, 0)];
    for_each_list(&[1, 2, 3], &strides, 3, &mut |modes| {
        for ends in (1..=4).flat_map(|parts| ends(modes.len(), parts)) {
            let layout = Layout::nested(modes, &ends).expect("small");
            let starts = [0].into_iter().chain(ends.iter().copied());
            let parts: Vec<&[Mode<AxisStride>]> =
                starts.zip(&ends).map(|(start, &end)| &modes[start..end]).collect();
            assert_eq!(layout.rank(), parts.len());
            let empty = [Mode::new(1, AxisStride::ZERO)];
            let expected = parts.iter().map(|part| if part.is_empty() { &empty[..] } else { part });
            assert!(layout.flat_modes().eq(expected), "{layout}");
            assert_eq!(values(layout.flat()), values(modes), "{layout}");
            // And back: the flat modes of the layout, split at their ends, are the layout.
            let lengths = layout.flat_modes().map(<[_]>::len);
            let again: Vec<usize> = lengths
                .scan(0, |end, len| {
                    *end += len;
                    Some(*end)
                })
                .collect();
            assert_eq!(Layout::nested(layout.flat(), &again).as_ref(), Ok(&layout));
        }
    });
    let most = vec![Mode::new(1, AxisStride::ZERO); MAX_LEAVES];
    let each: Vec<usize> = (1..=MAX_LEAVES).collect();
    assert!(Layout::nested(&most, &each).is_ok_and(|layout| layout.rank() == MAX_LEAVES));
    let one_more = [&[0], &each[..]].concat();
    assert!(Layout::nested(&most, &one_more).is_err_and(|error| error.code() == "too_large"));
    assert!(Layout::<AxisStride>::nested(&[], &[]).is_ok_and(|layout| layout.to_string() == "1:0"));
}
