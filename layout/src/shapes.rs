//! Arithmetic of shapes and coordinates: tuples of the same nesting, or less deep.
//!
//! An integer paired with a tuple is distributed among its components from the left, by
//! [`ceil_div`](IntTuple::ceil_div) and [`shape_div`](IntTuple::shape_div): the rest after the first
//! component goes to the second.
//!
//! ```text
//! (8,6) / 4  =  (8/4, 6/1)  =  (2,6)                  (2,8) / 4  =  (1, 8/2)  =  (1,4)
//! ```
//!
//! Three relations between shapes describe how their components nest, each as deep as the first is:
//!
//! ```text
//! compatible   size of the part of B there  =  a                 congruent          same nesting
//! weakly       a divides it                                      weakly congruent   B is nested like A, or deeper
//! softly       it divides a
//! ```

use crate::{Error, IntTuple, Layout, Quantity};

/// Returns `a / b` rounded up, of positive numbers.
fn ceil_div(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

/// Returns `a / b` where `b` divides `a`, and 1 where `a` divides `b`.
fn shape_div(a: i64, b: i64) -> Option<i64> {
    if a % b == 0 { Some(a / b) } else { (b % a == 0).then_some(1) }
}

impl IntTuple {
    /// Fails for a leaf that is less than 1.
    fn check_extents(&self) -> Result<(), Error> {
        match self.leaves().iter().find(|leaf| **leaf < 1) {
            Some(&extent) => Err(Error::BadExtent { extent }),
            None => Ok(()),
        }
    }

    /// Returns the error for two tuples of different nesting.
    fn not_congruent<T>(&self, other: &Self) -> Result<T, Error> {
        Err(Error::NotCongruent { shape: Box::new(self.clone()), stride: Box::new(other.clone()) })
    }

    /// Divides by a tuple component by component, by an integer from the left; `one` divides two integers.
    fn divide(&self, other: &Self, one: &impl Fn(i64, i64) -> Option<i64>) -> Result<(Self, Self), Error> {
        match (self.as_scalar(), other.as_scalar()) {
            (Some(a), _) => {
                let b = other.product()?;
                match (one(a, b), one(b, a)) {
                    (Some(quotient), Some(rest)) => Ok((quotient.into(), rest.into())),
                    (Some(_) | None, _) => self.not_divided(other),
                }
            }
            (None, Some(_)) => {
                let mut rest = other.clone();
                let mut parts = Vec::with_capacity(self.rank());
                for mode in self.modes() {
                    let (part, left) = mode.divide(&rest, one)?;
                    parts.push(part);
                    rest = left;
                }
                Ok((Self::tuple(&parts)?, rest))
            }
            (None, None) => {
                if self.rank() < other.rank() {
                    return self.not_congruent(other);
                }
                let others = other.modes().chain(std::iter::repeat(Self::scalar(1)));
                let parts: Result<Vec<Self>, Error> =
                    self.modes().zip(others).map(|(mode, by)| Ok(mode.divide(&by, one)?.0)).collect();
                Ok((Self::tuple(&parts?)?, Self::scalar(1)))
            }
        }
    }

    fn not_divided<T>(&self, other: &Self) -> Result<T, Error> {
        let boundary = other.product()?;
        Err(Error::NotNesting { left: Box::new(self.clone()), right: Box::new(other.clone()), boundary })
    }

    /// Returns the number of parts of `other` that cover this: every leaf divided and rounded up.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(10,(8,6))".parse()?;
    /// assert_eq!(shape.ceil_div(&"(4,(8,4))".parse()?)?.to_string(), "(3,(1,2))");
    /// assert_eq!(shape.ceil_div(&"(4,16)".parse()?)?.to_string(), "(3,(1,3))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent` for numbers less than 1, `not_congruent` if `other` has more components, `overflow`.
    #[doc(hidden)]
    pub fn ceil_div(&self, other: &Self) -> Result<Self, Error> {
        self.check_extents()?;
        other.check_extents()?;
        self.divide(other, &|a, b| Some(ceil_div(a, b))).map(|(quotient, _)| quotient)
    }

    /// Divides a shape by another where one divides the other.
    ///
    /// The result is the quotient, or 1 where the divisor is not exhausted.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(2,8)".parse()?;
    /// assert_eq!(shape.shape_div(&4.into())?.to_string(), "(1,4)");
    /// assert_eq!(shape.shape_div(&3.into()).unwrap_err().code(), "not_nesting");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ceil_div`](Self::ceil_div), and `not_nesting` where neither divides the other.
    pub fn shape_div(&self, other: &Self) -> Result<Self, Error> {
        self.check_extents()?;
        other.check_extents()?;
        self.divide(other, &shape_div).map(|(quotient, _)| quotient)
    }

    /// Multiplies every leaf by the number, or the size of the tuple, at its position.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(3,4)".parse()?;
    /// assert_eq!(shape.elem_scale(&"(2,(5,7))".parse()?)?.to_string(), "(6,140)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_congruent` if `other` is not nested like this, or deeper; `overflow`.
    #[doc(hidden)]
    pub fn elem_scale(&self, other: &Self) -> Result<Self, Error> {
        if let Some(leaf) = self.as_scalar() {
            let by = other.product()?;
            let overflow = Error::Overflow { quantity: Quantity::Size, left: leaf, right: by };
            return leaf.checked_mul(by).map(Self::scalar).ok_or(overflow);
        }
        if other.as_scalar().is_some() || self.rank() != other.rank() {
            return self.not_congruent(other);
        }
        let parts: Result<Vec<Self>, Error> =
            self.modes().zip(other.modes()).map(|(mode, by)| mode.elem_scale(&by)).collect();
        Self::tuple(&parts?)
    }

    /// Returns the product of every component.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// assert_eq!("(2,(3,4))".parse::<IntTuple>()?.product_each()?.to_string(), "(2,12)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `overflow`.
    pub fn product_each(&self) -> Result<Self, Error> {
        if self.as_scalar().is_some() {
            return Ok(self.clone());
        }
        let products: Result<Vec<i64>, Error> = self.modes().map(|mode| mode.product()).collect();
        Self::flat(&products?)
    }

    /// Returns the inner product: the sum of the products of the leaves at the same position.
    ///
    /// An example is a coordinate and its strides.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// assert_eq!("(1,(2,3))".parse::<IntTuple>()?.inner_product(&"(1,(4,8))".parse()?)?, 33);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_congruent`, `overflow`.
    pub fn inner_product(&self, other: &Self) -> Result<i64, Error> {
        if !self.is_congruent(other) {
            return self.not_congruent(other);
        }
        self.leaves().iter().zip(other.leaves()).try_fold(0_i64, |sum, (&left, &right)| {
            let term = left.checked_mul(right).and_then(|term| sum.checked_add(term));
            term.ok_or(Error::Overflow { quantity: Quantity::Value, left, right })
        })
    }

    /// Expands an index, or a coordinate nested less deep than the shape, to a coordinate of the shape.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(4,(2,3))".parse()?;
    /// assert_eq!(shape.coordinate(&13.into())?.to_string(), "(1,(1,1))");
    /// assert_eq!(shape.coordinate(&"(1,3)".parse()?)?.to_string(), "(1,(1,1))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`; `out_of_domain`, `no_such_mode` if the coordinate is outside this shape.
    pub fn coordinate(&self, index: &Self) -> Result<Self, Error> {
        let whole = Layout::column_major_of(self)?;
        whole.coordinates(whole.offset_at(index)?)
    }

    /// Returns `true` if `other` is nested like this or deeper.
    ///
    /// Every tuple of this one is then a tuple of as many components in `other`.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(4,6)".parse()?;
    /// assert!(shape.is_weakly_congruent(&"(1,(2,3))".parse()?));
    /// assert!(!shape.is_weakly_congruent(&"(1,2,3)".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_weakly_congruent(&self, other: &Self) -> bool {
        self.is_nested_in(other, &|_, _| true)
    }

    /// Returns `true` if every leaf divides the size of the part of `other` at its position.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(4,3)".parse()?;
    /// assert!(shape.is_weakly_compatible(&"((2,4),6)".parse()?));
    /// assert!(!shape.is_weakly_compatible(&"((2,3),6)".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_weakly_compatible(&self, other: &Self) -> bool {
        self.is_nested_in(other, &|mine, size| mine != 0 && size % mine == 0)
    }

    /// Returns `true` if the size of the part of `other` at its position divides every leaf.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let shape: IntTuple = "(8,6)".parse()?;
    /// assert!(shape.is_softly_compatible(&"((2,2),3)".parse()?));
    /// assert!(!shape.is_softly_compatible(&"((2,3),3)".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_softly_compatible(&self, other: &Self) -> bool {
        self.is_nested_in(other, &|mine, size| size != 0 && mine % size == 0)
    }

    fn is_nested_in(&self, other: &Self, leaf: &impl Fn(i64, i64) -> bool) -> bool {
        if let Some(mine) = self.as_scalar() {
            // i64::MIN % -1 does not fit; extents are never so small.
            return other
                .product()
                .is_ok_and(|size| mine != i64::MIN && size != i64::MIN && leaf(mine, size));
        }
        // Recursion is as deep as the tuple, which is at most MAX_DEPTH.
        other.as_scalar().is_none()
            && self.rank() == other.rank()
            && self.modes().zip(other.modes()).all(|(mine, other)| mine.is_nested_in(&other, leaf))
    }
}
