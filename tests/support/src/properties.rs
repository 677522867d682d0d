//! Properties of random cases, whose verdict is the same every time: the seed is fixed unless another one is
//! requested. A failure prints the command that draws the same cases again.

use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use quickcheck::{Gen, QuickCheck, Testable};

use crate::{Sweep, seed};

/// The default seed.
const SEED: u64 = 1;

/// Returns the seed that `RESHARD_SEED` requests; all properties of a process use the same one.
fn asked() -> u64 {
    static ASKED: OnceLock<u64> = OnceLock::new();
    // Each eighth of a sweep draws other cases.
    *ASKED.get_or_init(|| seed("RESHARD_SEED", SEED + Sweep::asked().seed()))
}

/// A property of random cases; [`property!`](crate::property) creates one within its test.
///
/// ```
/// use reshard_test_support::{Arbitrary, property};
/// property!().tests(500).holds((|a, b| a ^ b == b ^ a) as fn(i64, i64) -> bool);
/// let (mut some, mut large) = (0, 0);
/// property!().size(30).draws(|g| {
///     for _ in 0..100 {
///         some += 1;
///         large += usize::from(u8::arbitrary(g) > 200);
///     }
///     assert!(large > 5);
/// });
/// assert_eq!(some, 100);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Property {
    package: &'static str,
    test: &'static str,
    seed: u64,
    tests: u64,
    attempts: u64,
    size: usize,
}

impl Property {
    /// Returns the property of a test in a package.
    #[doc(hidden)]
    pub fn of(package: &'static str, place: &'static str) -> Property {
        // `krate::module::test`, and within a test `::{{closure}}` after it.
        let place = place.split_once("::").map_or(place, |(_, test)| test);
        let test = place.split_once("::{{").map_or(place, |(test, _)| test);
        Property { package, test, seed: asked(), tests: 100, attempts: 10_000, size: 100 }
    }

    /// Sets the number of cases that are not discarded, in place of 100.
    ///
    /// For each, 20 are drawn at most, and 10,000 in all where that is more.
    pub fn tests(self, tests: u64) -> Property {
        Property { tests, attempts: tests.saturating_mul(20).max(10_000), ..self }
    }

    /// Sets the size of random cases, the maximum length of a list: 100 by default.
    pub fn size(self, size: usize) -> Property {
        Property { size, ..self }
    }

    /// Draws the cases, and returns the number of those that were not discarded.
    ///
    /// # Panics
    ///
    /// If the property does not hold for one, with the command that draws it again.
    pub fn holds(self, law: impl Testable) -> u64 {
        // Sets all options of the library that it would otherwise read from the environment.
        let mut cases = QuickCheck::new()
            .rng(self.drawn())
            .tests(self.tests)
            .max_tests(self.attempts)
            .min_tests_passed(0);
        let mut passed = 0;
        self.told(|| {
            match cases.quicktest(law) {
                Ok(count) => passed = count,
                // The message is that of the library, which shows it only when it panics.
                Err(failed) => QuickCheck::new().tests(1).max_tests(1).quickcheck(failed),
            }
        });
        passed
    }

    /// Runs a test that draws its own cases.
    ///
    /// # Panics
    ///
    /// If the test panics, with the command that draws the same cases again.
    pub fn draws<T>(self, test: impl FnOnce(&mut Gen) -> T) -> T {
        let mut drawn = self.drawn();
        self.told(|| test(&mut drawn))
    }

    fn drawn(&self) -> Gen {
        Gen::from_size_and_seed(self.size, self.seed)
    }

    /// Continues a panic with the command appended to its message.
    fn told<T>(&self, test: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(test)).unwrap_or_else(|why| {
            let text =
                (why.downcast_ref::<String>().map(String::as_str)).or(why.downcast_ref::<&str>().copied());
            // The message was printed when the panic began.
            eprintln!("again: {self}");
            match text {
                Some(text) => resume_unwind(Box::new(format!("{text}\nagain: {self}"))),
                None => resume_unwind(why),
            }
        })
    }
}

/// The command that draws the same cases again.
impl Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(sweep) = std::env::var("RESHARD_EXHAUSTIVE") {
            write!(f, "RESHARD_EXHAUSTIVE={sweep} ")?;
        }
        write!(f, "RESHARD_SEED={} cargo test -p {} {}", self.seed, self.package, self.test)
    }
}

/// The [`Property`] of the test that this is written in.
#[macro_export]
macro_rules! property {
    () => {
        $crate::Property::of(env!("CARGO_PKG_NAME"), ::std::any::type_name_of_val(&|| ()))
    };
}

/// Defines tests that are properties of random arguments: 100 cases of each, from the seed in `RESHARD_SEED`.
///
/// ```
/// use reshard_test_support::properties;
/// properties! {
///     /// Sums have no order.
///     fn addition_commutes(a: u32, b: u32) -> bool {
///         a.wrapping_add(b) == b.wrapping_add(a)
///     }
/// }
/// ```
#[macro_export]
macro_rules! properties {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty { $($code:tt)* }
    )*) => {$(
        #[test]
        $(#[$meta])*
        fn $name() {
            fn law($($argument: $type),*) -> $result { $($code)* }
            $crate::property!().holds(law as fn($($type),*) -> $result);
        }
    )*};
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use quickcheck::{Arbitrary, TestResult};

    use super::*;

    properties! {
        fn what_holds_passes(a: u8, b: Vec<i64>) -> bool {
            usize::from(a) + b.len() >= b.len()
        }

        #[should_panic(expected = "cargo test -p reshard-test-support properties::tests::what_fails_says_how_to_repeat_it")]
        fn what_fails_says_how_to_repeat_it(a: u64) -> bool {
            a == 0
        }

        #[should_panic(expected = "Error: \"this number is odd\"\nagain: RESHARD_")]
        fn what_panics_says_so_and_how_to_repeat_it(a: u64) -> bool {
            assert!(a.is_multiple_of(2), "this number is odd");
            true
        }
    }

    #[test]
    #[should_panic(
        expected = "RESHARD_SEED=7 cargo test -p reshard-test-support properties::tests::a_draw_that_fails"
    )]
    fn a_draw_that_fails() {
        Property { seed: 7, ..property!() }.draws(|_| panic!("an expected failure"));
    }

    #[test]
    fn one_seed_draws_the_same_cases_and_another_one_others() {
        static SEEN: Mutex<Vec<(u64, Vec<i8>)>> = Mutex::new(Vec::new());
        fn law(a: u64, b: Vec<i8>) -> bool {
            SEEN.lock().unwrap().push((a, b));
            true
        }
        let seen = |seed| {
            assert_eq!(Property { seed, ..property!() }.holds(law as fn(u64, Vec<i8>) -> bool), 100);
            std::mem::take(&mut *SEEN.lock().unwrap())
        };
        let first = seen(1);
        assert_eq!((first.len(), &first), (100, &seen(1)));
        assert_ne!(first, seen(2));
        let drawn = |seed| Property { seed, ..property!() }.draws(|g| [(); 4].map(|()| u64::arbitrary(g)));
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn discarded_cases_are_drawn_again_and_not_counted() {
        let law = |a: u64| if a.is_multiple_of(3) { TestResult::discard() } else { TestResult::passed() };
        assert_eq!(property!().tests(20_000).holds(law as fn(u64) -> TestResult), 20_000);
        let law = |_: u64| TestResult::discard();
        assert_eq!(property!().holds(law as fn(u64) -> TestResult), 0);
    }
}
