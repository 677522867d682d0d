//! Batches of matrices, each of which stays whole; columns of a right-hand side pass.

use super::Alike;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim::{self, Rest};
use crate::rules::factor::FactorKind;
use crate::rules::terms::{ALL, PROD, affine, increasing, multilinear, row, selecting};

/// A batch of these dims.
fn batch(dims: &str) -> Vec<Dim> {
    [Rest].into_iter().chain(dims.chars().map(Dim::from)).collect()
}

/// Batches of matrices with these dims, of which all but `n` stay whole: `ii,in->in`. No partial values pass.
fn matrices(equation: &str) -> RuleBuilder {
    let (inputs, outputs) = equation.split_once("->").unwrap_or((equation, ""));
    let rule = inputs.split(',').fold(RuleBuilder::new(), |rule, dims| rule.input(batch(dims)));
    let rule = outputs.split(',').fold(rule, |rule, dims| rule.output(batch(dims)));
    let mut whole: Vec<char> = equation.chars().filter(|c| c.is_ascii_lowercase() && *c != 'n').collect();
    whole.sort_unstable();
    whole.dedup();
    rule.roles(whole, FactorKind::NeedReplication)
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Alike> {
    vec![
        (&["cholesky", "inv", "matrix_exp", "matrix_power", "matrix_sqrth", "cholesky_inverse"],
            matrices("ii->ii").passings([])),
        (&["det", "logdet", "cond"], matrices("ii->").passings([])),
        (&["slogdet"], matrices("ii->,").passings([])),
        (&["eigvalsh"], matrices("ii->i").passings([])),
        (&["eigh"], matrices("ii->i,ii").passings([])),
        // Complex numbers are stored in a last dim of two.
        (&["eigvals"], matrices("ii->iz").size('z', 2).passings([])),
        (&["eig"], matrices("ii->iz,iiz").size('z', 2).passings([])),
        (&["polar_decomposition"], matrices("ii->ii,ii").passings([])),
        (&["lu_factor", "ldl_factor"], matrices("ii->ii,i").passings([])),
        (&["pinv"], matrices("ij->ji").passings([])),
        (&["matrix_rank"], matrices("ij->").passings([])),
        (&["solve", "solve_triangular"], matrices("ii,in->in").passing(multilinear([1]))),
        (&["cholesky_solve"], matrices("in,ii->in").passing(multilinear([0]))),
        (&["lu_solve", "ldl_solve"], matrices("ii,i,in->in").passing(multilinear([2]))),
        (&["lstsq"], matrices("ij,in->jn").passing(multilinear([1]))),
        (&["householder_product"], matrices("ij,j->ij").passings([])),
        (&["ormqr"], matrices("ij,j,in->in").passing(multilinear([2]))),
        // Products and sums of products.
        (&["vecdot"], RuleBuilder::new().inputs(2, batch("k")).output([Rest])),
        (&["kron"], RuleBuilder::new().input(['a', 'b']).input(['c', 'd'])
            .output([Dim::compound(['a', 'c']), Dim::compound(['b', 'd'])])
            .passings([multilinear(ALL), row([PROD, PROD], [PROD])])),
        (&["bilinear"], RuleBuilder::new().input(batch("i")).input(batch("j")).input(['o', 'i', 'j'])
            .output(batch("o"))),
        // Variables in rows, observations in columns.
        (&["cov", "corrcoef"], RuleBuilder::new().input(['i', 'k']).output(['i', 'i'])
            .roles(['i', 'k'], FactorKind::NeedReplication).passings([])),
        // Other shapes of the same elements.
        (&["matrix_transpose"], matrices_moved("ij->ji")),
        (&["diagonal_scatter"], RuleBuilder::new().input(batch("ii")).input(batch("i")).output(batch("ii"))
            .passings([selecting(ALL), affine(ALL), increasing(ALL)])),
        (&["diag_embed"], matrices_moved("i->ii")),
    ]
}

/// The same, if every output element is an input element or a zero.
fn matrices_moved(equation: &str) -> RuleBuilder {
    let (input, output) = equation.split_once("->").unwrap_or((equation, equation));
    RuleBuilder::new().input(batch(input)).output(batch(output)).passing(selecting(ALL))
}
