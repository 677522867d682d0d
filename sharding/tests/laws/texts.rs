//! Random texts of frameworks: each text has the semantics that its words define, index by index, and printed
//! shardings round-trip.
use reshard_sharding::notation::{
    DeviceList, HloSharding, HloShardings, PartitionSpec, ShardySharding, inlined_mesh,
};
use reshard_sharding::{Mesh, Placements, Sharding};
use reshard_test_support::{Arbitrary, Gen, every, property};

/// The shard of a rank at a coordinate under flat chunks of each dim over some axes, the first slowest.
fn chunked(shape: &[usize], dims: &[Vec<usize>], sizes: &[usize], c: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (&len, axes) in shape.iter().zip(dims) {
        let (total, at) = axes.iter().fold((1, 0), |(n, i), &a| (n * sizes[a], i * sizes[a] + c[a]));
        let chunk = len.div_ceil(total);
        let range = (at * chunk).min(len)..((at + 1) * chunk).min(len);
        all = all.iter().flat_map(|&e| range.clone().map(move |i| e * len + i)).collect();
    }
    all
}

/// A mesh, a shape that every list of its axes divides, and axes for each dim, some of none.
#[derive(Clone, Debug)]
struct Lists {
    sizes: Vec<usize>,
    shape: Vec<usize>,
    dims: Vec<Vec<usize>>,
    unreduced: Vec<usize>,
    picks: Vec<u8>,
}

impl Arbitrary for Lists {
    fn arbitrary(g: &mut Gen) -> Lists {
        let sizes: Vec<usize> =
            (0..usize::arbitrary(g) % 4).map(|_| *g.choose(&[1, 2, 3, 4]).unwrap()).collect();
        let rank = usize::arbitrary(g) % 4;
        let mut free: Vec<usize> = (0..sizes.len()).collect();
        let mut dims = vec![Vec::new(); rank];
        let mut unreduced = Vec::new();
        while !free.is_empty() {
            let axis = free.remove(usize::arbitrary(g) % free.len());
            match usize::arbitrary(g) % (rank + 2) {
                0 => {}
                1 => unreduced.push(axis),
                dim => dims[dim - 2].push(axis),
            }
        }
        let len = |d: &Vec<usize>| d.iter().map(|&a| sizes[a]).product::<usize>() * (1 + d.len() % 2);
        let shape = dims.iter().map(len).collect();
        let picks = (0..16).map(|_| u8::arbitrary(g)).collect();
        Lists { sizes, shape, dims, unreduced, picks }
    }
}

const NAMES: [&str; 3] = ["x", "y_1", "z"];

impl Lists {
    fn mesh(&self) -> Mesh {
        Mesh::new(NAMES.into_iter().zip(self.sizes.iter().copied())).unwrap()
    }

    fn pick(&self, i: usize, of: usize) -> usize {
        usize::from(self.picks[i % self.picks.len()]) % of
    }

    fn names(axes: &[usize], quote: char) -> Vec<String> {
        axes.iter().map(|&a| format!("{quote}{}{quote}", NAMES[a])).collect()
    }

    /// Returns `true` if a sharding is this one, by the elements of every rank.
    fn is(&self, s: &Sharding) -> bool {
        s.mesh().ranks().all(|rank| {
            let c = s.mesh().coordinate(rank).unwrap();
            s.global_indices(rank).unwrap() == chunked(&self.shape, &self.dims, &self.sizes, &c)
        }) && s.partial().iter().map(|p| p.sub.size).product::<usize>()
            == self.unreduced.iter().map(|&a| self.sizes[a]).product::<usize>()
    }
}

