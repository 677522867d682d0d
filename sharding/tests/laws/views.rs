//! Views against brute force: whatever placements of the new shape hold the same elements on every rank.
use std::collections::{BTreeSet, HashMap, HashSet};

use reshard_sharding::{Error, Mesh, Placement, Placements, Sharding};
use reshard_test_support::{Arbitrary, Gen, Sweep, every, property};

fn mesh(sizes: &[usize]) -> Mesh {
    Mesh::new(["a", "b", "c"].into_iter().zip(sizes.iter().copied())).unwrap()
}

/// Every ordered factorization into up to three dims of at least 2, and a few with dims of 1.
fn shapes(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![n], vec![1, n], vec![n, 1]];
    for a in (2..n).filter(|a| n.is_multiple_of(*a)) {
        all.push(vec![a, n / a]);
        for b in (2..n / a).filter(|b| (n / a).is_multiple_of(*b)) {
            all.push(vec![a, b, n / a / b]);
        }
    }
    all
}

fn choices(shape: &[usize]) -> Vec<Placement> {
    let mut all = vec![Placement::Replicate];
    for (dim, &len) in shape.iter().enumerate() {
        all.push(Placement::Shard(dim));
        all.extend((2..=len).map(|split_factor| Placement::StridedShard { dim, split_factor }));
    }
    all
}

fn all_placements(shape: &[usize], axes: usize) -> Vec<Placements> {
    every(&choices(shape), axes).into_iter().map(Placements::from_iter).collect()
}

type Held = Vec<Vec<usize>>;

fn all_held(s: &Sharding) -> Held {
    s.mesh().ranks().map(|r| s.global_indices(r).unwrap()).collect()
}

/// The number of elements that the worst rank needs and does not hold.
fn most_lacking(held: &Held, wanted: &Held) -> usize {
    let lacks = |(held, wanted): (&Vec<usize>, &Vec<usize>)| {
        let held: BTreeSet<usize> = held.iter().copied().collect();
        wanted.iter().filter(|i| !held.contains(i)).count()
    };
    held.iter().zip(wanted).map(lacks).max().unwrap_or(0)
}

/// Compares views with brute force over all placements of all shapes of `n`; returns (free, found, rejected).
fn compare(n: usize, sizes: &[usize], only_even: bool) -> (usize, usize, usize) {
    let mesh = mesh(sizes);
    let shapes = shapes(n);
    let mut by_shape: Vec<HashMap<Held, Sharding>> = Vec::new();
    for shape in &shapes {
        let mut seen = HashMap::new();
        for p in all_placements(shape, sizes.len()) {
            let s = Sharding::new(&mesh, shape, &p).unwrap();
            seen.entry(all_held(&s)).or_insert(s);
        }
        by_shape.push(seen);
    }
    let (mut free, mut found, mut refused) = (0, 0, 0);
    for from in &by_shape {
        for (held_from, s) in from {
            if only_even && s.layout().is_none() {
                continue;
            }
            for (shape, to) in shapes.iter().zip(&by_shape) {
                let exists = to.contains_key(held_from);
                free += usize::from(exists);
                match s.view(shape) {
                    Ok(t) => {
                        assert_eq!(t.shape(), &shape[..]);
                        assert_eq!(
                            &all_held(&t),
                            held_from,
                            "{s} of {:?} as {shape:?} is not {t}",
                            s.shape()
                        );
                        // Placements can hold it exactly if some do; sub-axes and ragged sizes are more than
                        // those.
                        let plain = t.placements().is_ok_and(|p| !p.to_string().contains("RG"));
                        assert_eq!(plain, exists, "{s} of {:?} as {shape:?} is {t}", s.shape());
                        found += usize::from(exists);
                    }
                    Err(Error::NeedsRedistribution { first, elements, .. }) => {
                        refused += 1;
                        if exists {
                            eprintln!("missed: {s} of {:?} as {shape:?} is {}", s.shape(), to[held_from]);
                        }
                        let first = Sharding::parse(&mesh, s.shape(), &first).unwrap();
                        assert!(first.view(shape).is_ok(), "{s} of {:?} as {shape:?}: {first}", s.shape());
                        let lacks = most_lacking(held_from, &all_held(&first));
                        assert_eq!(elements, lacks as u64, "{s} of {:?} to {first}", s.shape());
                    }
                    Err(e) => panic!("{s} of {:?} as {shape:?}: {e}", s.shape()),
                }
            }
        }
    }
    (free, found, refused)
}

