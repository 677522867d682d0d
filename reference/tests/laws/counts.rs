//! All-to-all by counts inside of regions: each coordinate sends the given number of rows to each other one.
//!
//! Nothing else is sent.

use ndarray::{ArrayD, IxDyn};
use reshard_program::{Graph, Program, ShardingSolver};
use reshard_reference::{on_one_device, on_ranks};
use reshard_test_support::{TestResult, property};

use crate::programs::inputs;

const WIDTH: usize = 2;

/// The program of experts by counts: every coordinate `i` has `own` rows.
///
/// It sends `counts[i][k]` of them to coordinate `k`, whose expert multiplies them and sends them back.
fn experts(counts: &[Vec<usize>], own: usize, room: &str) -> String {
    let n = counts.len();
    let flat = |of: &dyn Fn(usize, usize) -> usize| {
        let all = (0..n * n).map(|i| of(i / n, i % n).to_string());
        all.collect::<Vec<_>>().join(",")
    };
    format!(
        "mesh ep={n}
        x: f64[{rows},{WIDTH}] S(0)
        w: f64[{experts},{WIDTH}] S(0)
        weight: f64[{rows},{WIDTH}] S(0)|-
        local ep
          in x: S(0)
          in w: S(0)
          t = all_to_all(x, counts=[{there}]{room})
          e = mm(t, w)
          b = all_to_all(e, counts=[{back}], room={own})
          out y: S(0) = b
        end
        z = mul(y, weight)
        loss = sum(z)
        gradient loss wrt x, w",
        rows = n * own,
        experts = n * WIDTH,
        there = flat(&|i, k| counts[i][k]),
        back = flat(&|i, k| counts[k][i]),
    )
}

