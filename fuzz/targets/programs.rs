//! Reads arbitrary programs: no panic, printed programs parse back, and small ones are typed within the
//! search budget.

use std::sync::{Arc, LazyLock};

use reshard_ops::rules::OpTable;
use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Program, ShardingSolver};

/// Limit on ranks and statements of programs that are typed.
const SMALL: usize = 8;

static TABLE: LazyLock<Arc<OpTable>> = LazyLock::new(|| Arc::new(OpTable::standard()));

/// Checks a text, and returns `true` if it is a program.
pub(crate) fn run(text: &str) -> bool {
    let graph = match Graph::parse(Arc::clone(&TABLE), text) {
        Ok(graph) => graph,
        Err(error) => {
            assert!(!error.to_string().contains('\n') && !error.code().is_empty());
            return false;
        }
    };
    let again = Graph::parse(Arc::clone(&TABLE), &graph.to_string()).expect("its text is valid");
    assert_eq!(again, graph);
    if graph.mesh().size() > SMALL || graph.statements() > SMALL {
        return true;
    }
    for moves in [ImplicitRedistribution::Deny, ImplicitRedistribution::Allow] {
        match ShardingSolver::new().implicit_redistribution(moves).solve(&graph) {
            Ok(program) => {
                let text = program.to_string();
                assert_eq!(text.parse::<Program>().expect("its text is valid").to_string(), text);
                assert!(program.report(&ComputeRates::uniform()).optimality_gap_us >= 0.0);
            }
            Err(error) => assert!(!error.to_string().contains('\n') && !error.code().is_empty()),
        }
    }
    true
}
