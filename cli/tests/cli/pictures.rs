//! `--draw`, `--svg`, `--chrome-trace` and `reshard report`: requested pictures are drawn, and no others.

use std::fs;

use crate::program::{Outcome, reshard, text};

const STEP: &str = "mesh tp=2\nx: f32[8,16] I\nw: f32[16,64] S(1)\nh = mm(x, w)\ny: R = h\n";

/// The commands that draw, of each subcommand, each with a text that is in its drawing.
fn drawn(step: &str) -> Vec<(Vec<String>, &'static str)> {
    let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    vec![
        (words("shards --mesh dp=2,tp=2 --shape 4,4 --placements S(0),P"), "--- dp"),
        (words("view --mesh x=2 --shape 4,4 --to-shape 16 --placements S(0)"), "S(0) of 16 on x=2"),
        (words("mesh pp=2,dp=2,tp=2 --groups tp --topology h100"), "+ pp=1 "),
        (words("plan --mesh x=2 --shape 8 --from S(0) --to R"), "[A] / [B] => [A,B] / [A,B]"),
        (words("plan --mesh x=2,y=2 --shape 8,8 --from P,P --to R,R"), "greedy    |"),
        (words("plan --mesh x=2 --shape 8 --from S(0)|S(0) --to R|P --types"), "<="),
        ([words("check"), vec![step.to_owned()]].concat(), "peak "),
        ([words("trace"), vec![step.to_owned()], words("--rank 1")].concat(), "rank 1 exchanges |"),
    ]
}

#[test]
fn what_is_asked_for_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("step.txt");
    fs::write(&step, STEP).unwrap();
    let file = folder.path().join("picture.svg");
    for (line, seen) in drawn(text(&step)) {
        let answer = reshard(&line);
        let asked = |more: &[&str]| {
            let more = more.iter().map(|word| (*word).to_owned());
            reshard(&line.iter().cloned().chain(more).collect::<Vec<_>>())
        };
        let Outcome { status, stdout, stderr } = asked(&["--draw"]);
        assert_eq!((status, stderr.as_str()), (0, ""), "{line:?}");
        assert!(stdout.contains(seen), "{line:?} has no {seen:?}: {stdout}");
        // With a file the answer is as without, and with JSON there is an answer anyway.
        assert_eq!(asked(&["--svg", text(&file)]), answer, "{line:?}");
        let svg = fs::read_to_string(&file).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{line:?}");
        assert_eq!(asked(&["--draw", "--json"]), asked(&["--json"]), "{line:?}");
        assert_eq!(asked(&["--svg", "/nonexistent/x.svg", "--json"]).status, 1, "{line:?}");
    }
}

/// Pictures of a trace are of all ranks, so none need be named; a page has its own pictures.
#[test]
fn pictures_of_all_ranks_need_no_rank() {
    let folder = tempfile::tempdir().unwrap();
    let (step, file) = (folder.path().join("step.txt"), folder.path().join("trace"));
    fs::write(&step, STEP).unwrap();
    let of_one = reshard(&["trace", text(&step), "--rank", "1", "--draw"]);
    assert_eq!(reshard(&["trace", text(&step), "--draw"]), of_one);
    assert_eq!(reshard(&["trace", text(&step), "--chrome-trace", text(&file)]).stdout, "");
    assert!(fs::read_to_string(&file).unwrap().contains("traceEvents"));
    assert_eq!(reshard(&["trace", text(&step)]).status, 2);
    let page = folder.path().join("page.html");
    let report = |more: &[&str]| {
        reshard(&[&["report", "trace", text(&step), "--html", text(&page)][..], more].concat())
    };
    assert_eq!(report(&[]).status, 0);
    for flag in [&["--draw"][..], &["--svg", text(&file)], &["--chrome-trace", text(&file)]] {
        let refused = report(flag);
        assert!(refused.status == 2 && refused.stderr.contains(flag[0]), "{}", refused.stderr);
    }
}

#[test]
fn a_report_is_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let (step, file) = (folder.path().join("step.txt"), folder.path().join("page.html"));
    fs::write(&step, STEP).unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let ran = reshard(&["run", "--out", text(&checkpoint)]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let lines = [
        vec!["plan", "--mesh", "x=2", "--shape", "8", "--from", "S(0)", "--to", "R"],
        vec!["check", text(&step)],
        vec!["trace", text(&step), "--rank", "0"],
        vec!["inspect", text(&checkpoint)],
    ];
    for line in lines {
        let all = [vec!["report"], line.clone(), vec!["--html", text(&file)]].concat();
        let Outcome { status, stdout, stderr } = reshard(&all);
        assert_eq!((status, stderr.as_str()), (0, ""), "{line:?}");
        assert!(stdout.contains(" pictures in "), "{stdout}");
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg ") && page.ends_with("</html>\n"));
        let json = reshard(&[all, vec!["--json"]].concat()).json();
        assert_eq!(json["bytes"], page.len());
    }
    reshard(&["report", "check", text(&step), "--json"]).refused("usage", "`html`");
    reshard(&["report", "plan", "--batch", "--html", text(&file), "--json"]).refused("usage", "--batch");
}

#[test]
fn a_trace_is_written_for_chrome() {
    let folder = tempfile::tempdir().unwrap();
    let (step, file) = (folder.path().join("step.txt"), folder.path().join("trace.json"));
    fs::write(&step, STEP).unwrap();
    let outcome = reshard(&["trace", text(&step), "--rank", "0", "--chrome-trace", text(&file)]);
    assert_eq!(outcome, reshard(&["trace", text(&step), "--rank", "0"]));
    let trace: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 6);
}
