//! Strides of every kind as plain lists of coordinates, and the definitions by enumeration: no algebra, no
//! coalescing.

use std::fmt::Debug;

use reshard_layout::{AxisStride, Layout, Mode, Point, Stride};

/// A value of any kind, one coordinate per direction.
///
/// A step has the local buffer and two axes; a pair has both sides.
pub(crate) type Place = [i64; 6];

/// A stride whose multiples are written out.
pub(crate) trait Slow: Stride + Debug + 'static {
    /// The number of directions.
    const WIDTH: usize;

    /// Adds `n` times the stride.
    fn add(self, n: i64, place: &mut [i64]);

    /// Reads the value that the library computes.
    fn read(value: &Self::Value, place: &mut [i64]);
}

impl Slow for i64 {
    const WIDTH: usize = 1;

    fn add(self, n: i64, place: &mut [i64]) {
        place[0] += n * self;
    }

    fn read(value: &i64, place: &mut [i64]) {
        place[0] = *value;
    }
}

impl Slow for AxisStride {
    const WIDTH: usize = 3;

    fn add(self, n: i64, place: &mut [i64]) {
        place[self.axis().map_or(0, |axis| axis as usize + 1)] += n * self.step();
    }

    fn read(value: &Point, place: &mut [i64]) {
        (place[0], place[1], place[2]) = (value.local, value.along(0), value.along(1));
        assert!(value.steps().iter().all(|at| at.step() != 0 && at.axis() < Some(2)), "{value}");
    }
}

impl<S: Slow, T: Slow> Slow for (S, T) {
    const WIDTH: usize = S::WIDTH + T::WIDTH;

    fn add(self, n: i64, place: &mut [i64]) {
        self.0.add(n, place);
        self.1.add(n, &mut place[S::WIDTH..]);
    }

    fn read(value: &Self::Value, place: &mut [i64]) {
        S::read(&value.0, place);
        T::read(&value.1, &mut place[S::WIDTH..]);
    }
}

/// The values of modes, from the definition: every index is split into coordinates, leftmost fastest.
pub(crate) fn values<S: Slow>(modes: &[Mode<S>]) -> Vec<Place> {
    modes.iter().fold(vec![[0; 6]], |below, mode| {
        let at = |c: i64, mut place: Place| {
            mode.stride.add(c, &mut place);
            place
        };
        (0..mode.extent).flat_map(|c| below.iter().map(move |place| at(c, *place))).collect()
    })
}

/// The values that the library gives a layout.
pub(crate) fn read<S: Slow>(layout: &Layout<S>) -> Vec<Place> {
    (0..layout.size())
        .map(|index| {
            let mut place = [0; 6];
            S::read(&layout.value(index).expect("in the domain"), &mut place);
            place
        })
        .collect()
}

/// Both functions side by side.
pub(crate) fn beside<S: Slow>(left: &[Place], right: &[Place]) -> Vec<Place> {
    let both = |(left, right): (&Place, &Place)| {
        let mut place = *left;
        place[S::WIDTH..].copy_from_slice(&right[..6 - S::WIDTH]);
        place
    };
    left.iter().zip(right).map(both).collect()
}

fn sum(left: &Place, right: &Place) -> Place {
    std::array::from_fn(|k| left[k] + right[k])
}

fn multiple(place: &Place, n: i64) -> Place {
    place.map(|coordinate| n * coordinate)
}

/// Returns `true` if some list of modes has these values.
///
/// It tries each first extent, with the stride that the function has at 1; the rest must have such a list
/// too.
pub(crate) fn is_list(values: &[Place]) -> bool {
    let size = values.len();
    if size == 1 {
        return values[0] == [0; 6];
    }
    (2..=size).filter(|extent| size.is_multiple_of(*extent)).any(|extent| {
        let rest: Vec<Place> = values.iter().step_by(extent).copied().collect();
        let linear = |(i, value): (usize, &Place)| {
            *value == sum(&multiple(&values[1], (i % extent) as i64), &rest[i / extent])
        };
        values.iter().enumerate().all(linear) && is_list(&rest)
    })
}

/// Returns `true` if some list of modes with boundaries at these sizes has these values.
///
/// It may have other boundaries in between.
pub(crate) fn is_list_of(values: &[Place], sizes: &[i64]) -> bool {
    let (mut below, mut parts) = (1, Vec::new());
    for &size in sizes {
        parts.push((0..size as usize).map(|c| values[below * c]).collect::<Vec<Place>>());
        below *= size as usize;
    }
    let additive = values.iter().enumerate().all(|(index, value)| {
        let mut rest = index;
        let of_part = |part: &Vec<Place>| {
            let coordinate = rest % part.len();
            rest /= part.len();
            part[coordinate]
        };
        *value == parts.iter().map(of_part).fold([0; 6], |left, right| sum(&left, &right))
    });
    additive && parts.iter().all(|part| is_list(part))
}

/// Returns `true` if no mode has extent 1 and none continues the mode before it.
pub(crate) fn is_shortest<S: Slow>(modes: &[Mode<S>]) -> bool {
    let step = |stride: S, n: i64| {
        let mut place = [0; 6];
        stride.add(n, &mut place);
        place
    };
    modes.iter().all(|mode| mode.extent > 1)
        && modes.windows(2).all(|m| step(m[0].stride, m[0].extent) != step(m[1].stride, 1))
}

/// All products of factors > 1 that equal a number, in every order; for 1 the empty product.
pub(crate) fn factorisations(size: i64) -> Vec<Vec<i64>> {
    let mut all = if size == 1 { vec![Vec::new()] } else { Vec::new() };
    for first in (2..=size).filter(|first| size % first == 0) {
        all.extend(factorisations(size / first).into_iter().map(|rest| [&[first], &rest[..]].concat()));
    }
    all
}

/// Calls `law` with every list of up to `count` modes of these extents and strides.
pub(crate) fn for_each_list<S: Slow>(
    extents: &[i64],
    strides: &[S],
    count: usize,
    law: &mut impl FnMut(&[Mode<S>]),
) {
    fn extend<S: Slow>(
        all: &[Mode<S>],
        count: usize,
        modes: &mut Vec<Mode<S>>,
        law: &mut impl FnMut(&[Mode<S>]),
    ) {
        law(modes);
        if count > 0 {
            for &mode in all {
                modes.push(mode);
                extend(all, count - 1, modes, law);
                modes.pop();
            }
        }
    }
    let all: Vec<Mode<S>> =
        extents.iter().flat_map(|&extent| strides.iter().map(move |&d| Mode::new(extent, d))).collect();
    extend(&all, count, &mut Vec::new(), law);
}

/// Steps in the buffer and along two axes, those of 0 included.
pub(crate) fn steps() -> Vec<AxisStride> {
    let mut all: Vec<AxisStride> = [0, 1, 2, 4].into_iter().map(AxisStride::local).collect();
    all.extend([0, 1, 2, -1].map(|step| AxisStride::along(step, 0)));
    all.extend([0, 2].map(|step| AxisStride::along(step, 1)));
    all
}

/// All pairs of these.
pub(crate) fn pairs<S: Copy, T: Copy>(left: &[S], right: &[T]) -> Vec<(S, T)> {
    left.iter().flat_map(|&a| right.iter().map(move |&b| (a, b))).collect()
}
