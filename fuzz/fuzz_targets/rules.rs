//! Reads arbitrary rules, calls and strategies: no panic, and what is read is printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reshard_ops::rules::{Call, Rule, Strategy};

fuzz_target!(|text: &str| {
    if let Ok(rule) = text.parse::<Rule>() {
        assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(&rule), "{rule}");
    }
    if let Ok(call) = text.parse::<Call>() {
        assert_eq!(call.to_string().parse::<Call>().as_ref(), Ok(&call), "{call}");
    }
    if let Ok(strategy) = text.parse::<Strategy>() {
        assert_eq!(strategy.to_string().parse::<Strategy>().as_ref(), Ok(&strategy), "{strategy}");
    }
});