#[test]
fn every_free_view_is_found_and_none_is_wrong() {
    for n in [12, 16, 24] {
        for sizes in [&[4][..], &[2, 2], &[2, 3]] {
            let (free, found, refused) = compare(n, sizes, true);
            assert_eq!(free, found, "{n} on {sizes:?}");
            // Powers of two always nest.
            assert_eq!(refused == 0, n == 16, "{n} on {sizes:?}");
        }
    }
}

#[test]
fn every_free_view_on_three_axes_is_found_and_none_is_wrong() {
    for n in [12, 16, 24] {
        let (free, found, _) = compare(n, &[2, 2, 2], true);
        assert_eq!(free, found, "{n}");
    }
}

#[test]
fn every_free_view_of_uneven_dims_is_found_and_none_is_wrong() {
    for (n, sizes) in [
        (10, &[4][..]),
        (12, &[4]),
        (14, &[4]),
        (15, &[2]),
        (20, &[3]),
        (28, &[4]),
        (10, &[2, 2]),
        (12, &[2, 3]),
        (15, &[2, 2]),
        (18, &[2, 2]),
        (20, &[3, 2]),
    ] {
        let (free, found, _) = compare(n, sizes, false);
        assert_eq!(free, found, "{n} on {sizes:?}");
    }
}

/// Every by-tensor text in which some of these sub-axes shard dims of a shape.
///
/// Each sub-axis is after a local digit or not.
fn by_tensor_texts(shape: &[usize], subs: &[&str]) -> Vec<String> {
    fn grow(lists: &[Vec<String>], left: &[&str], out: &mut Vec<Vec<Vec<String>>>) {
        out.push(lists.to_vec());
        for (i, sub) in left.iter().enumerate() {
            let rest: Vec<&str> = left.iter().enumerate().filter(|x| x.0 != i).map(|x| *x.1).collect();
            for dim in 0..lists.len() {
                for local in ["", "2", "3"] {
                    let mut next = lists.to_vec();
                    next[dim].extend((!local.is_empty()).then(|| local.to_owned()));
                    next[dim].push((*sub).to_owned());
                    grow(&next, &rest, out);
                }
            }
        }
    }
    let mut all = Vec::new();
    grow(&vec![Vec::new(); shape.len()], subs, &mut all);
    let text = |dims: &Vec<Vec<String>>| {
        format!("[{}]", dims.iter().map(|d| format!("{{{}}}", d.join(","))).collect::<Vec<_>>().join(","))
    };
    all.iter().map(text).collect()
}

/// The same over shardings with sub-axes.
///
/// These are those of placements, and those by tensor of whole axes and of their halves.
#[test]
fn every_free_view_of_uneven_dims_with_sub_axes_is_found_and_none_is_wrong() {
    let mut with_sub_axes = 0;
    for (sizes, shapes, subs) in [
        (&[4][..], &[&[3, 8][..], &[3, 2, 4], &[3, 4, 2], &[6, 4], &[24]][..], &["a:(1)2", "a:(2)2"][..]),
        (&[4], &[&[10, 3], &[2, 5, 3], &[5, 2, 3], &[5, 6]], &["a:(1)2", "a:(2)2"]),
        (&[2, 4], &[&[5, 8], &[5, 2, 4], &[5, 4, 2], &[10, 4], &[40]], &["a", "b:(1)2", "b:(2)2"]),
        (&[4, 2], &[&[8, 5], &[2, 4, 5], &[4, 10], &[2, 20], &[40]], &["a:(1)2", "a:(2)2", "b"]),
    ] {
        let mesh = mesh(sizes);
        let mut by_shape: Vec<HashMap<Held, Sharding>> = Vec::new();
        for shape in shapes {
            let mut seen = HashMap::new();
            for p in all_placements(shape, sizes.len()) {
                let s = Sharding::new(&mesh, shape, &p).unwrap();
                seen.entry(all_held(&s)).or_insert(s);
            }
            for text in by_tensor_texts(shape, subs) {
                let Ok(s) = Sharding::parse(&mesh, shape, &text) else { continue };
                assert_eq!(Sharding::parse(&mesh, shape, &s.to_string()), Ok(s.clone()), "{text}");
                seen.entry(all_held(&s)).or_insert(s);
            }
            by_shape.push(seen);
        }
        for from in &by_shape {
            for (held_from, s) in from {
                for (shape, to) in shapes.iter().zip(&by_shape) {
                    match (s.view(shape), to.get(held_from)) {
                        (Ok(t), _) => {
                            assert_eq!(&all_held(&t), held_from, "{s} of {:?} as {shape:?}: {t}", s.shape());
                            assert_eq!(Sharding::parse(&mesh, shape, &t.to_string()), Ok(t.clone()));
                            with_sub_axes += usize::from(t.layout().is_none() && t.placements().is_err());
                        }
                        (Err(Error::NeedsRedistribution { first, .. }), None) => {
                            let first = Sharding::parse(&mesh, s.shape(), &first).unwrap();
                            assert!(
                                first.view(shape).is_ok(),
                                "{s} of {:?} as {shape:?}: {first}",
                                s.shape()
                            );
                        }
                        (Err(e), exists) => {
                            panic!("{s} of {:?} as {shape:?} is {exists:?}: {e}", s.shape())
                        }
                    }
                }
            }
        }
    }
    assert!(with_sub_axes > 100, "{with_sub_axes}");
}

