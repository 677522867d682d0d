//! Programs on several meshes of one world: results equal one device, and traffic is counted by hand.

use reshard_planner::{Objective, Planner};
use reshard_program::{ComputeRates, ImplicitRedistribution, Pass, Program, Report, ShardingSolver};

use crate::programs::{communicated, written};

fn report(program: &Program) -> Report {
    program.report(&ComputeRates::uniform())
}

/// The bytes received by steps over some axes, or between some meshes, in all passes.
fn over(report: &Report, text: &str) -> u64 {
    Pass::ALL.iter().map(|&pass| report.over(text).of(pass).received_bytes).sum()
}

/// Weights are stored over all ranks in equal parts, and used in columns and rows.
const STORED: &str = "
    mesh dp=2,tp=2
    mesh storage: fsdp=4
    x: f32[8,16] S(0),R
    w: f32[16,32] S(0) on storage
    v: f32[32,16] S(0) on storage
    m: f32[32,16] S(0)|- on storage
    wr: R,S(1) = w
    vr: R,S(0) = v
    h = mm(x, wr)
    a = relu(h)
    o = mm(a, vr)
    out: S(0),I = o
    loss = sum(out)
    gradient loss wrt w, v
    w' = sgd(w, dw)
    v', m' = sgd_momentum(v, dv, m)
";

#[test]
fn weights_of_a_storage_mesh_come_to_the_compute_mesh_and_gradients_go_back() {
    let program = written(STORED).unwrap();
    // w: a rank computes with 16 x 16 of its columns and stores 4 rows of 32: of 1024 bytes it has 256. v:
    // rank 1 stores rows 8 to 16, and computes with the rows from 16: all 1024 come from elsewhere. In
    // backward everything has two partial values. Of w a rank gets 4 of 256 bytes, one of which is its own;
    // of v rank 1 gets 512 bytes twice, and has none.
    let moves = [
        "wr: exchange 768",
        "vr: exchange 1024",
        "out: all_reduce 256",
        "dv: exchange 1024",
        "dw: exchange 768",
    ];
    assert_eq!(communicated(&program), moves);
    let report = report(&program);
    assert_eq!(over(&report, "storage to default"), 768 + 1024);
    assert_eq!(over(&report, "default to storage"), 1024 + 768);
    assert_eq!(over(&report, "tp"), 256);
    assert_eq!(report.by_axes.len(), 3);
    // The update is on the mesh of the weights.
    let mesh_of = |name: &str| {
        program.meshes().name(program.get(program.value(name).unwrap()).ty.value.mesh()).unwrap()
    };
    assert_eq!(["w", "dw", "w'", "v'", "m'"].map(mesh_of), ["storage"; 5]);
    assert_eq!(["wr", "h", "out", "loss"].map(mesh_of), ["default"; 4]);
}

/// Eight tokens, four experts with a capacity of four tokens each; `m` assigns tokens to experts.
const EXPERTS: &str = "
    mesh dp=2,cp=1,tp=2
    mesh experts: edp=1,ep=2,etp=2
    x: f32[8,16] S(0),I,I
    m: f32[8,4,4] S(0)|-,R|-,R|-
    w: f32[4,16,32] R,S(0),S(2) on experts
    v: f32[4,32,16] R,S(0),S(1) on experts
    b = td,tec->ecd(x, m)
    e: I,S(0),R on experts = b
    h: I,S(0),S(2) on experts = ecd,edf->ecf(e, w.1)
    a = silu(h)
    y = ecf,efd->ecd(a, v.1)
    z: R,I,I = y
    out = ecd,tec->td(z, m)
    loss = sum(out)
    gradient loss wrt x, w, v
    w' = sgd(w, dw)
    v' = sgd(v, dv)
";