#[test]
fn a_partition_spec_chunks_each_dim_over_its_axes() {
    fn law(l: Lists) -> bool {
        let quote = ['\'', '"'][l.pick(0, 2)];
        let free = l.pick(1, 4) == 0 && !l.dims.is_empty();
        let dim = |(i, axes): (usize, &Vec<usize>)| match (&Lists::names(axes, quote)[..], l.pick(i + 2, 3)) {
            _ if free && i == 0 => {
                ["UNCONSTRAINED", "P.UNCONSTRAINED", "PartitionSpec.UNCONSTRAINED"][l.pick(9, 3)].to_owned()
            }
            ([], 0) => "()".to_owned(),
            ([], _) => "None".to_owned(),
            ([one], 0 | 1) => one.clone(),
            (many, 0) => format!("({},)", many.join(", ")),
            (many, _) => format!("( {} )", many.join(" ,")),
        };
        let mut parts: Vec<String> = l.dims.iter().enumerate().map(dim).collect();
        // Dims at the end that are whole may be missing.
        while l.pick(6, 2) == 0 && parts.last().is_some_and(|p| p == "None" || p == "()") {
            parts.pop();
        }
        if !l.unreduced.is_empty() {
            parts.push(format!("unreduced={{{}}}", Lists::names(&l.unreduced, quote).join(",")));
        }
        let comma = if l.pick(7, 2) == 0 && !parts.is_empty() { "," } else { "" };
        let text = format!("{}({}{comma})", ["P", "PartitionSpec"][l.pick(8, 2)], parts.join(", "));
        let spec: PartitionSpec = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(spec.to_string().parse().as_ref(), Ok(&spec), "{text}");
        let mesh = l.mesh();
        let read = Sharding::parse(&mesh, &l.shape, &text);
        assert_eq!(Sharding::from_partition_spec(&mesh, &l.shape, &spec).is_ok(), read.is_ok(), "{text}");
        match read {
            Ok(s) => {
                assert!(!free && l.is(&s), "{text} of {:?} on {mesh} is {s}", l.shape);
                assert_eq!(Sharding::from_partition_spec(&mesh, &l.shape, &spec).as_ref(), Ok(&s));
            }
            Err(e) => assert!(
                free && e.code() == "not_expressible" && e.to_string().contains("UNCONSTRAINED"),
                "{text}: {e}"
            ),
        }
        true
    }
    property!().tests(20_000).holds(law as fn(Lists) -> bool);
}

#[test]
fn p_alone_is_read_by_what_stands_around_it() {
    for sizes in [&[][..], &[2], &[2, 3], &[1], &[1, 2, 2]] {
        let mesh = Mesh::new(["a", "b", "c"].into_iter().zip(sizes.iter().copied())).unwrap();
        for shape in [&[][..], &[4], &[4, 6]] {
            let whole = Sharding::replicated(&mesh, shape).unwrap();
            for text in ["P()", " P ( ) ", "PartitionSpec()"] {
                assert_eq!(Sharding::parse(&mesh, shape, text).as_ref(), Ok(&whole), "{text} on {mesh}");
            }
            let list = |p: &str| vec![p; sizes.len()].join(",");
            let partial = Sharding::parse(&mesh, shape, &list("P(sum)")).unwrap();
            for p in ["P", "Partial", "Partial()", "Partial(sum)", "P( sum )"] {
                assert_eq!(Sharding::parse(&mesh, shape, &list(p)).as_ref(), Ok(&partial), "{p} on {mesh}");
            }
            for text in ["P(),R", "R,P()", "[P()]", "(P(),)", "P()R", "P() order={a}", "P(),S(0)"] {
                let e = Sharding::parse(&mesh, shape, text).unwrap_err();
                assert!(e.to_string().contains("P or P(sum) for a partial placement, or R"), "{text}: {e}");
            }
        }
    }
    assert!("P()".parse::<Placements>().is_err());
}

