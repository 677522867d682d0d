//! `reshard plan`, as the contract of the command line has it.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

#[track_caller]
fn plan(mesh: &str, shape: &str, from: &str, to: &str) -> Value {
    reshard(&["plan", "--mesh", mesh, "--shape", shape, "--from", from, "--to", to, "--json"]).json()
}

fn ops(plan: &Value) -> Vec<&str> {
    plan["steps"].as_array().unwrap().iter().map(|step| step["op"].as_str().unwrap()).collect()
}

#[test]
fn every_field_of_the_contract_is_there() {
    let plan = plan("dp=2,tp=4", "64,32", "S(0),S(1)", "R,S(1)");
    assert_eq!(ops(&plan), ["all_gather"]);
    let step = &plan["steps"][0];
    assert_eq!(step["axes"], json!(["dp"]));
    assert_eq!(step["group"], "2:4");
    assert_eq!((step["from"].as_str(), step["to"].as_str()), (Some("S(0),S(1)"), Some("R,S(1)")));
    for key in ["received_bytes", "sent_bytes"] {
        assert_eq!(step[key], 32 * 8 * 4, "{key}");
    }
    for key in ["received_bytes", "lower_bound_bytes"] {
        assert_eq!(plan[key], 32 * 8 * 4, "{key}");
    }
    for key in ["cost_us", "lower_bound_us", "peak_bytes", "max_shard_bytes"] {
        assert!(plan[key].is_number(), "{key} in {plan}");
    }
    assert!(step["cost_us"].is_number());
    assert_eq!(plan["groups"], json!(["2:4"]));
}

#[test]
fn nothing_to_do_is_no_step() {
    let plan = plan("dp=2,tp=4", "64,32", "S(0),R", "S(0),R");
    assert_eq!((ops(&plan), plan["received_bytes"].as_u64()), (vec![], Some(0)));
}

#[test]
fn facts_of_the_closed_form() {
    assert_eq!(ops(&plan("a=2,b=2", "8,8", "S(0),S(1)", "S(1),S(0)")).len(), 1);
    let reduce = plan("a=2,b=2,c=2", "8,8", "P,P,P", "R,S(0),R");
    assert_eq!(ops(&reduce).len(), 2, "{reduce}");
    assert_eq!(ops(&plan("a=2", "8", "R", "S(0)")), ["slice"]);
    assert_eq!(ops(&plan("a=2", "8", "P", "R")), ["all_reduce"]);
}

#[test]
fn another_mesh_and_another_type() {
    let outcome = reshard(&[
        "plan",
        "--mesh",
        "dp=2,tp=4",
        "--to-mesh",
        "cp=3,tp=2",
        "--shape",
        "[30]",
        "--dtype",
        "bf16",
        "--from",
        "S(0),R",
        "--to",
        "S(0),R",
        "--json",
    ]);
    let plan = outcome.json();
    assert_eq!(ops(&plan), ["exchange"]);
    assert_eq!(plan["received_bytes"], plan["lower_bound_bytes"]);
}

#[test]
fn networks_by_name_and_by_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let profile = "launch_us = 1.0\nmessage_us = 0.0\n[[levels]]\nlatency_us = 2.0\ngbytes_per_s = 0.001\n";
    std::fs::write(&file, profile).unwrap();
    let cost = |topology: &str| {
        let outcome = reshard(&[
            "plan",
            "--mesh",
            "a=2",
            "--shape",
            "8",
            "--from",
            "S(0)",
            "--to",
            "R",
            "--topology",
            topology,
            "--json",
        ]);
        outcome.json()["cost_us"].as_f64().unwrap()
    };
    assert!((cost(file.to_str().unwrap()) - (1.0 + 2.0 + 16.0)).abs() < 1e-9);
    assert!((cost("uniform") - (6.6 + 16e-5)).abs() < 1e-9);
    assert!((cost("h100-lines") - (6.6 + 2.0 + 16.0 / 370e3)).abs() < 1e-9);
}

