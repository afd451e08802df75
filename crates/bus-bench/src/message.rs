//! Messages: the number of each among its sender's, and that number's last byte throughout.

use crate::case::Sizes;

/// Draws lengths and fills messages.
pub struct Source {
    sizes: Sizes,
    state: u64,
    next: u64,
    room: Vec<u8>,
}

impl Source {
    /// The messages of sender number `sender`.
    pub fn new(sizes: Sizes, sender: usize) -> Source {
        let state = (sender as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Source { sizes, state, next: 0, room: vec![0; sizes.max] }
    }

    /// The next message.
    pub fn fill(&mut self) -> &[u8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let spread = (self.sizes.max - self.sizes.min + 1) as u64;
        // The upper half times the spread: evenly, without a division.
        let len = self.sizes.min + (((self.state >> 32) * spread) >> 32) as usize;
        let message = &mut self.room[..len];
        message.fill(self.next as u8);
        message[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        message
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.next
    }
}

/// Looks at the messages of one sender.
#[derive(Debug, Default)]
pub struct Sink {
    next: u64,
    count: u64,
}

impl Sink {
    /// Returns whether a message is the next one, and every byte of it right.
    pub fn check(&mut self, message: &[u8]) -> bool {
        self.count += 1;
        let Some((number, rest)) = message.split_first_chunk() else { return false };
        let number = u64::from_le_bytes(*number);
        let wrong = rest.iter().fold(0, |wrong, byte| wrong | (byte ^ number as u8));
        let is_right = number == self.next && wrong == 0;
        self.next = number.wrapping_add(1);
        is_right
    }

    /// How many have come, whatever they were.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { min: 8, max: 40 };

    #[test]
    fn messages_of_all_lengths_are_right() {
        let (mut source, mut sink) = (Source::new(SIZES, 3), Sink::default());
        let mut seen = [0; 41];
        for _ in 0..10_000 {
            let message = source.fill();
            seen[message.len()] += 1;
            assert!(sink.check(message));
        }
        assert_eq!((source.count(), sink.count()), (10_000, 10_000));
        assert!(seen[8..].iter().all(|&count| (150..=460).contains(&count)), "{seen:?}");
    }

    #[test]
    fn loss_disorder_and_any_wrong_byte_are_seen() {
        let mut source = Source::new(Sizes { min: 40, max: 40 }, 0);
        let messages: Vec<Vec<u8>> = (0..3).map(|_| source.fill().to_vec()).collect();
        for order in [&[1][..], &[0, 2], &[0, 0], &[0, 1, 0]] {
            let mut sink = Sink::default();
            let right = order.iter().filter(|&&nth: &&usize| sink.check(&messages[nth])).count();
            assert!(right < order.len(), "{order:?}");
            assert_eq!(sink.count(), order.len() as u64, "{order:?}");
        }
        for at in 0..40 {
            let mut message = messages[0].clone();
            message[at] ^= 4;
            assert!(!Sink::default().check(&message), "byte {at}");
        }
        assert!(!Sink::default().check(&messages[0][..7]));
    }
}
