//! Libraries of functions: what FUNCTION LOAD and similar commands keep.

use crate::flags::ScriptFlags;
use keyway_base::Limits;
use keyway_resp::{ParseLimits, Parsed, parse_request};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of libraries. One more is refused.
const LIBRARIES_MAX: usize = 1_000;

/// Largest number of bytes of libraries. More are refused. Each worker compiles the libraries that
/// it needs.
const LIBRARIES_LEN_MAX: usize = 16 << 20;

const FULL: &str = "ERR Keyway keeps as many libraries of this pool as it may (1000, of 16 MiB); \
                    FUNCTION DELETE or FUNCTION FLUSH makes room";

/// A function of a library.
#[derive(Clone, Debug)]
pub struct FunctionInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// The description by its author.
    pub description: Option<Vec<u8>>,
    /// What it may do.
    pub flags: ScriptFlags,
    /// The flags as they were given.
    pub flag_names: Vec<&'static str>,
}

/// A library.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name.
    pub name: Vec<u8>,
    /// Its whole text.
    pub code: Arc<[u8]>,
    /// Its functions.
    pub functions: Vec<FunctionInfo>,
}

/// The libraries of a pool.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    by_name: Mutex<BTreeMap<Vec<u8>, Arc<Library>>>,
    /// Counts the changes. What a worker has compiled before a change may belong to another library
    /// now.
    epoch: AtomicU64,
}

/// What to do about existing libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// No existing library may have the same name.
    Append,
    /// New libraries replace those with the same name.
    Replace,
    /// New libraries replace all existing ones.
    Flush,
}

/// Returns the name in the first line of a library, and the index at which its text begins.
///
/// # Errors
/// Returns Redis's text for what is wrong with the line.
pub(crate) fn name_of(code: &[u8]) -> Result<(Vec<u8>, usize), String> {
    const INVALID: &str = "ERR Invalid library metadata";
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !code.starts_with(b"#!") {
        return Err("ERR Missing library metadata".to_owned());
    }
    let Some(end) = code.iter().position(|byte| *byte == b'\n') else {
        return Err(INVALID.to_owned());
    };
    let Some(words) = words_of(&code[..end]) else { return Err(INVALID.to_owned()) };
    let mut words = words.iter().map(Vec::as_slice);
    let engine = words.next().and_then(|word| word.get(2..)).unwrap_or_default();
    let mut name = None;
    for word in words {
        let is_name = |(key, _): &(&[u8], &[u8])| key.eq_ignore_ascii_case(b"name=");
        let Some((_, value)) = word.split_at_checked(5).filter(is_name) else {
            return Err(format!("ERR Invalid metadata value given: {}", text(word)));
        };
        if name.replace(value.to_vec()).is_some() {
            let text = "ERR Invalid metadata value, name argument was given multiple times";
            return Err(text.to_owned());
        }
    }
    let Some(name) = name else { return Err("ERR Library name was not given".to_owned()) };
    if !is_name(&name) {
        let text = "ERR Library names can only contain letters, numbers, or underscores(_) and \
                    must be at least one character long";
        return Err(text.to_owned());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("ERR Engine '{}' not found", text(engine)));
    }
    Ok((name, end))
}

/// Returns the words of a library's first line, which may be quoted like those of an inline
/// request. Returns `None` if a quote is not closed, or if the line is longer than an inline
/// request may be.
fn words_of(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut ranges, mut inline) = (Vec::new(), Vec::new());
    let limits = ParseLimits::of(&Limits::default());
    match parse_request(&[line, b"\n"].concat(), &limits, &mut ranges, &mut inline) {
        Ok(Parsed::Inline { .. }) => {
            Some(ranges.iter().map(|range| range.of(&inline).to_vec()).collect())
        }
        _ => None,
    }
}

/// Checks that this many libraries, with this many bytes, may be kept.
///
/// # Errors
/// Returns the text of the error for the client.
pub(crate) fn check_room(count: usize, len: usize) -> Result<(), String> {
    match count > LIBRARIES_MAX || len > LIBRARIES_LEN_MAX {
        true => Err(FULL.to_owned()),
        false => Ok(()),
    }
}

/// Returns whether two functions have the same name. Case makes no difference between libraries, as
/// in Redis. It does for the names of libraries themselves.
pub(crate) fn is_same(name: &[u8], other: &[u8]) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// Returns whether a library or function may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(is_fine)
}

