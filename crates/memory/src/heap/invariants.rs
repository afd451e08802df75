//! Laws of the heap: its counters equal what a plain count of its pages, runs and blocks gives.

use super::arena::SPARE_PAGES_MAX;
use super::pages::{CLASSES, HEADER_LEN, Page};
use super::*;
use crate::mapping::{ALIGN, Region};
use crate::runs::RUN_LEN_MAX;
use std::collections::BTreeSet;

/// A used slot, filled with a mark.
struct Used {
    slot: NonNull<u8>,
    len: usize,
    mark: u8,
}

impl Used {
    fn new(heap: &Heap, arena: usize, len: usize, mark: u8) -> Self {
        let slot = heap.slot(arena, len);
        // SAFETY: the slot has at least `len` bytes.
        unsafe { slot.write_bytes(mark, len) };
        Self { slot, len, mark }
    }

    fn page(&self) -> usize {
        page_of(self.slot).addr()
    }

    /// Frees the slot, after a check that it still contains the written bytes.
    fn free(self, heap: &Heap) {
        // SAFETY: the slot is live and was filled to `len`.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.slot.as_ptr(), self.len);
            assert!(bytes.iter().all(|byte| *byte == self.mark));
            assert_eq!(heap.free_slot(self.slot), block_len(self.len));
        }
    }

    /// Moves the slot if its page should become empty. Returns whether it did.
    fn relocate(&mut self, heap: &Heap, arena: usize) -> bool {
        // SAFETY: the slot is live; the old one is not used again.
        unsafe {
            let is_sparse = heap.is_sparse(self.slot);
            if is_sparse {
                assert!((*page_of(self.slot)).leaving);
                let from = self.page();
                self.slot = heap.relocate(arena, self.slot);
                assert_ne!(self.page(), from, "a page set aside gets no slot");
            }
            is_sparse
        }
    }
}

/// Returns the number of slots of a page, computed only from their length.
fn slots_of_page(slot_len: u32) -> u32 {
    (PAGE_LEN - HEADER_LEN) as u32 / slot_len
}

/// Returns the numbers of used and free slots for each page of a list.
fn read_list(mut page: *mut Page, leaving: bool) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut previous = std::ptr::null_mut();
    // SAFETY: pages in a list are live, and the heap's only user is this thread.
    while let Some(header) = unsafe { page.as_ref() } {
        assert_eq!((header.leaving, header.previous), (leaving, previous));
        let used = u32::from(header.used);
        found.push((used, slots_of_page(header.slot_len) - used));
        (previous, page) = (page, header.next);
    }
    found
}

/// Compares everything that the heap counts with what exists: used slots, and runs by their length.
fn check(heap: &Heap, used: &[Used], runs: i64) {
    let mut unreported = 0;
    let mut empty = heap.source.lock().warm.len();
    for arena in &heap.arenas {
        let arena = arena.lock();
        for class in 0..CLASSES {
            let partial = read_list(arena.partial[class], false);
            let leaving = read_list(arena.leaving[class], true);
            assert!(partial.iter().chain(&leaving).all(|(used, free)| *used > 0 && *free > 0));
            let free: u32 = partial.iter().map(|(_, free)| free).sum();
            let moving: u32 = leaving.iter().map(|(used, _)| used).sum();
            assert_eq!((arena.free_slots[class], arena.moving_slots[class]), (free, moving));
        }
        assert!(arena.unreported.abs() <= UNREPORTED_MAX, "{} unreported", arena.unreported);
        assert!(arena.spare.len() <= SPARE_PAGES_MAX);
        unreported += arena.unreported;
        empty += arena.spare.len();
    }
    let pages: BTreeSet<usize> = used.iter().map(Used::page).collect();
    assert_eq!(heap.page_bytes(), ((pages.len() + empty) * PAGE_LEN) as u64);
    let taken: usize = used.iter().map(|used| block_len(used.len)).sum();
    let idle = heap.page_bytes() as i64 - taken as i64 + heap.runs.lock().held() - runs;
    assert_eq!(heap.idle_bytes() + unreported, idle);
}

impl Heap {
    /// Returns the bytes of the used slots of a heap without runs.
    pub(crate) fn slot_bytes(&self) -> i64 {
        let unreported: i64 = self.arenas.iter().map(|arena| arena.lock().unreported).sum();
        self.page_bytes() as i64 - self.idle_bytes() - unreported
    }
}

