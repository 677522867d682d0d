//! Meshes and groups, where nothing enumerates ranks, against enumerations of ranks.
use std::collections::BTreeSet;

use reshard_sharding::{GroupPattern, Mesh, SubAxis};
use reshard_sharding::{GroupRegistry, ProcessGroup, ProcessGroups};
use reshard_test_support::{Arbitrary, Gen, Sweep, property};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn ranks(mesh: &Mesh) -> Vec<usize> {
    mesh.ranks().collect()
}

/// The groups of some sub-axes by enumeration: the ranks that agree on everything else.
fn enumerated(mesh: &Mesh, subs: &[SubAxis]) -> BTreeSet<Vec<usize>> {
    let sizes: Vec<usize> = mesh.axes().iter().map(reshard_sharding::Axis::size).collect();
    let rest = |rank: usize| -> Vec<usize> {
        let mut c = mesh.coordinate(rank).unwrap();
        for s in subs {
            c[s.axis] -= s.known_digit(c[s.axis], sizes[s.axis]) * s.known_post(sizes[s.axis]);
        }
        c.to_vec()
    };
    let mut by_rest = std::collections::BTreeMap::<Vec<usize>, Vec<usize>>::new();
    for rank in mesh.ranks() {
        by_rest.entry(rest(rank)).or_default().push(rank);
    }
    by_rest
        .into_values()
        .map(|mut g| {
            g.sort_unstable();
            g
        })
        .collect()
}

fn listed(groups: &ProcessGroups) -> BTreeSet<Vec<usize>> {
    groups.iter().map(|g| g.iter().collect()).collect()
}

/// A mesh with any order of strides, gaps and an offset, and a set of its sub-axes.
///
/// Some meshes have a flattened axis.
#[derive(Clone, Debug)]
struct Case {
    mesh: Mesh,
    subs: Vec<SubAxis>,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Case {
        let sizes: Vec<usize> =
            (0..=usize::arbitrary(g) % 4).map(|_| *g.choose(&[1, 2, 3, 4, 6, 8]).unwrap()).collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, usize::arbitrary(g) % (i + 1));
        }
        let mut stride = 1 + usize::arbitrary(g) % 2;
        let mut strides = vec![0; sizes.len()];
        for axis in order {
            strides[axis] = stride;
            stride = stride * sizes[axis] + usize::arbitrary(g) % 3;
        }
        let axes: Vec<String> = ["a", "b", "c", "d"]
            .iter()
            .zip(sizes.iter().zip(&strides))
            .map(|(name, (n, d))| format!("{name}={n}:{d}"))
            .collect();
        let mut m = mesh(&format!("{}@{}", axes.join(","), usize::arbitrary(g) % 20));
        if sizes.len() > 2 && bool::arbitrary(g) {
            m = m.flatten(&["a", "c"], "ac").unwrap();
        }
        let mut subs = Vec::new();
        for (axis, a) in m.axes().iter().enumerate() {
            let divisors = |n: usize| (1..=n).filter(move |&d| n.is_multiple_of(d)).collect::<Vec<_>>();
            let pre = *g.choose(&divisors(a.size())).unwrap();
            let size = *g.choose(&divisors(a.size() / pre)).unwrap();
            match usize::arbitrary(g) % 3 {
                0 => {}
                1 => subs.push(m.known_whole(axis)),
                _ => subs.push(SubAxis { axis, pre_size: pre, size }),
            }
        }
        for i in (1..subs.len()).rev() {
            subs.swap(i, usize::arbitrary(g) % (i + 1));
        }
        Case { mesh: m, subs }
    }
}

#[test]
fn groups_are_the_ranks_that_agree_on_the_rest() {
    fn law(Case { mesh, subs }: Case) -> bool {
        // A sub-axis of a flattened axis may split across its modes; such groups have no layout.
        let Ok(groups) = mesh.groups(&subs) else { return subs.iter().any(|&s| !mesh.is_whole(s)) };
        let by_rank = mesh.ranks().all(|r| groups.group_of(r).is_some_and(|g| g.contains(r)));
        let outside =
            (0..mesh.world_size() + 3).filter(|&r| !mesh.contains(r)).all(|r| groups.group_of(r).is_none());
        let same = listed(&groups) == enumerated(&mesh, &subs);
        assert!(same, "{groups} on {mesh} {subs:?}");
        same && groups.count() * groups.pattern().size() == mesh.size()
            && by_rank
            && outside
            && groups.to_string().parse::<ProcessGroups>().as_ref() == Ok(&groups)
    }
    property!().tests(5_000).holds(law as fn(Case) -> bool);
}

