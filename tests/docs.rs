//! What the pages say is there is there: the files, and in docs/laws.md the tests.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The pages, where they are: a package has none.
fn page(name: &str) -> Option<String> {
    std::fs::read_to_string(root().join(name)).ok()
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Files of a row may be said without the folder that its section is about.
fn found(section: &str, file: &str) -> Option<PathBuf> {
    let folders: &[&str] =
        if section == "Layouts" { &["", "layout/tests/laws", "layout/src/algebra"] } else { &[""] };
    folders.iter().map(|folder| root().join(folder).join(file)).find(|path| path.exists())
}

#[test]
fn every_law_has_its_files_and_its_tests() {
    let Some(page) = page("docs/laws.md") else { return };
    let (mut section, mut laws, mut wrong) = ("", 0, Vec::new());
    for line in page.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let line = line.replace("\\|", " ");
        let cells: Vec<&str> = line.split('|').collect();
        let [.., implemented, tests, ""] = cells[..] else { continue };
        if tests.trim() == "test" || tests.trim().starts_with("---") {
            continue;
        }
        laws += 1;
        for file in quoted(implemented).into_iter().filter(|name| name.contains(['/', '.'])) {
            if found(section, file).is_none() {
                wrong.push(format!("{}: there is no {file}", cells[1].trim()));
            }
        }
        let mut files: Vec<&str> = Vec::new();
        for part in tests.split(';') {
            let (named, functions) = part.split_once(':').unwrap_or(("", part));
            if !named.is_empty() {
                files = quoted(named);
            }
            let texts: Vec<String> =
                files.iter().filter_map(|file| std::fs::read_to_string(found(section, file)?).ok()).collect();
            if texts.len() != files.len() {
                wrong.push(format!("{}: not all of {files:?} are there", cells[1].trim()));
            }
            for test in quoted(functions) {
                // In Rust, or in Python.
                let names = [format!("fn {test}("), format!("def {test}(")];
                if !texts.iter().any(|text| names.iter().any(|name| text.contains(name))) {
                    wrong.push(format!("{}: {files:?} have no {test}", cells[1].trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(laws > 80, "only {laws} rows were read");
}

/// Paths from the root of the workspace, in backticks.
#[test]
fn every_file_that_a_page_names_is_there() {
    let mut wrong = Vec::new();
    let mut files = 0;
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/c.md",
        "docs/calls.md",
        "docs/checkpoints.md",
        "docs/design.md",
        "docs/engines.md",
        "docs/jax.md",
        "docs/planner.md",
        "docs/programs.md",
        "docs/propagation.md",
        "docs/random.md",
        "docs/regions.md",
        "docs/schedules.md",
    ] {
        let Some(text) = page(name) else { continue };
        for path in quoted(&text) {
            let begins = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
            let folders = [
                "layout",
                "sharding",
                "kernels",
                "collectives",
                "c",
                "checkpoint",
                "cli",
                "program",
                "reference",
                "docs",
                "scripts",
                "examples",
            ];
            let is_path = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if !is_path || !folders.iter().any(|folder| begins(folder)) {
                continue;
            }
            files += 1;
            let there =
                |ending: &str| Path::new(&format!("{}{ending}", root().join(path).display())).exists();
            if !there("") && !there(".rs") && !path.contains("NAME") {
                wrong.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "there is no\n{}", wrong.join("\n"));
    assert!(files > 30 || page("README.md").is_none(), "only {files} paths were read");
}
