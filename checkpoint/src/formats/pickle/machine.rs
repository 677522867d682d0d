//! The instructions of a pickle, protocols 0 to 5, each translated to nodes.
//!
//! Instructions that run code without a name that can be checked (`INST`, `OBJ`, extension codes), or that
//! need external buffers, are errors.

use reshard_layout::internal::counted;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use crate::error::Error;
use crate::formats::pickle::globals;
use crate::formats::pickle::tree::{Id, Name, Node, Pickle, Tree, malformed, unsupported};

/// The memory in bytes that a tree may take.
const BUDGET: usize = 1 << 30;

/// The bytes of a node, a list or dict, a link between nodes and a memo entry, including spare capacity.
pub(super) const NODE: usize = 36;
pub(super) const GROWING: usize = 40;
pub(super) const LINK: usize = 8;
const MEMO: usize = 24;

/// The bytes of a memo entry if the indices ascend, as Python writes them.
const MEMO_IN_ORDER: usize = 8;

/// The numbers of shared nodes: None, the truth values, the empty tuple, and small integers.
const NONE: Id = Id(0);
const FALSE: Id = Id(1);
const TRUE: Id = Id(2);
const EMPTY: Id = Id(3);
const INTEGERS: u32 = 4;

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    tree: Tree,
    stack: Vec<Id>,
    /// The stack length at each mark.
    marks: Vec<usize>,
    /// The memo entries 0, 1, ..; `elsewhere` has the others.
    memo: Vec<Id>,
    elsewhere: HashMap<u32, Id>,
    budget: usize,
}

impl<'a> Pickle<'a> {
    /// Parses a pickle; a call of an unknown name is an opaque object.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        read_within(bytes, BUDGET)
    }
}

/// Reads a pickle within a memory budget.
pub(super) fn read_within(bytes: &[u8], budget: usize) -> Result<Pickle<'_>, Error> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(unsupported(format!(
            "it has {}, and at most 2^32 are supported",
            counted(bytes.len(), "byte", "bytes")
        )));
    }
    let mut nodes = vec![Node::None, Node::Bool(false), Node::Bool(true), Node::Tuple(Box::default())];
    nodes.extend((0..256).map(Node::Int));
    let tree = Tree { nodes, lists: Vec::new(), dicts: vec![Vec::new()] };
    let (stack, marks, memo, elsewhere) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
    let mut machine = Machine { bytes, at: 0, tree, stack, marks, memo, elsewhere, budget };
    let root = loop {
        let at = machine.at;
        let op = machine.byte()?;
        if let Some(root) = machine.step(op).map_err(|error| error.about(format_args!("byte {at}")))? {
            break root;
        }
    };
    // For an ordinary pickle every part is accessed a few times.
    let questions = Cell::new(16 * bytes.len() as u64 + 10_000);
    Ok(Pickle { bytes, tree: machine.tree, root, questions })
}

