//! `reshard transfer`: the example of its page, its exported files, and its answers.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::pages::words;
use crate::program::reshard;

/// Returns the page; a package has none.
fn page() -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/transfer.md")).ok()
}

/// Writes the files of the page: each block after the name of its file.
fn files(page: &str, folder: &Path) {
    let mut written = 0;
    for (before, block) in
        page.split("```").collect::<Vec<_>>().windows(2).map(|two| (two[0], two[1])).step_by(2)
    {
        let Some((_, body)) = block.split_once('\n').filter(|(form, _)| ["json", "toml"].contains(form))
        else {
            continue;
        };
        let name = before.trim_end().split("\n\n").last().and_then(|text| text.split('`').nth(1)).unwrap();
        fs::write(folder.join(name), body).unwrap();
        written += 1;
    }
    assert_eq!(written, 3);
}

/// Runs a command in a folder: words that are files or follow `--export` are paths there.
fn run_in(folder: &Path, command: &str) -> crate::program::Outcome {
    let paths = ["trainer.json", "server.json", "rules.toml", "plan", "binary"];
    let mut before = String::new();
    let arguments = words(command).into_iter().map(|word| {
        let is_path = paths.contains(&&word[..]) && before != "transfer" && before != "--format";
        before.clone_from(&word);
        if is_path { folder.join(&word).to_str().unwrap().to_owned() } else { word }
    });
    reshard(&arguments.collect::<Vec<_>>())
}

#[test]
fn the_page_shows_the_answers() {
    let Some(page) = page() else { return };
    let folder = tempfile::TempDir::new().unwrap();
    files(&page, folder.path());
    let mut blocks: Vec<String> = page.split("```").map(str::to_owned).collect();
    let mut shown = 0;
    for block in blocks.iter_mut().skip(1).step_by(2) {
        let Some(body) = block.strip_prefix("text\n") else { continue };
        let first = body.lines().next().unwrap().to_owned();
        let Some(command) = first.strip_prefix("$ reshard ") else { continue };
        let outcome = run_in(folder.path(), command);
        let said = format!("text\n{first}\n{}{}", outcome.stderr, outcome.stdout);
        if std::env::var_os("RESHARD_WRITE").is_some() {
            *block = said;
        } else {
            assert_eq!(*block, said);
        }
        shown += 1;
    }
    assert_eq!(shown, 2);
    if std::env::var_os("RESHARD_WRITE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/transfer.md");
        fs::write(path, blocks.join("```")).unwrap();
    }
}

#[test]
fn both_formats_hold_one_plan() {
    let Some(page) = page() else { return };
    let folder = tempfile::TempDir::new().unwrap();
    files(&page, folder.path());
    let plan = "transfer plan --source trainer.json --target server.json --map rules.toml --json";
    let json = run_in(folder.path(), &format!("{plan} --export plan"));
    let binary = run_in(folder.path(), &format!("{plan} --export binary --format binary"));
    assert_eq!((json.status, &json.stdout), (0, &binary.stdout));
    let answer: Value = serde_json::from_str(&json.stdout).unwrap();
    let ranks = answer["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 8);
    for rank in ranks {
        assert_eq!(rank["received"], rank["lacking"]);
    }
    let checks =
        ["plan", "binary"].map(|name| run_in(folder.path(), &format!("transfer check {name} --json")));
    assert_eq!((checks[0].status, &checks[0].stdout), (0, &checks[1].stdout));
    let coverage: Value = serde_json::from_str(&checks[0].stdout).unwrap();
    assert_eq!(coverage["elements"], answer["coverage"]["elements"]);
    for rank in 0..8 {
        let part: Value = serde_json::from_str(
            &fs::read_to_string(folder.path().join(format!("plan/rank_{rank}.json"))).unwrap(),
        )
        .unwrap();
        assert_eq!((&part["rank"], &part["hash"]), (&Value::from(rank), &answer["hash"]));
        assert!(folder.path().join(format!("binary/rank_{rank}.bin")).is_file());
    }
    // A rank whose file is missing is found by its peers.
    fs::remove_file(folder.path().join("plan/rank_5.json")).unwrap();
    let missing = run_in(folder.path(), "transfer check plan");
    assert_eq!(missing.status, 1);
    assert!(missing.stderr.contains("rank 5 has no part"), "{}", missing.stderr);
}
