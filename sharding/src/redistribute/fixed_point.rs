//! The digit system by its definition, for tests: cuts go around until nothing is added (see [`super::system`]).

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::digits::Owner;
use crate::redistribute::system::{Place, Position, State, System};
use crate::sharding::PartialAxis;
use crate::{Mesh, Sharding};

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

/// What [`refine`](super::system::refine) finds.
pub(crate) fn fixed_point(
    from: &Sharding,
    to: &Sharding,
    seeds: &[(usize, usize)],
) -> Option<(System, State, State)> {
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

mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::redistribute::system::refine;

    /// All words of placements and of sub-axes in any order over small meshes.
    #[test]
    fn merged_words_are_the_fixed_point() {
        let (mut nesting, mut other) = (0, 0);
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
                        let (fast, slow) = (refine(from, to, seeds), fixed_point(from, to, seeds));
                        let slow = slow.map(|(system, s, t)| (Arc::new(system), s, t));
                        assert!(fast == slow, "{from} -> {to}: {fast:?}, not {slow:?}");
                        nesting += usize::from(slow.is_some());
                        other += usize::from(slow.is_none());
                    }
                }
            }
        }
        println!("{nesting} that nest, {other} that do not");
        assert!(nesting > 10_000 && other > 5_000);
    }
}
