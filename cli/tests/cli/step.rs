//! `reshard step`: a step on ranks is the step on one device; indices in their range; limits.

use crate::program::{reshard, reshard_with, text as text_of};

const MLP: &str = "\
mesh dp=2,tp=2
x: f32[4,8,16] S(1),I
w1: f32[16,32] I,S(1)
w2: f32[32,16] I,S(0)
out: S(1),I = sbi,ih->sbh(h, w2)
";

fn mlp() -> String {
    MLP.replace("out:", "g = sbh,hi->sbi(x, w1)\nh = silu(g)\nout:")
        + "loss = sum(out)\ngradient loss\nw1' = sgd(w1, dw1)\n"
}

#[test]
fn a_step_on_ranks_is_the_step_on_one_device() {
    let answer = reshard_with(&["step", "-", "--json"], &mlp()).json();
    assert_eq!(answer["verified"], true);
    let gradients = answer["gradients"].as_array().unwrap();
    let names: Vec<&str> = gradients.iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dx", "dw1", "dw2"]);
    assert!(gradients.iter().all(|g| g["relative_error"].as_f64().unwrap() < 1e-12), "{answer}");
    let (loss, one) = (answer["loss"].as_f64().unwrap(), answer["loss_one_device"].as_f64().unwrap());
    assert!((loss - one).abs() < 1e-9 && loss.abs() > 1e-3, "{answer}");
    // Another seed is another step, on uneven shards too; f32 is less exact, and not exact.
    let uneven = ["step", "-", "--json", "--seed", "7", "--axes", "dp=3"];
    let other = reshard_with(&uneven, &mlp()).json();
    assert_eq!((&other["verified"], &other["ranks"]), (&true.into(), &6.into()));
    assert_ne!(other["loss"], answer["loss"]);
    let single = reshard_with(&["step", "-", "--json", "--dtype", "f32"], &mlp()).json();
    let error = single["worst"]["relative_error"].as_f64().unwrap();
    assert!(single["verified"] == true && error > 1e-12 && error < 1e-4, "{single}");
    assert!(reshard_with(&["step", "-"], &mlp()).stdout.contains("verified: "));
}

/// With communication dtypes the program without them is verified, and their error is reported separately.
///
/// A gradient that rounds to zero has an error of 1.
#[test]
fn wires_are_told_apart_from_what_is_wrong() {
    let text = |scale: &str| {
        format!(
            "mesh dp=4\nx: f32[8,16] S(0)\nw: f32[16,16] S(0)\nwr: R via f16 = w\nh = mm(x, wr)\nm = sum(h)\n\
             loss = mul_scalar(m, value={scale})\ngradient loss wrt w\nw' = sgd(w, dw)\n"
        )
    };
    for seed in 0..8 {
        let asked = ["step", "-", "--json", "--seed", &seed.to_string()];
        let answer = reshard_with(&asked, &text("1.0")).json();
        let off = answer["wires"]["relative_error"].as_f64().unwrap();
        assert!(answer["verified"] == true && off > 1e-5 && off < 1.0, "{answer}");
        assert!(answer["worst"]["relative_error"].as_f64().unwrap() < 1e-12, "{answer}");
    }
    let lost = reshard_with(&["step", "-", "--json"], &text("1e-10")).json();
    assert_eq!(lost["wires"], serde_json::json!({"name": "dw", "relative_error": 1.0}), "{lost}");
    let said = reshard_with(&["step", "-"], &text("1e-10")).stdout;
    assert!(said.contains("the largest error is 1.0e0 of the largest element (in dw)"), "{said}");
    // A value above the largest f16 is infinite.
    let infinite = reshard_with(&["step", "-"], &text("1e6"));
    assert!(infinite.status == 1 && infinite.stdout.contains("NOT verified"), "{}", infinite.stdout);
}

/// Values are on their meshes, and weights are updated on a separate mesh.
#[test]
fn a_step_on_several_meshes_is_the_step_on_one_device() {
    let text = "\
mesh dp=2,tp=2
mesh storage: fsdp=4
mesh last: x=1@3
x: f32[8,16] S(0),R
w: f32[16,32] S(0) on storage
h: S(0),S(1) = mm(x, w)
y: R on last = h
loss = sum(y)
gradient loss wrt w
w' = sgd(w, dw)
";
    let answer = reshard_with(&["step", "-", "--json"], text).json();
    assert_eq!((&answer["verified"], &answer["ranks"]), (&true.into(), &4.into()), "{answer}");
    let other = reshard_with(&["step", "-", "--json", "--axes", "dp=1,tp=4"], text).json();
    assert_eq!(other["verified"], true, "{other}");
}

/// Indices and classes are drawn below the size of the global dim that they index.
#[test]
fn indices_are_below_what_they_index() {
    let text = "\
mesh dp=2,tp=2
ids: i64[8] S(0),R
classes: i64[8] S(0),R
table: f32[10,4] I,S(0)
w: f32[4,6] I,I
x = embedding(table, ids)
y = mm(x, w)
loss = cross_entropy(y, classes)
gradient loss wrt table, w
";
    let answer = reshard_with(&["step", "-", "--json"], text).json();
    assert_eq!(answer["verified"], true, "{answer}");
    assert_eq!(answer["gradients"].as_array().unwrap().len(), 2);
}