/// Returns pseudo-random numbers.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn what_the_heap_counts_is_what_its_pages_and_runs_hold() {
    let heap = Heap::new(2);
    assert_eq!(heap.arena_count(), 2);
    let (mut used, mut blocks, mut runs) = (Vec::<Used>::new(), Vec::new(), 0);
    let (mut moved, mut released) = (0, 0);
    let mut state = 1;
    let steps = if cfg!(miri) { 300 } else { 6_000 };
    for step in 0..steps {
        let pick = next(&mut state);
        // The heap grows for a third of the steps, shrinks for a third, and grows again.
        let grows = if step / (steps / 3) == 1 { 3 } else { 8 };
        match pick % 16 {
            0 => {
                let block = heap.large([7_500, 50_000, 100_000][pick / 16 % 3]);
                // SAFETY: the block is live.
                runs += unsafe { large_bytes(block) } as i64;
                blocks.push(block);
            }
            1 if !blocks.is_empty() => {
                let block = blocks.swap_remove(pick / 16 % blocks.len());
                // SAFETY: the block is live and not used again.
                runs -= unsafe { heap.free_large(block) } as i64;
            }
            2 | 3 if !used.is_empty() => {
                let at = pick / 16 % used.len();
                moved += usize::from(used[at].relocate(&heap, pick % 2));
            }
            4 => {
                let warm = heap.source.lock().warm.len();
                let held = heap.page_bytes();
                let asked = pick / 16 % 3;
                assert_eq!(heap.release_pages(asked), asked <= warm);
                assert_eq!(held - heap.page_bytes(), (asked.min(warm) * PAGE_LEN) as u64);
                released += asked.min(warm);
            }
            way if way < 5 + grows => {
                let len = [8, 1_000, 3_000, 7_168][pick / 16 % 4];
                used.push(Used::new(&heap, pick % 2, len, pick as u8));
            }
            _ if !used.is_empty() => used.swap_remove(pick / 16 % used.len()).free(&heap),
            _ => {}
        }
        check(&heap, &used, runs);
    }
    assert!(cfg!(miri) || moved > 10 && released > 10, "{moved} moved, {released} released");
    used.into_iter().for_each(|used| used.free(&heap));
    check(&heap, &[], runs);
}

#[cfg_attr(miri, ignore = "all slots of all classes")]
#[test]
fn a_page_gives_as_many_slots_as_fit_before_another_is_taken() {
    for class in 0..CLASSES {
        let heap = Heap::new(1);
        let len = slot_len(class);
        let count = slots_of_page(len as u32);
        let first = page_of(heap.slot(0, len));
        assert!((1..count).all(|_| page_of(heap.slot(0, len)) == first), "slots of {len}");
        assert_ne!(page_of(heap.slot(0, len)), first, "slots of {len}");
        let count = u64::from(heap.arenas[0].lock().free_slots[class]);
        assert_eq!((count, heap.page_bytes()), (u64::from(slots_of_page(len as u32)) - 1, 2 << 16));
    }
}

#[test]
fn sparse_pages_are_emptied_and_one_set_aside_is_used_before_a_new_page() {
    let heap = Heap::new(1);
    let (len, per_page) = (3_072, 21);
    let mut all: Vec<Used> = (0..40 * per_page).map(|_| Used::new(&heap, 0, len, 9)).collect();
    let mut state = 7;
    while all.len() > 12 * per_page {
        let at = next(&mut state) % all.len();
        all.swap_remove(at).free(&heap);
    }
    let pages = |all: &[Used]| all.iter().map(Used::page).collect::<BTreeSet<_>>().len();
    assert!(pages(&all) > 35);
    // A page is set aside while its slots have not moved.
    // SAFETY: the slots are live.
    assert!(all.iter().any(|used| unsafe { heap.is_sparse(used.slot) }));
    check(&heap, &all, 0);
    while all.iter_mut().any(|used| used.relocate(&heap, 0)) {}
    check(&heap, &all, 0);
    assert!(pages(&all) <= 14, "{} pages for what fits in 12", pages(&all));

    // There are two pages, of which the first is set aside. Both are filled before a third is
    // taken.
    let heap = Heap::new(1);
    let mut all: Vec<Used> = (0..2 * per_page).map(|_| Used::new(&heap, 0, len, 9)).collect();
    for at in [25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5] {
        all.swap_remove(at).free(&heap);
    }
    // SAFETY: the slots are live.
    let aside: Vec<bool> = all.iter().map(|used| unsafe { heap.is_sparse(used.slot) }).collect();
    assert!(aside.contains(&true) && aside.contains(&false), "{aside:?}");
    check(&heap, &all, 0);
    while all.len() < 2 * per_page {
        all.push(Used::new(&heap, 0, len, 9));
        check(&heap, &all, 0);
    }
    assert_eq!(pages(&all), 2);
}

