//! `reshard random`: the shards of ranks form one tensor; limits, errors, and its batch.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

fn answer(flags: &[&str]) -> Value {
    reshard(&[&["random"], flags, &["--json"]].concat()).json()
}

/// `jax.random.uniform(jax.random.key(0), (2, 3))` of JAX 0.10.2, and what each rank of a mesh has of it.
#[test]
fn ranks_have_their_parts_of_jaxs_tensor() {
    let whole =
        answer(&["--mesh", "x=1", "--shape", "2,3", "--placements", "R", "--rank", "0", "--draw", "uniform"]);
    assert_eq!(whole["key"], "threefry2x32:00000000,00000000");
    assert_eq!(
        (&whole["draw"], &whole["dtype"], &whole["elements"]),
        (&json!("uniform(0,1)"), &json!("f32"), &json!(6))
    );
    let all = whole["values"].as_array().unwrap();
    let numbers: Vec<f32> = all.iter().map(|x| x.as_f64().unwrap() as f32).collect();
    assert_eq!(numbers, [0.947_667, 0.978_579_9, 0.332_291_48, 0.468_668_46, 0.569_888_7, 0.165_503_03]);
    for (placements, parts) in [("S(0)", [[0, 1, 2], [3, 4, 5]]), ("R", [[0, 1, 2], [0, 1, 2]])] {
        for (rank, part) in ["0", "1"].into_iter().zip(parts) {
            let shard = answer(&[
                "--mesh",
                "x=2",
                "--shape",
                "2,3",
                "--placements",
                placements,
                "--rank",
                rank,
                "--seed",
                "0",
                "--draw",
                "uniform(0,1)",
                "--dtype",
                "f32",
                "--limit",
                "3",
            ]);
            let want: Vec<&Value> = part.iter().map(|&i| &all[i]).collect();
            assert_eq!(
                shard["values"].as_array().unwrap().iter().collect::<Vec<_>>(),
                want,
                "{placements} {rank}"
            );
        }
    }
    let column = answer(&[
        "--mesh",
        "x=3",
        "--shape",
        "2,3",
        "--placements",
        "S(1)",
        "--rank",
        "2",
        "--draw",
        "uniform",
    ]);
    assert_eq!((&column["values"], &column["local_shape"]), (&json!([all[2], all[5]]), &json!([2, 1])));
}

#[test]
fn every_kind_of_element_is_printed() {
    let of = |draw: &str, dtype: &str| {
        answer(&[
            "--mesh",
            "x=1",
            "--shape",
            "3",
            "--placements",
            "R",
            "--rank",
            "0",
            "--draw",
            draw,
            "--dtype",
            dtype,
        ])["values"]
            .clone()
    };
    assert!(of("bernoulli(1)", "bool") == json!([true, true, true]));
    assert!(of("bernoulli(1)", "f16") == json!([1.0, 1.0, 1.0]));
    // 64 bits are two words, of which 32 bits are the sum without carries.
    let words = of("bits", "u64");
    assert!(words.as_array().unwrap().iter().all(Value::is_u64));
    let low: Vec<u64> = words
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_u64().unwrap())
        .map(|x| (x >> 32) ^ (x & 0xffff_ffff))
        .collect();
    assert_eq!(of("bits", "u32"), json!(low));
    assert!(of("randint(-3,-2)", "i8") == json!([-3, -3, -3]));
    assert!(of("normal", "bf16").as_array().unwrap().iter().all(Value::is_f64));
    let philox = answer(&[
        "--mesh",
        "x=1",
        "--shape",
        "4",
        "--placements",
        "R",
        "--rank",
        "0",
        "--draw",
        "bits",
        "--dtype",
        "u32",
        "--generator",
        "philox",
    ]);
    // The known answer of Random123 for nothing but zeros.
    assert_eq!(philox["values"], json!([0x6627_e8d5u32, 0xe169_c58du32, 0xbc57_ac4cu32, 0x9b00_dbd8u32]));
    let by_key = answer(&[
        "--mesh",
        "x=1",
        "--shape",
        "4",
        "--placements",
        "R",
        "--rank",
        "0",
        "--draw",
        "bits",
        "--dtype",
        "u32",
        "--key",
        philox["key"].as_str().unwrap(),
    ]);
    assert_eq!(by_key, philox);
}

