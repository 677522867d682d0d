//! Formulas that frameworks bring as one backward kernel.
//!
//! ```text
//! silu, softmax, layer_norm, ..    one kernel: intermediate values are in registers, and never in memory
//! attention                        one kernel, although it has five products of matrices
//! mm, linear, convolution, ..      a kernel for each product, between which values are in memory
//! ```

use super::Gradient;
use crate::rules::{Composite, OpCall};

/// Ops whose formula has products, but which have one backward kernel.
const FUSED: [&str; 4] = ["scaled_dot_product_attention", "avg_pool1d", "avg_pool2d", "avg_pool3d"];

/// Ops that are a kernel each.
const PRODUCTS: [&str; 18] = [
    "mm",
    "bmm",
    "mv",
    "dot",
    "vdot",
    "outer",
    "matmul",
    "linear",
    "addmm",
    "baddbmm",
    "addmv",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
];

impl Gradient {
    /// Returns `true` if frameworks compute the formula in one kernel.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let is_one = |call: &str, inputs: &[&[usize]]| table.gradient(&call.parse()?, inputs).map(|g| g.is_one_kernel());
    /// assert!(is_one("silu", &[&[8]])? && is_one("softmax(dim=1)", &[&[4, 8]])?);
    /// assert!(is_one("scaled_dot_product_attention", &[&[2, 4, 8, 16], &[2, 4, 8, 16], &[2, 4, 8, 16]])?);
    /// assert!(!is_one("mm", &[&[8, 6], &[6, 4]])? && !is_one("linear", &[&[8, 6], &[4, 6], &[4]])?);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_one_kernel(&self) -> bool {
        self.is_one_kernel
    }

    /// Returns `true` for each value of the formula that stays in its kernel, if these input gradients are wanted.
    ///
    /// Saved values and wanted gradients do not.
    #[doc(hidden)]
    pub fn inner_values(&self, wanted: &[bool]) -> Vec<bool> {
        let Some(body) = self.body() else { return Vec::new() };
        let mut inner = vec![self.is_one_kernel; body.values()];
        inner[..self.inputs.len()].fill(false);
        for (gives, _) in self.input_gradients.iter().zip(wanted).filter(|(_, wanted)| **wanted) {
            if let Some(output) = *gives {
                inner[body.output_values()[output]] = false;
            }
        }
        inner
    }
}

/// Returns `true` if frameworks compute this formula of a call in one kernel.
pub(super) fn is_one_kernel(call: &OpCall, body: Option<&Composite>) -> bool {
    let of_slice = match call {
        OpCall::Each(each) => each.call(),
        OpCall::Rule(_) | OpCall::Named { .. } => call,
    };
    let is_fused = of_slice.name().is_some_and(|name| FUSED.contains(&name));
    is_fused || body.is_some_and(|body| !body.calls().any(|(call, takes, _)| is_product(call, takes.len())))
}

/// Returns `true` for a product of several operands.
fn is_product(call: &OpCall, operands: usize) -> bool {
    match call {
        OpCall::Rule(_) => operands > 1,
        OpCall::Named { name, .. } => PRODUCTS.contains(&name.as_str()),
        OpCall::Each(each) => is_product(each.call(), operands),
    }
}
