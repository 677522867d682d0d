//! Random programs: inputs, ops of every class, a loss, its gradient, and updates.
//!
//! Inputs have random types. The ops take existing values, whose shardings are constrained or redistributed
//! at random.

use std::collections::BTreeMap;

use ndarray::{ArrayD, IxDyn};
use reshard_kernels::DType;
use reshard_ops::rules::OpCall;
use reshard_program::{Graph, ValueId};
use reshard_sharding::{Mesh, ShardingType};
use reshard_test_support::Random;

use super::ops;

/// The numbers of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers {
    /// Between -1 and 1.
    Any,
    /// Between 0 and 1.
    Unit,
    /// Whole numbers below this.
    Below(usize),
    /// The same, each at most once along the last dim.
    Once(usize),
}

/// A random program, before it is typed.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) graph: Graph,
    /// The differentiated value; `wrt` are the values with respect to which it is differentiated.
    pub(crate) loss: String,
    pub(crate) wrt: Vec<String>,
    inputs: Vec<(String, Vec<usize>, Numbers)>,
    /// The name of each input, and of its value after a step.
    pub(crate) next: Vec<(String, String)>,
    /// The class of every op that was called.
    pub(crate) classes: BTreeMap<String, &'static str>,
}

impl Drawn {
    /// Numbers for the inputs.
    pub(crate) fn numbers(&self, r: &mut Random) -> BTreeMap<String, ArrayD<f64>> {
        let mut unit = || (r.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut of = |shape: &[usize], numbers: Numbers| {
            let list: Vec<f64> = (0..shape.iter().product())
                .map(|i: usize| match numbers {
                    Numbers::Any => 2.0 * unit() - 1.0,
                    Numbers::Unit => 0.1 + 0.8 * unit(),
                    Numbers::Below(n) => (unit() * n as f64).floor(),
                    Numbers::Once(n) => {
                        let last = shape.last().copied().unwrap_or(1);
                        ((i % last + i / last) % n) as f64
                    }
                })
                .collect();
            ArrayD::from_shape_vec(IxDyn(shape), list).unwrap()
        };
        self.inputs.iter().map(|(name, shape, numbers)| (name.clone(), of(shape, *numbers))).collect()
    }
}

/// A program that is being drawn.
pub(crate) struct Draw {
    pub(crate) r: Random,
    pub(crate) graph: Graph,
    meshes: Vec<Mesh>,
    dtype: DType,
    /// Values of real numbers that ops may take.
    live: Vec<ValueId>,
    used: Vec<ValueId>,
    inputs: Vec<(String, Vec<usize>, Numbers)>,
    classes: BTreeMap<String, &'static str>,
    class: &'static str,
    calls: usize,
}

/// The most elements of a value that further ops take.
const MOST: usize = 360;

impl Draw {
    /// Draws a program of 5 to 40 ops; with `twice`, it includes a gradient of a gradient.
    pub(crate) fn program(seed: u64, twice: bool) -> Drawn {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66);
        r.next_u64();
        let mesh = mesh(&mut r);
        let dtype = *r.pick(&[DType::F32, DType::F64]);
        let mut graph = Graph::new(&mesh);
        let mut meshes = vec![mesh];
        // A fifth of the programs has other meshes over the same ranks.
        if seed % 5 == 3 {
            for name in ["a", "b"] {
                let other = over_ranks_of(&meshes[0], &mut r);
                graph.add_mesh(name, &other).unwrap();
                meshes.push(other);
            }
        }
        let mut draw = Draw {
            graph,
            meshes,
            r,
            dtype,
            live: Vec::new(),
            used: Vec::new(),
            inputs: Vec::new(),
            classes: BTreeMap::new(),
            class: "",
            calls: 0,
        };
        let calls = 5 + draw.r.below(4) * draw.r.below(12);
        for _ in 0..=draw.r.below(2) {
            let shape = draw.shape(1, 4);
            draw.input(&shape, Numbers::Any);
        }
        for _ in 0..10 * calls {
            if draw.calls >= calls {
                break;
            }
            let &(class, op) = draw.r.pick(ops::CLASSES);
            draw.class = class;
            op(&mut draw);
        }
        draw.finished(twice)
    }

