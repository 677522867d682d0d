//! Ties: the factors of several ops, tied to one another by the dims that they make up.
//!
//! A dim is a number in mixed radix, most significant digit first. Two lists of digits of one dim are tied
//! from the least significant one on, by splitting the longer one:
//!
//! ```text
//! 24 as (a) by one op, as (hg) with h = 4, g = 6 by another         a = (hg)
//! 24 as (ab) with 4, 6, as (cd) with 6, 4                           a = (hu), b = (vl), c = (hw), d = (zl), h = l = 2:
//!                                                                   u v and w z do not nest, and no strategy may shard them
//! ```

/// Ties by number: a digit equals another one, is the product of two, or is a loop.
#[derive(Default)]
pub(super) struct Ties {
    pub(super) size: Vec<usize>,
    same: Vec<usize>,
    split: Vec<Option<(usize, usize)>>,
    /// `true` for digits that may not be sharded.
    pub(super) whole: Vec<bool>,
    /// `true` for digits that every split must divide.
    pub(super) even: Vec<bool>,
    /// `true` for digits whose shards need their region.
    pub(super) region: Vec<bool>,
}

impl Ties {
    pub(super) fn add(&mut self, size: usize) -> usize {
        self.size.push(size);
        self.same.push(self.same.len());
        self.split.push(None);
        self.whole.push(false);
        self.even.push(false);
        self.region.push(false);
        self.size.len() - 1
    }

    fn root(&self, mut x: usize) -> usize {
        while self.same[x] != x {
            x = self.same[x];
        }
        x
    }

    /// Returns the loops whose product is a list of digits.
    pub(super) fn leaves(&self, list: &[usize]) -> Vec<usize> {
        let mut out = Vec::new();
        let mut open: Vec<usize> = list.iter().rev().copied().collect();
        while let Some(x) = open.pop() {
            let x = self.root(x);
            match self.split[x] {
                Some((high, low)) => open.extend([low, high]),
                None => out.push(x),
            }
        }
        out
    }

    /// Ties two lists that are one number in mixed radix; returns `true` if that changed anything.
    pub(super) fn tie(&mut self, a: &[usize], b: &[usize]) -> bool {
        let (a, b) = (self.leaves(a), self.leaves(b));
        if a == b {
            return false;
        }
        let sizes = |list: &[usize]| list.iter().map(|&x| self.size[x]).collect::<Vec<_>>();
        if sizes(&a) == sizes(&b) {
            let mut news = false;
            a.iter().zip(&b).for_each(|(&x, &y)| news |= self.join(x, y));
            return news;
        }
        if a.iter().chain(&b).any(|&x| self.size[x] == 0) {
            return self.close(&a) | self.close(&b);
        }
        // A factor of one iteration ties nothing.
        let mut news = false;
        let mut several = |list: Vec<usize>, ties: &mut Ties| {
            let (one, more): (Vec<usize>, Vec<usize>) = list.into_iter().partition(|&x| ties.size[x] == 1);
            news |= ties.close(&one);
            more
        };
        let (mut a, mut b) = (several(a, self), several(b, self));
        while let (Some(x), Some(y)) = (a.pop(), b.pop()) {
            let (m, n) = (self.size[x], self.size[y]);
            if m == n {
                news |= self.join(x, y);
            } else if n.is_multiple_of(m) {
                let (high, low) = self.part(y, m);
                news = true;
                self.join(x, low);
                b.push(high);
            } else if m.is_multiple_of(n) {
                let (high, low) = self.part(x, n);
                news = true;
                self.join(low, y);
                a.push(high);
            } else if gcd(m, n) > 1 {
                news = true;
                let low = gcd(m, n);
                let (x, y) = (self.part(x, low), self.part(y, low));
                self.join(x.1, y.1);
                a.push(x.0);
                b.push(y.0);
            } else {
                news |= self.close(&[x, y]);
                news |= self.close_up(&mut a, &mut b, m, n);
            }
        }
        news
    }

    /// Closes digits that do not nest, up to the next position where both numbers have one.
    ///
    /// `m` and `n` are the products of the less significant digits on either side.
    fn close_up(&mut self, a: &mut Vec<usize>, b: &mut Vec<usize>, mut m: usize, mut n: usize) -> bool {
        let mut news = false;
        while m != n {
            let (list, behind, other) = if m < n { (&mut *a, &mut m, n) } else { (&mut *b, &mut n, m) };
            let Some(z) = list.pop() else { break };
            // Up to the least common multiple.
            let lacking = other / gcd(*behind, other);
            if self.size[z] != lacking && self.size[z].is_multiple_of(lacking) {
                let (high, low) = self.part(z, lacking);
                list.push(high);
                self.close(&[low]);
                news = true;
                *behind = behind.saturating_mul(lacking);
            } else {
                news |= self.close(&[z]);
                *behind = behind.saturating_mul(self.size[z]);
            }
        }
        news
    }

    fn join(&mut self, x: usize, y: usize) -> bool {
        let (x, y) = (self.root(x), self.root(y));
        if x == y {
            return false;
        }
        self.same[y] = x;
        self.whole[x] |= self.whole[y];
        self.even[x] |= self.even[y];
        self.region[x] |= self.region[y];
        true
    }

    /// Marks these as not shardable; returns `true` if that changed anything.
    pub(super) fn close(&mut self, list: &[usize]) -> bool {
        let mut news = false;
        for x in self.leaves(list) {
            news |= !core::mem::replace(&mut self.whole[x], true);
        }
        news
    }

    /// Splits a loop in two, the minor one of size `low`.
    fn part(&mut self, x: usize, low: usize) -> (usize, usize) {
        let (whole, even, region) = (self.whole[x], self.even[x], self.region[x]);
        let parts = (self.add(self.size[x] / low), self.add(low));
        for part in [parts.0, parts.1] {
            (self.whole[part], self.even[part], self.region[part]) = (whole, even, region);
        }
        self.split[x] = Some(parts);
        parts
    }
}

/// Returns the greatest common divisor; 0 and `n` have `n`.
pub fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
