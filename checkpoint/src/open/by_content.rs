//! Detects the format of a file from its first bytes, never from its name.

use std::path::Path;
use std::sync::Arc;

use crate::bytes::Input;
use crate::bytes::peek::Peek;
use crate::bytes::place;
use crate::bytes::zip::{self, Zip};
use crate::error::Error;
use crate::formats::dcp::{METADATA_NAME, in_safetensors};
use crate::formats::header;
use crate::formats::numpy;
use crate::formats::torch_save::{self, Entry, Saved};
use crate::model::archives::Archive;
use crate::model::checkpoint::{Checkpoint, Origin, Tensor};
use crate::model::objects::Object;

/// The first bytes of an archive of `torch.save`, as of any zip archive.
const ZIP: &[u8] = b"PK\x03\x04";
const EMPTY_ZIP: &[u8] = b"PK\x05\x06";

/// The first bytes of the format that `torch.save` wrote before zip archives: a pickled magic number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// The first bytes of any other current pickle: its protocol.
const PICKLE: [&[u8]; 4] = [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];

/// The first bytes of a file of quantised tensors.
const GGUF: &[u8] = b"GGUF";

/// The byte after the header length of a safetensors file, with its offset; the length can be any bytes.
const BRACE: (usize, u8) = (8, b'{');

/// Opens a file of tensors of any supported format.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, Error> {
    let input = Arc::new(Input::open(path)?);
    let head = input.read(0, input.len().min(LEGACY.len() as u64) as usize)?;
    let said = |why: &str| format!("{} {why}", path.display());
    let about = |error: Error| {
        let said = error.to_string().contains(&*path.to_string_lossy());
        if said { error } else { error.about(path.display()) }
    };
    if head.starts_with(GGUF) {
        let why =
            "is a GGUF file, whose tensors are quantised; give the checkpoint that it was converted from";
        return Err(Error::unsupported("input", said(why)));
    }
    let (brace, is) = BRACE;
    let mut archives = Vec::new();
    let saved = if head.get(brace) == Some(&is) {
        return safetensors(path);
    } else if head.starts_with(numpy::MAGIC) {
        let file = input.open_again()?;
        numpy::array(Peek::new(&input, &file, 0, input.len())?).map_err(about)?
    } else if head.starts_with(ZIP) || head.starts_with(EMPTY_ZIP) {
        let file = input.open_again()?;
        let mut room = zip::room();
        match Zip::open(Peek::new(&input, &file, 0, input.len())?, &mut room) {
            Err(_) if place::exists(&path.with_file_name(METADATA_NAME))? => {
                return Err(Error::refused(
                    "input",
                    said("is part of a distributed checkpoint; give its folder"),
                ));
            }
            zip => {
                let zip = zip?;
                archives.push(Archive::of(&zip));
                archive(&zip, path).map_err(about)?
            }
        }
    } else if head == LEGACY {
        let why = "has the torch.save format from before PyTorch 1.6, which is not supported; load it and save it again with a newer PyTorch";
        return Err(Error::unsupported("input", said(why)));
    } else if PICKLE.iter().any(|begin| head.starts_with(begin)) {
        let why = "is a bare pickle; pickles are read only inside a torch.save archive";
        return Err(Error::unsupported("input", said(why)));
    } else {
        return safetensors(path);
    };
    let (mut tensors, mut objects) = (Vec::new(), Vec::new());
    for (name, path, entry) in saved.below(&[]) {
        match entry {
            Entry::Object(container) => objects.push(Object { path, ..Object::part_of(name, container) }),
            Entry::Tensor(stored) => tensors.push(Tensor { path, ..Tensor::whole(name, stored) }),
            Entry::Part(part) if part.is_whole() => {
                tensors.push(Tensor { path, ..Tensor::whole(name, part.local) });
            }
            Entry::Part(part) => {
                let message = format!(
                    "holds only the part of rank {} of `{name}`; give the folder with the files of all ranks",
                    part.rank
                );
                return Err(Error::refused("input", said(&message)));
            }
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let checkpoint = Checkpoint::of_tensors(tensors, Origin::Files, None);
    Ok(Checkpoint { archives, objects, ..checkpoint })
}

/// Opens a safetensors file; rejects one of several files that hold chunks of the same tensors.
fn safetensors(path: &Path) -> Result<Checkpoint, Error> {
    let opened = header::open(path)?;
    if in_safetensors::has_chunks(&opened) && !in_safetensors::is_alone(&opened, path)? {
        let message = "holds chunks of tensors whose other chunks are in other files; give the folder";
        return Err(Error::refused("input", format!("{} {message}", path.display())));
    }
    let tensors = opened.tensors.into_iter().map(|(name, stored)| Tensor::whole(name, stored)).collect();
    Ok(Checkpoint::of_tensors(
        tensors,
        Origin::Files,
        opened.free_texts.map(in_safetensors::not_about_chunks),
    ))
}

/// Reads the tensors of a zip archive.
fn archive(zip: &Zip<'_>, path: &Path) -> Result<Saved, Error> {
    if let Some(folder) = torch_save::folder(zip) {
        return torch_save::saved(zip, &folder);
    }
    let message = "is a zip archive of neither torch.save nor NumPy: it has no data.pkl and no .npy entry";
    numpy::arrays(zip)?.ok_or_else(|| Error::unsupported("input", format!("{} {message}", path.display())))
}
