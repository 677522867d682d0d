//! The encoder on four ranks is candle's on one device, and would be found out if it were not.
//!
//! `scripts/fetch_minilm.sh` fetches the checkpoint and prints its path, and `RESHARD_MINILM` hands it over. Without it the tests that
//! need it print that they are skipped.

use std::path::PathBuf;
use std::sync::LazyLock;

use reshard_candle::alone::Alone;
use reshard_candle::difference;
use reshard_candle::kernels::CandleKernels;
use reshard_candle::model::{program, stored_name};
use reshard_candle::ranks::{encode, is_asked};
use reshard_candle::sentences::of_tokens;
use reshard_candle::weights::Checkpoint;
use reshard_planner::StepOp;
use reshard_program::Program;
use reshard_program::schedule::{CompileOptions, Kernels, LocalBuffer};

/// The tolerance of ranks.
const ALLOWED: f32 = 1e-5;
/// A difference that is larger than rounding.
const WRONG: f32 = 1e-3;

/// The checkpoint, if there is one.
fn checkpoint() -> Option<(PathBuf, Checkpoint)> {
    let path = std::env::var_os("RESHARD_MINILM").map(PathBuf::from).filter(|path| path.is_file());
    if path.is_none() {
        eprintln!("SKIPPED: RESHARD_MINILM is not the path of a file; see scripts/fetch_minilm.sh");
    }
    path.map(|path| (path.clone(), Checkpoint::open(&path).unwrap()))
}

/// Runs candle's own model, once for all tests.
fn wanted() -> &'static [f32] {
    static WANTED: LazyLock<Vec<f32>> = LazyLock::new(|| {
        let (path, _) = checkpoint().unwrap();
        Alone::open(&path).unwrap().forward().unwrap()
    });
    &WANTED
}

/// Returns the largest difference of ranks whose weights `load` writes.
fn off(
    program: &Program,
    load: impl Fn(usize, &LocalBuffer, &mut [u8]) -> reshard::Result<()> + Sync,
) -> f32 {
    let hidden = encode(program, 1, &load).unwrap().hidden;
    difference(&of_tokens(&hidden), &of_tokens(wanted()))
}

#[test]
fn ranks_make_what_candle_makes_on_one_device() {
    let Some((_, weights)) = checkpoint() else { return };
    for (dp, tp) in [(1, 1), (2, 2), (1, 4), (2, 3)] {
        let off = off(&program(dp, tp).unwrap(), |_, local, bytes| {
            weights.read(&stored_name(&local.name), &local.tensor, bytes)
        });
        assert!(off <= ALLOWED, "on dp={dp},tp={tp} a number is off by {off:.1e}");
    }
}

#[test]
fn shards_of_two_ranks_exchanged_are_found_out() {
    let Some((_, weights)) = checkpoint() else { return };
    let program = program(2, 2).unwrap();
    // Both operands of a product exchanged would be the same sum.
    for exchanged in ["attention.output.dense.weight_3", "intermediate.dense.weight_0"] {
        let off = off(&program, |rank, local, bytes| {
            let from = if local.name == exchanged { rank ^ 1 } else { rank };
            let schedule = program.compile(from, &CompileOptions::default())?;
            let theirs = schedule.local(&local.name).unwrap();
            weights.read(&stored_name(&local.name), &theirs.tensor, bytes)
        });
        assert!(off > WRONG, "{exchanged} of another rank is off by only {off:.1e}");
    }
}

#[test]
fn another_weight_is_found_out() {
    let Some((_, weights)) = checkpoint() else { return };
    for (one, other) in [
        ("attention.self.query.weight_5", "attention.self.key.weight_5"),
        ("output.LayerNorm.bias_2", "output.LayerNorm.bias_1"),
    ] {
        let off = off(&program(2, 2).unwrap(), |_, local, bytes| {
            let name = if local.name == one { other } else { &local.name };
            weights.read(&stored_name(name), &local.tensor, bytes)
        });
        assert!(off > WRONG, "{other} instead of {one} is off by only {off:.1e}");
    }
}