fn view(sizes: &[usize], from: &[usize], placements: &str, to: &[usize]) -> Result<Sharding, Error> {
    Sharding::parse(&mesh(sizes), from, placements).unwrap().view(to)
}

#[test]
fn the_named_views() {
    for (sizes, from, placements, to, want) in [
        (&[3][..], &[4, 6][..], "S(1)", &[24][..], "SS(0,4)"),
        (&[3], &[24], "SS(0,4)", &[4, 6], "S(1)"),
        (&[4], &[2, 3, 4], "S(2)", &[24], "SS(0,6)"),
        (&[4], &[2, 3, 4], "S(2)", &[6, 4], "S(1)"),
        (&[2, 2], &[16], "S(0),S(0)", &[2, 8], "S(0),S(1)"),
        (&[2, 2], &[2, 8], "S(1),S(1)", &[16], "SS(0,2),SS(0,2)"),
        (&[2, 2], &[2, 8], "S(0),P", &[16], "S(0),P(sum)"),
        (&[4], &[7, 4, 6], "S(0)", &[7, 24], "S(0)"),
        (&[2], &[2, 5], "S(1)", &[10], "SS(0,2)"),
        (&[4], &[7, 4], "S(0)", &[14, 2], "S(0)"),
        (&[2], &[0, 4], "S(0)", &[0], "S(0)"),
        (&[2], &[3, 4], "S(0)", &[12], "RG(0,[8,4])"),
        (&[2], &[2, 5, 4], "S(1)", &[10, 4], "SS(0,2)"),
        (&[2], &[], "R", &[1, 1], "R"),
    ] {
        let got = view(sizes, from, placements, to).unwrap_or_else(|e| panic!("{placements} {from:?}: {e}"));
        assert_eq!(got.to_string(), want, "{placements} of {from:?} as {to:?}");
    }
    // A digit of the axis in each dim: no placement, but by tensor.
    let split = view(&[4], &[16], "S(0)", &[2, 8]).unwrap();
    assert_eq!(split.to_string(), "[{a:(1)2},{a:(2)2}]");
    assert_eq!(split.view(&[16]).unwrap().to_string(), "S(0)");
}

#[test]
fn the_cheapest_move_before_an_uneven_view_is_named() {
    for (sizes, from, placements, to, first, elements) in [
        // Whole rows of 7, of which rank 0 lacks 3 elements, and not all 21.
        (&[2][..], &[21][..], "S(0)", &[3, 7][..], "RG(0,[14,7])", 3),
        (&[2, 3], &[21, 6], "S(0),S(1)", &[3, 7, 6], "RG(0,[14,7]),S(1)", 6),
    ] {
        let Err(Error::NeedsRedistribution { first: said, elements: moved, .. }) =
            view(sizes, from, placements, to)
        else {
            panic!("{placements} of {from:?} as {to:?} should need something");
        };
        assert_eq!((said.as_str(), moved), (first, elements), "{placements} of {from:?} as {to:?}");
    }
}

