//! The digit system by its definition, for tests: splits propagate until none is added (see
//! [`super::system`]).

use smallvec::SmallVec;

use crate::states::system::{Place, State};
use reshard_sharding::PartialAxis;
use reshard_sharding::SubAxis;
use reshard_sharding::{Mesh, Sharding};

/// The digits of the mesh, the extents of the positions (the fastest first), and both shardings as states.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    digits: Vec<SubAxis>,
    positions: Vec<usize>,
    states: [State; 2],
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

/// Adds a split; returns `true` if it is new.
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

/// Returns the result of [`refine`](super::system::refine).
pub(crate) fn fixed_point(from: &Sharding, to: &Sharding, seeds: &[(usize, usize)]) -> Option<Found> {
    let (mesh, shape) = (from.mesh(), from.shape());
    from.layout().and(to.layout())?;
    let mut axis_cuts: SmallVec<[Cuts; 4]> =
        mesh.axes().iter().map(|a| SmallVec::from_slice(&[1, a.size()])).collect();
    let mut dim_cuts: SmallVec<[Cuts; 4]> = shape.iter().map(|&n| SmallVec::from_slice(&[1, n])).collect();
    for cuts in axis_cuts.iter_mut().chain(&mut dim_cuts) {
        cuts.dedup();
    }
    let mut spans: SmallVec<[Span; 16]> = SmallVec::new();
    for (state, sharding) in [from, to].iter().enumerate() {
        for dim in 0..shape.len() {
            let mut b = 1;
            for &m in sharding.dim_modes(dim)?.iter().rev() {
                let c = b * m.extent as usize;
                add(&mut dim_cuts[dim], b);
                add(&mut dim_cuts[dim], c);
                if let Some(SubAxis { axis, pre_size: pre, size }) = mesh.sub_axis(m) {
                    let v = pre * size;
                    add(&mut axis_cuts[axis], pre);
                    add(&mut axis_cuts[axis], v);
                    spans.push(Span { state, axis, u: pre, v, dim, b, c });
                }
                b = c;
            }
        }
    }
    for p in from.partial().iter().chain(to.partial()) {
        add(&mut axis_cuts[p.sub.axis], p.sub.pre_size);
        add(&mut axis_cuts[p.sub.axis], p.sub.pre_size * p.sub.size);
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
    let mut digits = Vec::new();
    for (axis, cuts) in axis_cuts.iter().enumerate() {
        for w in cuts.windows(2) {
            digits.push(SubAxis { axis, pre_size: w[0], size: w[1] / w[0] });
        }
    }
    let mut first_of_dim: SmallVec<[usize; 4]> = SmallVec::new();
    let mut positions = Vec::new();
    for cuts in &dim_cuts {
        first_of_dim.push(positions.len());
        positions.extend(cuts.windows(2).map(|w| w[1] / w[0]));
    }
    positions.reverse();
    let place = |which: usize, partial: &[PartialAxis], d: &SubAxis| {
        let holds = |s: &&Span| s.state == which && s.axis == d.axis && s.u <= d.pre_size && d.pre_size < s.v;
        if let Some(s) = spans.iter().find(holds) {
            let cut = s.b * (d.pre_size / s.u);
            let at = dim_cuts[s.dim].binary_search(&cut).expect("a split of the fixed point");
            return Place::at(positions.len() - 1 - (first_of_dim[s.dim] + at));
        }
        let pending = |p: &&PartialAxis| {
            p.sub.axis == d.axis && p.sub.pre_size <= d.pre_size && d.pre_size < p.sub.pre_size * p.sub.size
        };
        partial.iter().find(pending).map_or(Place::REPLICATED, |p| Place::partial(p.op))
    };
    let state = |which: usize, partial: &[PartialAxis]| -> State {
        let mut state = State::new();
        for d in &digits {
            state.push(place(which, partial, d));
        }
        state
    };
    let (a, b) = (state(0, from.partial()), state(1, to.partial()));
    Some(Found { digits, positions, states: [a, b] })
}

mod tests {
    use reshard_layout::AxisStride;

    use super::*;
    use crate::states::system::refine;

    /// All words of placements and of sub-axes in any order over small meshes.
    #[test]
    fn a_zip_refined_is_the_fixed_point() {
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
                        let cut = |&(axis, above): &(usize, usize)| {
                            AxisStride::along((mesh.axes()[axis].size() / above) as i64, axis as u32)
                        };
                        let fast = refine(from, to, &seeds.iter().map(cut).collect::<Vec<AxisStride>>());
                        let fast = fast.map(|(system, s, t)| Found {
                            digits: system.digits.iter().filter_map(|&m| mesh.sub_axis(m)).collect(),
                            positions: system.zip.iter().map(|m| m.extent as usize).collect(),
                            states: [s, t],
                        });
                        let slow = fixed_point(from, to, seeds);
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
