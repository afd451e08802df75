//! Tests that a request allocates nothing in steady state. The allocator counts, and only the
//! worker's code.

use keyway_sim::{Mix, Options, Scenario, Sim, counting};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

fn count() {
    if counting::is_counted() {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting reads
// a thread-local flag without a destructor and allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// That of the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// That of the trait.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// # Safety
    /// That of the trait.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety
    /// That of the trait.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of replies after which every buffer has its final size. Until then buffers may grow.
const WARM_UP: u64 = 250_000;
/// Number of replies during which nothing may be allocated.
const MEASURED: u64 = 20_000;

fn allocations(mix: Mix, depth: usize, is_store: bool) -> u64 {
    let scenario = Scenario::steady(mix, depth, is_store);
    let mut sim = Sim::of(scenario, 1, &Options::default());
    sim.run_replies(WARM_UP).expect("no violation");
    let before = COUNT.load(Ordering::Relaxed);
    sim.run_replies(WARM_UP + MEASURED).expect("no violation");
    COUNT.load(Ordering::Relaxed) - before
}

/// There is only one test, because the count is that of the process.
#[test]
fn requests_allocate_nothing_in_steady_state() {
    // The counter itself works: a fresh worker must allocate.
    let mut sim = Sim::of(Scenario::steady(Mix::Gets, 1, false), 1, &Options::default());
    sim.run_replies(1).expect("no violation");
    assert!(COUNT.load(Ordering::Relaxed) > 0, "nothing is counted");
    for depth in [1, 16] {
        for mix in [Mix::Gets, Mix::Sets, Mix::GetsMany] {
            for is_store in [false, true] {
                let found = allocations(mix, depth, is_store);
                let place = if is_store { "on the store" } else { "through the proxy" };
                println!("{mix:?} {place}, depth {depth}: {found} in {MEASURED} requests");
                assert_eq!(found, 0, "{mix:?} {place}, depth {depth}");
            }
        }
    }
}
