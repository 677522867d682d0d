//! Reports: passes, sums, and live bytes against their definition, rank by rank.

use crate::elaborated;
use reshard_program::{
    ComputeRates, Graph, ImplicitRedistribution, Pass, Program, ShardingSolver, Statement, ValueClass,
    ValueId,
};

const STEP: &str = "
    mesh dp=2,tp=2
    x: f32[8,16] S(0),I
    w: f32[16,32] R,S(1)
    v: f32[32,16] R,S(0)
    m: f32[16,32] R,S(1)
    h = mm(x, w)
    a = relu(h)
    out: S(0),I = mm(a, v)
    loss = sum(out)
    gradient loss wrt w, v
    no_grad
    m' = add(m, dw)
    w' = sgd(w, m')
";

/// Two stages on separate ranks; the second has the larger weights.
pub(crate) const STAGES: &str = "
    mesh pp=2,tp=2
    mesh first: tp=2
    mesh second: tp=2@2
    x: f32[8,16] R on first
    w: f32[16,32] S(1) on first
    v: f32[32,64] S(0) on second
    h = mm(x, w)
    a = relu(h)
    b: S(1) on second = a
    out: I on second = mm(b, v)
    loss = sum(out)
    gradient loss wrt w, v
    w' = sgd(w, dw)
    v' = sgd(v, dv)
";

#[test]
fn backward_is_what_gradients_need_and_update_the_rest() {
    let report = elaborated(STEP).report(&ComputeRates::uniform());
    let of = |name: &str| report.values.iter().find(|v| v.name == name).map(|v| (v.class, v.pass));
    assert_eq!(of("x"), Some((ValueClass::Input, Pass::Forward)));
    assert_eq!(of("w"), Some((ValueClass::Parameter, Pass::Forward)));
    assert_eq!(of("v"), Some((ValueClass::Parameter, Pass::Forward)));
    assert_eq!(of("h"), Some((ValueClass::Activation, Pass::Forward)));
    assert_eq!(of("dw"), Some((ValueClass::Gradient, Pass::Backward)));
    assert_eq!(of("m'"), Some((ValueClass::State, Pass::Update)));
    assert_eq!(of("w'"), Some((ValueClass::Parameter, Pass::Update)));
    // Two products forward, and two backward for each, except for that of the input.
    let product = 2.0 * 8.0 * 16.0 * 32.0 / 4.0;
    let (forward, backward) = (report.operations.forward, report.operations.backward);
    assert!(forward > 2.0 * product && forward < 3.0 * product, "{forward}");
    assert!(backward > 3.0 * product && backward < 4.0 * product, "{backward}");
}

/// Returns the maximum of live bytes over ranks, from the definition.
///
/// Every buffer lives from its producer to its last reader.
fn held(program: &Program) -> u64 {
    let ranks = program.mesh().ranks().collect::<Vec<_>>();
    ranks.iter().map(|&rank| held_by(program, rank)).max().unwrap()
}

