//! Reads real files: the configuration and the passwords that it names.

use keyway_config::{Config, ConfigError, PoolKindConfig, SecretSource, import};
use std::fs;
use std::path::PathBuf;

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("keyway-config-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text_with_passwords(of_clients: &str, of_servers: &str) -> String {
    format!(
        "[[listener]]\nbind = \"tcp://127.0.0.1:6380\"\npool = \"p\"\npassword_file = \"{of_clients}\"\n\
         [pool.p]\nkind = \"sharded\"\nservers = [\"10.0.0.1:6379\"]\npassword_file = \"{of_servers}\"\n"
    )
}

#[test]
fn passwords_come_from_their_files_less_one_newline() {
    let folder = Folder::new("passwords");
    let of_clients = folder.write("clients", "open sesame\n");
    let of_servers = folder.write("servers", "back door");
    let text = text_with_passwords(of_clients.to_str().unwrap(), of_servers.to_str().unwrap());
    let config = Config::load(&folder.write("keyway.toml", &text)).unwrap();
    let of_listener = config.listeners[0].password.as_ref().unwrap();
    assert_eq!(of_listener.expose(), "open sesame");
    let (set, from) = config.pools[0].kind.servers().expect("a pool of servers");
    assert_eq!(set.options.password.as_ref().unwrap().expose(), "back door");
    assert_eq!(from.password_from, Some(SecretSource::File(of_servers.clone())));

    let unread = Config::from_str(&text, "keyway.toml").unwrap();
    assert_eq!(unread.listeners[0].password, None);
    assert_eq!(unread.listeners[0].password_from, Some(SecretSource::File(of_clients.clone())));
}

#[test]
fn the_password_of_sentinels_may_be_in_a_file() {
    let folder = Folder::new("sentinels");
    let file = folder.write("secret", "of the sentinels\n");
    let text = format!(
        "[[listener]]\nbind = \"tcp://127.0.0.1:6380\"\npool = \"p\"\n[pool.p]\n\
         kind = \"replicated\"\nsentinels = [\"10.0.0.1:26379\"]\nprimaries = [\"m\"]\n\
         sentinel_password_file = {:?}\n",
        file.to_str().unwrap()
    );
    let config = Config::load(&folder.write("keyway.toml", &text)).unwrap();
    let sentinels = config.pools.iter().find(|pool| pool.name == "p/sentinels").unwrap();
    let PoolKindConfig::Sentinels(sentinels, _) = &sentinels.kind else { panic!("others") };
    assert_eq!(sentinels.options.password.as_ref().unwrap().expose(), "of the sentinels");
    let empty = text.replace(file.to_str().unwrap(), "/nonexistent/secret");
    let errors = Config::load(&folder.write("keyway.toml", &empty)).unwrap_err();
    let told = errors[0].to_string();
    assert!(told.contains("sentinel_password_file in [pool.p]: /nonexistent/secret"), "{told}");
}

#[test]
fn every_bad_password_file_is_told_with_its_line() {
    let folder = Folder::new("bad-passwords");
    let empty = folder.write("empty", "\n");
    let text = text_with_passwords(empty.to_str().unwrap(), "/nonexistent/secret");
    let errors = Config::load(&folder.write("keyway.toml", text)).unwrap_err();
    let told: Vec<(usize, bool)> =
        errors.iter().map(|e| (e.line, e.what.contains("empty"))).collect();
    assert_eq!(told, [(4, true), (8, false)]);
}

#[test]
fn a_file_that_is_no_text_is_refused_by_name() {
    let folder = Folder::new("no-text");
    let only = |errors: Vec<ConfigError>| errors.into_iter().next().unwrap().to_string();
    let binary = folder.write("binary.toml", b"# one\n# two \xff\n");
    let message = only(Config::load(&binary).unwrap_err());
    assert!(message.contains("binary.toml: line 2 is not UTF-8; give"), "{message}");
    let message = only(Config::load(&folder.0.join("missing.toml")).unwrap_err());
    assert!(message.contains("missing.toml: cannot be read: No such file"), "{message}");
    let message = only(Config::load(&folder.0).unwrap_err());
    assert!(message.contains("cannot be read"), "{message}");
}

#[test]
fn a_byte_order_mark_is_skipped_and_moves_no_line() {
    let text = "\u{feff}[server]\nworker = 2\n";
    let errors = Config::from_str(text, "f").unwrap_err();
    assert!(errors.iter().any(|e| (e.line, e.column) == (2, 1)), "{errors:?}");
}

#[test]
fn an_unreadable_file_of_another_proxy_is_told_as_one_of_ours_is() {
    let folder = Folder::new("unreadable");
    let latin = folder.write("latin", b"a:\n  hash: \xe9\n");
    for path in [latin, folder.0.join("absent")] {
        let ours = Config::load(&path).unwrap_err().remove(0);
        let theirs = import::twemproxy_file(&path).unwrap_err().remove(0);
        assert_eq!((&ours.path, ours.line, &ours.what), (&theirs.path, theirs.line, &theirs.what));
        assert_eq!(ours.hint.replace("TOML", "YAML"), theirs.hint);
    }
}

