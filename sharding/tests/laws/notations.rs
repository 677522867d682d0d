//! Every notation with every sharding: representable parts round-trip, others are an error of the right kind,
//! and semantics are checked against the notation's own definition where it has one.
use reshard_sharding::Strided;
use reshard_sharding::notation::{
    DeviceList, HloSharding, HloShardings, LastDim, PartitionSpec, ReplicaGroups, ShardySharding,
};
use reshard_sharding::{Mesh, Placement, Placements, ReduceOp, Sharding, SubAxis};
use reshard_test_support::{Arbitrary, Gen, property};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A sharding drawn at random: placements, or words with sub-axes from views of them.
#[derive(Clone, Debug)]
struct Case(Sharding);

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Case {
        let mesh =
            mesh(g.choose(&["a=4", "a=2,b=2", "a=2,b=3", "a=4,b=2", "a=2,b=2,c=2", "a=2,b=1,c=4"]).unwrap());
        let extents = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 0];
        let shape: Vec<usize> = (0..usize::arbitrary(g) % 4).map(|_| *g.choose(&extents).unwrap()).collect();
        let norms = ["norm2", "norm2.5", "norminf"].map(|text| text.parse().unwrap());
        let ops = [ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max];
        let op = *g.choose(&[&ops[..], &norms].concat()).unwrap();
        let placements: Placements = mesh
            .axes()
            .iter()
            .map(|_| {
                let dim = usize::arbitrary(g) % shape.len().max(1);
                match usize::arbitrary(g) % 6 {
                    0 => Placement::Partial(op),
                    1 | 2 if !shape.is_empty() => Placement::Shard(dim),
                    3 if !shape.is_empty() => {
                        Placement::StridedShard { dim, split_factor: 1 + usize::arbitrary(g) % 6 }
                    }
                    _ => Placement::Replicate,
                }
            })
            .collect();
        let s = Sharding::new(&mesh, &shape, &placements).unwrap();
        let flat = [s.numel()];
        let halves = [2, s.numel() / 2];
        let other: &[usize] = if s.numel().is_multiple_of(2) && bool::arbitrary(g) { &halves } else { &flat };
        Case(if bool::arbitrary(g) { s.view(other).unwrap_or(s) } else { s })
    }
}

fn comes_back(s: &Sharding, text: Result<String, reshard_sharding::Error>) -> bool {
    match text {
        Ok(text) => {
            let back = Sharding::parse(s.mesh(), s.shape(), &text);
            assert_eq!(back.as_ref(), Ok(s), "{s} of {:?} on {} as {text}", s.shape(), s.mesh());
            true
        }
        Err(e) => {
            let right = match e.code() {
                "uneven" => s.layout().is_none(),
                "not_expressible" => true,
                _ => false,
            };
            assert!(right, "{s} of {:?} on {}: {e}", s.shape(), s.mesh());
            true
        }
    }
}

#[test]
fn what_a_notation_holds_comes_back() {
    fn law(Case(s): Case) -> bool {
        comes_back(&s, s.to_dims_notation())
            && comes_back(&s, s.to_shardy())
            && comes_back(&s, s.to_partition_spec())
            && comes_back(&s, s.to_pytorch())
            && comes_back(&s, s.to_hlo().map(|h| h.to_string()))
            && comes_back(&s, s.to_hlo().and_then(|h| h.v1()).map(|h| h.to_string()))
            && comes_back(&s, Ok(s.to_string()))
    }
    property!().tests(20_000).holds(law as fn(Case) -> bool);
}

