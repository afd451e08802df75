//! Laws of users, as tables: the logins that are accepted, and the requests that each rule allows.

use crate::log::{Happened, Place, Reason};
use crate::password::digest_text;
use crate::selector::{Access, Denied};
use crate::slow::{Prepared, SlowHash, Verifier};
use crate::user::User;
use crate::users::{LoginFault, Users};
use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, KeysFault, Request, Verb};
use std::sync::Arc;

fn user(rules: &str) -> User {
    User::new("u", rules).unwrap_or_else(|fault| panic!("{rules}: {fault}"))
}

/// Returns the result of `look` for the request that `words` make.
fn of_request<T>(words: &str, look: impl FnOnce(&Request) -> T) -> T {
    let words: Vec<&str> = words.split(' ').collect();
    let buf = words.concat();
    let mut end = 0;
    let range = |word: &&str| {
        end += word.len();
        ByteRange::new(end - word.len(), end)
    };
    let ranges: Vec<ByteRange> = words.iter().map(range).collect();
    look(&Request::resolve(Args::new(buf.as_bytes(), &ranges)).expect("a request"))
}

fn judge(user: &User, words: &str) -> Result<(), Denied> {
    of_request(words, |request| user.judge(request))
}

const FROM: &str = "127.0.0.1:1";
const NOW: Time = Time(9);

fn users(all: Vec<User>) -> Users {
    Users::new(all.into_iter().map(Arc::new).collect())
}

/// Returns a slow hash that differs by its kind.
fn slow() -> SlowHash {
    let text = format!("$argon2id$v=19$m=64,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg${}", "A".repeat(43));
    SlowHash::parse(&text).expect("a hash")
}

#[test]
fn the_last_rule_about_passwords_says_what_lets_a_user_in() {
    let (a, b) = (digest_text(b"a"), digest_text(b"b"));
    // Columns: rules; whether the user is on, needs no password, has any password; which of the
    // passwords "a", "b" and "" are right.
    for (rules, is_on, is_open, has_any, right) in [
        ("", true, false, false, [false; 3]),
        ("off", false, false, false, [false; 3]),
        ("off on", true, false, false, [false; 3]),
        ("off nopass", false, true, true, [false; 3]),
        ("nopass", true, true, true, [true; 3]),
        ("NoPass off ON", true, true, true, [true; 3]),
        ("nopass resetpass", true, false, false, [false; 3]),
        ("#a", true, false, true, [true, false, false]),
        ("#a off", false, false, true, [false; 3]),
        ("#a #b", true, false, true, [true, true, false]),
        ("#a #a", true, false, true, [true, false, false]),
        ("#a nopass", true, true, true, [true; 3]),
        ("#a nopass resetpass", true, false, false, [false; 3]),
        ("nopass #a", true, false, true, [true, false, false]),
        ("#a resetpass", true, false, false, [false; 3]),
        ("#a resetpass #b", true, false, true, [false, true, false]),
        ("nopass reset", false, false, false, [false; 3]),
        ("nopass reset on", true, false, false, [false; 3]),
        ("#a reset on #b", true, false, true, [false, true, false]),
    ] {
        let user = user(&rules.replace("#a", &a).replace("#b", &b));
        assert_eq!(user.is_on(), is_on, "{rules}");
        assert_eq!(user.needs_no_password(), is_open, "{rules}");
        assert_eq!(user.has_password(), has_any, "{rules}");
        let users = users(vec![user]);
        for (password, is_right) in [b"a", b"b", &b""[..]].into_iter().zip(right) {
            let is_in = users.log_in(b"u", password, FROM, NOW).is_ok();
            assert_eq!(is_in, is_right, "{rules}: {password:?}");
        }
    }
}

#[test]
fn each_password_is_shown_as_hidden_once() {
    let (a, b) = (digest_text(b"a"), digest_text(b"b"));
    let hidden = |user: &User| user.passwords();
    assert_eq!(hidden(&user("")), [""; 0]);
    assert_eq!(hidden(&user(&format!("{a} {a}"))), ["#hidden"]);
    let three = user(&format!("{a} {b}")).with_slow(vec![slow()]);
    assert_eq!(hidden(&three), ["#hidden"; 3]);
    assert!(three.has_password() && !three.needs_no_password());
    assert!(user("").with_slow(vec![slow()]).has_password());
    let open = User::free("u", None);
    assert!(open.clone().with_slow(Vec::new()).needs_no_password(), "there is none to ask for");
    assert!(!open.with_slow(vec![slow()]).needs_no_password());
}

