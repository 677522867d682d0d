//! The tree of a parsed pickle, with typed access to its nodes.

use std::cell::Cell;
use std::collections::HashSet;

use crate::error::Error;
use crate::formats::pickle::globals::Global;
use crate::shown::Shown;

/// The longest name of a class in a message, in characters.
const LONGEST_NAME: usize = 120;

/// A node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

/// A node of the tree; texts and bytes are ranges of the pickle.
#[derive(Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits, or a number with a fraction; its value is never used.
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
    Global(Box<Name>),
    /// The object that the file around the pickle stores under this key.
    Persistent(Id),
    /// The result of a call.
    Made {
        /// The name of the called function.
        by: Id,
        args: Id,
        /// The state that the object is given afterwards; the node of None if there is none.
        state: Id,
        /// The number of its dict, if the name is one of a dict or unknown; else 0.
        entries: u32,
    },
}

/// A name in a module, and the ranges of the two texts as starts and lengths.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) known: Option<Global>,
    pub(super) module: (u32, u32),
    pub(super) item: (u32, u32),
}

/// The nodes, and the lists and dicts, which grow after they are made.
///
/// A pickle of many chunks has about twenty nodes per chunk, so nodes are small.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) lists: Vec<Vec<Id>>,
    /// The first one is empty.
    pub(super) dicts: Vec<Vec<(Id, Id)>>,
}

impl Tree {
    pub(super) fn node(&self, id: Id) -> &Node {
        // Every number was assigned to a node when it was made, so the default is unreachable.
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    pub(super) fn global(&self, id: Id) -> Option<Global> {
        if let Node::Global(name) = self.node(id) { name.known } else { None }
    }
}

/// A parsed pickle.
pub(crate) struct Pickle<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) tree: Tree,
    pub(super) root: Id,
    /// The number of accesses that are left.
    pub(super) questions: Cell<u64>,
}

impl<'a> Pickle<'a> {
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    pub(crate) fn is_none(&self, id: Id) -> bool {
        matches!(self.node(id), Node::None)
    }

