//! The rights of users change.

use super::*;

fn user(name: &str, rules: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\nrules = \"nopass {rules}\"\n\n")
}

/// Returns whether a connection ends, whatever comes on it before.
fn ends(client: &mut Client) -> bool {
    loop {
        match client.try_reply() {
            Ok(_) => {}
            Err(fault) => return fault == ReplyFault::Closed,
        }
    }
}

/// Connects clients of users who are to lose a right, by the listener at this position.
fn what_users_may_no_more_ends(changing: &mut Changing, place: usize, name: &str) {
    let come = |name: &str| {
        let mut client = changing.keyway.client(place);
        assert_eq!(client.command(&["AUTH", name, "x"]), Value::simple("OK"));
        client
    };
    let mut keep = come("keep");
    let (mut hears, mut lost, mut both) = (come("feed"), come("feed"), come("keep"));
    drop(hears.words("SUBSCRIBE news.a"));
    drop(lost.words("SUBSCRIBE other.a"));
    drop(both.words("PSUBSCRIBE *"));
    let mut watches = come("watch");
    assert_eq!(watches.words("MONITOR"), Value::simple("OK"));
    let (mut waits, mut goes_on) = (come("queue"), come("keep"));
    waits.send(b"BLPOP jobs:1 0\r\n");
    goes_on.send(b"BLPOP jobs:2 0\r\n");
    let mut caches = changing.keyway.client(place);
    assert!(!caches.words("HELLO 3 AUTH cache x").is_error());
    assert_eq!(caches.words("CLIENT TRACKING ON"), Value::simple("OK"));
    assert!(!caches.words("GET nothing").is_error());
    let (mut gone, mut off) = (come("gone"), come("off"));
    assert_eq!(gone.words("PING"), Value::simple("PONG"));
    wait_until("both wait", SOON, || {
        format!("{:?}", keep.words("INFO clients")).contains("blocked_clients:2")
    });
    changing.reload(
        |text| {
            text.replace(
                &user("feed", "+@all ~* &news.* &other.*"),
                &user("feed", "+@all ~* &news.*"),
            )
            .replace(&user("watch", "+@all ~* &*"), &user("watch", "+@all -monitor ~* &*"))
            .replace(&user("queue", "+@all ~jobs:*"), &user("queue", "+@all ~more:*"))
            .replace(&user("cache", "+@all ~*"), &user("cache", "+@all ~app:*"))
            .replace(&user("keep", "+@all ~* &*"), &user("keep", "+@all ~* &* (+get ~x)"))
            .replace(&user("gone", "+@all ~*"), "")
            .replace(&user("off", "+@all ~*"), &user("off", "off +@all ~*"))
        },
        DONE,
    );
    for (what, client) in
        [("channels", &mut lost), ("MONITOR", &mut watches), ("caching", &mut caches)]
    {
        assert!(ends(client), "{name}: {what}");
    }
    assert!(ends(&mut gone), "{name}: there is no such user");
    let told = waits.reply();
    assert!(told.is_error() && told.error_text().contains("rights of this user"), "{told:?}");
    assert!(waits.words("BLPOP jobs:1 1").error_text().contains("NOPERM"), "{name}");
    assert!(off.words("PING").error_text().contains("NOAUTH"), "{name}");
    // A user who has lost nothing goes on.
    assert!(!keep.words("PUBLISH news.a hi").is_error(), "{name}");
    let heard = format!("{:?}{:?}", hears.reply(), both.reply());
    assert!(heard.matches("news.a").count() == 2, "{name}: {heard}");
    assert_eq!(keep.words("RPUSH jobs:2 a"), Value::Integer(1));
    assert!(format!("{:?}", goes_on.reply()).contains("jobs:2"));
}

fn with_users(config: KeywayConfig) -> KeywayConfig {
    let users = [
        ("feed", "+@all ~* &news.* &other.*"),
        ("watch", "+@all ~* &*"),
        ("queue", "+@all ~jobs:*"),
        ("cache", "+@all ~*"),
        ("keep", "+@all ~* &*"),
        ("gone", "+@all ~*"),
        ("off", "+@all ~*"),
    ];
    let text: String = users.iter().map(|(name, rules)| user(name, rules)).collect();
    config.with_tables(&text)
}

#[test]
fn what_a_user_has_begun_ends_when_it_may_no_more() {
    let _watch = watchdog(Duration::from_secs(120), "rights that are lost");
    let servers = [RedisServer::start()];
    for (pool, name) in [(Pool::store("main"), "store"), (Pool::over("main", &servers), "servers")]
    {
        let config = with_users(KeywayConfig::new(vec![pool]).with_server("workers", "2"));
        let text = config.toml();
        let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
        what_users_may_no_more_ends(&mut changing, 0, name);
        let log = changing.keyway.process().log();
        assert!(
            log.contains("a reload has removed its user") && log.contains("user=\"gone\""),
            "{log}"
        );
    }
}

#[test]
fn who_is_kept_out_for_wrong_passwords_stays_so_when_users_change() {
    const TRIES: usize = 100;
    let _watch = watchdog(Duration::from_secs(60), "failed logins");
    let limits = format!("[limits]\nfailed_logins_max = {TRIES}\n");
    let app = "[[user]]\nname = \"app\"\nrules = \"+@all ~*\"\npassword = \"right\"\n";
    let config = KeywayConfig::new(vec![Pool::store("main")])
        .with_tables(&limits)
        .with_tables(app)
        .with_tables(&user("other", "+@all ~*"));
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let try_all = |keyway: &Keyway, word: &str| {
        let lines: Vec<String> = (0..TRIES).map(|nth| format!("AUTH app {word}{nth}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let replies = keyway.client(0).pipeline(&lines);
        replies.iter().filter(|it| it.error_text().starts_with("WRONGPASS")).count()
    };
    assert_eq!(try_all(&changing.keyway, "one"), TRIES);
    changing.reload(|text| text.replace(&user("other", "+@all ~*"), ""), DONE);
    // Each second one more is verified.
    let looked_at = try_all(&changing.keyway, "two");
    assert!(looked_at < TRIES / 2, "{looked_at}");
}