#[test]
fn steps_that_are_too_large_or_have_no_gradient_are_refused() {
    let refused = |text: &str, flags: &[&str], kind: &str, said: &str| {
        reshard_with(&[&["step", "-", "--json"], flags].concat(), text).refused(kind, said);
    };
    refused(&mlp(), &["--axes", "dp=64"], "too_large", "a step runs at most 64");
    refused("mesh x=2\na: f32[8] S(0)\nb = sum(a)\n", &[], "no_gradient", "such as `gradient loss`");
    let large = "mesh x=2\na: f32[65536,65536] S(0)\nb = sum(a)\ngradient b\n";
    refused(large, &[], "too_large", "the limit of 16777216;");
    let long = "mesh x=2\na: f32[512,512] S(0)\nc = mm(a, a)\nb = sum(c)\ngradient b\n";
    refused(long, &[], "too_large", "the limit of 268435456;");
    let log = "mesh x=2\na: f32[8] S(0)\nc = log(a)\nb = sum(c)\ngradient b\n";
    refused(log, &[], "not_finite", "`b` is NaN");
    reshard(&["step", "/nowhere", "--json"]).refused("io", "/nowhere");
}

#[test]
fn engines_that_are_not_there_are_refused() {
    let text = "mesh x=2\na: f32[4] S(0)\nl = sum(a)\ngradient l\n";
    assert_eq!(reshard_with(&["step", "-", "--json", "--engine", "threads"], text).json()["verified"], true);
    for engine in ["cuda", "nccl"] {
        reshard_with(&["step", "-", "--json", "--engine", engine], text)
            .refused("no_such_engine", "host memory");
    }
    if !cfg!(feature = "mpi") {
        reshard_with(&["step", "-", "--json", "--engine", "mpi"], text)
            .refused("no_such_engine", "--features mpi");
    }
}

/// Times are those of a run on threads; its picture has every call of every rank.
#[test]
fn a_run_with_a_clock_is_drawn_and_told_beside_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let [svg, chrome, html] = ["a.svg", "a.json", "a.html"].map(|name| folder.path().join(name));
    let plain = reshard_with(&["step", "-", "--json"], &mlp()).json();
    assert!(plain.get("times_us").is_none());
    let answer =
        reshard_with(&["step", "-", "--json", "--time", "--in-flight-bytes", "1000000"], &mlp()).json();
    let times = answer["times_us"].as_array().unwrap();
    assert_eq!((times.len(), &answer["loss"]), (4, &plain["loss"]));
    for (rank, of) in times.iter().enumerate() {
        assert_eq!(of["rank"], rank);
        let us = |by: &str, what: &str| of[by][what].as_f64().unwrap();
        assert!(us("measured", "computing") > 0.0 && us("measured", "waiting") > 0.0, "{of}");
        let busy = us("measured", "computing") + us("measured", "waiting");
        assert!(busy <= us("measured", "total") + 1e-6 && us("measured", "hidden") < 1e-6, "{of}");
        assert!(us("model", "exchanging") > 0.0 && us("model", "total") > 0.0, "{of}");
        assert_eq!(of["measured"]["total"], times[0]["measured"]["total"]);
    }
    let text = reshard_with(&["step", "-", "--time"], &mlp()).stdout;
    assert!(
        text.contains("verified: ") && text.contains(" us measured, ") && text.contains("  rank 3 computes ")
    );
    let files = ["--svg", text_of(&svg), "--chrome-trace", text_of(&chrome)];
    let drawn = reshard_with(&[&["step", "-", "--draw"], &files[..]].concat(), &mlp());
    assert_eq!((drawn.status, drawn.stderr.as_str()), (0, ""));
    assert!(drawn.stdout.contains("of a run, by the clock\n  rank 0 calls     |"), "{}", drawn.stdout);
    assert!(drawn.stdout.contains("rank 3 exchanges |"), "{}", drawn.stdout);
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg "));
    let events: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&chrome).unwrap()).unwrap();
    let named = |tid: u64, pid: usize| {
        let events = events["traceEvents"].as_array().unwrap().iter();
        events.filter(|e| e["ph"] == "X" && e["tid"] == tid && e["pid"] == pid).count()
    };
    for rank in 0..4 {
        let trace = ["trace", "-", "--json", "--rank", &rank.to_string()];
        let trace = reshard_with(&trace, &mlp()).json();
        let lines = trace["schedule"].as_array().unwrap();
        let calls = lines.iter().filter(|line| line.get("call").is_some()).count();
        assert_eq!((named(0, rank), named(1, rank)), (calls, named(2, rank)));
        assert!(calls > 5 && named(1, rank) > 0);
    }
    let page = reshard_with(&["report", "step", "-", "--html", text_of(&html)], &mlp());
    assert_eq!((page.status, page.stderr.as_str()), (0, ""));
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Measured, on threads") && page.contains("Predicted by the cost model"));
    for flag in [&["--time"][..], &["--draw"], &["--svg", text_of(&svg)]] {
        reshard_with(&[&["step", "-", "--engine", "mpi", "--json"], flag].concat(), &mlp())
            .refused("no_such_engine", "times are measured with `--engine threads` only");
    }
}