fn program(text: &str) -> Program {
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    ShardingSolver::new().solve(&graph).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// `y`, `dx` and `dw`, row by row.
fn by_hand(
    counts: &[Vec<usize>],
    own: usize,
    x: &ArrayD<f64>,
    w: &ArrayD<f64>,
    weight: &ArrayD<f64>,
) -> [ArrayD<f64>; 3] {
    let (mut y, mut dx, mut dw) = (x.clone() * 0.0, x.clone() * 0.0, w.clone() * 0.0);
    for (i, to) in counts.iter().enumerate() {
        let experts = to.iter().enumerate().flat_map(|(k, &n)| std::iter::repeat_n(k, n));
        for (row, k) in experts.enumerate() {
            let row = i * own + row;
            for a in 0..WIDTH {
                for b in 0..WIDTH {
                    let at = [k * WIDTH + a, b];
                    y[[row, b]] += x[[row, a]] * w[IxDyn(&at)];
                    dx[[row, a]] += weight[[row, b]] * w[IxDyn(&at)];
                    dw[IxDyn(&at)] += x[[row, a]] * weight[[row, b]];
                }
            }
        }
    }
    [y, dx, dw]
}

fn holds(counts: &[Vec<usize>], spare: usize) {
    let n = counts.len();
    let sent = |i: usize| counts[i].iter().sum::<usize>();
    let got = |k: usize| counts.iter().map(|row| row[k]).sum::<usize>();
    let own = (0..n).map(sent).max().unwrap_or(0) + spare;
    // Extra capacity is given explicitly; by default it is that of the largest part.
    let room = (0..n).map(got).max().unwrap_or(0) + spare;
    let text = experts(counts, own, &if spare > 0 { format!(", room={room}") } else { String::new() });
    let program = program(&text);
    let given = inputs::<f64>(&program, 7);
    let expected = by_hand(counts, own, &given["x"], &given["w"], &given["weight"]);
    let (ranks, device) = (on_ranks(&program, &given).unwrap(), on_one_device(&program, &given).unwrap());
    for (name, expected) in ["y", "dx", "dw"].into_iter().zip(&expected) {
        for found in [&ranks.whole(name).unwrap(), &device[name]] {
            let worst = found.iter().zip(expected).fold(0.0f64, |a, (x, y)| a.max((x - y).abs()));
            assert!(found.shape() == expected.shape() && worst < 1e-12, "{name} is off by {worst}\n{text}");
        }
    }
    // To the experts and back, and again for gradients: only the rows of other ranks.
    let foreign = |k: usize| got(k) - counts[k][k];
    let (there, back) = ((0..n).map(foreign).max(), (0..n).map(|i| sent(i) - counts[i][i]).max());
    let row = (WIDTH * 8) as u64;
    let rows = there.unwrap_or(0) as u64 + back.unwrap_or(0) as u64;
    let moved: u64 = program.redistributions().map(|m| m.forward.received_bytes()).sum();
    assert_eq!(moved, 2 * rows * row, "{text}\n{program}");
}

#[test]
fn rows_go_to_experts_by_counts_and_come_back_in_their_places() {
    holds(&[vec![3]], 1);
    holds(&[vec![1, 3], vec![2, 0]], 1);
    holds(&[vec![0, 0], vec![2, 0]], 0);
    holds(&[vec![1, 1], vec![1, 1]], 0);
    holds(&[vec![1, 0, 2], vec![0, 0, 0], vec![3, 1, 0]], 2);
}

#[test]
fn any_counts_move_exactly_their_rows() {
    #[allow(clippy::needless_pass_by_value, reason = "quickcheck makes values")]
    fn law(numbers: Vec<u8>, spare: u8) -> TestResult {
        let n = (2..=4).rev().find(|n| n * n <= numbers.len());
        let Some(n) = n else { return TestResult::discard() };
        let counts: Vec<Vec<usize>> =
            numbers.chunks(n).take(n).map(|row| row.iter().map(|&c| usize::from(c % 4)).collect()).collect();
        if counts.iter().flatten().all(|&c| c == 0) {
            return TestResult::discard();
        }
        holds(&counts, usize::from(spare % 3));
        TestResult::passed()
    }
    property!().tests(30).holds(law as fn(Vec<u8>, u8) -> TestResult);
}

#[test]
fn shards_of_several_sizes_are_slices_with_room() {
    let text = "mesh dp=3
        x: f64[9,2] RG(0,[2,0,7])
        local dp
          in x: RG(0,[2,0,7])
          h = exp(x)
          out y: RG(0,[2,0,7]) = h
        end
        loss = sum(y)
        gradient loss wrt x";
    let program = program(text);
    let given = inputs::<f64>(&program, 3);
    let expected = given["x"].mapv(f64::exp);
    let (ranks, device) = (on_ranks(&program, &given).unwrap(), on_one_device(&program, &given).unwrap());
    for name in ["y", "dx"] {
        for found in [&ranks.whole(name).unwrap(), &device[name]] {
            let worst = found.iter().zip(&expected).fold(0.0f64, |a, (x, y)| a.max((x - y).abs()));
            assert!(worst < 1e-12, "{name} is off by {worst}");
        }
    }
    assert_eq!(
        program.redistributions().map(|m| m.forward.received_bytes()).max().unwrap_or(0),
        0,
        "{program}"
    );
}

#[test]
fn counts_that_do_not_fit_are_refused_in_a_sentence() {
    for (inside, says) in [
        (
            "t = all_to_all(x, counts=[1,2,3])",
            "`counts` must have 2 numbers for each of the 2 coordinates of ep",
        ),
        ("t = all_to_all(x, counts=[1,-2,3,0])", "`counts` must have 2 numbers"),
        ("t = all_to_all(x, counts=[5,0,0,0])", "coordinate 0 of ep sends 5 indices of dim 0, which has 4"),
        (
            "t = all_to_all(x, counts=[2,0,2,0], room=3)",
            "rank 0 receives 4 indices, and its capacity is 3; send it 1 fewer",
        ),
        ("t = all_to_all(x, counts=[1,1,1,1], dim=7)", "cannot shard dim 7"),
        ("t = all_to_all(x, counts=[1,1,1,1], split=0)", "write `counts` and `dim`, or `split` and `concat`"),
        ("t = all_to_all(x, split=0, concat=1, room=3)", "`dim` and `room` need `counts`"),
    ] {
        let text = format!(
            "mesh ep=2\nx: f64[8,2] S(0)\nlocal ep\n  in x: S(0)\n  {inside}\n  out y: S(0) = t\nend"
        );
        let refused = text.parse::<Graph>().map(drop).unwrap_err().to_string();
        assert!(refused.contains(says), "{inside}: {refused}");
    }
}
