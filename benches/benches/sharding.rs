//! Work of a framework per operator call: building a sharding, decoding it, a view, a group, equality.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use reshard_sharding::GroupRegistry;
use reshard_sharding::{Mesh, Placements, Sharding};

fn mesh(text: &str) -> Mesh {
    text.parse().expect("a mesh")
}

fn shardings(c: &mut Criterion) {
    let mesh = mesh("dp=4,cp=2,tp=8");
    let shape = [4096, 1024, 8192];
    for (name, text) in
        [("plain", "S(0),S(1),S(2)"), ("fsdp_tp", "SS(0,8),S(1),S(0)"), ("uneven", "S(0),SS(0,3),R")]
    {
        let placements: Placements = text.parse().expect("placements");
        let s = Sharding::new(&mesh, &shape, &placements).expect("a sharding");
        let t = Sharding::new(&mesh, &shape, &placements).expect("a sharding");
        c.bench_function(&format!("build/{name}"), |b| {
            b.iter(|| Sharding::new(black_box(&mesh), black_box(&shape), black_box(&placements)));
        });
        c.bench_function(&format!("decode/{name}"), |b| b.iter(|| black_box(&s).placements()));
        c.bench_function(&format!("equal/{name}"), |b| b.iter(|| black_box(&s) == black_box(&t)));
        c.bench_function(&format!("flatten/{name}"), |b| {
            b.iter(|| black_box(&s).view(black_box(&[4096 * 1024, 8192])));
        });
        c.bench_function(&format!("split/{name}"), |b| {
            b.iter(|| black_box(&s).view(black_box(&[4096, 1024, 64, 128])));
        });
    }
}

fn groups(c: &mut Criterion) {
    for (name, text) in
        [("64", "dp=4,cp=2,tp=8"), ("2^20", "dp=512,cp=64,tp=32"), ("2^40", "dp=1048576,cp=4096,tp=256")]
    {
        let mesh = mesh(text);
        let last = mesh.world_size() - 1;
        c.bench_function(&format!("group/{name}"), |b| {
            b.iter(|| black_box(&mesh).group_of_axes(&["dp", "tp"]));
        });
        c.bench_function(&format!("groups/{name}"), |b| {
            b.iter(|| black_box(&mesh).groups_of_axes(&["dp", "tp"]));
        });
        let groups = mesh.groups_of_axes(&["dp", "tp"]).expect("groups");
        c.bench_function(&format!("group_of/{name}"), |b| {
            b.iter(|| black_box(&groups).group_of(black_box(last)));
        });
        let members = groups.group_of(last).expect("a member");
        c.bench_function(&format!("on_node/{name}"), |b| {
            b.iter(|| black_box(&members).on_node_of(black_box(last), 8));
        });
        c.bench_function(&format!("mesh_slice/{name}"), |b| b.iter(|| black_box(&mesh).at(&[("cp", 1)])));
        c.bench_function(&format!("mesh_flatten/{name}"), |b| {
            b.iter(|| black_box(&mesh).flatten(&["dp", "cp"], "dp_cp"));
        });
        let mut registry = GroupRegistry::new();
        registry.add_axes(&mesh).expect("groups of the axes");
        registry.add("dp_tp", groups.clone());
        c.bench_function(&format!("serving/{name}"), |b| {
            b.iter(|| black_box(&registry).find(black_box(&groups)));
        });
    }
}

criterion_group!(benches, shardings, groups);
criterion_main!(benches);
