//! Random numbers: the same function of the global index on every rank.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let shapes = "6,5; 2,3";
    for call in [
        "rand_like",
        "randn_like",
        "randint_like(high=9)",
        "randint_like(low=-4,high=9)",
        "uniform",
        "uniform(from=-1,to=1)",
        "exponential",
        "exponential(lambd=2.5)",
        "geometric(p=0.5)",
        "log_normal",
        "log_normal(mean=0,std=0.5)",
        "cauchy",
        "cauchy(median=1,sigma=0.5)",
        "random(to=100)",
        "random(from=-50,to=50)",
    ] {
        out.push(example(call, shapes).idle());
    }
    for call in ["dropout", "dropout(p=0.25)", "alpha_dropout", "alpha_dropout(p=0.25)"] {
        out.push(example(call, shapes).data(&[Data::Real]).near());
    }
    for call in ["native_dropout", "native_dropout(p=0.75)"] {
        out.push(example(call, "6,5; 5,4").data(&[Data::Real]).near());
    }
    let chance =
        Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| (v + 3.5) / 7.0).collect());
    out.push(example("bernoulli", "6,5; 4,3").data(&[chance]));
    let rates = Data::Made(|shape, r| Data::Positive.whole(shape, r).into_iter().map(|v| 6.0 * v).collect());
    out.push(example("poisson", "6,5; 4,3").data(&[rates]));
    let counts =
        Data::Made(|shape, r| (0..shape.iter().product()).map(|_| 4.0 + r.below(9) as f64).collect());
    out.push(example("binomial", "6,5 6,5; 4,3 4,3").data(&[counts, chance]));
    out.push(example("normal", "6,5 6,5; 2,3 2,3").data(&[Data::Real; 2]).near());
    for call in ["rrelu", "rrelu(lower=0.25,upper=0.5)"] {
        out.push(example(call, shapes).data(&[Data::Real]).near());
    }
    for call in [
        "feature_dropout",
        "feature_dropout(p=0.25)",
        "feature_alpha_dropout",
        "feature_alpha_dropout(p=0.25)",
    ] {
        out.push(example(call, "6,5,2; 2,3,3").data(&[Data::Real]).near());
    }
    for call in ["rand(shape=[6,5])", "randn(shape=[5,6])", "randint(shape=[6,5],high=9)", "randperm(size=6)"]
    {
        out.push(example(call, "-").wants());
    }
    out.push(example("multinomial(samples=2)", "6,6; 4,5").data(&[Data::Positive]));
    out
}
