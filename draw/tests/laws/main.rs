//! Drawings against definitions, as data; each renderer once.

mod drawings;
mod renderers;
