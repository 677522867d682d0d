//! `reshard propagate`: facts with real numbers, modes, errors, and batches of bad input.

use crate::program::{Outcome, reshard, reshard_with};
use reshard::prelude::*;
use serde_json::{Value, json};

/// The answer to `--op`, `--shapes` and `--in` on a mesh, with more flags.
#[track_caller]
fn propagate(mesh: &str, op: &str, shapes: &str, inputs: &str, more: &[&str]) -> Value {
    run(mesh, op, shapes, inputs, &[more, &["--json"]].concat()).json()
}

fn run(mesh: &str, op: &str, shapes: &str, inputs: &str, more: &[&str]) -> Outcome {
    let flags = ["propagate", "--mesh", mesh, "--op", op, "--shapes", shapes, "--in", inputs];
    reshard(&[&flags[..], more].concat())
}

fn batch(lines: &str) -> Vec<Value> {
    let outcome = reshard_with(&["propagate", "--batch"], lines);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_product_of_rows_and_columns_is_free() {
    for op in ["mm", "mk,kn->mn"] {
        let answer = propagate("dp=2,tp=4", op, "64,32;32,16", "S(0),R;R,S(1)", &["--topology", "uniform"]);
        assert_eq!(
            answer,
            json!({"version": 2, "in": ["S(0),R", "R,S(1)"], "computed": ["S(0),S(1)"], "out": ["S(0),S(1)"], "cost_us": 0.0, "steps": 0})
        );
    }
}

/// Shards are added locally where each rank holds the same rows of both operands.
///
/// (R,S0,S1) and (S0,R,R) do not qualify: where the first two coordinates differ, a rank lacks rows of one
/// operand.
#[test]
fn sums_are_free_where_ranks_hold_both_terms() {
    let mesh = "x=2,y=2,z=2";
    let free = propagate(mesh, "add", "8,8;8,8", "R,R,S(1);S(0),R,R", &[]);
    assert_eq!((&free["out"], &free["cost_us"]), (&json!(["S(0),R,S(1)"]), &json!(0.0)));

    let parsed: Mesh = mesh.parse().unwrap();
    let rows = |text: &str, rank| {
        Sharding::parse(&parsed, &[8, 8], text).unwrap().region(rank).unwrap().dims[0].clone()
    };
    let rank = parsed.rank_at(&[0, 1, 0]).unwrap();
    let (first, second) = (rows("R,S(0),S(1)", rank), rows("S(0),R,R", rank));
    assert!(
        first.iter().all(|a| second.iter().all(|b| a.start >= b.start + b.len || b.start >= a.start + a.len))
    );

    let answer = propagate(mesh, "add", "8,8;8,8", "R,S(0),S(1);S(0),R,R", &["--top", "20"]);
    assert_eq!(answer["steps"], 1);
    let options = std::iter::once(&answer).chain(answer["runners_up"].as_array().unwrap());
    assert!(options.into_iter().all(|option| option["cost_us"].as_f64().unwrap() > 0.0));
}

#[test]
fn cat_takes_the_cheaper_way() {
    let (shapes, inputs) = ("8,1048576;8,1048576", "R,R,S(1);S(1),S(1),S(1)");
    let answer = propagate("x=2,y=2,z=2", "cat(dim=0)", shapes, inputs, &[]);
    assert_eq!(answer["out"], json!(["S(1),S(1),S(1)"]));
    assert_eq!(answer["in"], json!(["S(1),S(1),S(1)", "S(1),S(1),S(1)"]));
    let by_rule = ["--out-shapes", "16,1048576"];
    assert_eq!(propagate("x=2,y=2,z=2", "*j,*j->*j {selecting}", shapes, inputs, &by_rule), answer);
}

/// The product of row-major matrices.
fn product(a: &[i64], b: &[i64], [m, k, n]: [usize; 3]) -> Vec<i64> {
    let at = |i: usize, j: usize| (0..k).map(|x| a[i * k + x] * b[x * n + j]).sum();
    (0..m * n).map(|e| at(e / n, e % n)).collect()
}

/// Assembles the product of matrices from the local products of shards.
fn multiply(a: (&Sharding, &[Vec<i64>]), b: (&Sharding, &[Vec<i64>]), out: &Sharding) -> Vec<i64> {
    let local = |(i, rank): (usize, usize)| {
        let [left, right] = [a.0, b.0].map(|s| s.local_shape(rank).unwrap());
        assert_eq!(left[1], right[0]);
        product(&a.1[i], &b.1[i], [left[0], left[1], right[1]])
    };
    let shards: Vec<Vec<i64>> = out.mesh().ranks().enumerate().map(local).collect();
    out.assemble(&shards).unwrap()
}

/// Executes the chosen strategy on the threads engine, multiplies local shards, and compares the result.
///
/// The reference is the product of the whole matrices.
#[test]
fn what_is_chosen_computes_the_product() {
    const SIDE: usize = 4;
    let mesh: Mesh = "a=2,b=2".parse().unwrap();
    let words = [
        "R,R",
        "S(0),R",
        "R,S(0)",
        "S(1),R",
        "R,S(1)",
        "S(0),S(0)",
        "S(1),S(1)",
        "S(0),S(1)",
        "S(1),S(0)",
        "SS(0,2),S(0)",
        "SS(1,2),S(1)",
        "SS(0,2),R",
        "SS(1,2),R",
        "P,R",
        "R,P",
        "P,S(0)",
        "S(1),P",
        "P,P",
    ];
    let pairs: Vec<(&str, &str)> = words.iter().flat_map(|a| words.iter().map(move |b| (*a, *b))).collect();
    let request = |(a, b): &(&str, &str)| json!({"mesh": "a=2,b=2", "op": "mm", "shapes": [[SIDE, SIDE], [SIDE, SIDE]], "in": [a, b], "dtype": "i64"});
    let lines: Vec<String> = pairs.iter().map(|pair| request(pair).to_string()).collect();
    let answers = batch(&lines.join("\n"));
    assert_eq!(answers.len(), pairs.len());

    let arange: Vec<i64> = (0..(SIDE * SIDE) as i64).collect();
    let truth = product(&arange, &arange, [SIDE; 3]);
    assert_eq!(truth[..4], [56, 62, 68, 74]);
    let parse = |text: &str| Sharding::parse(&mesh, &[SIDE, SIDE], text).unwrap();
    for ((a, b), answer) in pairs.into_iter().zip(&answers) {
        let mut moved = Vec::new();
        let mut cost_us = 0.0;
        for (from, to) in [a, b].into_iter().zip(answer["in"].as_array().unwrap()) {
            let (from, to) = (parse(from), parse(to.as_str().unwrap()));
            let mut shards = from.shard_all(&arange, 0).unwrap();
            if from != to {
                let plan = Planner::new().plan(&from, &to, DType::I64).unwrap();
                cost_us += plan.cost_us();
                let bytes: Vec<&[u8]> = shards.iter().map(|shard| bytemuck::cast_slice(shard)).collect();
                let landed = threads::redistribute(&plan, &bytes).unwrap().0;
                shards = landed.iter().map(|shard| bytemuck::pod_collect_to_vec(shard)).collect();
            }
            moved.push((to, shards));
        }
        let out = parse(answer["out"][0].as_str().unwrap());
        let [left, right] = &moved[..] else { unreachable!() };
        let result = multiply((&left.0, &left.1), (&right.0, &right.1), &out);
        assert_eq!(result, truth, "[{a}] times [{b}]: {answer}");
        assert!((cost_us - answer["cost_us"].as_f64().unwrap()).abs() < 1e-6, "{a} {b}: {cost_us}, {answer}");
    }
}

#[test]
fn plain_and_strided_do_not_contract() {
    let mesh: Mesh = "a=2,b=2".parse().unwrap();
    let [left, right] = ["S(1),S(1)", "SS(0,2),S(0)"].map(|p| Sharding::parse(&mesh, &[4, 4], p).unwrap());
    let arange: Vec<i64> = (0..16).collect();
    // The wrong result if nothing is redistributed: each rank multiplies columns with other rows.
    let partial = Sharding::parse(&mesh, &[4, 4], "P,P").unwrap();
    let [a, b] = [&left, &right].map(|s| s.shard_all(&arange, 0).unwrap());
    assert_eq!(multiply((&left, &a), (&right, &b), &partial)[..4], [52, 58, 64, 70]);
    let answer = propagate("a=2,b=2", "mm", "4,4;4,4", "S(1),S(1);SS(0,2),S(0)", &[]);
    assert!(answer["steps"].as_u64().unwrap() > 0 && answer["cost_us"].as_f64().unwrap() > 0.0, "{answer}");
    // `what_is_chosen_computes_the_product` carries this pair out too; refusing it in explicit mode is the other half.
    run("a=2,b=2", "mm", "4,4;4,4", "S(1),S(1);SS(0,2),S(0)", &["--explicit", "--json"])
        .refused("needs_redistribute", "redistribute input");
}

#[test]
fn explicit_takes_inputs_as_they_are_or_says_why_not() {
    let free = propagate("dp=2,tp=4", "mm", "64,32;32,16", "S(0),S(1);R,S(0)", &["--explicit"]);
    assert_eq!((&free["out"], &free["steps"]), (&json!(["S(0),P(sum)"]), &json!(0)));
    run("dp=2,tp=4", "mm", "64,32;32,16", "S(0),R;R,S(0)", &["--explicit", "--json"]).refused(
        "needs_redistribute",
        "mm of f32[64,32] [S(0),R] on dp=2,tp=4 and f32[32,16] [R,S(0)] on dp=2,tp=4: along tp the inputs are R,S(0)",
    );
    run("dp=2,tp=4", "mm", "64,32;32,16", "S(0),R;R,S(1)", &["--explicit", "--out", "R,R"])
        .refused("usage", "`explicit` redistributes nothing");
}

#[test]
fn outputs_become_what_is_wished_or_are_charged() {
    let partial = propagate("x=2,y=2", "mm", "64,64;64,64", "S(1),R;S(0),R", &[]);
    assert_eq!((&partial["out"], &partial["cost_us"]), (&json!(["P(sum),R"]), &json!(0.0)));
    let whole = propagate("x=2,y=2", "mm", "64,64;64,64", "S(1),R;S(0),R", &["--out", "R,R", "--top", "0"]);
    assert_eq!((&whole["out"], &whole["runners_up"]), (&json!(["R,R"]), &json!([])));
    let moves = whole["moves"].as_array().unwrap();
    assert!(moves.iter().any(|step| step["operand"] == "output 0" && step["to"] == "R,R"), "{whole}");
    let steps: usize = moves.iter().map(|m| m["steps"].as_array().unwrap().len()).sum();
    assert!(steps as u64 >= whole["steps"].as_u64().unwrap() && whole["steps"].as_u64().unwrap() > 0);
    let sum: f64 = moves.iter().map(|m| m["cost_us"].as_f64().unwrap()).sum();
    assert!((sum - whole["cost_us"].as_f64().unwrap()).abs() < 1e-6);
    let charged = propagate(
        "x=2,y=2",
        "mm",
        "64,64;64,64",
        "S(1),R;S(0),R",
        &["--prefer", "R,R", "--penalty-us", "0.5"],
    );
    assert_eq!((&charged["out"], &charged["cost_us"]), (&json!(["P(sum),R"]), &json!(0.5)));
    // A constraint on the second of two outputs alone.
    let split = "ij->ij,ij";
    let second = propagate("x=2,y=2", split, "8,8", "S(0),R", &["--out", ";R,R"]);
    assert_eq!(second["out"][1], "R,R");
    run("x=2,y=2", "mm", "8,8;8,8", "R,R;R,R", &["--out", "R,R;R,R"]).refused("usage", "2 shardings");
}

#[test]
fn every_notation_of_a_sharding_is_taken() {
    let by_axis = propagate("dp=2,tp=4", "mm", "64,32;32,16", "S(0),R;P,S(1)", &[]);
    for inputs in ["[{dp},{}];[{},{tp}] unreduced={dp}", "[{'dp'},{}]; P(sum), Shard(1)"] {
        assert_eq!(propagate("dp=2,tp=4", "mm", "64,32;32,16", inputs, &[]), by_axis, "{inputs}");
    }
    let hlo = propagate("dp=2,tp=4", "relu", "64,32", "{devices=[2,4]<=[8]}", &[]);
    assert_eq!(hlo["out"], json!(["S(0),S(1)"]));
    // Sub-axes have no placements, and stay where they are.
    let part = propagate("tp=8", "relu", "64,32", "[{tp:(1)2},{}]", &[]);
    assert_eq!((&part["in"], &part["cost_us"]), (&json!(["[{tp:(1)2},{}]"]), &json!(0.0)));
}

#[test]
fn scalars_have_an_empty_shape() {
    let answer = propagate("x=2", "add", "64;", "S(0);R", &[]);
    assert_eq!((&answer["out"], &answer["steps"]), (&json!(["S(0)"]), &json!(0)));
    let sum = propagate("x=2", "i->", "64", "S(0)", &["--out", "R"]);
    assert_eq!((&sum["out"], &sum["steps"]), (&json!(["R"]), &json!(1)));
}

#[test]
fn element_types_weigh_the_bytes() {
    let cost = |dtype: &str| {
        let answer = propagate("x=2", "mm", "4096,4096;4096,4096", "P;R", &["--dtype", dtype, "--out", "R"]);
        answer["cost_us"].as_f64().unwrap()
    };
    assert!(cost("bf16") < cost("f32") && cost("f32") < cost("f64"));
    run("x=2", "add", "8;8", "R;R", &["--dtype", "i64;f32;f32"]).refused("usage", "3 values for 2 inputs");
    run("x=2", "relu", "8", "P(avg)", &["--dtype", "i64", "--json"])
        .refused("arithmetic", "avg is not defined for i64");
}

#[test]
fn strategies_that_need_their_region_say_so() {
    let (mesh, shapes, inputs) = ("dp=2,tp=4", "64,32;16", "R,S(0);S(0),R");
    let answer = propagate(mesh, "embedding", shapes, inputs, &["--top", "0"]);
    assert_eq!(answer["out"], json!(["S(0),P(sum)"]));
    let rows = answer["strategies"].as_array().unwrap();
    let read: Vec<(&str, bool)> =
        rows.iter().map(|row| (row["axis"].as_str().unwrap(), row["region"] == true)).collect();
    assert_eq!(read, [("dp", false), ("tp", true)]);
    let text = run(mesh, "embedding", shapes, inputs, &["--top", "0"]).stdout;
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    assert!(lines[1].starts_with("dp ") && !lines[1].contains("region"), "{text}");
    assert!(lines[2].starts_with("tp ") && lines[2].ends_with("S(v0),R -> P   (needs its region)"), "{text}");
}

#[test]
fn people_read_strategies_moves_and_runners_up() {
    let outcome = run("dp=2,tp=4", "mm", "64,32;32,16", "S(0),R;S(1),S(0)", &["--top", "2"]);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], "mm of f32[64,32] [S(0),R] on dp=2,tp=4 and f32[32,16] [S(1),S(0)] on dp=2,tp=4");
    let words = |i: usize| lines[i].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(1), "dp S(m0),R -> S(m0)");
    assert_eq!(words(2), "tp S(k1),S(k0) -> P");
    assert_eq!(words(3), "input 0 [S(0),R] -> [S(0),S(1)]");
    assert_eq!(words(4), "slice over tp (4:1): 0 B, 0.0 us");
    assert_eq!(words(5), "input 1 [S(1),S(0)] -> [R,S(0)]");
    assert!(words(6).starts_with("all_gather over dp (2:4): 256 B"), "{}", words(6));
    assert_eq!(words(7), "output 0 [S(0),P(sum)]");
    assert!(words(8).starts_with("cost 6.6 us, 1 communicating step"), "{}", words(8));
    assert_eq!((lines[9], lines.len()), ("runners-up", 12));
}

