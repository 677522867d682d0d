//! Digit systems: the coarsest cut of dims and mesh axes in which two shardings are maps from digits to positions.
//!
//! A *position* is a digit of a dim's index, a *digit* is a sub-axis of the mesh; a state says of every digit where it
//! stands: at a position (injectively, with equal radix), replicated, or partial. Cuts are the products of radices from
//! the most significant end: digit `[u, v)` of an axis has the sub-axes of product `u` above it and size `v / u`. The
//! system of two shardings is the least fixed point of
//!
//! ```text
//! axis_cuts[a] = {1, n_a};  dim_cuts[i] = {1, N_i}
//! for each digit [u, v) of axis a that stands at [b, c) of dim i, in either sharding:
//!     axis_cuts[a] += {u, v};  dim_cuts[i] += {b, c}
//!     dim_cuts[i]  += b*k/u  for k in axis_cuts[a], u < k < v
//!     axis_cuts[a] += u*k/b  for k in dim_cuts[i],  b < k < c
//! ```
//!
//! in which every set must stay a chain (each cut divides the next). Every cut is forced, so a set that is not a chain
//! means that no digit system exists.

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::digits::{Digit, Owner};
use crate::sharding::PartialAxis;
use crate::{Mesh, ReduceOp, Sharding};

/// Where a mesh digit stands in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// At a position (its index in [`System::positions`], of which there are at most 62: their product fits in an `i64`).
    At(u8),
    /// Replicated.
    Replicated,
    /// Partial with this op.
    Partial(ReduceOp),
}

impl Place {
    pub(crate) fn at(position: usize) -> Place {
        Place::At(position as u8)
    }

    pub(crate) fn position(self) -> Option<usize> {
        match self {
            Place::At(p) => Some(usize::from(p)),
            Place::Replicated | Place::Partial(_) => None,
        }
    }

    pub(crate) fn is_partial(self) -> bool {
        match self {
            Place::Partial(_) => true,
            Place::At(_) | Place::Replicated => false,
        }
    }
}

/// A place for every digit of a system.
pub(crate) type State = SmallVec<[Place; 8]>;

/// One digit of a dim's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Position {
    pub(crate) dim: usize,
    pub(crate) radix: usize,
}

/// The digits of a mesh and the positions of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) mesh: Mesh,
    pub(crate) shape: SmallVec<[usize; 4]>,
    /// By axis, most significant first; none of size 1.
    pub(crate) digits: SmallVec<[SubAxis; 8]>,
    /// By dim, most significant first; none of radix 1.
    pub(crate) positions: SmallVec<[Position; 12]>,
}

/// Divisors of a number, ascending, 1 and the number included.
type Cuts = SmallVec<[usize; 8]>;

/// A digit `[u, v)` of axis `a` at position `[b, c)` of dim `i`.
struct Span {
    state: usize,
    axis: usize,
    u: usize,
    v: usize,
    dim: usize,
    b: usize,
    c: usize,
}

/// Adds a cut; true if it is new.
fn add(cuts: &mut Cuts, k: usize) -> bool {
    match cuts.binary_search(&k) {
        Ok(_) => false,
        Err(at) => {
            cuts.insert(at, k);
            true
        }
    }
}

fn is_chain(cuts: &Cuts) -> bool {
    cuts.windows(2).all(|w| w[1] % w[0] == 0)
}

/// The system of two shardings of one tensor on one mesh and their states, or `None` if their digits do not nest.
///
/// `seeds` are cuts `(axis, product)` to start from.
pub(crate) fn refine(
    from: &Sharding,
    to: &Sharding,
    seeds: &[(usize, usize)],
) -> Option<(System, State, State)> {
    merged(from, to, seeds).or_else(|| fixed_point(from, to, seeds))
}

