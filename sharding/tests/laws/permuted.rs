//! Meshes whose ranks are in any order.
//!
//! The oracle is relabelling: properties of a row-major mesh hold for the same mesh with its ranks renamed by
//! the table.

use std::collections::BTreeSet;

use reshard_sharding::{
    Error, GroupPattern, GroupRegistry, Mesh, ProcessGroup, ProcessGroups, Sharding, SubAxis,
};
use reshard_test_support::Random;

/// All orders of `0..n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: Vec<usize>| {
        (0..n).map(move |at| {
            let mut longer = order.clone();
            longer.insert(at, n - 1);
            longer
        })
    };
    orders(n - 1).into_iter().flat_map(insert).collect()
}

/// Axes by name and size, and the ranks at their coordinates.
type Case = (Vec<(&'static str, usize)>, Vec<usize>);

/// Axes, and the ranks at their coordinates: all orders of few ranks, then drawn ones of more, spread out.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for axes in [
        vec![],
        vec![("x", 1)],
        vec![("x", 4)],
        vec![("x", 5)],
        vec![("x", 2), ("y", 2)],
        vec![("x", 2), ("y", 3)],
        vec![("x", 3), ("one", 1), ("y", 2)],
    ] {
        let size = axes.iter().map(|a| a.1).product();
        cases.extend(orders(size).into_iter().map(|order| (axes.clone(), order)));
    }
    let mut random = Random(46);
    for _ in 0..200 {
        let mut axes = Vec::new();
        for name in &["x", "y", "z"][..=random.below(3)] {
            axes.push((*name, *random.pick(&[1, 2, 3, 4, 6])));
        }
        let size = axes.iter().map(|a| a.1).product();
        let (first, spread) = (random.below(3), random.below(2) + 1);
        let mut ranks: Vec<usize> = (0..size).map(|i| first + i * spread).collect();
        // Some orders leave blocks intact, as real machines do.
        let block = *random.pick(&[size, 2, 4]);
        for chunk in ranks.chunks_mut(block) {
            for i in (1..chunk.len()).rev() {
                chunk.swap(i, random.below(i + 1));
            }
        }
        cases.push((axes, ranks));
    }
    cases
}

/// A permuted mesh, the row-major one with the same axes, and the ranks of the first by those of the second.
fn renamed() -> impl Iterator<Item = (Mesh, Mesh, Vec<usize>)> {
    cases().into_iter().map(|(axes, ranks)| {
        let mesh = Mesh::from_ranks(axes.iter().copied(), &ranks).unwrap();
        (mesh, Mesh::new(axes).unwrap(), ranks)
    })
}

#[test]
fn a_mesh_is_its_list_of_ranks() {
    let (mut tables, mut layouts) = (0, 0);
    for (mesh, plain, list) in renamed() {
        assert_eq!(mesh.ranks().collect::<Vec<_>>(), list);
        for (i, &rank) in list.iter().enumerate() {
            let c = plain.coordinate_at(i).unwrap();
            assert_eq!((mesh.rank_at(&c), mesh.coordinate(rank)), (Some(rank), Some(c)), "{mesh}");
            assert_eq!(mesh.position(rank), Some(i));
        }
        let (low, high) = (list.iter().min().unwrap(), list.iter().max().unwrap());
        assert_eq!((mesh.min_rank(), mesh.world_size(), mesh.offset()), (*low, high + 1, list[0]), "{mesh}");
        for rank in 0..mesh.world_size() + 2 {
            assert_eq!(mesh.contains(rank), list.contains(&rank), "{mesh}: {rank}");
        }
        assert!(!mesh.contains(usize::MAX));
        let (text, shardy) = (mesh.to_string(), mesh.to_shardy().unwrap());
        assert_eq!((text.parse().as_ref(), shardy.parse().as_ref()), (Ok(&mesh), Ok(&mesh)), "{text}");
        let stored = serde_json::to_string(&mesh).unwrap();
        assert_eq!(serde_json::from_str::<Mesh>(&stored).unwrap(), mesh);
        // Without a table, the ranks are a layout: offset and axes determine them.
        let sum = |c: &[usize]| {
            let steps = mesh.axes().iter().zip(c).map(|(a, &x)| a.layout().at(x as i64).unwrap());
            mesh.offset() as i64 + steps.sum::<i64>()
        };
        let is_layout = (0..list.len()).all(|i| sum(&mesh.coordinate_at(i).unwrap()) == list[i] as i64);
        assert_eq!(mesh.rank_table().is_none(), is_layout, "{mesh}");
        assert!(mesh.rank_table().is_none_or(|t| t == list), "{mesh}");
        *(if is_layout { &mut layouts } else { &mut tables }) += 1;
    }
    assert!(tables > 1000 && layouts > 20, "{tables} {layouts}");
}

