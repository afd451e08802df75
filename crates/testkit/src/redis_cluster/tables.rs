//! Slots, and CLUSTER NODES as the harness reads it.

/// Slots of a Redis Cluster.
pub const CLUSTER_SLOTS: u16 = 16384;

/// The slot of `key`, computed bit by bit: CRC-16/XMODEM of what is between the
/// first `{` and the `}` after it, or of all where nothing is.
pub fn cluster_slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let mut crc = 0_u16;
    for &byte in tag.unwrap_or(key) {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc % CLUSTER_SLOTS
}

/// A line of CLUSTER NODES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub id: String,
    pub is_myself: bool,
    pub is_primary: bool,
    /// Identity of its primary; `-` for a primary.
    pub primary: String,
    pub epoch: u64,
    /// When it last answered the node that was asked, by the clock of the day.
    pub pong_ms: u64,
    /// Whether the node that was asked is connected to it.
    pub is_linked: bool,
    /// First and last of each range.
    pub slots: Vec<(u16, u16)>,
}

impl Line {
    pub fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

pub(super) fn lines(text: &str) -> Vec<Line> {
    text.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [id, _, flags, primary, _, pong, epoch, link, slots @ ..] = &words[..] else { return None };
    let has = |flag| flags.split(',').any(|one| one == flag);
    Some(Line {
        id: (*id).to_owned(),
        is_myself: has("myself"),
        is_primary: has("master"),
        primary: (*primary).to_owned(),
        epoch: epoch.parse().ok()?,
        pong_ms: pong.parse().ok()?,
        is_linked: *link == "connected" && !has("handshake"),
        slots: slots.iter().filter_map(|word| range(word)).collect(),
    })
}

/// `7` or `7-9`; one in brackets is on its way, and told with its owner.
fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(cluster_slot(b"123456789"), 0x31C3);
        assert_eq!(cluster_slot(b"{user1000}.following"), cluster_slot(b"user1000"));
        assert_eq!(cluster_slot(b"foo{bar}{zap}"), cluster_slot(b"bar"));
        assert_ne!(cluster_slot(b"foo{}{bar}"), cluster_slot(b"bar"));
    }

    #[test]
    fn ranges_are_read_and_slots_on_the_way_are_not() {
        let text = "07c3 127.0.0.1:1@2,name myself,master - 0 0 7 connected 1-3 9 [5->-aa]\nx\n";
        let [line] = &lines(text)[..] else { panic!("one line") };
        assert_eq!(line.slots, [(1, 3), (9, 9)]);
        assert!(line.is_myself && line.is_primary && line.is_linked && line.epoch == 7);
        assert!(line.owns(2) && line.owns(9) && !line.owns(5));
    }
}
