use super::*;
use crate::items::{Encoding, Meta};
use keyway_memory::Heap;
use std::collections::BTreeMap;

const MARKS: Marks = Marks { frequency: 1, main: false, volatile: true };

/// A hash with few values, so that chains grow long.
fn poor(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash, byte| hash * 31 + u32::from(*byte)) & 0xffff
}

fn good(key: &[u8]) -> u32 {
    key.iter().fold(7u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
    }) as u32
}

struct Fixture {
    heap: Heap,
    table: Table,
    hash: fn(&[u8]) -> u32,
}

impl Fixture {
    fn new(hash: fn(&[u8]) -> u32) -> Self {
        Self { heap: Heap::new(1), table: Table::new(), hash }
    }

    fn position(&self, key: &[u8]) -> Option<Position> {
        self.table.find((self.hash)(key), |item, _| item.key() == key)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let meta = Meta::new(Encoding::Text, None);
        let memory = Memory { heap: &self.heap, arena: 0 };
        let item = Owned::create(memory, &meta, 0, key, value, value.len());
        self.table.insert(memory, (self.hash)(key), item, MARKS, self.hash);
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(position) = self.position(key) else { return false };
        let memory = Memory { heap: &self.heap, arena: 0 };
        self.table.remove(memory, position).free_block(&self.heap);
        true
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let memory = Memory { heap: &self.heap, arena: 0 };
        while let Some(item) = self.table.pop(memory) {
            item.free_block(&self.heap);
        }
        assert_eq!(self.table.len(), 0);
    }
}

#[test]
fn table_agrees_with_a_map() {
    for hash in [poor as fn(&[u8]) -> u32, good] {
        let mut fixture = Fixture::new(hash);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut state = 3u64;
        let steps = if cfg!(miri) { 1200 } else { 60_000 };
        for step in 0..steps {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = state >> 33;
            let key = (pick % 9000).to_string().into_bytes();
            let present = model.contains_key(&key);
            let adds = if step < steps / 2 {
                !(pick / 9000).is_multiple_of(4)
            } else {
                (pick / 9000).is_multiple_of(4)
            };
            if !adds {
                assert_eq!(fixture.remove(&key), model.remove(&key).is_some());
            } else if !present {
                let value = step.to_string().into_bytes();
                fixture.add(&key, &value);
                model.insert(key, value);
            }
            assert_eq!(fixture.table.len(), model.len());
        }
        for (key, value) in &model {
            let position = fixture.position(key).unwrap();
            assert_eq!(fixture.table.item(position).value(), &value[..]);
            assert_eq!(fixture.table.marks(position), MARKS);
        }
        for key in model.keys() {
            assert!(fixture.remove(key));
        }
        assert!(fixture.table.bucket_count() <= 2);
    }
}

#[test]
fn every_item_lies_in_the_span_of_its_bucket_and_spans_tile_the_space() {
    let mut fixture = Fixture::new(good);
    for number in 0..3000u32 {
        fixture.add(number.to_string().as_bytes(), b"");
        if number % 97 != 0 {
            continue;
        }
        let table = &fixture.table;
        let mut spans: Vec<_> =
            (0..table.bucket_count()).map(|bucket| (table.span(bucket), bucket)).collect();
        spans.sort_by_key(|(span, _)| span.start);
        let mut covered = 0;
        for (span, bucket) in spans {
            assert_eq!(span.start, covered);
            covered = span.end;
            for position in table.positions(bucket) {
                let hash = good(table.item(position).key());
                assert!(span.contains(&u64::from(hash.reverse_bits())));
                assert_eq!(table.bucket_of(hash), bucket);
            }
        }
        assert_eq!(covered, 1 << 32);
    }
}

#[test]
fn memory_per_item_is_the_same_at_any_size() {
    let mut fixture = Fixture::new(good);
    let mut sizes = Vec::new();
    for number in 0..40_000usize {
        fixture.add(number.to_string().as_bytes(), b"");
        if number > 10_000 && number % 1000 == 0 {
            sizes.push(fixture.table.bytes() / number);
        }
    }
    assert!(sizes.iter().all(|bytes| *bytes <= 13), "{sizes:?}");
}
