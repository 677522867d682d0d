//! Every placement written out literally over lists of indices, one index at a time.

use core::num::NonZeroUsize;

use reshard_sharding::{Counts, Mesh, Placement};

/// `torch.chunk(list, n)`.
fn chunks(list: &[usize], n: usize) -> Vec<Vec<usize>> {
    let piece = list.len().div_ceil(n).max(1);
    let mut pieces: Vec<Vec<usize>> = list.chunks(piece).map(<[usize]>::to_vec).collect();
    pieces.resize(n, Vec::new());
    pieces
}

/// Returns the elements of a list that rank `i` of `n` keeps.
fn kept(p: &Placement, list: &[usize], n: usize, i: usize) -> Vec<usize> {
    match p {
        Placement::Shard(_) => chunks(list, n).swap_remove(i),
        Placement::StridedShard { split_factor, .. } => {
            chunks(list, *split_factor).iter().flat_map(|piece| chunks(piece, n).swap_remove(i)).collect()
        }
        Placement::Ragged { sizes, .. } => {
            let before: usize = sizes[..i].iter().sum();
            list[before..before + sizes[i]].to_vec()
        }
        Placement::Custom { cut, .. } if cut.name() == "Z" => {
            let all = chunks(list, 2 * n);
            [&all[i][..], &all[2 * n - 1 - i]].concat()
        }
        Placement::Custom { cut, .. } if cut.name() == "BL" => {
            let block: usize = cut.arguments().parse().unwrap();
            list.iter().enumerate().filter(|(at, _)| at / block == i).map(|(_, &x)| x).collect()
        }
        Placement::Custom { cut, .. } if cut.name() == "RO" => {
            let (by, len): (usize, usize) = (cut.arguments().parse().unwrap(), list.len());
            list.iter().enumerate().filter(|(at, _)| (at + by) % len == i).map(|(_, &x)| x).collect()
        }
        Placement::Custom { cut, .. } if cut.name() == "CN" => {
            let numbers = cut.arguments().replace(['[', ']'], "");
            let counts: Vec<usize> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
            let owners = counts.iter().enumerate().flat_map(|(at, &count)| vec![at % n; count]);
            list.iter().zip(owners).filter(|(_, owner)| *owner == i).map(|(&x, _)| x).collect()
        }
        Placement::Custom { cut, .. } => {
            assert_eq!(cut.name(), "BC");
            let block: usize = cut.arguments().parse().unwrap();
            list.iter().enumerate().filter(|(at, _)| at / block % n == i).map(|(_, &x)| x).collect()
        }
        other @ (Placement::Replicate | Placement::Partial(_)) => unreachable!("{other} partitions no dim"),
    }
}

/// The indices of every dim that a rank holds.
pub(crate) fn indices(
    mesh: &Mesh,
    shape: &[usize],
    placements: &[Placement],
    rank: usize,
) -> Vec<Vec<usize>> {
    let c = mesh.coordinate(rank).unwrap();
    let of_dim = |dim: usize| {
        let whole: Vec<usize> = (0..shape[dim]).collect();
        let cuts = placements.iter().enumerate().filter(|(_, p)| p.dim() == Some(dim));
        cuts.fold(whole, |list, (axis, p)| kept(p, &list, mesh.axes()[axis].size(), c[axis]))
    };
    (0..shape.len()).map(of_dim).collect()
}

/// The row-major elements that a rank holds, in order.
pub(crate) fn elements(mesh: &Mesh, shape: &[usize], placements: &[Placement], rank: usize) -> Vec<usize> {
    let dims = indices(mesh, shape, placements, rank);
    shape.iter().zip(&dims).fold(vec![0], |all, (&n, list)| {
        all.iter().flat_map(|&e| list.iter().map(move |&i| e * n + i).collect::<Vec<_>>()).collect()
    })
}

/// All placements of one dim for an axis of `n` ranks after earlier axes that leave lists of this length.
pub(crate) fn choices(dim: usize, n: usize, left: usize) -> Vec<Placement> {
    // Sizes that are not chunks if the length allows that: the last rank has all but one.
    let mut sizes = vec![0; n];
    sizes[n - 1] = left - left.min(1);
    sizes[0] += left.min(1);
    // The first of two sources has one index for each rank as far as they go; the second has the rest for the
    // first rank.
    let one = |rank: usize| usize::from(rank < left);
    let mut rows = vec![(0..n).map(one).collect::<Vec<_>>(), vec![0; n]];
    rows[1][0] = left - left.min(n);
    // Only where no rank has more than one index.
    let rolled = (left <= n).then(|| Placement::rolled(dim, 1));
    let list = vec![
        Placement::Replicate,
        Placement::Shard(dim),
        Placement::StridedShard { dim, split_factor: 2 },
        Placement::StridedShard { dim, split_factor: 3 },
        Placement::ragged(dim, &sizes),
        Placement::zigzag(dim),
        // Longer than chunks of everything, so that every part fits.
        Placement::block(dim, NonZeroUsize::MIN.saturating_add(left.div_ceil(n))),
        Counts::new(&rows).unwrap().target_placement(dim),
        super::brought::block_cyclic(dim, 2),
    ];
    list.into_iter().chain(rolled).collect()
}

/// Returns `true` if a placement is for one length only.
fn is_of_one_length(p: &Placement) -> bool {
    match p {
        Placement::Ragged { .. } => true,
        Placement::Custom { cut, .. } => cut.name() == "CN",
        Placement::Replicate
        | Placement::Shard(_)
        | Placement::StridedShard { .. }
        | Placement::Partial(_) => false,
    }
}

/// All lists of placements of one dim over the axes of a mesh; those of one length on the first axis only.
pub(crate) fn lists(mesh: &Mesh, len: usize) -> Vec<Vec<Placement>> {
    let sizes = mesh.axes().iter().map(reshard_sharding::Axis::size);
    sizes.enumerate().fold(vec![vec![]], |lists, (axis, n)| {
        let fits = |p: &Placement| axis == 0 || !is_of_one_length(p);
        let longer = |list: &Vec<Placement>| -> Vec<Vec<Placement>> {
            choices(0, n, len).into_iter().filter(fits).map(|p| [&list[..], &[p]].concat()).collect()
        };
        lists.iter().flat_map(longer).collect()
    })
}