#[test]
fn errors_are_one_sentence() {
    let refused = |op: &str, shapes: &str, inputs: &str, more: &[&str], kind: &str, said: &str| {
        run("dp=2,tp=4", op, shapes, inputs, &[more, &["--json"]].concat()).refused(kind, said);
    };
    refused("sofmax", "8,8", "R,R", &[], "rule", "did you mean softmax?");
    refused("mm", "64,32;48,16", "R,R;R,R", &[], "rule", "k is 32 in input 0 and 48 in input 1");
    refused("mm", "64,32", "R,R", &[], "rule", "mm");
    refused("mm", "64,32;32,16", "R,R", &[], "usage", "`shapes` has 2 values and `in` has 1");
    refused("mm", "64,32;32,16", "R;R,R", &[], "placement_count", "input 0");
    refused("mm", "64,32;32,16", "R,R;R,S(7)", &[], "no_such_dim", "input 1");
    refused("mm", "64,32;32,16", "R,R;R,Q", &[], "parse", "input 1");
    refused(
        "mm",
        "64,32;32,16",
        "R,R;R,R",
        &["--prefer", "R,R", "--penalty-us", "-1"],
        "usage",
        "at least 0",
    );
    refused("mm", "64,32;32,16", "R,R;R,R", &["--prefer", "R,R"], "usage", "--penalty-us");
    refused("mm", "64,32;32,16", "R,R;R,R", &["--out", "R,S(2)"], "no_such_dim", "output 0");
    refused("mm", "64,32;32,16", "R,R;R,R", &["--topology", "none"], "topology", "expected uniform, h100");
    refused("mm", "64,32;32,16", "R,R;R,R", &["--objective", "fun"], "parse", "expected time, bytes or peak");
    refused("mm", "64,32;32,16", "R,R;R,R", &["--top", "1000000"], "usage", "1000000");
    refused("mm", "4294967296,4294967296;4294967296,4294967296", "R,R;R,R", &[], "overflow", "63 bits");
    reshard(&["propagate", "--op", "mm", "--json"]).refused("usage", "mesh");
    reshard(&["propagate", "--mesh", "x=2", "--op", "mm", "--json"])
        .refused("usage", "the request lacks `shapes`");
    reshard(&["propagate", "--mesh", "x=2", "--batch"]).refused("usage", "--batch");
}

