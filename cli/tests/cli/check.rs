//! `reshard check`: the report of a program, its errors, its files, and its batch.

use crate::program::{reshard, reshard_with, text};
use serde_json::{Value, json};

/// A gated MLP with explicit redistributions, without its gradient.
const GATED: &str = "\
mesh dp=2,tp=2
x: f32[4,8,16] S(1),I
w1: f32[16,32] I,S(1)
w3: f32[16,32] I,S(1)
w2: f32[32,16] I,S(0)
xr: S(1),R = x
w1r: R,S(1) = w1
w3r: R,S(1) = w3
w2r: R,S(0) = w2
h1 = sbh,hi->sbi(xr, w1r)
h3 = sbh,hi->sbi(xr, w3r)
a = silu(h1)
h = mul(a, h3)
o = sbi,ih->sbh(h, w2r)
out: S(1),I = o
loss = sum(out)
";

fn check(program: &str, flags: &[&str]) -> Value {
    reshard_with(&[&["check", "-", "--json"], flags].concat(), program).json()
}

/// The rows that communicate: value, at, and bytes forward and backward.
fn rows(answer: &Value) -> Vec<(String, String, u64, u64)> {
    let bytes = |traffic: &Value| traffic["received_bytes"].as_u64().unwrap_or(0);
    let rows = answer["redistributions"].as_array().unwrap().iter().map(|row| {
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        (word("value"), word("at"), bytes(&row["forward"]), bytes(&row["backward"]))
    });
    rows.filter(|(_, _, forward, backward)| forward + backward > 0).collect()
}

#[test]
fn a_gated_mlp_communicates_what_the_page_says() {
    let answer = check(GATED, &["--explicit", "none"]);
    let row = |value: &str, at: &str, forward, backward| (value.to_owned(), at.to_owned(), forward, backward);
    let expected = [
        row("x", "xr", 0, 1024),
        row("w1", "w1r", 0, 1024),
        row("w3", "w3r", 0, 1024),
        row("w2", "w2r", 0, 1024),
        row("o", "out", 1024, 0),
    ];
    assert_eq!(rows(&answer), expected);
    assert_eq!(answer["received_bytes"], json!({"forward": 1024, "backward": 4096, "update": 0}));
    let over = |n: usize| (&answer["axes"][n]["axes"][0], &answer["axes"][n]["backward"]["received_bytes"]);
    assert_eq!((over(0), over(1)), ((&json!("dp"), &json!(3072)), (&json!("tp"), &json!(1024))));
    let step = &answer["redistributions"][0]["by_step"][0];
    assert_eq!(
        (&step["op"], &step["axes"], &step["group"]),
        (&json!("all_reduce"), &json!(["tp"]), &json!("2:1"))
    );
    assert_eq!(answer["optimality_gap_us"], 0.0);
    let of = |name: &str| {
        let all = answer["values"].as_array().unwrap().iter();
        all.filter(|v| v["name"] == name).map(|v| (v["type"].clone(), v["shape"].clone())).next().unwrap()
    };
    assert_eq!(of("h1"), (json!("S(1),S(2)"), json!([4, 8, 32])));
    assert_eq!(of("o"), (json!("S(1),P(sum)"), json!([4, 8, 16])));
}

