//! Properties of the notation of strides of any kind.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck gives every argument by value")]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use reshard_layout::expression::{Value, evaluate};
use reshard_layout::{AxisStride, Error, Layout, Mode, NamedLayout, NamedPoint, Point};
use reshard_test_support::{Arbitrary, Gen, Sweep, property};

use crate::drawn::{Drawn, List, below, check};
use crate::slow::{pairs, steps};

/// `FromStr` undoes `Display`.
fn round_trips<T: Display + FromStr<Err = Error> + PartialEq>(value: &T) -> bool {
    value.to_string().parse().as_ref() == Ok(value)
}

/// The modes in a random nesting, one-tuples included.
fn nest<S: Drawn>(modes: &[Mode<S>], cuts: &[u8]) -> Layout<S> {
    let scalar = |mode: &Mode<S>| {
        Layout::from_flat([*mode].into_iter().collect()).and_then(|layout| layout.mode(0)).expect("small")
    };
    let mut parts: Vec<Layout<S>> = modes.iter().map(scalar).collect();
    for &cut in cuts.iter().take(6) {
        let start = usize::from(cut) % (parts.len() + 1);
        let end = (start + usize::from(cut % 4)).min(parts.len());
        if start < end {
            let group = Layout::tuple(&parts[start..end]).expect("small");
            parts.splice(start..end, [group]);
        }
    }
    match &parts[..] {
        [one] => one.clone(),
        _ => Layout::tuple(&parts).expect("small"),
    }
}

#[test]
fn display_then_from_str_is_the_identity_for_every_stride() {
    fn law<S: Drawn>(modes: List<S>, cuts: Vec<u8>) -> bool
    where
        Layout<S>: Display + FromStr<Err = Error>,
    {
        round_trips(&nest(&modes.0, &cuts))
    }
    check(property!(), law as fn(List<i64>, Vec<u8>) -> bool);
    check(property!(), law as fn(List<AxisStride>, Vec<u8>) -> bool);
    check(property!(), law as fn(List<(i64, i64)>, Vec<u8>) -> bool);
    check(property!(), law as fn(List<(AxisStride, AxisStride)>, Vec<u8>) -> bool);
    check(property!(), law as fn(List<((AxisStride, i64), AxisStride)>, Vec<u8>) -> bool);
}

#[test]
fn steps_and_points_are_read_as_they_are_written() {
    fn law(modes: List<AxisStride>, index: u16) -> bool {
        let layout = modes.layout();
        layout.value(i64::from(index) % layout.size()).is_ok_and(|point| round_trips(&point))
    }
    for extreme in [0, 1, -1, i64::MAX, i64::MIN] {
        assert!(round_trips(&AxisStride::local(extreme)));
        assert!(
            [0, 7, AxisStride::MAX_AXIS].iter().all(|axis| round_trips(&AxisStride::along(extreme, *axis)))
        );
    }
    for (text, canonical) in
        [(" 3 + 1@0 ", "3+1@0"), ("1@0+-1@0", "0"), ("2@1+1@0+2@1", "1@0+4@1"), ("0@3", "0")]
    {
        assert_eq!(text.parse::<Point>().map(|point| point.to_string()).as_deref(), Ok(canonical));
    }
    check(property!(), law as fn(List<AxisStride>, u16) -> bool);
}

/// Names of the two axes that are drawn, in the other order.
const NAMES: [&str; 2] = ["tp", "a/b-c.0"];

#[test]
fn names_are_only_other_numbers() {
    fn law(modes: List<AxisStride>, cuts: Vec<u8>, index: u16) -> bool {
        let layout = nest(&modes.0, &cuts);
        let named = NamedLayout::new(&layout, |axis| NAMES[axis as usize]).expect("names");
        let index = i64::from(index) % layout.size();
        let (point, points) = (layout.value(index).expect("inside"), named.value(index).expect("inside"));
        let names: Vec<&str> = points.names().collect();
        let along = |axis: u32| {
            let number = names.iter().position(|name| *name == NAMES[axis as usize]);
            number.map_or(0, |number| points.points()[0].along(number as u32))
        };
        let same =
            points.points()[0].local == point.local && (0..2).all(|axis| along(axis) == point.along(axis));
        // In expressions a value without axes is a layout of integers.
        let text = named.to_string();
        let value = match evaluate(&text) {
            Ok(Value::Named(value)) => *value == named && named.names().len() > 0,
            Ok(Value::Layout(value)) => named.integers() == Some(value),
            Ok(_) | Err(_) => false,
        };
        same && value
            && round_trips(&named)
            && round_trips(&points)
            && named.stride().is_ok_and(|s| round_trips(&s))
    }
    check(property!(), law as fn(List<AxisStride>, Vec<u8>, u16) -> bool);
}

