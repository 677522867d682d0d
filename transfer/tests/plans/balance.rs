//! Owners of a region send equally much of it, and near owners are preferred.

use reshard_mapping::{Dtype, Mapping};
use reshard_sharding::Mesh;
use reshard_test_support::Random;
use reshard_transfer::{Options, Side, SideTensor, Transfer};

fn side(mesh: &str, tensors: &[(usize, &str)]) -> Side {
    let mesh: Mesh = mesh.parse().unwrap();
    let tensor = |(k, (rows, placements)): (usize, &(usize, &str))| {
        SideTensor::new(&format!("w.{k}"), Dtype::BF16, &[*rows, 64], &mesh, placements)
    };
    Side::new(tensors.iter().enumerate().map(tensor).collect()).unwrap()
}

#[test]
fn owners_send_equal_shares_of_drawn_models() {
    let mut random = Random(5);
    let (mut split, mut requests) = (0, 0);
    for case in 0..300 {
        let meshes = [
            ("x=3,y=2", "x=5,y=1@6"),
            ("x=4,y=2", "x=1,y=2@8"),
            ("x=7,y=1", "x=3,y=2@7"),
            ("x=2,y=2", "x=4,y=4@4"),
        ];
        let (from, to) = *random.pick(&meshes);
        let rows: Vec<usize> = (0..=random.below(30)).map(|_| 4 << random.below(10)).collect();
        let mut placed = |of: &[&'static str]| -> Vec<(usize, &'static str)> {
            rows.iter().map(|rows| (*rows, *random.pick(of))).collect()
        };
        let source = side(from, &placed(&["R,R", "R,S(0)", "R,S(1)"]));
        let target = side(to, &placed(&["R,R", "R,S(0)", "S(0),R", "R,S(1)"]));
        let plan = Transfer::plan(&source, &target, &Mapping::default(), &Options::default()).unwrap();
        plan.certificate().unwrap();
        // A request is split by its longest loop: the rows, or the columns of few rows.
        let row = 2 * 64 * rows.len() as u64;
        for of in plan.bytes() {
            assert!(of.sent as f64 <= of.share as f64 * (1.0 + 1.0 / 128.0) + row as f64, "{case} {of:?}");
            assert_eq!(of.received, of.lacking);
        }
        // The sharding of the source has at most two regions for a region of the target; more boxes are shares of one.
        let boxes = |rank: &usize| plan.part(*rank).receives().count();
        split += plan.ranks().iter().map(|rank| boxes(rank).saturating_sub(2 * rows.len())).sum::<usize>();
        requests += plan.ranks().iter().map(boxes).sum::<usize>();
    }
    // Few boxes are split: mostly whole requests are chosen so that shares are equal.
    assert!(split > 0 && 10 * split < requests, "{split} {requests}");
}

#[test]
fn a_single_request_is_split_among_its_owners() {
    let (source, target) = (side("x=4", &[(64, "R")]), side("x=1@4", &[(64, "R")]));
    let plan = Transfer::plan(&source, &target, &Mapping::default(), &Options::default()).unwrap();
    let boxes: Vec<_> = plan.part(4).receives().map(|copy| (copy.peer, copy.target_offset)).collect();
    assert_eq!(boxes, [(Some(0), 0), (Some(1), 1024), (Some(2), 2048), (Some(3), 3072)]);
    assert!(plan.bytes()[..4].iter().all(|of| of.sent == 2048 && of.share == 2048));
}

#[test]
fn owners_of_the_same_node_are_preferred() {
    // Nodes of 4 ranks: 0 to 3 and 4 to 7. Each has two owners and two receivers.
    let source = side("x=4@[0,1,4,5]", &[(64, "R")]);
    let target = side("x=4@[2,3,6,7]", &[(64, "R")]);
    let near = Options::default().with_ranks_per_node(4);
    let plan = Transfer::plan(&source, &target, &Mapping::default(), &near).unwrap();
    plan.certificate().unwrap();
    for rank in [2, 3, 6, 7] {
        assert!(plan.part(rank).receives().all(|copy| copy.peer.unwrap() / 4 == rank / 4), "{rank}");
    }
    assert!(plan.bytes().iter().all(|of| of.sent == of.share));
    // Ranks of both sides copy within themselves.
    let same = Transfer::plan(&source, &source, &Mapping::default(), &Options::default()).unwrap();
    same.certificate().unwrap();
    assert!(same.bytes().iter().all(|of| of.received == 0 && of.copied == 64 * 64 * 2));
}

#[test]
fn hostile_worlds_are_errors() {
    let plan = |from: &Side, to: &Side| {
        Transfer::plan(from, to, &Mapping::default(), &Options::default()).unwrap_err().kind().code()
    };
    let wide = |mesh: &str, shape: &[usize], placements: &str| {
        let mesh: Mesh = mesh.parse().unwrap();
        Side::new(vec![SideTensor::new("w", Dtype::F64, shape, &mesh, placements)]).unwrap()
    };
    let (rows, columns) = (wide("x=8192", &[8192, 8192], "S(0)"), wide("x=8192", &[8192, 8192], "S(1)"));
    assert_eq!(plan(&rows, &columns), "too_large");
    let huge = wide("x=64", &[1 << 58], "R");
    assert_eq!(plan(&huge, &huge), "too_large");
}