#[test]
fn what_is_no_rule_is_refused_and_no_secret_is_told() {
    let long = format!("x{}", "y".repeat(100));
    for (rules, told) in [
        (">secret", ""),
        ("<secret", ""),
        ("!secret", ""),
        ("#secret", ""),
        ("on +nothing", "+nothing"),
        ("+@nothing", "+@nothing"),
        ("nothing", "nothing"),
        (&long, &long[..80]),
        ("+get (~a", "("),
        ("(~a nothing)", "nothing"),
        ("(on)", "on"),
        ("~a\0b", "~a\0b"),
        ("~a\x0bb", "~a\x0bb"),
        ("&a\x0bb", "&a\x0bb"),
        ("%~a", "%~a"),
        ("%R", "%R"),
        ("%RR~a", "%RR~a"),
        ("%RX~a", "%RX~a"),
        ("-select|0", "-select|0"),
        ("+select|", "+select|"),
        ("+select|0|1", "+select|0|1"),
        ("+config|nothing", "+config|nothing"),
        ("allkeys ~a", "~a"),
        ("~* %R~a", "%R~a"),
        ("&* &a", "&a"),
    ] {
        assert_eq!(User::new("u", rules).expect_err(rules).rule, told, "{rules}");
    }
    for (rule, why) in [(">secret", "in clear"), ("<secret", "in clear"), ("#12", "64 hexadecimal")]
    {
        let fault = User::new("u", rule).expect_err(rule);
        assert!(fault.what.contains(why), "{rule}: {fault}");
    }
}

#[test]
fn what_is_shown_of_a_user_is_what_its_rules_come_to() {
    let a = digest_text(b"a");
    for (rules, shown) in [
        ("", "on resetchannels -@all"),
        ("off reset", "off resetchannels -@all"),
        ("nopass ~* &* +@all", "on nopass ~* &* +@all"),
        ("AllKeys ALLCHANNELS allcommands", "on ~* &* +@all"),
        (
            "allkeys allchannels allcommands resetkeys resetchannels nocommands",
            "on resetchannels -@all",
        ),
        ("+get -get +set", "on resetchannels -@all -get +set"),
        ("+get +set +GET", "on resetchannels -@all +set +get"),
        ("+@read -@read", "on resetchannels -@all -@read"),
        ("~a ~a &c &c &d", "on ~a resetchannels &c &d -@all"),
        ("%R~a %W~b %RW~c %r~d", "on %R~a %W~b ~c %R~d resetchannels -@all"),
        ("%R~a %W~a", "on ~a resetchannels -@all"),
        ("%W~a %R~a", "on ~a resetchannels -@all"),
        (
            "( +get ~x ) (+set)",
            "on resetchannels -@all (~x resetchannels -@all +get) (resetchannels -@all +set)",
        ),
        ("(+get) clearselectors", "on resetchannels -@all"),
        ("(+get) reset on", "on resetchannels -@all"),
        ("sanitize-payload SKIP-sanitize-payload", "on resetchannels -@all"),
        (&a, "on #hidden resetchannels -@all"),
    ] {
        assert_eq!(user(rules).rules(), shown, "{rules}");
    }
    let both: Vec<_> = user("~a &c +get (~b +set)").permissions().collect();
    let words = |words: [&str; 3]| words.map(str::to_owned);
    assert_eq!(both, [words(["-@all +get", "~a", "&c"]), words(["-@all +set", "~b", ""])]);
    assert_eq!(user("off nopass").flags(), ["off", "nopass"]);
}

#[test]
fn a_user_is_free_who_has_all_commands_keys_and_channels() {
    for (rules, is_free) in [
        ("+@all ~* &*", true),
        ("+@all ~*", false),
        ("+@all &*", false),
        ("~* &*", false),
        ("~* &* +@all -get", false),
        ("~* &* +@read", false),
        ("(+@all ~* &*)", false),
    ] {
        assert_eq!(user(rules).is_free(), is_free, "{rules}");
    }
}

