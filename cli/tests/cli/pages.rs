//! The output in pages is that of the command line: blocks that begin with `$ reshard`, on files that begin
//! with their name.
//!
//! `RESHARD_WRITE=1` writes the actual output to the pages.

use std::fs;
use std::path::Path;

use crate::program::reshard;

/// Splits a command line into words, some of them in single quotes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (i, part) in line.split('\'').enumerate() {
        for (j, piece) in
            if i % 2 == 1 { vec![part] } else { part.split(' ').collect() }.into_iter().enumerate()
        {
            if j > 0 {
                words.push(String::new());
            }
            words.last_mut().unwrap().push_str(piece);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn what_pages_show_is_what_is_said() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut shown = 0;
    for (name, runs) in [
        ("../README.md", 1),
        ("../layout/src/theory/functions.md", 1),
        ("pictures.md", 3),
        ("propagation.md", 1),
        ("programs.md", 2),
        ("calibrate.md", 3),
        ("checking.md", 2),
        ("parallelism.md", 7),
        ("parallelize.md", 4),
        ("random.md", 1),
        ("regions.md", 4),
        ("schedules.md", 1),
    ] {
        // A package has no pages.
        let path = root.join("docs").join(name);
        let Ok(page) = fs::read_to_string(&path) else { continue };
        let folder = tempfile::TempDir::new().unwrap();
        let mut blocks: Vec<String> = page.split("```").map(str::to_owned).collect();
        let mut here = 0;
        for block in blocks.iter_mut().skip(1).step_by(2) {
            let Some(body) = block.strip_prefix("text\n") else { continue };
            let (first, _) = body.split_once('\n').unwrap_or((body, ""));
            if let Some(file) = first.strip_prefix("# ") {
                fs::write(folder.path().join(file), body).unwrap();
            }
            let Some(command) = first.strip_prefix("$ reshard ") else { continue };
            let arguments: Vec<String> = (words(command).into_iter())
                .map(|word| {
                    let file = folder.path().join(&word);
                    if file.is_file() { file.to_str().unwrap().to_owned() } else { word }
                })
                .collect();
            let outcome = reshard(&arguments);
            let said = format!("text\n{first}\n{}{}", outcome.stderr, outcome.stdout);
            if std::env::var_os("RESHARD_WRITE").is_some() {
                *block = said;
            } else {
                assert_eq!(*block, said, "{name}: {command}");
            }
            here += 1;
        }
        assert!(here >= runs, "{name} shows {here} runs");
        shown += here;
        if std::env::var_os("RESHARD_WRITE").is_some() {
            fs::write(&path, blocks.join("```")).unwrap();
        }
    }
    println!("{shown} runs");
}
