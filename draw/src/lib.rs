//! Pictures: everything that has a shape can be looked at.
//!
//! ```text
//! Mesh, Sharding, Layout, Plan, Program, Timeline ..  --a drawing-->  Scene  --text-->  a terminal, in colour where there is some
//!                                                                       |----svg---->  a file, a notebook
//!                                                                       '----html--->  one page that works offline
//! ```
//!
//! A [`Scene`] is plain data: cells, boxes within boxes, arrows, bars along a scale, each with what it says in words. A drawing is a
//! function from a value to a scene and is tested as data; each renderer is tested once. So a new drawing is a function of some forty lines, and
//! can be printed, put into a file, on a page and into a notebook.
//!
//! What is large is drawn within [`Limits`]: what is left out has a mark in the picture and a note beside it. Texts that come from users are cleaned of
//! what a terminal would obey, and escaped as they are written. No colour says what no word says.
//!
//! # What others do
//!
//! Elements are written and escaped by `quick-xml`, for SVG and for HTML. The crate `svg` composes SVG alone, and pages need elements, too;
//! plotters (`plotters`, `charming`) draw charts, and what is drawn here is mostly none. Colours of terminals are those of `anstyle`, widths of characters
//! those of `unicode-width`. Places are found here: graph layout (`layout-rs`, Graphviz) places free graphs, and these are grids.
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
pub use layout::{MAX_CELLS, composed, layout, layout_within, thread_values};
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