#[test]
fn terms_of_norms_are_said_with_their_exponent() {
    let mesh: Mesh = "x=2,y=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[8, 8], text);
    let norm = of("P(norm2),S(1)").unwrap();
    assert_eq!(norm.to_string(), "P(norm2),S(1)");
    assert_eq!(norm.to_dims_notation().unwrap(), "[{},{y}] unreduced={x:norm2}");
    assert_eq!(norm.to_pytorch().unwrap(), "_NormP(2)S(1)");
    for text in [
        "P(norm2.0),S(1)",
        "Partial(reduce_op='norm2'),Shard(dim=1)",
        "[{},{y}] unreduced={x:norm2}",
        "_NormP(2)S(1)",
        "_NormP(2.0), S(1)",
        "_NormPartial(2),S(1)",
        "_NormP(sum, 2)S(1)",
        "_NormPartial(reduce_op=sum, norm_type=2),S(1)",
    ] {
        assert_eq!(of(text).unwrap(), norm, "{text}");
    }
    assert_eq!(of("R_NormP(2.5)").unwrap(), of("R,P(norm2.5)").unwrap());
    assert_eq!(of("_NormP(max, inf),R").unwrap(), of("P(norminf),R").unwrap());
    assert_ne!(of("P(norm2),R").unwrap(), of("P(norm3),R").unwrap());
    // Other notations have sums only.
    for refused in
        [norm.to_shardy().unwrap_err(), norm.to_hlo().unwrap_err(), norm.to_partition_spec().unwrap_err()]
    {
        assert!(refused.to_string().contains("partial by norm2, not by sum"), "{refused}");
    }
    for (text, message) in [
        ("P(norm0),R", "sum, for counts of non-zero elements"),
        ("P(norm-inf),R", "min, for least magnitudes"),
        ("P(norm-1),R", "expected norm2, norm2.5 or norminf"),
        ("P(norm),R", "expected norm2, norm2.5 or norminf"),
        ("P(norm99),R", "0.001 to 65 with at most three decimals, or inf, not 99"),
        ("P(normal),R", "not al"),
        ("_NormP(0),R", "the exponent of a norm"),
        ("_NormP(sum),R", "\",\""),
        ("P(norm2),P(norm3)", "norm2"),
        ("P(norm2),P(sum)", "norm2"),
    ] {
        let e = of(text).unwrap_err().to_string();
        assert!(e.contains(message), "{text}: {e}");
    }
}

#[test]
fn even_shardings_are_held_by_all_that_can() {
    fn law(Case(s): Case) -> bool {
        let Some(layout) = s.layout() else { return true };
        // A local mode above one along an axis, of extent > 1.
        let strided = layout.flat_modes().any(|dim| {
            let first = dim.iter().position(|m| !m.stride.is_local()).unwrap_or(dim.len());
            dim[first..].iter().any(|m| m.stride.is_local())
        });
        let sums = s.partial().iter().all(|p| p.op == ReduceOp::Sum);
        let whole = layout
            .flat()
            .iter()
            .filter_map(|&m| s.mesh().sub_axis(m))
            .chain(s.partial().iter().map(|p| p.sub));
        let whole = whole.clone().all(|x| s.mesh().is_whole(x));
        s.to_dims_notation().is_ok()
            && s.to_shardy().is_ok() == (!strided && sums)
            && s.to_hlo().is_ok() == (!strided && sums)
            && s.to_partition_spec().is_ok() == (!strided && sums && whole)
    }
    property!().tests(20_000).holds(law as fn(Case) -> bool);
}

/// The shard of an XLA device.
///
/// Tiles have `ceil(len / tiles)` indices, row-major over the device list, last dims separate.
fn tile_of(hlo: &HloSharding, shape: &[usize], device: usize) -> Vec<usize> {
    let HloSharding::Tiled { tiles, devices, .. } = hlo else { panic!("not tiled") };
    let listed = devices.listed().unwrap();
    let DeviceList::Listed(list) = &listed else { panic!("not listed") };
    let mut at = list.iter().position(|&d| d == device).unwrap();
    let mut tile = vec![0; tiles.len()];
    for (x, &n) in tile.iter_mut().zip(tiles).rev() {
        *x = at % n;
        at /= n;
    }
    let mut all = vec![0];
    for (dim, &len) in shape.iter().enumerate() {
        let c = len.div_ceil(tiles[dim]);
        let range = (tile[dim] * c).min(len)..((tile[dim] + 1) * c).min(len);
        all = all.iter().flat_map(|&e| range.clone().map(move |i| e * len + i)).collect();
    }
    all
}

#[test]
fn hlo_shardings_are_flat_chunks_over_the_device_list() {
    fn law(Case(s): Case) -> bool {
        let Ok(hlo) = s.to_hlo() else { return true };
        let HloSharding::Tiled { .. } = hlo else { return true };
        s.mesh().ranks().enumerate().all(|(i, r)| {
            assert_eq!(tile_of(&hlo, s.shape(), i), s.global_indices(r).unwrap(), "{s} as {hlo}");
            true
        })
    }
    property!().tests(10_000).holds(law as fn(Case) -> bool);
}

