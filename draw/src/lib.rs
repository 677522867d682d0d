//! Pictures of everything that has a shape.
//!
//! ```text
//! Mesh, Sharding, Layout, Plan, Program, Timeline ..  --drawing-->  Scene  --text-->  a terminal, in colour if supported
//!                                                                       |----svg---->  a file, a notebook
//!                                                                       '----html--->  one page that works offline
//! ```
//!
//! A [`Scene`] is plain data: cells, nested boxes, arrows, bars along a scale, each with a description in
//! words. A drawing is a function from a value to a scene and is tested as data; each renderer is tested
//! once. So a new drawing is a function of some forty lines, and works in the terminal, in a file, on a page
//! and in a notebook.
//!
//! Large values are drawn within [`Limits`]: a part that is left out has a mark in the picture and a note.
//! User texts are cleaned of terminal control characters and escaped when written. Colour never carries
//! information that is not also in words.
//!
//! # Related crates
//!
//! Elements are written and escaped by `quick-xml`, for SVG and for HTML. The crate `svg` composes SVG alone,
//! and pages need elements, too; plotters (`plotters`, `charming`) draw charts, and most drawings here are
//! not charts. Colours of terminals are those of `anstyle`, widths of characters those of `unicode-width`.
//! Positions are computed here: graph layout (`layout-rs`, Graphviz) is for free graphs, and these are grids.
#![forbid(unsafe_code)]

mod clean;
mod colour;
mod holders;
mod html;
mod layout;
mod limits;
mod local;
mod markup;
mod mesh;
mod plan;
mod program;
mod scene;
mod svg;
mod tensor;
mod text;
mod timeline;

pub use holders::{held, sharding};
pub use html::{NOTEBOOK_BYTES, Page, Section, notebook};
pub use layout::{composed, layout, layout_within, thread_values};
pub use limits::Limits;
pub use local::{local_notation, measured};
pub use mesh::{MeshLook, mesh, mesh_with};
pub use plan::{cost, plan, plan_steps};
pub use program::{memory, program, program_cost, tensors};
pub use scene::{
    Bar, Bundle, Cell, Direction, Flow, Grid, Group, Head, Lane, Lanes, Paint, Part, Scene, Style,
};
pub use tensor::tensor;
pub use timeline::{chrome_trace, timeline};