#[test]
fn a_missing_password_file_is_told_beside_a_password_too_many() {
    let folder = Folder::new("both-passwords");
    let text = text_with_passwords("/nonexistent/secret", "/nonexistent/other")
        .replace("[pool.p]", "password = \"x\"\n[pool.p]");
    let errors = Config::load(&folder.write("keyway.toml", text)).unwrap_err();
    let whats: Vec<&str> = errors.iter().map(|error| error.what.as_str()).collect();
    assert_eq!(whats.len(), 3, "{whats:?}");
    assert!(whats.iter().any(|what| what.contains("has both password and password_file")));
    assert!(whats.iter().any(|what| what.contains("/nonexistent/secret: cannot be read")));
}

#[test]
fn files_are_named_from_the_folder_of_the_configuration() {
    let folder = Folder::new("relative");
    folder.write("clients", "open sesame\n");
    fs::create_dir_all(folder.0.join("more")).unwrap();
    folder.write("more/servers", "back door");
    let text = text_with_passwords("clients", "more/servers");
    let file = folder.write("keyway.toml", &text);
    // The result is the same for every name of the file and every working directory.
    let depth = std::env::current_dir().unwrap().components().count() - 1;
    let relative = PathBuf::from("../".repeat(depth)).join(file.strip_prefix("/").unwrap());
    for path in [file.clone(), relative] {
        let config = Config::load(&path).unwrap();
        assert_eq!(config.listeners[0].password.as_ref().unwrap().expose(), "open sesame");
        let Some(SecretSource::File(source)) = &config.listeners[0].password_from else { panic!() };
        assert!(source.is_absolute() && source.ends_with("clients"), "{source:?}");
        let same = Config::load_without_passwords(&path).unwrap();
        assert_eq!(same.listeners[0].password_from, config.listeners[0].password_from);
    }
    let user = "[[user]]\nname = \"app\"\nrules = \"+@all ~*\"\n";
    let file = folder.write("users.toml", format!("{text}{user}password_file = \"clients\"\n"));
    assert_eq!(Config::load(&file).unwrap().users.len(), 1);
    let missing = format!("{text}{user}password_file = \"nowhere\"\n");
    let errors = Config::load(&folder.write("users.toml", missing)).unwrap_err();
    let told = folder.0.join("nowhere").display().to_string();
    assert!(errors.len() == 1 && errors[0].what.contains(&told), "{errors:?}");
    let wrong = Config::from_str(&format!("{text}{user}password_file = 5\n"), "file").unwrap_err();
    assert_eq!(wrong.len(), 1, "nothing is said of a missing password: {wrong:?}");
}

/// A number that is large enough to show quadratic time, and to overflow a stack by recursion.
const MANY: usize = 20_000;

#[test]
fn a_file_of_many_pools_is_read_at_once_however_they_lead_to_each_other() {
    let listener = "[[listener]]\nbind = \"tcp://127.0.0.1:6380\"\npool = \"p0\"\n";
    let chain = |last: &str| {
        let pool = |pool: usize| match pool + 1 {
            MANY => format!("[pool.p{pool}]\n{last}\n"),
            next => format!(
                "[pool.p{pool}]\nkind = \"rate-limited\"\nrequests_per_second = 1\nchild = \"p{next}\"\n"
            ),
        };
        listener.to_owned() + &(0..MANY).map(pool).collect::<String>()
    };
    let errors = Config::from_str(&chain("kind = \"store\""), "file").unwrap_err();
    assert_eq!(errors.len(), MANY - 8);
    assert!(errors[0].what.contains("leads over more than 8 pools in a row"), "{}", errors[0]);
    let circle = chain("kind = \"rate-limited\"\nrequests_per_second = 1\nchild = \"p0\"");
    let errors = Config::from_str(&circle, "file").unwrap_err();
    assert_eq!(errors.len(), 8, "of one circle a few steps");
    assert!(errors[0].what.contains("leads back here (p0 -> p1 -> "), "{}", errors[0]);
    assert!(errors[0].what.contains(" more … -> "), "{}", errors[0]);
    let unknown = circle.replace("child = \"p", "child = \"q");
    assert_eq!(Config::from_str(&unknown, "file").unwrap_err().len(), MANY);
    let address = |pool: usize| (10_000 + pool, pool % 250);
    let flat = (0..MANY).map(|pool| {
        let (port, host) = address(pool);
        format!(
            "[[listener]]\nbind = \"tcp://127.0.0.1:{port}\"\npool = \"p{pool}\"\n\
             [pool.p{pool}]\nkind = \"sharded\"\nservers = [\"127.0.1.{host}:{port}\"]\n"
        )
    });
    assert_eq!(Config::from_str(&flat.collect::<String>(), "file").unwrap().pools.len(), MANY);
    let theirs = (0..MANY).map(|pool| {
        let (port, host) = address(pool);
        format!("p{pool}:\n  listen: 127.0.0.1:{port}\n  redis: true\n  servers:\n   - 127.0.1.{host}:{port}:1\n")
    });
    let imported = import::twemproxy(&theirs.collect::<String>(), "file").unwrap();
    assert!(imported.toml.matches("[pool.").count() == MANY);
}