/// A batch accepts the same words as a batch of `check`, as far as an op has them.
#[test]
fn explicit_is_none_or_true() {
    let line = |explicit: Value| {
        json!({"mesh": "tp=4", "op": "mm", "shapes": "64,32;32,16", "in": "R;S(0)", "explicit": explicit})
            .to_string()
    };
    let lines = [json!(true), json!("none"), json!(false), json!("local-only"), json!(7)].map(line);
    let answers = batch(&lines.join("\n"));
    assert_eq!(answers[0]["error"]["kind"], "needs_redistribute");
    assert_eq!(answers[1], answers[0]);
    assert!(answers[2]["in"].is_array(), "{}", answers[2]);
    for (answer, given) in answers[3..].iter().zip([r#"string "local-only""#, "integer `7`"]) {
        assert_eq!(answer["error"]["kind"], "parse");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(given) && message.contains(r#"expected "none" or true"#), "{message}");
    }
}

/// Every line is answered, in order, in one line, whatever it is.
#[test]
fn bad_lines_are_answered_by_the_hundreds() {
    let good =
        json!({"mesh": "dp=2,tp=4", "op": "mm", "shapes": [[64, 32], [32, 16]], "in": ["S(0),R", "R,S(1)"]});
    let text = good.to_string();
    let mut lines: Vec<String> = (0..text.len()).map(|end| text[..end].to_owned()).collect();
    // Every key with every wrong value.
    let values = [
        json!(null),
        json!(-1),
        json!(1.5),
        json!(""),
        json!(";"),
        json!("\u{0}"),
        json!([]),
        json!([[]]),
        json!({}),
        json!("S(0)"),
        json!("dp=0"),
        json!("mk,kn->"),
        json!("->"),
        json!("mm("),
        json!([[0, 0], [0, 0]]),
        json!([[1], [1]]),
        json!([[u64::MAX, 2], [2, 2]]),
        json!(["R,R"]),
        json!(["S(0),S(0)", "SS(0,0),R"]),
        json!(["P(min),P(sum)", "R,R"]),
        json!("[{dp,dp},{}];[{},{}]"),
        json!("x=4294967296,y=4294967296,z=4"),
        json!("softmax(dim=-9)"),
        json!(1e300),
        json!(true),
        json!("RG(0,[1,63]),R;R,R"),
        json!("((((((((("),
        json!("é→;→"),
        json!("i8"),
        json!(["f32", "f32", "f32"]),
        json!(999_999_999),
    ];
    for key in [
        "mesh",
        "op",
        "shapes",
        "in",
        "dtype",
        "topology",
        "objective",
        "out",
        "prefer",
        "penalty_us",
        "out_shapes",
        "explicit",
        "top",
        "other",
    ] {
        for value in &values {
            let mut line = good.clone();
            line[key] = value.clone();
            lines.push(line.to_string());
        }
        let mut line = good.clone();
        line.as_object_mut().unwrap().remove(key);
        lines.push(line.to_string());
    }
    lines.push(text);
    lines.retain(|line| !line.contains('\n'));
    assert!(lines.len() > 500, "{}", lines.len());
    let answers = batch(&(lines.join("\n") + "\n"));
    assert_eq!(answers.len(), lines.len());
    let mut refused = 0;
    for (line, answer) in lines.iter().zip(&answers) {
        let Some(error) = answer.get("error") else {
            assert!(answer["in"].is_array() && answer["out"].is_array(), "{line}: {answer}");
            assert!(answer["cost_us"].is_number() && answer["steps"].is_u64(), "{line}: {answer}");
            continue;
        };
        refused += 1;
        let message = error["message"].as_str().unwrap();
        assert!(!error["kind"].as_str().unwrap().is_empty() && !message.is_empty(), "{line}: {answer}");
        assert!(!message.contains('\n') && message.len() < 2000, "{line}: {answer}");
    }
    assert!(refused > 300, "{refused} of {}", lines.len());
    assert_eq!(answers.last().unwrap()["out"], json!(["S(0),S(1)"]));
}

#[test]
fn a_norm_along_a_shard_is_terms_of_the_norm() {
    for (op, out) in [("norm", "P(norm2),P(norm2)"), ("linalg_vector_norm(p=2.5)", "P(norm2.5),P(norm2.5)")] {
        let answer = propagate("dp=2,tp=4", op, "64,32", "S(0),S(1)", &[]);
        assert_eq!((&answer["out"], &answer["cost_us"]), (&json!([out]), &json!(0.0)), "{op}");
    }
    // Ops that select elements keep partial norms if all inputs are such partials; inputs that may be
    // negative are not.
    let both = propagate("dp=2,tp=4", "stack", "6;6", "P(norm2),R;P(norm2),R", &[]);
    assert_eq!(both["out"], json!(["P(norm2),R"]));
    let one = propagate("dp=2,tp=4", "stack", "6;6", "P(norm2),R;R,R", &[]);
    assert!(!one["out"].to_string().contains("norm"), "{one}");
}
