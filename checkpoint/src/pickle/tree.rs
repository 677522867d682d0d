//! What a pickle says: nodes, each asked for what it must be.

use std::cell::Cell;

use super::globals::Global;
use super::machine;
use crate::error::Error;

/// A node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

/// What a node is. Texts and bytes are places in the pickle.
#[derive(Debug)]
pub(super) enum Node {
    None,
    Bool,
    Int(i64),
    /// An integer beyond 64 bits, or a number with a fraction: nothing here is made of one.
    Number,
    Text {
        start: u32,
        len: u32,
    },
    Bytes,
    Tuple(Box<[Id]>),
    /// The number of a list.
    List(u32),
    /// The number of a dict.
    Dict(u32),
    Set,
    Global(Box<Global>),
    /// What the file around the pickle has under this key.
    Persistent(Id),
    /// What a call would make.
    Made {
        /// The name that would be called.
        by: Id,
        args: Id,
        /// What it is given as its state afterwards; None itself is none.
        state: Id,
        /// The number of the dict that it is, if its name is one of dicts; else 0.
        entries: u32,
    },
}

/// What is said: nodes, and the lists and dicts that grow after they were made. A pickle of many chunks has some twenty nodes for
/// each of them, so they are small.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) lists: Vec<Vec<Id>>,
    /// The first is empty.
    pub(super) dicts: Vec<Vec<(Id, Id)>>,
}