#[test]
fn all_that_moves_are_the_all_reduces_of_tensor_parallel_layers() {
    let program = program(2, 2).unwrap();
    for rank in 0..4 {
        let schedule = program.compile(rank, &CompileOptions::default()).unwrap();
        // One for the embedding, two for each layer.
        assert_eq!(schedule.exchanges().len(), 13);
        for step in schedule.exchanges().iter().flat_map(|exchange| &exchange.steps) {
            assert_eq!((step.op, step.over.to_string().as_str()), (StepOp::AllReduce, "tp"));
            assert_eq!(step.members, if rank < 2 { [0, 1] } else { [2, 3] });
        }
    }
}

#[test]
fn a_rank_reads_its_part_of_a_weight() {
    let Some((_, weights)) = checkpoint() else { return };
    let (whole, parts) = (program(1, 1).unwrap(), program(1, 2).unwrap());
    let read = |program: &Program, rank, name: &str| {
        let schedule = program.compile(rank, &CompileOptions::default()).unwrap();
        let local = schedule.local(name).unwrap();
        let mut bytes = vec![0; local.slice.bytes];
        weights.read(&stored_name(name), &local.tensor, &mut bytes).unwrap();
        bytes
    };
    // Rows of 384 numbers: the first half of the rows, and the second half of each row.
    let rows = "attention.self.query.weight_1";
    assert_eq!(read(&parts, 0, rows), read(&whole, 0, rows)[..192 * 384 * 4]);
    let columns = "attention.output.dense.weight_1";
    let halves: Vec<u8> =
        read(&whole, 0, columns).chunks(384 * 4).flat_map(|row| row[192 * 4..].to_vec()).collect();
    assert_eq!(read(&parts, 1, columns), halves);
}

#[test]
fn what_has_no_kernel_is_refused_in_a_sentence() {
    let refused = |lines: &str| {
        let program: Program = format!("mesh x=2\na: f32[4,8] S(0)\n{lines}").parse().unwrap();
        let schedule = program.compile(0, &CompileOptions::default()).unwrap();
        CandleKernels::new(program.table()).prepare(&schedule.calls()[0]).unwrap_err().to_string()
    };
    assert_eq!(
        refused("b = cumsum(a, dim=1)"),
        "cumsum(dim=1): candle has no kernel for this call; add one to Op"
    );
    assert_eq!(
        refused("b = gelu(a, approximate=tanh)"),
        "gelu(approximate=tanh): candle has no kernel for this call; add one to Op"
    );
    assert_eq!(refused("b = ij->ji(a)"), "ij->ji: a rule has no kernel here; use named ops instead");
    assert_eq!(
        refused("c: f64[4,8] S(0)\nd = add(c, c)"),
        "add: these kernels return one f32 tensor, not f64"
    );
}

#[test]
fn weights_that_the_checkpoint_has_not_are_refused_in_a_sentence() {
    let Some((path, weights)) = checkpoint() else { return };
    let program: Program = "mesh x=2\nembeddings.LayerNorm.bias: f32[4,96] S(0)".parse().unwrap();
    let schedule = program.compile(0, &CompileOptions::default()).unwrap();
    let local = &schedule.buffers()[0];
    let mut bytes = vec![0; local.slice.bytes];
    let mut said = |name| weights.read(name, &local.tensor, &mut bytes).unwrap_err().to_string();
    let path = path.display();
    assert_eq!(said("pooler"), format!("{path} has no tensor pooler"));
    assert_eq!(
        said("embeddings.LayerNorm.bias"),
        format!("{path} has embeddings.LayerNorm.bias as F32[384], but the program declares f32[4, 96]")
    );
}

#[test]
fn the_checkpoint_has_all_parameters_and_they_are_the_inputs() {
    let Some((_, weights)) = checkpoint() else { return };
    let program = program(2, 2).unwrap();
    let schedule = program.compile(3, &CompileOptions::default()).unwrap();
    let parameters: Vec<&LocalBuffer> =
        schedule.buffers().iter().filter(|local| local.is_input && !is_asked(&local.name)).collect();
    assert_eq!(parameters.len(), 5 + 6 * 16);
    for local in parameters {
        let mut bytes = vec![0; local.slice.bytes];
        weights.read(&stored_name(&local.name), &local.tensor, &mut bytes).unwrap();
    }
}