/// Returns the maximum of one rank; values on meshes without the rank count nothing.
fn held_by(program: &Program, rank: usize) -> u64 {
    let items = program.statements();
    let here = |v: ValueId| program.get(v).ty.value.mesh().contains(rank);
    let takes = |n: usize, v: ValueId| items[n].inputs().contains(&v);
    let makes = |n: usize, v: ValueId| items[n].outputs().contains(&v);
    // The buffer that each value uses.
    let mut of: Vec<usize> = (0..program.values().len()).collect();
    for item in items {
        match item {
            Statement::Redistribute { from, to, forward, .. }
                if forward.steps().is_empty() && here(*from) && here(*to) =>
            {
                of[to.index()] = of[from.index()];
            }
            Statement::Op { is_view: true, inputs, outputs, .. } => {
                of[outputs[0].index()] = of[inputs[0].index()];
            }
            Statement::Input(_)
            | Statement::Op { .. }
            | Statement::Redistribute { .. }
            | Statement::NoGrad => {}
        }
    }
    let ids: Vec<ValueId> = items.iter().flat_map(Statement::outputs).copied().collect();
    let there = |n: usize, v: ValueId| {
        let made = (0..items.len()).find(|&m| makes(m, v)).unwrap();
        let taken = (n..items.len()).any(|m| takes(m, v));
        let ever = |v: ValueId| (0..items.len()).any(|m| takes(m, v));
        let name = &program.get(v).name;
        let update = program.value(&format!("{name}'"));
        if matches!(items[made], Statement::Input(_)) {
            return update.is_none_or(|u| taken || (n..items.len()).any(|m| makes(m, u)));
        }
        let result = name.ends_with('\'') || items[made].outputs().iter().all(|&v| !ever(v));
        made <= n && (taken || result || made == n)
    };
    let bytes = |v: ValueId, rank: usize| {
        if !program.get(v).ty.value.mesh().contains(rank) {
            return 0;
        }
        let shape = program.get(v).ty.value.local_shape(rank).unwrap();
        (shape.iter().product::<usize>() * program.get(v).dtype.bits()).div_ceil(8) as u64
    };
    let at = |n: usize, rank: usize| -> u64 {
        let mut buffers: Vec<usize> = ids.iter().filter(|v| there(n, **v)).map(|v| of[v.index()]).collect();
        buffers.sort_unstable();
        buffers.dedup();
        let values =
            ids.iter().filter(|v| buffers.contains(&v.index())).map(|v| bytes(*v, rank)).sum::<u64>();
        let staging = match &items[n] {
            Statement::Redistribute { from, to, forward, .. }
                if of[to.index()] == to.index() && (here(*from) || here(*to)) =>
            {
                // Ranks on the same ones of the two meshes.
                let like = |r: &usize| {
                    [*from, *to].iter().all(|v| program.get(*v).ty.value.mesh().contains(*r) == here(*v))
                };
                let ranks = program.mesh().ranks().filter(like);
                let both = ranks.map(|r| bytes(*from, r) + bytes(*to, r)).max().unwrap();
                forward.peak_bytes() - both
            }
            Statement::Input(_)
            | Statement::Op { .. }
            | Statement::Redistribute { .. }
            | Statement::NoGrad => 0,
        };
        values + staging
    };
    (0..items.len()).map(|n| at(n, rank)).max().unwrap()
}

#[test]
fn bytes_at_hand_are_those_of_the_worst_rank() {
    let texts = [
        STEP.to_owned(),
        STEP.replace("wrt w, v", ""),
        STEP.replace("R,S(1)", "I,S(1)").replace("S(0),I = mm", "S(0),R = mm"),
        "mesh x=4\na: f32[16] S(0)\nb: R = a\nc = mul(b, b)\nd = reshape(c, shape=[4,4])\ne = sum(d)\nf = relu(e)".to_owned(),
        // Uneven chunks: the first rank has the most data.
        "mesh x=4\na: f32[9,3] S(0)\nb = relu(a)\nc: R = b\nd: S(0) = c".to_owned(),
        "mesh x=2\na: f32[8] S(0)\nb = relu(a)".to_owned(),
        STAGES.to_owned(),
        // Another view of the same shards, and one rank of four.
        "mesh x=2,y=2\nmesh e: ep=4\nmesh last: x=1@3\na: f32[16,8] S(0),S(0)\nb: S(0) on e = a\nc = relu(b)\nd: R on last = c\n\
         e = mul(d, d)"
            .to_owned(),
    ];
    for text in &texts {
        let program = elaborated(text);
        let peak = program.report(&ComputeRates::uniform()).peak;
        assert_eq!(peak.bytes, held(&program), "{program}\n{peak:?}");
        assert_eq!(peak.bytes, peak.by_class.iter().sum::<u64>() + peak.staging);
        assert!(program.value(&peak.at).is_some(), "{peak:?}");
    }
}

