//! Reads arbitrary programs: no panic, what is printed is read again, and small ones are typed within what a search may look at.

use std::sync::{Arc, LazyLock};

use reshard_ops::rules::OpTable;
use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Program, ShardingSolver};

/// Up to so many ranks and statements programs are typed.
const SMALL: usize = 8;

static TABLE: LazyLock<Arc<OpTable>> = LazyLock::new(|| Arc::new(OpTable::standard()));

/// Looks at a text, and says whether it is a program.
pub(crate) fn run(text: &str) -> bool {
    let graph = match Graph::parse(Arc::clone(&TABLE), text) {
        Ok(graph) => graph,
        Err(error) => {
            assert!(!error.to_string().contains('\n') && !error.code().is_empty());
            return false;
        }
    };
    let again = Graph::parse(Arc::clone(&TABLE), &graph.to_string()).expect("what is printed is read");
    assert_eq!(again, graph);
    if graph.mesh().size() > SMALL || graph.statements() > SMALL {
        return true;
    }
    for moves in [ImplicitRedistribution::Deny, ImplicitRedistribution::Allow] {
        match ShardingSolver::new().implicit_redistribution(moves).solve(&graph) {
            Ok(program) => {
                let text = program.to_string();
                assert_eq!(text.parse::<Program>().expect("what is printed is read").to_string(), text);
                assert!(program.report(&ComputeRates::uniform()).gap_us >= 0.0);
            }
            Err(error) => assert!(!error.to_string().contains('\n') && !error.code().is_empty()),
        }
    }
    true
}
