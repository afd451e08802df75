//! Addresses that fail, each with its reason, and certificates of both sides.

// Tests wait under a watchdog.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{Event, NodeId, Reason, Settings, Upstream, Url, certificate_name};
use keyway_channel::{Driver, DriverSettings, Unshared, clock, here};
use keyway_testkit::certificates::{Authority, Issued, Span};
use keyway_tls::{Identity, PeerSettings, PeerTls};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn id(instance: u64) -> NodeId {
    NodeId::of(1, 3, 1, instance).unwrap()
}

fn settings(instance: u64) -> Settings {
    let mut settings = Settings::of(id(instance));
    settings.tokens.add(b"a token for these tests").unwrap();
    settings.place = here();
    settings
}

fn below(mut settings: Settings, urls: &[Url]) -> Settings {
    settings.upstreams = vec![Upstream { id: NodeId::NONE, urls: urls.to_vec() }];
    settings
}

/// Runs both drivers until `is_so` holds for the first one's events. Panics after ten seconds.
fn turn_until(drivers: &mut [Driver], what: &str, mut is_so: impl FnMut(&[Event]) -> bool) {
    let start = Instant::now();
    let mut heard = Vec::new();
    while !is_so(&heard) {
        assert!(start.elapsed() < 10 * SECOND, "not within ten seconds: {what}: {heard:?}");
        for (at, driver) in drivers.iter_mut().enumerate() {
            driver.turn(Duration::from_millis(1)).unwrap();
            while let Some(event) = driver.poll_event() {
                if at == 0 {
                    heard.push(event);
                }
            }
        }
    }
}

/// Returns the reason reported for an address.
fn said_of(url: &str) -> Reason {
    let child = below(settings(2), &[url.parse().unwrap()]);
    let mut all = [Driver::new(child, DriverSettings::default()).unwrap()];
    let mut said = None;
    turn_until(&mut all, url, |heard| {
        said = heard.iter().find_map(|event| match event {
            Event::Unreached { at, reason, .. } => {
                assert_eq!(at.to_string(), url);
                Some(*reason)
            }
            _ => None,
        });
        said.is_some()
    });
    said.unwrap()
}

/// A listener that sends something to each client, reads what comes, and closes or not.
fn stranger(words: &'static [u8], stays: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(words);
            if stays {
                kept.push(stream);
            }
        }
    });
    url
}

#[test]
fn each_address_that_leads_nowhere_says_why() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp://{}", listener.local_addr().unwrap())
    };
    assert_eq!(said_of(&closed), Reason::NobodyListens);
    assert_eq!(said_of("unix:///nowhere/there"), Reason::NobodyListens);
    assert_eq!(said_of("tcp://name.invalid:1"), Reason::NoName);
    assert_eq!(
        said_of(&stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", true)),
        Reason::NotBus
    );
    assert_eq!(said_of(&stranger(b"-ERR unknown command\r\n", true)), Reason::NotBus);
    assert_eq!(said_of(&stranger(b"-ERR\r\n", false)), Reason::NotBus);
    assert_eq!(said_of(&stranger(b"", false)), Reason::HungUp);
    assert_eq!(said_of(&stranger(b"", true)), Reason::NoAnswer);
}

#[test]
fn a_wrong_token_says_so() {
    let mut root = Settings::of(id(1));
    root.tokens.add(b"another token, not theirs").unwrap();
    root.urls = vec!["tcp://127.0.0.1:0".parse().unwrap()];
    let root = Driver::new(root, DriverSettings::default()).unwrap();
    let at = root.urls();
    let child = Driver::new(below(settings(2), &at), DriverSettings::default()).unwrap();
    turn_until(&mut [child, root], "denied", |heard| {
        let is_denied =
            |event: &Event| matches!(event, Event::Unreached { reason: Reason::Denied, .. });
        heard.iter().any(is_denied)
    });
}

