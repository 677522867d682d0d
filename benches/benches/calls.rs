//! A plan as a framework's calls: what lowering it for one rank takes, on a mesh whose axes and whole have groups.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use reshard_collectives::CompiledPlan;
use reshard_collectives::calls::{FrameworkGroups, RankCalls, SpmdProgram};
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

/// Returns the groups of each axis, and of all ranks.
fn offers(mesh: &Mesh) -> FrameworkGroups {
    let of_axis = |name: &str| mesh.groups_of_axes(&[name]).expect("an axis").iter().collect::<Vec<_>>();
    let axes: Vec<String> = mesh.axes().iter().map(|axis| axis.name().to_string()).collect();
    let groups =
        axes.iter().flat_map(|name| of_axis(name).into_iter().map(move |group| (name.clone(), group)));
    let members = groups.map(|(name, group)| (name, group.iter().collect::<Vec<_>>()));
    FrameworkGroups::new(members.chain([("world".to_string(), mesh.ranks().collect())])).expect("groups")
}

fn plan(mesh: &Mesh, shape: &[usize], from: &str, to: &str) -> Plan {
    let parse = |text: &str| Sharding::parse(mesh, shape, text).expect("a sharding");
    Planner::new().plan(&parse(from), &parse(to), DType::F32).expect("a plan")
}

fn one_rank(c: &mut Criterion) {
    let rows = [
        ("dp=2,tp=4", "S(0),S(1)", "R,S(1)"),
        ("dp=2,tp=4", "S(0),S(1)", "S(1),S(0)"),
        ("dp=2,tp=4", "P,P", "R,R"),
        ("dp=2,tp=4", "S(0),S(0)", "S(1),S(1)"),
        ("dp=64,tp=8", "S(0),S(1)", "R,S(1)"),
        ("dp=64,tp=8", "S(0),S(1)", "S(0),S(0)"),
        ("dp=64,tp=8", "P,S(1)", "S(0),S(1)"),
        ("dp=64,tp=8", "P,P", "R,R"),
        ("dp=64,tp=8", "S(0),S(0)", "S(1),S(1)"),
    ];
    for (mesh, from, to) in rows {
        let mesh: Mesh = mesh.parse().expect("a mesh");
        let plan = plan(&mesh, &[1024, 4096], from, to);
        let offers = offers(&mesh);
        let rank = mesh.size() / 2 + 1;
        let mut group = c.benchmark_group(format!("one of {} ranks, {from} to {to}", mesh.size()));
        group.bench_function("calls", |b| {
            b.iter(|| RankCalls::new(black_box(&plan), rank, DType::F32, &offers).expect("calls"));
        });
        group.bench_function("phases alone", |b| b.iter(|| black_box(&plan).phases(rank).expect("phases")));
        group.bench_function("compiled", |b| {
            b.iter(|| CompiledPlan::new(black_box(&plan), rank).expect("compiles"));
        });
        group.finish();
    }
}

fn all_ranks(c: &mut Criterion) {
    let mut group = c.benchmark_group("one program for all ranks, S(0),S(1) to S(1),S(0)");
    for mesh in ["dp=2,tp=4", "dp=64,tp=8"] {
        let mesh: Mesh = mesh.parse().expect("a mesh");
        let plan = plan(&mesh, &[1024, 4096], "S(0),S(1)", "S(1),S(0)");
        group.bench_function(mesh.size().to_string(), |b| {
            b.iter(|| SpmdProgram::new(black_box(&plan), DType::F32).expect("one program"));
        });
    }
    group.finish();
}

criterion_group!(benches, one_rank, all_ranks);
criterion_main!(benches);