#[test]
fn a_shardy_sharding_is_of_its_mesh_and_complete_or_refused() {
    fn law(l: Lists) -> bool {
        let mesh = l.mesh();
        let inlined = l.pick(0, 3) > 0;
        let header = if inlined {
            mesh.to_shardy().unwrap().trim_start_matches("#sdy.").to_owned()
        } else {
            "@mesh".to_owned()
        };
        let (mut open, mut ranked) = (false, false);
        let dim = |(i, axes): (usize, &Vec<usize>)| {
            let mut names = Lists::names(axes, '"');
            if l.pick(i + 2, 8) == 0 {
                names.push("?".to_owned());
                open = true;
            }
            let priority = if l.pick(i + 2, 8) == 1 { "p1" } else { "" };
            ranked |= !priority.is_empty();
            format!("{{{}}}{priority}", names.join(", "))
        };
        let dims: Vec<String> = l.dims.iter().enumerate().map(dim).collect();
        let mut text = format!("#sdy.sharding<{header}, [{}]", dims.join(", "));
        if !l.unreduced.is_empty() {
            text += ", unreduced={";
            text += &Lists::names(&l.unreduced, '"').join(", ");
            text += "}";
        }
        text.push('>');
        let written: ShardySharding = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(written.to_string(), text);
        assert_eq!(inlined_mesh(&text).unwrap(), inlined.then(|| mesh.clone()));
        let read = Sharding::parse(&mesh, &l.shape, &text);
        assert_eq!(Sharding::from_shardy(&mesh, &l.shape, &written), read);
        match read {
            Ok(s) => assert!(!open && !ranked && l.is(&s), "{text} of {:?} is {s}", l.shape),
            Err(e) => {
                assert!((open || ranked) && e.code() == "not_expressible", "{text}: {e}");
                assert!(
                    e.to_string().contains(if open { "open dim" } else { "priority" }) || ranked,
                    "{text}: {e}"
                );
            }
        }
        // Another mesh is rejected, whatever the difference.
        let other = Mesh::new(NAMES.into_iter().zip(l.sizes.iter().copied()).chain([("w", 2)])).unwrap();
        assert_eq!(Sharding::parse(&other, &l.shape, &text).is_err(), inlined || open || ranked, "{text}");
        true
    }
    property!().tests(20_000).holds(law as fn(Lists) -> bool);
}

/// All orders of some of the axes.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let distinct = |list: &Vec<usize>| list.iter().all(|x| list.iter().filter(|y| *y == x).count() == 1);
    let axes: Vec<usize> = (0..n).collect();
    (0..=n).flat_map(|k| every(&axes, k)).filter(distinct).collect()
}

#[test]
fn tiles_that_do_not_divide_are_flat_chunks_over_all_their_axes() {
    let mut uneven = 0;
    for sizes in [&[2][..], &[5], &[2, 2], &[2, 3], &[3, 2], &[2, 4], &[4, 2], &[2, 2, 2], &[2, 1, 3]] {
        let mesh = Mesh::new(["a", "b", "c"].into_iter().zip(sizes.iter().copied())).unwrap();
        let n = mesh.size();
        for order in orders(sizes.len()) {
            let rest: Vec<usize> = (0..sizes.len()).filter(|a| !order.contains(a)).collect();
            let tiles: usize = order.iter().map(|&a| sizes[a]).product();
            let hlo = HloSharding::Tiled {
                tiles: [1, tiles, n / tiles].into_iter().collect(),
                devices: DeviceList::Iota {
                    reshape: sizes.iter().copied().collect(),
                    transpose: order.iter().chain(&rest).copied().collect(),
                },
                last: std::iter::once(reshard_sharding::notation::LastDim::Replicated).collect(),
            };
            for len in 0..=2 * n + 5 {
                let shape = [2, len];
                let s =
                    Sharding::from_hlo(&mesh, &shape, &hlo).unwrap_or_else(|e| panic!("{hlo} of {len}: {e}"));
                for rank in mesh.ranks() {
                    let c = mesh.coordinate(rank).unwrap();
                    let want = chunked(&shape, &[vec![], order.clone()], sizes, &c);
                    assert_eq!(s.global_indices(rank).unwrap(), want, "{hlo} of {len} on {mesh} is {s}");
                }
                uneven += usize::from(s.layout().is_none());
                assert_eq!(Sharding::parse(&mesh, &shape, &s.to_string()).as_ref(), Ok(&s), "{s} of {len}");
                let again = s.to_hlo().unwrap_or_else(|e| panic!("{s} of {shape:?}: {e}"));
                assert_eq!(Sharding::from_hlo(&mesh, &shape, &again).as_ref(), Ok(&s), "{again}");
            }
        }
    }
    assert!(uneven > 300, "{uneven}");
}

