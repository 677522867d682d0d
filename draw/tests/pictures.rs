//! The pictures of `docs/pictures`, drawn again and compared byte by byte. `RESHARD_WRITE=1` writes them.

use std::path::Path;

use reshard_draw::{
    Limits, MeshLook, Scene, composed, cost, layout, local_notation, memory, mesh_with, plan, program,
    program_cost, sharding, tensor, thread_values, timeline,
};
use reshard_kernels::DType;
use reshard_layout::expression::evaluate;
use reshard_planner::{Plan, Planner, Topology};
use reshard_program::schedule::{CompileOptions, RunRecord, Schedule, Timeline};
use reshard_program::{ComputeRates, Graph, Program, ShardingSolver};
use reshard_sharding::{Mesh, Sharding};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A training step of a small block.
const STEP: &str = "
mesh dp=2,tp=2
x: f32[64,128] S(0),I
up: f32[128,512] R,S(1)
down: f32[512,128] R,S(0)
h = mm(x, up)
a = gelu(h)
y = mm(a, down)
z = square(y)
loss = sum(z)
gradient loss wrt up, down
";

fn of(mesh: &str, shape: &[usize], placements: &str) -> Result<Sharding> {
    Ok(Sharding::parse(&mesh.parse()?, shape, placements)?)
}

fn planned(mesh: &str, shape: &[usize], from: &str, to: &str) -> Result<Plan> {
    Ok(Planner::new().plan(&of(mesh, shape, from)?, &of(mesh, shape, to)?, DType::F32)?)
}

fn step() -> Result<(Program, ComputeRates)> {
    let graph: Graph = STEP.parse()?;
    let rates = ComputeRates::for_topology(&Topology::h100());
    let planner = Planner::new().topology(Topology::h100());
    Ok((ShardingSolver::new().planner(planner).rates(rates).solve(&graph)?, rates))
}

/// The recorded times of four threads on two cores in that step, with `reshard_reference::timed` in f32.
fn recorded() -> Result<Vec<RunRecord>> {
    let all = include_str!("data/measured.txt").split("\n\n").map(|text| text.trim_end().parse());
    Ok(all.collect::<std::result::Result<_, _>>()?)
}

fn scenes() -> Result<Vec<(&'static str, Scene)>> {
    let usual = Limits::USUAL;
    let grid: Mesh = "pp=2,dp=2,cp=2,tp=2".parse()?;
    let groups = MeshLook { groups: Some(grid.groups_of_axes(&["dp", "tp"])?), ..MeshLook::default() };
    let strange: Mesh = "dp=4,tp=3@[2,0,7,4,9,11,1,3,5,6,8,10]".parse()?;
    let nodes = MeshLook { node: Some(4), ..MeshLook::default() };
    let sliced = MeshLook { part: Some(grid.at(&[("pp", 1), ("cp", 0)])?), ..MeshLook::default() };
    let reduced = planned("dp=2,tp=4", &[64, 32], "P,S(1)", "S(0),R")?;
    let explained = Planner::new().explain(
        &of("x=2,y=2", &[64, 64], "P,P")?,
        &of("x=2,y=2", &[64, 64], "R,R")?,
        DType::F32,
    )?;
    let (forward, backward) = (
        planned("dp=2,tp=2", &[4, 4], "S(0),S(1)", "S(0),R")?,
        planned("dp=2,tp=2", &[4, 4], "S(0),P", "S(0),S(1)")?,
    );
    let swizzled = evaluate("composed(Sw<2,0,2>, 0, (4,4):(4,1))")?;
    let (step, rates) = step()?;
    let report = step.report(&rates);
    let options = CompileOptions { in_flight_bytes: 1 << 20, ..CompileOptions::default() };
    let schedules: std::result::Result<Vec<Schedule>, _> =
        (0..4).map(|rank| step.compile(rank, &options)).collect();
    let schedules = schedules?;
    Ok(vec![
        ("tensor", tensor(&[2, 2, 2, 2], usual)),
        ("tensor_large", tensor(&[3, 1000, 4], usual)),
        ("sharding", sharding(&of("dp=2,tp=4", &[8, 16], "S(0),S(1)")?, usual)),
        ("sharding_terms", sharding(&of("dp=2,cp=2,tp=2", &[6, 8], "P,S(0),R")?, usual)),
        ("sharding_uneven", sharding(&of("dp=4,tp=2", &[5, 4], "S(0),S(1)")?, usual)),
        ("sharding_zigzag", sharding(&of("cp=4", &[64, 2], "Z(0)")?, usual)),
        ("sharding_four_dims", sharding(&of("x=2,y=2", &[2, 4, 2, 4], "S(0),S(3)")?, usual)),
        ("mesh_groups", mesh_with(&grid, &groups, usual)),
        ("mesh_nodes", mesh_with(&strange, &nodes, usual)),
        ("mesh_slice", mesh_with(&grid, &sliced, usual)),
        ("layout", layout(&"((2,2),(2,4)):((1,8),(2,16))".parse()?)?),
        ("layout_swizzle", composed(swizzled.as_composed().ok_or("no composition")?)?),
        ("layout_threads", thread_values(&"((2,4),(2,2)):((8,1),(4,16))".parse()?, &[4, 8])?),
        ("plan", plan(&reduced, None, usual)),
        ("plan_cost", cost(&explained.plan, explained.greedy.as_ref())),
        ("local_notation", local_notation(&forward, Some(&backward))),
        ("program", program(&step, &report, usual)),
        ("program_cost", program_cost(&report)),
        ("timeline", timeline(&Timeline::of(&schedules, &rates)?, &schedules, usual)),
        ("timeline_measured", timeline(&Timeline::measured(&schedules, &recorded()?)?, &schedules, usual)),
        ("memory", memory(&step.memory_timeline(), usual)),
    ])
}

#[test]
fn committed_pictures_are_drawn_again() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("a folder")?.join("docs/pictures");
    // A package has no pages.
    if !folder.is_dir() {
        return Ok(());
    }
    let scenes = scenes()?;
    for (name, scene) in &scenes {
        for (ending, drawn) in [("svg", scene.svg()), ("txt", scene.text(false))] {
            let path = folder.join(format!("{name}.{ending}"));
            if std::env::var_os("RESHARD_WRITE").is_some() {
                std::fs::write(&path, &drawn)?;
            }
            let kept = std::fs::read_to_string(&path)?;
            assert!(kept == drawn, "{} is stale: RESHARD_WRITE=1 writes it", path.display());
        }
    }
    let mut kept: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        kept.push(entry?.file_name().to_string_lossy().into_owned());
    }
    kept.retain(|name| {
        !scenes.iter().any(|(of, _)| name == &format!("{of}.svg") || name == &format!("{of}.txt"))
    });
    assert!(kept.is_empty(), "{kept:?} is unused");
    Ok(())
}
