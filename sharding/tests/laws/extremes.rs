//! Whatever number a caller gives, an answer or an error comes back.
use reshard_sharding::{GroupPattern, Mesh, Placement, ProcessGroup, ProcessGroups, Sharding, SubAxis};

const NUMBERS: [usize; 9] = [0, 1, 2, 3, 7, 64, usize::MAX / 2, usize::MAX / 2 + 1, usize::MAX];

fn meshes() -> impl Iterator<Item = Mesh> {
    ["a=1", "x=4", "dp=2,tp=3", "x=4@[1,2,3,0]", "x=2:-1@1", "a=2,b=(2,2):(1,8)"]
        .into_iter()
        .filter_map(|m| m.parse().ok())
}

#[test]
fn any_number_is_answered_by_meshes() {
    for mesh in meshes() {
        let axes = mesh.axes().len();
        for n in NUMBERS {
            assert_eq!(mesh.full_axis(n).is_ok(), n < axes, "{mesh}, {n}");
            assert_eq!(mesh.contains(n), mesh.ranks().any(|rank| rank == n), "{mesh}, {n}");
            assert_eq!(mesh.coordinate(n).is_some(), mesh.position(n).is_some());
            assert!(mesh.rank_at(&vec![n; axes]).is_none_or(|rank| mesh.contains(rank)));
            assert_eq!(mesh.coordinate_at(n).is_some(), n < mesh.size(), "{mesh}, {n}");
            let _ = mesh.slice_of(n, &["x"]);
            for (pre, size) in NUMBERS.iter().flat_map(|&p| NUMBERS.iter().map(move |&s| (p, s))) {
                let sub = SubAxis { axis: n, pre_size: pre, size };
                let divides = mesh
                    .axes()
                    .get(n)
                    .is_some_and(|a| pre.checked_mul(size).is_some_and(|p| p > 0 && a.size() % p == 0));
                assert_eq!(mesh.mode(sub).is_ok(), divides, "{mesh}, {sub}");
                assert_eq!(mesh.group(&[sub]).is_ok(), divides, "{mesh}, {sub}");
                assert_eq!(mesh.groups(&[sub]).is_ok(), divides, "{mesh}, {sub}");
                assert!(!mesh.is_whole(sub) || divides);
                assert_eq!(sub.to_string().parse::<SubAxis>().as_ref(), Ok(&sub));
                let _ =
                    (sub.printed(mesh.axes()), sub.digit(n, pre), sub.post(size), mesh.members(&[sub], n));
                let _ = sub.nests_beside(SubAxis { axis: n, pre_size: size, size: pre });
            }
        }
    }
}

#[test]
fn a_digit_is_what_its_definition_says() {
    for n in 1..=24usize {
        for (pre, size) in (0..=n + 1).flat_map(|p| (0..=n + 1).map(move |s| (p, s))) {
            let sub = SubAxis { axis: 0, pre_size: pre, size };
            let post = (1..=n).find(|post| pre * size * post == n);
            assert_eq!(sub.post(n).ok(), post, "{sub} of {n}");
            for c in 0..=n {
                let digit = post.filter(|_| c < n).map(|post| c / post % size);
                assert_eq!(sub.digit(c, n).ok(), digit, "{sub} of {n} at {c}");
            }
        }
    }
}

#[test]
fn any_number_is_answered_by_shardings() {
    for mesh in meshes() {
        for (shape, text) in [(vec![], "R"), (vec![0, 5], "S(0)"), (vec![6, 4], "S(1)"), (vec![7], "P")] {
            let text = vec![text; mesh.axes().len()].join(",");
            let s = Sharding::parse(&mesh, &shape, &text).unwrap();
            for n in NUMBERS {
                let held = mesh.contains(n);
                assert_eq!(s.local_shape(n).is_ok(), held, "{s}, {n}");
                assert_eq!(s.region(n).is_ok(), held, "{s}, {n}");
                assert!(held || s.local_numel(n) == 0, "{s}, {n}");
                if let Some(region) = mesh.ranks().next().and_then(|r| s.region(r).ok()) {
                    assert_eq!(region.indices(n).is_ok(), n < shape.len());
                }
                let _ = (s.strided(n), s.squeeze(n), s.unsqueeze(n), s.split(n, &[n, n]), s.permute(&[n]));
                for m in NUMBERS {
                    let _ = (
                        s.flatten(n..m),
                        s.narrow(0, n..m),
                        s.narrow(n, 0..m),
                        s.expand(n, m),
                        s.view(&[n, m]),
                    );
                    let _ = Placement::ragged_in_blocks(n, m, m, 4);
                    let _ = Placement::ragged_in_units(n, m, &[m, m]);
                    let _ = Placement::ragged_of_blocks(n, &[m, m], 4);
                    let _ = Sharding::new(
                        &mesh,
                        &[n, m],
                        &vec![Placement::ragged(0, &[m, n]); mesh.axes().len()],
                    );
                }
            }
        }
    }
}

#[test]
fn any_number_is_answered_by_groups() {
    for pattern in ["4:1", "2:8", "(2,2):(1,8)", "1:0"].map(|g| g.parse::<GroupPattern>().unwrap()) {
        for n in NUMBERS {
            let _ = pattern.members(n).count();
            let groups = ProcessGroups::new(pattern.clone(), pattern.clone(), n);
            let _ = groups.map(|g| NUMBERS.map(|m| (g.group_of(m).is_some(), g.split_at_node(m).is_some())));
            let Ok(group) = ProcessGroup::new(pattern.clone(), n) else { continue };
            for m in NUMBERS {
                let _ = (group.rank_at(m), group.below(m), group.group_rank(m), group.contains(m));
                let _ = NUMBERS.map(|node| group.on_node_of(m, node));
            }
        }
    }
}
