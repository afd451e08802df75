//! Shared secrets by which nodes accept each other.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::fmt;

/// Most tokens: the new one, the old one, and some more for difficult cases.
pub const TOKENS_MAX: usize = 5;
/// Least bytes of a token: an attacker who records a registration can try guesses offline.
pub const TOKEN_LEN_MIN: usize = 16;
/// Most bytes of a token.
pub const TOKEN_LEN_MAX: usize = 1024;
/// Bytes of a proof.
pub const PROOF_LEN: usize = 32;

/// Proof of knowing a token, for one registration.
pub(crate) type Proof = [u8; PROOF_LEN];

/// The side that proves: a proof cannot be sent back to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Dialler,
    Acceptor,
}

/// The secrets that are valid at the moment. There may be several, so that they can be changed node
/// by node.
#[derive(Clone, Default)]
pub struct Tokens(Vec<Vec<u8>>);

/// The reason why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Its length is not from [`TOKEN_LEN_MIN`] to [`TOKEN_LEN_MAX`].
    Length,
    /// There are more than [`TOKENS_MAX`].
    TooMany,
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenFault::Length => write!(f, "a token has {TOKEN_LEN_MIN} to {TOKEN_LEN_MAX} bytes"),
            TokenFault::TooMany => write!(f, "there are more than {TOKENS_MAX} tokens"),
        }
    }
}

impl std::error::Error for TokenFault {}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Adds a token.
    pub fn add(&mut self, token: &[u8]) -> Result<(), TokenFault> {
        if token.len() < TOKEN_LEN_MIN || token.len() > TOKEN_LEN_MAX {
            return Err(TokenFault::Length);
        }
        if self.0.len() >= TOKENS_MAX {
            return Err(TokenFault::TooMany);
        }
        self.0.push(token.to_vec());
        Ok(())
    }

    /// Returns whether there are none: then every node is accepted, and proves nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a proof by each token.
    pub(crate) fn proofs(&self, side: Side, transcript: &[u8; 32]) -> Vec<Proof> {
        self.0.iter().map(|token| proof(token, side, transcript)).collect()
    }

    /// Returns the index of the token that made one of `proofs`. It takes the same time whether one
    /// did or not.
    pub(crate) fn matching(
        &self,
        side: Side,
        transcript: &[u8; 32],
        proofs: &[u8],
    ) -> Option<usize> {
        let mut found = None;
        for (at, token) in self.0.iter().enumerate() {
            let mac = keyed(token, side, transcript);
            for given in proofs.chunks_exact(PROOF_LEN).take(TOKENS_MAX) {
                if mac.clone().verify_slice(given).is_ok() {
                    found = found.or(Some(at));
                }
            }
        }
        found
    }

    /// Returns the proof by the token at the index that [`Tokens::matching`] has returned.
    pub(crate) fn proof_by(&self, at: usize, side: Side, transcript: &[u8; 32]) -> Proof {
        proof(&self.0[at], side, transcript)
    }
}

fn keyed(token: &[u8], side: Side, transcript: &[u8; 32]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(token).expect("HMAC takes keys of any length");
    mac.update(match side {
        Side::Dialler => b"keyway-bus/1 dialler",
        Side::Acceptor => b"keyway-bus/1 acceptor",
    });
    mac.update(transcript);
    mac
}

fn proof(token: &[u8], side: Side, transcript: &[u8; 32]) -> Proof {
    keyed(token, side, transcript).finalize().into_bytes().into()
}

/// A digest of everything that was sent in a registration so far, each part with its length.
#[derive(Clone)]
pub(crate) struct Transcript(Sha256);

impl Transcript {
    pub fn new(binding: &[u8]) -> Self {
        let mut transcript = Self(Sha256::new());
        transcript.add(binding);
        transcript
    }

    pub fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub fn digest(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(of: &[&str]) -> Tokens {
        let mut tokens = Tokens::default();
        for one in of {
            tokens.add(one.as_bytes()).unwrap();
        }
        tokens
    }

    const OLD: &str = "the old token, long enough";
    const NEW: &str = "the new token, long enough";

    #[test]
    fn one_token_in_common_is_enough_and_none_is_not() {
        let said = [7; 32];
        let proofs = tokens(&[NEW, OLD]).proofs(Side::Dialler, &said).concat();
        assert_eq!(tokens(&[OLD]).matching(Side::Dialler, &said, &proofs), Some(0));
        assert_eq!(
            tokens(&["another token, as long"]).matching(Side::Dialler, &said, &proofs),
            None
        );
        assert_eq!(tokens(&[OLD]).matching(Side::Dialler, &said, b""), None);
    }

    #[test]
    fn a_proof_is_good_for_one_side_and_one_registration() {
        let proofs = tokens(&[OLD]).proofs(Side::Dialler, &[7; 32]).concat();
        assert_eq!(tokens(&[OLD]).matching(Side::Acceptor, &[7; 32], &proofs), None);
        assert_eq!(tokens(&[OLD]).matching(Side::Dialler, &[8; 32], &proofs), None);
    }

    #[test]
    fn tokens_are_bounded_and_never_shown() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.add(b"short"), Err(TokenFault::Length));
        for _ in 0..TOKENS_MAX {
            tokens.add(OLD.as_bytes()).unwrap();
        }
        assert_eq!(tokens.add(OLD.as_bytes()), Err(TokenFault::TooMany));
        assert_eq!(format!("{tokens:?}"), "Tokens(5)");
    }

    #[test]
    fn the_proof_is_hmac_sha256_of_label_and_transcript() {
        // It was made with Python's hmac: HMAC(token, b"keyway-bus/1 dialler" + bytes([7]) * 32).
        let proof = tokens(&[OLD]).proof_by(0, Side::Dialler, &[7; 32]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "137eb25d8ea24db3f7f23d23d10f54cc732e6a3258d984c284e16ba57eb0cbf3");
    }

    #[test]
    fn parts_of_a_transcript_do_not_run_into_each_other() {
        let digest = |parts: &[&[u8]]| {
            let mut transcript = Transcript::new(b"");
            parts.iter().for_each(|part| transcript.add(part));
            transcript.digest()
        };
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