/// The same where cutting the words of each dim at each other's cuts is all: then every digit of an axis that one
/// sharding places is one of the other's or apart from all of them, and the fixed point is reached at once.
///
/// `None` where it is not, or where digits do not nest.
fn merged(from: &Sharding, to: &Sharding, seeds: &[(usize, usize)]) -> Option<(System, State, State)> {
    /// Digits of the mesh, and where each stands in both.
    struct Digits(SmallVec<[(SubAxis, [Place; 2]); 8]>);
    impl Digits {
        fn put(&mut self, which: usize, sub: SubAxis, place: Place) -> Option<()> {
            for (known, places) in &mut self.0 {
                if *known == sub {
                    places[which] = place;
                    return Some(());
                }
                let apart = known.axis != sub.axis
                    || known.pre * known.size <= sub.pre
                    || sub.pre * sub.size <= known.pre;
                if !apart {
                    return None;
                }
            }
            let mut places = [Place::Replicated; 2];
            places[which] = place;
            self.0.push((sub, places));
            Some(())
        }
    }
    let (mesh, mut words) = (from.mesh(), [from.digits()?.iter(), to.digits()?.iter()]);
    let mut digits = Digits(SmallVec::new());
    let mut positions: SmallVec<[Position; 12]> = SmallVec::new();
    // What is left of the digits that the words have come to. Those of one dim multiply to its extent in both.
    let mut next = [words[0].next().copied(), words[1].next().copied()];
    while let [Some(a), Some(b)] = next {
        let radix = a.radix.min(b.radix);
        if !a.radix.max(b.radix).is_multiple_of(radix) {
            return None;
        }
        for (which, d) in [a, b].into_iter().enumerate() {
            if let Owner::Axis { axis, pre } = d.owner {
                digits.put(which, SubAxis { axis, pre, size: radix }, Place::at(positions.len()))?;
            }
            next[which] =
                if d.radix == radix { words[which].next().copied() } else { Some(d.split(radix).1) };
        }
        positions.push(Position { dim: a.dim, radix });
    }
    for (which, partial) in [from.partial(), to.partial()].into_iter().enumerate() {
        for p in partial {
            digits.put(which, p.sub, Place::Partial(p.op))?;
        }
    }
    digits.0.sort_unstable_by_key(|d| (d.0.axis, d.0.pre));
    let mut system = System {
        mesh: mesh.clone(),
        shape: SmallVec::from_slice(from.shape()),
        digits: SmallVec::new(),
        positions,
    };
    let (mut s, mut t) = (State::new(), State::new());
    let mut add = |sub: SubAxis, [a, b]: [Place; 2]| {
        system.digits.push(sub);
        s.push(a);
        t.push(b);
    };
    let mut placed = digits.0.iter().peekable();
    for (axis, a) in mesh.axes().iter().enumerate() {
        let mut pre = 1;
        while pre < a.size() {
            let known = placed.next_if(|d| d.0.axis == axis && d.0.pre == pre);
            let (sub, places) = known.copied().unwrap_or_else(|| {
                // What neither sharding uses, up to the next that one does, is replicated.
                let end = placed.peek().filter(|d| d.0.axis == axis).map_or(a.size(), |d| d.0.pre);
                (SubAxis { axis, pre, size: end / pre }, [Place::Replicated; 2])
            });
            let end = sub.pre * sub.size;
            if !placed.peek().filter(|d| d.0.axis == axis).map_or(a.size(), |d| d.0.pre).is_multiple_of(end) {
                return None;
            }
            add(sub, places);
            pre = end;
        }
    }
    let is_cut = |&(axis, cut): &(usize, usize)| {
        system.digits.iter().any(|d| d.axis == axis && (d.pre == cut || d.pre * d.size == cut))
    };
    seeds.iter().all(is_cut).then_some((system, s, t))
}

