//! Batches compared with the same tensors redistributed separately: equal results, in fewer messages.

use std::sync::Arc;

use reshard_collectives::threads::World;
use reshard_collectives::{Batch, BufferLayout, TrafficLog};
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;

/// The tensors of the model all-MiniLM-L6-v2: count and shape.
const MINILM: [(usize, &[usize]); 9] = [
    (57, &[384]),
    (25, &[384, 384]),
    (6, &[1536]),
    (6, &[1536, 384]),
    (6, &[384, 1536]),
    (1, &[1, 512]),
    (1, &[512, 384]),
    (1, &[2, 384]),
    (1, &[30522, 384]),
];

/// Returns the sharding that a text for matrices gives for a tensor; replicated if the tensor lacks a dim.
fn fits(mesh: &Mesh, shape: &[usize], text: &str) -> Sharding {
    Sharding::parse(mesh, shape, text).unwrap_or_else(|_| Sharding::replicated(mesh, shape).unwrap())
}

fn shards(plan: &Plan, salt: usize) -> Vec<Vec<u8>> {
    let shard = |rank: usize| {
        let held = plan.from().global_indices(rank).unwrap();
        let item = plan.element_bytes();
        let mut bytes = Vec::with_capacity(held.len() * item);
        for e in held {
            for b in 0..item {
                bytes.push(((e * 31 + b * 7 + salt) % 251) as u8);
            }
        }
        bytes
    };
    plan.from().mesh().ranks().map(shard).collect()
}

/// Returns the number of messages of separate runs, and of one batch.
fn messages(plans: &[Plan], ranks: usize) -> (u64, u64) {
    let mut world = World::new(ranks).unwrap();
    let sources: Vec<Vec<Vec<u8>>> =
        plans.iter().enumerate().map(|(salt, plan)| shards(plan, salt)).collect();
    let mut one_by_one = TrafficLog::default();
    let mut should = Vec::new();
    for (plan, source) in plans.iter().zip(&sources) {
        let (targets, trace) = world.redistribute(plan, source).unwrap();
        one_by_one.merge(&trace);
        should.push(targets);
    }
    let mut batch = Batch::new();
    for plan in plans {
        batch.add(plan).unwrap();
    }
    let (targets, trace) = world.redistribute_batch(&batch, &sources).unwrap();
    for (at, (is, should)) in targets.iter().zip(&should).enumerate() {
        assert!(is == should, "tensor {at}: {}", plans[at]);
    }
    assert_eq!(targets.len(), plans.len());
    assert_eq!(trace.total(), one_by_one.total(), "the same bytes are sent");
    for rank in 0..ranks {
        assert_eq!(trace.received_by(rank), one_by_one.received_by(rank));
    }
    (one_by_one.messages(), trace.messages())
}

#[test]
fn a_real_checkpoint_takes_a_third_of_the_messages_or_less() {
    let mesh: Mesh = "dp=2,tp=4".parse().unwrap();
    for (from, to, to_mesh) in [
        ("SS(0,4),S(0)", "R,S(1)", "dp=2,tp=4"),
        ("S(0),S(1)", "S(1),S(0)", "dp=2,tp=4"),
        ("S(0),R", "S(0),S(0)", "x=2,y=3"),
    ]
    .into_iter()
    .take(if Sweep::asked().is_exhaustive() { 3 } else { 1 })
    {
        let to_mesh: Mesh = to_mesh.parse().unwrap();
        let mut plans = Vec::new();
        for (count, shape) in MINILM {
            let dtype = if shape == [1, 512] { DType::I64 } else { DType::F32 };
            let (source, target) = (fits(&mesh, shape, from), fits(&to_mesh, shape, to));
            let plan = Planner::new().plan(&source, &target, dtype).unwrap();
            plans.extend((0..count).map(|_| plan.clone()));
        }
        assert_eq!(plans.len(), 104);
        let (one_by_one, together) = messages(&plans, 8);
        println!("{from} -> {to}: {one_by_one} messages in separate runs, {together} in one batch");
        assert!(together > 0 && together * 3 <= one_by_one, "{from} -> {to}: {together} of {one_by_one}");
    }
}

#[test]
fn batches_of_all_kinds_of_steps() {
    let mesh: Mesh = "x=2,y=2".parse().unwrap();
    let texts = ["R,R", "S(0),S(1)", "S(1),S(0)", "P,S(0)", "P,P", "S(0),S(0)"];
    let mut plans = Vec::new();
    for (n, (from, to)) in texts.iter().flat_map(|from| texts.map(|to| (from, to))).enumerate() {
        let dtype = [DType::I64, DType::I32, DType::U8][n % 3];
        let shape: &[usize] = if n % 2 == 0 { &[8, 12] } else { &[7, 5] };
        let (from, to) = (fits(&mesh, shape, from), fits(&mesh, shape, to));
        plans.push(Planner::new().plan(&from, &to, dtype).unwrap());
    }
    let (one_by_one, together) = messages(&plans, 4);
    assert!(together < one_by_one, "{together} of {one_by_one}");
}