impl Tree {
    pub(super) fn node(&self, id: Id) -> &Node {
        // Every number was given to a node when it was made.
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    pub(super) fn global(&self, id: Id) -> Option<Global> {
        if let Node::Global(global) = self.node(id) { Some(**global) } else { None }
    }
}

/// A pickle that was read.
pub(crate) struct Pickle<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) tree: Tree,
    pub(super) root: Id,
    /// How many more questions there may be.
    pub(super) questions: Cell<u64>,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle; names that are not on the list are refused.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        machine::read(bytes)
    }

    pub(crate) fn root(&self) -> Id {
        self.root
    }

    pub(crate) fn is_none(&self, id: Id) -> bool {
        matches!(self.node(id), Node::None)
    }

    pub(crate) fn is_text(&self, id: Id) -> bool {
        matches!(self.node(id), Node::Text { .. })
    }

    pub(crate) fn text(&self, id: Id, what: &str) -> Result<&'a str, Error> {
        let Node::Text { start, len } = *self.node(id) else { return Err(self.wrong(id, what, "a text")) };
        self.pay(1 + u64::from(len) / 16)?;
        let text = self.bytes.get(start as usize..(start + len) as usize).map(std::str::from_utf8);
        match text {
            Some(Ok(text)) => Ok(text),
            Some(Err(_)) | None => Err(refused(format!("{what} is not UTF-8"))),
        }
    }

    pub(crate) fn size(&self, id: Id, what: &str) -> Result<u64, Error> {
        self.pay(1)?;
        let Node::Int(value) = *self.node(id) else { return Err(self.wrong(id, what, "an integer")) };
        u64::try_from(value).map_err(|_| refused(format!("{what} is {value}, and cannot be negative")))
    }

    /// The parts of a tuple.
    pub(crate) fn tuple(&self, id: Id, what: &str) -> Result<&[Id], Error> {
        let Node::Tuple(parts) = self.node(id) else { return Err(self.wrong(id, what, "a tuple")) };
        self.pay(1 + parts.len() as u64)?;
        Ok(parts)
    }

    /// The parts of a list or a tuple; None for anything else.
    pub(crate) fn parts(&self, id: Id) -> Result<Option<&[Id]>, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "any other node has no parts")]
        let parts: &[Id] = match self.node(id) {
            Node::Tuple(parts) => parts,
            Node::List(list) => self.tree.lists.get(*list as usize).map_or(&[], Vec::as_slice),
            _ => return Ok(None),
        };
        self.pay(1 + parts.len() as u64)?;
        Ok(Some(parts))
    }

    /// The entries of a dict, ordered or not; None for anything else.
    pub(crate) fn entries(&self, id: Id) -> Result<Option<&[(Id, Id)]>, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "any other node has no entries")]
        let dict = match self.node(id) {
            Node::Dict(dict) => *dict,
            Node::Made { by, entries, .. } if self.global(*by) == Some(Global::OrderedDict) => *entries,
            _ => return Ok(None),
        };
        let entries = self.tree.dicts.get(dict as usize).map_or(&[][..], Vec::as_slice);
        self.pay(1 + entries.len() as u64)?;
        Ok(Some(entries))
    }

    /// The key of a dict as it is said in a name: a text, or an integer in digits; None for any other.
    pub(crate) fn key(&self, id: Id) -> Result<Option<String>, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "any other node is no key of ours")]
        match self.node(id) {
            Node::Text { .. } => self.text(id, "a key").map(|text| Some(text.to_owned())),
            Node::Int(value) => self.pay(1).map(|()| Some(value.to_string())),
            _ => Ok(None),
        }
    }

    pub(crate) fn global(&self, id: Id) -> Option<Global> {
        self.tree.global(id)
    }

    /// The key under which something outside is asked for.
    pub(crate) fn persistent(&self, id: Id) -> Option<Id> {
        if let Node::Persistent(key) = self.node(id) { Some(*key) } else { None }
    }

    /// The arguments of a call of one of these; None for anything else.
    pub(crate) fn call(&self, id: Id) -> Result<Option<(Global, &[Id])>, Error> {
        let Node::Made { by, args, .. } = *self.node(id) else { return Ok(None) };
        let Some(by) = self.global(by) else { return Ok(None) };
        Ok(Some((by, self.tuple(args, "the arguments of a call")?)))
    }

    /// What an object of a class was given as its state: the attributes, or another value.
    pub(crate) fn state(&self, id: Id, class: Global, what: &str) -> Result<Id, Error> {
        self.pay(1)?;
        if let Node::Made { by, state, .. } = *self.node(id)
            && self.global(by) == Some(class)
        {
            let has = !self.is_none(state);
            return has.then_some(state).ok_or_else(|| refused(format!("{what} has no attributes")));
        }
        Err(self.wrong(id, what, &format!("a {class:?}")))
    }

    /// Whether it is an object of this class.
    pub(crate) fn is(&self, id: Id, class: Global) -> bool {
        matches!(self.node(id), Node::Made { by, .. } if self.global(*by) == Some(class))
    }

    /// One attribute among those of a state; the last that has its name.
    pub(crate) fn attribute(&self, state: Id, name: &str) -> Result<Option<Id>, Error> {
        let entries = self.entries(state)?;
        let mut found = None;
        for (key, value) in entries.into_iter().flatten() {
            if let Node::Text { .. } = self.node(*key)
                && self.text(*key, "an attribute")? == name
            {
                found = Some(*value);
            }
        }
        Ok(found)
    }

    /// The same; refused where it is not there.
    pub(crate) fn needed(&self, state: Id, name: &str) -> Result<Id, Error> {
        self.attribute(state, name)?.ok_or_else(|| refused(format!("the attribute `{name}` is missing")))
    }

    fn node(&self, id: Id) -> &Node {
        self.tree.node(id)
    }

    /// Pays for what is made of its parts.
    pub(crate) fn pay(&self, price: u64) -> Result<(), Error> {
        let left = self.questions.get().checked_sub(price);
        let left = left.ok_or_else(|| refused("it says the same parts again and again".to_owned()))?;
        self.questions.set(left);
        Ok(())
    }

    fn wrong(&self, id: Id, what: &str, wanted: &str) -> Error {
        refused(format!("{what} is {}, and should be {wanted}", self.kind(id)))
    }

    /// What kind of thing it is, for people.
    pub(crate) fn kind(&self, id: Id) -> &'static str {
        match self.node(id) {
            Node::None => "None",
            Node::Bool => "a truth value",
            Node::Int(_) => "an integer",
            Node::Number => "a number",
            Node::Text { .. } => "a text",
            Node::Bytes => "bytes",
            Node::Tuple(_) => "a tuple",
            Node::List(_) => "a list",
            Node::Dict(_) => "a dict",
            Node::Set => "a set",
            Node::Global(_) => "a name",
            Node::Persistent(_) => "something in the file around it",
            Node::Made { .. } => "an object",
        }
    }
}

/// A pickle that is not taken.
pub(super) fn refused(why: String) -> Error {
    Error::refused("pickle", why)
}
