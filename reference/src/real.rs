//! The types of elements.

/// The properties of an element type that ops use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    /// The distance from 1 to the next number.
    pub(crate) epsilon: f64,
    /// The greatest finite number.
    pub(crate) greatest: f64,
    /// The next greater number.
    pub(crate) next: fn(f64) -> f64,
}

mod sealed {
    use super::Element;

    /// Conversion of a number type to the type in which ops compute, and back.
    pub trait Rounded: Copy + 'static {
        #[expect(private_interfaces, reason = "only this crate reads it")]
        const ELEMENT: Element;
        fn wide(self) -> f64;
        fn rounded(x: f64) -> Self;
    }
}

pub(crate) use sealed::Rounded;

/// A type of elements: `f32` or `f64`.
pub trait Real: Rounded {}

impl Real for f32 {}
impl Real for f64 {}

impl Rounded for f64 {
    #[expect(private_interfaces, reason = "only this crate reads it")]
    const ELEMENT: Element = Element { epsilon: f64::EPSILON, greatest: f64::MAX, next: f64::next_up };
    fn wide(self) -> f64 {
        self
    }
    fn rounded(x: f64) -> f64 {
        x
    }
}

impl Rounded for f32 {
    #[expect(private_interfaces, reason = "only this crate reads it")]
    const ELEMENT: Element = Element {
        epsilon: f32::EPSILON as f64,
        greatest: f32::MAX as f64,
        next: |x| f64::from((x as f32).next_up()),
    };
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn rounded(x: f64) -> f32 {
        x as f32
    }
}
