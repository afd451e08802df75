use crate::Fault;
use crate::limits::KEY_LEN_MAX;
use std::fmt;
use std::sync::Arc;

/// A key below the cluster's own root: names with `/` between, like `groups/7`.
///
/// A name has 1 or more of letters, digits and `. _ - : @`, and is neither `.` nor `..`. The key
/// has at most [`KEY_LEN_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The beginning of keys: the bytes that every key below it begins with. The empty one is before
/// all keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(Arc<str>);

impl Key {
    /// Checks and takes the text of a key.
    ///
    /// # Errors
    /// Returns [`crate::FaultKind::Invalid`] if it is no key.
    pub fn new(text: &str) -> Result<Key, Fault> {
        if text.len() > KEY_LEN_MAX {
            return Err(Fault::invalid(format!("a key has more than {KEY_LEN_MAX} bytes")));
        }
        let is_name = |name: &str| {
            !name.is_empty() && name != "." && name != ".." && name.bytes().all(is_of_name)
        };
        if !text.split('/').all(is_name) {
            return Err(Fault::invalid(format!(
                "the key {text:?} is not names of A-Z a-z 0-9 . _ - : @ with / between"
            )));
        }
        Ok(Key(Arc::from(text)))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Prefix {
    /// Checks and takes the text of a prefix. Usually the text ends with `/`.
    ///
    /// # Errors
    /// Returns [`crate::FaultKind::Invalid`] if no key begins like this.
    pub fn new(text: &str) -> Result<Prefix, Fault> {
        let is_fine = text.len() <= KEY_LEN_MAX
            && !text.starts_with('/')
            && !text.contains("//")
            && text.bytes().all(|byte| byte == b'/' || is_of_name(byte));
        if !is_fine {
            return Err(Fault::invalid(format!("no key begins with {text:?}")));
        }
        Ok(Prefix(Arc::from(text)))
    }

    /// Returns the prefix of all keys.
    pub fn all() -> Prefix {
        Prefix(Arc::from(""))
    }

    /// Returns whether a key begins with it.
    pub fn holds(&self, key: &Key) -> bool {
        key.0.starts_with(&*self.0)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a cluster: 1 to 64 of the bytes that names of keys have.
pub(crate) fn check_cluster(name: &str) -> Result<(), Fault> {
    let is_fine = !name.contains('/') && name.len() <= 64 && Key::new(name).is_ok();
    if is_fine { Ok(()) } else { Err(Fault::invalid(format!("{name:?} is no name of a cluster"))) }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_with_slashes_between() {
        for good in ["leader", "groups/7", "proxies/10.0.0.1:6379", "a/b/c", "audit/0001", "x@y_z-"]
        {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "/", "/a", "a/", "a//b", ".", "a/..", "a b", "ä", "a!b", "a\0"] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert!(Key::new(&"a".repeat(KEY_LEN_MAX + 1)).is_err());
    }

    #[test]
    fn a_prefix_holds_the_keys_that_begin_with_it() {
        let groups = Prefix::new("groups/").unwrap();
        assert!(groups.holds(&Key::new("groups/7").unwrap()));
        assert!(!groups.holds(&Key::new("groupsx").unwrap()));
        assert!(Prefix::all().holds(&Key::new("leader").unwrap()));
        assert!(Prefix::new("/").is_err() && Prefix::new("a//").is_err());
    }
}
