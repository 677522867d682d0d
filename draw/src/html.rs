//! Scenes on one page of HTML that needs nothing else, and in notebooks.
//!
//! The page is complete without scripts: pictures, descriptions in words and as text, and a table of the
//! shards. With scripts a rank can be chosen, by a list or by pointing at it, and is then marked in every
//! picture; and a plan can be stepped through.

use crate::limits::{Limits, titled};
use crate::markup::Markup;
use crate::scene::Scene;

/// The most bytes that a notebook is given for one value.
#[doc(hidden)]
pub const NOTEBOOK_BYTES: usize = 64 << 10;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// A page: sections of pictures.
///
/// ```
/// use reshard_draw::{Page, Section};
/// let page = Page::new("a < b").with(Section::new("One", vec![reshard_draw::layout(&"4:1".parse()?)?]));
/// let html = page.html();
/// assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<h1>a &lt; b</h1>"));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The title of the page.
    pub title: String,
    /// In words, the most important first.
    pub words: Vec<String>,
    /// From top to bottom.
    pub sections: Vec<Section>,
    /// The shards of the ranks in words, one row each.
    pub held: Vec<(usize, String)>,
}

/// A group of related pictures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The title of the section.
    pub title: String,
    /// The pictures.
    pub scenes: Vec<Scene>,
    /// `true` if the pictures are steps of one process and can be shown one at a time.
    pub are_steps: bool,
}

impl Section {
    /// Returns a section of pictures that are all seen.
    pub fn new(title: impl Into<String>, scenes: Vec<Scene>) -> Self {
        Self { title: title.into(), scenes, are_steps: false }
    }

    /// Returns a section of steps.
    #[doc(hidden)]
    pub fn of_steps(title: impl Into<String>, scenes: Vec<Scene>) -> Self {
        Self { title: title.into(), scenes, are_steps: true }
    }

    /// Writes it as the section of that number.
    fn write(&self, markup: &mut Markup, at: usize) {
        let heading = format!("section-{at}");
        let class = if self.are_steps && self.scenes.len() > 1 { "steps" } else { "all" };
        markup.raw("\n");
        markup.open("section", &[("aria-labelledby", &heading), ("class", class)]);
        markup.element("h2", &[("id", &heading)], &self.title);
        for (number, scene) in self.scenes.iter().enumerate() {
            let label = format!("picture {}.{}: {}", at + 1, number + 1, scene.title);
            markup.open("figure", &[]);
            markup.element("figcaption", &[], &scene.title);
            markup.open(
                "div",
                &[("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", &label)],
            );
            markup.raw(&scene.svg_element(false));
            markup.close("div");
            for note in &scene.notes {
                markup.element("p", &[("class", "note")], note);
            }
            markup.open("details", &[]);
            markup.element("summary", &[], "Description and text");
            markup.element("p", &[], &scene.about);
            let label = format!("text {}.{}: {}", at + 1, number + 1, scene.title);
            markup.open("pre", &[("tabindex", "0"), ("role", "region"), ("aria-label", &label)]);
            markup.lines(&scene.text(false));
            markup.close("pre");
            markup.close("details");
            markup.close("figure");
        }
        markup.close("section");
    }
}

impl Page {
    /// Returns a page without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Returns the same with one more section.
    #[must_use]
    pub fn with(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Returns the page as a file.
    ///
    /// Ensures that the page loads no other file, and that texts of values are escaped and never markup.
    pub fn html(&self) -> String {
        let mut markup = Markup::new();
        markup.raw("<!DOCTYPE html>\n");
        markup.open("html", &[("lang", "en")]);
        markup.open("head", &[]);
        markup.empty("meta", &[("charset", "utf-8")]);
        markup.empty("meta", &[("name", "viewport"), ("content", "width=device-width,initial-scale=1")]);
        markup.empty("meta", &[("name", "color-scheme"), ("content", "light dark")]);
        markup.empty("link", &[("rel", "icon"), ("href", "data:,")]);
        markup.element("title", &[], &titled(&self.title));
        markup.open("style", &[]);
        markup.raw(STYLE);
        markup.close("style");
        markup.close("head");
        markup.raw("\n");
        markup.open("body", &[]);
        markup.open("main", &[]);
        markup.element("h1", &[], &self.title);
        for words in &self.words {
            markup.element("p", &[], words);
        }
        // Filled by the script, and nothing without.
        markup.element("div", &[("id", "ranks"), ("hidden", "")], "");
        for (at, section) in self.sections.iter().enumerate() {
            section.write(&mut markup, at);
        }
        self.write_held(&mut markup);
        markup.close("main");
        markup.open("script", &[]);
        markup.raw(SCRIPT);
        markup.close("script");
        markup.close("body");
        markup.close("html");
        markup.raw("\n");
        markup.finish()
    }

    fn write_held(&self, markup: &mut Markup) {
        if self.held.is_empty() {
            return;
        }
        markup.open("section", &[("aria-labelledby", "held-by")]);
        markup.element("h2", &[("id", "held-by")], "Contents of each rank");
        markup.open(
            "div",
            &[
                ("class", "scroll"),
                ("tabindex", "0"),
                ("role", "region"),
                ("aria-label", "the contents of each rank"),
            ],
        );
        markup.open("table", &[("id", "held")]);
        markup.raw("<thead><tr><th scope=\"col\">rank</th><th scope=\"col\">holds</th></tr></thead>");
        markup.open("tbody", &[]);
        for (rank, words) in &self.held {
            let rank = rank.to_string();
            markup.open("tr", &[("data-rank", &rank)]);
            markup.element("th", &[("scope", "row")], &rank);
            markup.element("td", &[], words);
            markup.close("tr");
        }
        markup.close("tbody");
        markup.close("table");
        markup.close("div");
        markup.close("section");
    }
}

/// Returns the picture of a value for a notebook, without scripts and in at most 64 KiB.
///
/// It is the largest picture that the limits allow, or the text of the value if even the smallest is too
/// large.
///
/// ```
/// use reshard_draw::notebook;
/// use reshard_sharding::Mesh;
/// let mesh: Mesh = "x=1048576".parse()?;
/// let html = notebook(|limits| reshard_draw::mesh(&mesh, limits));
/// assert!(html.starts_with("<div") && html.len() <= 64 << 10);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
pub fn notebook(draw: impl Fn(Limits) -> Scene) -> String {
    let mut limits = Limits::USUAL;
    loop {
        let scene = draw(limits);
        let html = fragment(&scene, true);
        if html.len() <= NOTEBOOK_BYTES {
            return html;
        }
        if limits.are_least() {
            return fragment(&scene, false);
        }
        limits = limits.smaller();
    }
}

/// Returns a picture with its notes, or only the start of its title and its notes.
fn fragment(scene: &Scene, is_drawn: bool) -> String {
    let mut markup = Markup::new();
    markup.open("div", &[("style", "max-width:60em")]);
    markup.open("p", &[]);
    markup.element("code", &[], &titled(&scene.title));
    markup.close("p");
    if is_drawn {
        markup.open("div", &[("style", "overflow-x:auto")]);
        markup.raw(&scene.svg_element(false));
        markup.close("div");
    }
    for note in scene.notes.iter().take(16) {
        markup.element("p", &[], &titled(note));
    }
    if !is_drawn {
        markup.element("p", &[], "too large to draw here");
    }
    markup.close("div");
    markup.finish()
}