#[test]
fn equal_groups_are_exactly_the_same_communicators() {
    fn law(a: Case, b: Case) -> bool {
        let (Ok(x), Ok(y)) = (a.mesh.groups(&a.subs), b.mesh.groups(&b.subs)) else { return true };
        // Groups of one rank have no communication and any pattern of firsts: compared all the same.
        (x == y) == (listed(&x) == listed(&y)) && x.is_subset_of(&y) == listed(&x).is_subset(&listed(&y))
    }
    property!().tests(5_000).holds(law as fn(Case, Case) -> bool);
}

#[test]
fn members_below_a_rank_and_on_a_node_are_counted_right() {
    fn law(Case { mesh, subs }: Case, node: u8) -> bool {
        let Ok(groups) = mesh.groups(&subs) else { return true };
        let node = 1 + usize::from(node) % 12;
        let split = groups.split_at_node(node);
        // Of many groups some, and another of them in each case.
        let most = Sweep::asked().count(8, u64::MAX) as usize;
        let one_in = groups.count().div_ceil(most);
        groups.iter().skip(node % one_in).step_by(one_in).all(|g| {
            let all: Vec<usize> = g.iter().collect();
            // Rank by rank: how many members came before.
            let mut before = 0;
            let below = (0..mesh.world_size() + 2).all(|r| {
                let here = all.get(before) == Some(&r);
                let right = g.below(r) == before && g.group_rank(r) == here.then_some(before);
                before += usize::from(here);
                right
            });
            let near = |r: usize| all.iter().copied().filter(|m| m / node == r / node).collect::<Vec<_>>();
            // All ranks of a node have the same answer.
            let of_nodes: Vec<Vec<usize>> = (0..mesh.world_size()).step_by(node).map(near).collect();
            let on_node = (0..mesh.world_size())
                .all(|r| g.on_node_of(r, node).is_some_and(|range| all[range] == of_nodes[r / node][..]));
            let below = below && before == all.len();
            let split_right = split.as_ref().is_none_or(|(inside, across)| {
                let nodes: BTreeSet<usize> = all.iter().map(|m| m / node).collect();
                across.size() == nodes.len() && all.iter().all(|&m| near(m).len() == inside.size())
            });
            below && on_node && split_right && g.to_string().parse::<ProcessGroup>() == Ok(g)
        })
    }
    property!().tests(2_000).holds(law as fn(Case, u8) -> bool);
}

#[test]
fn transforms_keep_ranks_at_their_coordinates() {
    fn law(Case { mesh, .. }: Case) -> bool {
        let names: Vec<&str> = mesh.axes().iter().map(|a| a.name().as_str()).collect();
        let reversed: Vec<&str> = names.iter().rev().copied().collect();
        let turned = mesh.reorder(&reversed).unwrap();
        let back = mesh.ranks().all(|r| {
            let mut c = turned.coordinate(r).unwrap();
            c.reverse();
            mesh.coordinate(r).unwrap() == c
        });
        let flat = mesh.flatten(&names, "all").unwrap();
        let from_ranks =
            Mesh::from_ranks(names.iter().zip(mesh.axes()).map(|(n, a)| (n, a.size())), &ranks(&mesh));
        let sizes: Vec<(&str, usize)> = names.iter().zip(mesh.axes()).map(|(n, a)| (*n, a.size())).collect();
        let first = names[0];
        let slices = (0..mesh.axes()[0].size()).all(|x| {
            let part = mesh.at(&[(first, x)]).unwrap();
            ranks(&part) == mesh.ranks().filter(|&r| mesh.coordinate(r).unwrap()[0] == x).collect::<Vec<_>>()
        });
        let own = mesh.ranks().all(|r| mesh.slice_of(r, &[first]).unwrap().contains(r));
        back && ranks(&flat) == ranks(&mesh)
            && flat.split("all", &sizes).as_ref() == Ok(&mesh)
            && mesh.reinterpret(&sizes).as_ref() == Ok(&mesh)
            && from_ranks.as_ref() == Ok(&mesh)
            && flat.same_ranks(&mesh)
            && slices
            && own
            && mesh.to_string().parse::<Mesh>().as_ref() == Ok(&mesh)
    }
    property!().tests(3_000).holds(law as fn(Case) -> bool);
}

