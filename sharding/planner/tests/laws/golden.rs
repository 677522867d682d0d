//! Golden plans: the planner's answers to a list of problems, as text.
//!
//! Each problem has a file in `tests/plans/` with its explanation. After an intended change, refresh them all
//! with
//!
//! ```text
//! RESHARD_REFRESH=1 cargo test -p reshard-planner --test laws golden
//! ```
//!
//! and read the difference.

use reshard_kernels::DType;
use std::collections::BTreeSet;
use std::path::PathBuf;

use reshard_planner::{Objective, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

/// A problem: name, mesh, shape, from, to, and another target mesh.
struct Question {
    name: String,
    mesh: &'static str,
    shape: &'static [usize],
    from: &'static str,
    to: &'static str,
    to_mesh: Option<&'static str>,
    planner: Planner,
}

const LARGE: &[usize] = &[1 << 24];

type Row = (&'static str, &'static str, &'static [usize], &'static str, &'static str);

/// Problems that are planned with both profiles.
const ON_BOTH: &[Row] = &[
    ("all_of_both_axes", "x=2,y=2", LARGE, "P,P", "R,R"),
    ("reduce_to_the_middle", "x=2,y=2,z=2", LARGE, "P,P,P", "R,S(0),R"),
    ("reduce_around_a_shard", "x=2,y=2,z=2", LARGE, "P,S(0),P", "R,R,R"),
    ("reduce_beside_a_shard", "x=2,y=2,z=2", LARGE, "P,P,S(0)", "S(0),S(0),S(0)"),
    ("scatter_both", "x=2,y=2", LARGE, "P,P", "S(0),S(0)"),
    ("scatter_around_a_shard", "x=2,y=2,z=2", LARGE, "P,S(0),P", "S(0),S(0),S(0)"),
    ("sum_and_average", "x=2,y=2", LARGE, "P,P(avg)", "R,R"),
    ("scatter_uneven", "x=2,y=3", &[4], "P,P", "S(0),S(0)"),
    ("small_scatter_then_gather", "x=2,y=2", &[1024], "P,P", "R,S(0)"),
    ("kept_terms", "x=2,y=4", &[4096, 64], "P,P", "P,R"),
    ("embed_a_shard", "x=2,y=2", &[64, 64], "S(0),S(1)", "P,S(1)"),
    ("another_op", "x=2,y=2", &[64, 64], "P(max),R", "R,P(sum)"),
    ("transpose", "x=2,y=4", &[64, 64], "S(0),S(1)", "S(1),S(0)"),
    ("swap_nested", "x=2,y=4", &[64, 64], "S(0),S(0)", "[{y,x},{}]"),
    ("rows_to_columns", "x=4", &[256, 256], "S(0)", "S(1)"),
    ("replicas_move_in", "x=2,y=2", &[64, 64], "S(0),R", "R,S(0)"),
    ("fsdp_over_tp", "dp=2,tp=4", &[1024], "SS(0,4),S(0)", "R,S(0)"),
    ("strided_to_plain", "dp=2,tp=4", &[1024], "SS(0,4),S(0)", "S(0),S(0)"),
    ("uneven_rows", "x=2,y=4", &[5, 7], "S(0),S(1)", "S(1),S(0)"),
    ("not_nesting", "x=6", &[12], "SS(0,2)", "S(0)"),
    ("sub_axes", "x=4", &[16, 16], "[{x:(1)2},{x:(2)2}]", "[{x:(2)2},{x:(1)2}]"),
    ("nothing", "x=2,y=2", &[8, 8], "S(0),P", "S(0),P"),
];

/// Problems that are planned with nodes of 8 ranks.
const ON_NODES: &[Row] = &[
    ("gather_across_nodes", "dp=16,tp=8", &[25_600_000], "S(0),S(0)", "R,R"),
    ("reduce_across_nodes", "dp=16,tp=8", &[25_600_000], "P,P", "R,R"),
    ("slice_before_a_slow_hop", "dp=4,tp=8", LARGE, "S(0),R", "R,R"),
    ("straddling_nodes", "dp=8,fsdp=5", &[5 << 20], "R,S(0)", "R,R"),
    ("one_axis_over_nodes", "x=32", LARGE, "S(0)", "R"),
];

/// Name, mesh, other mesh, shape, from, to.
type RowBetween = (&'static str, &'static str, &'static str, &'static [usize], &'static str, &'static str);

/// Between two meshes.
const BETWEEN: &[RowBetween] = &[
    ("elastic_tp", "dp=8,tp=2", "dp=4,tp=4", &[64, 64], "S(0),S(1)", "S(0),S(1)"),
    ("eight_to_six", "x=8", "x=6", &[48, 4], "S(0)", "S(0)"),
    ("trainer_to_inference", "dp=4,tp=2", "tp=4@8", &[64, 64], "S(0),S(1)", "S(1)"),
    ("terms_to_elsewhere", "x=2,y=2", "z=4@4", &[64, 64], "P,S(0)", "S(1)"),
];

fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for (profile, topology) in [("uniform", Topology::uniform()), ("h100", Topology::h100())] {
        for &(name, mesh, shape, from, to) in ON_BOTH {
            let planner = Planner::new().topology(topology.clone());
            let name = format!("{name}.{profile}");
            all.push(Question { name, mesh, shape, from, to, to_mesh: None, planner });
        }
        for &(name, mesh, to_mesh, shape, from, to) in BETWEEN {
            let planner = Planner::new().topology(topology.clone());
            let name = format!("{name}.{profile}");
            all.push(Question { name, mesh, shape, from, to, to_mesh: Some(to_mesh), planner });
        }
    }
    for &(name, mesh, shape, from, to) in ON_NODES {
        let planner = Planner::new().topology(Topology::h100());
        let name = format!("{name}.h100");
        all.push(Question { name, mesh, shape, from, to, to_mesh: None, planner });
    }
    let mut ask = |name: &str, mesh, shape, from, to, planner| {
        all.push(Question { name: name.to_owned(), mesh, shape, from, to, to_mesh: None, planner });
    };
    let groups = |mesh: &str, axes: &[&[&str]]| {
        let mesh: Mesh = mesh.parse().expect("a mesh");
        axes.iter().map(|a| mesh.group_of_axes(a).expect("its axes")).collect::<Vec<_>>()
    };
    let h100 = Planner::new().topology(Topology::h100());
    let per_axis = groups("dp=16,tp=8", &[&["dp"], &["tp"]]);
    let limited = h100.with_groups(per_axis);
    ask("gather_axis_by_axis", "dp=16,tp=8", &[25_600_000], "S(0),S(0)", "R,R", limited.clone());
    ask("scatter_axis_by_axis", "dp=16,tp=8", &[25_600_000], "P,P", "S(0),S(0)", limited);
    let least = |o| Planner::new().objective(o);
    ask("least_bytes", "x=2,y=2", &[1024], "P,P", "R,S(0)", least(Objective::Bytes));
    ask("least_peak", "x=2,y=2", &[64, 64], "S(0),R", "R,S(0)", least(Objective::Peak));
    let in_order = Planner::new().deterministic(true);
    ask("in_rank_order", "x=2,y=2", &[1024], "P,P", "R,S(0)", in_order);
    all
}

fn answer(q: &Question) -> String {
    let mesh: Mesh = q.mesh.parse().expect("a mesh");
    let to_mesh: Mesh = q.to_mesh.unwrap_or(q.mesh).parse().expect("a mesh");
    let from = Sharding::parse(&mesh, q.shape, q.from).expect("a sharding");
    let to = Sharding::parse(&to_mesh, q.shape, q.to).expect("a sharding");
    format!("{}\n", q.planner.explain(&from, &to, DType::F32).expect("a plan"))
}

#[test]
fn plans_are_as_they_were() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "plans"].iter().collect();
    let refresh = std::env::var_os("RESHARD_REFRESH").is_some();
    let mut differ = Vec::new();
    let mut names = BTreeSet::new();
    for q in questions() {
        let path = folder.join(format!("{}.txt", q.name));
        let text = answer(&q);
        if refresh {
            std::fs::write(&path, &text).expect("the folder can be written");
        } else {
            let known = std::fs::read_to_string(&path).unwrap_or_else(|_| "(no file)\n".to_owned());
            if known != text {
                differ.push(format!("{}:\n{text}it was:\n{known}", q.name));
            }
        }
        assert!(names.insert(format!("{}.txt", q.name)), "two problems are called {}", q.name);
    }
    for entry in std::fs::read_dir(&folder).expect("the folder is there") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(names.contains(&name), "{name} is unused: delete it");
    }
    assert!(differ.is_empty(), "{} plans differ:\n{}", differ.len(), differ.join("\n"));
}
