//! Notes of reports against their definition, rank by rank.

use core::fmt::Write as _;

use reshard_planner::{Planner, Topology};
use reshard_program::{ComputeRates, ImplicitRedistribution, Note, Program, ShardingSolver, Statement};
use reshard_test_support::{Random, Sweep};

use crate::elaborated;

/// Returns the notes of a program without implicit redistributions.
fn notes(text: &str) -> Vec<String> {
    let solver = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
    let program = solver.solve(&text.parse().unwrap()).unwrap_or_else(|e| panic!("{text}{e}"));
    program.report(&ComputeRates::uniform()).notes.iter().map(ToString::to_string).collect()
}

#[test]
fn an_axis_that_does_no_work_has_a_note() {
    let same = "mesh dp=4,tp=2\nx: f32[8,16] I,R\nw: f32[16,32] I,S(1)\ny = mm(x, w)\n";
    assert_eq!(notes(same), ["dp computes the same on all 4 ranks"]);
    // An axis of one rank has none, nor has an axis that an op is split along, or adds partial values along.
    assert_eq!(notes(&same.replace("dp=4", "dp=1")), [""; 0]);
    assert_eq!(notes(&same.replace("I,R", "S(0),R").replace("I,S(1)", "R,S(1)")), [""; 0]);
    assert_eq!(notes("mesh dp=4\nx: f32[8] P\ny = neg(x)\n"), [""; 0]);
    // Storage in shards is not work: the weight is gathered before the product.
    assert_eq!(
        notes("mesh dp=4\nx: f32[8,16] R|-\nw: f32[16,32] S(0)|-\nr: R|- = w\ny = mm(x, r)\n"),
        ["dp computes the same on all 4 ranks"]
    );
    assert_eq!(notes("mesh dp=4\nx: f32[8] R\n"), [""; 0]);
    // Stages on other meshes do different work.
    let stages = elaborated(crate::report::STAGES).report(&ComputeRates::uniform());
    assert_eq!(stages.notes, []);
    let second = "mesh w=4\nmesh e: ep=2@2\nx: f32[8] R on e\ny = relu(x)\n";
    assert_eq!(notes(second), ["ep on e computes the same on all 2 ranks"]);
    let report = elaborated(same).report(&ComputeRates::uniform());
    assert_eq!(report.notes, [Note::SameWork { axis: "dp".to_owned(), mesh: None, ranks: 4 }]);
    assert!(report.to_string().contains("\nnote: dp computes the same on all 4 ranks\npeak "));
}

/// Returns `true` if every op has the same regions on ranks that differ in an axis, and no partial operand there.
fn does_no_work(program: &Program, axis: usize) -> bool {
    let mesh = program.mesh();
    let mut ops = 0;
    for item in program.statements() {
        let Statement::Op { inputs, outputs, .. } = item else { continue };
        ops += 1;
        for &v in inputs.iter().chain(outputs) {
            let is = &program.get(v).ty.value;
            for rank in mesh.ranks() {
                let mut at = mesh.coordinate(rank).unwrap().to_vec();
                at[axis] = 0;
                let first = mesh.ranks().find(|&r| mesh.coordinate(r).unwrap().to_vec() == at).unwrap();
                if is.region(rank) != is.region(first) {
                    return false;
                }
            }
            if is.placements().unwrap()[axis].to_string().starts_with('P') {
                return false;
            }
        }
    }
    ops > 0 && mesh.axes()[axis].size() > 1
}