/// Every mesh that a few transforms make.
fn transformed(mesh: &Mesh) -> Vec<Mesh> {
    let names: Vec<String> = mesh.axes().iter().map(|a| a.name().to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let backwards: Vec<&str> = names.iter().rev().copied().collect();
    let mut out = vec![mesh.reorder(&backwards).unwrap()];
    for (i, name) in names.iter().enumerate() {
        let size = mesh.axes()[i].size();
        out.push(mesh.slice(&[name]).unwrap());
        out.push(mesh.rename(name, "w").unwrap());
        out.push(mesh.at(&[(name, size - 1)]).unwrap());
        out.push(mesh.at(&[(name, 0)]).unwrap());
        if size.is_multiple_of(2) {
            out.push(mesh.split(name, &[("a", size / 2), ("b", 2)]).unwrap());
        }
    }
    if !names.is_empty() {
        out.push(mesh.flatten(&names, "all").unwrap());
        out.push(mesh.flatten(&backwards, "all").unwrap());
    }
    out.push(mesh.reinterpret(&[("all", mesh.size())]).unwrap());
    out.push(Mesh::concatenate(std::slice::from_ref(mesh)).unwrap());
    out
}

#[test]
fn transforms_are_those_of_positions_followed_by_the_table() {
    for (mesh, plain, list) in renamed() {
        for (a, b) in transformed(&mesh).iter().zip(transformed(&plain)) {
            let expected: Vec<usize> = b.ranks().map(|r| list[r]).collect();
            assert_eq!(a.ranks().collect::<Vec<_>>(), expected, "{mesh}: {a}, {b}");
            assert_eq!(a.axes().len(), b.axes().len());
            assert_eq!(a.same_ranks(&mesh), a.size() == mesh.size(), "{a}, {mesh}");
        }
        if let [x, y] = mesh.axes() {
            let (x, y) = (x.name().as_str(), y.name().as_str());
            for &rank in &list {
                let part = mesh.slice_of(rank, &[y]).unwrap();
                let c = mesh.coordinate(rank).unwrap();
                assert_eq!(part, mesh.at(&[(x, c[0])]).unwrap());
                assert!(part.contains(rank));
            }
        }
    }
}

/// The groups of some sub-axes by their definition: ranks that agree on all other digits.
fn defined(mesh: &Mesh, subs: &[SubAxis]) -> BTreeSet<Vec<usize>> {
    let rest = |c: &[usize]| {
        let mut c = c.to_vec();
        for s in subs {
            let n = mesh.axes()[s.axis].size();
            c[s.axis] -= s.known_digit(c[s.axis], n) * s.known_post(n);
        }
        c
    };
    let at: Vec<(usize, Vec<usize>)> =
        mesh.ranks().map(|r| (r, rest(&mesh.coordinate(r).unwrap()))).collect();
    let with = |x: &Vec<usize>| {
        let mut group: Vec<usize> = at.iter().filter(|(_, y)| y == x).map(|(r, _)| *r).collect();
        group.sort_unstable();
        group
    };
    at.iter().map(|(_, x)| with(x)).collect()
}

/// Lists of sub-axes to make groups of.
fn sub_axes(mesh: &Mesh) -> Vec<Vec<SubAxis>> {
    let all: Vec<SubAxis> = mesh.whole_axes().collect();
    let mut out = vec![vec![], all.clone()];
    for &s in &all {
        out.push(vec![s]);
        if s.size.is_multiple_of(2) {
            out.push(vec![SubAxis { size: 2, ..s }]);
            out.push(vec![SubAxis { pre_size: s.size / 2, size: 2, ..s }]);
        }
    }
    out
}

#[test]
fn groups_are_the_ranks_that_agree_on_the_rest_in_any_order() {
    let (mut listed, mut patterns) = (0, 0);
    for (mesh, ..) in renamed() {
        for subs in sub_axes(&mesh) {
            let groups = match mesh.groups(&subs) {
                Ok(groups) => groups,
                // A digit of a hierarchical axis may not be a mode of ranks.
                Err(e) => {
                    assert!(
                        mesh.rank_table().is_none() && subs.iter().any(|&s| !mesh.is_whole(s)),
                        "{mesh}: {e}"
                    );
                    continue;
                }
            };
            let expected = defined(&mesh, &subs);
            let all: BTreeSet<Vec<usize>> = groups.iter().map(|g| g.iter().collect()).collect();
            assert_eq!(all, expected, "{mesh} {subs:?}");
            assert_eq!((groups.count(), groups.lowest()), (expected.len(), mesh.min_rank()));
            assert_eq!(groups.to_string().parse::<ProcessGroups>().as_ref(), Ok(&groups), "{groups}");
            assert_eq!(ProcessGroups::listed(expected.iter().cloned()).as_ref(), Ok(&groups));
            let pattern = mesh.group(&subs).unwrap();
            assert_eq!(&pattern, groups.pattern());
            assert_eq!(pattern.to_string().parse::<GroupPattern>().as_ref(), Ok(&pattern), "{pattern}");
            assert!(pattern.is_covered_by(&pattern) && groups.is_subset_of(&groups));
            for members in &expected {
                for &rank in members {
                    let group = mesh.members(&subs, rank).unwrap();
                    assert_eq!(groups.group_of(rank).as_ref(), Some(&group));
                    assert_eq!(group.iter().collect::<Vec<_>>(), *members);
                    assert_eq!(ProcessGroup::of_members(members).as_ref(), Ok(&group));
                    assert_eq!(group.to_string().parse::<ProcessGroup>().as_ref(), Ok(&group), "{group}");
                    for x in 0..=mesh.world_size() {
                        assert_eq!(group.below(x), members.iter().filter(|&&m| m < x).count());
                        assert_eq!(group.group_rank(x), members.iter().position(|&m| m == x));
                        assert_eq!(group.rank_at(x), members.get(x).copied());
                        let near: Vec<usize> =
                            (0..members.len()).filter(|&i| members[i] / 3 == x / 3).collect();
                        assert!(group.on_node_of(x, 3).unwrap().eq(near), "{group} {x}");
                    }
                }
            }
            *(if groups.to_string().starts_with('{') { &mut listed } else { &mut patterns }) += 1;
        }
    }
    assert!(listed > 500 && patterns > 500, "{listed} {patterns}");
}

#[test]
fn equal_groups_of_meshes_in_any_order_are_the_same_ranks() {
    let meshes: Vec<Mesh> = orders(4)
        .iter()
        .flat_map(|o| [Mesh::from_ranks([("x", 2), ("y", 2)], o), Mesh::from_ranks([("x", 4)], o)])
        .map(Result::unwrap)
        .collect();
    let all: Vec<ProcessGroups> =
        meshes.iter().flat_map(|m| sub_axes(m).into_iter().filter_map(|subs| m.groups(&subs).ok())).collect();
    let members =
        |g: &ProcessGroups| -> BTreeSet<Vec<usize>> { g.iter().map(|g| g.iter().collect()).collect() };
    for a in &all {
        for b in &all {
            assert_eq!(a == b, members(a) == members(b), "{a} {b}");
            assert_eq!(a.is_subset_of(b), members(a).is_subset(&members(b)), "{a} {b}");
        }
    }
}

#[test]
fn registered_groups_serve_whatever_the_order_of_their_mesh() {
    let world: Mesh = "x=2,y=3@[0,1,3,2,4,5]".parse().unwrap();
    let mut registry = GroupRegistry::new();
    registry.add_axes(&world).unwrap();
    let part = world.at(&[("x", 0)]).unwrap();
    assert_eq!(registry.find(&part.groups_of_axes(&["y"]).unwrap()), Some("y"));
    assert_eq!(registry.find(&part.groups_of_axes(&[]).unwrap()), None);
    let same: Mesh = "a=6".parse().unwrap();
    assert_eq!(registry.find(&same.groups_of_axes(&["a"]).unwrap()), Some("x=2,y=3@[0,1,3,2,4,5]"));
}

#[test]
fn shardings_are_those_of_the_row_major_mesh_with_ranks_renamed() {
    for (mesh, plain, list) in renamed() {
        let axes = mesh.axes().len();
        for text in ["R", "S(0)", "S(1)", "P"] {
            let mut each = vec!["S(0)"; axes];
            if let Some(last) = each.last_mut() {
                *last = text;
            }
            let (text, shape) = (each.join(","), [6, 5]);
            let (a, b) = (Sharding::parse(&mesh, &shape, &text), Sharding::parse(&plain, &shape, &text));
            let (Ok(a), Ok(b)) = (a, b) else { continue };
            for (position, &rank) in list.iter().enumerate() {
                assert_eq!(a.region(rank), b.region(position), "{mesh} {text}");
            }
            assert_eq!(a.ownership(), b.ownership());
            let whole: Vec<i64> = (0..30).collect();
            let shards = a.shard_all(&whole, 0).unwrap();
            assert_eq!(shards, b.shard_all(&whole, 0).unwrap());
            assert_eq!(a.assemble(&shards).as_ref(), Ok(&whole));
            let stored = serde_json::to_string(&a).unwrap();
            assert_eq!(serde_json::from_str::<Sharding>(&stored).unwrap(), a, "{stored}");
        }
    }
}

#[test]
fn what_is_no_mesh_or_group_in_any_order_is_refused_with_the_way_out() {
    let refused: [(Error, &str, &str); 9] = [
        (
            Mesh::from_ranks([("x", 3)], &[0, 2, 2]).unwrap_err(),
            "mesh",
            "rank 2 is at the coordinates [1] and [2]",
        ),
        (Mesh::from_ranks([("x", 2), ("y", 1)], &[7, 7]).unwrap_err(), "mesh", "[0, 0] and [1, 0]"),
        (Mesh::from_ranks([("x", 2)], &[0, usize::MAX]).unwrap_err(), "overflow", "the rank"),
        (Mesh::from_ranks([("x", 2)], &[0, i64::MAX as usize]).unwrap_err(), "overflow", "the rank"),
        (Mesh::from_ranks([("x", 2), ("x", 2)], &[0, 1, 3, 2]).unwrap_err(), "mesh", "two axes"),
        ("x=2:1@[0,1]".parse::<Mesh>().unwrap_err(), "parse", "a list of ranks goes after sizes"),
        (
            "{{0,1},{1,2}}".parse::<ProcessGroups>().unwrap_err(),
            "not_a_layout",
            "rank 1 is in the groups twice",
        ),
        ("{{0,1},{2}}".parse::<GroupPattern>().unwrap_err(), "not_a_layout", "2 and 1 members"),
        (
            "x=4@[1,2,3,0]".parse::<Mesh>().unwrap().flat_layout().unwrap_err(),
            "not_a_layout",
            "is not a layout",
        ),
    ];
    for (error, kind, says) in refused {
        assert_eq!(error.code(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    for text in ["{", "{}", "{{}}", "{{0}", "{{0},}", "{0,1}x", "{{0,9223372036854775807}}"] {
        assert!(text.parse::<ProcessGroups>().is_err() && text.parse::<GroupPattern>().is_err(), "{text}");
        assert!(text.parse::<ProcessGroup>().is_err(), "{text}");
    }
    for text in ["x=2@[", "x=2@[0]", "x=2@[0,1", "x=2@[0,1]2", "x=2@[]", "@[1,2]"] {
        assert!(text.parse::<Mesh>().is_err(), "{text}");
    }
}
