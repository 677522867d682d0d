//! A pickle writer: protocol 2, which every Python since 2.3 reads, for values that the reader supports.

use std::collections::HashMap;

/// A pickle that is being written, from its beginning to its end.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The names that were written, and their memo indices.
    said: HashMap<(&'static str, &'static str), u32>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0x80, 2], said: HashMap::new() }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    pub(crate) fn none(&mut self) {
        self.bytes.push(b'N');
    }

    pub(crate) fn no(&mut self) {
        self.bytes.push(0x89);
    }

    pub(crate) fn size(&mut self, value: u64) {
        match (u8::try_from(value), i32::try_from(value)) {
            (Ok(value), _) => self.bytes.extend([b'K', value]),
            (_, Ok(value)) => {
                self.bytes.push(b'J');
                self.bytes.extend(value.to_le_bytes());
            }
            _ => {
                // Signed, lowest byte first; the ninth keeps it positive.
                self.bytes.extend([0x8a, 9]);
                self.bytes.extend(value.to_le_bytes());
                self.bytes.push(0);
            }
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        // A name is shorter than the header of its file, and a header is at most 100 MB.
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    pub(crate) fn global(&mut self, module: &'static str, name: &'static str) {
        let count = self.said.len() as u32;
        if let Some(index) = self.said.get(&(module, name)) {
            self.bytes.push(b'j');
            self.bytes.extend(index.to_le_bytes());
            return;
        }
        self.said.insert((module, name), count);
        self.bytes.push(b'c');
        self.bytes.extend(module.bytes().chain([b'\n']).chain(name.bytes()).chain([b'\n', b'r']));
        self.bytes.extend(count.to_le_bytes());
    }

    pub(crate) fn tuple(&mut self, parts: impl FnOnce(&mut Self)) {
        self.bytes.push(b'(');
        parts(self);
        self.bytes.push(b't');
    }

    pub(crate) fn list(&mut self, parts: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"](");
        parts(self);
        self.bytes.push(b'e');
    }

    /// Writes a dict; `entries` writes keys and values alternately.
    pub(crate) fn dict(&mut self, entries: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"}(");
        entries(self);
        self.bytes.push(b'u');
    }

    /// Writes a call of a name with arguments.
    pub(crate) fn call(&mut self, module: &'static str, name: &'static str, args: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.tuple(args);
        self.bytes.push(b'R');
    }

    /// Writes an object with a state.
    pub(crate) fn object(&mut self, module: &'static str, name: &'static str, state: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.bytes.extend([b')', 0x81]);
        state(self);
        self.bytes.push(b'b');
    }

    /// Writes an object without a state.
    pub(crate) fn empty_object(&mut self, module: &'static str, name: &'static str) {
        self.global(module, name);
        self.bytes.extend([b')', 0x81]);
    }

    /// Writes a reference to the object that the file around the pickle stores under a key.
    pub(crate) fn persistent(&mut self, key: impl FnOnce(&mut Self)) {
        self.tuple(key);
        self.bytes.push(b'Q');
    }

    pub(crate) fn sizes(&mut self, sizes: &[usize]) {
        self.tuple(|w| sizes.iter().for_each(|size| w.size(*size as u64)));
    }
}
