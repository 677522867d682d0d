//! The fixed lists of problems for the planner's benchmarks.
//!
//! A list is drawn from *all* pairs of placements over its axes, in a fixed order and at fixed distances, so
//! that its members are not hand-picked. The pairs are those in which some axis changes, or those in which
//! each does (so that every digit of the mesh is redistributed), with or without partial sums. The list is an
//! even sample of them.

use reshard_planner::{Objective, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

/// The pairs of placements that a list is drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Nothing is partial.
    None,
    /// The source is partial, the target is not.
    InSource,
    /// The target is partial, the source is not.
    InTarget,
    /// The source or the target is partial.
    Somewhere,
}

/// A kind of problem, and the target time of planning it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// A name without spaces.
    pub name: &'static str,
    /// A description for tables.
    pub title: &'static str,
    /// The mesh.
    pub mesh: &'static str,
    /// The extents of the tensor.
    pub shape: &'static [usize],
    /// The placements of its pairs.
    pub terms: Terms,
    /// `true` if every axis changes, `false` if at least one does.
    pub every_axis: bool,
    /// The number of pairs.
    pub pairs: usize,
    /// The planner.
    pub planner: fn() -> Planner,
    /// The target of the median time, in microseconds.
    pub target_us: f64,
}

fn bytes() -> Planner {
    Planner::new().objective(Objective::Bytes)
}

fn h100() -> Planner {
    Planner::new().topology(Topology::h100_lines())
}

/// 64 MiB of f32.
const LARGE: &[usize] = &[4096, 4096];

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "closed_form",
        title: "three axes, closed form (`bytes`, no partial sums)",
        mesh: "x=2,y=2,z=2",
        shape: LARGE,
        terms: Terms::None,
        every_axis: false,
        pairs: 24,
        planner: bytes,
        target_us: 2.0,
    },
    Kind {
        name: "closed_form_131072",
        title: "the closed form on 131,072 ranks",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        terms: Terms::None,
        every_axis: false,
        pairs: 24,
        planner: bytes,
        target_us: 2.0,
    },
    Kind {
        name: "closed_form_3",
        title: "the closed form, every axis changes",
        mesh: "x=2,y=2,z=2",
        shape: LARGE,
        terms: Terms::None,
        every_axis: true,
        pairs: 24,
        planner: bytes,
        target_us: 2.0,
    },
    Kind {
        name: "closed_form_3_131072",
        title: "the closed form on 131,072 ranks, every axis changes",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        terms: Terms::None,
        every_axis: true,
        pairs: 24,
        planner: bytes,
        target_us: 2.0,
    },
    Kind {
        name: "time",
        title: "three axes, one level, `time`, no partial sums",
        mesh: "x=2,y=2,z=2",
        shape: LARGE,
        terms: Terms::None,
        every_axis: true,
        pairs: 24,
        planner: Planner::new,
        target_us: 15.0,
    },
    Kind {
        name: "time_131072",
        title: "three axes, one level, `time`, no partial sums, 131,072 ranks",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        terms: Terms::None,
        every_axis: true,
        pairs: 24,
        planner: Planner::new,
        target_us: 15.0,
    },
    Kind {
        name: "terms",
        title: "three axes, one level, `time`, partial sums in the source",
        mesh: "x=2,y=2,z=2",
        shape: LARGE,
        terms: Terms::InSource,
        every_axis: true,
        pairs: 48,
        planner: Planner::new,
        target_us: 60.0,
    },
    Kind {
        name: "terms_131072",
        title: "three axes, one level, `time`, partial sums in the source, 131,072 ranks",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        terms: Terms::InSource,
        every_axis: true,
        pairs: 48,
        planner: Planner::new,
        target_us: 60.0,
    },
    Kind {
        name: "into_terms",
        title: "three axes, one level, `time`, partial sums in the target",
        mesh: "x=2,y=2,z=2",
        shape: LARGE,
        terms: Terms::InTarget,
        every_axis: true,
        pairs: 48,
        planner: Planner::new,
        target_us: 60.0,
    },
    Kind {
        name: "into_terms_131072",
        title: "three axes, one level, `time`, partial sums in the target, 131,072 ranks",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        terms: Terms::InTarget,
        every_axis: true,
        pairs: 48,
        planner: Planner::new,
        target_us: 60.0,
    },
    Kind {
        name: "two_levels",
        title: "two levels, three digits, no partial sums",
        mesh: "x=8,y=8,z=8",
        shape: LARGE,
        terms: Terms::None,
        every_axis: true,
        pairs: 24,
        planner: h100,
        target_us: 60.0,
    },
    Kind {
        name: "two_levels_terms",
        title: "two levels, three digits, partial sums",
        mesh: "x=8,y=8,z=8",
        shape: LARGE,
        terms: Terms::Somewhere,
        every_axis: true,
        pairs: 48,
        planner: h100,
        target_us: 60.0,
    },
    Kind {
        name: "mixed",
        title: "two levels, three axes of two sizes that split into up to five digits",
        mesh: "x=4,y=4,z=2",
        shape: LARGE,
        terms: Terms::Somewhere,
        every_axis: true,
        pairs: 48,
        planner: h100,
        target_us: 1500.0,
    },
    Kind {
        name: "four",
        title: "two levels, four digits, no partial sums",
        mesh: "w=8,x=8,y=8,z=8",
        shape: LARGE,
        terms: Terms::None,
        every_axis: true,
        pairs: 24,
        planner: h100,
        target_us: 1500.0,
    },
    Kind {
        name: "four_terms",
        title: "two levels, four digits, partial sums",
        mesh: "w=8,x=8,y=8,z=8",
        shape: LARGE,
        terms: Terms::Somewhere,
        every_axis: true,
        pairs: 48,
        planner: h100,
        target_us: 1500.0,
    },
];