#[test]
fn only_the_groups_that_exist() {
    let run = |groups: &str| {
        reshard(&[
            "plan",
            "--mesh",
            "a=2,b=2",
            "--shape",
            "8,8",
            "--from",
            "S(0),S(1)",
            "--to",
            "R,R",
            "--groups",
            groups,
            "--json",
        ])
    };
    let free = plan("a=2,b=2", "8,8", "S(0),S(1)", "R,R");
    assert_eq!((ops(&free), free.get("savings")), (vec!["all_gather"], None));
    let held = run("axes").json();
    assert_eq!(held["groups"].as_array().unwrap().len(), 2, "{held}");
    assert_eq!(held["savings"][0]["group"], "4:1");
    assert_eq!(run("a,b").json()["groups"], json!(["4:1"]));
    assert_eq!(run("2:1 ; 2:2").json()["steps"].as_array().unwrap().len(), 2);
    run("c").refused("no_such_axis", "c");
    run("4:").refused("parse", "4:");
}

#[test]
fn people_get_text() {
    let arguments = ["plan", "--mesh", "a=2", "--shape", "8", "--from", "S(0)", "--to", "R"];
    let outcome = reshard(&arguments);
    assert_eq!(outcome.status, 0);
    assert!(outcome.stdout.contains("all_gather"), "{outcome:?}");
}

#[test]
fn a_plan_is_explained_beside_a_greedy_one() {
    let flags = ["plan", "--mesh", "a=2,b=2", "--shape", "64,64", "--explain", "--from"];
    let run = |rest: &[&str]| reshard(&[&flags[..], rest].concat());
    let text = run(&["P,P", "--to", "R,R"]).stdout;
    assert!(text.contains("a,b in one reduction"), "{text}");
    assert!(text.contains("axis by axis, for comparison"), "{text}");
    let json = run(&["P,P", "--to", "R,R", "--json"]).json();
    assert_eq!(json["greedy"]["steps"], json!(["all_reduce", "all_reduce"]));
    assert!(json["greedy"]["cost_us"].as_f64() > json["cost_us"].as_f64(), "{json}");
    assert!(json["greedy"]["received_bytes"].is_u64());
    let elsewhere = run(&["S(0),R", "--to", "S(0)", "--to-mesh", "c=2", "--json"]).json();
    assert!(elsewhere["greedy"].is_null() && elsewhere.as_object().unwrap().contains_key("greedy"));
}

#[test]
fn types_are_planned_forward_and_backward() {
    fn ops(plan: &Value) -> Vec<&str> {
        let steps = plan["steps"].as_array().unwrap().iter();
        steps.map(|step| step["op"].as_str().unwrap()).collect()
    }
    let run = |from: &str, to: &str| {
        let question = ["plan", "--mesh", "x=4", "--shape", "16,8", "--types", "--from", from, "--to", to];
        (reshard(&question), reshard(&[&question[..], &["--json"]].concat()).json())
    };
    for (from, to, forward, backward) in [
        ("I", "S(0)", vec!["slice"], vec!["all_gather"]),
        ("R", "S(0)", vec!["slice"], vec!["zero_fill"]),
        ("S(0)", "[{},{}] reduced={x}", vec!["all_gather"], vec!["reduce_scatter"]),
        ("P('x')", "P()", vec!["all_gather"], vec!["slice"]),
        ("R|S(0)", "R", vec![], vec!["reduce_scatter"]),
    ] {
        let (text, json) = run(from, to);
        assert_eq!((ops(&json), ops(&json["backward"])), (forward, backward.clone()), "{from} -> {to}");
        // The same object, and as people get it.
        let keys = |plan: &Value| {
            let mut keys: Vec<String> = plan.as_object().unwrap().keys().cloned().collect();
            keys.retain(|key| key != "backward" && key != "version");
            keys
        };
        assert_eq!(keys(&json), keys(&json["backward"]));
        let told = text.stdout.split_once("backward, of the gradients:").unwrap().1;
        assert!(backward.iter().all(|op| told.contains(op)), "{told}");
    }
    let (text, json) = run("S(0)|-", "R|-");
    assert!(json["backward"].is_null() && json.as_object().unwrap().contains_key("backward"));
    assert!(text.stdout.contains("no gradient"));
    assert!(
        !reshard(&["plan", "--mesh", "x=4", "--shape", "4", "--from", "R", "--to", "R", "--json"])
            .json()
            .as_object()
            .unwrap()
            .contains_key("backward")
    );
    let refused = r#"{"mesh":"x=4","shape":[16],"from":"P(max)","to":"R","types":true}"#;
    let answer = reshard_with(&["plan", "--batch"], refused);
    assert!(
        answer.stdout.contains("no_gradient") && answer.stdout.contains("reduce them first"),
        "{answer:?}"
    );
}

