//! Applies the mapping, and compares the tensors that it makes with those of the target.

use std::collections::HashMap;

use reshard_mapping::{Dtype, MadeTensor, Mapped, Mapping, SourceTensor};

use crate::dtype;
use crate::error::{Error, ErrorKind, shown};
use crate::side::{Side, SideTensor};

/// Returns the tensors that the mapping makes, in the order of the target.
pub(crate) fn made(source: &Side, target: &Side, mapping: &Mapping) -> Result<Vec<MadeTensor>, Error> {
    let mut sources = Vec::with_capacity(source.tensors().len());
    for tensor in source.tensors() {
        let Some(shape) = &tensor.shape else {
            let message = format!(
                "`{}` of the source has no shape; give the extents of the whole tensor",
                shown(&tensor.name)
            );
            return Err(Error::invalid(message));
        };
        sources.push(SourceTensor { name: &tensor.name, shape, dtype: tensor.dtype });
    }
    let Mapped { tensors, kept, .. } =
        mapping.apply(&sources).map_err(|error| of_mapping(&error, mapping, &sources))?;
    let numbers: HashMap<&str, usize> =
        target.tensors().iter().enumerate().map(|(k, tensor)| (&tensor.name[..], k)).collect();
    let mut by_target: Vec<Option<MadeTensor>> = vec![None; target.tensors().len()];
    // A target that nothing writes often belongs to a source of another name: both are in the message.
    let mut lacks = None;
    for made in tensors {
        match numbers.get(&made.name[..]) {
            Some(k) => by_target[*k] = Some(made),
            None => {
                lacks.get_or_insert(made.name);
            }
        }
    }
    let unwritten = target.tensors().iter().zip(&by_target).find(|(_, made)| made.is_none());
    let unwritten = unwritten.map(|(tensor, _)| shown(&tensor.name));
    if let Some(name) = lacks {
        let hint = unwritten.map_or_else(String::new, |name| format!("; `{name}` of the target has no rule"));
        let shown = shown(&name);
        let message = if kept.contains(&name) {
            format!("the target has no `{shown}`, and no rule reads it; add a rule or `drop {shown}`{hint}")
        } else {
            format!(
                "a rule makes `{shown}`, which the target does not have; change the name in the rule{hint}"
            )
        };
        return Err(Error::new(ErrorKind::TargetLacks, message));
    }
    if let Some(name) = unwritten {
        let message = format!(
            "no rule writes `{name}` of the target, and the source has no tensor of this name; add a rule"
        );
        return Err(Error::new(ErrorKind::Unwritten, message));
    }
    let all: Vec<MadeTensor> = by_target.into_iter().flatten().collect();
    for (tensor, made) in target.tensors().iter().zip(&all) {
        compare(tensor, made, source)?;
    }
    if let Some(pattern) = mapping.unmatched_pattern(&target.tensors().iter().map(|tensor| &tensor.name[..]))
    {
        let message = format!(
            "the pattern `{}` of casts or placements matches no tensor of the target; correct or remove it",
            shown(pattern)
        );
        return Err(Error::new(ErrorKind::UnusedRule, message));
    }
    Ok(all)
}

