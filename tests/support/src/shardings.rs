//! Random meshes, shapes and shardings (even, uneven, strided, ragged, sub-axes, partial), and random shards.

use std::collections::HashMap;

use reshard_sharding::{Mesh, ReduceOp, Sharding};

use crate::Random;

/// Returns a mesh of at most three axes and 12 ranks.
pub fn random_mesh(r: &mut Random) -> Mesh {
    const MESHES: [&str; 10] = [
        "x=2",
        "x=3",
        "x=4",
        "a=2,b=2",
        "a=2,b=3",
        "a=4,b=2",
        "a=3,b=4",
        "a=2,b=2,c=2",
        "a=2,b=3,c=2",
        "x=4@[1,2,3,0]",
    ];
    r.pick(&MESHES).parse().expect("a mesh")
}

/// Returns a tensor of at most three dims and some 2,000 elements.
pub fn random_shape(r: &mut Random) -> Vec<usize> {
    (0..r.below(4)).map(|_| *r.pick(&[0, 1, 2, 3, 4, 5, 6, 8, 9, 12])).collect()
}

/// Returns a sharding of this shape; its partial axes, if any, are sums.
pub fn random_sharding(r: &mut Random, mesh: &Mesh, shape: &[usize]) -> Sharding {
    loop {
        let text = if r.below(4) == 0 { by_tensor(r, mesh, shape) } else { by_axis(r, mesh, shape) };
        // Draw again if the text does not fit the shape.
        if let Ok(s) = Sharding::parse(mesh, shape, &text) {
            return s;
        }
    }
}

fn by_axis(r: &mut Random, mesh: &Mesh, shape: &[usize]) -> String {
    let words = mesh.axes().iter().map(|axis| {
        let dim = r.below(shape.len().max(1));
        match r.below(if shape.is_empty() { 3 } else { 8 }) {
            0 => "P".to_owned(),
            1 | 2 => "R".to_owned(),
            3 | 4 => format!("S({dim})"),
            5 => format!("SS({dim},{})", r.pick(&[2, 3])),
            6 => format!("Z({dim})"),
            _ => {
                let mut left = shape[dim];
                let mut sizes: Vec<String> = Vec::new();
                for rank in 0..axis.size() {
                    let size = if rank + 1 == axis.size() { left } else { r.below(left + 1) };
                    left -= size;
                    sizes.push(size.to_string());
                }
                format!("RG({dim},[{}])", sizes.join(","))
            }
        }
    });
    words.collect::<Vec<_>>().join(",")
}

fn by_tensor(r: &mut Random, mesh: &Mesh, shape: &[usize]) -> String {
    let mut lists: Vec<Vec<String>> = vec![Vec::new(); shape.len() + 2];
    for axis in mesh.axes() {
        let (name, n) = (axis.name(), axis.size());
        let parts = if n == 4 && r.below(2) == 0 {
            vec![format!("{name}:(1)2"), format!("{name}:(2)2")]
        } else {
            vec![name.to_string()]
        };
        for part in parts {
            let at = r.below(lists.len());
            lists[at].push(part);
        }
    }
    let dims: Vec<String> = lists[..shape.len()].iter().map(|l| format!("{{{}}}", l.join(","))).collect();
    let terms = &lists[shape.len()];
    let unreduced =
        if terms.is_empty() { String::new() } else { format!(" unreduced={{{}}}", terms.join(",")) };
    format!("[{}]{unreduced}", dims.join(","))
}

/// Returns random partial values that denote the whole, different on every rank.
///
/// They are multiples of 720720, so that averages are whole.
pub fn shards_of(s: &Sharding, seed: u64) -> Vec<Vec<i64>> {
    let mut random = Random(seed | 1);
    let mut terms: HashMap<(Vec<usize>, usize), i64> = HashMap::new();
    s.mesh()
        .ranks()
        .map(|rank| {
            let c = s.mesh().coordinate(rank).unwrap();
            let term: Vec<usize> = s
                .partial()
                .iter()
                .map(|p| p.sub.known_digit(c[p.sub.axis], s.mesh().axes()[p.sub.axis].size()))
                .collect();
            let held = s.global_indices(rank).unwrap();
            held.into_iter()
                .map(|e| {
                    *terms.entry((term.clone(), e)).or_insert_with(|| {
                        let small = random.below(7) as i64 - 3;
                        if s.reduction().is_some_and(|(op, _)| op == ReduceOp::Prod) {
                            small
                        } else {
                            (small * 1000 + e as i64) * 720_720
                        }
                    })
                })
                .collect()
        })
        .collect()
}
