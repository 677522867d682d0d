//! Lines of tables, and the errors of lines that are not measurements.

use reshard_calibrate::{Error, Filter, Options, Table, calibrate};
use reshard_planner::StepOp;

fn error(text: &str) -> String {
    Table::parse(text, &Filter::default()).unwrap_err().to_string()
}

#[test]
fn a_line_is_one_measurement_or_a_curve() {
    let text = r#"# a comment
{"what":"a header"}

{"collective":"all_gather","nodes":2,"ranks":16,"bytes":1024,"us":30,"run":1,"dtype":"f16","gpu":"A"}
{"collective":"all_gather","nodes":2,"ranks_per_node":8,"bytes":[1024,2048],"us":[32.5,33],"gpu":"B"}
"#;
    let table = Table::parse(text, &Filter::default()).unwrap();
    let found: Vec<_> =
        table.measurements.iter().map(|m| (m.collective, m.nodes, m.ranks, m.bytes, m.us)).collect();
    let op = StepOp::AllGather;
    assert_eq!(found, [(op, 2, 16, 1024, 30.0), (op, 2, 16, 1024, 32.5), (op, 2, 16, 2048, 33.0)]);
    assert_eq!(table.dtype.as_deref(), Some("f16"));
    assert_eq!(Vec::from_iter(&table.differing["gpu"]), ["A", "B"]);
    let conditions = vec![("gpu".to_owned(), "B".to_owned()), ("nodes".to_owned(), "2".to_owned())];
    let table = Table::parse(text, &Filter { conditions }).unwrap();
    assert_eq!((table.measurements.len(), table.left_out, table.dtype), (2, 1, None));
}

#[test]
fn what_is_not_a_measurement_is_rejected_with_its_line() {
    let line = |keys: &str| error(&format!("{{\"what\":1}}\n{{{keys}}}"));
    let of = |keys: &str| line(&format!("\"collective\":\"all_gather\",{keys}"));
    assert_eq!(error("{}\nnot json"), "line 2 is not a JSON object");
    assert_eq!(error(""), "has no measurement");
    assert_eq!(line(r#""ranks":8"#), "line 2 has no `collective`");
    assert_eq!(
        line(r#""collective":"gather","ranks":8,"bytes":1,"us":1"#),
        "line 2 has `collective` \"gather\"; expected one of: all_gather, reduce_scatter, all_reduce, all_to_all"
    );
    assert_eq!(
        line(r#""collective":"slice","ranks":8,"bytes":1,"us":1"#).split(';').next(),
        Some("line 2 has `collective` \"slice\"")
    );
    for (keys, expected) in [
        (r#""bytes":1,"us":1"#, "has no `ranks`"),
        (r#""ranks":1,"bytes":1,"us":1"#, "has one rank, which does not communicate"),
        (r#""ranks":8,"nodes":3,"bytes":1,"us":1"#, "has 8 ranks on 3 nodes; expected as many on each"),
        (
            r#""ranks":8,"nodes":2,"ranks_per_node":8,"bytes":1,"us":1"#,
            "has 8 ranks on 2 nodes, but 8 on each",
        ),
        (
            r#""ranks":8,"nodes":0,"bytes":1,"us":1"#,
            "has `nodes` 0; expected a whole number from 1 to 2147483647",
        ),
        (r#""ranks":8,"bytes":0,"us":1"#, "has `bytes` 0; expected a whole number of bytes from 1"),
        (r#""ranks":8,"bytes":1.5,"us":1"#, "has `bytes` 1.5; expected a whole number of bytes from 1"),
        (r#""ranks":8,"bytes":1,"us":-3"#, "has `us` -3; expected microseconds from 1e-6 to 1e9"),
        (r#""ranks":8,"bytes":1,"us":"fast""#, "has `us` \"fast\"; expected microseconds from 1e-6 to 1e9"),
        (r#""ranks":8,"bytes":[1,2],"us":[1]"#, "has 2 sizes and 1 times"),
    ] {
        assert_eq!(of(keys), format!("line 2 {expected}"));
    }
}

/// Lines of a tuner have latencies and rates in place of measured times.
#[test]
fn lines_without_a_time_are_left_out_by_a_condition() {
    let error = Table::parse(crate::BETWEEN, &Filter::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2 has no `bytes`, so it is not a measured time; choose the measured lines, as with `--where kind=measured`"
    );
    let measured = crate::table(crate::BETWEEN, &[("kind", "measured"), ("collective", "all_reduce")]);
    assert_eq!((measured.measurements.len(), measured.left_out), (16, 38));
    let conditions = vec![("gpu".to_owned(), "H300".to_owned())];
    let error = Table::parse(crate::INSIDE, &Filter { conditions }).unwrap_err();
    assert_eq!(error.to_string(), "has no line with gpu=H300; it has: A100 SXM, B200 SXM, H100 SXM");
}

#[test]
fn types_of_reductions_are_not_mixed() {
    let error = Table::parse(crate::INSIDE, &Filter::default()).unwrap_err();
    assert!(matches!(&error, Error::Dtypes { dtypes } if dtypes[..] == ["f16", "i8"]), "{error}");
}

#[test]
fn groups_must_fit_in_the_nodes() {
    let table = crate::table(crate::INSIDE, &[("gpu", "A100 SXM"), ("dtype", "f16")]);
    let options = Options { node_ranks: Some(4), ..Options::new("a test") };
    let error = calibrate(&table, &options).unwrap_err();
    assert_eq!(error.to_string(), "has 8 ranks in one node, but nodes of the network have 4");
}