#[test]
fn another_number_of_elements_is_said_and_needs_no_advice() {
    for (from, placements, to) in [
        (&[8][..], "S(0)", &[0][..]),
        (&[0, 4], "S(0)", &[1, 4]),
        (&[5, 3], "SS(1,2)", &[5, 0, 3]),
        (&[4, 6], "S(1)", &[]),
    ] {
        let e = view(&[4], from, placements, to).unwrap_err();
        assert_eq!(e.code(), "view", "{e}");
        assert!(e.to_string().contains("a view must have equally many"), "{e}");
    }
}

#[test]
fn a_view_that_is_not_free_says_what_to_move() {
    let e = view(&[3], &[6, 4], "S(0)", &[4, 6]).unwrap_err();
    assert_eq!(e.code(), "needs_redistribute");
    let text = e.to_string();
    assert!(text.contains("dim 0 of [4, 6] ends inside a (a digit of 3)"), "{text}");
    // No position of 3 ends where dims of both shapes end, so it is gathered: each rank lacks 16 elements.
    assert!(
        matches!(e, Error::NeedsRedistribution { elements: 16, ref first, .. } if first == "R"),
        "{text}"
    );
    let e = view(&[2, 3], &[3, 8], "S(1),S(0)", &[8, 3]).unwrap_err();
    assert_eq!(e.code(), "needs_redistribute", "{e}");
    assert_eq!(view(&[2], &[4], "S(0)", &[5]).unwrap_err().code(), "view");
    assert_eq!(view(&[2], &[4], "S(0)", &[usize::MAX, 8]).unwrap_err().code(), "overflow");
}

/// A sharding of up to three dims drawn at random.
#[derive(Clone, Debug)]
struct Case(Sharding);

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Case {
        let mesh = mesh(g.choose(&[&[2][..], &[4], &[2, 2], &[2, 3], &[4, 2], &[2, 2, 2]]).unwrap());
        let extents = [1, 2, 3, 4, 5, 6, 8, 12];
        let shape: Vec<usize> = (0..=usize::arbitrary(g) % 3).map(|_| *g.choose(&extents).unwrap()).collect();
        let placements: Placements =
            mesh.axes().iter().map(|_| g.choose(&choices(&shape)).unwrap().clone()).collect();
        Case(Sharding::new(&mesh, &shape, &placements).unwrap())
    }
}

/// The shard of a rank as (local shape, the whole tensor's elements).
///
/// Element `e` of the tensor is `values[e]`.
fn local(s: &Sharding, rank: usize, values: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let shape = s.local_shape(rank).unwrap().to_vec();
    (shape, s.global_indices(rank).unwrap().into_iter().map(|e| values[e]).collect())
}

/// The elements of a row-major array after `new[c] = old[map(c)]`.
fn gather(
    new_shape: &[usize],
    old_shape: &[usize],
    values: &[usize],
    map: impl Fn(&mut Vec<usize>),
) -> Vec<usize> {
    (0..new_shape.iter().product())
        .map(|i: usize| {
            let mut left = i;
            let mut c: Vec<usize> = new_shape
                .iter()
                .rev()
                .map(|n| {
                    let x = left % n;
                    left /= n;
                    x
                })
                .collect();
            c.reverse();
            map(&mut c);
            values[c.iter().zip(old_shape).fold(0, |e, (x, n)| e * n + x)]
        })
        .collect()
}

#[test]
fn permutes_are_local() {
    fn law(Case(s): Case, seed: usize) -> bool {
        let n = s.shape().len();
        let order: Vec<usize> = (0..n).map(|i| (i * (1 + seed % 2) + seed / 2) % n).collect();
        let distinct: HashSet<_> = order.iter().collect();
        let Ok(t) = s.permute(&order) else { return distinct.len() < n };
        let old: Vec<usize> = (0..s.numel()).collect();
        let back = |c: &mut Vec<usize>| {
            let mut d = vec![0; n];
            for (i, &o) in order.iter().enumerate() {
                d[o] = c[i];
            }
            *c = d;
        };
        let new = gather(t.shape(), s.shape(), &old, back);
        s.mesh().ranks().all(|r| {
            let (shape, mine) = local(&s, r, &old);
            let (new_shape, got) = local(&t, r, &new);
            got == gather(&new_shape, &shape, &mine, back)
        })
    }
    property!().tests(3_000).holds(law as fn(Case, usize) -> bool);
}

