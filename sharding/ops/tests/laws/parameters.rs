//! The arguments of ops: every declared argument is read, and no other.

use reshard_ops::rules::{
    Argument, DefaultValue, DimOf, Op, OpCall, OpTable, Parameter, ParameterKind, Parameters, RuleBuilder,
};

fn op(table: &OpTable, call: &OpCall, shapes: &[Vec<usize>]) -> Result<Op, String> {
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    table.op(call, &shapes).map_err(|e| e.to_string())
}

/// Every example of the table with every argument that its op takes.
fn each(mut check: impl FnMut(&OpTable, &OpCall, &[Vec<usize>], &Parameter)) {
    let table = OpTable::standard();
    for e in crate::reference_ops::all() {
        let call: OpCall = e.call.parse().unwrap();
        for p in table.parameters(&e.name()).map_or(&[][..], |all| all) {
            e.shapes.iter().for_each(|shapes| check(&table, &call, shapes, p));
        }
    }
}

#[test]
fn what_is_declared_prints_and_reads() {
    let table = OpTable::standard();
    for name in table.names() {
        let declared = table.parameters(name).unwrap();
        assert_eq!(&declared.to_string().parse::<Parameters>().unwrap(), declared, "{name}");
        for p in declared.iter() {
            assert_eq!(&p.to_string().parse::<Parameter>().unwrap(), p, "{name}");
        }
    }
    for text in [
        "",
        "a: any",
        "a: any = none, b: any = 3",
        "n: number >= -1 = 7",
        "p: 2|1|inf = inf",
        "r: mean|none = none",
        "d: new dims = [0,-1]",
        "d: complex dim = all",
        "k: spatial, s: spatial = k",
        "last: number of dims = 2",
        "value: real",
        "eps: real >= 0 = 0.00001, slope: real = -0.5, of: real = slope",
        "p: real >= 2 = none",
    ] {
        assert_eq!(text.parse::<Parameters>().unwrap().to_string(), text);
    }
}