#[test]
fn names_of_pairs_are_read_as_they_are_written() {
    fn law(modes: List<(AxisStride, AxisStride)>, cuts: Vec<u8>, index: u16) -> bool {
        let layout = nest(&modes.0, &cuts);
        let named = NamedLayout::new(&layout, |axis| NAMES[axis as usize]).expect("names");
        let value = evaluate(&named.to_string());
        round_trips(&named)
            && value == Ok(Value::Pairs(Box::new(named.clone())))
            && named.value(i64::from(index) % layout.size()).is_ok_and(|points| round_trips(&points))
            && named.stride().is_ok_and(|stride| round_trips(&stride))
    }
    check(property!(), law as fn(List<(AxisStride, AxisStride)>, Vec<u8>, u16) -> bool);
}

#[test]
fn texts_with_a_defect_are_refused_with_a_place() {
    for text in [
        "",
        "4",
        "4:",
        "4:@",
        "4:1@",
        "4:1@x",
        "4:1@-1",
        "4:1@4294967295",
        "4:(1@0",
        "(4,2):(1@0)",
        "4:1@0 2",
    ] {
        let error = text.parse::<Layout<AxisStride>>().expect_err(text);
        assert_eq!(error.code(), "parse", "{text}");
        assert!(error.render().ends_with('^') && !error.to_string().contains('\n'), "{text}");
    }
    for text in
        ["4:1", "4:(1)", "4:(1,)", "4:(1,2", "(4,2):(1,2)", "(4,2):((1,2),3)", "4:((1,2),3)", "4:(1,2,3)"]
    {
        assert_eq!(text.parse::<Layout<(i64, i64)>>().map_err(|error| error.code()), Err("parse"), "{text}");
    }
    for (text, kind) in [
        ("0:1@0", "bad_extent"),
        ("3:9223372036854775807@0", "overflow"),
        ("4:99999999999999999999@0", "overflow"),
    ] {
        assert_eq!(text.parse::<Layout<AxisStride>>().map_err(|error| error.code()), Err(kind), "{text}");
    }
    assert_eq!("9223372036854775807+1".parse::<Point>().map_err(|error| error.code()), Err("overflow"));
}

/// A text with one to three characters dropped, doubled or replaced.
fn mutate(g: &mut Gen, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=below(g, 3) {
        let at = below(g, characters.len() as u64 + 1) as usize;
        let new =
            ['(', ')', ',', ':', '@', '+', '-', '0', '9', ' ', 'é', 'x', '\n', '\0'][below(g, 14) as usize];
        match below(g, 4) {
            0 if at < characters.len() => drop(characters.remove(at)),
            1 if at < characters.len() => characters[at] = new,
            2 if at < characters.len() => characters.insert(at, characters[at]),
            _ => characters.insert(at, new),
        }
    }
    characters.into_iter().collect()
}

#[test]
fn mutated_texts_are_read_or_refused() {
    /// A parsed value prints as a text that parses to it; an error has a message.
    fn read<T: Display + Debug + FromStr<Err = Error> + PartialEq>(text: &str) -> bool {
        match text.parse::<T>() {
            Ok(value) => {
                assert!(round_trips(&value), "{text:?} is {value:?}");
                true
            }
            Err(error) => {
                assert!(!error.to_string().contains('\n') && error.render().len() < 400, "{text:?}: {error}");
                false
            }
        }
    }
    property!().size(64).draws(|g| {
        let mut counts = [0, 0];
        for _ in 0..Sweep::asked().count(2_000, 200_000) {
            let cuts = Vec::<u8>::arbitrary(g);
            let texts = [
                nest(&List::<AxisStride>::arbitrary(g).0, &cuts).to_string(),
                nest(&List::<(i64, i64)>::arbitrary(g).0, &cuts).to_string(),
                nest(&List::<(AxisStride, AxisStride)>::arbitrary(g).0, &cuts).to_string(),
                "(3+1@0+-4@1,2@tp)".to_owned(),
                "(4,(2,3)):(1@tp,(4@dp.0,8))".to_owned(),
                "(4,2):((1,1@tp),(4@dp,-4))".to_owned(),
            ];
            for text in texts {
                let text = mutate(g, &text);
                let read = [
                    read::<Layout>(&text),
                    read::<Layout<AxisStride>>(&text),
                    read::<Layout<(i64, i64)>>(&text),
                    read::<Layout<(AxisStride, AxisStride)>>(&text),
                    read::<AxisStride>(&text),
                    read::<Point>(&text),
                    read::<NamedLayout>(&text),
                    read::<NamedLayout<(AxisStride, AxisStride)>>(&text),
                    read::<NamedPoint>(&text),
                    evaluate(&text).is_ok_and(|value| !value.to_string().is_empty()),
                ];
                counts[usize::from(read.contains(&true))] += 1;
            }
        }
        assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
    });
}

#[test]
fn layouts_of_one_mode_round_trip_for_every_stride() {
    for stride in pairs(&steps(), &steps()) {
        for text in [format!("4:({},{})", stride.0, stride.1), format!("(4,):(({},{}),)", stride.0, stride.1)]
        {
            let layout: Layout<(AxisStride, AxisStride)> = text.parse().expect("well formed");
            assert_eq!((layout.to_string(), layout.flat()), (text, &[Mode::new(4, stride)][..]));
        }
    }
}
