//! Elements and texts, escaped: all content of an SVG or HTML file is written here.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

use crate::clean::clean;

/// A document that is being written.
pub(crate) struct Markup(Writer<Vec<u8>>);

impl Markup {
    pub(crate) fn new() -> Self {
        Self(Writer::new(Vec::new()))
    }

    // Writing to a vector does not fail.
    fn write(&mut self, event: Event<'_>) {
        let _ = self.0.write_event(event);
    }

    fn start<'a>(name: &'a str, attributes: &[(&str, &str)]) -> BytesStart<'a> {
        let mut start = BytesStart::new(name);
        for &(key, value) in attributes {
            start.push_attribute((key, &*clean(value)));
        }
        start
    }

    /// Begins an element.
    pub(crate) fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.write(Event::Start(Self::start(name, attributes)));
    }

    /// Ends it.
    pub(crate) fn close(&mut self, name: &str) {
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element without content, which ends itself.
    pub(crate) fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.write(Event::Empty(Self::start(name, attributes)));
    }

    /// Writes text within an element.
    pub(crate) fn text(&mut self, text: &str) {
        self.write(Event::Text(BytesText::new(&clean(text))));
    }

    /// Writes text of several lines, with the line breaks.
    pub(crate) fn lines(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            self.text(line.trim_end_matches('\n'));
            if line.ends_with('\n') {
                self.raw("\n");
            }
        }
    }

    /// Writes an element with one text.
    pub(crate) fn element(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.open(name, attributes);
        self.text(text);
        self.close(name);
    }

    /// Writes markup of this crate without escaping.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.0.get_mut().extend_from_slice(markup.as_bytes());
    }

    pub(crate) fn finish(self) -> String {
        // Everything that was written was text.
        String::from_utf8_lossy(&self.0.into_inner()).into_owned()
    }
}
