//! No file of the crate imports another in a circle, but for a module and its children.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// By module path, the text of its file.
fn modules(dir: &Path, at: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let of = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}::{name}") };
        if path.is_dir() {
            modules(&path, &of(&name), found);
        } else if let Some(name) = name.strip_suffix(".rs").filter(|name| *name != "lib") {
            found.insert(of(name), fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns the paths of a text that begin with `crate::`, and a path for each name in braces.
fn paths(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        let (path, rest) = (rest[..end].trim_end_matches(':'), &rest[end..]);
        match rest.strip_prefix('{').and_then(|list| list.split_once('}')) {
            Some((list, _)) => found.extend(list.split(',').map(|item| format!("{path}::{}", item.trim()))),
            None => found.push(path.to_owned()),
        }
    }
    found
}

/// Returns the module that a path is in: its longest beginning that is one.
fn module_of<'a>(path: &str, modules: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let mut path = path;
    loop {
        if let Some((module, _)) = modules.get_key_value(path) {
            return Some(module);
        }
        path = &path[..path.rfind("::")?];
    }
}

#[test]
fn no_file_imports_another_in_a_circle() {
    let mut all = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut all);
    let is_inside = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with("::"));
    let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, text) in &all {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let others = paths(&code).into_iter().filter_map(|path| module_of(&path, &all));
        let others =
            others.filter(|other| other != module && !is_inside(other, module) && !is_inside(module, other));
        imports.insert(module, others.collect());
    }
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 200, "{imports:?}");
    // Files that import nothing that is left are taken away, until only circles are left.
    let mut left: BTreeSet<&str> = imports.keys().copied().collect();
    loop {
        let done = |module: &&str| imports[*module].iter().all(|other| !left.contains(other));
        let gone: Vec<&str> = left.iter().copied().filter(|module| done(module)).collect();
        if gone.is_empty() {
            break;
        }
        left.retain(|module| !gone.contains(module));
    }
    let named: Vec<String> = left
        .iter()
        .map(|module| {
            let others: Vec<&str> = imports[module].intersection(&left).copied().collect();
            format!("{module} imports {}", others.join(", "))
        })
        .collect();
    assert!(named.is_empty(), "in circles, or above them:\n{}", named.join("\n"));
}