#[test]
fn expands_and_squeezes_are_local() {
    fn law(Case(s): Case, dim: usize, len: usize) -> bool {
        let dim = dim % (s.shape().len() + 1);
        let one = s.unsqueeze(dim).unwrap();
        let wide = one.expand(dim, len % 4).unwrap();
        let old: Vec<usize> = (0..s.numel()).collect();
        let first = |c: &mut Vec<usize>| c[dim] = 0;
        let new = gather(wide.shape(), one.shape(), &old, first);
        let squeezed = one.squeeze(dim).unwrap();
        let local_expand = s.mesh().ranks().all(|r| {
            let (shape, mine) = local(&one, r, &old);
            let (new_shape, got) = local(&wide, r, &new);
            got == gather(&new_shape, &shape, &mine, first)
        });
        all_held(&squeezed) == all_held(&s) && (s.layout().is_none() || squeezed == s) && local_expand
    }
    property!().tests(3_000).holds(law as fn(Case, usize, usize) -> bool);
}

#[test]
fn narrows_are_local() {
    fn law(Case(s): Case, dim: usize, start: usize, len: usize) -> bool {
        let dim = dim % s.shape().len();
        let old = s.shape()[dim];
        let start = start % (old + 1);
        let len = len % (old - start + 1);
        let t = match s.narrow(dim, start..start + len) {
            Ok(t) => t,
            Err(Error::NeedsRedistribution { first, .. }) => {
                let first = Sharding::parse(s.mesh(), s.shape(), &first).unwrap();
                return first.narrow(dim, start..start + len).is_ok();
            }
            Err(e) => panic!("{e}"),
        };
        // Every rank keeps exactly those of its indices that are in the range.
        s.mesh().ranks().all(|r| {
            let inside = |i: &usize| (start..start + len).contains(i);
            (0..s.shape().len()).all(|d| {
                let mine = s.region(r).unwrap().indices(d).unwrap().collect::<Vec<_>>();
                let want: Vec<usize> = if d == dim {
                    mine.into_iter().filter(inside).map(|i| i - start).collect()
                } else {
                    mine
                };
                t.region(r).unwrap().indices(d).unwrap().collect::<Vec<_>>() == want
            })
        })
    }
    property!().tests(5_000).holds(law as fn(Case, usize, usize, usize) -> bool);
}

#[test]
fn views_there_and_back_are_the_same() {
    fn law(Case(s): Case, pick: usize) -> bool {
        let all = shapes(s.numel().max(2));
        let shape = &all[pick % all.len()];
        match s.view(shape) {
            Ok(t) => t.view(s.shape()).is_ok_and(|back| all_held(&back) == all_held(&s)),
            Err(e) => matches!(e.code(), "needs_redistribute" | "view"),
        }
    }
    property!().tests(5_000).holds(law as fn(Case, usize) -> bool);
}

#[test]
fn every_view_is_printed_and_read_back() {
    let (mut free, mut ordered) = (0, 0);
    for sizes in [&[2][..], &[3], &[2, 2], &[2, 3], &[3, 2], &[4, 2]] {
        let mesh = mesh(sizes);
        for n in 1..=if Sweep::asked().is_exhaustive() { 18 } else { 12 } {
            let shapes = shapes(n);
            for shape in &shapes {
                for placements in all_placements(shape, sizes.len()) {
                    let s = Sharding::new(&mesh, shape, &placements).unwrap();
                    for to in &shapes {
                        let Ok(view) = s.view(to) else { continue };
                        let text = view.to_string();
                        let back = Sharding::parse(&mesh, to, &text);
                        assert_eq!(
                            back.as_ref(),
                            Ok(&view),
                            "{s} of {shape:?} as {to:?} on {mesh} prints {text}"
                        );
                        free += 1;
                        ordered += usize::from(text.contains("order="));
                    }
                }
            }
        }
    }
    assert!(free > 1000 && ordered > 0, "{free} {ordered}");
}
