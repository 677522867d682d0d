//! The choices of PyTorch 2.15, priced by our planner: ours never cost more.
//!
//! * `data/torch_choices.json` holds 517 rows for mm and add on a (2,2) mesh: the op, the size N of its N x N
//!   operands, their placements, those to which torch redistributes them, and its placement of the output.
//! * `data/torch_bias_choices.jsonl` and `data/torch_op_choices.jsonl` hold the same for 1,010 calls of 60
//!   ops, on one axis of 4 or on dp=2,tp=4.
//!
//! Both choices are priced in the same manner: every operand that is not as chosen is redistributed by the
//! plan of least time on the network `uniform`. A partial output has work left to do, so that both are also
//! priced up to a replicated output.

use std::collections::BTreeMap;

use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, OutputConstraint, Propagator};
use reshard_ops::rules::{Op, OpTable};
use reshard_sharding::{Mesh, Sharding};
use serde_json::Value;

/// One row, as shardings.
struct Asked {
    /// The group in the table of figures.
    group: String,
    op: Op,
    inputs: Vec<Operand>,
    taken: Vec<Sharding>,
    output: Sharding,
}

/// The rows of mm and add.
fn squares(table: &OpTable) -> Vec<Asked> {
    let mesh: Mesh = "a=2,b=2".parse().unwrap();
    let data: Value = serde_json::from_str(include_str!("../data/torch_choices.json")).unwrap();
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
            Sharding::parse(&mesh, &[side, side], &words.join(",")).unwrap()
        };
        let name = row[0].as_str().unwrap();
        Asked {
            group: format!("{name} {side}"),
            op: table.op(&name.parse().unwrap(), &[&[side, side], &[side, side]]).unwrap(),
            inputs: [&row[2], &row[3]].map(|x| Operand::new(DType::F32, sharding(x))).to_vec(),
            taken: vec![sharding(&row[4][0]), sharding(&row[4][1])],
            output: sharding(&row[5]),
        }
    };
    data["rows"].as_array().unwrap().iter().map(row).collect()
}

/// The rows of all other ops.
fn calls(table: &OpTable) -> Vec<Asked> {
    let files =
        [include_str!("../data/torch_bias_choices.jsonl"), include_str!("../data/torch_op_choices.jsonl")];
    let rows = files.into_iter().flat_map(|text| text.lines().skip(1));
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        let list = |key: &str| row[key].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
        let mesh: Mesh = row["mesh"].as_str().unwrap_or("x=4").parse().unwrap();
        let number = |n: &Value| n.as_u64().unwrap() as usize;
        let shapes: Vec<Vec<usize>> =
            list("shapes").iter().map(|s| s.as_array().unwrap().iter().map(number).collect()).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let call = text(&row["op"]);
        let op = table.op(&call.parse().unwrap(), &shapes).unwrap();
        let sharding = |shape: &[usize], v: &Value| {
            Sharding::parse(&mesh, shape, &text(v).replace("NormP", "P(norm2)")).unwrap()
        };
        let shardings = |key: &str| -> Vec<Sharding> {
            shapes.iter().zip(list(key)).map(|(shape, v)| sharding(shape, &v)).collect()
        };
        let dtypes = list("dtypes").into_iter().map(|d| text(&d).parse().unwrap());
        let dtypes = dtypes.chain(std::iter::repeat(DType::F32));
        Asked {
            group: op.name().split('(').next().unwrap().to_owned(),
            inputs: dtypes.zip(shardings("ins")).map(|(d, s)| Operand::new(d, s)).collect(),
            taken: shardings("to"),
            output: sharding(&op.outputs()[0], &row["out"]),
            op,
        }
    };
    rows.map(row).collect()
}

