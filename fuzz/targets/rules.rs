//! Reads arbitrary rules, calls and strategies: no panic, and parsed values round-trip.

use reshard_ops::rules::{OpCall, Rule, Strategy};

/// Checks a text, and returns `true` if it is any of them.
pub(crate) fn run(text: &str) -> bool {
    let (rule, call, strategy) = (text.parse::<Rule>(), text.parse::<OpCall>(), text.parse::<Strategy>());
    if let Ok(rule) = &rule {
        assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(rule), "{rule}");
    }
    if let Ok(call) = &call {
        assert_eq!(call.to_string().parse::<OpCall>().as_ref(), Ok(call), "{call}");
    }
    if let Ok(strategy) = &strategy {
        assert_eq!(strategy.to_string().parse::<Strategy>().as_ref(), Ok(strategy), "{strategy}");
    }
    rule.is_ok() || call.is_ok() || strategy.is_ok()
}
