//! The input of a job: opened, selected, renamed and cast by its options.

use reshard_mapping::Mapping;

use crate::check::remains::LostRegion;
use crate::error::Error;
use crate::job::ReshardJob;
use crate::model::checkpoint::Checkpoint;
use crate::select::mapped::{self, Unmade};
use crate::select::spec::PlacementSpec;
use crate::shown::Shown;

/// An opened input.
pub(crate) struct Input {
    pub(crate) checkpoint: Checkpoint,
    /// The data that was lost with missing ranks.
    pub(crate) lost: Vec<LostRegion>,
    /// The tensors that no rule of the mapping makes.
    pub(crate) unmade: Unmade,
    /// The placements of the output, by the spec or by the mapping.
    pub(crate) spec: Option<PlacementSpec>,
}

impl ReshardJob {
    /// Opens the input and applies the selection, mapping, splits, fuses, renames and the dtype, in this order.
    ///
    /// So patterns and rules refer to the names of the input, and `to` and `spec` to the new ones.
    pub(crate) fn open(&self) -> Result<Input, Error> {
        let (checkpoint, lost) = self.living()?;
        self.prepared(checkpoint, lost, None)
    }

    /// Applies the selection, the rules, names and dtypes to an opened checkpoint; `spec` has the placements if the job does not.
    pub(crate) fn prepared(
        &self,
        mut checkpoint: Checkpoint,
        lost: Vec<LostRegion>,
        spec: Option<PlacementSpec>,
    ) -> Result<Input, Error> {
        if !self.only.is_empty() {
            checkpoint = checkpoint.filter(self.only.iter().map(|pattern| &pattern[..]))?;
        }
        let mut unmade = Unmade::default();
        let mapping = self.mapping()?;
        if let Some(mapping) = &mapping {
            (checkpoint, unmade) = checkpoint.mapped_by(mapping)?;
            if let Some(kept) = unmade.kept.first().filter(|_| self.strict) {
                let message = format!("--strict: no rule of the mapping names `{}`", kept.shown());
                return Err(Error::refused("not_carried", message));
            }
        }
        for split in &self.split {
            checkpoint = checkpoint.mapped(&rule("--split", split)?.inverse()?)?;
        }
        for fuse in &self.fuse {
            checkpoint = checkpoint.mapped(&rule("--fuse", fuse)?)?;
        }
        for rename in &self.rename {
            checkpoint = checkpoint.renamed(rename)?;
        }
        if !self.dtype.is_empty() {
            checkpoint = checkpoint.cast_each(self.dtype.iter().map(|rule| &rule[..]))?;
        }
        let spec = self.placements(mapping.as_ref(), spec)?;
        Ok(Input { checkpoint, lost, unmade, spec })
    }

    /// Reads the mapping, if there is one.
    fn mapping(&self) -> Result<Option<Mapping>, Error> {
        let usage = |why: &str| Err(Error::refused("usage", why));
        let Some(path) = &self.map else {
            if self.inverse || !self.numbers.is_empty() {
                return usage("`--inverse` and `--let` need `--map`");
            }
            return Ok(None);
        };
        if !self.split.is_empty() || !self.fuse.is_empty() {
            return usage("`--map` has the rules of `--split` and `--fuse` too; write them into the mapping");
        }
        let mut mapping = mapped::read(path)?;
        for number in &self.numbers {
            let value = number.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
            let Some((name, value)) = value else {
                let message = format!("`--let {}` needs a name and a number, like h=32", number.shown());
                return Err(Error::refused("usage", message));
            };
            mapping = mapping.with_number(name, value)?;
        }
        Ok(Some(if self.inverse { mapping.inverse()? } else { mapping }))
    }

    /// Reads the placements by name: those of the spec, or of the mapping.
    fn placements(
        &self,
        mapping: Option<&Mapping>,
        spec: Option<PlacementSpec>,
    ) -> Result<Option<PlacementSpec>, Error> {
        let spec = match &self.spec {
            Some(path) => Some(PlacementSpec::read(path)?),
            None => spec,
        };
        // The placements of an inverse are of the tensors that it reads.
        let by_mapping = mapping.filter(|mapping| !self.inverse && mapping.placements().next().is_some());
        match (spec, by_mapping) {
            (None, None) => Ok(None),
            (Some(spec), None) => Ok(Some(spec)),
            (None, Some(mapping)) => PlacementSpec::new(mapping.placements()).map(Some),
            (Some(_), Some(_)) => {
                let why = "both `--spec` and the mapping have placements; drop one of them";
                Err(Error::refused("usage", why))
            }
        }
    }

    /// Opens the input, by its source if there is one.
    fn as_described(&self) -> Result<Checkpoint, Error> {
        match (&self.source, &self.input) {
            (None, None) => Checkpoint::open(None),
            (source, Some(input)) => Checkpoint::open_described(input, source.as_deref()),
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

/// Parses the rule of an option, which is one line of a mapping.
fn rule(option: &str, text: &str) -> Result<Mapping, Error> {
    let mapping: Mapping = text.parse()?;
    match mapping.rules().count() {
        1 => Ok(mapping),
        count => {
            let message = format!(
                "`{option}` needs one rule, like 'qkv = q + k + v', but `{}` has {count}; repeat the option for each",
                text.shown()
            );
            Err(Error::refused("usage", message))
        }
    }
}
