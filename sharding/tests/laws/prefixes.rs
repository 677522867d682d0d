//! Ragged shards of several dims, against lists of indices that every placement shortens.

use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;

/// The range of a list that rank `i` of `n` keeps by `torch.chunk`.
fn chunk(len: usize, n: usize, i: usize) -> std::ops::Range<usize> {
    let c = len.div_ceil(n);
    (i * c).min(len)..((i + 1) * c).min(len)
}

/// The indices that are left, by dim, until a ragged shard makes one list of the prefix.
#[derive(Clone)]
struct Left {
    dims: Vec<Vec<usize>>,
    /// Row-major indices of the prefix.
    prefix: Option<Vec<usize>>,
}

fn row_major(dims: &[Vec<usize>], shape: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (indices, n) in dims.iter().zip(shape) {
        all = all.iter().flat_map(|at| indices.iter().map(move |i| at * n + i)).collect();
    }
    all
}

/// All elements that a rank holds, in order; the prefix has two dims.
fn defined(shape: &[usize], cuts: &[Cut], coordinate: &[usize], order: &[usize]) -> Vec<usize> {
    let mut left = Left { dims: shape.iter().map(|&n| (0..n).collect()).collect(), prefix: None };
    for &axis in order {
        let (n, i) = (2 + axis, coordinate[axis]);
        match &cuts[axis] {
            Cut::None => {}
            Cut::Shard(dim) => left.dims[*dim] = left.dims[*dim][chunk(left.dims[*dim].len(), n, i)].to_vec(),
            Cut::Ragged(sizes) => {
                let all = row_major(&left.dims[..2], &shape[..2]);
                let begin: usize = sizes[..i].iter().sum();
                left.prefix = Some(all[begin..begin + sizes[i]].to_vec());
            }
        }
    }
    let prefix = left.prefix.unwrap_or_else(|| row_major(&left.dims[..2], &shape[..2]));
    let rest = row_major(&left.dims[2..], &shape[2..]);
    let inner: usize = shape[2..].iter().product();
    prefix.iter().flat_map(|p| rest.iter().map(move |r| p * inner + r)).collect()
}

#[derive(Clone, Debug)]
enum Cut {
    None,
    Shard(usize),
    Ragged(Vec<usize>),
}

/// Sizes of `n` ranks that add up to `total`.
fn sizes(random: &mut Random, total: usize, n: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..n).map(|_| random.below(total + 1)).collect();
    ends.extend([0, total]);
    ends.sort_unstable();
    ends.windows(2).map(|w| w[1] - w[0]).collect()
}

#[test]
fn a_ragged_prefix_is_an_interval_of_what_the_others_left() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    let mut random = Random(9);
    let (mut made, mut refused) = (0, 0);
    for _ in 0..4000 {
        let shape: Vec<usize> = (0..3).map(|_| 1 + random.below(7)).collect();
        // One axis splits the prefix raggedly, the other one anything.
        let ragged = random.below(2);
        let other = 1 - ragged;
        let shard = random.below(4);
        let first_ragged = random.below(2) == 0;
        let order = if first_ragged { [ragged, other] } else { [other, ragged] };
        let n = 2 + other;
        let left = match shard {
            // Uneven shards before a ragged one leave ranks with different lengths.
            dim @ 0..=1 if !first_ragged => {
                if !shape[dim].is_multiple_of(n) {
                    continue;
                }
                shape[0] * shape[1] / n
            }
            _ => shape[0] * shape[1],
        };
        let mut cuts = vec![Cut::None, Cut::None];
        cuts[ragged] = Cut::Ragged(sizes(&mut random, left, 2 + ragged));
        cuts[other] = if shard < 3 { Cut::Shard(shard) } else { Cut::None };
        let texts: Vec<String> = cuts
            .iter()
            .map(|cut| match cut {
                Cut::None => "R".to_owned(),
                Cut::Shard(dim) => format!("S({dim})"),
                Cut::Ragged(sizes) => format!("RG((0,1),{sizes:?})"),
            })
            .collect();
        let names = ["x", "y"];
        let text = format!("{} order={{{},{}}}", texts.join(","), names[order[0]], names[order[1]]);
        match Sharding::parse(&mesh, &shape, &text) {
            Err(e) => {
                assert!(first_ragged && shard < 2, "{shape:?} {text}: {e}");
                refused += 1;
            }
            Ok(s) => {
                made += 1;
                assert_eq!(s.shape(), [shape[0] * shape[1], shape[2]]);
                for rank in mesh.ranks() {
                    let c = mesh.coordinate(rank).unwrap();
                    assert_eq!(
                        s.global_indices(rank).unwrap(),
                        defined(&shape, &cuts, &c, &order),
                        "{shape:?} {text}"
                    );
                }
            }
        }
    }
    assert!(made > 1500 && refused > 300, "{made} {refused}");
}

