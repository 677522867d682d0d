//! An error is produced within a budget, as an answer is.

use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::{Op, OpTable};
use reshard_planner::SearchBudget;
use reshard_sharding::{Mesh, Sharding};

/// The shape of an operand, and its placements.
type Placed = (&'static [usize], &'static str);

/// Partial values and shards of eight axes without a plan, as each of very many ranks would be examined.
const CASES: &[(&str, &str, &[Placed])] = &[
    (
        "a=2,b=2,c=2,d=2,e=2,f=4,g=5,h=11,i=127",
        "add",
        &[(&[894_080, 1270], "P,R,P,S(1),R,P,R,P,S(1)"), (&[894_080, 1270], "R,R,P,S(0),S(1),S(1),R,R,S(1)")],
    ),
    (
        "a=2,b=2,c=7,d=13,e=7,f=2,g=2,h=16",
        "embedding",
        &[(&[8, 77], "P,P,S(1),P,S(0),S(1),P,S(1)"), (&[64], "R,S(0),R,R,S(0),R,R,R")],
    ),
];

#[test]
fn a_search_that_leads_nowhere_ends() {
    let (table, mut exhausted) = (OpTable::standard(), 0);
    for (mesh, call, operands) in CASES {
        let mesh: Mesh = mesh.parse().unwrap();
        let shapes: Vec<&[usize]> = operands.iter().map(|(shape, _)| *shape).collect();
        let op: Op = table.op(&call.parse().unwrap(), &shapes).unwrap();
        let of =
            |(shape, text): &Placed| Operand::new(DType::F32, Sharding::parse(&mesh, shape, text).unwrap());
        let inputs: Vec<Operand> = operands.iter().map(of).collect();
        for propagator in [Propagator::new(), Propagator::new().with_budget(SearchBudget::new(1000))] {
            let error = propagator.propagate(&op, &mesh, &inputs, &[]).unwrap_err().to_string();
            assert!(error.contains("is limited to") && error.contains("ranks, not"), "{error}");
            // Twenty budgets, plus the paths that are completed at the end, for which each rank is counted.
            let spent = error.split_once(" within ").and_then(|(_, rest)| rest.split_once(" units of work"));
            let spent: u64 = spent.map_or(0, |(work, _)| work.parse().unwrap());
            let most = 20 * propagator.budget().work().max(1 << 20);
            let beyond = (20 * 8 * inputs.len() * mesh.size()) as u64;
            assert!(spent <= most + beyond, "{spent} of {most}: {error}");
            exhausted += usize::from(spent > 0);
        }
    }
    assert!(exhausted >= 2, "{exhausted} searches exhausted their budgets");
}
