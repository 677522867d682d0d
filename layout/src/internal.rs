//! Internals that the crates of this workspace share.

use std::fmt;

/// Returns a number of things: `1 dim`, `2 dims`.
///
/// ```
/// use reshard_layout::internal::counted;
/// assert_eq!((counted(1, "axis", "axes").to_string(), counted(0, "axis", "axes").to_string()), ("1 axis".into(), "0 axes".into()));
/// ```
pub fn counted<N: fmt::Display>(number: N, one: &'static str, many: &'static str) -> impl fmt::Display {
    struct Counted<N>(N, &'static str, &'static str);

    impl<N: fmt::Display> fmt::Display for Counted<N> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let number = self.0.to_string();
            let noun = if number == "1" { self.1 } else { self.2 };
            write!(f, "{number} {noun}")
        }
    }

    Counted(number, one, many)
}