/// Compares shape and type of a target tensor with those that the mapping makes.
fn compare(tensor: &SideTensor, made: &MadeTensor, source: &Side) -> Result<(), Error> {
    let name = shown(&tensor.name);
    if let Some(shape) = tensor.shape.as_ref().filter(|shape| **shape != made.shape) {
        let dims = 0..shape.len();
        let is_inner =
            shape.len() == made.shape.len() && dims.clone().all(|dim| made.shape[dim] <= shape[dim]);
        if let (true, Some(dim)) = (is_inner, dims.clone().find(|dim| made.shape[*dim] < shape[*dim])) {
            let what = if dim == 0 { "rows".to_owned() } else { format!("indices of dim {dim}") };
            let message = format!(
                "{what} {} to {} of `{name}` are written by no rule: pad it, as in `{name} = pad(.., {} on {dim})`",
                made.shape[dim], shape[dim], shape[dim]
            );
            return Err(Error::new(ErrorKind::Unwritten, message));
        }
        let message = format!(
            "`{name}` is {shape:?} on the target, and its parts make {:?}; change the rule or the target",
            made.shape
        );
        return Err(Error::new(ErrorKind::LocalShape, message));
    }
    if made.dtype != tensor.dtype {
        let stored = made.stored.first().map_or_else(|| dtype::name(made.dtype), |dtype| dtype::name(*dtype));
        let of = made.pieces.iter().find_map(|piece| source.tensors().get(piece.source?));
        let of = of
            .filter(|of| of.name != tensor.name)
            .map_or_else(String::new, |of| format!(" (`{}`)", shown(&of.name)));
        let is_float = |dtype: Dtype| matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
        let hint = if is_float(made.dtype) && is_float(tensor.dtype) {
            format!("add the cast \"{name}\" = \"{}\"", dtype::name(tensor.dtype))
        } else {
            "only f16, bf16, f32 and f64 are converted; change the type on one side".to_owned()
        };
        let becomes = if dtype::name(made.dtype) == stored {
            "no cast names it".to_owned()
        } else {
            format!("the mapping converts it to {}", dtype::name(made.dtype))
        };
        let message = format!(
            "`{name}` is {} on the target and {stored} on the source{of}, and {becomes}; {hint}",
            dtype::name(tensor.dtype)
        );
        return Err(Error::new(ErrorKind::DtypeMismatch, message));
    }
    Ok(())
}

/// Returns an error of a mapping with the kind that it has for a transfer.
fn of_mapping(error: &reshard_mapping::Error, mapping: &Mapping, sources: &[SourceTensor<'_>]) -> Error {
    use reshard_mapping::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::NoMatch => ErrorKind::UnusedRule,
        Kind::Missing => ErrorKind::SourceLacks,
        Kind::Unnamed => ErrorKind::TargetLacks,
        Kind::TooLarge | Kind::TooComplex => ErrorKind::TooLarge,
        Kind::Duplicate => {
            let both = made_twice(mapping, sources);
            let message = both.unwrap_or_else(|| error.to_string());
            return Error::new(ErrorKind::WrittenTwice, message);
        }
        Kind::Syntax
        | Kind::File
        | Kind::UnknownNumber
        | Kind::Indivisible
        | Kind::MixedTypes
        | Kind::Shape
        | Kind::Gap
        | Kind::NotInvertible
        | Kind::Differ
        | Kind::NotFloat
        | _ => ErrorKind::Invalid,
    };
    Error::new(kind, error.to_string())
}

/// Finds a name that two rules make: each line is applied alone.
fn made_twice(mapping: &Mapping, sources: &[SourceTensor<'_>]) -> Option<String> {
    let mut by_name: HashMap<String, String> = HashMap::new();
    let mut read = vec![false; sources.len()];
    for rule in mapping.rules() {
        // Without the others, all sources are dropped: their names do not matter here.
        let one: Mapping = format!("{rule}\ndrop *").parse().ok()?;
        let one = mapping.numbers().try_fold(one, |one, (name, value)| one.with_number(name, value)).ok()?;
        let Ok(mapped) = one.apply(sources) else { continue };
        for tensor in mapped.tensors {
            tensor.pieces.iter().filter_map(|piece| piece.source).for_each(|source| read[source] = true);
            if let Some(other) = by_name.insert(tensor.name.clone(), rule.clone()) {
                let name = shown(&tensor.name);
                return Some(format!(
                    "`{name}` is written by two rules, `{}` and `{}`; change the name in one of them",
                    shown(&other),
                    shown(&rule)
                ));
            }
        }
    }
    let kept = sources.iter().zip(&read).find(|(source, read)| !**read && by_name.contains_key(source.name));
    let (kept, _) = kept?;
    let name = shown(kept.name);
    Some(format!(
        "`{name}` is written by `{}` and by the source `{name}`, which keeps its name; add `drop {name}`",
        shown(&by_name[kept.name])
    ))
}
