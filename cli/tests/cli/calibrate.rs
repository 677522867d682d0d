//! `reshard calibrate`: the profile of a table, and its errors as JSON.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{reshard, text};

/// Returns the block of a page that is a file, without the line with its name.
fn file(page: &str, name: &str) -> Option<String> {
    let begin = format!("```text\n# {name}\n");
    Some(page.split(&begin).nth(1)?.split("```").next()?.to_owned())
}

/// The page shows the profile that the command on it writes; `RESHARD_WRITE=1` writes it there.
#[test]
fn the_page_has_the_profile_of_its_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/calibrate.md");
    // A package has no pages.
    let Ok(page) = fs::read_to_string(&path) else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let [table, profile] =
        ["table.jsonl", "mine.toml"].map(|name| text(&folder.path().join(name)).to_owned());
    fs::write(&table, file(&page, "table.jsonl").unwrap()).unwrap();
    let outcome = reshard(&["calibrate", "--from", &table, "--write", &profile, "--json"]);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["written"], profile);
    assert_eq!(report["measurements"], 19);
    assert_eq!(report["curves"].as_array().unwrap().len(), 4);
    let written = fs::read_to_string(&profile).unwrap();
    let shown = file(&page, "mine.toml").unwrap();
    if std::env::var_os("RESHARD_WRITE").is_some() {
        let block = |text: &str| format!("# mine.toml\n{text}```");
        fs::write(&path, page.replace(&block(&shown), &block(&written))).unwrap();
    } else {
        assert_eq!(shown, written);
    }
    let outcome = reshard(&["calibrate", "--check", &table, "--topology", &profile, "--json"]);
    let check: Value = serde_json::from_str(&outcome.stdout).unwrap();
    // Every size is a knot, so that only rounding remains.
    assert_eq!(check["all"], serde_json::json!({"count": 19, "median_percent": 0.0, "p90_percent": 0.0}));
}

/// Whatever the times are, the files and the report have the same points, and unstable ones give status 1.
#[test]
fn a_measured_profile_is_that_of_its_table() {
    let folder = tempfile::TempDir::new().unwrap();
    let [table, measured, made] =
        ["table.jsonl", "measured.toml", "made.toml"].map(|name| text(&folder.path().join(name)).to_owned());
    let texts = ["--name", "a test", "--date", "2026-11-28", "--json"];
    let engine =
        ["calibrate", "--engine", "threads", "--world", "2", "--most-bytes", "4KiB", "--seconds", "5"];
    let files = ["--write", &measured, "--table", &table];
    let outcome = reshard(&[&engine[..], &files, &texts].concat());
    assert_eq!(outcome.stderr, "", "{outcome:?}");
    let mut report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let unsettled = report.as_object_mut().unwrap().remove("unsettled").unwrap();
    let unsettled = unsettled.as_array().unwrap();
    assert_eq!(outcome.status, i32::from(!unsettled.is_empty()), "{outcome:?}");
    for of in unsettled {
        assert!(of["nodes"] == 1 && of["ranks"] == 2, "{of}");
        assert!(of["cause"] == "not_measured" || of["range_percent"].as_f64() > Some(3.0), "{of}");
    }
    let names = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"];
    let curves = report["curves"].as_array().unwrap();
    assert_eq!(curves.iter().map(|curve| curve["collective"].as_str().unwrap()).collect::<Vec<_>>(), names);
    assert!(curves.iter().all(|curve| curve["spread"] == serde_json::json!([2])), "{report}");
    let (lines, profile) = (fs::read_to_string(&table).unwrap(), fs::read_to_string(&measured).unwrap());
    assert_eq!(report["measurements"], lines.lines().count());
    assert!(lines.lines().all(|line| line.ends_with(r#""dtype":"f32"}"#)), "{lines}");
    let from = profile.lines().find_map(|line| line.strip_prefix("from = ")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(from.starts_with(&format!("\"reshard {version}, engine threads, ")), "{from}");
    assert!(profile.contains("dtype = \"f32\"\n"), "{profile}");
    // The same again, from the table.
    let files = ["calibrate", "--from", &table, "--write", &made, "--measured-by", from.trim_matches('"')];
    let outcome = reshard(&[&files[..], &texts].concat());
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{outcome:?}");
    let mut again: Value = serde_json::from_str(&outcome.stdout).unwrap();
    again["written"] = report["written"].clone();
    assert_eq!(again, report);
    assert_eq!(fs::read_to_string(&made).unwrap(), profile);
    let plan =
        ["plan", "--mesh", "x=2", "--shape", "8", "--from", "S(0)", "--to", "R", "--topology", &measured];
    assert_eq!(reshard(&plan).status, 0);
}