    /// Adds a loss of the unused values, its gradient, and an update of every input with a gradient.
    ///
    /// With `twice`, the gradient of a gradient is included.
    fn finished(mut self, twice: bool) -> Drawn {
        self.class = "loss";
        let leaves: Vec<ValueId> = self.live.iter().copied().filter(|v| !self.used.contains(v)).collect();
        let mut loss = None;
        for v in leaves.into_iter().rev().take(4) {
            let call = *self.r.pick(&["mean", "sum", "mean"]);
            let term = self.call(call, &[v])[0];
            loss = Some(match loss {
                None => term,
                Some(loss) => self.call("add", &[loss, term])[0],
            });
        }
        let mut loss = loss.expect("a value that no statement used");
        let wrt: Vec<ValueId> = self.inputs.iter().filter_map(|i| self.graph.value(&i.0)).collect();
        let mut wrt: Vec<ValueId> = wrt.into_iter().filter(|v| self.trained(*v)).collect();
        if twice && wrt.len() > 1 {
            // The derivative of the loss by the first input is another loss, added to the first.
            let first = wrt.remove(0);
            let by = self.graph.gradient(loss, &[first]).unwrap()[0];
            let square = self.call("square", &[by])[0];
            let mean = self.call("mean", &[square])[0];
            loss = self.call("add", &[loss, mean])[0];
        }
        let gradients = self.graph.gradient(loss, &wrt).unwrap();
        let names = |list: &[ValueId]| list.iter().map(|v| self.graph.name(*v).to_owned()).collect();
        let (named, of): (Vec<String>, String) = (names(&wrt), self.graph.name(loss).to_owned());
        let mut next = Vec::new();
        for (w, dw) in wrt.into_iter().zip(gradients) {
            let (op, states) = *self.r.pick(&[
                ("sgd(lr=0.05)", 0),
                ("sgd_momentum(lr=0.05,momentum=0.9)", 1),
                ("adam(step=2)", 2),
                ("adamw(step=3,weight_decay=0.1)", 2),
            ]);
            let shape = self.graph.shape(w).to_vec();
            let mut taken = vec![w, dw];
            for _ in 0..states {
                taken.push(self.input(&shape, Numbers::Unit));
            }
            let names: Vec<String> =
                taken.iter().filter(|v| **v != dw).map(|v| format!("{}'", self.graph.name(*v))).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let call: OpCall = op.parse().unwrap();
            let made = self.graph.apply(&call, &taken, &names).unwrap();
            for (&before, &after) in taken.iter().filter(|v| **v != dw).zip(&made) {
                // Most keep their sharding.
                if self.r.below(4) > 0 {
                    let is = self.graph.constraint(before).unwrap().clone();
                    self.graph.constrain(after, is).unwrap();
                }
                next.push((self.graph.name(before).to_owned(), self.graph.name(after).to_owned()));
            }
            self.classes.insert(op.split('(').next().unwrap().to_owned(), "optimizer");
        }
        Drawn { graph: self.graph, loss: of, wrt: named, inputs: self.inputs, next, classes: self.classes }
    }

    /// Returns `true` if an input is of real numbers that have a gradient.
    fn trained(&self, v: ValueId) -> bool {
        self.graph.dtype(v) == self.dtype && self.graph.constraint(v).is_some_and(|is| is.gradient.is_some())
    }

    /// Returns a size that splits evenly or not.
    pub(crate) fn size(&mut self) -> usize {
        *self.r.pick(&[2, 3, 4, 4, 5, 6, 8])
    }

    /// Returns a shape of `least` to `most` dims.
    pub(crate) fn shape(&mut self, least: usize, most: usize) -> Vec<usize> {
        let rank = least + self.r.below(most - least + 1);
        loop {
            let shape: Vec<usize> = (0..rank).map(|_| self.size()).collect();
            if shape.iter().product::<usize>() <= MOST / 2 {
                return shape;
            }
        }
    }

    /// A new input in a random type.
    pub(crate) fn input(&mut self, shape: &[usize], numbers: Numbers) -> ValueId {
        let (real, letter) = match numbers {
            Numbers::Any => (true, "w"),
            Numbers::Unit => (true, "u"),
            Numbers::Below(_) | Numbers::Once(_) => (false, "i"),
        };
        let name = format!("{letter}{}", self.inputs.len());
        let is = self.placed(shape, real);
        let dtype = if real { self.dtype } else { DType::I64 };
        let v = self.graph.input_with_type(&name, dtype, is).unwrap();
        self.inputs.push((name, shape.to_vec(), numbers));
        if let Numbers::Any = numbers {
            self.live.push(v);
        }
        v
    }

    /// Returns a value of real numbers whose shape fits, mostly an existing one.
    pub(crate) fn value(&mut self, fits: impl Fn(&[usize]) -> bool) -> Option<ValueId> {
        let fitting: Vec<ValueId> =
            self.live.iter().copied().filter(|&v| fits(self.graph.shape(v))).collect();
        if fitting.is_empty() {
            return None;
        }
        // Later values more often.
        let back = self.r.below(fitting.len()).min(self.r.below(fitting.len()));
        Some(fitting[fitting.len() - 1 - back])
    }

    /// Returns a value of `least` to `most` dims, new if there is none.
    pub(crate) fn of_rank(&mut self, least: usize, most: usize) -> ValueId {
        match self.value(|s| (least..=most).contains(&s.len())) {
            Some(v) if self.r.below(12) > 0 => v,
            _ => {
                let shape = self.shape(least, most);
                self.input(&shape, Numbers::Any)
            }
        }
    }

    /// Returns a value of this shape, new if there is none.
    pub(crate) fn of_shape(&mut self, shape: &[usize]) -> ValueId {
        match self.value(|s| s == shape) {
            Some(v) if self.r.below(3) > 0 => v,
            _ => self.input(shape, Numbers::Any),
        }
    }