#[test]
fn a_note_is_there_exactly_if_an_axis_does_no_work() {
    let (mut with, mut without) = (0, 0);
    let words = ["R", "I", "R", "I", "S(0)", "S(1)", "P"];
    for case in 0..Sweep::asked().count(60, 600) {
        let mut random = Random(case * 29 + 7);
        let sizes = *random.pick(&[[2, 2], [1, 4], [3, 2], [4, 1]]);
        let mut text = format!("mesh a={},b={}\n", sizes[0], sizes[1]);
        for v in 0..2 {
            let is = format!("{},{}", random.pick(&words), random.pick(&words));
            writeln!(text, "v{v}: f32[12,12] {is}").unwrap();
        }
        for v in 2..2 + random.below(4) {
            let (a, b) = (random.below(v), random.below(v));
            let call =
                *random.pick(&["mm(vA, vB)", "add(vA, vB)", "relu(vA)", "transpose(vA, dim0=0, dim1=1)"]);
            let call = call.replace('A', &a.to_string()).replace('B', &b.to_string());
            writeln!(text, "v{v} = {call}").unwrap();
        }
        let program = elaborated(&text);
        let notes = program.report(&ComputeRates::uniform()).notes;
        for (axis, name) in ["a", "b"].into_iter().enumerate() {
            let noted = notes.iter().any(|Note::SameWork { axis, .. }| axis == name);
            assert_eq!(noted, does_no_work(&program, axis), "{program}along {name}: {notes:?}");
            if noted { with += 1 } else { without += 1 }
        }
    }
    assert!(with > 10 && without > 10, "{with} axes with a note, {without} without");
}

/// Without implicit redistributions there is no gap, although the backward of this layer has one.
#[test]
fn an_explicit_program_has_no_gap() {
    let graph = LAYER.parse().unwrap();
    let solver = ShardingSolver::new().planner(Planner::new().topology(Topology::h100()));
    let solver = solver.rates(ComputeRates::h100());
    let with = |moves| solver.clone().implicit_redistribution(moves).solve(&graph).unwrap();
    let report = with(ImplicitRedistribution::Deny).report(&ComputeRates::h100());
    assert!(report.optimality_gap_us <= 0.0, "{}", report.optimality_gap_us);
    assert!(!report.to_string().contains("cheaper program"));
    assert!(with(ImplicitRedistribution::LocalOnly).optimality_gap_us() > 0.0, "nothing to leave out");
}

/// A layer with each redistribution written.
const LAYER: &str = "
    mesh dp=2,tp=4
    x: f32[2,128,1024] S(0),I
    g1: f32[1024] I,I
    wq: f32[1024,16,64] I,S(1)
    wk: f32[1024,16,64] I,S(1)
    wv: f32[1024,16,64] I,S(1)
    wo: f32[16,64,1024] I,S(0)
    g2: f32[1024] I,I
    w1: f32[1024,4096] I,S(1)
    w3: f32[1024,4096] I,S(1)
    w2: f32[4096,1024] I,S(0)
    g1.m: R,I = g1
    n1 = rms_norm(x, g1.m)
    n1.m: S(0),R = n1
    wq.m: R,S(1) = wq
    q = bsd,dhe->bhse(n1.m, wq.m)
    wk.m: R,S(1) = wk
    k = bsd,dhe->bhse(n1.m, wk.m)
    wv.m: R,S(1) = wv
    v = bsd,dhe->bhse(n1.m, wv.m)
    o = scaled_dot_product_attention(q, k, v)
    wo.m: R,S(0) = wo
    p = bhse,hed->bsd(o, wo.m)
    p.m: S(0),I = p
    y = add(x, p.m)
    g2.m: R,I = g2
    n2 = rms_norm(y, g2.m)
    n2.m: S(0),R = n2
    w1.m: R,S(1) = w1
    h1 = bsd,df->bsf(n2.m, w1.m)
    w3.m: R,S(1) = w3
    h3 = bsd,df->bsf(n2.m, w3.m)
    w2.m: R,S(0) = w2
    s = silu(h1)
    h = mul(s, h3)
    m = bsf,fd->bsd(h, w2.m)
    m.m: S(0),I = m
    z = add(y, m.m)
    loss = sum(z)
    gradient loss wrt g1, wq, wk, wv, wo, g2, w1, w3, w2
";
