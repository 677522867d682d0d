//! Gradients of losses: that of each element's loss, times the gradient that the reduction passes.

use super::Formula;
use super::builder::{GradientBuilder, Variable, number, numbers, whole};
use super::pointwise::Alike;
use super::through::defined;
use crate::Error;
use crate::rules::OpCall;

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
        (&["cross_entropy", "nll_loss"], |b| defined(b, &|b| Ok(vec![of_classes(b)?]))),
    ];
    list.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) }).collect()
}

/// Clamps a value to `-at ..= at`.
fn bounded(b: &mut GradientBuilder<'_>, value: Variable, at: f64) -> Result<Variable, Error> {
    let call = OpCall::new("clamp").with("min", number(-at)).with("max", number(at));
    b.call(&call, &[value])
}

/// Returns the gradient of each element's loss, of `counted` elements.
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

/// The gradients of a loss of the difference of its inputs.
fn opposite(b: &mut GradientBuilder<'_>, slope: Variable) -> Result<Vec<Option<Variable>>, Error> {
    let back = b.op("neg", &[slope])?;
    by(b, &[slope, back])
}

/// The gradient of minus the log-probabilities, each times a coefficient of its class.
///
/// The coefficient is one for the target class, or less with label smoothing, times the weight of the class
/// if there is one. Ignored elements count for nothing; a mean is over the weights of the others.
fn of_classes(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let shape = b.forward().inputs()[0].clone();
    let (classes, dims) = (shape[1], shape.len());
    let (mut logs, mut smoothing) = (b.x(0), 0.0);
    if b.name() == "cross_entropy" {
        logs = b.op("log_softmax(dim=1)", &[logs])?;
        smoothing = b.real("label_smoothing")?;
    }
    // An ignored element has no class; class 0 is used for it here.
    let ignored =
        b.argument(|r| if r.has("ignore_index")? { r.number("ignore_index").map(Some) } else { Ok(None) })?;
    let counts = ignored.map(|class| told_from(b, class)).transpose()?;
    let index = counts.map_or(Ok(b.x(1)), |counts| b.op("mul", &[b.x(1), counts]))?;
    let one = b.call(&OpCall::new("one_hot").with("classes", whole(classes)), &[index])?;
    let order: Vec<usize> = [0, dims - 1].into_iter().chain(1..dims - 1).collect();
    let mut one = if dims == 2 { one } else { b.permuted(one, &order)? };
    let mut weights = None;
    if b.forward().inputs().len() == 3 {
        let beside = [&[1, classes][..], &vec![1; dims - 2]].concat();
        let each = b.reshaped(b.x(2), &beside)?;
        one = b.op("mul", &[one, each])?;
        weights = Some(each);
    }
    let mut parts = one;
    if smoothing != 0.0 {
        let (kept, share) = (b.scaled(one, 1.0 - smoothing)?, smoothing / classes as f64);
        parts = match weights {
            None => b.with_number("add_scalar", "value", share, kept)?,
            Some(each) => {
                let each = b.scaled(each, share)?;
                b.op("add", &[kept, each])?
            }
        };
    }
    let products = b.op("mul", &[logs, parts])?;
    let sums = b.summed(products, &[1], false)?;
    let mut losses = b.op("neg", &[sums])?;
    if let Some(counts) = counts {
        losses = b.op("mul", &[losses, counts])?;
    }
    match b.argument(|r| r.word("reduction"))?.as_str() {
        "none" => Ok(losses),
        "mean" if counts.is_none() && weights.is_none() => b.op("mean", &[losses]),
        "mean" => {
            let all = b.op("sum", &[losses])?;
            // The weight of each target that counts.
            let mut each = counts;
            if weights.is_some() {
                let of_target = b.summed(one, &[1], false)?;
                each = Some(counts.map_or(Ok(of_target), |counts| b.op("mul", &[of_target, counts]))?);
            }
            let each = each.unwrap_or(losses);
            let count = b.op("sum", &[each])?;
            b.op("div", &[all, count])
        }
        _ => b.op("sum", &[losses]),
    }
}

/// Returns one for each target that is not this class.
fn told_from(b: &mut GradientBuilder<'_>, class: i64) -> Result<Variable, Error> {
    let class = OpCall::new("full").with("shape", numbers(&[])).with("fill_value", number(class as f64));
    let class = b.call(&class, &[])?;
    b.op("ne", &[b.x(1), class])
}
