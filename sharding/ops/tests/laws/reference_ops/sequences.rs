//! Ops without inputs.

use super::{Example, example};

pub fn all() -> Vec<Example> {
    [
        "linspace(size=6,start=-1,end=1)",
        "logspace(size=6,start=0,end=1)",
        "logspace(size=6,start=-1,end=2.5,base=2)",
        "bartlett_window(size=6)",
        "hann_window(size=6)",
        "hann_window(size=6,periodic=false)",
        "hamming_window(size=6)",
        "hamming_window(size=6,alpha=0.5,beta=0.25)",
        "blackman_window(size=6)",
        "kaiser_window(size=6)",
        "kaiser_window(size=6,beta=2.5)",
        "fftfreq(size=6)",
        "fftfreq(size=6,d=0.5)",
        // Six of ten.
        "rfftfreq(size=10)",
        "rfftfreq(size=10,d=0.5)",
        "tril_indices(rows=3,columns=4)",
        "triu_indices(rows=3,columns=4)",
    ]
    .map(|call| example(call, "-").wants())
    .into()
}
