//! The log lines about replicas that are refused. They come back every few seconds.

use parking_lot::Mutex;

/// The last refusal: who was refused, and why.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Option<(String, String)>>);

impl Refusals {
    /// Notes a refusal. Returns whether it is another than the one before, so that it is to be told.
    pub(super) fn note(&self, peer: &str, text: &str) -> bool {
        let mut last = self.0.lock();
        let is_new = last.as_ref().is_none_or(|last| (&*last.0, &*last.1) != (peer, text));
        if is_new {
            *last = Some((peer.to_owned(), text.to_owned()));
        }
        is_new
    }

    /// Forgets it, as a replica was taken in.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_comes_again_is_told_once() {
        let refusals = Refusals::default();
        assert!(refusals.note("a", "why") && !refusals.note("a", "why"));
        assert!(refusals.note("b", "why") && refusals.note("b", "else"));
        refusals.clear();
        assert!(refusals.note("b", "else"));
    }
}
