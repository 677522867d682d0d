//! TEMPORARY
use super::decision::Move;
use super::verify;
use crate::cli::error::CliError;
pub(crate) struct Exchange {}
pub(crate) struct Moved {
    pub(crate) steps: usize,
    pub(crate) received_bytes: u64,
    pub(crate) lower_bound_bytes: Option<u64>,
}
impl Exchange {
    pub(crate) fn new() -> Self {
        Self {}
    }
    pub(crate) fn prepare(&mut self, _: &Move<'_>) -> Result<(), CliError> {
        Ok(())
    }
    pub(crate) fn carry_out(&mut self, m: &Move<'_>, s: &[&[u8]]) -> Result<(Vec<Vec<u8>>, Moved), CliError> {
        let w = verify::assemble(&m.unit_from, m.units.bytes, s)?;
        let c = verify::cut(&m.unit_to, m.units.bytes, &w)?;
        Ok((
            c.into_iter().map(|c| c.into_owned()).collect(),
            Moved { steps: 0, received_bytes: 1, lower_bound_bytes: Some(1) },
        ))
    }
    pub(crate) fn take_back(&mut self, _: Vec<Vec<u8>>) {}
}