#[test]
fn what_cannot_be_is_not_declared() {
    for (text, message) in [
        ("dim", "expected \":\""),
        ("dim: dimm", "expected dim, dims,"),
        ("dim: new flag", "expected dim, dims,"),
        ("dim: dim, dim: flag", "the parameter dim: it is declared twice"),
        ("dim: dim = mean", "the parameter dim: the default is mean, and should be a whole number, the dim"),
        ("n: number >= 1 = 0", "the default is 0, and should be a whole number of at least 1"),
        ("n: number = all", "the default is all, and it names no dims"),
        ("s: spatial = k, k: spatial", "no parameter k of its kind precedes it"),
        ("k: spatial >= 1, s: spatial = k", "no parameter k of its kind precedes it"),
        ("p: real >= 1 = 0.5", "the default is 0.5, and should be a number of at least 1, whole or not"),
        ("p: real = inf", "the parameter p: no parameter inf of its kind precedes it"),
        ("p: real = 1e999", "expected"),
        ("p: real = true", "the default is true, and should be a number, whole or not"),
        ("w: a|b = c", "the default is c, and should be a or b"),
        ("w: a|b|a", "a is in its list twice"),
        ("w: a|", "\"\" is not an identifier"),
        ("2: flag", "a name must be letters, digits and `_`, and begin with a letter"),
        ("none: flag", "the parameter none: that is a value, not a name"),
        ("a: flag,", "expected the name of a parameter"),
        ("a: flag b", "expected \",\""),
    ] {
        let error = text.parse::<Parameters>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let word = |list: &[&str]| ParameterKind::Word(list.iter().map(|&w| w.to_owned()).collect());
    assert!(Parameter::new("w", word(&["none", "all"]), DefaultValue::Absent).is_err());
    assert!(Parameter::new("w", word(&["one"]), DefaultValue::Required).is_err());
    assert!(Parameter::new("w", word(&["2", "1"]), DefaultValue::Value(Argument::Number(2))).is_err());
    assert!(
        Parameter::new("w", ParameterKind::Any, DefaultValue::Value(Argument::Word("all".to_owned())))
            .is_err()
    );
}

/// An omitted argument has its declared default: written explicitly, it makes the same op.
#[test]
fn a_default_is_what_holds_where_nothing_is_said() {
    let mut tried = 0;
    each(|table, call, shapes, p| {
        let rank = shapes.first().map_or(0, Vec::len);
        let said = match p.default_value() {
            DefaultValue::Value(value) => value.clone(),
            DefaultValue::All if matches!(p.kind(), ParameterKind::Dims(_)) => {
                let dims = if *p.kind() == ParameterKind::Dims(DimOf::Complex) { rank - 1 } else { rank };
                Argument::Numbers((0..dims as i64).collect())
            }
            DefaultValue::Same(other) => match call.argument(other) {
                Some(value) => value.clone(),
                None => return,
            },
            DefaultValue::Required | DefaultValue::Absent | DefaultValue::All => return,
        };
        if call.argument(p.name()).is_some() {
            return;
        }
        let full = call.clone().with(p.name(), said);
        let (short, long) = (op(table, call, shapes).unwrap(), op(table, &full, shapes).unwrap());
        assert_eq!(short.outputs(), long.outputs(), "{call} and {full}");
        assert_eq!(short.strategies(), long.strategies(), "{call} and {full}");
        assert_eq!(short.rule(), long.rule(), "{call} and {full}");
        tried += 1;
    });
    assert!(tried > 100, "{tried}");
}

/// A value of every other type is rejected by name, and so is a dim that no tensor has.
#[test]
fn every_argument_is_checked() {
    each(|table, call, shapes, p| {
        let values = [
            Argument::Number(i64::MIN),
            Argument::Number(3),
            Argument::Numbers(vec![i64::MIN]),
            Argument::Numbers(vec![2, 99]),
            Argument::Flag(true),
            Argument::Word("xyzzy".to_owned()),
            Argument::Word("-0.5".to_owned()),
            Argument::Word("nan".to_owned()),
        ];
        let fits = |value: &Argument| match p.kind() {
            ParameterKind::Number { least: None } => [true, true, false, false, false, false, false, false],
            ParameterKind::Number { least: Some(_) } => [false, true, false, false, false, false, false, false],
            ParameterKind::Real { least: None } => [true, true, false, false, false, false, true, false],
            ParameterKind::Real { least: Some(least) } => {
                [false, *least <= 3, false, false, false, false, *least < 0, false]
            }
            ParameterKind::Numbers { least: None } | ParameterKind::Spatial { least: None } => {
                [true, true, true, true, false, false, false, false]
            }
            ParameterKind::Numbers { .. } | ParameterKind::Spatial { .. } => {
                [false, true, false, true, false, false, false, false]
            }
            ParameterKind::Flag => [false, false, false, false, true, false, false, false],
            ParameterKind::Dim(_) | ParameterKind::Dims(_) | ParameterKind::Count | ParameterKind::Word(_) => {
                [false; 8]
            }
            ParameterKind::Any => [true; 8],
        }[values.iter().position(|v| v == value).unwrap()];
        for value in &values {
            // Dim 3 may be valid.
            if fits(value) || *value == Argument::Number(3) {
                continue;
            }
            let wrong = call.clone().with(p.name(), value.clone());
            let error = op(table, &wrong, shapes).unwrap_err();
            assert!(error.contains(p.name()), "{error}");
        }
        if *p.default_value() == DefaultValue::Required {
            let OpCall::Named { name, arguments } = call else { return };
            let without = arguments
                .iter()
                .filter(|(key, _)| key != p.name())
                .fold(OpCall::new(name), |call, (key, value)| call.with(key, value.clone()));
            let error = op(table, &without, shapes).unwrap_err();
            assert!(error.contains(&format!("{without}: needs {}, ", p.name())), "{error}");
        }
    });
}

/// A number of a formula is read as given, or as its default.
#[test]
fn numbers_are_whole_or_not() {
    let mut table = OpTable::empty();
    let declared = "a: real = 0.00001, b: real = a, c: real = none, d: real >= 0 = 0";
    table.add_with("odd", declared.parse().unwrap(), "...->...".parse().unwrap());
    for (call, a, b, c) in [
        ("odd", 1e-5, 1e-5, None),
        ("odd(a=2.5)", 2.5, 2.5, None),
        ("odd(a=-3,b=0.1,c=-0.25)", -3.0, 0.1, Some(-0.25)),
        ("odd(c=7)", 1e-5, 1e-5, Some(7.0)),
    ] {
        let call: OpCall = call.parse().unwrap();
        assert_eq!(call.to_string().parse::<OpCall>().unwrap(), call);
        let r = table.request(&call, &[&[4]]).unwrap();
        assert_eq!(
            (r.real("a").unwrap().to_bits(), r.real("b").unwrap().to_bits()),
            (f64::to_bits(a), f64::to_bits(b))
        );
        assert_eq!(r.has("c").unwrap().then(|| r.real("c").unwrap()), c);
    }
    for (call, message) in [
        ("odd(a=inf)", "a is inf, and should be a number, whole or not"),
        ("odd(a=-inf)", "a is -inf, and should be a number, whole or not"),
        ("odd(d=-0.5)", "d is -0.5, and should be a number of at least 0, whole or not"),
        (
            "odd(e=1)",
            "odd has no argument e; it takes a: real = 0.00001, b: real = a, c: real = none, d: real >= 0 = 0",
        ),
    ] {
        let call: OpCall = call.parse().unwrap();
        assert!(table.request(&call, &[&[4]]).unwrap_err().to_string().contains(message), "{call}");
        assert!(table.op_to(&call, &[&[4]], &[&[4]]).unwrap_err().to_string().contains(message), "{call}");
    }
    // Every spelling of a number is printed in one form, which is read as the same.
    for (written, kept) in [
        ("1e-5", "0.00001"),
        ("1E-12", "0.000000000001"),
        ("2.0", "2"),
        ("1e+3", "1000"),
        ("-0.0", "0"),
        ("2.50", "2.5"),
    ] {
        let call: OpCall = format!("odd(a={written})").parse().unwrap();
        assert_eq!(call.to_string(), format!("odd(a={kept})"));
        assert_eq!(call.to_string().parse::<OpCall>().unwrap(), call);
    }
    assert!("odd(a=1e999)".parse::<OpCall>().is_err());
}

/// A family that reads an undeclared argument gets an error.
#[test]
fn a_family_reads_what_it_declares() {
    let mut table = OpTable::empty();
    table.add_family("odd", "size: number, dim: dim = 0, dims: dims = none".parse().unwrap(), |r| {
        let error = |result: Result<(), reshard_ops::Error>, message: &str| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        error(r.flag("keepdim").map(drop), "the family reads keepdim, which it does not declare");
        error(r.flag("size").map(drop), "the family reads size as a flag, and declares size: number, ");
        error(r.size("size").map(drop), "the family reads size as a size");
        error(r.dim("size").map(drop), "the family reads size as dims");
        error(r.dims("dims").map(drop), "the family reads dims as a list of numbers");
        error(r.number("dims").map(drop), "the family reads dims as a whole number");
        assert_eq!((r.number("size")?, r.dim("dim")?, r.has("dims")?), (-1, 0, false));
        r.op(&RuleBuilder::new().input(['i']).output(['i']).build()?)
    });
    assert!(op(&table, &"odd(size=-1)".parse().unwrap(), &[vec![4]]).is_ok());
}
