//! Picking modes: some of them, in another order, with others before, after or in place of them.
//!
//! ```text
//! select(A, k_1, k_2, ...)  =  (A_{k_1}, A_{k_2}, ...)        append(A, X)      =  (A_0, ..., A_{n-1}, X)
//! take(A, b, e)             =  (A_b, ..., A_{e-1})            prepend(A, X)     =  (X, A_0, ..., A_{n-1})
//!                                                             replace(A, k, X)  =  (A_0, ..., X, ..., A_{n-1})
//! ```
//!
//! A scalar is its only mode, and the result is a tuple, of one mode too; only the mode of a scalar is
//! replaced by the other layout itself. Tuples of integers work in the same manner.

use std::ops::Range;

use crate::layout::Tuple;
use crate::stride::Stride;
use crate::{Counted, Error, IntTuple, Layout};

/// A type that has modes and can be built from them.
trait Parts: Sized + Clone {
    fn parts(&self) -> Vec<Self>;
    fn whole(parts: Vec<Self>) -> Result<Self, Error>;
    fn is_one(&self) -> bool;
}

impl<S: Stride> Parts for Layout<S> {
    fn parts(&self) -> Vec<Self> {
        self.modes().collect()
    }

    fn whole(parts: Vec<Self>) -> Result<Self, Error> {
        Tuple::collect(parts.into_iter().map(Ok))
    }

    fn is_one(&self) -> bool {
        self.is_scalar()
    }
}

impl Parts for IntTuple {
    fn parts(&self) -> Vec<Self> {
        self.modes().collect()
    }

    fn whole(parts: Vec<Self>) -> Result<Self, Error> {
        Self::tuple(&parts)
    }

    fn is_one(&self) -> bool {
        self.as_scalar().is_some()
    }
}

fn select<P: Parts>(whole: &P, modes: &[usize]) -> Result<P, Error> {
    let parts = whole.parts();
    let rank = parts.len();
    if modes.is_empty() {
        return Err(Error::BadExtent { extent: 0 });
    }
    let one = |&mode: &usize| parts.get(mode).cloned().ok_or(Error::NoSuchMode { mode, rank });
    P::whole(modes.iter().map(one).collect::<Result<_, _>>()?)
}

fn take<P: Parts>(whole: &P, range: Range<usize>) -> Result<P, Error> {
    let parts = whole.parts();
    if range.is_empty() || range.end > parts.len() {
        return Err(Error::NoSuchRange { begin: range.start, end: range.end, rank: parts.len() });
    }
    P::whole(parts.into_iter().skip(range.start).take(range.len()).collect())
}

fn insert<P: Parts>(whole: &P, at: impl Fn(usize) -> usize, part: &P, rank: usize) -> Result<P, Error> {
    let mut parts = whole.parts();
    if rank < parts.len() {
        return Err(Error::TooManyModes { asked: rank, rank: parts.len() });
    }
    if rank > crate::MAX_LEAVES {
        return Err(Error::TooLarge { what: Counted::Leaves, limit: crate::MAX_LEAVES });
    }
    let missing = rank - parts.len();
    let place = at(parts.len());
    parts.splice(place..place, std::iter::repeat_n(part.clone(), missing));
    P::whole(parts)
}

fn replace<P: Parts>(whole: &P, mode: usize, part: &P) -> Result<P, Error> {
    let mut parts = whole.parts();
    let rank = parts.len();
    let place = parts.get_mut(mode).ok_or(Error::NoSuchMode { mode, rank })?;
    *place = part.clone();
    if whole.is_one() { Ok(part.clone()) } else { P::whole(parts) }
}

