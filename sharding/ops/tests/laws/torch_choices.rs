//! What PyTorch 2.15 chooses for mm and add on a (2,2) mesh, and what it would cost by our planner: ours is never above.
//!
//! `data/torch_choices.json` holds 517 rows: the op, the size N of its N x N operands, what the operands are, what torch
//! redistributes them to, and what it says of the output. Both choices are costed alike: every operand that is not as
//! chosen is redistributed by the plan of least time on the network `uniform`. An output that holds terms has work left to
//! do, so that both are also costed up to a replicated output.

use std::collections::BTreeMap;

use reshard_kernels::DType;
use reshard_ops::propagate::{Constraint, Operand, Propagator};
use reshard_ops::rules::{Op, Table};
use reshard_sharding::{Mesh, Sharding};
use serde_json::Value;

/// One row, as shardings.
struct Asked {
    name: String,
    side: usize,
    inputs: [Sharding; 2],
    taken: [Sharding; 2],
    output: Sharding,
}

fn rows(mesh: &Mesh) -> Vec<Asked> {
    let text = include_str!("../data/torch_choices.json");
    let data: Value = serde_json::from_str(text).unwrap();
    let rows = data["rows"].as_array().unwrap();
    let row = |row: &Value| {
        let side = row[1].as_u64().unwrap() as usize;
        let sharding = |words: &Value| {
            let spelled = |word: &Value| match word.as_str().unwrap() {
                "S0" => "S(0)",
                "S1" => "S(1)",
                "R" => "R",
                "P" => "P(sum)",
                other => panic!("{other}"),
            };
            let words: Vec<&str> = words.as_array().unwrap().iter().map(spelled).collect();
            Sharding::parse(mesh, &[side, side], &words.join(",")).unwrap()
        };
        Asked {
            name: row[0].as_str().unwrap().to_owned(),
            side,
            inputs: [sharding(&row[2]), sharding(&row[3])],
            taken: [sharding(&row[4][0]), sharding(&row[4][1])],
            output: sharding(&row[5]),
        }
    };
    rows.iter().map(row).collect()
}

fn op(table: &Table, asked: &Asked) -> Op {
    let shape = [asked.side, asked.side];
    table.op(&asked.name.parse().unwrap(), &[&shape, &shape]).unwrap()
}

fn operands(of: &[Sharding; 2]) -> Vec<Operand> {
    of.iter().map(|s| Operand::new(DType::F32, s.clone())).collect()
}

/// What becomes of the rows of one op and size.
#[derive(Debug, Default)]
struct Tally {
    rows: usize,
    below: usize,
    /// Of these, with no more axes of terms in the output than torch has.
    below_alike: usize,
    free_here_alone: usize,
    ours_us: f64,
    theirs_us: f64,
    /// The same up to a replicated output.
    whole_below: usize,
    whole_ours_us: f64,
    whole_theirs_us: f64,
    /// The greatest of theirs over ours.
    whole_worst: f64,
}

#[test]
fn never_dearer_than_torch() {
    let mesh: Mesh = "a=2,b=2".parse().unwrap();
    let table = Table::standard();
    let propagator = Propagator::new();
    let mut tallies: BTreeMap<(String, usize), Tally> = BTreeMap::new();
    let cost = |from: &Sharding, to: &Sharding| {
        if from == to { 0.0 } else { propagator.planner().plan(from, to, DType::F32).unwrap().cost_us() }
    };
    let rows = rows(&mesh);
    assert_eq!(rows.len(), 517);
    for asked in &rows {
        let op = op(&table, asked);
        let ours = propagator.propagate(&op, &mesh, &operands(&asked.inputs), &[]).unwrap();
        let theirs: f64 = asked.inputs.iter().zip(&asked.taken).map(|(from, to)| cost(from, to)).sum();
        let row = format!(
            "{} {}  [{}] [{}]: torch takes [{}] [{}] -> [{}], {theirs:.3} us; ours [{}] [{}] -> [{}], {:.3} us",
            asked.name,
            asked.side,
            asked.inputs[0],
            asked.inputs[1],
            asked.taken[0],
            asked.taken[1],
            asked.output,
            ours.inputs[0],
            ours.inputs[1],
            ours.outputs[0],
            ours.cost_us,
        );
        // Costs are added in another order.
        assert!(ours.cost_us <= theirs + 1e-6, "{row}");
        // Torch's strategy is one of ours, and says the same of the output.
        let same =
            propagator.explicit(&op, &mesh, &operands(&asked.taken)).unwrap_or_else(|e| panic!("{row}: {e}"));
        assert_eq!(same.outputs[0], asked.output, "{row}");
        let replicated = Sharding::parse(&mesh, asked.output.shape(), "R,R").unwrap();
        let whole_theirs = theirs + cost(&asked.output, &replicated);
        let constraint = [Constraint::Exactly(replicated)];
        let whole = propagator.propagate(&op, &mesh, &operands(&asked.inputs), &constraint).unwrap();
        assert!(
            whole.cost_us <= whole_theirs + 1e-6,
            "{row}: {} and {whole_theirs} us when whole",
            whole.cost_us
        );

        let tally = tallies.entry((asked.name.clone(), asked.side)).or_default();
        tally.rows += 1;
        tally.ours_us += ours.cost_us;
        tally.theirs_us += theirs;
        tally.whole_ours_us += whole.cost_us;
        tally.whole_theirs_us += whole_theirs;
        if whole.cost_us < whole_theirs - 1e-6 {
            tally.whole_below += 1;
            tally.whole_worst = tally.whole_worst.max(whole_theirs / whole.cost_us);
        }
        if ours.cost_us < theirs - 1e-6 {
            tally.below += 1;
            tally.below_alike += usize::from(ours.outputs[0].partial().len() <= asked.output.partial().len());
            tally.free_here_alone += usize::from(ours.cost_us == 0.0);
            println!("{row}");
        }
    }
    println!(
        "| op | rows | below | free here alone | us: here, torch | below, whole | us, whole: here, torch | worst |"
    );
    for ((name, side), t) in &tallies {
        println!(
            "| {name} {side} | {} | {} ({}) | {} | {:.0}, {:.0} | {} | {:.0}, {:.0} | {:.2} |",
            t.rows,
            t.below,
            t.below_alike,
            t.free_here_alone,
            t.ours_us,
            t.theirs_us,
            t.whole_below,
            t.whole_ours_us,
            t.whole_theirs_us,
            t.whole_worst,
        );
    }
    // `docs/propagation.md` has these figures.
    let below: Vec<usize> = tallies.values().map(|t| t.below).collect();
    assert_eq!(below, [66, 54, 31, 27]);
}