impl Machine<'_> {
    /// Executes one instruction; the last one returns the result.
    fn step(&mut self, op: u8) -> Result<Option<Id>, Error> {
        match op {
            // PROTO, FRAME: framing without content.
            0x80 => {
                let protocol = self.byte()?;
                if protocol > 5 {
                    return Err(unsupported(format!(
                        "it has protocol {protocol}; protocols 0 to 5 are supported"
                    )));
                }
            }
            0x95 => {
                self.take(8)?;
            }
            b'.' => return Ok(Some(self.pop()?)),
            b'(' => {
                self.pay(LINK)?;
                self.marks.push(self.stack.len());
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => drop(self.popped_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            // Constants and numbers.
            b'N' => self.push(NONE)?,
            0x88 => self.push(TRUE)?,
            0x89 => self.push(FALSE)?,
            b'K' => {
                let value = self.byte()?;
                self.push(Id(INTEGERS + u32::from(value)))?;
            }
            b'M' => {
                let value = self.number::<2>()?;
                self.make(Node::Int(value as i64))?;
            }
            b'J' => {
                let value = self.number::<4>()?;
                self.make(Node::Int(i64::from(value as u32 as i32)))?;
            }
            0x8a => {
                let len = usize::from(self.byte()?);
                self.long(len)?;
            }
            0x8b => {
                let len = self.number::<4>()? as usize;
                self.long(len)?;
            }
            b'I' | b'L' => {
                let line = self.line()?;
                match self.bytes.get(line).unwrap_or_default() {
                    b"00" => self.push(FALSE)?,
                    b"01" => self.push(TRUE)?,
                    digits => {
                        let digits = std::str::from_utf8(digits).unwrap_or_default();
                        let value = digits.strip_suffix('L').unwrap_or(digits).parse::<i64>();
                        self.make(value.map_or(Node::Number, Node::Int))?;
                    }
                }
            }
            b'G' => {
                self.take(8)?;
                self.make(Node::Number)?;
            }
            b'F' => {
                self.line()?;
                self.make(Node::Number)?;
            }
            // Texts and bytes stay in the pickle; nodes refer to them.
            b'X' => self.text::<4>()?,
            0x8c => self.text::<1>()?,
            0x8d => self.text::<8>()?,
            b'V' => {
                let line = self.line()?;
                if self.bytes[line.clone()].contains(&b'\\') {
                    return Err(unsupported(
                        "a string of protocol 0 with escapes is not supported".to_owned(),
                    ));
                }
                self.make(text(&line))?;
            }
            b'B' | b'T' => self.blob::<4>()?,
            b'C' | b'U' => self.blob::<1>()?,
            0x8e | 0x96 => self.blob::<8>()?,
            b'S' => {
                self.line()?;
                self.make(Node::Bytes)?;
            }
            // Containers.
            b')' => self.push(EMPTY)?,
            b't' => {
                let parts = self.popped_to_mark()?;
                self.make_tuple(parts)?;
            }
            0x85..=0x87 => {
                let count = usize::from(op - 0x84);
                let parts = self.popped(count)?;
                self.make_tuple(parts)?;
            }
            b']' => self.make_list(Vec::new())?,
            b'l' => {
                let parts = self.popped_to_mark()?;
                self.make_list(parts)?;
            }
            b'a' => {
                let part = self.popped(1)?;
                self.append(&part)?;
            }
            b'e' => {
                let parts = self.popped_to_mark()?;
                self.append(&parts)?;
            }
            b'}' => self.make_dict()?,
            b'd' => {
                let parts = self.popped_to_mark()?;
                self.make_dict()?;
                self.put(&parts)?;
            }
            b's' => {
                let parts = self.popped(2)?;
                self.put(&parts)?;
            }
            b'u' => {
                let parts = self.popped_to_mark()?;
                self.put(&parts)?;
            }
            0x8f => self.make(Node::Set)?,
            0x90 => {
                self.popped_to_mark()?;
                if !matches!(self.node(self.top()?), Node::Set) {
                    return Err(malformed("values are added to something that is not a set".to_owned()));
                }
            }
            0x91 => {
                self.popped_to_mark()?;
                self.make(Node::Set)?;
            }
            // Names, and calls of them, which become nodes.
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => {
                let [module, name] = self.popped_array::<2>()?;
                let (Some(module), Some(name)) = (self.range(module), self.range(name)) else {
                    return Err(malformed("a name is not a string".to_owned()));
                };
                self.global(&module, &name)?;
            }
            b'R' | 0x81 => {
                let [callee, args] = self.popped_array::<2>()?;
                self.call(callee, args)?;
            }
            0x92 => {
                let [callee, args, named] = self.popped_array::<3>()?;
                let entries =
                    if let Node::Dict(dict) = self.node(named) { Some(*dict as usize) } else { None };
                if entries.and_then(|dict| self.tree.dicts.get(dict)).is_some_and(Vec::is_empty) {
                    self.call(callee, args)?;
                } else if self.tree.global(callee).is_some() {
                    return Err(unsupported(
                        "an object made with keyword arguments is not supported".to_owned(),
                    ));
                } else {
                    self.make_tuple(vec![args, named])?;
                    let both = self.pop()?;
                    self.call(callee, both)?;
                }
            }
            b'b' => {
                let state = self.pop()?;
                let top = self.top()?;
                let Some(Node::Made { state: kept, .. }) = self.tree.nodes.get_mut(top.0 as usize) else {
                    return Err(malformed(
                        "attributes are set on something that is not an object".to_owned(),
                    ));
                };
                *kept = state;
            }
            b'Q' => {
                let key = self.pop()?;
                self.make(Node::Persistent(key))?;
            }
            // The memo.
            b'p' => {
                let index = self.index_in_digits()?;
                self.remember(index)?;
            }
            b'q' => {
                let index = u32::from(self.byte()?);
                self.remember(index)?;
            }
            b'r' => {
                let index = self.number::<4>()? as u32;
                self.remember(index)?;
            }
            0x94 => self.remember((self.memo.len() + self.elsewhere.len()) as u32)?,
            b'g' => {
                let index = self.index_in_digits()?;
                self.recall(index)?;
            }
            b'h' => {
                let index = u32::from(self.byte()?);
                self.recall(index)?;
            }
            b'j' => {
                let index = self.number::<4>()? as u32;
                self.recall(index)?;
            }
            b'i' | b'o' | b'P' | 0x82..=0x84 | 0x97 | 0x98 => {
                return Err(unsupported(format!("the pickle instruction {op:#04x} is not supported")));
            }
            _ => return Err(malformed(format!("{op:#04x} is not a pickle instruction"))),
        }
        Ok(None)
    }

    fn take(&mut self, len: usize) -> Result<Range<usize>, Error> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| {
            malformed(format!("it ends at byte {}, in the middle of an instruction", self.bytes.len()))
        })?;
        Ok(std::mem::replace(&mut self.at, end)..end)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let place = self.take(1)?;
        Ok(self.bytes[place.start])
    }

    /// Reads an unsigned number of `N` bytes.
    fn number<const N: usize>(&mut self) -> Result<u64, Error> {
        let place = self.take(N)?;
        Ok(self.bytes[place].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Result<Range<usize>, Error> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|byte| *byte == b'\n');
        let len = len.ok_or_else(|| malformed("a line does not end".to_owned()))?;
        let line = self.take(len)?;
        self.take(1)?;
        Ok(line)
    }

    fn index_in_digits(&mut self) -> Result<u32, Error> {
        let line = self.line()?;
        let digits = std::str::from_utf8(&self.bytes[line]).ok().and_then(|digits| digits.parse().ok());
        digits.ok_or_else(|| malformed("an index in the memo is not a number".to_owned()))
    }

    /// Reads an integer of any length, lowest byte first.
    fn long(&mut self, len: usize) -> Result<(), Error> {
        let place = self.take(len)?;
        let bytes = &self.bytes[place];
        let sign = if bytes.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
        let mut all = [sign; 8];
        let Some(low) = all.get_mut(..len) else { return self.make(Node::Number) };
        low.copy_from_slice(bytes);
        self.make(Node::Int(i64::from_le_bytes(all)))
    }

    fn text<const N: usize>(&mut self) -> Result<(), Error> {
        let len = self.number::<N>()?;
        let place = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.make(text(&place))
    }

    fn blob<const N: usize>(&mut self) -> Result<(), Error> {
        let len = self.number::<N>()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.make(Node::Bytes)
    }

    fn pay(&mut self, price: usize) -> Result<(), Error> {
        let left = self.budget.checked_sub(price);
        self.budget = left.ok_or_else(|| unsupported("its contents need too much memory".to_owned()))?;
        Ok(())
    }

    fn push(&mut self, id: Id) -> Result<(), Error> {
        self.pay(LINK)?;
        self.stack.push(id);
        Ok(())
    }

    fn make(&mut self, node: Node) -> Result<(), Error> {
        self.pay(NODE)?;
        let id = Id(self.tree.nodes.len() as u32);
        self.tree.nodes.push(node);
        self.push(id)
    }

    fn make_list(&mut self, parts: Vec<Id>) -> Result<(), Error> {
        self.pay(GROWING + LINK * parts.len())?;
        self.tree.lists.push(parts);
        self.make(Node::List((self.tree.lists.len() - 1) as u32))
    }

    /// Makes a new dict and returns its number.
    fn new_dict(&mut self) -> Result<u32, Error> {
        self.pay(GROWING)?;
        self.tree.dicts.push(Vec::new());
        Ok((self.tree.dicts.len() - 1) as u32)
    }

    fn make_dict(&mut self) -> Result<(), Error> {
        let dict = self.new_dict()?;
        self.make(Node::Dict(dict))
    }

    fn make_tuple(&mut self, parts: Vec<Id>) -> Result<(), Error> {
        if parts.is_empty() {
            return self.push(EMPTY);
        }
        // The boxed slice is a separate allocation.
        self.pay(2 * LINK + LINK * parts.len())?;
        self.make(Node::Tuple(parts.into_boxed_slice()))
    }

    fn node(&self, id: Id) -> &Node {
        self.tree.node(id)
    }

    /// Returns the stack position of the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, Error> {
        let top = self.stack.get(self.floor()..).and_then(<[Id]>::last).copied();
        top.ok_or_else(|| malformed("it pops more values than the stack has".to_owned()))
    }

    fn pop(&mut self) -> Result<Id, Error> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn popped(&mut self, count: usize) -> Result<Vec<Id>, Error> {
        let first = self.stack.len().checked_sub(count).filter(|first| *first >= self.floor());
        let first = first.ok_or_else(|| malformed("it pops more values than the stack has".to_owned()))?;
        Ok(self.stack.split_off(first))
    }

    fn popped_array<const N: usize>(&mut self) -> Result<[Id; N], Error> {
        let parts = self.popped(N)?;
        parts.try_into().map_err(|_| malformed("it pops more values than the stack has".to_owned()))
    }

    fn popped_to_mark(&mut self) -> Result<Vec<Id>, Error> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        let mark = mark.ok_or_else(|| malformed("it returns to a mark that does not exist".to_owned()))?;
        Ok(self.stack.split_off(mark))
    }

    fn append(&mut self, parts: &[Id]) -> Result<(), Error> {
        self.pay(2 * LINK * parts.len())?;
        let top = self.top()?;
        let not_a_list = || malformed("a value is appended to something that is not a list".to_owned());
        #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else has parts")]
        match *self.node(top) {
            Node::List(list) => {
                let list = self.tree.lists.get_mut(list as usize).ok_or_else(not_a_list)?;
                list.extend_from_slice(parts);
            }
            // A list of an unknown class: its parts are values.
            Node::Made { by, entries, .. } if self.tree.global(by).is_none() => {
                let entries = self.tree.dicts.get_mut(entries as usize).ok_or_else(not_a_list)?;
                entries.extend(parts.iter().map(|part| (NONE, *part)));
            }
            _ => return Err(not_a_list()),
        }
        Ok(())
    }

    fn put(&mut self, parts: &[Id]) -> Result<(), Error> {
        self.pay(2 * LINK * parts.len())?;
        if parts.len() % 2 == 1 {
            return Err(malformed("a dict has a key without a value".to_owned()));
        }
        let top = self.top()?;
        #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else has entries")]
        let dict = match self.node(top) {
            Node::Dict(dict) => Some(*dict),
            Node::Made { entries, .. } if *entries > 0 => Some(*entries),
            _ => None,
        };
        let entries = dict.and_then(|dict| self.tree.dicts.get_mut(dict as usize));
        let entries = entries
            .ok_or_else(|| malformed("an entry is added to something that is not a dict".to_owned()))?;
        entries.extend(parts.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    fn range(&self, id: Id) -> Option<Range<usize>> {
        let Node::Text { start, len } = *self.node(id) else { return None };
        Some(start as usize..start as usize + len as usize)
    }

    fn global(&mut self, module: &Range<usize>, name: &Range<usize>) -> Result<(), Error> {
        let said = |place: &Range<usize>| std::str::from_utf8(&self.bytes[place.clone()]).ok();
        let known = said(module).zip(said(name)).and_then(|(module, name)| globals::find(module, name));
        let short = |place: &Range<usize>| (place.start as u32, place.len() as u32);
        self.pay(GROWING)?;
        self.make(Node::Global(Box::new(Name { known, module: short(module), item: short(name) })))
    }

    fn call(&mut self, callee: Id, args: Id) -> Result<(), Error> {
        if !matches!(self.node(callee), Node::Global(_)) {
            return Err(malformed("it calls something that is not a name".to_owned()));
        }
        if !matches!(self.node(args), Node::Tuple(_)) {
            return Err(malformed("it calls a name with arguments that are not a tuple".to_owned()));
        }
        // An object of an unknown class may be a dict or a list, to which entries are added.
        let by = self.tree.global(callee);
        let grows = by.is_none_or(|by| by == globals::Global::OrderedDict);
        let entries = if grows { self.new_dict()? } else { 0 };
        if by.is_some() && grows {
            self.take_pairs(args, entries)?;
        }
        self.make(Node::Made { by: callee, args, state: NONE, entries })
    }

    /// Puts the entries with which an ordered dict is made, a dict or a list of pairs, into its dict.
    fn take_pairs(&mut self, args: Id, dict: u32) -> Result<(), Error> {
        let Node::Tuple(args) = self.node(args) else { return Ok(()) };
        let Some(first) = args.first() else { return Ok(()) };
        let pair = |part: &Id| {
            #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else is a pair")]
            let pair: &[Id] = match self.node(*part) {
                Node::Tuple(pair) => pair,
                Node::List(list) => self.tree.lists.get(*list as usize)?,
                _ => return None,
            };
            <[Id; 2]>::try_from(pair).ok().map(|[key, value]| (key, value))
        };
        #[allow(clippy::wildcard_enum_match_arm, reason = "an ordered dict is made of nothing else")]
        let pairs: Option<Vec<(Id, Id)>> = match self.node(*first) {
            Node::Dict(other) => self.tree.dicts.get(*other as usize).cloned(),
            Node::List(list) => {
                self.tree.lists.get(*list as usize).and_then(|parts| parts.iter().map(pair).collect())
            }
            Node::Tuple(parts) => parts.iter().map(pair).collect(),
            _ => None,
        };
        let Some(pairs) = pairs else {
            return Err(unsupported("an ordered dict is made of something other than pairs".to_owned()));
        };
        self.pay(2 * LINK * pairs.len())?;
        if let Some(entries) = self.tree.dicts.get_mut(dict as usize) {
            entries.extend(pairs);
        }
        Ok(())
    }

    fn remember(&mut self, index: u32) -> Result<(), Error> {
        let top = self.top()?;
        if index as usize == self.memo.len() && !self.elsewhere.contains_key(&index) {
            self.pay(MEMO_IN_ORDER)?;
            self.memo.push(top);
        } else if let Some(kept) = self.memo.get_mut(index as usize) {
            *kept = top;
        } else {
            self.pay(MEMO)?;
            self.elsewhere.insert(index, top);
        }
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), Error> {
        let id = self.memo.get(index as usize).or_else(|| self.elsewhere.get(&index)).copied();
        self.push(id.ok_or_else(|| malformed(format!("the memo has no entry {index}")))?)
    }
}

fn text(place: &Range<usize>) -> Node {
    Node::Text { start: place.start as u32, len: place.len() as u32 }
}