#[test]
fn tuples_and_metadata_are_read_as_the_shardings_in_them() {
    let ones = [
        "{replicated}",
        "{maximal device=3}",
        "{devices=[2,4]<=[8]}",
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        "{manual}",
    ];
    let metadata = [
        "",
        " metadata={op_name=\"a\"}",
        " metadata={op_type=\"}\" op_name=\"f\\\"{(x)\" source_line=3}",
        ", metadata={{op_name=\"a\"}, {op_name=\"b\"}}",
    ];
    for list in (1..=3).flat_map(|n| every(&ones, n)) {
        let want: Vec<HloSharding> = list.iter().map(|one| one.parse().unwrap()).collect();
        for extra in metadata {
            let with: Vec<String> =
                list.iter().map(|one| format!("{}{extra}}}", &one[..one.len() - 1])).collect();
            let text = format!("{{{}}}", with.join(", "));
            let read: HloShardings = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(read.all(), want, "{text}");
            assert_eq!(read.to_string().parse().as_ref(), Ok(&read));
            assert_eq!(with[0].parse::<HloSharding>().as_ref(), Ok(&want[0]), "{}", with[0]);
            let mesh: Mesh = "x=8".parse().unwrap();
            let e = Sharding::parse(&mesh, &[8, 8], &text).unwrap_err();
            assert!(e.to_string().contains(&format!("a tuple of {}", list.len())), "{text}: {e}");
        }
    }
}

#[test]
fn dims_from_the_end_are_the_dims_they_count_to() {
    let mesh: Mesh = "a=2,b=3".parse().unwrap();
    let words: [(&str, &str); 8] = [
        ("S(", ")"),
        ("Shard(dim=", ")"),
        ("SS(", ",2)"),
        ("_StridedShard(dim=", ", sf=3)"),
        ("RG(", ",[5,1])"),
        ("Z(", ")"),
        ("BL(", ",4)"),
        ("_S(", ", 2)"),
    ];
    for rank in 0..4usize {
        let shape = &[6, 6, 6][..rank];
        for (open, close) in words {
            for at in 1..=4usize {
                let (back, tail) = (format!("{open}-{at}{close},R"), ["", " order={a,b}"][at % 2]);
                let read = Sharding::parse(&mesh, shape, &format!("{back}{tail}"));
                if at <= rank {
                    let want = Sharding::parse(&mesh, shape, &format!("{open}{}{close},R{tail}", rank - at))
                        .unwrap();
                    assert_eq!(read.as_ref(), Ok(&want), "{back} of {shape:?}");
                    assert!(!want.to_string().contains('-'));
                } else {
                    assert_eq!(read.unwrap_err().code(), "parse", "{back} of {shape:?}");
                }
                assert!(back.parse::<Placements>().unwrap_err().to_string().contains("counted from 0"));
                assert_eq!(Placements::parse_with_dims(rank, &back).is_ok(), at <= rank);
            }
        }
    }
    assert_eq!(
        Sharding::parse(&mesh, &[6, 6], "S(-1)[1]S(-1)[0]").unwrap(),
        Sharding::parse(&mesh, &[6, 6], "[{},{b,a}]").unwrap()
    );
}

#[test]
fn a_mesh_without_axes_is_one_rank_that_holds_everything() {
    for text in ["", " ", "mesh<[]>", "<[]>", "#sdy.mesh<[]>", "mesh[]"] {
        let mesh: Mesh = text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!((mesh.size(), mesh.axes().len()), (1, 0), "{text:?}");
        assert_eq!(mesh.to_string().parse().as_ref(), Ok(&mesh));
        for (shape, by_tensor) in [(&[][..], "[]"), (&[4], "[{}]"), (&[4, 0], "[{},{}]")] {
            let whole = Sharding::replicated(&mesh, shape).unwrap();
            assert_eq!(whole.global_indices(0).unwrap().len(), whole.numel());
            let sdy = format!("#sdy.sharding<mesh<[]>, {by_tensor}>");
            for text in ["", "()", "[]", "P()", "{replicated}", by_tensor, &sdy, &whole.to_string()] {
                // [] is by tensor, and of no dims.
                if text != "[]" || shape.is_empty() {
                    assert_eq!(
                        Sharding::parse(&mesh, shape, text).as_ref(),
                        Ok(&whole),
                        "{text:?} of {shape:?}"
                    );
                }
            }
        }
    }
}

/// Each placement is read once.
///
/// Reading the rest of the text for each would take 2^36 steps here, which is minutes.
#[test]
fn placements_without_separators_are_read_in_one_pass() {
    let many = 1 << 18;
    let placements: Placements = "R".repeat(many).parse().unwrap();
    assert_eq!(placements.len(), many);
    let placements: Placements = format!("{}PS(0)", "RP".repeat(many / 2)).parse().unwrap();
    assert_eq!(placements.len(), many + 2);
    assert!("R".repeat(many).replace("RR", "RX").parse::<Placements>().is_err());
}
