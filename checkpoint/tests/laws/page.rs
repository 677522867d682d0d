//! Checks that the examples of docs/checkpoints.md are the tested ones of the library.

use std::fs;
use std::path::Path;

#[test]
fn the_page_has_the_examples_that_run() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A published package has no docs folder.
    let Ok(page) = fs::read_to_string(crate_root.join("../docs/checkpoints.md")) else { return };
    let examples = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let examples: Vec<&str> = examples.collect();
    assert!(examples.len() == 4 && examples[0].lines().count() >= 10);
    for (shown, file) in examples.into_iter().zip([
        "src/lib.rs",
        "src/select/derived.rs",
        "src/write/writer.rs",
        "src/reading/loading.rs",
    ]) {
        let library = fs::read_to_string(crate_root.join(file)).unwrap();
        let comment = |line: &'static str| {
            let line = line.trim_start();
            line.strip_prefix("//!")
                .or(line.strip_prefix("///"))
                .map(|line| line.strip_prefix(' ').unwrap_or(line))
        };
        let lines: Vec<&str> = library.leak().lines().filter_map(comment).collect();
        assert!(lines.join("\n").contains(&format!("```\n{shown}```")), "the page shows\n{shown}");
    }
}
