//! Listeners come and go, and their certificates change.

use super::*;

#[test]
fn listeners_come_and_go() {
    let _watch = watchdog(Duration::from_secs(60), "listeners");
    let mut changing = Changing::start(vec![Pool::store("local")]);
    let other = free_address();
    let table = format!("[[listener]]\nbind = \"tcp://{other}\"\npool = \"local\"\n\n");
    let mut first = changing.keyway.client(0);
    assert_eq!(first.words("SET a 1"), Value::simple("OK"));
    changing.reload(|text| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1), DONE);
    let mut second = Client::connect(other);
    assert_eq!(second.words("GET a"), Value::bulk("1"));
    changing.reload(|text| text.replace(&table, ""), DONE);
    assert!(second.try_reply().is_err(), "it was answered, and let go");
    wait_until("nobody listens there", SOON, || Client::try_connect(other).is_err());
    assert_eq!(first.words("GET a"), Value::bulk("1"), "the store is what it was");
}

#[test]
fn who_waits_in_a_command_is_let_go_with_its_listener() {
    let _watch = watchdog(Duration::from_secs(60), "a client that waits");
    let server = RedisServer::start();
    let pools = vec![Pool::store("local"), Pool::sharded("cache", &[server.address().to_string()])];
    let mut changing = Changing::start(pools);
    for (index, pool) in ["local", "cache"].into_iter().enumerate() {
        let other = free_address();
        let table = format!("[[listener]]\nbind = \"tcp://{other}\"\npool = \"{pool}\"\n\n");
        let add = |text: &str| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1);
        changing.reload(add, DONE);
        let mut waiting = Client::connect(other);
        waiting.send(b"BLPOP nothing 0\r\n");
        wait_until("it waits", SOON, || {
            let listed = changing.keyway.client(index).words("CLIENT LIST").text();
            listed.lines().any(|line| line.contains("flags=b"))
        });
        changing.reload(|text| text.replace(&table, ""), DONE);
        assert!(
            waiting.reply().error_text().starts_with("UNBLOCKED Keyway is stopping, or listens")
        );
        waiting.expect_closed();
    }
}

/// The listener is removed while its clients never stop sending.
#[test]
fn no_reply_is_lost_when_the_listener_of_a_client_goes() {
    let _watch = watchdog(Duration::from_secs(120), "a listener that goes");
    let server = RedisServer::start();
    let one = std::slice::from_ref(&server);
    let over = || Pool::over("main", one).with("timeout", "\"30s\"");
    // Each pool has a listener that is removed and one that stays.
    let pools = vec![over(), Pool::store("local"), over(), Pool::store("local")];
    let mut changing = Changing::start(pools);
    let flood = |place| Flood::start(changing.keyway.address(place), "flood", 5);
    let floods = [flood(2), flood(3)];
    floods.iter().for_each(|flood| flood.await_replies(5000));
    let tables = [(2, "main"), (3, "local")].map(|(place, pool)| {
        let at = changing.keyway.address(place);
        format!("[[listener]]\nbind = \"tcp://{at}\"\nprotocol = \"redis\"\npool = \"{pool}\"\n")
    });
    changing.reload(
        |text| tables.iter().fold(text.to_owned(), |text, table| text.replacen(table, "", 1)),
        DONE,
    );
    for (place, flood) in floods.into_iter().enumerate() {
        let mut staying = changing.keyway.client(place);
        for (key, replies) in flood.ended() {
            let kept = staying.command(&["GET", &key]);
            assert_eq!(kept, Value::bulk(replies.to_string()), "{key} at {place}");
        }
    }
}