#[test]
fn every_iota_sharding_of_a_mesh_is_read_right() {
    // All transposes of all factorizations of 8 and 12, as tiles of two dims and a replicated last one.
    let shapes: [(&str, &[&[usize]]); 2] = [
        ("a=2,b=4", &[&[8], &[2, 4], &[4, 2], &[2, 2, 2]]),
        ("a=2,b=3,c=2", &[&[12], &[2, 6], &[6, 2], &[4, 3], &[3, 4], &[2, 3, 2], &[2, 2, 3]]),
    ];
    let (mut read, mut reordered) = (0, 0);
    for (text, reshapes) in shapes {
        let mesh = mesh(text);
        let n = mesh.size();
        for reshape in reshapes {
            let orders: &[&[usize]] = match reshape.len() {
                1 => &[&[0]],
                2 => &[&[0, 1], &[1, 0]],
                _ => &[&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]],
            };
            for order in orders {
                for t0 in (1..=n).filter(|d| n.is_multiple_of(*d)) {
                    for t1 in (1..=n / t0).filter(|d| (n / t0).is_multiple_of(*d)) {
                        let hlo = HloSharding::Tiled {
                            tiles: [t0, t1, n / t0 / t1].into_iter().collect(),
                            devices: DeviceList::Iota {
                                reshape: reshape.iter().copied().collect(),
                                transpose: order.iter().copied().collect(),
                            },
                            last: std::iter::once(LastDim::Replicated).collect(),
                        };
                        let shape = [24, 24];
                        let v1 = hlo.v1().unwrap();
                        let from_v1 = Sharding::from_hlo(&mesh, &shape, &v1);
                        match Sharding::from_hlo(&mesh, &shape, &hlo) {
                            Ok(s) => {
                                *(if *s.mesh() == mesh { &mut read } else { &mut reordered }) += 1;
                                assert_eq!(from_v1.as_ref(), Ok(&s), "{v1}");
                                for (i, r) in mesh.ranks().enumerate() {
                                    assert_eq!(
                                        tile_of(&hlo, &shape, i),
                                        s.global_indices(r).unwrap(),
                                        "{hlo} is {s}"
                                    );
                                }
                            }
                            Err(e) => panic!("{hlo}: {e}"),
                        }
                        assert_eq!(
                            hlo.to_string().parse::<HloSharding>().unwrap().to_string(),
                            hlo.to_string()
                        );
                        assert_eq!(v1.to_string().parse::<HloSharding>(), Ok(v1));
                    }
                }
            }
        }
    }
    assert!(read > 200 && reordered > 0, "{read} {reordered}");
}

#[test]
fn spellings_of_one_sharding() {
    let m = mesh("dp=2,tp=4");
    let shape = [64, 32];
    for (want, spellings) in [
        (
            "SS(0,4),S(0)",
            &[
                "[{tp,dp},{}]",
                r#"[{"tp","dp"},{}]"#,
                "S(0)[1]S(0)[0]",
                "S(0)[1],S(0)[0]",
                "S(0),S(0) order={tp,dp}",
                "(_StridedShard(dim=0, sf=4), Shard(dim=0))",
                "_S(0, 4)S(0)",
                "PartitionSpec(('tp', 'dp'), None)",
                "P(('tp','dp'))",
                "{devices=[8,1]<=[2,4]T(1,0)}",
                "{devices=[8,1]0,4,1,5,2,6,3,7}",
                r#"#sdy.sharding<@mesh, [{"tp", "dp"}, {}]>"#,
                r#"<@mesh_0, [{"tp", "dp"}, {}], replicated={}>"#,
                "{mesh['dp'=2,'tp'=4], [{'tp','dp'}, {}]}",
            ][..],
        ),
        (
            "P(sum),S(1)",
            &[
                "P S(1)",
                "[{},{tp}] unreduced={dp}",
                "PartitionSpec(None, 'tp', unreduced={'dp'})",
                "P(None, 'tp', unreduced={'dp'})",
                "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={unreduced}}",
                r#"#sdy.sharding<@mesh, [{}, {"tp"}], unreduced={"dp"}>"#,
                "[Partial(sum), Shard(dim=1)]",
            ],
        ),
        (
            "R,R",
            &[
                "{replicated}",
                "PartitionSpec()",
                "RR",
                "P(None)",
                "[{},{}]",
                "{devices=[1,1,8]<=[8] last_tile_dim_replicate}",
            ],
        ),
        ("P(sum),P(sum)", &["{unreduced}", "PP", "[{},{}] unreduced={dp,tp}", "P(unreduced={'dp','tp'})"]),
        ("R,S(0)", &["{devices=[4,1,2]<=[2,4]T(1,0), last_tile_dim_replicate}", "RS(0)", "P('tp')"]),
        ("[{tp:(1)2},{tp:(2)2}]", &["{devices=[2,2,2]<=[2,2,2]T(1,2,0) last_tile_dim_replicate}"]),
    ] {
        let s = Sharding::parse(&m, &shape, want).unwrap();
        assert_eq!(s.to_string(), want);
        for text in spellings {
            assert_eq!(Sharding::parse(&m, &shape, text).as_ref(), Ok(&s), "{text}");
        }
    }
}