#[test]
fn lists_of_ranks_have_a_table_exactly_if_they_are_no_layouts() {
    // Every list of four distinct ranks below 8, as (4) and as (2, 2), against a search over all meshes.
    let mut flat = BTreeSet::new();
    let mut square = BTreeSet::new();
    let range = -7i64..8;
    for offset in 0..8usize {
        for d in range.clone() {
            for e in range.clone() {
                let two = |axes: &str| format!("{axes}@{offset}").parse::<Mesh>();
                flat.extend(two(&format!("x=(2,2):({d},{e})")).map(|m| ranks(&m)));
                flat.extend(two(&format!("x=4:{d}")).map(|m| ranks(&m)));
                square.extend(two(&format!("x=2:{d},y=2:{e}")).map(|m| ranks(&m)));
            }
        }
    }
    for i in 0..8usize.pow(4) {
        let list = [i & 7, i >> 3 & 7, i >> 6 & 7, i >> 9 & 7];
        let a = Mesh::from_ranks([("x", 4)], &list);
        let b = Mesh::from_ranks([("x", 2), ("y", 2)], &list);
        let distinct = list.iter().collect::<BTreeSet<_>>().len() == list.len();
        let layout = |m: &Result<Mesh, _>| m.as_ref().is_ok_and(|m| m.rank_table().is_none());
        assert_eq!((a.is_ok(), b.is_ok()), (distinct, distinct), "{list:?}");
        assert_eq!(layout(&a), flat.contains(&list[..]), "{list:?} as one axis: {a:?}");
        assert_eq!(layout(&b), square.contains(&list[..]), "{list:?} as two: {b:?}");
        if let Ok(m) = a {
            assert_eq!(ranks(&m), list);
        }
    }
}

#[test]
fn dense_and_sparse_views_of_sixteen_ranks() {
    let dense = mesh("dp=2:8,cp=2:4,tp=4:1");
    assert_eq!(dense.flatten(&["dp", "cp"], "f").unwrap().axes()[0].layout().to_string(), "4:4");
    assert_eq!(dense.flat_layout().unwrap().to_string(), "16:1");
    assert_eq!(dense.group_of_all().unwrap().to_string(), "16:1");
    let sparse = dense.reinterpret(&[("edp", 4), ("ep", 2), ("etp", 2)]).unwrap();
    assert_eq!(sparse.axes()[0].layout().to_string(), "4:4");
    assert_eq!(sparse.axes()[1].layout().to_string(), "2:2");
    assert_eq!(sparse.axes()[2].layout().to_string(), "2:1");
    assert_eq!(sparse.reinterpret(&[("dp", 2), ("cp", 2), ("tp", 4)]).unwrap(), dense);
    let flat = |names: &[&str]| dense.flatten(names, "f").unwrap();
    assert_ne!(flat(&["cp", "dp"]), flat(&["dp", "cp"]));
    assert_eq!(
        dense.groups_of_axes(&["cp", "dp"]).unwrap(),
        dense.groups_of_axes(&["dp", "cp"]).unwrap(),
        "as groups the order does not count"
    );
}

#[test]
fn strides_five_six_seven_are_orthogonal_only_by_pairs() {
    let group = |stride: usize| format!("2:{stride}").parse::<GroupPattern>().unwrap();
    let all = [group(5), group(6), group(7)];
    assert!(!GroupPattern::are_orthogonal(&[&all[0], &all[1], &all[2]]));
    assert!(all[0].is_orthogonal_to(&all[1]) && all[1].is_orthogonal_to(&all[2]));
    let e = "a=2:5,b=2:6,c=2:7".parse::<Mesh>().unwrap_err();
    assert_eq!(e.code(), "mesh");
}

