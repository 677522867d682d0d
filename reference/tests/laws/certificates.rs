//! Certificates: whatever the weights, no bound is above the least cost of all assignments.

use reshard_reference::certify;
use reshard_test_support::{Random, Sweep};
use serde_json::{Value, json};

/// A model of a few columns, with all that is needed to try every assignment.
struct Small {
    /// The relation and right side of each row.
    rows: Vec<(&'static str, i64)>,
    /// The cost, limit and row entries of each column.
    columns: Vec<(i64, i64, Vec<i64>)>,
}

impl Small {
    fn drawn(random: &mut Random) -> Small {
        let rows = 1 + random.below(3);
        let columns = 1 + random.below(4);
        let mut number = |from: i64, to: i64| from + random.below((to - from + 1) as usize) as i64;
        let columns: Vec<(i64, i64, Vec<i64>)> = (0..columns)
            .map(|_| (number(-5, 20), number(0, 3), (0..rows).map(|_| number(-2, 3)).collect()))
            .collect();
        let rows = (0..rows).map(|_| (["=", "<="][number(0, 1) as usize], number(-2, 6))).collect();
        Small { rows, columns }
    }

    /// Returns the least cost of all assignments; `None` if there is none.
    fn least(&self) -> Option<i64> {
        let mut all: Vec<Vec<i64>> = vec![Vec::new()];
        for (_, most, _) in &self.columns {
            all = all.iter().flat_map(|x| (0..=*most).map(move |n| [&x[..], &[n]].concat())).collect();
        }
        let fits = |x: &&Vec<i64>| {
            self.rows.iter().enumerate().all(|(row, (is, to))| {
                let sum: i64 = x.iter().zip(&self.columns).map(|(n, (_, _, rows))| n * rows[row]).sum();
                if *is == "=" { sum == *to } else { sum <= *to }
            })
        };
        let cost = |x: &Vec<i64>| x.iter().zip(&self.columns).map(|(n, (cost, _, _))| n * cost).sum();
        all.iter().filter(fits).map(cost).min()
    }

    fn text(&self) -> String {
        let rows = self.rows.iter().map(|(is, to)| json!({"name": "row", "is": is, "to": to}));
        let columns = self.columns.iter().map(|(cost, most, rows)| {
            let rows: Vec<Value> = rows.iter().enumerate().map(|(row, times)| json!([row, times])).collect();
            json!({"name": "column", "cost": cost, "most": most, "rows": rows})
        });
        json!({"rows": rows.collect::<Vec<_>>(), "columns": columns.collect::<Vec<_>>()}).to_string()
    }

    /// Returns a proof with drawn weights, some of the wrong sign, which parts columns a few times.
    fn proof(&self, random: &mut Random, depth: usize) -> Value {
        if depth > 0 && random.below(2) == 0 {
            let (below, above) = (self.proof(random, depth - 1), self.proof(random, depth - 1));
            let column = random.below(self.columns.len() + 1);
            return json!({"column": column, "at": random.below(3), "below": below, "above": above});
        }
        let weights: Vec<i64> = (self.rows.iter())
            .map(|(is, _)| random.below(81) as i64 - if *is == "=" { 40 } else { 78 })
            .collect();
        match random.below(4) {
            0 => json!({"weights": weights, "infeasible": true}),
            _ => json!({"weights": weights}),
        }
    }
}

#[test]
fn no_bound_is_above_the_least_cost() {
    let (mut near, mut none, mut refused) = (0, 0, 0);
    let cases = Sweep::asked().count(10_000, 100_000);
    for case in 0..cases {
        let mut random = Random(case * 7 + 1);
        let small = Small::drawn(&mut random);
        let least = small.least();
        for scale in [1, 10] {
            let proof = json!({"scale": scale, "proof": small.proof(&mut random, 2)}).to_string();
            let text = small.text();
            match (certify(&text, &proof), least) {
                (Ok(Some(bound)), Some(least)) => {
                    assert!(bound <= least, "{text}\n{proof}\n{bound} > {least}");
                    near += u64::from(bound == least);
                }
                (Ok(None), least) => {
                    assert_eq!(least, None, "{text}\n{proof}");
                    none += 1;
                }
                (Ok(Some(_)), None) => {}
                (Err(_), _) => refused += 1,
            }
        }
    }
    let counts = [near, none, refused];
    assert!(
        counts.iter().all(|n| *n > cases / 100),
        "{counts:?} of {cases}: exact, without assignment, rejected"
    );
}

#[test]
fn texts_that_are_no_certificates_are_refused() {
    let model = r#"{"rows": [{"name": "layers", "is": "=", "to": 2}, {"name": "memory", "is": "<=", "to": 9}],
        "columns": [{"name": "all", "cost": 3, "most": 2, "rows": [[0, 1], [1, 4]]}]}"#;
    let of = |proof: &str| match certify(model, proof) {
        Ok(bound) => panic!("{proof} is accepted: {bound:?}"),
        Err(e) => e.to_string(),
    };
    assert_eq!(certify(model, r#"{"scale": 2, "proof": {"weights": [7, -1]}}"#).unwrap(), Some(3));
    assert_eq!(of(r#"{"scale": 1, "proof": {"weights": [3]}}"#), "1 weights for 2 rows");
    assert_eq!(
        of(r#"{"scale": 1, "proof": {"weights": [3, 1]}}"#),
        "row `memory` is at most, and its weight is 1"
    );
    assert_eq!(
        of(r#"{"scale": 0, "proof": {"weights": [3, 0]}}"#),
        "the scale of a certificate is at least 1, not 0"
    );
    assert_eq!(
        of(r#"{"scale": 1, "proof": {"weights": [3, 0], "infeasible": true}}"#),
        "the sum of an infeasible part is 0, which is not positive"
    );
    let part = r#"{"weights": [3, 0]}"#;
    assert_eq!(
        of(&format!(
            r#"{{"scale": 1, "proof": {{"column": 0, "at": 2, "below": {part}, "above": {part}}}}}"#
        )),
        "column 0 cannot be parted at 2"
    );
    assert!(of("{}").starts_with("the certificate: missing field `scale`"));
    let large = model.replace("[1, 4]", &format!("[1, {}]", i64::MAX));
    let proof = format!(r#"{{"scale": 1, "proof": {{"weights": [{}, {}]}}}}"#, i64::MAX, i64::MIN);
    let error = certify(&large, &proof).unwrap_err();
    assert_eq!(error.to_string(), "the numbers of the certificate are too large");
    let outside = model.replace("[1, 4]", "[2, 4]");
    let error = certify(&outside, &proof).unwrap_err();
    assert_eq!(error.to_string(), "a column is in row 2, but the model has 2 rows");
}