#[test]
fn refusals_have_their_kind() {
    let m = mesh("dp=2,tp=4");
    for (shape, text, kind) in [
        (&[64, 32][..], "{maximal device=0}", "not_expressible"),
        (&[64, 32], "{manual}", "not_expressible"),
        (&[64, 32], "{devices=[8,1]0,1,2,3,4,5,7,7}", "mesh"),
        (&[64, 32], "{devices=[8,1]0,1,2,3,4,5,6,8}", "placement"),
        (&[64, 32], "{devices=[8]<=[8]}", "dim_count"),
        (&[64, 32], "{devices=[4,1]<=[4]}", "placement"),
        (&[64, 32], "{devices=[4,1]<=[8]}", "parse"),
        (&[64, 32], "{devices=[2,4]<=[2,4]T(1,1)}", "parse"),
        (&[64, 32], "{devices=[2,4]<=[8] last_tile_dims={odd}}", "parse"),
        (&[64, 32], "PartitionSpec('dp','dp')", "parse"),
        (&[64, 32], "PartitionSpec('dp',None,None)", "dim_count"),
        (&[64, 32], "PartitionSpec('pp')", "no_such_axis"),
        (&[64, 32], "S(0)[0]S(0)[0]", "parse"),
        (&[64, 32], "S(0)[1]SS(0,2)", "parse"),
        (&[64, 32], "{mesh['dp'=4,'tp'=4], [{'dp'}, {}]}", "parse"),
        (&[5, 32], "[{dp,tp},{}]", "uneven"),
        (&[5, 32], "{devices=[8,1]0,1,2,3,4,5,6,7,}", "parse"),
        (&[5, 32], "{devices=[8,1]0,1,2,3,4,5,6,7, }", "parse"),
        (&[5, 32], "PartitionSpec(('dp','tp'))", "uneven"),
        (&[5, 32], "[{2,dp},{}]", "uneven"),
        (&[5, 32], "[{tp:(2)2,dp},{}]", "uneven"),
    ] {
        let e = Sharding::parse(&m, shape, text).unwrap_err();
        assert_eq!(e.code(), kind, "{text}: {e}");
    }
    // One axis on an uneven dim has one reading in every notation.
    for text in
        ["[{dp},{}]", "PartitionSpec('dp')", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "S(0)R"]
    {
        assert_eq!(Sharding::parse(&m, &[5, 32], text).unwrap().to_string(), "S(0),R", "{text}");
    }
    // The same holds for one sub-axis, and other dims that divide are unrestricted.
    for (text, prints) in [
        ("[{tp:(2)2},{tp:(1)2,dp}]", "[{tp:(2)2},{tp:(1)2,dp}]"),
        ("{devices=[2,4]<=[2,4]T(1,0)}", "[{tp:(1)2},{tp:(2)2,dp}]"),
        ("[{tp},{4,dp}]", "SS(1,4),S(0)"),
        ("[{tp:(1)2},{}] unreduced={dp}", "[{tp:(1)2},{}] unreduced={dp}"),
        ("[{},{tp:(1)2,tp:(2)2,dp}]", "SS(1,4),S(1)"),
    ] {
        assert_eq!(Sharding::parse(&m, &[5, 32], text).unwrap().to_string(), prints, "{text}");
    }
}