#[test]
fn a_batch_answers_every_line_in_order() {
    let lines = [
        r#"{"mesh":"dp=2,tp=4","shape":[64,32],"dtype":"f32","from":"S(0),R","to":"R,R","topology":"uniform"}"#,
        r#"{"mesh":"dp=2,tp=4","shape":[64,32],"dtype":"f33","from":"S(0),R","to":"R,R"}"#,
        r#"{"mesh":"dp=2,tp=4","shape":[64,32],"from":"S(0),R","to":"R,R","max_peak":1}"#,
        r#"{"mesh":"dp=2,tp=4","to_mesh":"dp=3","shape":[64,32],"from":"S(0),R","to":"S(0)","objective":null}"#,
    ];
    let outcome = reshard_with(&["plan", "--batch"], &lines.join("\n"));
    assert_eq!(outcome.status, 0);
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), lines.len());
    assert_eq!(answers[0]["steps"][0]["op"], "all_gather");
    assert_eq!(answers[1]["error"]["kind"], "dtype");
    assert_eq!(answers[2]["error"]["kind"], "parse");
    assert_eq!(answers[3]["steps"][0]["op"], "exchange");
}

#[test]
fn bad_requests_are_refused() {
    let run = |more: &[&str]| {
        let mut arguments = vec!["plan", "--json", "--mesh", "dp=2,tp=4", "--shape", "8,8"];
        arguments.extend_from_slice(more);
        reshard(&arguments)
    };
    run(&["--from", "R,R"]).refused("usage", "`to`");
    run(&["--from", "R,Q", "--to", "R,R"]).refused("parse", "R,Q");
    run(&["--from", "R,S(2)", "--to", "R,R"]).refused("no_such_dim", "S(2)");
    run(&["--from", "R,R", "--to", "R,R", "--dtype", "f1"]).refused("dtype", "f1");
    run(&["--from", "P,R", "--to", "R,R", "--dtype", "bool"])
        .refused("arithmetic", "sum is not defined for bool");
    run(&["--from", "P(avg),R", "--to", "R,R", "--dtype", "i32"])
        .refused("arithmetic", "avg is not defined for i32");
    run(&["--from", "R,R", "--to", "R,R", "--topology", "/absent.toml"]).refused("topology", "absent.toml");
    run(&["--from", "R,R", "--to", "R,R", "--topology", "v100"]).refused(
        "topology",
        "unknown network profile `v100`: expected uniform, h100, a100, b200, h100-lines, or",
    );
    run(&["--from", "R,R", "--to", "R,R", "--objective", "luck"]).refused("parse", "luck");
    run(&["--from", "S(0),R", "--to", "R,R", "--max-peak-bytes", "7"]).refused("peak_too_small", "7");
    run(&["--batch", "--from", "R,R"]).refused("usage", "--batch");
}

#[test]
fn a_ragged_shard_of_several_dims_is_of_the_tensor_with_these_as_one() {
    let plan = plan("x=2,y=2", "6,5,4", "S(0),S(1)", "RG((0,1),[11,19]),R");
    assert_eq!(plan["steps"][0]["to"], "RG(0,[11,19]),R");
    assert_eq!(plan["received_bytes"], plan["lower_bound_bytes"]);
    let back = reshard(&[
        "plan",
        "--mesh",
        "x=2",
        "--shape",
        "6,5",
        "--from",
        "RG((0,1),[11,19])",
        "--to",
        "S(0)",
        "--json",
    ])
    .json();
    assert_eq!(back["received_bytes"], json!(4 * 4));
}

#[test]
fn terms_of_a_norm_are_planned_like_those_of_a_sum() {
    let norm = plan("dp=2,tp=4", "64,32", "P(norm2),S(0)", "R,S(0)");
    let sum = plan("dp=2,tp=4", "64,32", "P,S(0)", "R,S(0)");
    assert_eq!(
        (ops(&norm), &norm["cost_us"], &norm["received_bytes"]),
        (ops(&sum), &sum["cost_us"], &sum["received_bytes"])
    );
    assert_eq!(norm["steps"][0]["from"], "P(norm2),S(0)");
    for (flags, message) in [
        (["--from", "P(norm0),R", "--dtype", "f32"], "sum, for counts of non-zero elements"),
        (["--from", "P(norm2),R", "--dtype", "i32"], "norm2 is not defined for i32"),
    ] {
        let more = ["plan", "--mesh", "dp=2,tp=4", "--shape", "64,32", "--to", "R,R"];
        let refused = reshard(&[&more[..], &flags].concat());
        assert_eq!(refused.status, 2);
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
    }
}
