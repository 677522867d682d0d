//! Random numbers of a program are the same on every mesh.
//!
//! They differ for every op and every coordinate of a region, and are redrawn where they are rematerialized.

use ndarray::ArrayD;
use reshard_program::{Graph, Program, ShardingSolver};
use reshard_reference::{Values, on_one_device, on_ranks};

use crate::programs::{inputs, same_as_one_device};

fn program(text: &str) -> Program {
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    assert_eq!(graph.to_string().parse::<Graph>().as_ref(), Ok(&graph), "{graph}");
    ShardingSolver::new().solve(&graph).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// A mask of the elements that are not 0.
fn kept(x: &ArrayD<f64>) -> Vec<bool> {
    x.iter().map(|x| *x != 0.0).collect()
}

fn ones(program: &Program) -> Values<f64> {
    let mut given = inputs::<f64>(program, 1);
    for x in given.values_mut() {
        x.fill(1.0);
    }
    given
}

#[test]
fn what_is_drawn_is_the_same_on_every_mesh_and_another_for_every_op() {
    let text = |mesh: &str, is: &str| {
        format!(
            "mesh {mesh}
            x: f64[8,12] {is}
            h = dropout(x, p=0.5)
            g = dropout(x, p=0.5)
            n = randn_like(x)
            y = mul(h, n)
            r: f64[4] {one} = rand(shape=[4])
            s = sum(y)
            gradient s",
            one = if mesh.contains(',') { "R|-,R|-" } else { "R|-" }
        )
    };
    let whole = program(&text("one=1", "R"));
    let given = ones(&whole);
    let expected = on_one_device(&whole, &given).unwrap();
    assert_ne!(kept(&expected["h"]), kept(&expected["g"]), "two ops drop the same");
    for (mesh, is) in
        [("dp=2,tp=2", "S(0),S(1)"), ("cp=3", "S(1)"), ("cp=2", "Z(0)"), ("dp=4,tp=2", "R,S(0)")]
    {
        let program = program(&text(mesh, is));
        let ranks = on_ranks(&program, &given).unwrap();
        for name in ["h", "g", "n", "r"] {
            assert_eq!(ranks.whole(name).unwrap(), expected[name], "{name} on {mesh}");
        }
        let dx = ranks.whole("dx").unwrap();
        assert_eq!(kept(&dx), kept(&expected["h"]), "backward drops what forward dropped");
    }
}

#[test]
fn coordinates_of_a_region_draw_numbers_of_their_own() {
    let text = "mesh dp=2,tp=3
        x: f64[4,12] S(0),S(1)
        w: f64[4,4] R,R
        local tp
          in x: S(1)
          in w: R
          h = dropout(x, p=0.5)
          e = dropout(w, p=0.5)
          g = add(h, e)
          out y: S(1) = g
          out z: S(1) = h
          out e: R = e
        end
        s = sum(y)
        gradient s";
    let program = program(text);
    let given = ones(&program);
    let ranks = same_as_one_device::<f64>(&program, &given, 1e-12);
    let z = ranks.whole("z").unwrap();
    let part = |i: usize| kept(&z.slice_axis(ndarray::Axis(1), (4 * i..4 * i + 4).into()).to_owned());
    assert!(part(0) != part(1) && part(1) != part(2) && part(0) != part(2), "coordinates drop the same");
    assert!(kept(&ranks.whole("e").unwrap()) != part(0), "a replicated mask depends on the op's key alone");
    assert_eq!(kept(&ranks.whole("dx").unwrap()), kept(&z), "backward drops what forward dropped");
    // A rank makes the calls of untyped code, with the key of its coordinate.
    let calls: Vec<String> = [0, 1, 2]
        .map(|rank| {
            program.compile(rank, &reshard_program::schedule::CompileOptions::default()).unwrap().to_string()
        })
        .iter()
        .map(|schedule| {
            schedule
                .lines()
                .find(|line| line.starts_with("cp.h") || line.starts_with("tp.h"))
                .unwrap()
                .to_owned()
        })
        .collect();
    for (rank, call) in calls.iter().enumerate() {
        assert!(call.contains(&format!("key=[0,{rank}]")), "{call}");
    }
}

#[test]
fn a_key_is_drawn_by_once_where_it_is_said() {
    let graph = |lines: &str| format!("mesh x=2\na: f32[4] S(0)\n{lines}").parse::<Graph>();
    let e = graph("b = dropout(a, key=[3])\nc = rrelu(a, key=[3])").unwrap_err().to_string();
    assert_eq!(
        e,
        "line 4: rrelu(key=[3]): `b` already uses key=[3], so both would draw the same random numbers; give each op a different key, or none to have one assigned"
    );
    let made =
        graph("b = dropout(a)\nc = dropout(b, key=[0,1])\nd = dropout(c)\nno_grad\ne = dropout(d, key=[0])")
            .unwrap();
    for line in [
        "b = dropout(a, key=[0])",
        "c = dropout(b, key=[0,1])",
        "d = dropout(c, key=[2])",
        "e = dropout(d, key=[0])",
    ] {
        assert!(made.to_string().contains(line), "{made}");
    }
    let e = graph("b = dropout(a, key=[-1])").unwrap_err().to_string();
    assert!(e.contains("key"), "{e}");
    // Layers have separate keys.
    let layers = graph("repeat 3\nb = dropout(a)\na = relu(b)\nend").unwrap().to_string();
    for key in 0..3 {
        assert!(layers.contains(&format!("key=[{key}]")), "{layers}");
    }
}