/// The tiles of XLA, from their definition.
///
/// Tile `t` of `k` of a dim of `n` begins at `t ceil(n/k)`, and device `d` of the list has the tile at its
/// position, row-major.
#[test]
fn devices_in_any_order_hold_their_tiles_whatever_divides() {
    let (mut in_place, mut own) = (0, 0);
    for mesh in ["x=4", "x=2,y=2", "x=2,y=3", "x=8", "x=2,y=2,z=2", "x=12", "x=3,y=4"].map(mesh) {
        for (tiles, last) in [([1, 2], 1), ([2, 1], 1), ([2, 2], 1), ([4, 1], 1), ([3, 2], 1), ([6, 1], 1)]
            .into_iter()
            .filter(|(tiles, _)| mesh.size() % (tiles[0] * tiles[1]) == 0)
            .map(|(tiles, _)| (tiles, mesh.size() / (tiles[0] * tiles[1])))
        {
            let n = mesh.size();
            for step in [1, 2, 3, 5, n - 1] {
                // Every step-th position, from each of the first ones on; also lists that are not digits of
                // the mesh.
                let devices: Vec<usize> = (0..step).flat_map(|first| (first..n).step_by(step)).collect();
                let list = devices.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
                let text = if last > 1 {
                    format!("{{devices=[{},{},{last}]{list} last_tile_dim_replicate}}", tiles[0], tiles[1])
                } else {
                    format!("{{devices=[{},{}]{list}}}", tiles[0], tiles[1])
                };
                for shape in [[5, 7], [1, 6], [8, 12], [13, 3]] {
                    let s = Sharding::parse(&mesh, &shape, &text).unwrap();
                    *if *s.mesh() == mesh { &mut in_place } else { &mut own } += 1;
                    for (place, &device) in devices.iter().enumerate() {
                        let tile = place / last;
                        let at = [tile / tiles[1], tile % tiles[1]];
                        let held = s.global_indices(device).unwrap();
                        let mut expected = Vec::new();
                        for row in 0..shape[0] {
                            for column in 0..shape[1] {
                                let of = |i: usize, dim: usize| i / shape[dim].div_ceil(tiles[dim]);
                                if [of(row, 0), of(column, 1)] == at {
                                    expected.push(row * shape[1] + column);
                                }
                            }
                        }
                        assert_eq!(held, expected, "{text} of {shape:?} on {mesh}, device {device}");
                    }
                }
            }
        }
    }
    assert!(in_place > 50 && own > 50, "{in_place} {own}");
}

#[test]
fn no_text_makes_a_parser_panic() {
    fn law(picks: Vec<u8>) -> bool {
        let parts = [
            "S(0)",
            "[",
            "]",
            "{",
            "}",
            "(",
            ")",
            "dp",
            "tp",
            ",",
            "=",
            "<=",
            "devices",
            "8",
            "0",
            ":",
            "T",
            "'",
            "\"",
            "mesh",
            "P",
            "PartitionSpec",
            "None",
            "unreduced",
            "@",
            "#sdy.sharding",
            "<",
            ">",
            "order",
            "SS(0,2)",
            "last_tile_dims",
            "metadata",
            "{replicated}",
            "UNCONSTRAINED",
            "?",
            "p1",
            "BL(0,2)",
            "S(-1)",
            "mesh<[]>",
            "99999999999999999999",
            "R",
            "#sdy.mesh",
            "device_ids",
            "+",
            "é",
            " ",
            "-1",
            "maximal",
        ];
        let text: String = picks.iter().map(|&p| parts[usize::from(p) % parts.len()]).collect();
        let m = mesh("dp=2,tp=4");
        for shape in [&[64, 32][..], &[5], &[]] {
            if let Ok(s) = Sharding::parse(&m, shape, &text) {
                assert_eq!(Sharding::parse(&m, shape, &s.to_string()), Ok(s));
            }
        }
        let _ = (text.parse::<Mesh>(), text.parse::<ReplicaGroups>(), text.parse::<HloSharding>());
        let _ = (text.parse::<HloShardings>(), text.parse::<PartitionSpec>(), text.parse::<ShardySharding>());
        let _ =
            (text.parse::<reshard_sharding::ProcessGroups>(), text.parse::<reshard_sharding::ProcessGroup>());
        true
    }
    property!().tests(100_000).holds(law as fn(Vec<u8>) -> bool);
}