#[test]
fn a_page_is_sparse_from_a_tenth_of_its_slots_free() {
    for (len, per_page, enough) in [(6_144, 10, 1), (3_072, 21, 3)] {
        let heap = Heap::new(1);
        let all: Vec<Used> = (0..30 * per_page).map(|_| Used::new(&heap, 0, len, 9)).collect();
        let mut pages: Vec<Vec<Used>> = (0..30).map(|_| Vec::new()).collect();
        for (nth, used) in all.into_iter().enumerate() {
            pages[nth / per_page].push(used);
        }
        for free in 0..=enough {
            // SAFETY: the slot is live.
            let is_sparse = |page: &Vec<Used>| unsafe { heap.is_sparse(page[0].slot) };
            assert_eq!(pages.iter().any(is_sparse), free == enough, "{free} of {per_page} free");
            pages.iter_mut().filter_map(Vec::pop).for_each(|used| used.free(&heap));
        }
    }
}

#[test]
fn an_arena_keeps_two_empty_pages_and_the_rest_goes_back() {
    let heap = Heap::new(1);
    let used: Vec<Used> = (0..45).map(|_| Used::new(&heap, 0, SLOT_LEN_MAX, 1)).collect();
    let pages: BTreeSet<usize> = used.iter().map(Used::page).collect();
    assert_eq!(pages.len(), 5);
    used.into_iter().for_each(|used| used.free(&heap));
    assert_eq!(heap.arenas[0].lock().spare.len(), SPARE_PAGES_MAX);
    assert_eq!(heap.source.lock().warm.len(), 5 - SPARE_PAGES_MAX);
    assert!(heap.release_pages(2) && !heap.release_pages(2));
    assert_eq!(heap.page_bytes(), (SPARE_PAGES_MAX * PAGE_LEN) as u64);
    // Spare, warm and cold pages are used before the region's next ones.
    let all: Vec<Used> = (0..45).map(|_| Used::new(&heap, 0, SLOT_LEN_MAX, 1)).collect();
    assert_eq!(all.iter().map(Used::page).collect::<BTreeSet<_>>(), pages);
}

#[test]
fn a_region_is_handed_out_whole_before_another_is_mapped() {
    let heap = Heap::new(1);
    let mut source = heap.source.lock();
    for count in 1..200 {
        let (page, is_new) = source.take();
        let last = source.regions.len() - 1;
        assert!(is_new && source.regions[last].contains(page.cast()));
        let mapped: usize = source.regions.iter().map(Region::len).sum();
        let before: usize = source.regions[..last].iter().map(Region::len).sum();
        assert!((before + 1..=mapped).contains(&(count * PAGE_LEN)), "{count} pages of {mapped}");
    }
}

/// Returns whether the system was told to back the memory at an address with huge pages (`hg`), or
/// not to (`nh`). These are flags of the mapping.
#[cfg(all(target_os = "linux", not(miri)))]
fn has_flag(at: NonNull<u8>, flag: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the list of mappings");
    let mut is_here = false;
    for line in maps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        let ends = first.split_once('-').map(|(start, end)| [start, end]);
        if let Some([Ok(start), Ok(end)]) =
            ends.map(|ends| ends.map(|it| usize::from_str_radix(it, 16)))
        {
            is_here = (start..end).contains(&at.addr().get());
        } else if is_here && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split_whitespace().any(|it| it == flag);
        }
    }
    panic!("no mapping at {at:?}");
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn two_mebibytes_become_a_huge_page_once_handed_out_unless_part_of_them_was_given_back() {
    let probe = Region::map(usize::MAX / 2);
    assert!(probe.is_huge());
    probe.merge(0, ALIGN);
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return;
    }
    assert!(has_flag(probe.at(0), "hg") && !has_flag(probe.at(ALIGN), "hg"));

    let heap = Heap::new(1);
    let mut source = heap.source.lock();
    let per_part = ALIGN / PAGE_LEN;
    // A small store has no huge pages, even if memory is returned.
    let small: Vec<_> = (0..per_part).map(|_| source.take().0).collect();
    source.warm.push(small[3]);
    assert!(source.release_one());
    assert!(!has_flag(small[0].cast(), "hg") && !has_flag(small[0].cast(), "nh"));
    source.cold.clear();
    while !source.regions[source.regions.len() - 1].is_huge() {
        source.take();
    }
    let first: Vec<_> = std::iter::repeat_with(|| source.take().0).take(2 * per_part - 2).collect();
    let (whole, begun) = (first[0].cast(), first[per_part].cast());
    assert!(has_flag(whole, "hg") && !has_flag(begun, "hg"), "once all of it is handed out");
    // A page of the second part is returned before its last page is given out.
    source.warm.push(first[per_part]);
    assert!(source.release_one());
    source.cold.clear();
    source.take();
    assert!(has_flag(begun, "nh") && !has_flag(begun, "hg") && has_flag(whole, "hg"));
    let third: Vec<_> = std::iter::repeat_with(|| source.take().0).take(per_part).collect();
    assert!(has_flag(third[0].cast(), "hg"));
    // A page of a huge page is returned, and the system must get its memory.
    source.warm.push(third[5]);
    assert!(source.release_one());
    assert!([0, 5, per_part - 1].iter().all(|at| has_flag(third[*at].cast(), "nh")));
    assert!(first[..per_part - 1].iter().all(|page| has_flag(page.cast(), "hg")));
}