impl Kind {
    /// Returns the pairs of placements that the list is drawn from, in counting order.
    fn all_pairs(&self, axes: usize) -> Vec<(String, String)> {
        const CHOICES: [&str; 4] = ["R", "S(0)", "S(1)", "P"];
        let words = CHOICES.len().pow(axes as u32);
        let digit =
            |word: usize, axis: usize| word / CHOICES.len().pow((axes - 1 - axis) as u32) % CHOICES.len();
        let text = |word: usize| (0..axes).map(|a| CHOICES[digit(word, a)]).collect::<Vec<_>>().join(",");
        let owes = |word: usize| (0..axes).any(|a| CHOICES[digit(word, a)] == "P");
        let mut all = Vec::new();
        for a in 0..words {
            for b in 0..words {
                let asked = match self.terms {
                    Terms::None => !owes(a) && !owes(b),
                    Terms::InSource => owes(a) && !owes(b),
                    Terms::InTarget => owes(b),
                    Terms::Somewhere => owes(a) || owes(b),
                };
                let changes = |&axis: &usize| digit(a, axis) != digit(b, axis);
                let changing = (0..axes).filter(changes).count();
                if asked && changing >= if self.every_axis { axes } else { 1 } {
                    all.push((text(a), text(b)));
                }
            }
        }
        all
    }

    /// Returns the pairs of the list, as text.
    pub fn texts(&self) -> Vec<(String, String)> {
        let axes = self.mesh.split(',').count();
        let all = self.all_pairs(axes);
        // The middles of `pairs` equal parts.
        (0..self.pairs).map(|i| all[(2 * i + 1) * all.len() / (2 * self.pairs)].clone()).collect()
    }

    /// Returns the pairs of the list.
    ///
    /// # Panics
    ///
    /// If a table above has an invalid mesh, or a shape that does not divide.
    pub fn shardings(&self) -> Vec<(Sharding, Sharding)> {
        let mesh: Mesh = self.mesh.parse().expect("a mesh");
        let parse = |p: &str| Sharding::parse(&mesh, self.shape, p).expect("a sharding");
        self.texts().iter().map(|(a, b)| (parse(a), parse(b))).collect()
    }
}