#[test]
fn bad_batches_are_one_sentence_each() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let plan = Planner::new().plan(&fits(&mesh, &[4], "S(0)"), &fits(&mesh, &[4], "R"), DType::F32).unwrap();
    let mut batch = Batch::new();
    batch.add(&plan).unwrap();
    let mut world = World::new(2).unwrap();
    let mut said =
        |shards: &[Vec<Vec<u8>>]| world.redistribute_batch(&batch, shards).unwrap_err().to_string();
    assert_eq!(said(&[]), "shards of 0 tensors were given but the batch has 1");
    assert_eq!(said(&[vec![vec![0; 8]]]), "1 shards were given but the source mesh has 2 ranks");
    assert_eq!(said(&[vec![vec![0; 8], vec![0; 7]]]), "the source of rank 1 has 7 bytes but 8 are needed");
    assert_eq!(batch.compile(5).unwrap_err().to_string(), "rank 5 takes no part in the plan");
    for tensor in [1, usize::MAX] {
        let said = format!("there is no tensor {tensor} in a batch of 1");
        assert_eq!(batch.plan(tensor).unwrap_err().to_string(), said);
        assert_eq!(batch.source_start(tensor).unwrap_err().to_string(), said);
        assert_eq!(batch.target_start(tensor).unwrap_err().to_string(), said);
    }
    let empty = Batch::new();
    assert_eq!(empty.compile(0).unwrap_err().to_string(), "there is no tensor 0 in a batch of 0");
    let (none, trace) = world.redistribute_batch::<Vec<u8>>(&empty, &[]).unwrap();
    assert!(none.is_empty() && trace == TrafficLog::default());
}

#[test]
fn beginnings_that_no_buffer_has_are_refused_and_add_nothing() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let plan = Planner::new().plan(&fits(&mesh, &[4], "S(0)"), &fits(&mesh, &[4], "R"), DType::F32).unwrap();
    let row_major = BufferLayout::RowMajor;
    let mut batch = Batch::new();
    for (source, target, kind) in
        [(usize::MAX - 3, 0, "overflow"), (0, 1 << 63, "overflow"), (2, 0, "memory"), (0, 2, "memory")]
    {
        let error = batch.add_at(&plan, (&row_major, source), (&row_major, target)).unwrap_err();
        assert_eq!(error.code(), kind, "{error}");
        assert!(batch.is_empty() && (batch.source_bytes(), batch.target_bytes()) == (0, 0));
    }
    // An allocation that no machine can satisfy is an error of the rank that requests it.
    batch.add_at(&plan, (BufferLayout::RowMajor, 1 << 61), (BufferLayout::RowMajor, 0)).unwrap();
    let shards = [vec![vec![0; 8], vec![0; 8]]];
    let error = World::new(2).unwrap().redistribute_batch(&batch, &shards).unwrap_err();
    assert!(error.to_string().contains("cannot allocate"), "{error}");
    // A tensor that is not dense cannot be filled from shards.
    let mut batch = Batch::new();
    batch.add_at(&plan, (BufferLayout::Order(vec![0]), 0), (BufferLayout::RowMajor, 0)).unwrap();
    let error = World::new(2).unwrap().redistribute_batch(&batch, &shards).unwrap_err();
    assert_eq!(error.code(), "memory");
}

#[test]
fn a_batch_keeps_plans_that_are_its_own() {
    /// Has no lifetime.
    struct Model {
        weights: Batch<'static>,
    }
    let mesh: Mesh = "x=2".parse().unwrap();
    let plan = |n: usize| {
        Planner::new().plan(&fits(&mesh, &[n], "S(0)"), &fits(&mesh, &[n], "R"), DType::U8).unwrap()
    };
    let shared = Arc::new(plan(4));
    let mut weights = Batch::new();
    weights.add(plan(2)).unwrap();
    weights.add(Arc::clone(&shared)).unwrap();
    weights.add(shared).unwrap();
    let model = Model { weights };
    let shards =
        [vec![[1].to_vec(), [2].to_vec()], vec![vec![3, 4], vec![5, 6]], vec![vec![7, 8], vec![9, 0]]];
    let (targets, _) = World::new(2).unwrap().redistribute_batch(&model.weights, &shards).unwrap();
    let whole = |bytes: &[u8]| vec![bytes.to_vec(); 2];
    assert_eq!(targets, [whole(&[1, 2]), whole(&[3, 4, 5, 6]), whole(&[7, 8, 9, 0])]);
}
