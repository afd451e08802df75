//! SASL PLAIN, the only authentication mechanism that needs no conversation.

/// What a client sends with SASL PLAIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// The user for whom it wants to act, or empty for itself.
    pub authorization: &'a [u8],
    /// Its own name.
    pub user: &'a [u8],
    /// Its password.
    pub password: &'a [u8],
}

/// Splits the value of a [`crate::Verb::SaslStart`] of `PLAIN` into its three parts, which are
/// separated by NULs. Returns `None` if it is anything else.
pub fn sasl_plain(value: &[u8]) -> Option<Plain<'_>> {
    let mut parts = value.split(|&byte| byte == 0);
    let plain =
        Plain { authorization: parts.next()?, user: parts.next()?, password: parts.next()? };
    (parts.next().is_none() && !plain.user.is_empty()).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_has_three_parts_and_a_user() {
        let plain = Plain { authorization: b"", user: b"me", password: b"secret" };
        assert_eq!(sasl_plain(b"\0me\0secret"), Some(plain));
        for value in [&b""[..], b"me", b"me\0secret", b"\0\0secret", b"\0me\0a\0b"] {
            assert_eq!(sasl_plain(value), None, "{value:?}");
        }
    }
}
