//! Reads and evaluates arbitrary expressions: no panic, no overflow, and printed values parse back.

use reshard_layout::expression::{Expression, Value, evaluate};
use reshard_layout::{AxisStride, Layout, NamedLayout, NamedPoint, reference};

/// Up to this size values are compared with the definition.
const SMALL: i64 = 4096;

/// Checks a text, and returns `true` if it has a value.
pub(crate) fn run(text: &str) -> bool {
    let Ok(expression) = text.parse::<Expression>() else {
        let error = text.parse::<Expression>().expect_err("the same again");
        assert!(!error.to_string().contains('\n') && !error.code().is_empty());
        assert!(error.render().len() < 10_000);
        return false;
    };
    let again: Expression = expression.to_string().parse().expect("its text is valid");
    assert_eq!(again, expression);
    let value = expression.evaluate();
    match &value {
        Ok(Value::Layout(layout)) => {
            assert_eq!(layout.to_string().parse::<Layout>().as_ref(), Ok(layout));
            assert_eq!(evaluate(&layout.to_string()), Ok(Value::Layout(layout.clone())));
            if layout.size() <= SMALL {
                let values = reference::values(layout);
                assert!(layout.values().eq(values.iter().copied()));
                assert_eq!(layout.coalesce().values().collect::<Vec<_>>(), values);
                reshard_draw::layout(layout).expect("small").svg();
            }
        }
        Ok(Value::Named(named)) => {
            assert_eq!(named.to_string().parse::<NamedLayout>().as_ref(), Ok(named.as_ref()));
            assert_eq!(evaluate(&named.to_string()), Ok(Value::Named(named.clone())));
            let shortest = named.try_map(|layout| Ok(layout.coalesce())).expect("it fits");
            assert!(shortest.is_equivalent(named));
        }
        Ok(Value::Pairs(pairs)) => {
            assert_eq!(
                pairs.to_string().parse::<NamedLayout<(AxisStride, AxisStride)>>().as_ref(),
                Ok(pairs.as_ref())
            );
            assert_eq!(evaluate(&pairs.to_string()), Ok(Value::Pairs(pairs.clone())));
        }
        Ok(Value::Points(points)) => {
            assert_eq!(points.to_string().parse::<NamedPoint>().as_ref(), Ok(points.as_ref()));
        }
        Ok(value) => assert!(!value.to_string().is_empty()),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
    value.is_ok()
}