/// Megatron blocks: one all_reduce each in forward and in backward.
#[test]
fn a_thousand_ops_on_131072_ranks_are_the_sum_of_their_blocks() {
    let blocks = 250;
    let mut lines = vec!["mesh dp=16384,tp=8\nx0: bf16[16384,1024] S(0),I".to_owned()];
    for b in 0..blocks {
        lines.push(format!(
            "w{b}: bf16[1024,4096] R,S(1)\nv{b}: bf16[4096,1024] R,S(0)\nr{b}: S(0),R = x{b}\nh{b} = mm(r{b}, w{b})\na{b} = gelu(h{b})\n\
             p{b} = mm(a{b}, v{b})\no{b}: S(0),I = p{b}\nx{} = add(x{b}, o{b})",
            b + 1
        ));
    }
    let graph: Graph = lines.join("\n").parse().unwrap();
    let start = std::time::Instant::now();
    let program =
        ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph).unwrap();
    let elaborated = start.elapsed();
    let start = std::time::Instant::now();
    let report = program.report(&ComputeRates::h100());
    let reported = start.elapsed();
    println!("{} statements: solved in {elaborated:?}, reported in {reported:?}", program.statements().len());
    let of = report.over("tp");
    // A rank has a row of 1024 elements of 2 bytes, and receives 2 x 7/8 of it.
    assert_eq!((of.forward.received_bytes, of.backward.received_bytes), (blocks * 3584, blocks * 3584));
    assert_eq!((of.forward.steps, report.redistributions.len()), (blocks as usize, 2 * blocks as usize));
    assert_eq!(report.by_axes.len(), 1);
    let operations = 2.0 * 1024.0 * 512.0 * 2.0;
    assert_eq!(
        report.operations.forward.to_string(),
        (blocks as f64 * (operations + 512.0 + 1024.0)).to_string()
    );
}

/// Two losses, each with gradients: both are backward, and nothing is counted twice.
///
/// Statements that use gradients come after.
#[test]
fn gradients_of_two_losses_are_both_backward() {
    let text = "mesh dp=2
x: f32[8,4] S(0)
w: f32[4,4] I
y = mm(x, w)
loss = sum(y)
gradient loss wrt w
w' = sgd(w, dw)
z = relu(y)
other = sum(z)
gradient other wrt w as e";
    let program = elaborated(text);
    let report = program.report(&ComputeRates::uniform());
    let printed: Program = program.to_string().parse().unwrap();
    assert_eq!(printed.report(&ComputeRates::uniform()).redistributions.len(), report.redistributions.len());
    let moved: u64 = program.redistributions().map(|m| m.forward.received_bytes()).sum();
    let counted = [Pass::Forward, Pass::Backward, Pass::Update].map(|p| report.traffic.of(p).received_bytes);
    assert!(report.has_explicit_backward, "{report}");
    assert_eq!((counted[0], counted.iter().sum::<u64>(), moved), (0, 128, 128), "{report}");
    let class = |name: &str| report.values.iter().find(|v| v.name == name).unwrap().class;
    assert_eq!(
        (class("w"), class("dw"), class("e")),
        (ValueClass::Parameter, ValueClass::Gradient, ValueClass::Gradient)
    );
    // A gradient of another gradient keeps its position in the program.
    let twice = "mesh dp=2
x: f32[8,4] S(0)
w: f32[4,4] I
y = mm(x, w)
z = mul(y, y)
loss = sum(z)
gradient loss wrt w
g = mul(dw, dw)
other = sum(g)
gradient other wrt w as e";
    let report = elaborated(twice).report(&ComputeRates::uniform());
    let class = |name: &str| report.values.iter().find(|v| v.name == name).unwrap().class;
    assert_eq!(
        (class("dw"), class("e")),
        (ValueClass::Activation, ValueClass::Gradient),
        "a gradient that another gradient uses is forward"
    );
}

/// For a weight used by three products, two contributions to the gradient are live at a time.
///
/// They are added in the order in which they are computed.
#[test]
fn parts_of_a_gradient_are_added_as_they_come() {
    let text = "mesh dp=2
w: f32[4,6] I
a: f32[8,4] S(0)|-
b: f32[8,4] S(0)|-
c: f32[8,4] S(0)|-
x = mm(a, w)
y = mm(b, w)
z = mm(c, w)
xy = mul(x, y)
xyz = mul(xy, z)
loss = sum(xyz)
gradient loss wrt w";
    let program = elaborated(text);
    let of_weight = |item: &Statement| match item {
        Statement::Op { call, outputs, .. } if program.get(outputs[0]).shape() == [4, 6] => {
            Some(if call.to_string() == "add" { "add" } else { "part" })
        }
        Statement::Op { .. } | Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => {
            None
        }
    };
    let made: Vec<&str> = program.statements().iter().filter_map(of_weight).collect();
    assert_eq!(made, ["part", "part", "add", "part", "add"]);
    let reduced = program.redistributions().filter(|m| m.forward.received_bytes() > 0).count();
    assert_eq!(reduced, 1, "{program}");
}
