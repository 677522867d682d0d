//! Gradients of losses: of each element's loss, times what the reduction makes of the gradient.

use super::Formula;
use super::builder::{GradientBuilder, Variable, number, whole};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::Call;

type Many = fn(&mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let list: &[(&[&str], Many)] = &[
        (&["mse_loss"], |b| {
            let less = b.op("sub", &[b.x(0), b.x(1)])?;
            let slope = b.scaled(less, 2.0)?;
            opposite(b, slope)
        }),
        (&["l1_loss"], |b| {
            let less = b.op("sub", &[b.x(0), b.x(1)])?;
            let slope = b.op("sign", &[less])?;
            opposite(b, slope)
        }),
        (&["smooth_l1_loss"], |b| {
            // The slope of a parabola up to beta, and of lines beyond.
            let beta = b.real("beta")?;
            let less = b.op("sub", &[b.x(0), b.x(1)])?;
            let slope = if beta == 0.0 { b.op("sign", &[less])? } else { b.scaled(less, 1.0 / beta)? };
            let slope = bounded(b, slope, 1.0)?;
            opposite(b, slope)
        }),
        (&["huber_loss"], |b| {
            let delta = b.real("delta")?;
            let less = b.op("sub", &[b.x(0), b.x(1)])?;
            let slope = bounded(b, less, delta)?;
            opposite(b, slope)
        }),
        (&["binary_cross_entropy"], |b| {
            // (x - t) / (x (1 - x)), and by t: log(1 - x) - log x.
            let less = b.op("sub", &[b.x(0), b.x(1)])?;
            let square = b.op("square", &[b.x(0)])?;
            let spread = b.op("sub", &[b.x(0), square])?;
            let slope = b.op("div", &[less, spread])?;
            let odds = b.op("logit", &[b.x(0)])?;
            let back = b.op("neg", &[odds])?;
            by(b, &[slope, back])
        }),
        (&["binary_cross_entropy_with_logits"], |b| {
            let chance = b.op("sigmoid", &[b.x(0)])?;
            let slope = b.op("sub", &[chance, b.x(1)])?;
            let back = b.op("neg", &[b.x(0)])?;
            by(b, &[slope, back])
        }),
        (&["kl_div"], |b| {
            // t (log t - x), or exp(t) (t - x).
            let of_logs = b.argument(|r| r.flag("log_target"))?;
            let target = if of_logs { b.op("exp", &[b.x(1)])? } else { b.x(1) };
            let log = if of_logs { b.x(1) } else { b.op("log", &[b.x(1)])? };
            let slope = b.op("neg", &[target])?;
            let less = b.op("sub", &[log, b.x(0)])?;
            let mut back = b.with_number("add_scalar", "value", 1.0, less)?;
            if of_logs {
                back = b.op("mul", &[target, back])?;
            }
            by(b, &[slope, back])
        }),
        (&["cross_entropy"], |b| {
            let smoothing = b.real("label_smoothing")?;
            let chances = b.op("softmax(dim=1)", &[b.x(0)])?;
            let mut target = targets(b)?;
            if smoothing != 0.0 {
                let kept = b.scaled(target, 1.0 - smoothing)?;
                let each = smoothing / b.shape(target)[1] as f64;
                target = b.with_number("add_scalar", "value", each, kept)?;
            }
            let slope = b.op("sub", &[chances, target])?;
            of_classes(b, slope)
        }),
        (&["nll_loss"], |b| {
            let target = targets(b)?;
            let slope = b.op("neg", &[target])?;
            of_classes(b, slope)
        }),
    ];
    list.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) }).collect()
}

/// Cut off at both sides.
fn bounded(b: &mut GradientBuilder<'_>, value: Variable, at: f64) -> Result<Variable, Error> {
    let call = Call::new("clamp").with("min", number(-at)).with("max", number(at));
    b.call(&call, &[value])
}

/// The gradient of each element's loss, of so many of them as are counted.
fn each(b: &mut GradientBuilder<'_>, counted: f64) -> Result<Variable, Error> {
    match b.argument(|r| r.word("reduction"))?.as_str() {
        "mean" => b.scaled(b.dy(0), 1.0 / counted),
        _ => Ok(b.dy(0)),
    }
}

/// The slopes of the elements' losses by each input, times the gradient of the loss.
fn by(b: &mut GradientBuilder<'_>, slopes: &[Variable]) -> Result<Vec<Option<Variable>>, Error> {
    let count = b.shape(b.x(0)).iter().product::<usize>().max(1);
    let dy = each(b, count as f64)?;
    slopes.iter().map(|&slope| b.op("mul", &[slope, dy]).map(Some)).collect()
}

/// Of a loss of the difference of its inputs.
fn opposite(b: &mut GradientBuilder<'_>, slope: Variable) -> Result<Vec<Option<Variable>>, Error> {
    let back = b.op("neg", &[slope])?;
    by(b, &[slope, back])
}

/// One for the class of each target, and nothing for the others: `b c x ..`.
fn targets(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let shape = b.forward().inputs()[0].clone();
    let classes = whole(shape[1]);
    // What is ignored has no class, and is taken for the first here.
    let index = match ignored(b)? {
        None => b.x(1),
        Some(index) => {
            let counts = told_from(b, index)?;
            b.op("mul", &[b.x(1), counts])?
        }
    };
    let one = b.call(&Call::new("one_hot").with("classes", classes), &[index])?;
    let dims = shape.len();
    let order: Vec<usize> = [0, dims - 1].into_iter().chain(1..dims - 1).collect();
    if dims == 2 {
        return Ok(one);
    }
    b.permuted(one, &order)
}

fn ignored(b: &GradientBuilder<'_>) -> Result<Option<i64>, Error> {
    b.argument(|r| if r.has("ignore_index")? { r.number("ignore_index").map(Some) } else { Ok(None) })
}

/// One for each target that is not this class.
fn told_from(b: &mut GradientBuilder<'_>, class: i64) -> Result<Variable, Error> {
    let less = b.with_number("sub_scalar", "value", class as f64, b.x(1))?;
    let far = b.op("abs", &[less])?;
    b.op("sign", &[far])
}

/// A slope for each class, times the gradient of the loss: of what is not ignored.
fn of_classes(b: &mut GradientBuilder<'_>, slope: Variable) -> Result<Vec<Option<Variable>>, Error> {
    let targets = b.forward().inputs()[1].clone();
    let mut kept = targets.clone();
    kept.insert(1.min(targets.len()), 1);
    let dy = match ignored(b)? {
        None => {
            let dy = each(b, targets.iter().product::<usize>().max(1) as f64)?;
            if b.shape(dy) == targets { b.reshaped(dy, &kept)? } else { dy }
        }
        Some(class) => {
            let counts = told_from(b, class)?;
            let mut dy = b.dy(0);
            if b.argument(|r| r.word("reduction"))? == "mean" {
                let all: Vec<usize> = (0..targets.len()).collect();
                let count = b.summed(counts, &all, false)?;
                dy = b.op("div", &[dy, count])?;
            }
            let dy = b.op("mul", &[counts, dy])?;
            b.reshaped(dy, &kept)?
        }
    };
    Ok(vec![Some(b.op("mul", &[slope, dy])?), None])
}
