//! No memcached request allocates once its items are there: counted by the
//! allocator, in this thread alone.

mod common;

use common::memcached::{LIMITS, context_at};
use keyway_memcache::{Parsed, Request, Wire, parse_request};
use keyway_store::{Store, StoreConfig};
use keyway_testkit::memcached_packet as packet;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: every call goes to the system's allocator unchanged; the count is a
// cell without a destructor, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn requests_allocate_nothing_in_steady_state() {
    let store = Store::new(StoreConfig::default());
    let many = (0..100).map(|key| format!(" key:{key}")).collect::<String>();
    let mut streams: Vec<Vec<u8>> = (0..100)
        .map(|key| format!("set key:{key} 3 0 10\r\n0123456789\r\n").into_bytes())
        .collect();
    for text in [
        &*format!("get{many}\r\n"),
        &*format!("gets{many}\r\n"),
        "get key:1\r\n",
        "get none\r\n",
        "gets key:1\r\n",
        "gat 100 key:2\r\n",
        "touch key:2 100\r\n",
        "set key:3 1 100 10\r\n0123456789\r\n",
        "append none 0 0 1\r\nx\r\n",
        "set n 0 0 2\r\n10\r\n",
        "incr n 1\r\n",
        "decr n 1\r\n",
        "ma n v t c\r\n",
        "mg key:4 v f t s k c O1\r\n",
        "mg key:4 h l v\r\n",
        "ms key:5 10 T100 c\r\n0123456789\r\n",
        "md none\r\n",
        "set gone 0 0 1\r\nx\r\n",
        "delete gone\r\n",
    ] {
        streams.push(text.as_bytes().to_vec());
    }
    streams.push(packet(0, 0, &[], b"key:6", &[]));
    streams.push(packet(1, 0, &[0; 8], b"key:7", b"0123456789"));
    streams.push(packet(0x1d, 0, &[0, 0, 0, 9], b"key:8", &[]));
    let (mut request, mut out) = (Request::default(), Vec::with_capacity(1 << 16));
    let mut counted = 0;
    for round in 0..100 {
        for stream in &streams {
            out.clear();
            let before = COUNT.get();
            let parsed = parse_request(stream, Wire::of(stream[0]), &LIMITS, &mut request);
            assert_eq!(parsed, Parsed::Ready { consumed: stream.len() });
            assert!(store.execute_memcached(
                &request,
                stream,
                context_at(1_700_000_000_000),
                &mut out
            ));
            if round >= 50 {
                counted += COUNT.get() - before;
            }
        }
    }
    assert_eq!(counted, 0, "allocations in 50 rounds of {} requests", streams.len());
}