macro_rules! picking {
    ($type:ty, $name:literal, [$($generics:tt)*], $whole:literal, $selected:literal, $taken:literal, $after:literal,
     $padded:literal, $before:literal, $replaced:literal) => {
        impl $($generics)* $type {
            /// Returns these modes, in this order.
            ///
            /// ```
            /// # use reshard_layout::{IntTuple, Layout};
            #[doc = concat!("let whole: ", $name, " = \"", $whole, "\".parse()?;")]
            #[doc = concat!("assert_eq!(whole.select(&[2, 0])?.to_string(), \"", $selected, "\");")]
            /// # Ok::<(), reshard_layout::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// `no_such_mode`, `bad_extent` for no modes.
            pub fn select(&self, modes: &[usize]) -> Result<Self, Error> {
                select(self, modes)
            }

            /// Returns the modes of a range, which is not empty.
            ///
            /// ```
            /// # use reshard_layout::{IntTuple, Layout};
            #[doc = concat!("let whole: ", $name, " = \"", $whole, "\".parse()?;")]
            #[doc = concat!("assert_eq!(whole.take(0..2)?.to_string(), \"", $taken, "\");")]
            /// # Ok::<(), reshard_layout::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// `no_such_mode`.
            pub fn take(&self, range: Range<usize>) -> Result<Self, Error> {
                take(self, range)
            }

            /// Returns the modes and one more.
            ///
            /// ```
            /// # use reshard_layout::{IntTuple, Layout};
            #[doc = concat!("let whole: ", $name, " = \"", $whole, "\".parse()?;")]
            #[doc = concat!("assert_eq!(whole.append(&whole.mode(0)?)?.to_string(), \"", $after, "\");")]
            /// # Ok::<(), reshard_layout::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// `too_deep`, `too_large`, `overflow`.
            pub fn append(&self, mode: &Self) -> Result<Self, Error> {
                self.append_to(self.rank() + 1, mode)
            }

            /// Returns the modes, with copies of another one appended up to `rank` modes.
            ///
            /// ```
            /// # use reshard_layout::{IntTuple, Layout};
            #[doc = concat!("let whole: ", $name, " = \"", $whole, "\".parse()?;")]
            #[doc = concat!("assert_eq!(whole.append_to(5, &whole.mode(0)?)?.to_string(), \"", $padded, "\");")]
            /// # Ok::<(), reshard_layout::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`append`](Self::append); `no_such_mode` if there are more than `rank` modes already.
            #[doc(hidden)]
            pub fn append_to(&self, rank: usize, mode: &Self) -> Result<Self, Error> {
                insert(self, |end| end, mode, rank)
            }

            /// Returns one more mode and the modes.
            ///
            /// ```
            /// # use reshard_layout::{IntTuple, Layout};
            #[doc = concat!("let whole: ", $name, " = \"", $whole, "\".parse()?;")]
            #[doc = concat!("assert_eq!(whole.prepend(&whole.mode(0)?)?.to_string(), \"", $before, "\");")]
            /// # Ok::<(), reshard_layout::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`append`](Self::append).
            pub fn prepend(&self, mode: &Self) -> Result<Self, Error> {
                self.prepend_to(self.rank() + 1, mode)
            }

            /// Returns the modes, with copies of another mode before them, up to `rank` modes.
            ///
            /// # Errors
            ///
            /// As [`append_to`](Self::append_to).
            #[doc(hidden)]
            pub fn prepend_to(&self, rank: usize, mode: &Self) -> Result<Self, Error> {
                insert(self, |_| 0, mode, rank)
            }

            /// Returns the modes, with another one in place of mode `at`.
            ///
            /// ```
            /// # use reshard_layout::{IntTuple, Layout};
            #[doc = concat!("let whole: ", $name, " = \"", $whole, "\".parse()?;")]
            #[doc = concat!("assert_eq!(whole.replace(1, &whole.mode(0)?)?.to_string(), \"", $replaced, "\");")]
            /// # Ok::<(), reshard_layout::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`append`](Self::append), and `no_such_mode`.
            pub fn replace(&self, at: usize, mode: &Self) -> Result<Self, Error> {
                replace(self, at, mode)
            }
        }
    };
}

picking!(Layout<S>, "Layout", [<S: Stride>], "(2,(3,5),7):(1,(2,6),30)", "(7,2):(30,1)", "(2,(3,5)):(1,(2,6))",
    "(2,(3,5),7,2):(1,(2,6),30,1)", "(2,(3,5),7,2,2):(1,(2,6),30,1,1)", "(2,2,(3,5),7):(1,1,(2,6),30)",
    "(2,2,7):(1,1,30)");
picking!(
    IntTuple,
    "IntTuple",
    [],
    "(2,(3,5),7)",
    "(7,2)",
    "(2,(3,5))",
    "(2,(3,5),7,2)",
    "(2,(3,5),7,2,2)",
    "(2,2,(3,5),7)",
    "(2,2,7)"
);

impl IntTuple {
    /// Returns the components of a range made one component.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// assert_eq!("(2,3,5)".parse::<IntTuple>()?.group(1..3)?.to_string(), "(2,(3,5))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode` if the range is empty or ends beyond the rank, `too_deep`.
    pub fn group(&self, range: Range<usize>) -> Result<Self, Error> {
        let group = self.take(range.clone())?;
        let mut parts = self.parts();
        parts.splice(range, [group]);
        Self::whole(parts)
    }
}
