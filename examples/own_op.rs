//! A custom op: its rule in one line, checked by running it, and discovered from the op alone.
//!
//! ```sh
//! cargo run --example own_op
//! ```

use reshard::ops::rules::{OpCall, OpTable, Rule};
use reshard_verify::{LocalView, Tensor, Verifier};

/// `silu(gate) * x` on one rank's shards.
fn swiglu(local: &LocalView<'_>) -> Result<Vec<Tensor>, String> {
    let (gate, x) = (local.inputs[0], local.inputs[1]);
    if gate.shape != x.shape {
        return Err("gate and value have different shapes".to_owned());
    }
    let silu = |g: f64| g / (1.0 + (-g).exp());
    let data = gate.data.iter().zip(&x.data).map(|(&g, &v)| silu(g) * v).collect();
    Ok(vec![Tensor::new(&x.shape, data)])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut table = OpTable::standard();
    let call = OpCall::new("swiglu");
    let shapes: [[&[usize]; 2]; 2] = [[&[6, 5], &[6, 5]], [&[4, 2], &[4, 2]]];
    let bind = |table: &OpTable| shapes.iter().map(|s| table.op(&call, s)).collect::<Result<Vec<_>, _>>();
    let verifier = Verifier::new("swiglu", swiglu).tolerance(1e-9);

    // A rule with wrong strategies is rejected, with the data that refute it.
    table.add("swiglu", "...,...->... {multilinear}".parse()?);
    println!("wrong:      {}", verifier.verify(&bind(&table)?).unwrap_err());

    // The right one, in one call.
    table.add("swiglu", "...,...->... {multilinear(1)}".parse()?);
    let ops = bind(&table)?;
    let verdict = verifier.verify(&ops)?;
    println!("right:      {verdict}");
    assert!(verdict.missing.is_empty());

    // Are the shapes and data sharp enough? Every small change of the rule must be caught, or be true.
    let mutants = verifier.mutants(&ops, &verdict)?;
    println!(
        "mutants:    {} caught, {} true, {} missed",
        mutants.caught,
        mutants.equivalent,
        mutants.missed.len()
    );
    assert!(mutants.missed.is_empty());

    // Or begin with the op alone.
    let found = verifier.discover(&[(&[&[6, 5], &[6, 5]], &[&[6, 5]]), (&[&[4, 2], &[4, 2]], &[&[4, 2]])])?;
    println!("discovered: {found}");
    let rule: Rule = found.rule()?;
    assert_eq!(rule.operands(), (2, 1));
    Ok(())
}
