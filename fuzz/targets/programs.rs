//! Reads arbitrary programs: no panic, what is printed is read again, and small ones are typed within what a search may look at.

use std::sync::{Arc, LazyLock};

use reshard_ops::rules::Table;
use reshard_program::{Elaborator, Graph, Moves, Program, Rates};

/// Up to so many ranks and statements programs are typed.
const SMALL: usize = 8;

static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| Arc::new(Table::standard()));

/// Looks at a text, and says whether it is a program.
pub(crate) fn run(text: &str) -> bool {
    let graph = match Graph::parse(Arc::clone(&TABLE), text) {
        Ok(graph) => graph,
        Err(error) => {
            assert!(!error.to_string().contains('\n') && !error.kind().is_empty());
            return false;
        }
    };
    let again = Graph::parse(Arc::clone(&TABLE), &graph.to_string()).expect("what is printed is read");
    assert_eq!(again, graph);
    if graph.mesh().size() > SMALL || graph.statements() > SMALL {
        return true;
    }
    for moves in [Moves::Written, Moves::Any] {
        match Elaborator::new().moves(moves).elaborate(&graph) {
            Ok(program) => {
                let text = program.to_string();
                assert_eq!(text.parse::<Program>().expect("what is printed is read").to_string(), text);
                assert!(program.report(&Rates::uniform()).gap_us >= 0.0);
            }
            Err(error) => assert!(!error.to_string().contains('\n') && !error.kind().is_empty()),
        }
    }
    true
}
