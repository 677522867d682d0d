//! Recipes: their groups, their two views of one world, their checks.

use reshard_sharding::Mesh;
use reshard_sharding::recipes::{Parallelism, Recipe, Role};

fn recipe(text: &str) -> Recipe {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn groups(mesh: &Mesh, axes: &[&str]) -> Vec<Vec<usize>> {
    mesh.groups_of_axes(axes).unwrap().iter().map(|g| g.iter().collect()).collect()
}

#[test]
fn eight_ranks_dense_and_sparse() {
    let r = recipe("ep:dp_shard=2,cp=2,tp=2,ep=4");
    assert_eq!(groups(r.mesh(), &["dp_shard"]), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    assert_eq!(groups(r.mesh(), &["cp"]), [[0, 2], [1, 3], [4, 6], [5, 7]]);
    assert_eq!(groups(r.mesh(), &["tp"]), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    let sparse = r.sparse().unwrap();
    assert_eq!(groups(sparse, &["ep"]), [[0, 1, 2, 3], [4, 5, 6, 7]]);
    assert_eq!(groups(sparse, &["efsdp"]), groups(r.mesh(), &["dp_shard"]));
    assert!(sparse.same_ranks(r.mesh()));
}

#[test]
fn every_recipe_comes_back_and_covers_its_world() {
    for kind in Parallelism::ALL {
        for n in [1, 2, 3] {
            let degrees: Vec<(&str, usize)> =
                kind.dense_axes().iter().enumerate().map(|(i, a)| (*a, n + i % 2)).collect();
            let r = Recipe::new(kind, &degrees).unwrap();
            assert_eq!(recipe(&r.to_string()), r);
            assert_eq!(r.clone().on_world(r.mesh().size()).as_ref(), Ok(&r));
            assert_eq!(r.mesh().group_of_all().unwrap().size(), r.mesh().world_size());
            for role in Role::ALL {
                for axis in r.axes(role) {
                    let expert = matches!(role, Role::ExpertParameters | Role::ExpertGradients);
                    let mesh = if expert { r.sparse().unwrap() } else { r.mesh() };
                    assert!(mesh.axis(axis).is_ok(), "{r}: {role:?} {axis}");
                }
            }
            // Ranks with other samples or tokens reduce the loss and the gradients.
            for role in [Role::Batch, Role::Sequence] {
                if kind != Parallelism::SequenceParallel || role == Role::Batch {
                    let has = |other| r.axes(role).iter().all(|a| r.axes(other).contains(a));
                    assert!(has(Role::Loss) && has(Role::Gradients) && has(Role::NormGradients), "{r}");
                }
            }
        }
    }
}

#[test]
fn wrong_degrees_name_the_product() {
    for (text, part) in [
        (
            "ep:dp_shard=2,tp=3,ep=4",
            "ep * etp = 4 * 1 = 4 does not divide dp_shard * cp * tp = 2 * 1 * 3 = 6",
        ),
        ("fsdp:tp=2", "fsdp has no axis tp: it has dp_shard"),
        ("dp:dp=0", "dp=0"),
        ("dp:dp=2,dp=2", "each degree once"),
        ("zero:dp=2", "one of dp, fsdp"),
        ("dp:dp", "\"=\""),
        ("dp:", "dp_shard=8"),
    ] {
        let e = text.parse::<Recipe>().unwrap_err();
        assert!(e.to_string().contains(part), "{text}: {e}");
    }
    let big = usize::MAX >> 1;
    let e = Recipe::new(Parallelism::ExpertParallel, &[("dp_shard", big), ("tp", 4)]).unwrap_err();
    assert_eq!(e.code(), "overflow");
    let e = Recipe::new(Parallelism::ExpertParallel, &[("ep", big), ("etp", 4)]).unwrap_err();
    assert!(e.to_string().contains("more than fits"), "{e}");
}
