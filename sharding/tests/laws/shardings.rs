//! Shardings against PyTorch's semantics written out literally, and against brute force over what every rank
//! holds.
use reshard_sharding::{GroupPattern, Mesh, Placement, Placements, ReduceOp, Sharding};
use reshard_test_support::{Arbitrary, Gen, Sweep, every, property};

/// `torch.chunk(list, n)`: chunks of `ceil(len/n)`, the last one shorter, missing ones empty.
fn torch_chunk(list: &[usize], n: usize) -> Vec<Vec<usize>> {
    let piece = list.len().div_ceil(n).max(1);
    let mut pieces: Vec<Vec<usize>> = list.chunks(piece).map(<[usize]>::to_vec).collect();
    pieces.resize(n, Vec::new());
    pieces
}

/// The indices of one dim that a coordinate holds.
///
/// It applies every placement of the dim in turn, as PyTorch documents it.
fn torch_indices(
    len: usize,
    dim: usize,
    sizes: &[usize],
    c: &[usize],
    placements: &[Placement],
) -> Vec<usize> {
    let mut mine: Vec<usize> = (0..len).collect();
    for (axis, p) in placements.iter().enumerate() {
        if *p == Placement::Shard(dim) {
            mine = torch_chunk(&mine, sizes[axis]).swap_remove(c[axis]);
        } else if let Placement::StridedShard { dim: d, split_factor } = *p
            && d == dim
        {
            mine = torch_chunk(&mine, split_factor)
                .into_iter()
                .flat_map(|piece| torch_chunk(&piece, sizes[axis]).swap_remove(c[axis]))
                .collect();
        }
    }
    mine
}

/// All row-major coordinates below `sizes`.
fn coordinates(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![vec![]], |all, &n| {
        all.iter().flat_map(|c| (0..n).map(|i| [&c[..], &[i]].concat()).collect::<Vec<_>>()).collect()
    })
}

/// The row-major global indices of a shard, from the indices of each dim.
fn elements(shape: &[usize], dims: &[Vec<usize>]) -> Vec<usize> {
    shape.iter().zip(dims).fold(vec![0], |all, (&n, list)| {
        all.iter().flat_map(|&e| list.iter().map(move |&i| e * n + i).collect::<Vec<_>>()).collect()
    })
}

/// Returns `true` if a function given by its values is a layout.
///
/// Its first run of equal steps is the first mode, and the rest repeats it.
fn is_one_mode_layout(values: &[i64]) -> bool {
    let n = values.len();
    if n <= 1 {
        return true;
    }
    let step = values[1] - values[0];
    let run = (1..n).find(|&i| values[i] - values[i - 1] != step).unwrap_or(n);
    n.is_multiple_of(run)
        && (0..n).all(|i| values[i] - values[i / run * run] == (i % run) as i64 * step)
        && is_one_mode_layout(&values.iter().copied().step_by(run).collect::<Vec<_>>())
}

/// Returns `true` if the shards are a layout of (mesh, local) coordinates: a sum of one-dimensional layouts.
fn is_layout(sizes: &[usize], shards: &[Vec<usize>], local: &[Vec<usize>]) -> bool {
    if local.iter().any(|l| l != &local[0]) || shards[0].is_empty() {
        return false;
    }
    let all: Vec<usize> = sizes.iter().chain(&local[0]).copied().collect();
    let values: Vec<i64> = shards.iter().flatten().map(|&e| e as i64).collect();
    let weight = |k: usize| -> usize { all[k + 1..].iter().product() };
    let line = |k: usize| (0..all[k]).map(|i| values[i * weight(k)]).collect::<Vec<i64>>();
    let lines: Vec<Vec<i64>> = (0..all.len()).map(line).collect();
    let additive = coordinates(&all).iter().zip(&values).all(|(c, &v)| {
        v - values[0] == c.iter().zip(&lines).map(|(&i, line)| line[i] - values[0]).sum::<i64>()
    });
    additive && lines.iter().all(|l| is_one_mode_layout(l))
}