/// For most allowed requests, [`User::passes`] must answer by checking one or two bits.
#[test]
fn the_usual_requests_pass_at_a_short_look_and_no_other_does() {
    for (rules, words, passes, may) in [
        ("+@all ~* &*", "PING", true, true),
        ("+@all ~* &*", "GET k", true, true),
        ("+@all ~* &*", "MGET k l", true, true),
        ("+@all ~* &*", "PUBLISH c m", true, true),
        ("+@all ~* &*", "CONFIG GET x", true, true),
        ("+@all ~* &*", "SORT k BY w_*", false, true),
        ("+@all ~*", "PUBLISH c m", false, false),
        ("+@all ~* &c", "PUBLISH c m", false, true),
        ("+@all ~* &c", "SUBSCRIBE c", false, true),
        ("+@all ~* &c", "SUBSCRIBE d", false, false),
        ("+@all ~* &c &d", "SUBSCRIBE c d", false, true),
        ("+@all ~* &c", "SUBSCRIBE c d", false, false),
        ("+@all ~* &c &d", "PSUBSCRIBE c d", false, true),
        ("+@all ~* &c", "PSUBSCRIBE c d", false, false),
        ("+@all ~* &c*", "PSUBSCRIBE cc", false, false),
        ("+@all ~app:*", "PING", true, true),
        ("+@all ~app:*", "GET app:1", true, true),
        ("+@all ~app:*", "SET app:1 v", true, true),
        ("+@all ~app:*", "GET x", false, false),
        ("+@all ~app:*", "MGET app:1 x", false, false),
        ("+@all ~app:*", "MGET app:1 app:2", false, true),
        ("+@all ~app:*", "SPUBLISH app:1 m", false, false),
        ("+@all %R~app:*", "GET app:1", true, true),
        ("+@all %R~app:*", "HSET app:1 f v", false, false),
        ("+@all %R~app:*", "SET app:1 v", false, false),
        ("+@all %W~app:*", "HSET app:1 f v", true, true),
        ("+@all %W~app:*", "SET app:1 v", false, true),
        ("+@all %W~app:*", "SET app:1 v GET", false, false),
        ("+@all %W~app:*", "GET app:1", false, false),
        ("+get ~*", "GET x", true, true),
        ("+get ~*", "SET x v", false, false),
        ("~*", "AUTH pw", true, true),
        ("+select|0 ~*", "SELECT 0", false, true),
        ("+select|0 ~*", "SELECT 1", false, false),
        ("+select|0 ~*", "GET 0", false, false),
        ("+select|0 +select -select ~*", "SELECT 0", false, false),
        ("+config|get", "CONFIG GET x", true, true),
        ("+config|get", "CONFIG SET x y", false, false),
        ("(+get ~x)", "GET x", false, true),
        ("(+get ~x)", "GET y", false, false),
    ] {
        let user = user(rules);
        let looked = of_request(words, |request| user.passes(request));
        assert_eq!(looked, passes, "{rules}: {words}");
        assert_eq!(judge(&user, words).is_ok(), may, "{rules}: {words}");
    }
}

#[test]
fn a_sort_by_patterns_is_for_users_who_may_read_every_key() {
    let reads_all = ["+@all ~*", "+@all %R~* %W~l", "+@all ~l (+sort +sort_ro ~*)"];
    let reads_some = [
        "+@all ~l",
        "+@all %R~l %W~*",
        "+@all ~l %R~w_* %R~x",
        "+@all ~l (+sort +sort_ro %W~*)",
        "+@all ~l (+get ~*)",
    ];
    for (words, option) in [
        ("SORT l", None),
        ("SORT l LIMIT 0 1", None),
        ("SORT l BY nosort", None),
        ("SORT l BY", None),
        ("SORT l GET", None),
        ("SORT l BY w_*", Some("BY")),
        ("SORT l by w_* GET x", Some("BY")),
        ("SORT l GET #", Some("GET")),
        ("SORT l GET x BY w_*", Some("GET")),
        ("SORT l ASC get x", Some("GET")),
        ("SORT l BY get ALPHA", None),
        ("SORT l BY GET x", None),
        ("SORT l LIMIT by w_*", None),
        ("SORT l LIMIT get x GET y", Some("GET")),
        ("SORT l LIMIT 0 1 BY w_*", Some("BY")),
        ("SORT l STORE l", None),
        ("SORT l STORE l GET x", Some("GET")),
        ("SORT_RO l BY w_*", Some("BY")),
        ("SORT_RO l DESC", None),
    ] {
        for rules in reads_all {
            assert_eq!(judge(&user(rules), words), Ok(()), "{rules}: {words}");
        }
        let expected = option.map_or(Ok(()), |option| Err(Denied::Pattern(option)));
        for rules in reads_some {
            assert_eq!(judge(&user(rules), words), expected, "{rules}: {words}");
        }
    }
}