#[test]
fn groups_that_exist_serve_under_any_name() {
    let world = mesh("dp=2,pp=2,tp=4");
    let mut registry = GroupRegistry::new();
    registry.add_axes(&world).unwrap();
    registry.add_world(16).unwrap();
    let other = world.reinterpret(&[("x", 4), ("y", 4)]).unwrap();
    assert_eq!(registry.find(&other.groups_of_axes(&["y"]).unwrap()), Some("tp"));
    assert_eq!(registry.find(&other.groups_of_axes(&["x"]).unwrap()), None);
    let all = world.groups_of_axes(&["tp", "dp", "pp"]).unwrap();
    assert_eq!(registry.find(&all), Some("dp=2,pp=2,tp=4"));
    registry.add("x", other.groups_of_axes(&["x"]).unwrap());
    assert_eq!(registry.find(&world.groups_of_axes(&["pp", "dp"]).unwrap()), Some("x"));
    // (dp, tp) sliced out of [dp, pp, tp] has one group; the world's two hold it.
    let stage = world.at(&[("pp", 1)]).unwrap();
    let wanted = stage.groups_of_axes(&["dp", "tp"]).unwrap();
    assert_eq!(registry.find(&wanted), None);
    registry.add("dp_tp", world.groups_of_axes(&["dp", "tp"]).unwrap());
    assert_eq!(registry.find(&wanted), Some("dp_tp"));
    assert!(!wanted.same_members(&world.groups_of_axes(&["dp", "tp"]).unwrap()));
    assert_eq!(wanted.group_of(13), world.groups_of_axes(&["dp", "tp"]).unwrap().group_of(13));
}

#[test]
fn a_million_ranks_and_a_trillion_are_no_more_work() {
    for (text, names) in
        [("dp=128,pp=8,cp=16,tp=64", ["dp", "tp"]), ("dp=1048576,pp=64,cp=64,tp=256", ["dp", "cp"])]
    {
        let m = mesh(text);
        let groups = m.groups_of_axes(&names).unwrap();
        let last = groups.group_of(m.world_size() - 1).unwrap();
        assert!(last.contains(m.world_size() - 1));
        assert_eq!(groups.count() * last.size(), m.size());
        assert!(last.on_node_of(m.world_size() - 1, 8).is_some_and(|r| r.end == last.size()));
        assert!(m.flatten(&["dp", "pp"], "x").unwrap().same_ranks(&m));
    }
}

#[test]
fn mesh_errors_name_the_values() {
    let m = mesh("dp=2,tp=4");
    for (result, kind, part) in [
        (m.slice(&["dp", "dp"]), "mesh", "two axes are called dp"),
        (m.slice(&["pp"]), "no_such_axis", "pp"),
        (m.at(&[("tp", 4)]), "mesh", "tp=4 has no coordinate 4"),
        (m.at(&[("tp", 1), ("tp", 1)]), "mesh", "fixed twice"),
        (m.reorder(&["tp"]), "mesh", "each of its axes once"),
        (m.flatten(&[], "x"), "mesh", "no axes"),
        (m.flatten(&["dp"], "tp"), "mesh", "two axes are called tp"),
        (m.split("tp", &[("a", 3), ("b", 2)]), "mesh", "a=3,b=2"),
        (m.reinterpret(&[("a", 3)]), "mesh", "a=3"),
        (m.reinterpret(&[("a", usize::MAX), ("b", 3)]), "mesh", "b=3"),
        (Mesh::concatenate(&[m.clone(), m.at(&[("dp", 1)]).unwrap()]), "mesh", "rank 4"),
        (Mesh::concatenate(&[m.clone(), m.rename("dp", "x").unwrap()]), "mesh", "two axes are called tp"),
        (m.rename("dp", "2"), "mesh", "2"),
        (m.slice_of(8, &["dp"]), "no_such_rank", "8"),
        (Mesh::from_ranks([("x", 2)], &[1, 1]), "mesh", "rank 1 is at the coordinates [0] and [1]"),
        (Mesh::from_ranks([("x", 3)], &[1, 2]), "mesh", "2 ranks"),
        (Mesh::from_nested(&["x", "y"], "[[0,1],[2]]"), "parse", "byte 9"),
        (Mesh::from_nested(&["x"], "[[0,1]]"), "parse", "byte 1"),
    ] {
        let e = result.unwrap_err();
        assert_eq!(e.code(), kind, "{e}");
        assert!(e.to_string().contains(part), "{e} lacks {part:?}");
    }
    for subs in [
        vec![SubAxis { axis: 7, pre_size: 1, size: 2 }],
        vec![SubAxis { axis: 1, pre_size: 0, size: 2 }],
        vec![SubAxis { axis: 1, pre_size: 2, size: usize::MAX }],
        vec![SubAxis { axis: 1, pre_size: 1, size: 4 }, SubAxis { axis: 1, pre_size: 2, size: 2 }],
    ] {
        assert!(m.groups(&subs).is_err(), "{subs:?}");
    }
}