#[test]
fn replica_groups_are_the_groups_in_every_version() {
    let m = mesh("a=2,b=4,c=3");
    let all =
        ["", "a", "b", "c", "a,b", "a,c", "b,c", "c,a", "a,b,c", "b:(1)2", "b:(2)2", "a,b:(2)2", "b:(1)2,c"];
    for axes in all {
        let subs = m.sub_axes(axes).unwrap();
        let groups = m.groups(&subs).unwrap();
        for version in [
            groups.replica_groups_v1().unwrap(),
            groups.replica_groups_v2().unwrap(),
            m.replica_groups_v3(&subs).unwrap(),
        ] {
            assert_eq!(version.groups().as_ref(), Ok(&groups), "{version}");
            assert_eq!(version.to_string().parse::<ReplicaGroups>().as_ref(), Ok(&version), "{version}");
        }
    }
    // Meshes whose devices are in another order, as XLA writes them: by digits where they have some, else
    // listed.
    let m = mesh("a=4:1,b=2:4");
    let v3 = m.replica_groups_v3(&m.sub_axes("b:(1)2").unwrap()).unwrap();
    assert_eq!(v3.to_string(), "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}");
    let listed = Mesh::from_ranks([("a", 2), ("b", 2)], &[0, 3, 1, 2]).unwrap();
    let listed = listed.replica_groups_v3(&listed.sub_axes("b").unwrap()).unwrap();
    assert_eq!(listed.to_string(), "mesh['a'=2,'b'=2], device_ids=(0,3,1,2) {'b'}");
    for (version, groups) in [(v3, "{{0,4},{1,5},{2,6},{3,7}}"), (listed, "{{0,3},{1,2}}")] {
        assert_eq!(version.groups().unwrap().replica_groups_v1().unwrap().to_string(), groups);
        assert_eq!(version.to_string().parse::<ReplicaGroups>().as_ref(), Ok(&version), "{version}");
    }
    let huge = mesh("a=2:1,b=2305843009213693952:2");
    let huge = huge.replica_groups_v3(&huge.sub_axes("a").unwrap()).unwrap().to_string();
    assert!(huge.ends_with("device_ids=([2305843009213693952,2]T(1,0)) {'a'}"), "{huge}");
    for (devices, kind) in [
        ("([2,4])", "mesh"),
        ("([1,4]T(1,2))", "parse"),
        ("(0,0,1,2)", "mesh"),
        ("([2,2]T(1,0)", "parse"),
        ("([4611686018427387904,4])", "parse"),
        ("([2147483648])", "not_expressible"),
    ] {
        let e =
            format!("mesh['a'=2,'b'=2], device_ids={devices} {{'a'}}").parse::<ReplicaGroups>().unwrap_err();
        assert_eq!(e.code(), kind, "{devices}: {e}");
    }
    let m = mesh("a=2,b=4,c=3");
    let part = m.at(&[("b", 1)]).unwrap();
    let groups = part.groups_of_axes(&["a"]).unwrap();
    assert_eq!(groups.replica_groups_v2().unwrap_err().code(), "not_expressible");
    assert_eq!(groups.replica_groups_v1().unwrap().groups(), Ok(groups));
    for (text, kind) in [
        ("{{0,1},{2,3,4}}", "not_a_layout"),
        ("{{0,1},{1,2}}", "parse"),
        ("[2,2]<=[8]", "parse"),
        ("{}", "parse"),
    ] {
        let e = text.parse::<ReplicaGroups>().and_then(|g| g.groups()).unwrap_err();
        assert_eq!(e.code(), kind, "{text}: {e}");
    }
    let listed: ReplicaGroups = "{{4,2},{0,1}}".parse().unwrap();
    let listed = listed.groups().unwrap();
    assert_eq!(listed.to_string(), "{{0,1},{2,4}}");
    assert_eq!(listed.replica_groups_v1().unwrap().to_string(), "{{0,1},{2,4}}");
    assert_eq!(listed.replica_groups_v2().unwrap_err().code(), "not_expressible");
    let carried: ReplicaGroups = "[3,4]<=[6,2]T(1,0)".parse().unwrap();
    assert_eq!(carried.groups().unwrap().to_string(), "{{0,2,4,6},{1,3,8,10},{5,7,9,11}}");
    let turned: ReplicaGroups = "[2,4]<=[4,2]T(1,0)".parse().unwrap();
    assert_eq!(turned.groups().unwrap().to_string(), "4:2@0+2:1");
    let v3: ReplicaGroups = "mesh['a'=8,'b'=8,'c'=16] {'a':(2)4,'b':(2)4}".parse().unwrap();
    assert_eq!((v3.groups().unwrap().count(), v3.groups().unwrap().pattern().size()), (64, 16));
}

