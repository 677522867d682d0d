//! What a file is, told by what it begins with and never by its name.

use std::path::Path;
use std::sync::Arc;

use super::archives::Archive;
use super::bytes::Input;
use super::checkpoint::{Checkpoint, Origin, Tensor};
use super::dcp::{METADATA_NAME, in_safetensors};
use super::header;
use super::numpy;
use super::objects::Object;
use super::peek::Peek;
use super::place;
use super::torch_save::{self, Saved};
use super::zip::{self, Zip};
use crate::error::Error;

/// What an archive of `torch.save` begins with, as any zip archive does.
const ZIP: &[u8] = b"PK\x03\x04";
const EMPTY_ZIP: &[u8] = b"PK\x05\x06";

/// What `torch.save` wrote before there were archives: a number, pickled.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// What any other pickle of today begins with: its protocol.
const PICKLE: [&[u8]; 4] = [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];

/// What a safetensors file has behind the length of its header, which may look like anything else.
const BRACE: (usize, u8) = (8, b'{');

/// Opens a file of tensors, whatever it is.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, Error> {
    let input = Arc::new(Input::open(path)?);
    let head = input.read(0, input.len().min(LEGACY.len() as u64) as usize)?;
    let refused = |why: &str| Err(Error::refused("input", format!("{} {why}", path.display())));
    let about = |error: Error| {
        let said = error.to_string().contains(&*path.to_string_lossy());
        if said { error } else { error.about(path.display()) }
    };
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
                return refused("is a part of a distributed checkpoint: give its folder");
            }
            zip => {
                let zip = zip?;
                archives.push(Archive::of(&zip));
                archive(&zip, path).map_err(about)?
            }
        }
    } else if head == LEGACY {
        return refused(
            "is of the form that torch.save had before PyTorch 1.6, which is not read: load it and save it again with a newer PyTorch",
        );
    } else if PICKLE.iter().any(|begin| head.starts_with(begin)) {
        return refused("is a pickle and no archive of torch.save, and pickles are read only inside of one");
    } else {
        return safetensors(path);
    };
    let tensors = saved.tensors.into_iter().map(|(name, stored)| Tensor::whole(name, stored)).collect();
    let objects =
        saved.objects.into_iter().map(|(name, container)| Object::part_of(name, container)).collect();
    Ok(Checkpoint {
        tensors,
        free_texts: None,
        origin: Origin::Files,
        sums: None,
        archives,
        objects,
        folders: Vec::new(),
        ignored: Vec::new(),
    })
}

/// A safetensors file; one of several that hold chunks of the same tensors is refused.
fn safetensors(path: &Path) -> Result<Checkpoint, Error> {
    let opened = header::open(path)?;
    if in_safetensors::has_chunks(&opened) && !in_safetensors::is_alone(&opened, path)? {
        let message = "holds chunks of tensors whose other chunks are in other files: give the folder";
        return Err(Error::refused("input", format!("{} {message}", path.display())));
    }
    Ok(Checkpoint::whole(opened))
}

/// The tensors of a zip archive.
fn archive(zip: &Zip<'_>, path: &Path) -> Result<Saved, Error> {
    if let Some(folder) = torch_save::folder(zip) {
        return torch_save::saved(zip, &folder);
    }
    let message = "is a zip archive neither of torch.save nor of NumPy: it holds no data.pkl and no .npy";
    numpy::arrays(zip)?.ok_or_else(|| Error::refused("input", format!("{} {message}", path.display())))
}
