//! What docs/checkpoints.md begins with is the example of the library, which runs.

use std::fs;
use std::path::Path;

#[test]
fn the_page_begins_with_the_example_that_runs() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A package has no pages.
    let Ok(page) = fs::read_to_string(crate_root.join("../docs/checkpoints.md")) else { return };
    let shown = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let library = fs::read_to_string(crate_root.join("src/lib.rs")).unwrap();
    let comments = library.lines().map_while(|line| line.strip_prefix("//!"));
    let said: Vec<&str> = comments.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    assert!(said.join("\n").contains(&format!("```\n{shown}```")), "the page shows\n{shown}");
    assert!(shown.lines().count() >= 10);
}