#[test]
fn units_are_shares_of_what_is_left() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    for (text, same) in [
        ("S(0),RG(0,units=[1,2,1])", "S(0),RG(0,[3,6,3])"),
        ("RG(0,units=[1,3]),R", "RG(0,[6,18]),R"),
        ("R,RaggedShard(dims=(0,), local_units=(3,2,1))", "R,RG(0,[12,8,4])"),
        ("R,RaggedShard(dims=(0, 1), local_units=(3, 2, 1))", "R,RG((0,1),[48,32,16])"),
        ("RG(0,units=[1,2]),S(1) order={y,x}", "RG(0,[8,16]),S(1) order={y,x}"),
    ] {
        let parse = |text: &str| Sharding::parse(&mesh, &[24, 4], text);
        assert_eq!(parse(text).unwrap(), parse(same).unwrap(), "{text}");
    }
}

#[test]
fn what_has_no_shape_or_is_no_prefix_is_refused() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    for (text, word) in [
        ("RG((1,0),[1,2]),R", "(0,1)"),
        ("RG((0,2),[1,2]),R", "(0,1)"),
        ("RG((),[1,2]),R", "a dim"),
        ("RG((0,1,2,3),[1,2]),R", "dims"),
        ("RG((0,1),[48,48]),S(0)", "not a box"),
        ("RG((0,1),[48,48]),SS(0,2)", "not a box"),
        ("RG((0,1),[1,2]),R", "add up"),
        ("R,RG(0,units=[1,2,4])", "divide"),
        ("R,RG(0,units=[0,0,0])", "divide"),
        ("RG((0,1),[18446744073709551615,1]),R", "2^63"),
    ] {
        let said = Sharding::parse(&mesh, &[24, 4], text).unwrap_err().to_string();
        assert!(said.contains(word), "{text}: {said}");
    }
    for text in ["RG((0,1),[1,2])", "RG(0,units=[1,2])"] {
        let said = text.parse::<reshard_sharding::Placements>().unwrap_err().to_string();
        assert!(said.contains("shape"), "{said}");
    }
}

/// Sizes are for the length that is left where they apply, in any order of axes.
///
/// This includes chunks of another length.
#[test]
fn sizes_that_do_not_fit_what_is_left_are_refused_in_every_order() {
    for (mesh, shape, text) in [
        ("x=3,y=2", &[4][..], "S(0),RG(0,[0,0]) order={x,y}"),
        ("x=3,y=2@[2,3,4,5,1,0]", &[4], "S(0),RG(0,units=[1,0]) order={x,y}"),
        ("x=3,y=2", &[8, 2], "S(0),RG((0,1),[3,3]) order={x,y}"),
        ("x=2,y=3", &[4], "S(0),RG(0,[1,1,0]) order={y,x}"),
        ("x=2,y=3", &[4], "S(0),RG(0,[1,1,0])"),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let refused = Sharding::parse(&mesh, shape, text);
        // The last one fits: two rows are left.
        assert_eq!(refused.is_ok(), text == "S(0),RG(0,[1,1,0])", "{text}: {refused:?}");
    }
    let mesh: Mesh = "x=3,y=2,z=1".parse().unwrap();
    for text in ["S(0),S(0) order={x,y}", "S(0),S(0),R,S(1) order={x,y}"] {
        assert_eq!(Sharding::parse(&mesh, &[4, 8, 2], text).unwrap_err().code(), "placement_count", "{text}");
    }
    let said = Sharding::parse(&mesh, &[4, 8, 2], "S(0),S(0),RG((0,1),[16])").unwrap_err().to_string();
    assert!(said.contains("whose size differs between ranks"), "{said}");
}

#[test]
fn more_dims_than_any_tensor_has_are_refused() {
    let mesh: Mesh = "x=2".parse().unwrap();
    for dims in [257, 1025, 30_000] {
        let said = Sharding::parse(&mesh, &vec![1; dims], "S(0)").unwrap_err().to_string();
        assert!(said.contains("at most 256"), "{said}");
    }
    let s = Sharding::parse(&mesh, &[2; 62], "S(61)").unwrap();
    assert!(s.view(&vec![1; 300]).is_err() && s.layout().is_some());
}