#[test]
fn of_several_refusals_the_one_that_came_furthest_is_told() {
    for (rules, words, denied) in [
        ("+get ~a (+set ~b)", "SET c v", Denied::Key(1)),
        ("+set ~a (+get ~b)", "SET c v", Denied::Key(1)),
        ("+mset ~a (+mset ~b)", "MSET a 1 c 2", Denied::Key(3)),
        ("+mset ~b (+mset ~a)", "MSET a 1 c 2", Denied::Key(3)),
        ("+publish ~a (+get ~*)", "PUBLISH c m", Denied::Channel(1)),
        ("+get ~* (+publish)", "PUBLISH c m", Denied::Channel(1)),
        ("+get ~* (+set ~*)", "PUBLISH c m", Denied::Command),
    ] {
        assert_eq!(judge(&user(rules), words), Err(denied), "{rules}: {words}");
    }
    let all = [
        Denied::Command,
        Denied::Key(1),
        Denied::Key(2),
        Denied::Pattern("BY"),
        Denied::Channel(1),
        Denied::Channel(2),
    ];
    for (at, one) in all.into_iter().enumerate() {
        for (other_at, other) in all.into_iter().enumerate() {
            assert_eq!(one.or(other), all[at.max(other_at)], "{one:?} or {other:?}");
        }
    }
    let keys = Denied::Keys(KeysFault::None);
    assert_eq!(keys.or(Denied::Pattern("BY")), keys, "of two as far the first");
    assert_eq!(Denied::Pattern("BY").or(keys), Denied::Pattern("BY"));
}

#[test]
fn keys_of_what_is_no_request_of_redis_are_judged_alike() {
    let reads = Access { reads: true, writes: false };
    for (rules, keys, access, judged) in [
        ("+get ~a ~b", &["a", "b"][..], reads, Ok(())),
        ("+get ~a ~b", &["a", "c"], reads, Err(Denied::Key(1))),
        ("+get ~a", &["c", "a"], reads, Err(Denied::Key(0))),
        ("+set ~*", &["a"], reads, Err(Denied::Command)),
        ("+get %W~a", &["a"], reads, Err(Denied::Key(0))),
        ("+get %R~a", &["a"], Access::BOTH, Err(Denied::Key(0))),
        ("+get %R~a", &["a"], reads, Ok(())),
        ("+get %R~a %W~a", &["a"], Access::BOTH, Ok(())),
        ("+set ~* (+get ~a)", &["a"], reads, Ok(())),
        ("+set ~* (+get ~a)", &["a", "b"], reads, Err(Denied::Key(1))),
        ("+get ~a (+get ~b)", &["a", "b"], reads, Err(Denied::Key(1))),
        ("+get ~b (+get ~c)", &["b", "b", "c"], reads, Err(Denied::Key(2))),
        ("+get ~b (+set ~*)", &["b", "c"], reads, Err(Denied::Key(1))),
    ] {
        let own = user(rules);
        let bytes = keys.iter().map(|key| key.as_bytes());
        assert_eq!(own.judge_keys(Verb::Get, bytes, access), judged, "{rules}: {keys:?}");
    }
    for (rules, key, may) in [
        ("+get ~a", "a", true),
        ("+get ~a", "b", false),
        ("+set ~a", "a", false),
        ("+get %W~a", "a", false),
    ] {
        assert_eq!(user(rules).may_use(Verb::Get, key.as_bytes(), reads), may, "{rules}: {key}");
    }
}

