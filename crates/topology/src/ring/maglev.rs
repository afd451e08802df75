//! Maglev hashing (Eisenbud and others, NSDI 2016).
//!
//! The description of the table, which has 65,537 entries: a server prefers the entries in the
//! order `offset + n * skip`, modulo the table's length. `offset` is the first half of the MD5 of
//! its ring name (little-endian) modulo the length. `skip` is the second half modulo the length
//! less one, plus one. Servers take turns by ring name, shorter ones first. In its turn a server
//! takes the first free entry that it prefers, until it has its share. A share is the length times
//! the weight over the sum of the weights, rounded down. The remaining entries go one each to the
//! servers with the largest remainders, and among equals to those whose turn is first. A key's
//! entry is the upper half of `mix(hash * 0x9e3779b97f4a7c15)` times the length, divided by 2^32.
//! None of this ever changes: keys would move.

use super::mix::{GOLDEN, mix, seeds};
use crate::Server;

/// Entries in the table: a prime, so that every `skip` visits them all. It is the paper's small
/// table. With more entries, shares would be no more even for up to hundreds of servers, and filling
/// would take longer.
pub(super) const ENTRIES: u32 = 65_537;

/// The server of each entry.
#[derive(Clone, Debug)]
pub(super) struct Table(Box<[u16]>);

/// A server that does not have all its entries yet.
struct Taker {
    server: u16,
    /// The entry that it tries next.
    next: u32,
    skip: u32,
    /// The number of entries that it still takes.
    left: u32,
}

impl Table {
    /// Builds the table of one member or more, which are in order of ring name.
    pub(super) fn build(servers: &[Server], members: &[u16]) -> Table {
        let shares = shares(servers, members);
        let mut takers: Vec<Taker> = members
            .iter()
            .zip(shares)
            .map(|(&server, left)| {
                let (first, second) = seeds(&servers[usize::from(server)].ring_name());
                let next = (first % u64::from(ENTRIES)) as u32;
                let skip = (second % u64::from(ENTRIES - 1)) as u32 + 1;
                Taker { server, next, skip, left }
            })
            .filter(|taker| taker.left > 0)
            .collect();
        let mut entries: Vec<Option<u16>> = vec![None; ENTRIES as usize];
        while !takers.is_empty() {
            let mut is_anyone_done = false;
            for taker in &mut takers {
                while entries[taker.next as usize].is_some() {
                    taker.next = (taker.next + taker.skip) % ENTRIES;
                }
                entries[taker.next as usize] = Some(taker.server);
                taker.left -= 1;
                is_anyone_done |= taker.left == 0;
            }
            if is_anyone_done {
                takers.retain(|taker| taker.left > 0);
            }
        }
        // The shares add up to the table's length, so every entry is taken.
        Table(entries.into_iter().map(|entry| entry.unwrap_or(members[0])).collect())
    }

    #[inline]
    pub(super) fn pick(&self, hash: u32) -> u16 {
        let number = mix(u64::from(hash).wrapping_mul(GOLDEN)) >> 32;
        self.0[((number * u64::from(ENTRIES)) >> 32) as usize]
    }
}

