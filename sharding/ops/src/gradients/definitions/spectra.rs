//! Transforms of real numbers.

use super::{Defined, list};

#[rustfmt::skip]
pub(super) fn spectra() -> Vec<Defined> {
    vec![
        (&["rfft", "ihfft"], |b| {
            let dims = b.argument(|r| r.dims("dims"))?;
            let by = if b.name() == "rfft" { "fft" } else { "ifft" };
            let last = dims.last().copied().unwrap_or(0);
            let half = b.forward().outputs()[0][last];
            Ok(format!(
                "x -> y: z = zeros_like(x); c = complex(x,z); f = {by}(c,dims={}); y = narrow(f,dim={last},start=0,length={half})", list(dims.into_iter()),
            ))
        }),
        (&["irfft", "hfft"], |b| {
            // The other half of the frequencies are conjugates of these in reverse order; the real part of
            // each is used.
            let dims = b.argument(|r| r.dims("dims"))?;
            let by = if b.name() == "irfft" { "ifft" } else { "fft" };
            let Some((&last, first)) = dims.split_last() else { return Err(super::super::refused(b.name())) };
            let (given, n) = (b.forward().inputs()[0][last], b.forward().outputs()[0][last]);
            let used = given.min(n / 2 + 1);
            let start = if first.is_empty() { "a = clone(x)".to_owned() } else { format!("a = {by}(x,dims={})", list(first.iter().copied())) };
            let zeros = "0,".repeat(2 * (b.forward().inputs()[0].len() - 1 - last));
            let own = format!("{start}; u = narrow(a,dim={last},start=0,length={used}); v = pad(u,pads=[{zeros}0,{}])", n / 2 + 1 - used);
            let others = n - (n / 2 + 1);
            let whole = if others == 0 {
                "w = clone(v)".to_owned()
            } else {
                format!("m = narrow(v,dim={last},start=1,length={others}); f = flip(m,dims=[{last}]); c = conj(f); w = cat(v,c,dim={last})")
            };
            Ok(format!("x -> y: {own}; {whole}; t = {by}(w,dims=[{last}]); y = real(t)"))
        }),
        (&["stft"], |b| {
            let (window, hop) = b.argument(|r| Ok((r.size("window")?, r.size("hop")?)))?;
            Ok(format!("x -> y: w = unfold_dim(x,dim=-1,size={window},step={hop}); f = rfft(w,dims=[-1]); y = transpose(f,dim0=-3,dim1=-2)"))
        }),
    ]
}
