//! Scenes as SVG, which pages and notebooks use, too.
//!
//! Every part is a list of shapes in a separate box, and groups position boxes. Positions are multiples of a
//! pixel, or of a tenth where bars have a scale, so that equal scenes are equal bytes on every machine.
//! Elements are written and escaped by `quick-xml`. The crate `svg` would do as well; it has had no release
//! for long, and pages also need a writer of elements.

mod parts;

use crate::limits::short;
use crate::markup::Markup;
use crate::scene::Scene;

/// The width of a letter, and the height of a line.
const LETTER: i32 = 8;
const LINE: i32 = 18;

/// The maximum total width of adjacent parts, unless one alone needs more.
const WIDEST: i32 = 840;

/// The CSS of the classes, for light and dark backgrounds.
const STYLE: &str = ".rs{font:13px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}\
.rs .b{fill:#fff}.rs .t{fill:#1a1a1a}.rs .m{fill:#595959}.rs .k{fill:#111}.rs .h1{fill:#1a1a1a;font-weight:bold}\
.rs .l{stroke:#767676;fill:none}.rs .e{stroke:#767676;fill:#f2f2f2}.rs .c{stroke:#a8001c;stroke-width:3;fill:none}.rs .n{fill:#a8001c}\
.rs .a{stroke:#2f5f96;fill:none}.rs .d{fill:#2f5f96}.rs .s{stroke:#111;stroke-width:2.5}.rs .r{stroke:#767676}\
@media (prefers-color-scheme:dark){.rs .b{fill:#16181d}.rs .t,.rs .h1{fill:#ececec}.rs .m{fill:#b8b8b8}.rs .l{stroke:#8c8c8c}\
.rs .e{stroke:#8c8c8c;fill:#2a2d34}.rs .c{stroke:#ff8a80}.rs .n{fill:#ff8a80}.rs .a{stroke:#8ab4f8}.rs .d{fill:#8ab4f8}.rs .s{stroke:#fff}}";