#[test]
fn a_reload_that_fails_at_its_end_changes_no_certificate_and_no_limit() {
    let _watch = watchdog(Duration::from_secs(60), "a late failure");
    let files = CertificateFiles::default();
    let tls = files.path("server.pem");
    let key = files.path("server.key");
    let secured = format!(
        "[limits]\ntransactions_len_max = \"4MiB\"\n\n[[listener]]\nbind = \"tcp://{}\"\npool = \"local\"\n\
         tls = {{ cert_file = {tls:?}, key_file = {key:?} }}\n\n",
        free_address()
    );
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let config = config.with_tables(&secured);
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let gauge = |keyway: &Keyway| {
        let metrics = keyway.metrics();
        let of = |name: &str| metrics.sum(name, &[]);
        (of("keyway_tls_certificate_expiry_seconds"), of("keyway_transaction_limit_bytes"))
    };
    let before = gauge(&changing.keyway);
    assert_eq!(before.1, 4.0 * 1024.0 * 1024.0);
    files.add("server", &files.authority.issue_for(&["127.0.0.1"], Span::Future));
    // There is room for the sockets that one worker needs, but not for those of all.
    let pid = changing.keyway.process().pid();
    let limit = |soft: &str| {
        let (pid, limit) = (pid.to_string(), format!("--nofile={soft}:"));
        let _ = run_tool("prlimit", &["--pid", &pid, &limit], b"", SOON).expect_success("prlimit");
    };
    let listener =
        |_| format!("[[listener]]\nbind = \"tcp://{}\"\npool = \"local\"\n\n", free_address());
    let more: String = (0..20).map(listener).collect();
    let change = |text: &str| text.replacen("[limits]", &format!("{more}[limits]"), 1);
    let change = |text: &str| change(text).replace("4MiB", "8MiB");
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<usize>().ok());
    let taken: Vec<usize> = numbers.collect();
    let free = (0..).filter(|number| !taken.contains(number)).nth(30).expect("there are more");
    limit(&free.to_string());
    let good = changing.text.clone();
    changing.reload(change, "nothing was changed");
    let log = changing.keyway.process().log();
    assert!(log.contains("Too many open files"), "{log}");
    limit("1000");
    assert_eq!(gauge(&changing.keyway), before);
    changing.text = good;
    changing.reload(change, DONE);
    let after = gauge(&changing.keyway);
    assert!(after.0 > before.0 && after.1 == 8.0 * 1024.0 * 1024.0, "{after:?}");
}

/// Returns the TLS settings with these files.
fn tls_by(files: &CertificateFiles, name: &str, more: &str) -> String {
    let file = |end: &str| files.path(&format!("{name}.{end}"));
    format!("{{ cert_file = {:?}, key_file = {:?}{more} }}", file("pem"), file("key"))
}

#[test]
fn the_certificates_of_admin_are_read_again_after_other_changes_too() {
    let _watch = watchdog(Duration::from_secs(60), "certificates of admin");
    let files = CertificateFiles::default();
    files.add("operator", &files.authority.issue(&["operator"]));
    let ca = format!(", ca_file = {:?}", files.path("ca.pem"));
    let tls = tls_by(&files, "server", &ca);
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("admin_tls", &tls);
    let mut changing = Changing { text: config.toml(), keyway: Keyway::start(KEYWAY, config) };
    let admin = format!("https://{}", changing.keyway.admin());
    let asks = |name: &str, ca: &str| {
        let path = |end: &str| files.path(&format!("{name}.{end}")).to_string_lossy().into_owned();
        let (cert, key) = (path("pem"), path("key"));
        let ca = files.path(ca).to_string_lossy().into_owned();
        let by = ["ctl", "--admin", &admin, "--ca-file", &ca, "--cert-file", &cert];
        run_keyway(KEYWAY, &[&by[..], &["--key-file", &key, "log-level"]].concat()).status.success()
    };
    assert!(asks("operator", "ca.pem"));
    let table = format!("[[listener]]\nbind = \"tcp://{}\"\npool = \"local\"\n\n", free_address());
    changing.reload(|text| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1), DONE);
    assert!(asks("operator", "ca.pem"));
    let other = keyway_testkit::certificates::Authority::new("its successor");
    files.write("old.pem", &files.authority.certificate);
    files.write("ca.pem", &other.certificate);
    files.add("server", &other.issue(&["127.0.0.1"]));
    files.add("newcomer", &other.issue(&["operator"]));
    changing.hang_up("certificates were read again");
    let log = changing.keyway.process().log();
    assert!(log.contains("server.pem holds other certificates now"), "{log}");
    assert!(
        !asks("operator", "old.pem") && !asks("operator", "ca.pem"),
        "whoever it was let in by"
    );
    assert!(asks("newcomer", "ca.pem"));
}

#[test]
fn a_certificate_of_which_a_listener_has_gone_is_told_of_as_it_is() {
    let _watch = watchdog(Duration::from_secs(60), "expiry");
    let files = CertificateFiles::default();
    let tls = tls_by(&files, "server", "");
    let table =
        |at| format!("[[listener]]\nbind = \"tcp://{at}\"\npool = \"local\"\ntls = {tls}\n\n");
    let (stays, goes) = (table(free_address()), table(free_address()));
    let config = KeywayConfig::new(vec![Pool::store("local")]);
    let config = config.with_tables(&format!("{stays}{goes}"));
    let mut changing = Changing { text: config.toml(), keyway: Keyway::start(KEYWAY, config) };
    let expiry =
        |keyway: &Keyway| keyway.metrics().sum("keyway_tls_certificate_expiry_seconds", &[]);
    let before = expiry(&changing.keyway);
    changing.reload(|text| text.replace(&goes, ""), DONE);
    files.add("server", &files.authority.issue_for(&["127.0.0.1"], Span::Future));
    changing.hang_up("certificates were read again");
    assert!(expiry(&changing.keyway) > before);
}