/// Only the printed elements are computed, however large the tensor.
#[test]
fn so_many_are_printed_and_no_more() {
    let flags = [
        "random",
        "--mesh",
        "x=2",
        "--shape",
        "1099511627776,1024",
        "--placements",
        "S(0)",
        "--rank",
        "1",
        "--draw",
        "normal",
    ];
    let text = reshard(&flags).stdout;
    assert!(
        text.starts_with("rank 1  f32[549755813888, 1024]  normal(0,1)  threefry2x32:00000000,00000000\n"),
        "{text}"
    );
    assert!(text.ends_with(&format!("and {} more\n", 549_755_813_888u64 * 1024 - 64)), "{text}");
    reshard(&[&flags[..], &["--limit", "1048577", "--json"]].concat())
        .refused("too_many_elements", "above the maximum of 1048576");
    let none = reshard(&[&flags[..], &["--limit", "0", "--json"]].concat()).json();
    assert_eq!(none["values"], json!([]));
    let scalar = reshard(&[
        "random",
        "--mesh",
        "x=2",
        "--shape",
        "",
        "--placements",
        "R",
        "--rank",
        "1",
        "--draw",
        "bits",
        "--dtype",
        "u8",
    ]);
    assert_eq!(scalar.stdout.lines().count(), 2, "{scalar:?}");
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let refused = |extra: &[&str], kind: &str, words: &str| {
        let flags = ["random", "--mesh", "x=2", "--shape", "4", "--placements"];
        reshard(&[&flags[..], extra, &["--json"]].concat()).refused(kind, words);
    };
    refused(&["S(0)", "--rank", "1"], "usage", "`draw`");
    refused(&["S(0)", "--draw", "normal"], "usage", "`rank`");
    refused(&["S(0)", "--rank", "2", "--draw", "normal"], "no_such_rank", "2");
    refused(&["P", "--rank", "0", "--draw", "normal"], "partial", "without partial values");
    refused(
        &["R", "--rank", "0", "--draw", "normal", "--dtype", "i32"],
        "dtype",
        "cannot draw normal(0,1) as i32",
    );
    refused(&["R", "--rank", "0", "--draw", "uniform(1,0)"], "draw", "1 is not less than 0");
    refused(&["R", "--rank", "0", "--draw", "gauss"], "parse", "unknown distribution `gauss`");
    refused(&["R", "--rank", "0", "--draw", "bits", "--key", "x"], "parse", "invalid key `x`");
    let both =
        ["R", "--rank", "0", "--draw", "bits", "--key", "threefry2x32:00000000,00000000", "--seed", "1"];
    refused(&both, "usage", "give either `key`");
    refused(
        &["R", "--rank", "0", "--draw", "bits", "--generator", "mt19937"],
        "parse",
        "expected threefry or philox",
    );
}

#[test]
fn a_batch_answers_every_line() {
    let lines = [
        r#"{"mesh":"x=2","shape":[4],"placements":"S(0)","rank":1,"draw":"randint(0,10)","dtype":"i32","seed":3}"#,
        r#"{"mesh":"x=2","shape":[4],"placements":"S(0)","rank":1,"draw":"randint(0,0)","dtype":"i32"}"#,
        r#"{"mesh":"x=2","shape":[4],"placements":"S(0)","ranks":1}"#,
    ];
    let outcome = reshard_with(&["random", "--batch"], &(lines.join("\n") + "\n"));
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0]["local_shape"], json!([2]));
    assert_eq!(answers[1]["error"]["kind"], "draw");
    assert_eq!(answers[2]["error"]["kind"], "parse");
}
