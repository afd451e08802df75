use crate::slow::SlowHash;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a password. Its debug form shows nothing of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of a password.
    pub fn of(password: &[u8]) -> Digest {
        Digest(Sha256::digest(password).into())
    }

    /// Parses 64 hexadecimal digits, with or without a `#` before them.
    pub fn parse(text: &str) -> Option<Digest> {
        let text = text.strip_prefix('#').unwrap_or(text).as_bytes();
        if text.len() != 64 || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Digest(bytes))
    }

    /// Returns whether it is the digest of `password`. The time depends only on lengths.
    pub fn is_of(&self, password: &[u8]) -> bool {
        self.is(&Digest::of(password)).into()
    }

    /// Returns whether both are equal, in constant time.
    pub fn equals(&self, other: &Digest) -> bool {
        self.is(other).into()
    }

    /// Returns whether both are equal, in constant time.
    pub(crate) fn is(&self, other: &Digest) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// Returns the text for a password in a configuration, as Redis writes it too: `#` and the SHA-256
/// in hexadecimal digits.
pub fn digest_text(password: &[u8]) -> String {
    let digits = Digest::of(password).0.map(|byte| format!("{byte:02x}"));
    format!("#{}", digits.concat())
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(hidden)")
    }
}

/// The passwords of a user.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Passwords {
    /// True if any password is right, and none is needed.
    pub(crate) is_open: bool,
    pub(crate) digests: Vec<Digest>,
    /// The hashes that are slow to check.
    pub(crate) slow: Arc<[SlowHash]>,
}

impl Passwords {
    pub(crate) fn add(&mut self, digest: Digest) {
        self.is_open = false;
        if !self.digests.contains(&digest) {
            self.digests.push(digest);
        }
    }

    /// Returns the number of passwords.
    pub(crate) fn len(&self) -> usize {
        self.digests.len() + self.slow.len()
    }

    /// Returns whether `given` is one of the digests. It always compares with all.
    pub(crate) fn contain(&self, given: &Digest) -> bool {
        let found = self.digests.iter().fold(Choice::from(0), |found, own| found | own.is(given));
        self.is_open | bool::from(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_redis() {
        let text = "#30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        assert_eq!(digest_text(b"pw"), text);
        assert_eq!(Digest::parse(text), Some(Digest::of(b"pw")));
        assert_eq!(Digest::parse(&text[1..].to_uppercase()), Some(Digest::of(b"pw")));
        for wrong in ["", "#", "#12", &text[..64], &format!("{text}0"), &text.replace('c', "g")] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_digest_is_of_one_password_alone() {
        let digest = Digest::of(b"pw");
        assert!(digest.is_of(b"pw"));
        for wrong in [&b""[..], b"p", b"pW", b"pw "] {
            assert!(!digest.is_of(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn any_of_the_passwords_is_right_and_no_other() {
        let mut passwords = Passwords::default();
        assert!(!passwords.contain(&Digest::of(b"")));
        passwords.add(Digest::of(b"a"));
        passwords.add(Digest::of(b"b"));
        for (given, right) in [(b"a", true), (b"b", true), (b"c", false)] {
            assert_eq!(passwords.contain(&Digest::of(given)), right);
        }
        passwords.digests.push(Digest::of(b"a"));
        assert!(passwords.contain(&Digest::of(b"a")), "twice is as good as once");
        passwords.is_open = true;
        assert!(passwords.contain(&Digest::of(b"c")) && passwords.contain(&Digest::of(b"a")));
    }
}