fn choices() -> Vec<Placement> {
    let strided = |dim, split_factor| Placement::StridedShard { dim, split_factor };
    vec![
        Placement::Replicate,
        Placement::Shard(0),
        Placement::Shard(1),
        strided(0, 2),
        strided(1, 3),
        strided(0, 5),
        Placement::Partial(ReduceOp::Sum),
    ]
}

fn all_placements(axes: usize) -> Vec<Placements> {
    every(&choices(), axes).into_iter().map(Placements::from_iter).collect()
}

fn mesh(sizes: &[usize]) -> Mesh {
    Mesh::new(["a", "b", "c"].into_iter().zip(sizes.iter().copied())).unwrap()
}

const SHAPES: [&[usize]; 12] = [
    &[12, 12],
    &[8, 6],
    &[15, 5],
    &[7, 3],
    &[1, 1],
    &[0, 4],
    &[5, 0],
    &[36, 2],
    &[10, 9],
    &[20, 1],
    &[6],
    &[],
];
const MESHES: [&[usize]; 9] =
    [&[1], &[4], &[5], &[2, 2], &[4, 2], &[2, 3], &[2, 2, 2], &[3, 1, 2], &[2, 3, 2]];

/// Calls `f` with every case of the enumeration whose placements the shape has dims for.
fn every_case(mut f: impl FnMut(&Mesh, &[usize], &Placements, &Sharding)) {
    let mut cases = 0usize;
    for sizes in MESHES {
        let mesh = mesh(sizes);
        for placements in all_placements(sizes.len()) {
            for shape in SHAPES {
                let needs = |p: &Placement| {
                    if let Placement::Shard(dim) | Placement::StridedShard { dim, .. } = *p {
                        dim + 1
                    } else {
                        0
                    }
                };
                if placements.iter().map(needs).max().unwrap_or(0) > shape.len() {
                    assert!(Sharding::new(&mesh, shape, &placements).is_err());
                    continue;
                }
                let s = Sharding::new(&mesh, shape, &placements).unwrap();
                f(&mesh, shape, &placements, &s);
                cases += 1;
            }
        }
    }
    assert!(cases > 10_000);
}

fn torch_shards(mesh: &Mesh, shape: &[usize], placements: &Placements) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let sizes: Vec<usize> = mesh.axes().iter().map(reshard_sharding::Axis::size).collect();
    coordinates(&sizes)
        .iter()
        .map(|c| {
            let dims: Vec<Vec<usize>> =
                shape.iter().enumerate().map(|(d, &n)| torch_indices(n, d, &sizes, c, placements)).collect();
            (elements(shape, &dims), dims.iter().map(Vec::len).collect())
        })
        .unzip()
}

#[test]
fn regions_are_what_torch_chunk_gives() {
    every_case(|mesh, shape, placements, s| {
        let (shards, local) = torch_shards(mesh, shape, placements);
        for (i, rank) in mesh.ranks().enumerate() {
            let what = || format!("rank {rank} of {placements} on {mesh} {shape:?}");
            assert_eq!(s.global_indices(rank).unwrap(), shards[i], "{}", what());
            assert_eq!(s.local_shape(rank).unwrap().as_slice(), local[i], "{}", what());
            assert_eq!(s.region(rank).unwrap().local_shape().as_slice(), local[i], "{}", what());
        }
        let most = shards.iter().map(Vec::len).max().unwrap();
        assert!(s.max_local_numel() >= most, "{placements} on {mesh} {shape:?}");
    });
}

#[test]
fn regions_cover_every_element_once_per_copy() {
    every_case(|mesh, shape, placements, s| {
        let copies: usize = mesh
            .axes()
            .iter()
            .zip(placements.iter())
            .filter(|(_, p)| matches!(p, Placement::Replicate | Placement::Partial(_)))
            .map(|(a, _)| a.size())
            .product();
        let mut count = vec![0usize; shape.iter().product()];
        for rank in mesh.ranks() {
            for e in s.global_indices(rank).unwrap() {
                count[e] += 1;
            }
        }
        assert!(count.iter().all(|&c| c == copies), "{placements} on {mesh} {shape:?}: {count:?}");
    });
}