/// The system in general.
fn fixed_point(from: &Sharding, to: &Sharding, seeds: &[(usize, usize)]) -> Option<(System, State, State)> {
    let (mesh, shape) = (from.mesh(), from.shape());
    let words = [from.digits()?, to.digits()?];
    let mut axis_cuts: SmallVec<[Cuts; 4]> =
        mesh.axes().iter().map(|a| SmallVec::from_slice(&[1, a.size()])).collect();
    let mut dim_cuts: SmallVec<[Cuts; 4]> = shape.iter().map(|&n| SmallVec::from_slice(&[1, n])).collect();
    for cuts in axis_cuts.iter_mut().chain(&mut dim_cuts) {
        cuts.dedup();
    }
    let mut spans: SmallVec<[Span; 16]> = SmallVec::new();
    for (state, word) in words.iter().enumerate() {
        let (mut dim, mut b) = (0, 1);
        for d in *word {
            if d.dim != dim {
                (dim, b) = (d.dim, 1);
            }
            let c = b * d.radix;
            add(&mut dim_cuts[dim], b);
            add(&mut dim_cuts[dim], c);
            if let Owner::Axis { axis, pre } = d.owner {
                let v = pre * d.radix;
                add(&mut axis_cuts[axis], pre);
                add(&mut axis_cuts[axis], v);
                spans.push(Span { state, axis, u: pre, v, dim, b, c });
            }
            b = c;
        }
    }
    for p in from.partial().iter().chain(to.partial()) {
        add(&mut axis_cuts[p.sub.axis], p.sub.pre);
        add(&mut axis_cuts[p.sub.axis], p.sub.pre * p.sub.size);
    }
    for &(axis, cut) in seeds {
        add(&mut axis_cuts[axis], cut);
    }
    loop {
        if !axis_cuts.iter().chain(&dim_cuts).all(is_chain) {
            return None;
        }
        let mut changed = false;
        for s in &spans {
            for &k in axis_cuts[s.axis].iter().filter(|&&k| s.u < k && k < s.v) {
                changed |= add(&mut dim_cuts[s.dim], s.b * (k / s.u));
            }
            for &k in dim_cuts[s.dim].iter().filter(|&&k| s.b < k && k < s.c) {
                changed |= add(&mut axis_cuts[s.axis], s.u * (k / s.b));
            }
        }
        if !changed {
            break;
        }
    }
    let mut system = System {
        mesh: mesh.clone(),
        shape: SmallVec::from_slice(shape),
        digits: SmallVec::new(),
        positions: SmallVec::new(),
    };
    for (axis, cuts) in axis_cuts.iter().enumerate() {
        for w in cuts.windows(2) {
            system.digits.push(SubAxis { axis, pre: w[0], size: w[1] / w[0] });
        }
    }
    let mut first_of_dim: SmallVec<[usize; 4]> = SmallVec::new();
    for (dim, cuts) in dim_cuts.iter().enumerate() {
        first_of_dim.push(system.positions.len());
        for w in cuts.windows(2) {
            system.positions.push(Position { dim, radix: w[1] / w[0] });
        }
    }
    let place = |which: usize, partial: &[PartialAxis], d: &SubAxis| {
        let holds = |s: &&Span| s.state == which && s.axis == d.axis && s.u <= d.pre && d.pre < s.v;
        if let Some(s) = spans.iter().find(holds) {
            let cut = s.b * (d.pre / s.u);
            let at = dim_cuts[s.dim].binary_search(&cut).expect("a cut of the fixed point");
            return Place::at(first_of_dim[s.dim] + at);
        }
        let owes =
            |p: &&PartialAxis| p.sub.axis == d.axis && p.sub.pre <= d.pre && d.pre < p.sub.pre * p.sub.size;
        partial.iter().find(owes).map_or(Place::Replicated, |p| Place::Partial(p.op))
    };
    let state = |which: usize, partial: &[PartialAxis]| -> State {
        let mut state = State::new();
        for d in &system.digits {
            state.push(place(which, partial, d));
        }
        state
    };
    let (a, b) = (state(0, from.partial()), state(1, to.partial()));
    Some((system, a, b))
}

impl System {
    /// The digit at each position in a state.
    pub(crate) fn owners(&self, state: &State) -> SmallVec<[Option<usize>; 12]> {
        let mut owners = SmallVec::from_elem(None, self.positions.len());
        for (d, place) in state.iter().enumerate() {
            if let Some(p) = place.position() {
                owners[p] = Some(d);
            }
        }
        owners
    }

    /// The stride of every position in the local row-major buffer of a state; 0 where a digit owns it.
    pub(crate) fn local_strides(&self, owners: &[Option<usize>]) -> SmallVec<[usize; 12]> {
        let mut strides = SmallVec::from_elem(0, self.positions.len());
        let mut stride = 1;
        for p in (0..self.positions.len()).rev() {
            if owners[p].is_none() {
                strides[p] = stride;
                stride *= self.positions[p].radix;
            }
        }
        strides
    }

    /// The number of elements that every rank holds in a state.
    pub(crate) fn local_numel(&self, state: &State) -> usize {
        self.numel() / self.shards(state)
    }

    /// The number of elements of the tensor.
    pub(crate) fn numel(&self) -> usize {
        self.positions.iter().map(|p| p.radix).product()
    }