#[test]
fn a_user_may_all_of_another_only_with_all_its_commands_keys_and_channels() {
    for (own, other, may) in [
        ("+select ~*", "+select|0", true),
        ("+select|0", "+select|0", true),
        ("+select|1", "+select|0", false),
        ("+get", "+select|0", false),
        ("+get +select|0", "+get +select|0", true),
        ("+@all", "+@all", true),
        ("+@all -get", "+@all", false),
        ("~a +get", "~a +get", true),
        ("~a ~b +get", "~b +get", true),
        ("~b +get", "~a ~b +get", false),
        ("~a +get", "~* +get", false),
        ("~* +get", "~* +get", true),
        ("+get", "~* +get", false),
        ("%R~a +get", "%R~a +get", true),
        ("%R~a +get", "~a +get", false),
        ("&c +get", "&c +get", true),
        ("&c &d +get", "&d +get", true),
        ("&d +get", "&c &d +get", false),
        ("&c +get", "&* +get", false),
        ("+get", "&* +get", false),
        ("&* +get", "&* +get", true),
        ("~a &c +get", "~a &d +get", false),
        ("~b &c +get", "~a &c +get", false),
        ("~a &c +set", "~a &c +get", false),
        ("+set (~a +get)", "~a +get", true),
        ("~a +get", "~a +get (~b +get)", false),
    ] {
        assert_eq!(user(own).may_all_of(&user(other)), may, "{own} for {other}");
    }
}

#[test]
fn a_user_is_the_same_by_name_rights_and_places() {
    let one = User::new("a", "~k +get").unwrap();
    assert!(one == User::new("a", "~k +get").unwrap());
    assert!(one != User::new("b", "~k +get").unwrap());
    assert!(one != User::new("a", "~l +get").unwrap());
    assert!(one != one.clone().of_pool(Some(7)) && one != one.clone().with_reads(Some(7)));
    assert_eq!((one.pool(), one.reads()), (None, None));
    let placed = one.of_pool(Some(7)).with_reads(Some(8));
    assert_eq!((placed.pool(), placed.reads(), &**placed.name()), (Some(7), Some(8), "a"));
}

#[test]
fn a_client_that_says_nothing_is_the_default_user_if_that_is_on_and_open() {
    let named = |rules: &str| users(vec![User::new("default", rules).unwrap()]);
    for (all, is_in, takes_bare) in [
        (named("nopass"), true, false),
        (named("nopass off"), false, false),
        (named(&digest_text(b"a")), false, true),
        (named(""), false, true),
        (users(vec![user("nopass")]), false, true),
        (Users::plain(None), true, false),
        (Users::plain(Some("a")), false, true),
    ] {
        let newcomer = all.newcomer().map(|user| user.name().to_string());
        assert_eq!(newcomer, is_in.then(|| "default".to_owned()));
        assert_eq!(all.takes_bare_password(), takes_bare);
    }
}

#[test]
fn users_are_found_by_name_and_clients_of_memcached_may_say_any_where_there_is_one_password() {
    let all = users(vec![user("nopass"), User::new("a", "nopass").unwrap()]);
    let names: Vec<&str> = all.all().iter().map(|user| &**user.name()).collect();
    assert_eq!(names, ["a", "default", "u"]);
    assert_eq!(all.get(b"a").map(|user| &**user.name()), Some("a"));
    assert!(all.get(b"b").is_none() && all.get(b"").is_none());
    let memcached = |users: &Users, name: &[u8], password: &[u8]| {
        users.log_in_memcached(name, password, FROM, NOW).map(|user| user.name().to_string())
    };
    assert_eq!(memcached(&all, b"a", b"x"), Ok("a".to_owned()));
    assert_eq!(memcached(&all, b"b", b"x"), Err(LoginFault::Unknown));
    let plain = Users::plain(Some("pw"));
    assert_eq!(memcached(&plain, b"any", b"pw"), Ok("default".to_owned()));
    assert_eq!(memcached(&plain, b"any", b"x"), Err(LoginFault::Password));
    assert_eq!(plain.log_in(b"any", b"pw", FROM, NOW).err(), Some(LoginFault::Unknown));
    assert!(!plain.have_pools() && !all.have_pools());
    assert!(users(vec![user(""), user("").of_pool(Some(0))]).have_pools());
}