#[test]
fn ownership_is_the_region_and_exists_exactly_where_there_is_a_layout() {
    every_case(|mesh, shape, placements, s| {
        let what = || format!("{placements} on {mesh} {shape:?}");
        let sizes: Vec<usize> = mesh.axes().iter().map(reshard_sharding::Axis::size).collect();
        let (shards, local) = torch_shards(mesh, shape, placements);
        let Some(layout) = s.ownership() else {
            assert!(!is_layout(&sizes, &shards, &local), "{} is a layout", what());
            assert!(s.layout().is_none());
            return;
        };
        assert!(is_layout(&sizes, &shards, &local), "{} is not a layout", what());
        let flat: Vec<usize> = layout.values().map(|v| v as usize).collect();
        // Colexicographic over (ranks, local): the rank is fastest.
        for (i, shard) in shards.iter().enumerate() {
            let row: Vec<usize> = flat.iter().copied().skip(i).step_by(shards.len()).collect();
            assert_eq!(&row, shard, "{} as {layout}", what());
        }
    });
}

#[test]
fn placements_and_texts_come_back() {
    every_case(|mesh, shape, placements, s| {
        let what = || format!("{placements} on {mesh} {shape:?}");
        assert_eq!(placements.to_string().parse::<Placements>().as_ref(), Ok(placements));
        assert_eq!(Sharding::parse(mesh, shape, &placements.to_string()).as_ref(), Ok(s), "{}", what());
        assert_eq!(Sharding::parse(mesh, shape, &s.to_string()).as_ref(), Ok(s), "{} as {s}", what());
        let back = s.placements().unwrap();
        assert_eq!(Sharding::new(mesh, shape, &back).as_ref(), Ok(s), "{} as {back}", what());
        match s.to_dims_notation() {
            Ok(text) => {
                assert_eq!(Sharding::parse(mesh, shape, &text).as_ref(), Ok(s), "{} as {text}", what());
            }
            Err(e) => assert!(s.layout().is_none() && e.code() == "uneven", "{}: {e}", what()),
        }
    });
}

