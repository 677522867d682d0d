//! Random lists of modes with strides of any kind.

use reshard_layout::{AxisStride, Layout, Mode};
use reshard_test_support::{Arbitrary, Gen, Property, Sweep, Testable};

use crate::slow::Slow;

/// The greatest size of a random list, so that enumerating its values stays quick.
const MAX_SIZE: i64 = 512;

/// A stride that can be drawn.
pub(crate) trait Drawn: Slow {
    /// A random one, `step` long where it is usual.
    fn draw(g: &mut Gen, step: i64) -> Self;
}

pub(crate) fn below(g: &mut Gen, bound: u64) -> i64 {
    (u64::arbitrary(g) % bound) as i64
}

impl Drawn for i64 {
    fn draw(g: &mut Gen, step: i64) -> i64 {
        match below(g, 8) {
            0 => 0,
            1 => below(g, 20) - 6,
            _ => step,
        }
    }
}

impl Drawn for AxisStride {
    fn draw(g: &mut Gen, step: i64) -> AxisStride {
        let step = i64::draw(g, step);
        match below(g, 4) {
            0 => AxisStride::along(step, 0),
            1 => AxisStride::along(step, 1),
            _ => AxisStride::local(step),
        }
    }
}

impl<S: Drawn, T: Drawn> Drawn for (S, T) {
    fn draw(g: &mut Gen, step: i64) -> (S, T) {
        (S::draw(g, step), T::draw(g, step))
    }
}

/// A random list of up to seven modes; strides are mostly the steps of a compact layout.
#[derive(Clone, Debug)]
pub(crate) struct List<S>(pub(crate) Vec<Mode<S>>);

impl<S: Drawn> Arbitrary for List<S> {
    fn arbitrary(g: &mut Gen) -> Self {
        let (mut size, mut modes) = (1, Vec::new());
        for _ in 0..below(g, 8) {
            let extent = [1, 2, 2, 2, 3, 4, 4, 6][below(g, 8) as usize];
            if size * extent <= MAX_SIZE {
                modes.push(Mode::new(extent, S::draw(g, size)));
                size *= extent;
            }
        }
        // Half of the time not in the order of the steps.
        if bool::arbitrary(g) {
            for at in (1..modes.len()).rev() {
                modes.swap(at, below(g, at as u64 + 1) as usize);
            }
        }
        Self(modes)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let modes = self.0.clone();
        Box::new((0..modes.len()).map(move |at| {
            let mut modes = modes.clone();
            modes.remove(at);
            Self(modes)
        }))
    }
}

impl<S: Drawn> List<S> {
    /// The same modes as one layout.
    pub(crate) fn layout(&self) -> Layout<S> {
        Layout::from_flat(self.0.iter().copied().collect()).expect("small")
    }
}

/// The same function in other modes.
///
/// Every byte splits one mode at a divisor, or inserts a mode of extent 1 somewhere.
pub(crate) fn cut<S: Slow>(modes: &[Mode<S>], where_to: &[u8]) -> Vec<Mode<S>> {
    let mut modes = modes.to_vec();
    for &byte in where_to.iter().take(8) {
        let byte = usize::from(byte);
        let at = byte % (modes.len() + 1);
        let low = byte as i64 % 5 + 1;
        match modes.get(at).copied() {
            Some(mode) if mode.extent % low == 0 && low > 1 => {
                modes[at].extent = low;
                modes.insert(at + 1, Mode::new(mode.extent / low, mode.stride.times(low)));
            }
            Some(mode) => modes.insert(at, Mode::new(1, mode.stride)),
            None => modes.push(Mode::new(1, S::ZERO)),
        }
    }
    modes
}

/// 5,000 random cases, or 200,000; discarded ones do not count.
pub(crate) fn check<A: Testable>(property: Property, law: A) {
    let tests = Sweep::asked().count(5_000, 200_000);
    let passed = property.tests(tests).holds(law);
    assert!(passed * 2 >= tests, "only {passed} cases");
}