#[test]
fn a_failed_login_is_counted_under_its_reason_and_for_whoever_follows() {
    let off = User::new("off", "off nopass").unwrap();
    let all = users(vec![user(&digest_text(b"a")), off]).limited(2);
    let log_in =
        |users: &Users, name: &[u8], password: &[u8]| users.log_in(name, password, FROM, NOW).err();
    assert_eq!(log_in(&all, b"u", b"a"), None);
    assert_eq!(log_in(&all, b"none", b"1"), Some(LoginFault::Unknown));
    for password in [b"1", b"2"] {
        assert_eq!(log_in(&all, b"off", password), Some(LoginFault::Disabled));
        assert_eq!(log_in(&all, b"u", password), Some(LoginFault::Password));
    }
    for _ in 0..3 {
        assert_eq!(log_in(&all, b"u", b"a"), Some(LoginFault::Limited), "right or wrong");
    }
    assert_eq!(all.failed(), [1, 2, 2, 3]);
    let words = LoginFault::ALL.map(LoginFault::label);
    assert_eq!(words, ["user", "disabled", "password", "limited"]);
    let next = users(vec![user(&digest_text(b"a"))]).limited(2).following(&all);
    assert_eq!(log_in(&next, b"u", b"a"), Some(LoginFault::Limited));
    assert_eq!(next.failed(), [1, 2, 2, 4]);
    assert_eq!(all.failed(), [1, 2, 2, 3]);
}

#[test]
fn names_are_told_apart_by_their_first_bytes_where_logins_fail() {
    let all = users(Vec::new()).limited(1);
    let name = |len: usize, last: u8| [vec![b'n'; len - 1], vec![last]].concat();
    let fault = |name: &[u8]| all.log_in(name, b"x", FROM, NOW).err();
    assert_eq!(fault(&name(256, b'a')), Some(LoginFault::Unknown));
    assert_eq!(fault(&name(256, b'b')), Some(LoginFault::Unknown));
    assert_eq!(fault(&name(256, b'a')), Some(LoginFault::Limited));
    assert_eq!(fault(&name(257, b'c')), Some(LoginFault::Unknown));
    assert_eq!(fault(&name(257, b'd')), Some(LoginFault::Limited));
}

#[test]
fn passwords_are_looked_at_slowly_only_where_some_user_has_such_a_hash() {
    let verifier = Arc::new(Verifier::default());
    let quick = users(vec![user(&digest_text(b"a"))]).verified_by(&verifier);
    assert!(!quick.are_slow());
    assert_eq!(quick.prepare(b"u", b"x", FROM, NOW), Prepared::Ready);
    let both = vec![user(&digest_text(b"a")), User::new("s", "").unwrap().with_slow(vec![slow()])];
    let slow = users(both).limited(1).verified_by(&verifier);
    assert!(slow.are_slow());
    assert_eq!(slow.prepare(b"u", b"x", FROM, NOW), Prepared::Waiting);
    assert!(!verifier.next().work());
    assert_eq!(slow.log_in(b"u", b"x", FROM, NOW).err(), Some(LoginFault::Password));
    // Another password of the same user is not checked now. Another user's is.
    assert_eq!(slow.prepare(b"u", b"y", FROM, NOW), Prepared::Ready);
    assert_eq!(slow.log_in(b"u", b"y", FROM, NOW).err(), Some(LoginFault::Limited));
    assert_eq!(slow.prepare(b"s", b"y", FROM, NOW), Prepared::Waiting);
}

#[test]
fn what_is_noted_of_refusals_is_there_when_the_log_is_asked_for_again() {
    let all = users(Vec::new());
    let happened = Happened {
        reason: Reason::Auth,
        place: Place::Toplevel,
        object: b"AUTH",
        user: "u",
        client: "c",
    };
    all.log().note(&happened, Clock { now: NOW, unix_micros: 0 });
    assert_eq!(all.log().newest(9).len(), 1);
}