    /// The number of different shards in a state.
    fn shards(&self, state: &State) -> usize {
        let placed = state.iter().zip(&self.digits).filter(|(x, _)| x.position().is_some());
        placed.map(|(_, d)| d.size).product()
    }

    /// Splits a position that no state uses into `(radix, rest)`; later positions move up by one.
    pub(crate) fn split(&mut self, position: usize, radix: usize, states: &mut [&mut State]) {
        let whole = self.positions[position];
        if whole.radix == radix {
            return;
        }
        self.positions[position].radix = radix;
        self.positions.insert(position + 1, Position { radix: whole.radix / radix, ..whole });
        for place in states.iter_mut().flat_map(|s| s.iter_mut()) {
            if let Place::At(p) = place
                && usize::from(*p) > position
            {
                *p += 1;
            }
        }
    }

    /// The sharding that a state is.
    pub(crate) fn sharding(&self, state: &State) -> Result<Sharding, crate::Error> {
        let owners = self.owners(state);
        let digits = self.positions.iter().zip(&owners).map(|(p, o)| {
            let owner = o.map_or(Owner::Local, |d| {
                let SubAxis { axis, pre, .. } = self.digits[d];
                Owner::Axis { axis, pre }
            });
            Digit { dim: p.dim, owner, radix: p.radix }
        });
        let partial = state.iter().zip(&self.digits).filter_map(|(place, &sub)| match *place {
            Place::Partial(op) => Some(PartialAxis { sub, op }),
            Place::At(_) | Place::Replicated => None,
        });
        Sharding::from_digits(&self.mesh, &self.shape, digits, partial)
    }

    /// The digits of a mesh coordinate.
    pub(crate) fn digits_of(&self, coordinate: &[usize]) -> SmallVec<[usize; 8]> {
        self.digits.iter().map(|d| d.digit(coordinate[d.axis], self.mesh.axes()[d.axis].size())).collect()
    }

    /// The rank with these digits.
    pub(crate) fn rank_of(&self, digits: &[usize]) -> usize {
        let mut c = crate::mesh::Coordinate::from_elem(0, self.mesh.axes().len());
        for (d, &x) in self.digits.iter().zip(digits) {
            c[d.axis] += x * d.post(self.mesh.axes()[d.axis].size());
        }
        self.mesh.rank_at(&c).expect("digits are below their radix")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All words of placements and of sub-axes in any order over small meshes.
    #[test]
    fn what_merges_at_once_is_the_fixed_point() {
        let (mut at_once, mut later, mut never) = (0, 0, 0);
        for (mesh, shape, choices) in [
            ("x=2,y=2,z=2", &[16, 8][..], &["R", "S(0)", "S(1)", "P"][..]),
            ("x=6,y=4", &[48, 36], &["R", "S(0)", "S(1)", "SS(0,2)", "SS(0,3)", "P", "P(avg)"]),
            ("x=4,y=1,z=6", &[24, 48], &["R", "S(0)", "S(1)", "SS(1,2)", "P"]),
        ] {
            let mesh: Mesh = mesh.parse().unwrap();
            let mut texts = vec![String::new()];
            for _ in mesh.axes() {
                let longer = |t: &String| choices.iter().map(|c| format!("{t},{c}")).collect::<Vec<_>>();
                texts = texts.iter().flat_map(longer).collect();
            }
            let mut texts: Vec<String> = texts.iter().map(|t| t[1..].to_owned()).collect();
            texts.extend(
                ["[{x:(1)2},{x:(2)2}]", "[{x:(2)2},{}]", "[{x:(2)3},{z}]", "[{},{}] unreduced={x:(1)2}"]
                    .map(str::to_owned),
            );
            let all: Vec<Sharding> =
                texts.iter().filter_map(|t| Sharding::parse(&mesh, shape, t).ok()).collect();
            for from in &all {
                for to in &all {
                    for seeds in [&[][..], &[(0, 2)]] {
                        let (fast, slow) = (merged(from, to, seeds), fixed_point(from, to, seeds));
                        match (&fast, &slow) {
                            (Some(_), _) => at_once += 1,
                            (None, Some(_)) => later += 1,
                            (None, None) => never += 1,
                        }
                        assert!(fast.is_none() || fast == slow, "{from} -> {to}: {fast:?}, not {slow:?}");
                    }
                }
            }
        }
        assert!(at_once > 4000 && later > 500 && never > 100, "{at_once} {later} {never}");
    }
}