/// A shape with its position.
#[derive(Clone, Debug)]
enum Shape {
    /// A rectangle: position, size, fill, class. In tenths of a pixel.
    Rect([i32; 4], Option<String>, &'static str),
    /// From here to there.
    Line([i32; 4], &'static str),
    /// A curve that starts and ends towards the right, and `true` if it ends in an arrow.
    Curve([i32; 4], bool),
    /// A text: where, whether its start, middle or end is there, class, text.
    Text([i32; 2], &'static str, &'static str, String),
    /// Starts a group of shapes that describe these ranks, with a hint.
    Open(Vec<usize>, String),
    /// To here.
    Close,
}

/// Shapes in a box whose upper left corner is at 0, in tenths of a pixel.
#[derive(Clone, Debug, Default)]
struct Picture {
    width: i32,
    height: i32,
    shapes: Vec<Shape>,
}

impl Picture {
    fn put(&mut self, x: i32, y: i32, other: Picture) {
        self.width = self.width.max(x + other.width);
        self.height = self.height.max(y + other.height);
        self.shapes.extend(other.shapes.into_iter().map(|shape| match shape {
            Shape::Rect([a, b, w, h], fill, class) => Shape::Rect([a + x, b + y, w, h], fill, class),
            Shape::Line([a, b, c, d], class) => Shape::Line([a + x, b + y, c + x, d + y], class),
            Shape::Curve([a, b, c, d], ends) => Shape::Curve([a + x, b + y, c + x, d + y], ends),
            Shape::Text([a, b], anchor, class, text) => Shape::Text([a + x, b + y], anchor, class, text),
            Shape::Open(ranks, hint) => Shape::Open(ranks, hint),
            Shape::Close => Shape::Close,
        }));
    }

    fn below(&mut self, space: i32, other: Picture) {
        let y = if self.height > 0 { self.height + space } else { 0 };
        self.put(0, y, other);
    }

    /// Lines of text, broken between words.
    fn of_text(text: &str, columns: usize, class: &'static str) -> Picture {
        let mut picture = Picture::default();
        for (at, line) in broken(&short(text, 1 << 12), columns).into_iter().enumerate() {
            let y = 10 * LINE * at as i32;
            picture.width = picture.width.max(letters(&line));
            picture.height = y + 10 * LINE;
            picture.shapes.push(Shape::Text([0, y + 130], "start", class, line));
        }
        picture
    }
}

/// Returns the width of a text, in tenths of a pixel.
fn letters(text: &str) -> i32 {
    crate::clean::width(text).min(1 << 16) as i32 * LETTER * 10
}

/// Breaks the text into lines of at most `columns` columns, between words, and within longer words.
pub(crate) fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        loop {
            let last = lines.last_mut().expect("there is one");
            let used = last.chars().count() + usize::from(!last.is_empty());
            if used + rest.len() <= columns || (rest.len() <= columns && last.is_empty()) {
                if !last.is_empty() {
                    last.push(' ');
                }
                last.extend(&rest);
                break;
            }
            if rest.len() > columns && last.is_empty() {
                last.extend(rest.drain(..columns));
            }
            lines.push(String::new());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

impl Scene {
    /// Returns the scene as an SVG file, with its title and text alternative.
    ///
    /// It has colours for light and dark backgrounds.
    pub fn svg(&self) -> String {
        let mut svg = self.svg_element(true);
        svg.push('\n');
        svg
    }

    /// Returns the element alone, with title and notes unless it is part of a page that has them.
    pub(crate) fn svg_element(&self, is_alone: bool) -> String {
        let mut inner = Picture::default();
        if is_alone {
            inner.below(0, Picture::of_text(&self.title, 92, "h1"));
        }
        for part in &self.parts {
            inner.below(100, parts::picture(part));
        }
        if is_alone {
            let columns = (inner.width / 10 / LETTER).clamp(60, 92) as usize;
            for note in &self.notes {
                inner.below(60, Picture::of_text(note, columns, "m"));
            }
        }
        let mut picture = Picture::default();
        picture.put(80, 80, inner);
        self.write(&picture)
    }

    fn write(&self, picture: &Picture) -> String {
        let (width, height) =
            ((picture.width + 80).div_euclid(10) + 1, (picture.height + 80).div_euclid(10) + 1);
        let (w, h) = (width.to_string(), height.to_string());
        let mut markup = Markup::new();
        markup.open(
            "svg",
            &[
                ("xmlns", "http://www.w3.org/2000/svg"),
                ("class", "rs"),
                ("width", &w),
                ("height", &h),
                ("viewBox", &format!("0 0 {w} {h}")),
                ("role", "img"),
                ("aria-label", &format!("{}. {}", self.title, self.about)),
                ("font-family", "monospace"),
                ("font-size", "13"),
            ],
        );
        markup.element("title", &[], &self.title);
        markup.element("desc", &[], &self.about);
        markup.open("style", &[]);
        markup.raw(STYLE);
        markup.close("style");
        markup.empty("rect", &[("class", "b"), ("width", &w), ("height", &h)]);
        for shape in &picture.shapes {
            write_shape(&mut markup, shape);
        }
        markup.close("svg");
        markup.finish()
    }
}

/// Tenths of a pixel as pixels.
fn px(tenths: i32) -> String {
    if tenths % 10 == 0 { (tenths / 10).to_string() } else { format!("{:.1}", f64::from(tenths) / 10.0) }
}

fn write_shape(markup: &mut Markup, shape: &Shape) {
    match shape {
        Shape::Rect([x, y, w, h], fill, class) => {
            let [x, y, w, h] = [px(*x), px(*y), px(*w), px(*h)];
            let mut attributes =
                vec![("x", x.as_str()), ("y", &y), ("width", &w), ("height", &h), ("class", class)];
            if let Some(fill) = fill {
                attributes.push(("fill", fill));
            }
            markup.empty("rect", &attributes);
        }
        Shape::Line([a, b, c, d], class) => {
            let [a, b, c, d] = [px(*a), px(*b), px(*c), px(*d)];
            markup.empty("line", &[("x1", &a), ("y1", &b), ("x2", &c), ("y2", &d), ("class", class)]);
        }
        Shape::Curve([a, b, c, d], ends_in_arrow) => {
            let end = if *ends_in_arrow { c - 60 } else { *c };
            let middle = px(a.midpoint(*c));
            let (y, to) = (px(*b), px(*d));
            let path = format!("M{} {y}C{middle} {y} {middle} {to} {} {to}", px(*a), px(end));
            markup.empty("path", &[("d", &path), ("class", "a")]);
            if *ends_in_arrow {
                let head = format!("M{} {}l-6 -4v8z", px(*c), to);
                markup.empty("path", &[("d", &head), ("class", "d")]);
            }
        }
        Shape::Text([x, y], anchor, class, text) => {
            let (x, y) = (px(*x), px(*y));
            let mut attributes = vec![("x", x.as_str()), ("y", &y), ("class", class)];
            if *anchor != "start" {
                attributes.push(("text-anchor", anchor));
            }
            markup.element("text", &attributes, text);
        }
        Shape::Open(ranks, hint) => {
            let ranks: Vec<String> = ranks.iter().take(64).map(usize::to_string).collect();
            let ranks = ranks.join(" ");
            let attributes: &[(&str, &str)] = if ranks.is_empty() { &[] } else { &[("data-ranks", &ranks)] };
            markup.open("g", attributes);
            if !hint.is_empty() {
                markup.element("title", &[], hint);
            }
        }
        Shape::Close => markup.close("g"),
    }
}

#[cfg(test)]
mod tests {
    use super::broken;

    #[test]
    fn lines_are_broken_between_words_and_nothing_is_lost() {
        assert_eq!(broken("ab cd efghijk l", 5), ["ab cd", "efghi", "jk l"]);
        let text = "a bb ccc dddd eeeee ffffff";
        for columns in 1..30 {
            let lines = broken(text, columns);
            assert!(lines.iter().all(|line| line.len() <= columns));
            assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        }
    }
}