    pub(crate) fn shape_of(&self, v: ValueId) -> Vec<usize> {
        self.graph.shape(v).to_vec()
    }

    /// Calls an op; its results may be used by others, constrained and redistributed.
    pub(crate) fn call(&mut self, call: &str, inputs: &[ValueId]) -> Vec<ValueId> {
        let parsed: OpCall = call.parse().unwrap_or_else(|e| panic!("{call}: {e}"));
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|v| self.shape_of(*v)).collect();
        let made =
            self.graph.apply(&parsed, inputs, &[]).unwrap_or_else(|e| panic!("{call} of {shapes:?}: {e}"));
        let name = parsed.name().unwrap_or("->").to_owned();
        self.classes.insert(name, self.class);
        self.used.extend(inputs);
        self.calls += 1;
        made.into_iter()
            .map(|v| {
                let shape = self.shape_of(v);
                if self.graph.dtype(v) != self.dtype {
                    return v;
                }
                let mut last = v;
                match self.r.below(8) {
                    0 => {
                        let is = self.placed(&shape, true);
                        self.graph.constrain(v, is).unwrap();
                    }
                    1 => {
                        let is = self.placed(&shape, true);
                        let name = format!("m{}", self.graph.values());
                        self.used.push(v);
                        last = self.graph.redistribute(v, &name, is).unwrap();
                    }
                    _ => {}
                }
                if shape.iter().product::<usize>() <= MOST {
                    self.live.push(last);
                }
                last
            })
            .collect()
    }

    /// Returns a random type, with a gradient for real numbers.
    ///
    /// A third of the types are on a mesh that is not the first, if there is one.
    fn placed(&mut self, shape: &[usize], real: bool) -> ShardingType {
        let other = self.meshes.len() > 1 && self.r.below(3) == 0;
        let mesh = if other { self.r.pick(&self.meshes[1..]).clone() } else { self.meshes[0].clone() };
        let sizes: Vec<usize> = mesh.axes().iter().map(reshard_sharding::Axis::size).collect();
        for _ in 0..8 {
            let words: Vec<String> = sizes.iter().map(|&n| self.word(shape, n, real)).collect();
            if let Ok(is) = ShardingType::parse(&mesh, shape, &words.join(",")) {
                return is;
            }
        }
        ShardingType::parse(&mesh, shape, &vec!["R"; sizes.len()].join(",")).unwrap()
    }

    /// Returns a random placement along an axis of `n` ranks.
    fn word(&mut self, shape: &[usize], n: usize, real: bool) -> String {
        match self.r.below(if real { 13 } else { 8 }) {
            8 => "I".to_owned(),
            9 | 12 => "P".to_owned(),
            11 => {
                let (value, gradient) = (self.word(shape, n, false), self.word(shape, n, false));
                format!("{value}|{gradient}")
            }
            0 | 1 | 10 => "R".to_owned(),
            _ if shape.is_empty() => "R".to_owned(),
            2 => {
                let d = self.r.below(shape.len());
                let factors: Vec<usize> = (2..shape[d]).filter(|k| shape[d].is_multiple_of(*k)).collect();
                if factors.is_empty() {
                    format!("S({d})")
                } else {
                    format!("SS({d},{})", self.r.pick(&factors))
                }
            }
            3 => {
                let d = self.r.below(shape.len());
                let mut sizes = vec![0; n];
                for _ in 0..shape[d] {
                    sizes[self.r.below(n)] += 1;
                }
                let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                format!("RG({d},[{}])", sizes.join(","))
            }
            _ => format!("S({})", self.r.below(shape.len())),
        }
    }
}

/// Up to three axes of 1 to 4, of at most 12 ranks.
fn mesh(r: &mut Random) -> Mesh {
    loop {
        let sizes: Vec<usize> = (0..=r.below(3)).map(|_| 1 + r.below(4)).collect();
        if (2..=12).contains(&sizes.iter().product::<usize>()) {
            let axes: Vec<String> =
                sizes.iter().zip(["dp", "tp", "cp"]).map(|(n, name)| format!("{name}={n}")).collect();
            return axes.join(",").parse().unwrap();
        }
    }
}

/// A mesh over all or some ranks of another, in another order, along one axis or two.
fn over_ranks_of(mesh: &Mesh, r: &mut Random) -> Mesh {
    let mut ranks: Vec<usize> = mesh.ranks().collect();
    if r.below(3) == 0 {
        let (a, b) = (r.below(ranks.len()), r.below(ranks.len()));
        ranks.swap(a, b);
    }
    let from = if r.below(2) == 0 { 0 } else { r.below(ranks.len()) };
    let ranks = &ranks[from..];
    let ranks = if r.below(2) == 0 { ranks } else { &ranks[..=r.below(ranks.len())] };
    let divisors: Vec<usize> = (1..=ranks.len()).filter(|n| ranks.len().is_multiple_of(*n)).collect();
    let outer = *r.pick(&divisors);
    Mesh::from_ranks([("ep", outer), ("etp", ranks.len() / outer)], ranks).unwrap()
}
