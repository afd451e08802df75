//! SASL PLAIN, the one way to authenticate that needs no conversation.

/// What a client says with SASL PLAIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// Whom it wants to act for; empty for itself.
    pub authorization: &'a [u8],
    /// Who it is.
    pub user: &'a [u8],
    /// How it proves it.
    pub password: &'a [u8],
}

/// Takes the value of a [`crate::Verb::SaslStart`] of `PLAIN` apart: three
/// parts with NULs between. `None` when it is anything else.
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
