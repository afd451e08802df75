//! Nodes of one process: their messages are in no memory that another process could open.

// Tests wait under a watchdog.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{Event, NodeId, SendOptions, Settings, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use std::time::{Duration, Instant};

fn driver(instance: u64, listen: Option<&Url>, upstream: Option<&Url>) -> Driver {
    let mut settings = Settings::of(NodeId(instance));
    settings.tokens.add(b"a token for these tests").unwrap();
    settings.place = here();
    settings.urls.extend(listen.cloned());
    let upstream = upstream.map(|url| Upstream { id: NodeId(1), urls: vec![url.clone()] });
    settings.upstreams.extend(upstream);
    Driver::new(settings, DriverSettings::default()).unwrap()
}

#[test]
fn memory_of_one_process_has_no_descriptor() {
    let url: Url = "mem://alone".parse().unwrap();
    let mut all = [driver(1, Some(&url), None), driver(2, None, Some(&url))];
    let start = Instant::now();
    let mut sent = None;
    'arrived: loop {
        assert!(start.elapsed() < Duration::from_secs(10));
        for driver in &mut all {
            driver.turn(Duration::from_millis(1)).unwrap();
            while let Some(event) = driver.poll_event() {
                if matches!(event, Event::Message { .. }) {
                    break 'arrived;
                }
            }
        }
        let node = all[1].node();
        if node.upstream().is_some() && sent.is_none() {
            let body = vec![7; 3 << 20];
            sent = node.send(NodeId(1), &body, SendOptions::default(), clock()).ok();
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("memfd:keyway-ring"), "{maps}");
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let target = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!target.to_string_lossy().contains("memfd"), "{target:?}");
    }
}
