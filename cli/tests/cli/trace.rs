//! `reshard trace`: the same with and without types, on every rank; bytes equal those of `check`; errors.

use serde_json::Value;

use crate::program::{reshard, reshard_with};

/// Weights stored on a separate mesh, a stage of one rank, uneven shards.
const STORED: &str = "\
mesh dp=2,tp=2
mesh storage: fsdp=4
mesh last: x=1@3
x: f32[7,16] S(0),R
w: f32[16,32] S(0) on storage
h: S(0),S(1) = mm(x, w)
v = view(h, shape=[7,8,4])
s: S(0),I = sum(v, dims=[1])
y: R on last = s
loss = sum(y)
gradient loss wrt w
w' = sgd(w, dw)
";

fn traced(rank: usize, flags: &[&str]) -> Value {
    let rank = rank.to_string();
    reshard_with(&[&["trace", "-", "--json", "--rank", &rank], flags].concat(), STORED).json()
}

#[test]
fn a_trace_is_the_same_with_types_and_without() {
    let mut lines = Vec::new();
    for rank in 0..4 {
        let (typed, erased) = (traced(rank, &["--typed"]), traced(rank, &[]));
        assert_eq!(typed, erased, "rank {rank}");
        lines.push(erased["schedule"].as_array().unwrap().len());
        assert_eq!(erased["rank"], rank);
    }
    // Only rank 3 computes the loss.
    assert!(lines[3] > lines[2], "{lines:?}");
    let other = traced(1, &["--axes", "dp=4,tp=1"]);
    assert_ne!(other["schedule"], traced(1, &[])["schedule"]);
}

/// On even shards every rank receives what the worst does.
#[test]
fn exchanges_receive_what_check_says() {
    let text = "\
mesh dp=2,tp=2
x: f32[8,16] S(0),I
w: f32[16,32] I,S(1)
v: f32[32,16] I,S(0)
h = mm(x, w)
a = relu(h)
y: S(0),I = mm(a, v)
loss = sum(y)
gradient loss
";
    let check = reshard_with(&["check", "-", "--json"], text).json();
    let said = &check["received_bytes"];
    let sum = |list: &[&Value]| list.iter().map(|v| v.as_u64().unwrap()).sum::<u64>();
    let said = sum(&[&said["forward"], &said["backward"], &said["update"]]);
    for rank in ["0", "1", "2", "3"] {
        let trace = reshard_with(&["trace", "-", "--rank", rank, "--json"], text).json();
        let lines = trace["schedule"].as_array().unwrap();
        let exchanges: Vec<&Value> = lines.iter().filter(|l| l.get("exchange").is_some()).collect();
        assert!(!exchanges.is_empty() && exchanges.len() < lines.len());
        let received: Vec<&Value> = exchanges.iter().map(|l| &l["received_bytes"]).collect();
        assert_eq!(sum(&received), said, "{trace}");
        let mine: u64 = rank.parse().unwrap();
        let has = |l: &&Value| l["group"].as_array().unwrap().contains(&mine.into());
        assert!(exchanges.iter().all(has), "{trace}");
        let operations = &check["operations"];
        let said: f64 =
            ["forward", "backward", "update"].iter().map(|p| operations[p].as_f64().unwrap()).sum();
        assert!((trace["flops"].as_f64().unwrap() - said).abs() < 0.5, "{trace}");
    }
}

#[test]
fn a_batch_answers_as_flags_do_and_refuses_in_place() {
    let line = serde_json::json!({"program": STORED, "rank": 2}).to_string();
    let typed = serde_json::json!({"program": STORED, "rank": 2, "typed": true}).to_string();
    let none = serde_json::json!({"program": STORED, "rank": 4}).to_string();
    let outcome = reshard_with(&["trace", "--batch"], &format!("{line}\n{typed}\n{none}\n"));
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["schedule"], traced(2, &[])["schedule"]);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[2]["error"]["kind"], "schedule");
}

