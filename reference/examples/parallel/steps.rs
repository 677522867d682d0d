//! Two training steps, twenty times each: the program on one device, and its schedule on a rank.

use std::fmt::Write as _;

use ndarray::{ArrayD, IxDyn};
use reshard_collectives::Communicator;
use reshard_program::schedule::{CompileOptions, Order};
use reshard_program::{Program, ShardingSolver, Statement};
use reshard_reference::{Error as Failed, Training, Values, on_one_device as step_on_one_device};

/// The number of steps.
pub const STEPS: usize = 20;

/// The relative tolerance of a loss.
pub const ALLOWED: f64 = 1e-12;

/// Eight tokens, four experts with a capacity of four tokens each.
///
/// `m` assigns tokens to experts, with a weight. Dense layers see four ranks as `dp=2,tp=2`, experts as two
/// times two: each has half of the experts, and half of each.
const EXPERTS: &str = "
mesh dp=2,tp=2
mesh experts: ep=2,etp=2
x: f64[8,16] S(0)|-,R|-
m: f64[8,4,4] S(0)|-,R|-
t: f64[8,16] S(0)|-,R|-
w: f64[4,16,32] S(0),S(2) on experts
v: f64[4,32,16] S(0),S(1) on experts
b = td,tec->ecd(x, m)
e: S(0),R on experts = b
h = ecd,edf->ecf(e, w)
a = silu(h)
y = ecf,efd->ecd(a, v)
z: R,I = y
out = ecd,tec->td(z, m)
far = sub(out, t)
off = square(far)
loss: R,R = sum(off)
gradient loss wrt w, v
w' = sgd(w, dw)
v' = sgd(v, dv)
";

/// The training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Two stages on separate ranks, a product and a relu each, and four microbatches.
    ///
    /// At most two microbatches are in flight.
    Pipeline,
    /// A layer of experts on a separate mesh.
    Experts,
}

impl Step {
    /// Both.
    pub const ALL: [Step; 2] = [Step::Pipeline, Step::Experts];

    /// The step as a program: the loss is called `loss`.
    pub fn text(self) -> String {
        match self {
            Step::Experts => EXPERTS.to_owned(),
            Step::Pipeline => pipeline(4),
        }
    }

    fn program(self) -> Result<Program, Failed> {
        Ok(ShardingSolver::new().solve(&self.text().parse()?)?)
    }
}

fn pipeline(microbatches: usize) -> String {
    let mut text = "mesh pp=2,tp=2\nmesh first: tp=2\nmesh second: tp=2@2\n\
                    w: f64[16,32] S(1) on first\nv: f64[32,8] S(0) on second\n"
        .to_owned();
    for n in 0..microbatches {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "x{n}: f64[4,16] R|- on first\nt{n}: f64[4,8] R|- on second\nh{n} = mm(x{n}, w)\na{n} = relu(h{n})\n\
             b{n}: S(1) on second = a{n}\ny{n}: I on second = mm(b{n}, v)\nfar{n} = sub(y{n}, t{n})\noff{n} = square(far{n})\n\
             l{n} = sum(off{n})\n"
        );
        if n == 1 {
            text += "s1 = add(l0, l1)\n";
        } else if n > 1 {
            let _ = writeln!(text, "s{n} = add(s{}, l{n})", n - 1);
        }
    }
    let _ = writeln!(text, "loss = clone(s{})", microbatches - 1);
    text + "gradient loss wrt w, v\nw' = sgd(w, dw)\nv' = sgd(v, dv)\n"
}

/// Returns a number in -1 .. 1 for each seed and index.
fn number(seed: u64, at: usize) -> f64 {
    let mut x = (seed << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Returns the inputs; in a later step only the data, which have no gradient.
fn inputs(program: &Program, step: u64) -> Values<f64> {
    let mut out = Values::new();
    let given = program.statements().iter().filter_map(|item| match item {
        Statement::Input(v) => Some(program.get(*v)),
        Statement::Op { .. } | Statement::Redistribute { .. } | Statement::NoGrad => None,
    });
    for (seed, value) in given.enumerate() {
        if step == 0 || value.ty.gradient.is_none() {
            let mut at = 0;
            let of = || {
                at += 1;
                0.2 * number(1000 * step + seed as u64, at)
            };
            out.insert(value.name.clone(), ArrayD::from_shape_simple_fn(IxDyn(value.shape()), of));
        }
    }
    out
}

fn batches(program: &Program) -> Vec<Values<f64>> {
    (1..=STEPS as u64).map(|step| inputs(program, step)).collect()
}

/// The loss of each step on one device.
pub fn on_one_device(step: Step) -> Result<Vec<f64>, Failed> {
    let program = step.program()?;
    let mut values = inputs(&program, 0);
    let mut losses = Vec::new();
    for batch in batches(&program) {
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

/// The loss of each step on one of four ranks; empty on a rank that does not hold it.
pub fn on_a_rank<C: Communicator<Buffer = [u8]>>(step: Step, comm: &mut C) -> Result<Vec<f64>, Failed> {
    let program = step.program()?;
    let (inputs, batches) = (inputs(&program, 0), batches(&program));
    let options = CompileOptions {
        order: Order::OneForwardOneBackward,
        in_flight_bytes: 1 << 16,
        ..CompileOptions::default()
    };
    let training = Training {
        program: &program,
        options: &options,
        inputs: &inputs,
        batches: &batches,
        watched: "loss",
    };
    Ok(training.run(comm)?.into_iter().flatten().collect())
}