#[test]
fn a_socket_whose_backlog_is_full_holds_nothing_up() {
    let path = std::env::temp_dir().join(format!("keyway-backlog-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    // There are as many as there is room for: the next one would wait.
    let is_full = |reason: Reason| reason == Reason::Backlog;
    let url = format!("unix://{}", path.display());
    for _ in 0..4 {
        if is_full(said_of(&url)) {
            break;
        }
        waiting.push(url.clone());
    }
    assert!(waiting.len() < 4, "the backlog is never full");
    // A node goes on to the next address.
    let mut root = settings(1);
    root.urls = vec!["mem://backlog".parse().unwrap()];
    let root = Driver::new(root, DriverSettings::default()).unwrap();
    let urls = [url.parse().unwrap(), root.urls()[0].clone()];
    let child = Driver::new(below(settings(2), &urls), DriverSettings::default()).unwrap();
    turn_until(&mut [child, root], "joined by the next address", |heard| {
        heard.iter().any(|event| matches!(event, Event::Upstream(Some(_))))
    });
    std::fs::remove_file(&path).unwrap();
}

fn tls(authority: &str, issued: &Issued) -> DriverSettings {
    let files = [
        ("/ca", authority.to_owned()),
        ("/cert", issued.certificate.clone()),
        ("/key", issued.key.clone()),
    ];
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| "is not there".to_owned())
    };
    let identity = Identity { cert_file: "/cert".into(), key_file: "/key".into() };
    let settings = PeerSettings { ca_file: "/ca".into(), identity };
    let tls = PeerTls::load(&settings, &read).unwrap().tls;
    DriverSettings { tls: Some(tls), ..DriverSettings::default() }
}

/// Returns the outcome for a root with one certificate and a child with another, neither with a
/// token, and the reasons that the root reports.
fn secured(
    root_has: DriverSettings,
    child_has: DriverSettings,
) -> (Result<NodeId, Reason>, Vec<Reason>) {
    let mut root = Settings::of(id(1));
    root.tokens.add(b"a token that the child lacks").unwrap();
    root.urls = vec!["tcp://127.0.0.1:0".parse().unwrap()];
    let root = Driver::new(root, root_has).unwrap();
    let at = root.urls();
    let mut child = below(settings(2), &at);
    child.tokens = keyway_bus::Tokens::default();
    let child = Driver::new(child, child_has).unwrap();
    let mut all = [child, root];
    let (mut outcome, mut told) = (None, Vec::new());
    let start = Instant::now();
    while outcome.is_none() || (outcome.as_ref().is_some_and(Result::is_err) && told.is_empty()) {
        assert!(start.elapsed() < 10 * SECOND, "nothing came of it");
        for (at, driver) in all.iter_mut().enumerate() {
            driver.turn(Duration::from_millis(1)).unwrap();
            while let Some(event) = driver.poll_event() {
                match (at, event) {
                    (0, Event::Unreached { reason, .. }) => outcome = Some(Err(reason)),
                    (0, Event::Upstream(Some(id))) => outcome = Some(Ok(id)),
                    (1, Event::Refused { reason, .. }) => told.push(reason),
                    _ => {}
                }
            }
            if let Some(outcome) = outcome.filter(|_| start.elapsed() > 3 * SECOND) {
                return (outcome, told);
            }
        }
    }
    (outcome.unwrap(), told)
}

#[test]
fn certificates_let_in_whom_they_name_and_nobody_else() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let ca = &ours.certificate;
    let name = |instance: u64| certificate_name(id(instance));
    assert_eq!(name(2), "z1.proxy.1.2.bus.keyway");
    let root = || tls(ca, &ours.issue(&[&name(1)]));
    let child = || tls(ca, &ours.issue(&[&name(2)]));
    assert_eq!(secured(root(), child()).0, Ok(id(1)));
    // The certificate belongs to another node.
    let thief = secured(root(), tls(ca, &ours.issue(&[&name(3)])));
    assert_eq!(thief, (Err(Reason::CertificateName), vec![Reason::CertificateName]));
    let liar = secured(tls(ca, &ours.issue(&[&name(3)])), child());
    assert_eq!(liar.0, Err(Reason::CertificateName));
    // The certificate is of an authority that the other side does not know, for either side.
    let stranger = secured(root(), tls(ca, &others.issue(&[&name(2)])));
    assert_eq!(stranger, (Err(Reason::CertificateRefused), vec![Reason::Untrusted]));
    let impostor = secured(tls(ca, &others.issue(&[&name(1)])), child());
    assert_eq!(impostor.0, Err(Reason::Untrusted));
    // The certificate has expired, or is not valid yet, for either side.
    let late = secured(root(), tls(ca, &ours.issue_for(&[&name(2)], Span::Expired)));
    assert_eq!(late, (Err(Reason::CertificateExpired), vec![Reason::Expired]));
    let late = secured(tls(ca, &ours.issue_for(&[&name(1)], Span::Expired)), child());
    assert_eq!(late.0, Err(Reason::Expired));
    let early = secured(tls(ca, &ours.issue_for(&[&name(1)], Span::Future)), child());
    assert_eq!(early.0, Err(Reason::Expired));
}

