//! `--draw`, `--svg` and the pages of `reshard report`: the output of pictures.

use std::path::{Path, PathBuf};

use clap::Args;
use reshard_draw::Scene;

use super::console::Console;
use super::error::CliError;

/// `--draw` and `--svg`.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(crate) struct PictureArgs {
    /// Draw the answer as text, in colour on a terminal
    #[arg(long)]
    draw: bool,
    /// Write the drawing to this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl PictureArgs {
    /// Returns `true` if a picture is requested.
    pub(crate) fn are_asked(&self) -> bool {
        self.draw || self.svg.is_some()
    }

    /// Returns the flag that requests a picture.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        if self.draw { Some("--draw") } else { self.svg.as_ref().map(|_| "--svg") }
    }

    /// Returns `true` if the drawing is printed in place of the answer.
    pub(crate) fn are_printed(&self) -> bool {
        self.draw
    }

    /// Writes the drawing as SVG, if that is requested.
    pub(crate) fn write(&self, scene: &Scene) -> Result<(), CliError> {
        self.svg.as_deref().map_or(Ok(()), |path| write(path, &scene.svg()))
    }

    /// Draws, writes and prints the requested pictures; returns `true` if the answer is still to be printed.
    pub(crate) fn show(
        &self,
        scene: impl FnOnce() -> Result<Scene, CliError>,
        json: bool,
        console: &mut Console<'_>,
    ) -> Result<bool, CliError> {
        if !self.are_asked() {
            return Ok(true);
        }
        let scene = scene()?;
        self.write(&scene)?;
        if self.draw && !json {
            let text = scene.text(console.colour);
            console.print(&text)?;
        }
        Ok(json || !self.draw)
    }
}

/// Writes a file of a picture.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text)
        .map_err(|error| CliError::failed("io", format!("{} cannot be written: {error}", path.display())))
}