impl Libraries {
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Notes a change. It is called with the libraries locked. A caller that reads the epoch before
    /// it looks up a library knows whether that is the newest.
    fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Library>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// Returns the library of a function, and the information about the function.
    pub(crate) fn find(&self, function: &[u8]) -> Option<(Arc<Library>, FunctionInfo)> {
        let by_name = self.by_name.lock();
        by_name.values().find_map(|library| {
            let info = library.functions.iter().find(|info| is_same(&info.name, function))?;
            Some((Arc::clone(library), info.clone()))
        })
    }

    /// Checks that a library may have this name.
    pub(crate) fn check_name(&self, name: &[u8], policy: Policy) -> Result<(), String> {
        let is_taken = policy == Policy::Append && self.by_name.lock().contains_key(name);
        match is_taken {
            false => Ok(()),
            true => Err(format!("ERR Library '{}' already exists", String::from_utf8_lossy(name))),
        }
    }

    /// Keeps libraries, all or none.
    pub(crate) fn keep(&self, added: Vec<Library>, policy: Policy) -> Result<(), String> {
        let mut by_name = self.by_name.lock();
        let mut all = match policy {
            Policy::Flush => BTreeMap::new(),
            Policy::Append | Policy::Replace => by_name.clone(),
        };
        for library in added {
            let old = all.remove(&library.name);
            if old.is_some() && policy != Policy::Replace {
                let name = String::from_utf8_lossy(&library.name);
                return Err(format!("ERR Library {name} already exists"));
            }
            let is_known = |name: &[u8]| {
                all.values().any(|it| it.functions.iter().any(|info| is_same(&info.name, name)))
            };
            if let Some(info) = library.functions.iter().find(|info| is_known(&info.name)) {
                let name = String::from_utf8_lossy(&info.name);
                return Err(format!("ERR Function {name} already exists"));
            }
            all.insert(library.name.clone(), Arc::new(library));
        }
        let len: usize = all.values().map(|library| library.code.len()).sum();
        check_room(all.len(), len)?;
        *by_name = all;
        self.changed();
        Ok(())
    }

    /// Removes a library. Returns whether it existed.
    pub(crate) fn delete(&self, name: &[u8]) -> bool {
        let mut by_name = self.by_name.lock();
        self.changed();
        by_name.remove(name).is_some()
    }

    /// Removes all.
    pub(crate) fn flush(&self) {
        let mut by_name = self.by_name.lock();
        self.changed();
        by_name.clear();
    }

    /// Returns the number of libraries, of functions, and of bytes of their texts.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let by_name = self.by_name.lock();
        let functions = by_name.values().map(|library| library.functions.len()).sum();
        let len = by_name.values().map(|library| library.code.len()).sum();
        (by_name.len(), functions, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, function: &str) -> Library {
        let info = FunctionInfo {
            name: function.into(),
            description: None,
            flags: ScriptFlags::default(),
            flag_names: Vec::new(),
        };
        Library { name: name.into(), code: b"code"[..].into(), functions: vec![info] }
    }

    #[test]
    fn a_library_is_named_in_its_first_line() {
        assert_eq!(name_of(b"#!lua name=lib_1\nx"), Ok((b"lib_1".to_vec(), 16)));
        for (code, words) in [
            (&b"return 1"[..], "Missing library metadata"),
            (b"#!lua name=x", "Invalid library metadata"),
            (b"#!js name=x\n", "Engine 'js' not found"),
            (b"#!lua\n", "name was not given"),
            (b"#!lua name=a-b\n", "only contain letters"),
            (b"#!lua name=a name=b\n", "multiple times"),
            (b"#!lua other=a\n", "given: other=a"),
        ] {
            let text = name_of(code).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn libraries_are_kept_all_or_none() {
        let libraries = Libraries::default();
        let append = |added| libraries.keep(added, Policy::Append);
        append(vec![library("a", "f")]).unwrap();
        assert!(append(vec![library("b", "g"), library("c", "f")]).is_err(), "f is known");
        assert!(append(vec![library("a", "h")]).is_err());
        assert_eq!(libraries.counts(), (1, 1, 4));
        libraries.keep(vec![library("a", "h")], Policy::Replace).unwrap();
        assert!(libraries.find(b"f").is_none() && libraries.find(b"h").is_some());
        assert!(libraries.find(b"H").is_some(), "case makes no difference");
        assert!(append(vec![library("b", "H")]).is_err(), "h is known");
        libraries.keep(vec![library("z", "f")], Policy::Flush).unwrap();
        let epoch = libraries.epoch();
        assert!(libraries.delete(b"z") && !libraries.delete(b"z"));
        assert!(libraries.epoch() > epoch);
    }
}
