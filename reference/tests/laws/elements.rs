//! Programs of real numbers in another element type are read as they are printed.

use reshard_kernels::DType;
use reshard_ops::rules::{OpCall, OpTable, OperandDtype};
use reshard_program::{Graph, Program, ShardingSolver};

use crate::numbers::CALLS;

fn types(program: &Program) -> Vec<(String, DType)> {
    program.values().iter().map(|v| (v.name.clone(), v.dtype)).collect()
}

#[test]
fn a_program_in_another_dtype_is_read_as_it_is_printed() {
    let table = OpTable::standard();
    let mut changed = 0;
    for (text, shapes) in CALLS {
        let call: OpCall = text.parse().unwrap();
        let stated = call.name().and_then(|name| table.dtypes(name));
        let mut graph = Graph::new(&"x=2".parse().unwrap());
        let inputs: Vec<_> = (shapes.iter().enumerate())
            .map(|(i, shape)| {
                let dtype = match stated.map_or(OperandDtype::Any, |stated| stated.operand(i)) {
                    OperandDtype::Any | OperandDtype::Float | OperandDtype::Like(_) => DType::F32,
                    OperandDtype::Integer | OperandDtype::Integral => DType::I64,
                    OperandDtype::Bool => DType::Bool,
                };
                graph.input(&format!("i{i}"), dtype, shape, "R").unwrap()
            })
            .collect();
        let made = graph.apply(&call, &inputs, &[]).unwrap_or_else(|e| panic!("{text}: {e}"));
        // Real numbers, whatever the call makes.
        if let [made, ..] = made[..] {
            graph.apply(&"cast(dtype=bf16)".parse().unwrap(), &[made], &["rounded"]).unwrap();
            graph.apply(&"mul_scalar(value=0.5)".parse().unwrap(), &[made], &["half"]).unwrap();
        }
        let program = ShardingSolver::new().solve(&graph).unwrap_or_else(|e| panic!("{text}: {e}"));
        for dtype in [DType::F64, DType::BF16] {
            let other = program.with_dtype(dtype).unwrap();
            let again: Program = other.to_string().parse().unwrap_or_else(|e| panic!("{other}\n{e}"));
            assert_eq!(types(&again), types(&other), "{other}");
            changed += usize::from(types(&other) != types(&program));
        }
    }
    assert!(changed > 300, "{changed}");
}
