//! Numbers that look drawn, the same every time.

/// A linear congruential generator modulo `2^64`, which returns the upper bits.
///
/// It is small, so that a failure is reproducible.
///
/// ```
/// use reshard_test_support::Random;
/// let mut random = Random(3);
/// let drawn: Vec<usize> = (0..4).map(|_| random.below(10)).collect();
/// assert_eq!(drawn, (0..4).scan(Random(3), |r, _| Some(r.below(10))).collect::<Vec<_>>());
/// ```
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number; its lower bits have short periods.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// Returns one of `0 .. n`.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() >> 33) as usize % n
    }

    /// Returns one of a list.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