/// The counts of one group of rows.
#[derive(Debug, Default)]
struct Tally {
    rows: usize,
    below: usize,
    /// The number of these with no more partial axes in the output than torch has.
    below_alike: usize,
    free_here_alone: usize,
    ours_us: f64,
    theirs_us: f64,
    /// The counts up to a replicated output.
    whole_below: usize,
    whole_ours_us: f64,
    whole_theirs_us: f64,
    /// The greatest ratio of their cost to ours.
    whole_worst: f64,
    /// The rows where we do not have torch's strategy, or have it with another output.
    unlike: usize,
}

/// The figures of rows; fails where torch's choice is cheaper.
fn tallied(rows: &[Asked]) -> BTreeMap<String, Tally> {
    let propagator = Propagator::new();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut dearer = Vec::new();
    for asked in rows {
        let cost = |from: &Sharding, to: &Sharding, dtype| {
            if from == to { 0.0 } else { propagator.planner().plan(from, to, dtype).unwrap().cost_us() }
        };
        let mesh = asked.output.mesh();
        let (op, inputs) = (&asked.op, &asked.inputs);
        let ours = propagator.propagate(op, mesh, inputs, &[]).unwrap();
        let theirs: f64 =
            inputs.iter().zip(&asked.taken).map(|(from, to)| cost(&from.sharding, to, from.dtype)).sum();
        let texts = |list: &[Sharding]| list.iter().map(|s| format!("[{s}]")).collect::<Vec<_>>().join(" ");
        let have: Vec<Sharding> = inputs.iter().map(|i| i.sharding.clone()).collect();
        let row = format!(
            "{} {:?} {}: torch takes {} -> [{}], {theirs:.3} us; ours {} -> [{}], {:.3} us",
            op.name(),
            op.inputs(),
            texts(&have),
            texts(&asked.taken),
            asked.output,
            texts(&ours.inputs),
            ours.outputs[0],
            ours.cost_us,
        );
        // Costs are added in another order.
        if ours.cost_us > theirs + 1e-6 {
            dearer.push(row.clone());
        }
        let replicated = Sharding::replicated(mesh, asked.output.shape()).unwrap();
        let whole_theirs = theirs + cost(&asked.output, &replicated, inputs[0].dtype);
        let constraint = [OutputConstraint::Exactly(replicated)];
        let whole = propagator.propagate(op, mesh, inputs, &constraint).unwrap();
        if whole.cost_us > whole_theirs + 1e-6 {
            dearer.push(format!("{row}: {} and {whole_theirs} us when whole", whole.cost_us));
        }

        let tally = tallies.entry(asked.group.clone()).or_default();
        let taken: Vec<Operand> =
            inputs.iter().zip(&asked.taken).map(|(i, t)| Operand::new(i.dtype, t.clone())).collect();
        let same = propagator.explicit(op, mesh, &taken);
        if same.as_ref().map(|c| &c.outputs[0]).ok() != Some(&asked.output) {
            tally.unlike += 1;
            println!("different: {row}");
        }
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
        "| op | rows | below | free here alone | us: here, torch | below, whole | us, whole: here, torch | worst | unlike |"
    );
    for (group, t) in &tallies {
        println!(
            "| {group} | {} | {} ({}) | {} | {:.0}, {:.0} | {} | {:.0}, {:.0} | {:.2} | {} |",
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
            t.unlike,
        );
    }
    assert!(dearer.is_empty(), "{} dearer:\n{}", dearer.len(), dearer.join("\n"));
    tallies
}

#[test]
fn never_dearer_than_torch_for_products_and_sums() {
    let rows = squares(&OpTable::standard());
    assert_eq!(rows.len(), 517);
    let tallies = tallied(&rows);
    // Our strategies include torch's, with the same output.
    assert!(tallies.values().all(|t| t.unlike == 0));
    // `docs/propagation.md` has these figures.
    let below: Vec<usize> = tallies.values().map(|t| t.below).collect();
    assert_eq!(below, [54, 66, 27, 31]);
}

#[test]
fn never_dearer_than_torch_for_any_op() {
    let rows = calls(&OpTable::standard());
    assert_eq!(rows.len(), 1010);
    tallied(&rows);
}