#[test]
fn ranks_that_are_not_there_and_programs_of_too_many_are_refused() {
    let refused = |text: &str, flags: &[&str], kind: &str, said: &str| {
        reshard_with(&[&["trace", "-", "--json"], flags].concat(), text).refused(kind, said);
    };
    refused(
        STORED,
        &["--rank", "4"],
        "schedule",
        "rank 4 is outside the mesh `dp=2,tp=2`, which has 4 ranks",
    );
    refused(STORED, &[], "usage", "the request lacks `rank`");
    let wide = "mesh x=2097152\na: f32[2097152] S(0)\ny: R = a\n";
    refused(wide, &["--rank", "0"], "too_large", "give smaller axis sizes with `--axes`");
    let deep = "mesh x=2\na: f32[1073741824,1073741824] R\nb = relu(a)\n";
    refused(deep, &["--rank", "0"], "schedule", "take more than 9223372036854775807 bytes");
    reshard(&["trace", "/nowhere", "--rank", "0", "--json"]).refused("io", "/nowhere");
}

/// A rank computes or waits until it has ended, and its exchanges are either waited for or hidden.
///
/// Starting exchanges early changes the bytes in flight and no result.
#[test]
fn times_add_up_and_hoisting_hides() {
    // The second weight comes while the first product is computed.
    let gathered = "mesh x=4\nx: f32[512,512] R|-\nw: f32[512,512] S(0)|-\nv: f32[512,512] S(0)|-\nwr: R|- = w\nh = mm(x, wr)\n\
                    vr: R|- = v\ny = mm(h, vr)\n";
    let mut hidden = 0.0;
    for (rank, text) in (0..4).flat_map(|rank| [(rank, STORED), (rank, gathered)]) {
        let at = rank.to_string();
        let times: Vec<(f64, Value)> = ["0", "16777216"]
            .iter()
            .map(|bytes| {
                let flags = ["trace", "-", "--json", "--rank", &at, "--time", "--in-flight-bytes", bytes];
                let answer = reshard_with(&flags, text).json();
                let time = |name: &str| answer["time_us"][name].as_f64().unwrap();
                let [total, computing, exchanging] = ["total", "computing", "exchanging"].map(time);
                let (hidden, waiting) = (time("hidden"), time("waiting"));
                assert!(
                    computing + waiting <= total + 1e-9 && exchanging - hidden <= waiting + 1e-9,
                    "{answer}"
                );
                (total, answer)
            })
            .collect();
        assert!(times[1].0 <= times[0].0, "{times:?}");
        assert_eq!(times[0].1["time_us"]["hidden"], 0.0);
        assert_eq!(times[0].1["flops"], times[1].1["flops"]);
        hidden += times[1].1["time_us"]["hidden"].as_f64().unwrap();
    }
    assert!(hidden > 0.0);
    for flag in ["--in-flight-bytes", "--bucket-bytes"] {
        let both = ["trace", "-", "--json", "--rank", "0", "--typed", flag, "1"];
        reshard_with(&both, STORED).refused("usage", flag);
    }
    let line = |key: &str| format!("{{\"program\":\"mesh x=2\",\"rank\":0,\"typed\":true,\"{key}\":1}}\n");
    let lines = format!("{}{}", line("in_flight_bytes"), line("bucket_bytes"));
    let answers = reshard_with(&["trace", "--batch"], &lines).stdout;
    assert_eq!(answers.matches("drop `typed`").count(), 2, "{answers}");
}