#[test]
fn tokens_go_to_experts_on_their_own_mesh_and_come_back() {
    let kept = "w.1: I,S(0),S(2) on experts = w\nv.1: I,S(0),S(1) on experts = v\nb = ";
    let text = EXPERTS.replace("b = ", kept);
    let program = written(&text).unwrap();
    // The experts' input is partial over dp. Of 2 experts x 4 x 16 numbers a rank has one partial value and
    // gets the other, 512 bytes; its position among the experts is unchanged. The experts' output is partial
    // over etp, with zeros where a rank has no expert. It needs an all_reduce of all 1024 bytes over four
    // ranks: 2 x 3/4 of them. Gradients use the same paths.
    let moves = [
        "e: reduce_scatter+slice 512",
        "z: zero_fill+all_reduce 1536",
        "dy: reduce_scatter+slice 512",
        "db: zero_fill+all_reduce 1536",
    ];
    assert_eq!(communicated(&program), moves);
    let report = report(&program);
    // All of it on the dense mesh: only split or zero-filled values cross.
    assert_eq!((over(&report, "dp"), over(&report, "dp,tp")), (512 + 512, 1536 + 1536));
    assert_eq!(report.by_axes.len(), 2);
    // In two steps it is less: partial values of its 512 bytes, and then the other two experts.
    let planner = Planner::new().objective(Objective::Bytes);
    let least = ShardingSolver::new()
        .implicit_redistribution(ImplicitRedistribution::Deny)
        .planner(planner)
        .solve(&text.parse().unwrap());
    let bytes: Vec<u64> = (communicated(&least.unwrap()).iter())
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(bytes, [512, 1024, 512, 1024]);
    // Operations of a rank: two matrices for 2 experts x 4 tokens, silu of the first result, and the products
    // that dispatch 4 tokens to 16 positions and combine the results.
    let products = 2.0 * (2.0 * 2.0 * 4.0 * 16.0 * 16.0) + 2.0 * 4.0 * 16.0;
    let tokens = 2.0 * (2.0 * 4.0 * 16.0 * 16.0) + 4.0 * 16.0;
    assert_eq!(report.operations.forward.to_string(), (products + tokens).to_string());
}

/// Two stages, each on separate ranks.
const STAGES: &str = "
    mesh pp=2,tp=2
    mesh first: tp=2
    mesh second: tp=2@2
    x: f32[8,16] R on first
    w: f32[16,32] S(1) on first
    v: f32[32,16] S(0) on second
    h = mm(x, w)
    a = relu(h)
    b: S(1) on second = a
    o = mm(b, v)
    y: I on second = o
    loss = sum(y)
    gradient loss wrt w, v
    w' = sgd(w, dw)
    v' = sgd(v, dv)
";

#[test]
fn stages_on_ranks_of_their_own_pass_activations_on_and_gradients_back() {
    let program = written(STAGES).unwrap();
    // Half of 8 x 32 numbers from each rank of the first to one of the second, and equally many gradients.
    assert_eq!(communicated(&program), ["b: exchange 512", "y: all_reduce 512", "da: exchange 512"]);
    let report = report(&program);
    assert_eq!((over(&report, "first to second"), over(&report, "second to first")), (512, 512));
    assert_eq!((over(&report, "tp on second"), over(&report, "tp on first")), (512, 0));
    // A stage computes only its own part: a product, and relu of 8 x 16 or the sum of 8 x 16.
    let forward = 2.0 * 8.0 * 16.0 * 16.0 + 8.0 * 16.0;
    assert_eq!(report.operations.forward.to_string(), forward.to_string());
}

#[test]
fn stages_may_have_other_numbers_of_ranks() {
    let text = STAGES
        .replace("mesh pp=2,tp=2", "mesh all=3")
        .replace("tp=2@2", "tp=1@2")
        .replace("b: S(1) on second", "b: R on second")
        .replace("v: f32[32,16] S(0)", "v: f32[32,16] R")
        .replace("y: I on second", "y: R on second");
    // Everything is on one rank in the second: it gets 8 x 32 numbers, and sends half of them to each rank of
    // the first.
    assert_eq!(communicated(&written(&text).unwrap()), ["b: exchange 1024", "da: exchange 512"]);
    let whole = text.replace("b: R on second = a", "c: R on first = a\nb: R on second = c");
    // In reverse, the one rank of the second sends all 1024 bytes in any case, so one rank of the first
    // receives them as its partial value; a reduce_scatter follows.
    let moves = ["c: all_gather 512", "b: exchange 1024", "dc: exchange 1024", "da: reduce_scatter 512"];
    assert_eq!(communicated(&written(&whole).unwrap()), moves);
}
