//! Moments, ranks, counts and differences.

use reshard_verify::{Data, Random};

use super::{Example, defined, example, make, x};

fn odd(shape: &[usize], r: &mut Random) -> Vec<f64> {
    Data::Integers.whole(shape, r).into_iter().map(|v| if v > 6.0 { f64::NAN } else { v }).collect()
}

fn bin(v: f64) -> usize {
    // Six bins from -9 to 9.
    (((v + 9.0) / 3.0) as usize).min(5)
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let two = "6,6; 4,5; 2,3";
    for call in [
        "var_mean",
        "var_mean(dims=[1])",
        "var_mean(correction=0)",
        "std_mean",
        "std_mean(dims=[1])",
        "std_mean(correction=0)",
        "quantile(q=0.3)",
        "quantile(dim=1,q=0.3)",
        "quantile(dim=1,q=0.75)",
        "diff(dim=1)",
        "diff(order=2,dim=1)",
        "cumulative_trapezoid(dim=1)",
        "gradient(dim=1)",
        "trapezoid(dim=1)",
    ] {
        out.push(example(call, two).near());
    }
    out.push(example("aminmax", two).data(&[Data::Real]));
    out.push(example("aminmax(dim=1)", two).data(&[Data::Real]));
    for call in [
        "nansum",
        "nansum(dims=[1])",
        "nanmean",
        "nanmean(dims=[1])",
        "nanmedian",
        "nanmedian(dim=1)",
        "nanquantile(q=0.3)",
        "nanquantile(dim=1,q=0.3)",
    ] {
        out.push(example(call, two).data(&[Data::Made(odd)]).near());
    }
    out.push(example("kthvalue(k=2,dim=1)", "6,6; 4,5").data(&[Data::Distinct]));
    out.push(example("mode", "6,6; 4,5").data(&[Data::Index { below: 3 }]));
    out.push(
        defined("histc(bins=6)", "6,5; 2,3", |l| {
            let (a, held) = (x(l, 0), l.output_regions[0].indices(0).unwrap());
            vec![make(&[held.len()], |i| a.iter().filter(|&&v| bin(v) == held[i[0]]).count() as f64)]
        })
        .wants(),
    );
    out.push(defined("histogram(bins=6)", "6,5; 2,3", |l| {
        let a = x(l, 0);
        let counts = make(&[6], |i| a.iter().filter(|&&v| bin(v) == i[0]).count() as f64);
        vec![counts, make(&[7], |i| 3.0 * i[0] as f64 - 9.0)]
    }));
    out
}
