//! Common parts of both kinds of requests, for drawing and writing: meshes, shapes, placements, results.

use std::fmt::Display;

use reshard_sharding::{Error, Mesh, SubAxis};
use reshard_verify::Random;

/// One of a list.
pub(crate) fn one<'a, T: ?Sized>(r: &mut Random, of: &[&'a T]) -> &'a T {
    of[r.below(of.len())]
}

/// True in `percent` of a hundred cases.
pub(crate) fn chance(r: &mut Random, percent: usize) -> bool {
    r.below(100) < percent
}

const MESHES: &[&str] = &[
    "x=2",
    "x=3",
    "x=4",
    "x=6",
    "x=8",
    "x=12",
    "x=2,y=2",
    "x=2,y=3",
    "x=4,y=2",
    "dp=2,tp=4",
    "x=6,y=4",
    "x=3,y=5",
    "x=1,y=4",
    "x=2,y=2,z=2",
    "x=2,y=3,z=2",
    "x=4,y=2,z=3",
    "x=2,y=1,z=4",
    "dp=2,pp=2,tp=4",
    "x=4,y=4,z=2",
    "x=2,y=2,z=2,w=2",
    "x=2,y=3,z=2,w=2",
    "x=4,y=2,z=2,w=2",
    "x=2:1,y=4:2",
    "x=2:8,y=4:1@16",
    "x=3:7,y=2:3",
    "x=(2,2):(1,4),y=2:2",
    "x=(2,3):(6,1),y=2:3",
    "dp=4,tp=8",
    "x=8,y=2,z=2",
    "x=4:-1,y=2:4@3",
];

/// A small mesh: one to four axes, some strided, hierarchical or with holes.
pub(crate) fn mesh(r: &mut Random) -> &'static str {
    one(r, MESHES)
}

const EVEN: [usize; 10] = [8, 12, 16, 24, 32, 48, 64, 96, 144, 4096];
const ANY: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 15, 18, 50];

/// Zero to three dims, of which most divide; few are empty.
pub(crate) fn shape(r: &mut Random) -> Vec<usize> {
    let dims = if chance(r, 2) { 0 } else { [1, 1, 1, 2, 2, 2, 2, 3, 3][r.below(9)] };
    let uneven = chance(r, 30);
    (0..dims)
        .map(|_| match (r.below(60), uneven) {
            (0, _) => 0,
            (1..=30, true) => ANY[r.below(ANY.len())],
            _ => EVEN[r.below(EVEN.len())],
        })
        .collect()
}

/// Returns sizes for every rank of an axis, with a given sum.
fn ragged(r: &mut Random, ranks: usize, len: usize) -> String {
    let mut left = len;
    let sizes: Vec<String> = (0..ranks)
        .map(|i| {
            let n = if i + 1 == ranks { left } else { r.below(left + 1) };
            left -= n;
            n.to_string()
        })
        .collect();
    sizes.join(",")
}

/// Returns placements, or dims notation with sub-axes; they do not always parse.
pub(crate) fn placements(r: &mut Random, mesh: &Mesh, shape: &[usize], terms: bool) -> String {
    if chance(r, 18) {
        return by_tensor(r, mesh, shape, terms);
    }
    let dims = shape.len();
    let op = ["sum", "sum", "avg", "max"][r.below(4)];
    let all: Vec<String> = mesh
        .axes()
        .iter()
        .map(|a| match r.below(100) {
            0..40 if dims > 0 => format!("S({})", r.below(dims)),
            40..52 if dims > 0 => format!("SS({},{})", r.below(dims), [2, 2, 3, 4, 6][r.below(5)]),
            52..56 if dims > 0 => {
                let dim = r.below(dims);
                format!("RG({dim},[{}])", ragged(r, a.size(), shape[dim]))
            }
            56..76 if terms => format!("P({op})"),
            _ => "R".to_owned(),
        })
        .collect();
    all.join(",")
}

fn by_tensor(r: &mut Random, mesh: &Mesh, shape: &[usize], terms: bool) -> String {
    let mut lists = vec![Vec::new(); shape.len() + 1];
    for i in r.permutation(mesh.axes().len()) {
        let (name, n) = (mesh.axes()[i].name(), mesh.axes()[i].size());
        let divisors: Vec<usize> = (2..n).filter(|k| n % k == 0).collect();
        let parts: Vec<String> = match divisors.as_slice() {
            [] => vec![name.to_string()],
            some if chance(r, 60) => {
                let k = some[r.below(some.len())];
                vec![format!("{name}:(1){k}"), format!("{name}:({k}){}", n / k)]
            }
            _ => vec![name.to_string()],
        };
        for part in parts {
            let at = r.below(shape.len() + 2);
            if at < shape.len() || (at == shape.len() && terms) {
                lists[at].push(part);
            }
        }
    }
    let unreduced = lists.pop().unwrap_or_default();
    let dims: Vec<String> = lists.iter().map(|l| format!("{{{}}}", l.join(","))).collect();
    let unreduced =
        if unreduced.is_empty() { String::new() } else { format!(" unreduced={{{}}}", unreduced.join(",")) };
    format!("[{}]{unreduced}", dims.join(","))
}

/// Returns a value, or the code of the error: golden answers do not depend on wording.
pub(crate) fn shown<T: Display>(result: Result<T, Error>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(e) => e.code().to_owned(),
    }
}

/// Returns some sub-axes of a mesh that do not overlap.
pub(crate) fn some_sub_axes(r: &mut Random, mesh: &Mesh) -> Vec<SubAxis> {
    let mut subs = Vec::new();
    for axis in r.permutation(mesh.axes().len()) {
        let n = mesh.axes()[axis].size();
        let divisors: Vec<usize> = (1..=n).filter(|k| n.is_multiple_of(*k)).collect();
        let k = divisors[r.below(divisors.len())];
        match r.below(4) {
            0 => {}
            1 => subs.push(SubAxis { axis, pre_size: 1, size: k }),
            2 => subs.push(SubAxis { axis, pre_size: k, size: n / k }),
            _ => subs.push(mesh.known_whole(axis)),
        }
    }
    subs
}

/// Returns the names of sub-axes.
pub(crate) fn names(mesh: &Mesh, subs: &[SubAxis]) -> String {
    subs.iter().map(|s| s.printed(mesh.axes())).collect::<Vec<_>>().join(",")
}