/// Returns the number of entries of each member. They add up to the table's length.
fn shares(servers: &[Server], members: &[u16]) -> Vec<u32> {
    let weight = |&member: &u16| u64::from(servers[usize::from(member)].weight);
    let total: u64 = members.iter().map(weight).sum();
    let exact = |member: &u16| u64::from(ENTRIES) * weight(member);
    let mut shares: Vec<u32> =
        members.iter().map(|member| (exact(member) / total) as u32).collect();
    let left = ENTRIES - shares.iter().sum::<u32>();
    let mut by_remainder: Vec<usize> = (0..members.len()).collect();
    // The sort is stable: among equals the server whose turn is first comes first.
    by_remainder.sort_by_key(|&index| std::cmp::Reverse(exact(&members[index]) % total));
    for &index in by_remainder.iter().take(left as usize) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(lines: &[&str]) -> Vec<Server> {
        lines.iter().map(|line| Server::parse(line).unwrap()).collect()
    }

    /// Builds the table as in the paper: servers take turns until every entry is taken.
    fn as_published(servers: &[Server], members: &[u16]) -> Vec<u16> {
        let permutation = |member: u16| {
            let (first, second) = seeds(&servers[usize::from(member)].ring_name());
            let entries = u64::from(ENTRIES);
            let (offset, skip) = (first % entries, second % (entries - 1) + 1);
            (0..entries).map(move |nth| ((offset + nth * skip) % entries) as usize)
        };
        let mut preferences: Vec<_> = members.iter().map(|&member| permutation(member)).collect();
        let mut table = vec![None; ENTRIES as usize];
        let mut free = ENTRIES;
        loop {
            for (preference, &member) in preferences.iter_mut().zip(members) {
                let entry = preference.find(|&entry| table[entry].is_none()).unwrap();
                table[entry] = Some(member);
                free -= 1;
                if free == 0 {
                    return table.into_iter().flatten().collect();
                }
            }
        }
    }

    #[test]
    fn equal_weights_fill_the_table_as_published() {
        let five = servers(&["a:1", "b:1", "c:1", "d:1", "e:1"]);
        for members in [&[0u16, 1, 2, 3, 4][..], &[0, 1, 3, 4], &[2], &[1, 2]] {
            assert_eq!(*Table::build(&five, members).0, as_published(&five, members));
        }
    }

    #[test]
    fn entries_left_over_go_to_the_largest_remainders_and_of_equals_to_the_first() {
        for weights in [&[1u32, 2, 4][..], &[3, 3, 3, 1], &[5, 4, 3, 2, 1], &[1, 1, 1], &[9, 70]] {
            let lines =
                weights.iter().enumerate().map(|(nth, weight)| format!("h{nth}:1:{weight}"));
            let servers: Vec<Server> = lines.map(|line| Server::parse(&line).unwrap()).collect();
            let members: Vec<u16> = (0..servers.len() as u16).collect();
            let shares = shares(&servers, &members);
            assert_eq!(shares.iter().sum::<u32>(), ENTRIES);
            let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            // Each member's remainder, and whether it got an entry more.
            let parts: Vec<(u64, bool)> = weights
                .iter()
                .zip(&shares)
                .map(|(&weight, &share)| {
                    let exact = u64::from(ENTRIES) * u64::from(weight);
                    (exact % total, u64::from(share) > exact / total)
                })
                .collect();
            for (index, &(remainder, has_more)) in parts.iter().enumerate() {
                for &(later, later_has_more) in &parts[index + 1..] {
                    assert!(remainder < later || has_more >= later_has_more, "{weights:?}");
                    assert!(remainder >= later || has_more <= later_has_more, "{weights:?}");
                }
            }
        }
    }

    #[test]
    fn shares_are_exact_to_one_entry() {
        let weights = [1u32, 1, 7, 2_147_483_647, 500_000_000, 3];
        let lines: Vec<String> =
            weights.iter().enumerate().map(|(nth, w)| format!("h{nth}:1:{w}")).collect();
        let all: Vec<Server> = lines.iter().map(|line| Server::parse(line).unwrap()).collect();
        for count in 1..=all.len() {
            let members: Vec<u16> = (0..count as u16).collect();
            let total: u64 = weights[..count].iter().map(|&weight| u64::from(weight)).sum();
            let table = Table::build(&all, &members);
            for &member in &members {
                let has = table.0.iter().filter(|&&server| server == member).count() as f64;
                let due =
                    f64::from(ENTRIES) * f64::from(weights[usize::from(member)]) / total as f64;
                assert!((has - due).abs() < 1.0, "{count} servers, {member}: {has} for {due}");
            }
        }
    }
}