/// One overlap chunk is sent while another is computed, and the computed values stay the same.
#[test]
fn pieces_travel_while_others_are_computed() {
    let text = "mesh tp=8\nx: bf16[8192,8192] S(0)|-\nw: bf16[8192,28672] S(1)|-\ng: R|- = x\ny: S(1)|- = mm(g, w)\n";
    let of = |flags: &[&str]| {
        let always = [
            "trace",
            "-",
            "--json",
            "--rank",
            "0",
            "--time",
            "--in-flight-bytes",
            "1000000000",
            "--topology",
            "h100-lines",
        ];
        reshard_with(&[&always, flags].concat(), text).json()
    };
    let (whole, pieces) = (of(&[]), of(&["--overlap-chunks", "8"]));
    let us = |answer: &Value, name: &str| answer["time_us"][name].as_f64().unwrap();
    assert!(us(&pieces, "total") < 0.75 * us(&whole, "total"), "{pieces}");
    assert!(
        us(&pieces, "hidden") > 0.9 * us(&pieces, "exchanging") && us(&whole, "hidden") == 0.0,
        "{pieces}"
    );
    for (count, said) in [("0", "between 2 and 1024, not 0"), ("9999", "above the limit of 8192")] {
        let refused = reshard_with(&["trace", "-", "--json", "--rank", "0", "--overlap-chunks", count], text);
        assert!(refused.stderr.contains(said) || refused.stdout.contains(said), "{refused:?}");
    }
}

/// A microbatch goes backward before the next begins, in a smaller arena; the same calls.
#[test]
fn microbatches_go_backward_as_soon_as_they_can() {
    let microbatch = |n: usize| {
        format!("x{n}: f32[64,64] S(0)|-\nh{n} = mm(x{n}, w)\na{n} = relu(h{n})\nl{n} = sum(a{n})\n")
    };
    let text: String = (0..4).map(microbatch).collect();
    let text = format!(
        "mesh x=2\nw: f32[64,64] I\n{text}s1 = add(l0, l1)\ns2 = add(s1, l2)\ns3 = add(s2, l3)\ngradient s3 wrt w\n"
    );
    let of =
        |order: &str| reshard_with(&["trace", "-", "--json", "--rank", "0", "--order", order], &text).json();
    let (written, ordered) = (of("program"), of("1f1b"));
    assert!(ordered["peak_bytes"].as_u64() < written["peak_bytes"].as_u64(), "{ordered}");
    let sorted = |answer: &Value| {
        let mut lines: Vec<String> =
            answer["schedule"].as_array().unwrap().iter().map(Value::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&written), sorted(&ordered));
    reshard_with(&["trace", "-", "--json", "--rank", "0", "--order", "gpipe"], &text)
        .refused("usage", "possible values: program, 1f1b");
    let line = "{\"program\":\"mesh x=2\",\"rank\":0,\"order\":\"gpipe\"}\n";
    assert!(reshard_with(&["trace", "--batch"], line).stdout.contains("expected one of: program, 1f1b"));
}

/// Two gradients over one group are one exchange, of the same bytes.
#[test]
fn a_bucket_is_one_exchange_of_all_its_values() {
    let text = "mesh dp=2\nx: f32[8,4] S(0)|-\nw: f32[4,4] I\nv: f32[4,4] I\nwr: R = w\nvr: R = v\nh = mm(x, wr)\n\
                y = mm(h, vr)\nloss = sum(y)\ngradient loss wrt w, v\n";
    let exchanges = |bytes: &str| -> Vec<Value> {
        let flags = ["trace", "-", "--json", "--rank", "1", "--bucket-bytes", bytes];
        let answer = reshard_with(&flags, text).json();
        answer["schedule"].as_array().unwrap().iter().filter(|l| !l["exchange"].is_null()).cloned().collect()
    };
    let (apart, one) = (exchanges("0"), exchanges("1000"));
    let bytes = |list: &[Value]| list.iter().map(|l| l["received_bytes"].as_u64().unwrap()).sum::<u64>();
    assert_eq!((apart.len(), one.len(), bytes(&apart)), (2, 1, bytes(&one)));
    assert_eq!(one[0]["exchange"], "all_reduce");
    let names: Vec<&str> =
        one[0]["values"].as_array().unwrap().iter().map(|v| v["to"].as_str().unwrap()).collect();
    assert_eq!(names, ["dv", "dw"]);
}
