//! Twenty training steps of the GPT: on one device by the program's semantics, on a rank by its schedule.

use ndarray::{ArrayD, IxDyn};
use reshard_collectives::Communicator;
use reshard_program::schedule::CompileOptions;
use reshard_program::{Program, ShardingSolver, Statement};
use reshard_reference::{Error as Failed, Training, Values, on_one_device as step_on_one_device};

use super::model::{Gpt, Kept};

/// The number of steps.
pub const STEPS: usize = 20;

/// The relative tolerance of a loss.
pub const ALLOWED: f64 = 1e-12;

/// Returns a number in -1 .. 1 for each seed and index.
fn number(seed: u64, at: usize) -> f64 {
    let mut x = (seed << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn array(shape: &[usize], of: impl Fn(usize) -> f64) -> ArrayD<f64> {
    let mut at = 0;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        at += 1;
        of(at - 1)
    })
}

/// The inputs before the first step: small numbers, gains of about one, and no momentum.
fn inputs(program: &Program) -> Values<f64> {
    let mut out = Values::new();
    let given = program.statements().iter().filter_map(|item| match item {
        Statement::Input(v) => Some(program.get(*v)),
        Statement::Op { .. } | Statement::Redistribute { .. } | Statement::NoGrad => None,
    });
    for (seed, value) in given.enumerate() {
        let of = |at: usize| match value.name.as_str() {
            name if name.starts_with("s.") => 0.0,
            name if value.shape().len() == 1 && (name.starts_with('g') || name.starts_with('u')) => {
                1.0 + 0.1 * number(seed as u64, at)
            }
            _ => 0.2 * number(seed as u64, at),
        };
        out.insert(value.name.clone(), array(value.shape(), of));
    }
    out
}

/// The tokens of each step: sequences of consecutive numbers; the target of each token is the next one.
fn batches(gpt: &Gpt) -> Vec<Values<f64>> {
    let shape = [gpt.batch, gpt.sequence];
    let token = |step: usize, at: usize, ahead: usize| {
        let start = step * 7 + at / gpt.sequence * 5;
        ((start + at % gpt.sequence + ahead) % gpt.vocabulary) as f64
    };
    let of = |step: usize| {
        let tokens = |ahead: usize| array(&shape, move |at| token(step, at, ahead));
        [("tokens".to_owned(), tokens(0)), ("targets".to_owned(), tokens(1))].into()
    };
    (0..STEPS).map(of).collect()
}

fn program(gpt: &Gpt, dp: usize, tp: usize, kept: Kept) -> Result<Program, Failed> {
    let program = ShardingSolver::new().solve(&gpt.step(dp, tp, kept).parse()?)?;
    Ok(program.in_one_dtype(reshard_kernels::DType::F64)?)
}

/// The loss of each step on one device.
pub fn on_one_device(gpt: &Gpt) -> Result<Vec<f64>, Failed> {
    let program = program(gpt, 1, 1, Kept::Everywhere)?;
    let mut values = inputs(&program);
    let mut losses = Vec::new();
    for batch in batches(gpt) {
        values.extend(batch);
        let made = step_on_one_device(&program, &values)?;
        losses.extend(made["loss"].iter());
        for (name, next) in &made {
            if let Some(name) = name.strip_suffix('\'') {
                values.insert(name.to_owned(), next.clone());
            }
        }
    }
    Ok(losses)
}

/// The loss of each step on one of four ranks.
pub fn on_a_rank<C: Communicator<Buffer = [u8]>>(
    gpt: &Gpt,
    kept: Kept,
    comm: &mut C,
) -> Result<Vec<f64>, Failed> {
    let program = program(gpt, 2, 2, kept)?;
    let (inputs, batches) = (inputs(&program), batches(gpt));
    // Weights are gathered before they are needed, and gradients of one group are reduced in one bucket.
    let options =
        CompileOptions { in_flight_bytes: 1 << 16, bucket_bytes: 1 << 14, ..CompileOptions::default() };
    let training = Training {
        program: &program,
        options: &options,
        inputs: &inputs,
        batches: &batches,
        watched: "loss",
    };
    Ok(training.run(comm)?.into_iter().flatten().collect())
}
