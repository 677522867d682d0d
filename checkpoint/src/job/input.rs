//! The input of a job: opened, selected, renamed and cast by its options.

use crate::check::remains::LostRegion;
use crate::error::Error;
use crate::job::ReshardJob;
use crate::model::checkpoint::Checkpoint;
use crate::open::source::SourceSpec;
use crate::select::fusion::Fusion;

impl ReshardJob {
    /// Opens the input and applies the selection, splits, fusions, renames and the dtype, in this order.
    ///
    /// So patterns and fusions refer to the names of the input, and `to` and `spec` to the new ones.
    pub(crate) fn open(&self) -> Result<(Checkpoint, Vec<LostRegion>), Error> {
        let (mut checkpoint, lost) = self.living()?;
        if !self.only.is_empty() {
            checkpoint = checkpoint.filter(self.only.iter().map(|pattern| &pattern[..]))?;
        }
        for split in &self.split {
            checkpoint = checkpoint.split(&split.parse::<Fusion>()?)?;
        }
        for fuse in &self.fuse {
            checkpoint = checkpoint.fused(&fuse.parse::<Fusion>()?)?;
        }
        for rename in &self.rename {
            checkpoint = checkpoint.renamed(rename)?;
        }
        if let Some(dtype) = &self.dtype {
            checkpoint = checkpoint.cast(dtype)?;
        }
        Ok((checkpoint, lost))
    }

    /// Opens the input, by its source if there is one.
    fn as_described(&self) -> Result<Checkpoint, Error> {
        match (&self.source, &self.input) {
            (None, input) => Checkpoint::open(input.as_deref()),
            (Some(source), Some(input)) => Checkpoint::open_source(input, &SourceSpec::read(source)?),
            (Some(_), None) => Err(Error::refused("usage", "`--source` needs an input folder")),
        }
    }

    /// Opens the input without its missing ranks, and returns the data that was lost with them.
    fn living(&self) -> Result<(Checkpoint, Vec<LostRegion>), Error> {
        if self.missing_ranks.is_empty() {
            return match self.fill_from {
                None => Ok((self.as_described()?, Vec::new())),
                Some(_) => Err(Error::refused("usage", "`--fill-from` needs `--missing-ranks`, e.g. 3,5")),
            };
        }
        if self.source.is_some() {
            let message =
                "`--missing-ranks` needs the rank files of an earlier run, and `--source` describes others";
            return Err(Error::refused("usage", message));
        }
        let Some(input) = &self.input else {
            let message = "`--missing-ranks` needs an input folder with one file per rank";
            return Err(Error::refused("usage", message));
        };
        let remains = Checkpoint::open_degraded(input, &self.missing_ranks)?;
        let lost = remains.lost().to_vec();
        let checkpoint = match &self.fill_from {
            Some(other) => remains.filled(&Checkpoint::open(Some(other))?)?,
            None => remains.whole()?,
        };
        Ok((checkpoint, lost))
    }
}
