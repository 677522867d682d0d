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