/// Backward communication is reported equally whether the gradient is written or only implied.
#[test]
fn a_gradient_that_is_written_is_counted_once() {
    let known = check(GATED, &["--explicit"]);
    let written = check(&format!("{GATED}gradient loss\n"), &["--explicit"]);
    assert_eq!(
        (&known["has_explicit_backward"], &written["has_explicit_backward"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(known["received_bytes"], written["received_bytes"]);
    assert_eq!(known["axes"], written["axes"]);
    assert_eq!(rows(&known), rows(&written));
    // The gradient of one input needs less.
    let one = check(&format!("{GATED}gradient loss wrt w2\n"), &["--explicit"]);
    assert_eq!(one["received_bytes"], json!({"forward": 1024, "backward": 1024, "update": 0}));
    let x = &one["redistributions"][0];
    assert_eq!((&x["value"], &x["backward"]), (&json!("x"), &Value::Null));
}

#[test]
fn totals_are_the_sums_of_rows_and_the_printed_program_is_the_program() {
    let program = GATED.replace("S(1),I\n", "S(1),R\n") + "gradient loss\nw1' = sgd(w1, dw1)\n";
    for text in
        [program, GATED.replace("xr: S(1),R = x\n", "").replace("xr", "x") + "gradient loss wrt w1, w2\n"]
    {
        let answer = check(&text, &[]);
        for pass in ["forward", "backward", "update"] {
            let rows = answer["redistributions"].as_array().unwrap();
            let sum: u64 = rows.iter().map(|r| r[pass]["received_bytes"].as_u64().unwrap_or(0)).sum();
            assert_eq!(answer["received_bytes"][pass], sum, "{pass}");
        }
        let peak = &answer["peak_bytes"];
        let classes = ["parameters", "state", "inputs", "activations", "gradients", "staging"];
        assert_eq!(peak["all"], classes.iter().map(|c| peak[c].as_u64().unwrap()).sum::<u64>());
        let again = check(answer["program"].as_str().unwrap(), &["--explicit"]);
        for key in ["program", "received_bytes", "axes", "peak_bytes", "operations"] {
            assert_eq!(again[key], answer[key], "{key}");
        }
        let printed = reshard_with(&["check", "-", "--print"], &text).stdout;
        assert_eq!(printed, answer["program"].as_str().unwrap());
    }
}

#[test]
fn what_is_wrong_has_its_kind_and_its_way_out() {
    let refused = |program: &str, flags: &[&str], kind: &str, said: &str| {
        reshard_with(&[&["check", "-", "--json"], flags].concat(), program).refused(kind, said);
    };
    let sums = "mesh dp=1\nx: f32[8,4] S(0)\ns = sum(x, dims=[0])\ny = relu(s)\n";
    // On one rank a shard is the whole, on eight it is not.
    assert_eq!(check(sums, &[])["redistributions"], json!([]));
    refused(sums, &["--explicit", "--axes", "dp=8"], "needs_redistribute", "(all_reduce forward");
    refused(
        sums,
        &["--explicit", "local-only", "--axes", "dp=8"],
        "needs_redistribute",
        "all_reduce forward",
    );
    let unmoved = GATED.replace("xr: S(1),R = x\n", "").replace("xr", "x");
    refused(
        &unmoved,
        &["--explicit"],
        "needs_gradient_redistribute",
        "x.1: S(1),R = x` (all_reduce backward",
    );
    let index = "mesh x=2\na: f32[8] S(0)\nb = sum(a)\ni: i64[8] S(0)\ngradient b wrt i\n";
    refused(index, &[], "no_gradient", "`i` has no gradient: it is i64");
    refused("mesh x=2\ny = relu(x)\n", &[], "parse", "line 2: there is no value `x`");
    refused("", &[], "parse", "begin it with a mesh");
    refused(sums, &["--axes", "tp=2"], "parse", "tp");
    refused(sums, &["--axes", "dp"], "parse", "a form like `dp=8`");
    refused(&sums.replace("dp=1", "dp=2:3"), &["--axes", "dp=4"], "parse", "lists its ranks");
}

/// Two stages of two ranks each.
const STAGES: &str = "\
mesh pp=2,tp=2
mesh first: tp=2
mesh second: tp=2@2
x: f32[8,16] I on first
w: f32[16,32] S(1) on first
v: f32[32,16] S(0) on second
h = mm(x, w)
y: I on second = mm(h, v)
loss = sum(y)
gradient loss wrt w, v
";

#[test]
fn what_crosses_meshes_is_told_under_both() {
    let answer = check(STAGES, &[]);
    let across = |from: &str, to: &str| {
        let rows = answer["axes"].as_array().unwrap();
        let row = rows.iter().find(|row| row["meshes"] == json!([from, to])).unwrap();
        assert_eq!(row["axes"], json!([]));
        ["forward", "backward", "update"].map(|pass| row[pass]["received_bytes"].as_u64().unwrap())
    };
    assert_eq!((across("first", "second"), across("second", "first")), ([512, 0, 0], [0, 512, 0]));
    let on = answer["axes"].as_array().unwrap().iter().find(|row| row["meshes"] == json!(["second"]));
    assert_eq!(
        on.map(|row| (&row["axes"], &row["forward"]["received_bytes"])),
        Some((&json!(["tp"]), &json!(512)))
    );
    let row = answer["redistributions"].as_array().unwrap().iter().find(|row| row["value"] == "h").unwrap();
    assert_eq!((&row["from"], &row["to"]), (&json!("S(1) on first"), &json!("S(1) on second")));
    assert_eq!(row["by_step"][0]["meshes"], json!(["first", "second"]));
    let of = |name: &str| {
        let all = answer["values"].as_array().unwrap().iter();
        all.filter(|v| v["name"] == name).map(|v| v["type"].clone()).next().unwrap()
    };
    assert_eq!((of("h"), of("y")), (json!("S(1) on first"), json!("I on second")));
    let again = check(answer["program"].as_str().unwrap(), &["--explicit"]);
    assert_eq!((&again["axes"], &again["peak_bytes"]), (&answer["axes"], &answer["peak_bytes"]));
    let refused = |flags: &[&str], kind: &str, said: &str| {
        reshard_with(&[&["check", "-", "--json"], flags].concat(), STAGES).refused(kind, said);
    };
    refused(
        &["--explicit"],
        "needs_redistribute",
        "write `h.1: S(1) on second = h` (exchange forward, 512 bytes",
    );
    refused(&["--axes", "tp=4"], "parse", "has 8 ranks, but `mesh first: tp=2` is for 4");
    check(STAGES, &["--axes", "tp=4,pp=1"]);
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("gated.txt");
    std::fs::write(&file, GATED).unwrap();
    let answer = reshard(&["check", text(&file), "--json"]).json();
    assert_eq!(answer, check(GATED, &[]));
    assert!(reshard(&["check", text(&file)]).stdout.contains("all_reduce over tp (2:1): 1024 B"));
    reshard(&["check", "/dev/zero", "--json"]).refused("io", "not a regular file");
    reshard(&["check", text(folder.path()), "--json"]).refused("io", "not a regular file");
    reshard(&["check", "--json"]).refused("usage", "`file`");
    std::fs::write(&file, b"mesh \xff").unwrap();
    reshard(&["check", text(&file), "--json"]).refused("io", "not UTF-8 at byte 5");
    let many =
        format!("mesh x=2\n{}", (0..9000).fold(String::new(), |t, i| t + &format!("a{i}: f32[8] S(0)\n")));
    reshard_with(&["check", "-", "--json"], &many).refused("too_large", "above the limit of 8192");
}

#[test]
fn a_batch_answers_every_line() {
    let lines = [
        json!({"program": GATED}),
        json!({"program": GATED.replace("xr: S(1),R = x\n", "").replace("xr", "x"), "explicit": "none"}),
        json!({"program": GATED, "axes": "dp=4", "explicit": "local-only", "topology": "h100"}),
        json!({"explicit": "none"}),
        json!({"program": GATED, "file": "/etc/passwd"}),
        json!({"program": GATED.replace("xr: S(1),R = x\n", "").replace("xr", "x"), "explicit": true}),
        json!({"program": GATED, "explicit": false}),
        json!({"program": GATED, "explicit": "all"}),
    ];
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let outcome = reshard_with(&["check", "--batch"], &lines.join("\n"));
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 8);
    assert_eq!(answers[0]["received_bytes"]["forward"], 1024);
    assert_eq!(answers[1]["error"]["kind"], "needs_gradient_redistribute");
    // Of dp=4, a rank receives 2 N 3/4 where it was N.
    assert_eq!(answers[2]["axes"][0]["backward"]["received_bytes"], 4608);
    assert_eq!(
        (&answers[3]["error"]["kind"], &answers[4]["error"]["kind"]),
        (&json!("usage"), &json!("parse"))
    );
    // `true` is "none", as in a batch of `propagate`.
    assert_eq!((&answers[5], &answers[6]), (&answers[1], &answers[0]));
    assert_eq!(answers[7]["error"]["kind"], "parse");
    let message = answers[7]["error"]["message"].as_str().unwrap();
    assert!(message.contains(r#"string "all", expected "none" or true"#), "{message}");
}

/// The kind of an error is that of its cause, in a region as outside, and of a file as of a batch.
#[test]
fn the_kind_of_an_error_of_a_line_is_that_of_its_cause() {
    let region = |lines: &str| {
        format!("mesh tp=2\nx: f32[8] S(0)\np: f32[4] P\nlocal tp\nin x: S(0)\nin p: P\n{lines}\nend\n")
    };
    let cases = [
        (region("out y: R = x"), "out_spec_mismatch", "line 7: `y` varies over tp"),
        (region("h = mul(x, p)"), "program", "line 7: mul: along tp x is V and p is P"),
        (region("h = softmx(x)"), "rule", "softmx"),
        (region("in q: S(0) = x.1"), "parse", "line 7: there is no value `x.1`"),
        (region("h = relu(q)"), "parse", "line 7: there is no value `q`"),
        (region("nonsense"), "parse", "line 7: \"nonsense\" is not allowed in `local tp`"),
        (region("g = all_gather(x)"), "parse", "`dim` must be an integer"),
        (
            format!("repeat 1\n{}end\n", region("out y: R = x")).replacen(
                "repeat 1\nmesh tp=2\n",
                "mesh tp=2\nrepeat 1\n",
                1,
            ),
            "out_spec_mismatch",
            "line 8: `y` varies over tp",
        ),
        ("mesh tp=2\nx: f32[4] S(1)".to_owned(), "no_such_dim", "x"),
        ("mesh tp=2\nx: f32[4] S(0)\nx = relu(x)".to_owned(), "program", "line 3: `x` is defined twice"),
        ("mesh tp=2\nx: f32[4] S(".to_owned(), "parse", "line 2: "),
    ];
    let lines: Vec<String> = cases.iter().map(|(text, ..)| json!({"program": text}).to_string()).collect();
    let outcome = reshard_with(&["check", "--batch"], &lines.join("\n"));
    for ((text, kind, said), answer) in cases.iter().zip(outcome.stdout.lines()) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(answer["error"]["kind"], *kind, "{text}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
        reshard_with(&["check", "-", "--json"], text).refused(kind, said);
    }
}

#[test]
fn what_one_rank_hides_is_refused_with_one_rank() {
    // A rank's sum is the whole's as long as it is alone.
    let hides = "mesh dp=1,tp=2\nx: f32[8,4] S(0),R\ns = sum(x, dims=[0])\ny = relu(s)\n";
    let program = |dp: usize| hides.replace("dp=1", &format!("dp={dp}"));
    let ask = |program: &str, flags: &[&str]| reshard_with(&[&["check", "-"], flags].concat(), program);
    let alone = ask(&program(1), &["--explicit"]);
    let two = ask(&program(2), &["--explicit"]);
    assert!(alone.status != 0 && two.status != 0, "{} {}", alone.stdout, two.stdout);
    let told = "error: axes of one rank are typed like others, and with dp=2 the program is wrong: ";
    assert_eq!(alone.stderr.replacen(told, "error: ", 1), two.stderr);
    assert!(alone.stderr.starts_with(told), "{}", alone.stderr);
    // Redistributions that the solver inserts fit the actual size.
    assert_eq!(ask(&program(1), &[]).status, 0);
    // A program that is correct for two ranks is correct for one.
    let right = program(1).replace("s = sum", "s: R,R = sum");
    let moved = right.replace("s: R,R = sum(x, dims=[0])", "t = sum(x, dims=[0])\ns: R,R = t");
    assert_eq!(ask(&moved, &["--explicit"]).status, 0, "{}", ask(&moved, &["--explicit"]).stderr);
}

/// The letters of types come back along an axis of one rank, also with other axes and in JSON.
#[test]
fn types_of_one_rank_are_printed_as_they_were_written() {
    let text = "mesh dp=1,tp=2\nx: f32[8,4] S(0),R\nw: f32[4,4] R,S(1)\ny = matmul(x, w)\n";
    let printed = reshard_with(&["check", "-", "--explicit", "--print"], text).stdout;
    assert_eq!(printed, text.replace("y = ", "y: S(0),S(1) = "));
    assert_eq!(reshard_with(&["check", "-", "--explicit", "--print"], &printed).stdout, printed);
    let answer = check(text, &["--explicit"]);
    let types: Vec<&str> =
        answer["values"].as_array().unwrap().iter().map(|value| value["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["S(0),R", "R,S(1)", "S(0),S(1)"]);
    // In a region over the axis the body is checked, and so are the statements after it.
    let region = "mesh dp=1\nx: f32[8,4] S(0)\nlocal dp\n  in x: S(0)\n  s = sum(x, dims=[0])\n  out y: P = s\nend\nz = relu(y)\n";
    reshard_with(&["check", "-", "--json", "--explicit"], region).refused("needs_redistribute", "with dp=2");
}

#[test]
fn an_axis_that_does_no_work_has_a_note() {
    let text = "mesh dp=4,tp=2\nx: f32[8,16] I,R\nw: f32[16,32] I,S(1)\ny = mm(x, w)\n";
    let note =
        json!({"kind": "same_work", "axis": "dp", "ranks": 4, "text": "dp computes the same on all 4 ranks"});
    assert_eq!(check(text, &["--explicit"])["notes"], json!([note]));
    let report = reshard_with(&["check", "-", "--explicit"], text).stdout;
    assert!(report.contains("\nnote: dp computes the same on all 4 ranks\n"), "{report}");
    assert_eq!(check(&text.replace("dp=4", "dp=1"), &["--explicit"])["notes"], json!([]));
}

/// Recomputation keeps the memory limit, and gathered parameters are re-gathered in backward.
///
/// Both hold for the trace of a rank and for a step too.
#[test]
fn what_does_not_fit_is_made_again() {
    let text = "mesh dp=2\nx: f32[64,32] S(0)\nw: f32[32,32] S(0)\nv: f32[32,32] S(0)\nwr: R = w\nh: S(0) = mm(x, wr)\na = exp(h)\nb = sin(a)\nvr: R = v\ny: S(0) = mm(b, vr)\nloss = sum(y)\ngradient loss wrt w, v\n";
    let check = |flags: &[&str]| reshard_with(&[&["check", "-", "--json"], flags].concat(), text).json();
    let [kept, gathered] = [check(&[]), check(&["--reshard-after-forward"])];
    let steps = |answer: &Value| answer["steps"]["backward"].as_u64().unwrap();
    assert_eq!((steps(&kept), steps(&gathered)), (2, 3));
    let peak = |answer: &Value| answer["peak_bytes"]["all"].as_u64().unwrap();
    let limit = (peak(&kept) - 1).to_string();
    let fits = check(&["--max-memory-bytes", &limit]);
    assert!(peak(&fits) < peak(&kept) && fits["program"].as_str().unwrap().contains(".again"), "{fits}");
    reshard_with(&["check", "-", "--json", "--max-memory-bytes", "100"], text)
        .refused("memory", "no rematerialization fits in 100 bytes per rank; the best needs");
    let trace = ["trace", "-", "--json", "--rank", "0", "--max-memory-bytes", &limit];
    let traced = reshard_with(&trace, text).json();
    assert_eq!(traced, reshard_with(&[&trace[..], &["--typed"]].concat(), text).json());
    let step =
        reshard_with(&["step", "-", "--json", "--reshard-after-forward", "--max-memory-bytes", &limit], text)
            .json();
    assert_eq!(step["verified"], true, "{step}");
}
