//! The extent of a sweep: a sample with the tests, all of it, or an eighth.

/// The number of cases of a sweep, set by `RESHARD_EXHAUSTIVE`.
///
/// ```text
/// unset            a sample, in seconds
/// all              every case, in minutes
/// a number k       the eighth of them whose number is k modulo 8
/// ```
///
/// ```
/// use reshard_test_support::Sweep;
/// assert!((0..8).all(|k| (0..100).filter(|&case| Sweep::Eighth(k).takes(case)).count() >= 12));
/// assert_eq!((Sweep::Sample.count(5, 800), Sweep::All.count(5, 800), Sweep::Eighth(3).count(5, 800)), (5, 800, 100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// The sample that runs with the tests.
    Sample,
    /// Everything.
    All,
    /// One eighth of everything, below 8.
    Eighth(u64),
}

impl Sweep {
    /// Returns the sweep that `RESHARD_EXHAUSTIVE` requests.
    ///
    /// # Panics
    ///
    /// If it is neither `all` nor a number.
    pub fn asked() -> Sweep {
        match std::env::var("RESHARD_EXHAUSTIVE").as_deref() {
            Err(_) | Ok("") => Sweep::Sample,
            Ok("all") => Sweep::All,
            Ok(number) => {
                let k: u64 =
                    number.parse().expect("RESHARD_EXHAUSTIVE must be `all` or the number of an eighth");
                Sweep::Eighth(k % 8)
            }
        }
    }

    /// Returns `true` if the larger space is swept, or an eighth of it.
    pub fn is_exhaustive(self) -> bool {
        self != Sweep::Sample
    }

    /// Returns `true` if the case of this number runs. In a sample all do.
    pub fn takes(self, case: u64) -> bool {
        match self {
            Sweep::Sample | Sweep::All => true,
            Sweep::Eighth(k) => case % 8 == k,
        }
    }

    /// Returns `true` if the case of this number runs, where a sample takes about one in `n`.
    ///
    /// The choice is independent of any period in the order of the cases. An eighth has one in eight, and the
    /// eighths cover all.
    ///
    /// ```
    /// use reshard_test_support::Sweep;
    /// let taken = |sweep: Sweep| (0..80_000).filter(|&case| sweep.picks(16, case)).count();
    /// assert!((4_700..5_300).contains(&taken(Sweep::Sample)) && (9_700..10_300).contains(&taken(Sweep::Eighth(3))));
    /// assert_eq!((0..8).map(|k| taken(Sweep::Eighth(k))).sum::<usize>(), taken(Sweep::All));
    /// ```
    pub fn picks(self, n: u64, case: usize) -> bool {
        // The last step of SplitMix64: cases in order fall into classes as random ones would.
        let mut mixed = (case as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        match self {
            Sweep::Sample => mixed.is_multiple_of(n),
            Sweep::All => true,
            Sweep::Eighth(k) => mixed % 8 == k,
        }
    }

    /// Returns an iterator-like picker of the cases of a loop, which picks as [`picks`](Sweep::picks) does.
    ///
    /// ```
    /// use reshard_test_support::Sweep;
    /// let mut cases = Sweep::Sample.picking(16);
    /// assert!((0..1_000).all(|number| cases.picks_next() == Sweep::Sample.picks(16, number)));
    /// ```
    pub fn picking(self, n: u64) -> Picking {
        Picking { sweep: self, n, next: 0 }
    }

    /// Returns `true` if the case of this number runs, where a sample takes one in `n`.
    ///
    /// The eighths cover all.
    pub fn takes_one_in(self, n: usize, case: usize) -> bool {
        match self {
            Sweep::Sample => case.is_multiple_of(n),
            Sweep::All => true,
            Sweep::Eighth(k) => (case + k as usize).is_multiple_of(n.min(8)),
        }
    }

    /// Returns `n` if one in `n` cases runs; for cases counted elsewhere. An eighth is a sample there.
    pub fn one_in(self, n: usize) -> usize {
        match self {
            Sweep::Sample | Sweep::Eighth(_) => n,
            Sweep::All => 1,
        }
    }

    /// Returns the number of random cases, given the numbers of a sample and of all.
    pub fn count(self, sample: u64, all: u64) -> u64 {
        match self {
            Sweep::Sample => sample,
            Sweep::All => all,
            Sweep::Eighth(_) => all / 8,
        }
    }

    /// Returns the minimum number of cases of a non-empty sweep, given the numbers of a sample and of all.
    ///
    /// An eighth need not be an equal part.
    pub fn least(self, sample: u64, all: u64) -> u64 {
        match self {
            Sweep::Sample => sample,
            Sweep::All => all,
            Sweep::Eighth(_) => all / 16,
        }
    }

    /// Returns the seed of the cases: every eighth has different cases.
    pub fn seed(self) -> u64 {
        match self {
            Sweep::Sample | Sweep::All => 0,
            Sweep::Eighth(k) => 1000 * (k + 1),
        }
    }
}

/// Cases that come one after another, of which a sweep picks some; [`Sweep::picking`] makes one.
#[derive(Clone, Debug)]
pub struct Picking {
    sweep: Sweep,
    n: u64,
    next: usize,
}

impl Picking {
    /// Returns `true` if the next case runs.
    pub fn picks_next(&mut self) -> bool {
        let case = self.next;
        self.next += 1;
        self.sweep.picks(self.n, case)
    }
}