#[test]
fn one_that_speaks_no_tls_is_told_apart() {
    let ours = Authority::new("ours");
    let with = || tls(&ours.certificate, &ours.issue(&[&certificate_name(id(1))]));
    let plain = secured(with(), DriverSettings::default());
    assert_eq!(plain.1, [Reason::NotTls]);
    assert!(plain.0.is_err());
    let at_plain = secured(DriverSettings::default(), with());
    assert!(matches!(at_plain.0, Err(Reason::NotTls | Reason::HungUp)), "{at_plain:?}");
}

#[test]
fn a_guest_shows_a_guest_s_certificate_and_large_messages_go_through() {
    let ours = Authority::new("ours");
    let ca = &ours.certificate;
    let mut root = Settings::of(id(1));
    root.urls = vec!["tcp://127.0.0.1:0".parse().unwrap()];
    let root = Driver::new(root, tls(ca, &ours.issue(&[&certificate_name(id(1))]))).unwrap();
    let at = root.urls();
    let guest = Settings::of(NodeId::NONE);
    let guest =
        Driver::new(below(guest, &at), tls(ca, &ours.issue(&["guest.bus.keyway"]))).unwrap();
    let mut all = [guest, root];
    turn_until(&mut all, "a guest is let in", |heard| {
        heard.iter().any(|event| matches!(event, Event::Upstream(Some(_))))
    });
    let body: Vec<u8> =
        (0..9_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let options = keyway_bus::SendOptions { ack_within: Some(10 * SECOND), ..Default::default() };
    let seq = all[0].node().send(id(1), &body, options, keyway_channel::clock()).unwrap();
    turn_until(&mut all, "nine megabytes arrive", |heard| heard.contains(&Event::Acked { seq }));
}

#[test]
fn a_file_in_the_way_of_a_socket_is_kept_and_said_to_be_there() {
    let folder = keyway_testkit::TempDir::new();
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    for scheme in ["unix", "shm"] {
        let mut settings = settings(1);
        settings.urls = vec![format!("{scheme}://{}", file.display()).parse().unwrap()];
        let refused = Driver::new(settings, DriverSettings::default()).err().unwrap();
        assert!(refused.to_string().contains("a file that is no socket is there"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
}

#[test]
fn a_socket_whose_process_stands_still_is_in_use_and_one_that_was_left_is_replaced() {
    let folder = keyway_testkit::TempDir::new();
    let path = folder.path().join("socket");
    let url: Url = format!("unix://{}", path.display()).parse().unwrap();
    let listen = || {
        let mut settings = settings(1);
        settings.urls = vec![url.clone()];
        Driver::new(settings, DriverSettings::default())
    };
    let full = full_backlog(&path);
    let start = Instant::now();
    let refused = listen().err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    assert!(start.elapsed() < SECOND, "it waits for who stands still");
    drop(full);
    listen().unwrap();
}

/// Returns a listener that accepts nothing more, and the clients that wait there.
fn full_backlog(path: &Path) -> (UnixListener, Vec<rustix::fd::OwnedFd>) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    let listener = UnixListener::bind(path).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let addr = SocketAddrUnix::new(path).unwrap();
    let mut waiting = Vec::new();
    loop {
        assert!(waiting.len() < 100, "it takes any number");
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::STREAM, flags, None).unwrap();
        if rustix::net::connect(&socket, &addr).is_err() {
            return (listener, waiting);
        }
        waiting.push(socket);
    }
}

#[test]
fn an_address_that_shares_no_memory_is_told_of_and_spoken_to_over_its_socket() {
    let path = std::env::temp_dir().join(format!("keyway-unshared-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; keyway_ring::HELLO_LEN]).unwrap();
        keyway_ring::refuse(&socket, keyway_ring::Refusal::User).unwrap();
        // The first bytes of a dialler of the bus come over the socket.
        let mut first = [0; 40];
        socket.read_exact(&mut first).unwrap();
        first
    });
    let url: Url = format!("shm://{}", path.display()).parse().unwrap();
    let mut one = settings(2);
    one.upstreams = vec![Upstream { id: NodeId::NONE, urls: vec![url.clone()] }];
    let mut driver = Driver::new(one, DriverSettings::default()).unwrap();
    let start = clock();
    let unshared = loop {
        driver.turn(Duration::from_millis(10)).unwrap();
        if let Some(unshared) = driver.poll_unshared() {
            break unshared;
        }
        assert!(clock().since(start) < Duration::from_secs(20), "nothing is told");
    };
    assert_eq!(unshared, Unshared { url, why: keyway_ring::Refusal::User });
    while !serving.is_finished() {
        driver.turn(Duration::from_millis(10)).unwrap();
        assert!(clock().since(start) < Duration::from_secs(20), "it says nothing");
    }
    assert_eq!(driver.poll_unshared(), None);
    std::fs::remove_file(&path).unwrap();
}
