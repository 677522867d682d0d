//! The text of a training step of a small GPT, for each storage of its parameters on data parallel ranks.

use std::fmt::Write;

/// The storage of a parameter, its gradient and its state on the ranks of `dp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All ranks store everything.
    Everywhere,
    /// All ranks store the parameter, and a part of gradient and state: ZeRO 1 and 2.
    Updated,
    /// Each rank stores a part of everything: ZeRO 3, fully sharded data parallel.
    Sharded,
}

/// The sizes of the model.
#[derive(Clone, Copy, Debug)]
pub struct Gpt {
    /// Sequences of a step.
    pub batch: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Elements of a token.
    pub width: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Layers.
    pub layers: usize,
}

/// A parameter: its name, shape, sharding over `tp`, and the dim that `dp` may shard.
struct Parameter {
    name: String,
    shape: Vec<usize>,
    tensor: &'static str,
    data: usize,
}

impl Gpt {
    /// Returns the text of a step on a mesh of axes `dp` and `tp`.
    ///
    /// Tokens are sharded over `dp`; heads, classes and inner widths over `tp`, and sequences over `tp`
    /// between them (sequence parallel).
    pub fn step(&self, dp: usize, tp: usize, kept: Kept) -> String {
        let Gpt { batch, sequence, layers, .. } = *self;
        let mut text = format!("mesh dp={dp},tp={tp}\n");
        // Writing to a string does not fail.
        let mut line = |l: String| {
            let _ = writeln!(text, "{l}");
        };
        let parameters = self.parameters();
        for name in ["tokens", "targets"] {
            line(format!("{name}: i64[{batch},{sequence}] S(0),R"));
        }
        for p in &parameters {
            line(format!("{}: f64[{}] {}", p.name, p.sizes(), p.kept(kept)));
            line(format!("s.{}: f64[{}] {}", p.name, p.sizes(), p.state(kept)));
        }
        line("e = embedding(wte, tokens)".to_owned());
        line("x0: S(0),S(1) = add(e, wpe)".to_owned());
        for n in 0..layers {
            line(format!("n{n} = layer_norm(x{n}, g{n}, b{n})"));
            for c in ["q", "k", "v"] {
                line(format!("{c}{n} = bsd,dhe->bhse(n{n}, w{c}{n})"));
            }
            line(format!("o{n} = scaled_dot_product_attention(q{n}, k{n}, v{n}, causal=true)"));
            line(format!("a{n}: S(0),S(1) = bhse,hed->bsd(o{n}, wo{n})"));
            line(format!("y{n} = add(x{n}, a{n})"));
            line(format!("m{n} = layer_norm(y{n}, u{n}, c{n})"));
            line(format!("h{n} = bsd,df->bsf(m{n}, up{n})"));
            line(format!("r{n} = gelu(h{n})"));
            line(format!("d{n}: S(0),S(1) = bsf,fd->bsd(r{n}, down{n})"));
            line(format!("x{} = add(y{n}, d{n})", n + 1));
        }
        let rows = batch * sequence;
        line(format!("f = layer_norm(x{layers}, gf, bf)"));
        line("l = bsd,dv->bsv(f, head)".to_owned());
        line(format!("lf = reshape(l, shape=[{rows},{}])", self.vocabulary));
        line(format!("tf = reshape(targets, shape=[{rows}])"));
        line("ce = cross_entropy(lf, tf)".to_owned());
        line("loss: R,R = ce".to_owned());
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        line(format!("gradient ce wrt {}", names.join(", ")));
        for p in &parameters {
            let (name, state) = (&p.name, p.state(kept));
            line(format!("k.{name}: {state} = {name}"));
            line(format!(
                "j.{name}, s.{name}' = sgd_momentum(k.{name}, d{name}, s.{name}, lr=0.1, momentum=0.9)"
            ));
            line(format!("{name}' = clone(j.{name})"));
        }
        text
    }

    fn parameters(&self) -> Vec<Parameter> {
        let Gpt { sequence, width, heads, vocabulary, layers, .. } = *self;
        let each = width / heads;
        let mut all = Vec::new();
        let mut add = |name: String, shape: &[usize], tensor, data| {
            all.push(Parameter { name, shape: shape.to_vec(), tensor, data });
        };
        add("wte".to_owned(), &[vocabulary, width], "S(0)", 1);
        add("wpe".to_owned(), &[sequence, width], "I", 1);
        for n in 0..layers {
            for name in ["g", "b", "u", "c"] {
                add(format!("{name}{n}"), &[width], "I", 0);
            }
            for name in ["wq", "wk", "wv"] {
                add(format!("{name}{n}"), &[width, heads, each], "S(1)", 0);
            }
            add(format!("wo{n}"), &[heads, each, width], "S(0)", 2);
            add(format!("up{n}"), &[width, 4 * width], "S(1)", 0);
            add(format!("down{n}"), &[4 * width, width], "S(0)", 1);
        }
        add("gf".to_owned(), &[width], "I", 0);
        add("bf".to_owned(), &[width], "I", 0);
        add("head".to_owned(), &[width, vocabulary], "S(1)", 0);
        all
    }
}

impl Parameter {
    fn sizes(&self) -> String {
        self.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }

    fn kept(&self, kept: Kept) -> String {
        let Parameter { tensor, data, .. } = self;
        match kept {
            Kept::Everywhere => format!("I,{tensor}"),
            Kept::Updated => format!("R|S({data}),{tensor}"),
            Kept::Sharded => format!("S({data}),{tensor}"),
        }
    }

    fn state(&self, kept: Kept) -> String {
        let Parameter { data, .. } = self;
        let tensor = self.tensor.replace('I', "R");
        match kept {
            Kept::Everywhere => format!("R,{tensor}"),
            Kept::Updated | Kept::Sharded => format!("S({data}),{tensor}"),
        }
    }
}