#[test]
fn groups_among_others_whose_strides_carry_are_found() {
    let groups = |text: &str| text.parse::<ProcessGroups>().unwrap();
    let others = groups("2:100@0+(3,3):(1,4)");
    assert!(groups("2:100@0+5:2").is_subset_of(&others));
    assert!(groups("2:100@1+2:4").is_subset_of(&others));
    assert!(!groups("2:100@0+6:2").is_subset_of(&groups("2:100@0+(3,2):(1,4)")));
    assert!(!groups("2:100@1+5:2").is_subset_of(&others));
}

/// The sub-axes of a group have that group, in every spelling, and every group of some sub-axes has sub-axes.
#[test]
fn the_axes_of_a_group_have_that_group() {
    let meshes = [
        "x=8",
        "x=12",
        "x=2,y=3",
        "x=4,y=6",
        "x=2,y=2,z=2",
        "x=3,y=4,z=2",
        "x=2:3,y=3:1",
        "x=2:1,y=6:2",
        "x=(2,2):(1,4),y=2:2",
        "x=(2,3):(1,8),y=4:2",
        "x=4:16,y=2:4",
        "x=2,y=2@[3,1,0,2]",
        "x=2,y=4@[0,1,2,3,5,4,7,6]",
        "x=2,one=1,y=3@[3,1,5,0,2,4]",
        "x=6+2",
    ];
    let mut count = 0;
    for mesh in meshes.iter().filter_map(|m| m.parse::<Mesh>().ok()) {
        let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
        let mut all: Vec<Vec<SubAxis>> = vec![Vec::new()];
        // Up to two digits of each axis.
        for (axis, a) in mesh.axes().iter().enumerate().chain(mesh.axes().iter().enumerate()) {
            let of_axis: Vec<SubAxis> = divisors(a.size())
                .flat_map(|pre| {
                    divisors(a.size() / pre).map(move |size| SubAxis { axis, pre_size: pre, size })
                })
                .filter(|s| s.size > 1)
                .collect();
            let with = |subs: &Vec<SubAxis>| {
                of_axis.iter().map(|&s| [subs.clone(), vec![s]].concat()).collect::<Vec<_>>()
            };
            let more: Vec<Vec<SubAxis>> = all.iter().flat_map(with).collect();
            all.extend(more);
        }
        for subs in all.iter().filter(|subs| !subs.is_empty()) {
            let Ok(group) = mesh.group(subs) else { continue };
            let found = mesh.axes_of_group(&group);
            if mesh.rank_table().is_none() || subs.iter().all(|&s| mesh.is_whole(s)) {
                let found = found.unwrap_or_else(|| panic!("{group} on {mesh}"));
                assert_eq!(mesh.group(&found).unwrap(), group, "{mesh}");
                assert_eq!(found.iter().map(|s| s.size).product::<usize>(), group.size());
                count += 1;
            }
        }
        for none in ["5:1", "7:1", "2:31", "{{0,1,5}}", "(2,2):(1,1024)"] {
            assert_eq!(mesh.axes_of_group(&none.parse().unwrap()), None, "{mesh} {none}");
        }
    }
    assert!(count > 300, "{count}");
}
