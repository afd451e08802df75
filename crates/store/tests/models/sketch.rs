//! HyperLogLog: an estimate is near what a set counts.

use crate::common::run_words;
use crate::{START, many};
use keyway_store::{Store, StoreConfig};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The standard error is 0.81 %: five of it, and small numbers are nearly
/// exact.
fn is_near(estimate: i64, count: usize) -> bool {
    (estimate - count as i64).unsigned_abs() as f64 <= 2.0 + 0.0405 * count as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_sketch_counts_nearly_as_a_set_does(
        runs in proptest::collection::vec((0..3usize, 0..60_000u16, 1..5000u16), 1..12),
    ) {
        let store = Store::new(StoreConfig { shards: Some(2), ..StoreConfig::default() });
        let mut sets = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        for (nth, from, count) in runs {
            let elements: Vec<Vec<u8>> = many(from, count).collect();
            let mut line: Vec<&[u8]> = vec![b"pfadd", keys[nth]];
            line.extend(elements.iter().map(Vec::as_slice));
            run_words(&store, START, &line);
            sets[nth].extend(elements);
        }
        for (key, set) in keys.iter().zip(&sets) {
            let estimate = run_words(&store, START, &[b"pfcount", key]).integer();
            prop_assert!(is_near(estimate, set.len()), "{estimate} for {}", set.len());
        }
        let all: BTreeSet<_> = sets.iter().flatten().collect();
        let together = run_words(&store, START, &[b"pfcount", b"a", b"b", b"c"]).integer();
        prop_assert!(is_near(together, all.len()), "{together} for {}", all.len());
        // Merged they count as together, and once more nothing changes.
        for _ in 0..2 {
            run_words(&store, START, &[b"pfmerge", b"all", b"a", b"b", b"c"]);
            prop_assert_eq!(run_words(&store, START, &[b"pfcount", b"all"]).integer(), together);
        }
    }
}