    /// Returns `true` for the truth value `true`; `false` for anything else.
    pub(crate) fn is_true(&self, id: Id) -> bool {
        matches!(self.node(id), Node::Bool(true))
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
            Some(Err(_)) | None => Err(malformed(format!("{what} is not UTF-8"))),
        }
    }

    pub(crate) fn size(&self, id: Id, what: &str) -> Result<u64, Error> {
        self.pay(1)?;
        let Node::Int(value) = *self.node(id) else { return Err(self.wrong(id, what, "an integer")) };
        u64::try_from(value).map_err(|_| malformed(format!("{what} is {value}, and cannot be negative")))
    }

    /// Returns the parts of a tuple.
    pub(crate) fn tuple(&self, id: Id, what: &str) -> Result<&[Id], Error> {
        let Node::Tuple(parts) = self.node(id) else { return Err(self.wrong(id, what, "a tuple")) };
        self.pay(1 + parts.len() as u64)?;
        Ok(parts)
    }

    /// Returns the parts of a list or a tuple; `None` for anything else.
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

    /// Returns the entries of a dict, ordered or not; `None` for anything else.
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

    /// Returns a dict key as it is written in a name: a text, or an integer in digits; `None` for any other.
    pub(crate) fn key(&self, id: Id) -> Result<Option<String>, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "any other node is not a supported key")]
        match self.node(id) {
            Node::Text { .. } => self.text(id, "a key").map(|text| Some(text.to_owned())),
            Node::Int(value) => self.pay(1).map(|()| Some(value.to_string())),
            _ => Ok(None),
        }
    }

    pub(crate) fn global(&self, id: Id) -> Option<Global> {
        self.tree.global(id)
    }

    /// Returns the key of a persistent object, which is stored outside of the pickle.
    pub(crate) fn persistent(&self, id: Id) -> Option<Id> {
        if let Node::Persistent(key) = self.node(id) { Some(*key) } else { None }
    }

    /// Returns the arguments of a call of a listed name; `None` for anything else.
    pub(crate) fn call(&self, id: Id) -> Result<Option<(Global, &[Id])>, Error> {
        let Node::Made { by, args, .. } = *self.node(id) else { return Ok(None) };
        let Some(by) = self.global(by) else { return Ok(None) };
        Ok(Some((by, self.tuple(args, "the arguments of a call")?)))
    }

    /// Returns the state that an object of a class was given: the attributes, or another value.
    pub(crate) fn state(&self, id: Id, class: Global, what: &str) -> Result<Id, Error> {
        self.pay(1)?;
        if let Node::Made { by, state, .. } = *self.node(id)
            && self.global(by) == Some(class)
        {
            let has = !self.is_none(state);
            return has.then_some(state).ok_or_else(|| malformed(format!("{what} has no attributes")));
        }
        Err(self.wrong(id, what, &format!("a {class:?}")))
    }

    /// Returns the state that an object was given, if it has one.
    pub(crate) fn attributes(&self, id: Id) -> Option<Id> {
        let Node::Made { state, .. } = *self.node(id) else { return None };
        (!self.is_none(state)).then_some(state)
    }

    /// Returns `true` if it is an object of this class.
    pub(crate) fn is(&self, id: Id, class: Global) -> bool {
        matches!(self.node(id), Node::Made { by, .. } if self.global(*by) == Some(class))
    }

    /// Returns the attribute of a state; the last one if several have the name.
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

    /// Returns the attribute of a state; an error if it is missing.
    pub(crate) fn needed(&self, state: Id, name: &str) -> Result<Id, Error> {
        self.attribute(state, name)?.ok_or_else(|| malformed(format!("the attribute `{name}` is missing")))
    }

    /// Returns the class of an object, like `argparse.Namespace`, if the class is unknown.
    pub(crate) fn unknown_class(&self, id: Id) -> Option<String> {
        let Node::Made { by, .. } = *self.node(id) else { return None };
        if self.global(by).is_some() { None } else { self.name(by) }
    }

    /// Returns a name with its module.
    fn name(&self, id: Id) -> Option<String> {
        let Node::Global(name) = self.node(id) else { return None };
        let text = |(start, len): (u32, u32)| {
            let text = self.bytes.get(start as usize..(start + len) as usize).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let whole = format!("{}.{}", text(name.module), text(name.item));
        Some(whole.chars().take(LONGEST_NAME).collect::<String>().shown())
    }

    /// Returns `true` if `found` is true of a node, or of one that it is made of.
    pub(crate) fn any_within(
        &self,
        id: Id,
        found: &mut dyn FnMut(Id) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let (mut left, mut seen) = (vec![id], HashSet::from([id.0]));
        while let Some(id) = left.pop() {
            self.pay(1)?;
            if found(id)? {
                return Ok(true);
            }
            let mut add = |id: Id| {
                if seen.insert(id.0) {
                    left.push(id);
                }
            };
            let add_entries = |dict: u32, add: &mut dyn FnMut(Id)| {
                for (key, value) in self.tree.dicts.get(dict as usize).into_iter().flatten() {
                    add(*key);
                    add(*value);
                }
            };
            match self.node(id) {
                Node::None
                | Node::Bool(_)
                | Node::Int(_)
                | Node::Number
                | Node::Text { .. }
                | Node::Bytes
                | Node::Set
                | Node::Global(_) => {}
                Node::Tuple(parts) => parts.iter().copied().for_each(add),
                Node::List(list) => {
                    self.tree.lists.get(*list as usize).into_iter().flatten().copied().for_each(add);
                }
                Node::Dict(dict) => add_entries(*dict, &mut add),
                Node::Persistent(key) => add(*key),
                Node::Made { args, state, entries, .. } => {
                    add(*args);
                    add(*state);
                    add_entries(*entries, &mut add);
                }
            }
        }
        Ok(false)
    }

    /// Returns `true` for a list.
    pub(crate) fn is_list(&self, id: Id) -> bool {
        matches!(self.node(id), Node::List(_))
    }

    fn node(&self, id: Id) -> &Node {
        self.tree.node(id)
    }

    /// Takes `price` accesses from the budget; called for everything that is derived from a part.
    pub(crate) fn pay(&self, price: u64) -> Result<(), Error> {
        let left = self.questions.get().checked_sub(price);
        let left =
            left.ok_or_else(|| unsupported("it refers to the same parts too many times".to_owned()))?;
        self.questions.set(left);
        Ok(())
    }

    /// Returns the error for a node of another kind than `wanted`.
    pub(crate) fn wrong(&self, id: Id, what: &str, wanted: &str) -> Error {
        let is = match (self.unknown_class(id), self.name(id)) {
            (Some(class), _) => format!("an object of the class `{class}`, which is not known"),
            (None, Some(name)) if self.global(id).is_none() => {
                format!("the name `{name}`, which is not known")
            }
            (None, _) => self.kind(id).to_owned(),
        };
        malformed(format!("{what} is {is}, but must be {wanted}"))
    }

    /// Returns the kind of the node, for messages.
    pub(crate) fn kind(&self, id: Id) -> &'static str {
        match self.node(id) {
            Node::None => "None",
            Node::Bool(_) => "a truth value",
            Node::Int(_) => "an integer",
            Node::Number => "a number",
            Node::Text { .. } => "a text",
            Node::Bytes => "bytes",
            Node::Tuple(_) => "a tuple",
            Node::List(_) => "a list",
            Node::Dict(_) => "a dict",
            Node::Set => "a set",
            Node::Global(_) => "a name",
            Node::Persistent(_) => "a reference to the surrounding file",
            Node::Made { .. } => "an object",
        }
    }
}

/// Returns the error for a pickle that does not follow the format.
pub(super) fn malformed(why: String) -> Error {
    Error::malformed("pickle", why)
}

/// Returns the error for a pickle with a feature that is not supported, or over a limit.
pub(super) fn unsupported(why: String) -> Error {
    Error::unsupported("pickle", why)
}