#[test]
fn a_lent_block_stays_until_its_last_loan_ends_and_counts_as_outside() {
    for capacity in [9_000, 300_000] {
        let heap = Heap::new(1);
        let block = heap.large(capacity);
        // SAFETY: the block is live until its last loan ends, and was filled.
        unsafe {
            block.write_bytes(5, capacity);
            let len = large_bytes(block) as i64;
            assert!(!is_lent(block));
            lend(block);
            lend(block);
            heap.end_loan(block);
            assert!(is_lent(block));
            assert_eq!((heap.outside_bytes(), heap.free_large(block)), (0, len as usize));
            assert_eq!((heap.outside_bytes(), heap.outside_held()), (len, len));
            lend(block);
            heap.end_loan(block);
            let bytes = std::slice::from_raw_parts(block.as_ptr(), capacity);
            assert!(heap.outside_bytes() == len && bytes.iter().all(|byte| *byte == 5));
            heap.end_loan(block);
        }
        assert_eq!(heap.outside_bytes(), 0);
        // A loan that ends earlier leaves the block to its owner.
        let block = heap.large(capacity);
        // SAFETY: the block is live until it is freed.
        unsafe {
            lend(block);
            heap.end_loan(block);
            assert!(!is_lent(block));
            heap.free_large(block);
        }
        assert_eq!(heap.outside_bytes(), 0);
        check(&heap, &[], 0);
    }
}

#[test]
fn reserved_bytes_are_outside_but_not_held() {
    let heap = Heap::new(1);
    heap.note_outside(100);
    heap.note_reserved(30);
    assert_eq!((heap.outside_bytes(), heap.outside_held()), (130, 100));
    heap.note_reserved(-10);
    heap.note_outside(-40);
    assert_eq!((heap.outside_bytes(), heap.outside_held()), (80, 60));
}

#[test]
fn a_block_of_its_own_keeps_its_bytes_at_every_change_of_length() {
    let heap = Heap::new(1);
    let lens =
        [7_169, 9_000, 131_056, 131_057, 300_000, 40_000, 2_000_000, 131_057, 131_056, 7_169];
    let mut len = lens[0];
    let mut block = heap.large(len);
    // SAFETY: the block has `len` bytes, of which all were written.
    unsafe {
        for at in 0..len {
            block.add(at).write(at as u8);
        }
        for new in lens.into_iter().skip(1) {
            let kept = len.min(new);
            block = heap.resize_large(block, new);
            assert!((0..kept).all(|at| block.add(at).read() == at as u8), "{len} to {new}");
            assert_eq!(large_bytes(block), block_len(new));
            assert_eq!(is_mapped(new), large_bytes(block) > RUN_LEN_MAX);
            // With the C library's header, it fills its pages.
            assert!(!is_mapped(new) || (large_bytes(block) + 16).is_multiple_of(4096));
            assert!(large_capacity(block) >= new && block.addr().get().is_multiple_of(16));
            for at in kept..new {
                block.add(at).write(at as u8);
            }
            len = new;
        }
        heap.free_large(block);
    }
    check(&heap, &[], 0);
}
