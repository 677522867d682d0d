//! Files that the pages mention exist, and so do the tests in docs/reference/properties.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages, where they are: a package has none.
fn page(name: &str) -> Option<String> {
    std::fs::read_to_string(root().join(name)).ok()
}

/// Returns the parts of a text between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the names of the pages of a folder, in order.
fn pages(folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root().join(folder)) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    names.sort();
    names
}

/// Rows on layouts name files without their folder.
fn found(page: &str, file: &str) -> Option<PathBuf> {
    let folders: &[&str] =
        if page.ends_with("/layouts.md") { &["", "layout/tests/laws", "layout/src/algebra"] } else { &[""] };
    folders.iter().map(|folder| root().join(folder).join(file)).find(|path| path.exists())
}

#[test]
fn every_law_has_its_files_and_its_tests() {
    let mut lines = Vec::new();
    for name in pages("docs/reference/properties") {
        let Some(text) = page(&name) else { continue };
        lines.extend(text.lines().map(|line| (name.clone(), line.replace("\\|", " "))));
    }
    // A package has no pages.
    if lines.is_empty() {
        return;
    }
    let (mut laws, mut wrong) = (0, Vec::new());
    for (name, line) in &lines {
        let cells: Vec<&str> = line.split('|').collect();
        let [.., implemented, tests, ""] = cells[..] else { continue };
        if tests.trim() == "test" || tests.trim().starts_with("---") {
            continue;
        }
        laws += 1;
        for file in quoted(implemented).into_iter().filter(|file| file.contains(['/', '.'])) {
            if found(name, file).is_none() {
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
                files.iter().filter_map(|file| std::fs::read_to_string(found(name, file)?).ok()).collect();
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
    assert!(laws > 500, "only {laws} rows were read");
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
        "docs/calibrate.md",
        "docs/calls.md",
        "docs/checkpoint_files.md",
        "docs/checkpoints.md",
        "docs/design.md",
        "docs/engines.md",
        "docs/jax.md",
        "docs/mapping.md",
        "docs/planner.md",
        "docs/programs.md",
        "docs/checking.md",
        "docs/parallelism.md",
        "docs/propagation.md",
        "docs/random.md",
        "docs/regions.md",
        "docs/schedules.md",
        "docs/spmd_types.md",
        "docs/transfer.md",
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
                "transfer",
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

/// Absolute links, which work on GitHub and on docs.rs.
#[test]
fn every_link_of_the_readme_into_the_repository_has_its_file() {
    // A package has the README and no pages.
    let (Some(text), Some(_)) = (page("README.md"), page("CONTRIBUTING.md")) else { return };
    let mut links = 0;
    for site in ["github.com/reshard/reshard/blob/", "raw.githubusercontent.com/reshard/reshard/"] {
        for rest in text.split(site).skip(1) {
            let path: String =
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "/._-".contains(*c)).collect();
            let is_there = path.strip_prefix("main/").is_some_and(|file| root().join(file).exists());
            assert!(is_there, "README.md links to {path}, which does not exist");
            links += 1;
        }
    }
    assert!(links > 10, "only {links} links were read");
}