#[test]
fn equal_shardings_are_exactly_those_of_one_ownership() {
    for sizes in [&[4][..], &[2, 2], &[2, 3], &[2, 2, 2]] {
        let mesh = mesh(sizes);
        for shape in [&[12, 12][..], &[24, 6], &[10, 3]] {
            let all: Vec<(Sharding, Vec<Vec<usize>>)> = all_placements(sizes.len())
                .iter()
                .map(|p| (Sharding::new(&mesh, shape, p).unwrap(), torch_shards(&mesh, shape, p).0))
                .collect();
            for (s, held_s) in &all {
                for (t, held_t) in &all {
                    let same = held_s == held_t && s.partial() == t.partial();
                    if s.layout().is_some() {
                        assert_eq!(s == t, same, "{s} and {t} on {mesh} {shape:?}");
                    } else {
                        assert!(s != t || same, "{s} and {t} on {mesh} {shape:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn scattered_shards_mean_the_tensor() {
    every_case(|mesh, shape, placements, s| {
        let whole: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
        let shards = s.shard_all(&whole, 0).unwrap();
        assert_eq!(s.assemble(&shards).as_ref(), Ok(&whole), "{placements} on {mesh} {shape:?}");
    });
}

#[test]
fn strided_fsdp_over_tp_of_fifteen_rows() {
    let mesh: Mesh = "dp=4,tp=2".parse().unwrap();
    let s = Sharding::parse(&mesh, &[15, 5], "SS(0,2),S(0)").unwrap();
    let sizes: Vec<usize> = mesh.ranks().map(|r| s.local_shape(r).unwrap()[0]).collect();
    assert_eq!(sizes, [2, 2, 2, 2, 2, 2, 2, 1]);
    let firsts: Vec<usize> =
        mesh.ranks().map(|r| s.region(r).unwrap().indices(0).unwrap().next().unwrap()).collect();
    assert_eq!(firsts, [0, 8, 2, 10, 4, 12, 6, 14]);
}

#[test]
fn nested_chunks_of_five() {
    let mesh: Mesh = "a=2,b=2".parse().unwrap();
    let s = Sharding::parse(&mesh, &[5], "S(0),S(0)").unwrap();
    let sizes: Vec<usize> = mesh.ranks().map(|r| s.local_shape(r).unwrap()[0]).collect();
    assert_eq!(sizes, [2, 1, 1, 1]);
    assert_eq!(s.ownership(), None);
}

/// A case drawn at random: extents that divide often, and any offset and order of strides.
#[derive(Clone, Debug)]
struct Case {
    mesh: Mesh,
    shape: Vec<usize>,
    placements: Placements,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Case {
        let sizes: Vec<usize> = (0..=usize::arbitrary(g) % 3).map(|_| 1 + usize::arbitrary(g) % 4).collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, usize::arbitrary(g) % (i + 1));
        }
        let mut stride = 1 + usize::arbitrary(g) % 3;
        let mut strides = vec![0; sizes.len()];
        for axis in order {
            strides[axis] = stride;
            stride *= sizes[axis] + usize::arbitrary(g) % 2;
        }
        let axes = ["a", "b", "c"].iter().zip(sizes.iter().zip(&strides));
        let text: Vec<String> = axes.map(|(name, (n, d))| format!("{name}={n}:{d}")).collect();
        let mesh: Mesh = format!("{}@{}", text.join(","), usize::arbitrary(g) % 50).parse().unwrap();
        let extents = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 30, 36, 60];
        let shape: Vec<usize> = (0..=usize::arbitrary(g) % 3).map(|_| *g.choose(&extents).unwrap()).collect();
        let op = *g.choose(&ReduceOp::ALL).unwrap();
        let placements = sizes
            .iter()
            .map(|_| {
                let dim = usize::arbitrary(g) % shape.len();
                match usize::arbitrary(g) % 6 {
                    0 => Placement::Replicate,
                    1 => Placement::Partial(op),
                    2 | 3 => Placement::Shard(dim),
                    _ => Placement::StridedShard { dim, split_factor: 1 + usize::arbitrary(g) % 9 },
                }
            })
            .collect();
        Case { mesh, shape, placements }
    }
}

#[test]
fn random_shardings_are_what_torch_says_and_come_back() {
    fn law(case: Case) -> bool {
        let Case { mesh, shape, placements } = case;
        let s = Sharding::new(&mesh, &shape, &placements).unwrap();
        let (shards, local) = torch_shards(&mesh, &shape, &placements);
        let sizes: Vec<usize> = mesh.axes().iter().map(reshard_sharding::Axis::size).collect();
        let held_right =
            mesh.ranks().zip(&shards).all(|(rank, shard)| s.global_indices(rank).as_ref() == Ok(shard));
        let layout_right = s.ownership().is_some() == is_layout(&sizes, &shards, &local);
        let by_tensor =
            s.to_dims_notation().map_or(true, |t| Sharding::parse(&mesh, &shape, &t).as_ref() == Ok(&s));
        let text = Sharding::parse(&mesh, &shape, &s.to_string()).as_ref() == Ok(&s);
        let mesh_text = mesh.to_string().parse::<Mesh>().as_ref() == Ok(&mesh);
        let group = mesh.group_of_axes(&["a"]).unwrap();
        let group_text = group.to_string().parse::<GroupPattern>() == Ok(group);
        held_right && layout_right && by_tensor && text && mesh_text && group_text
    }
    property!().tests(Sweep::asked().count(2_000, 80_000)).holds(law as fn(Case) -> bool);
}

#[test]
fn bad_requests_are_errors_with_a_kind() {
    let mesh: Mesh = "dp=2,tp=4".parse().unwrap();
    for (text, kind) in [
        ("S(0)", "placement_count"),
        ("S(2),R", "no_such_dim"),
        ("S(0),X", "parse"),
        ("SS(0,0),R", "parse"),
        ("P(sum),P(max)", "placement"),
        ("P(norm2),P(norm3)", "placement"),
        ("[{dp,dp},{}]", "parse"),
        ("[{pp},{}]", "no_such_axis"),
        ("[{dp}]", "dim_count"),
        ("[{dp:(1)3},{}]", "parse"),
        ("S(99999999999999999999),R", "parse"),
    ] {
        let e = Sharding::parse(&mesh, &[8, 8], text).unwrap_err();
        assert_eq!(e.code(), kind, "{text}: {e}");
    }
    let huge = [usize::MAX >> 1, 4];
    assert_eq!(Sharding::parse(&mesh, &huge, "R,R").unwrap_err().code(), "overflow");
    for text in ["a=2,a=2", "a=0", "a=2:5,b=2:6,c=2:7"] {
        assert_eq!(text.parse::<Mesh>().unwrap_err().code(), "mesh", "{text}");
    }
}

/// Ragged shards combined with others, compared with the same literal splits.
///
/// The sizes of each range come in turn.
#[test]
fn ragged_shards_are_pieces_of_these_sizes() {
    let mesh: Mesh = "a=2,b=4".parse().unwrap();
    for (shape, text, want) in [
        (vec![32, 2], "S(0),RG(0,[3,5,0,8])", [3, 5, 0, 8, 3, 5, 0, 8]),
        (vec![16, 2], "R,RG(0,[3,5,0,8])", [3, 5, 0, 8, 3, 5, 0, 8]),
        (vec![16, 2], "RG(0,[12,4]),S(0)", [3, 3, 3, 3, 1, 1, 1, 1]),
        (vec![16, 2], "SS(0,2),RG(0,[0,0,8,0])", [0, 0, 8, 0, 0, 0, 8, 0]),
        (vec![7, 2], "P,RG(0,[0,7,0,0])", [0, 7, 0, 0, 0, 7, 0, 0]),
        (vec![0, 2], "R,RG(0,[0,0,0,0])", [0; 8]),
    ] {
        let s = Sharding::parse(&mesh, &shape, text).unwrap();
        let sizes: Vec<usize> = mesh.ranks().map(|r| s.local_shape(r).unwrap()[0]).collect();
        assert_eq!(sizes, want, "{text}");
        assert_eq!(Sharding::parse(&mesh, &shape, &s.to_string()).as_ref(), Ok(&s), "{text} as {s}");
        assert_eq!(s.max_local_numel(), 2 * want.iter().max().unwrap(), "{text}");
        let whole: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
        assert_eq!(s.assemble(&s.shard_all(&whole, 0).unwrap()).unwrap(), whole, "{text}");
    }
    let s = Sharding::parse(&mesh, &[32], "S(0),RG(0,[3,5,0,8])").unwrap();
    let firsts: Vec<Option<usize>> =
        mesh.ranks().map(|r| s.region(r).unwrap().indices(0).unwrap().next()).collect();
    assert_eq!(firsts, [Some(0), Some(3), None, Some(8), Some(16), Some(19), None, Some(24)]);
}

#[test]
fn ragged_sizes_that_are_chunks_are_plain_shards() {
    let mesh: Mesh = "a=4".parse().unwrap();
    for (shape, text, plain) in [([16], "RG(0,[4,4,4,4])", "S(0)"), ([7], "RG(0,[2,2,2,1])", "S(0)")] {
        let s = Sharding::parse(&mesh, &shape, text).unwrap();
        assert_eq!(s, Sharding::parse(&mesh, &shape, plain).unwrap());
        assert_eq!(s.to_string(), plain);
    }
    for (shape, text, part) in [
        ([16], "RG(0,[4,4,8])", "3 sizes"),
        ([16], "RG(0,[4,4,4,8])", "add up to 20, but earlier axes leave a rank 16"),
        ([16], "RG(0,[5,5,5,5])", "add up to 20"),
        ([16], "RG(1,[4,4,8,0])", "dim 1"),
        ([16], "RG(0,[9223372036854775807,1,0,0])", "sum"),
        ([16], "RG(0,[])", "first rank"),
    ] {
        let e = Sharding::parse(&mesh, &shape, text).unwrap_err();
        assert!(e.to_string().contains(part), "{text}: {e}");
    }
    let uneven: Mesh = "a=2,b=2".parse().unwrap();
    let e = Sharding::parse(&uneven, &[5], "S(0),RG(0,[1,2])").unwrap_err();
    assert!(e.to_string().contains("leave a rank 2"), "{e}");
    let p = Placement::ragged(0, &[usize::MAX, 1, 1, 1]);
    assert_eq!(Sharding::new(&mesh, &[16], &[p]).unwrap_err().code(), "overflow");
}