#[test]
fn meshes_in_shardys_words() {
    for (text, want) in [
        (r#"#sdy.mesh<["dp"=2, "tp"=4]>"#, "dp=2,tp=4"),
        (r#"<["dp"=2, "tp"=4]>"#, "dp=2,tp=4"),
        ("mesh['dp'=2,'tp'=4]", "dp=2,tp=4"),
        (r#"<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>"#, "a=2:1,b=2:2"),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0))", "a=4:1,b=2:4"),
        ("mesh[a=2,b=2], device_ids=(0,2,1,3)", "a=2:1,b=2:2"),
    ] {
        assert_eq!(mesh(text).to_string(), want);
    }
    assert_eq!(r#"<["a"=2], device_ids=[0, 0]>"#.parse::<Mesh>().unwrap_err().code(), "mesh");
}

#[test]
fn strided_shards_are_decoded() {
    let m = mesh("dp=2,cp=2,tp=4");
    let strided = |shape: &[usize], text: &str, axis| Sharding::parse(&m, shape, text).unwrap().strided(axis);
    assert_eq!(strided(&[64], "S(0),R,R", 0), Some(Strided::Plain));
    assert_eq!(strided(&[64], "R,S(0),R", 0), None);
    assert_eq!(strided(&[64], "SS(0,8),S(0),S(0)", 0), Some(Strided::Order([1, 2].into_iter().collect())));
    assert_eq!(strided(&[64], "SS(0,8),SS(0,4),S(0)", 0), Some(Strided::Order([2, 1].into_iter().collect())));
    assert_eq!(strided(&[64], "SS(0,8),R,R", 0), Some(Strided::View(8)));
    let mixed = Strided::Mixed { local: 2, axes: std::iter::once(2).collect() };
    assert_eq!(strided(&[64], "SS(0,8),R,SS(0,2)", 0), Some(mixed));
    assert_eq!(strided(&[5], "SS(0,2),R,R", 0), None);
}

#[test]
fn the_two_readings_agree_exactly_where_every_rank_holds_the_same() {
    let (mut agree, mut differ) = (0, 0);
    for (sizes, texts) in [
        ("a=4,b=2", &["SS(0,2),S(0)", "S(0),S(0)"][..]),
        (
            "a=2,b=2,c=2",
            &["SS(0,4),SS(0,2),S(0)", "SS(0,2),S(0),R", "SS(0,4),S(0),S(0)", "S(0),SS(0,2),S(0)"],
        ),
        ("a=2,b=3", &["SS(0,3),S(0)"]),
    ] {
        let m = mesh(sizes);
        for text in texts {
            let placements: Placements = text.parse().unwrap();
            for n in 0..40 {
                let r = Sharding::strided_readings(&m, &[n], &placements).unwrap();
                let same = m
                    .ranks()
                    .all(|x| r.literal.global_indices(x).unwrap() == r.ordered.global_indices(x).unwrap());
                assert_eq!(r.agree, same, "{text} of {n} on {m}");
                assert!(r.agree || r.literal.layout().is_none());
                *(if same { &mut agree } else { &mut differ }) += 1;
            }
        }
    }
    assert!(agree > 100 && differ > 20, "{agree} {differ}");
    let e = Sharding::with_axis_order(&mesh("a=2,b=2"), &[8], &"SS(0,4),S(0)".parse::<Placements>().unwrap());
    assert_eq!(e.unwrap_err().code(), "not_expressible");
}

#[test]
fn sub_axes_are_read_and_checked() {
    let m = mesh("dp=2,tp=4");
    let minor = SubAxis { axis: 1, pre_size: 2, size: 2 };
    assert_eq!(m.sub_axes("tp:(2)2,dp").unwrap().as_slice(), [minor, m.known_whole(0)]);
    for (text, kind) in
        [("pp", "no_such_axis"), ("tp,tp:(1)2", "parse"), ("tp:(3)2", "parse"), ("tp,", "parse")]
    {
        assert_eq!(m.sub_axes(text).unwrap_err().code(), kind, "{text}");
    }
    // Disjoint, and yet not two digits of one number: c / 3 and c mod 2 of the coordinate c.
    let m = mesh("x=6");
    let error = Sharding::parse(&m, &[12, 12], "[{x:(1)2},{x:(3)2}]").unwrap_err();
    assert!(error.to_string().contains("unlike x:(1)2 and x:(3)2"), "{error}");
    let subs = [SubAxis { axis: 0, pre_size: 1, size: 2 }, SubAxis { axis: 0, pre_size: 3, size: 2 }];
    assert_eq!(m.group(&subs).unwrap_err().code(), "not_a_layout");
}
