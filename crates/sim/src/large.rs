//! The rest at a client of the simulation when a large value was cut off.

/// Returns whether the unread rest is a part of a reply that the proxy passes on while it arrives.
/// No error can follow that, so the proxy closes the client when the server is lost.
pub fn is_part_of_large(input: &[u8]) -> bool {
    /// The smallest limit of the scenarios from which a value is large, without what precedes the
    /// value.
    const LARGE_LEN: usize = 400;
    /// That limit itself. The proxy measures a reply and not each of its items, because what it
    /// keeps of a reply takes the same memory either way. A list is passed on from the item that
    /// brings the reply to this length.
    const LARGE_LIST_LEN: usize = 512;
    let mut rest = input;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\r') {
        let line = String::from_utf8_lossy(&rest[..end]);
        let words: Vec<&str> = line.split(' ').collect();
        // In a list, any item may be the large one.
        let (len, is_listed) = match words[..] {
            [word] => (word.strip_prefix('$'), false),
            ["VALUE", _, _, len, ..] => (Some(len), true),
            ["VA", len, ..] => (Some(len), false),
            _ => (None, false),
        };
        let Some(len) = len.and_then(|len| len.parse::<usize>().ok()) else { return false };
        if len >= LARGE_LEN {
            return true;
        }
        let item_len = end + 2 + len + 2;
        let before = input.len() - rest.len();
        if is_listed && before + item_len >= LARGE_LIST_LEN {
            return true;
        }
        match rest.get(item_len..) {
            Some(behind) if is_listed => rest = behind,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_large_value_is_told_in_a_list_too() {
        assert!(is_part_of_large(b"$500\r\nxx") && !is_part_of_large(b"$300\r\nxx"));
        assert!(is_part_of_large(b"VALUE k 0 5\r\nhello\r\nVALUE l 0 900\r\nab"));
        assert!(!is_part_of_large(b"VALUE k 0 5\r\nhello\r\nVALUE l 0 9\r\nab"));
        assert!(!is_part_of_large(b"VALUE k 0 5\r\nhello\r\nEND\r\n") && !is_part_of_large(b""));
    }

    #[test]
    fn items_that_are_large_together_are_a_part_of_a_large_reply() {
        let item = |len: usize| format!("VALUE k 0 {len}\r\n{}\r\n", "x".repeat(len));
        let list = |lens: [usize; 2]| lens.map(item).concat();
        assert!(is_part_of_large(list([316, 287]).as_bytes()));
        assert!(!is_part_of_large(list([316, 116]).as_bytes()));
        // The last item announces the length of the reply before it has arrived.
        let cut = list([316, 287]);
        assert!(is_part_of_large(&cut.as_bytes()[..cut.len() - 200]));
    }
}
