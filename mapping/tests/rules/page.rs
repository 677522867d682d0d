//! The tables on the page of the crate.

use reshard_mapping::{Dtype, Mapping};

use crate::tensor::{Tensor, Tensors, run};

const PAGE: &str = include_str!("../../src/lib.rs");

/// Returns the rows of the table under a title: the texts of its cells.
fn rows(title: &str) -> Vec<Vec<String>> {
    let (_, section) = PAGE.split_once(&format!("//! # {title}")).unwrap();
    let section = section.split("//! # ").next().unwrap().replace("\\|", "\u{1}");
    let rows = section.lines().filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
    rows.skip(1).map(|row| row.split(" | ").map(|cell| cell.replace('\u{1}', "|")).collect()).collect()
}

/// Returns the texts between backticks.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn vector(data: &[u64]) -> Tensor {
    Tensor { shape: vec![data.len()], dtype: Dtype::F32, data: data.to_vec() }
}

#[test]
fn the_truth_table_is_true() {
    let sources: Tensors =
        vec![("x".to_owned(), vector(&[1, 2, 3, 4, 5, 6])), ("y".to_owned(), vector(&[7, 8]))];
    let rows = rows("Truth table");
    assert_eq!(rows.len(), 10);
    for row in rows {
        let rule = code(&row[0])[0];
        let made = run(&rule.parse::<Mapping>().unwrap(), &sources).unwrap().unwrap();
        let expected = code(&row[1]);
        let named = made.keys().filter(|name| !["x", "y"].contains(&&name[..])).count();
        assert_eq!(named, expected.len(), "{rule}");
        for text in expected {
            let (name, data) = text.split_once(" = ").unwrap();
            let data = data.trim_matches(['[', ']']).split(' ').map(|n| n.parse().unwrap());
            assert_eq!(made[name].data, data.collect::<Vec<u64>>(), "{rule}: {name}");
        }
    }
}

#[test]
fn the_examples_are_rules() {
    let rows = rows("Twelve examples");
    assert_eq!(rows.len(), 12);
    let rules: Vec<&str> = rows.iter().flat_map(|row| code(&row[1])).collect();
    assert_eq!(rules.len(), 15);
    for rule in rules {
        let mapping: Mapping = rule.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(mapping.to_string().parse::<Mapping>().unwrap(), mapping, "{rule}");
    }
}
