//! ACL: the users of this listener, what each may do, and recent refusals.

use super::{LocalContext, client};
use crate::fault_reply::denied_words;
use keyway_base::Clock;
use keyway_command::{Args, COMMANDS, Categories, Request, Verb};
use keyway_resp::{Protocol, parse_integer, reply};
use keyway_users::{Denied, Entry, Happened, Place, Reason, User};

/// Number of entries of the log that are shown without a count.
const COUNT_DEFAULT: usize = 10;

/// Appends the reply to an ACL subcommand.
pub(super) fn answer(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    let args = &request.args;
    match request.command.verb {
        Verb::AclWhoami => {
            let name = context.identity.user_name();
            context.identity.protocol.text(out, name.as_bytes());
        }
        Verb::AclUsers => list(context, out, |user| user.name().to_string()),
        Verb::AclList => {
            list(context, out, |user| format!("user {} {}", user.name(), user.rules()))
        }
        Verb::AclCat => categories(args, out),
        Verb::AclGetuser => match context.users.get(&args[2]) {
            Some(user) => describe(user, context.identity.protocol, out),
            None => context.identity.protocol.null(out),
        },
        Verb::AclDryrun => try_out(args, context, out),
        _ => log(args, context, out),
    }
}

fn list(context: &LocalContext, out: &mut Vec<u8>, line: impl Fn(&User) -> String) {
    reply::array(out, context.users.all().len());
    for user in context.users.all() {
        reply::bulk(out, line(user).as_bytes());
    }
}

/// Answers `ACL CAT [category]`.
fn categories(args: &Args, out: &mut Vec<u8>) {
    let Some(word) = args.get(2) else { return names(Categories::WORDS, out) };
    let Some(category) = Categories::parse(word) else {
        let word = String::from_utf8_lossy(word);
        return reply::error(out, &format!("ERR Unknown category '{word}'"));
    };
    let all = COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let of_category = all.filter(|command| command.acl.contains(category));
    names(&of_category.map(|command| command.name).collect::<Vec<_>>(), out);
}

fn names(names: &[&str], out: &mut Vec<u8>) {
    reply::array(out, names.len());
    names.iter().for_each(|name| reply::bulk(out, name.as_bytes()));
}

/// Answers `ACL GETUSER username`.
fn describe(user: &User, protocol: Protocol, out: &mut Vec<u8>) {
    protocol.map(out, 6);
    reply::bulk(out, b"flags");
    let flags = user.flags();
    protocol.set(out, flags.len());
    flags.iter().for_each(|flag| reply::bulk(out, flag.as_bytes()));
    reply::bulk(out, b"passwords");
    names(&user.passwords(), out);
    let mut all = user.permissions();
    permissions(&all.next().unwrap_or_default(), out);
    let selectors: Vec<_> = all.collect();
    reply::bulk(out, b"selectors");
    reply::array(out, selectors.len());
    for selector in &selectors {
        protocol.map(out, 3);
        permissions(selector, out);
    }
}

fn permissions(texts: &[String; 3], out: &mut Vec<u8>) {
    for (name, text) in ["commands", "keys", "channels"].iter().zip(texts) {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, text.as_bytes());
    }
}

/// Answers `ACL DRYRUN username command [arg ...]`.
fn try_out(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let Some(user) = context.users.get(&args[2]) else {
        let name = String::from_utf8_lossy(&args[2]);
        return reply::error(out, &format!("ERR User '{name}' not found"));
    };
    let asked = Args::new(args.buf(), &args.ranges()[3..]);
    let request = match Request::resolve(asked) {
        Ok(request) => request,
        Err(keyway_command::Refusal::Arity(command)) => {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            return reply::error(out, &text);
        }
        Err(_) => {
            let name = String::from_utf8_lossy(&args[3]);
            return reply::error(out, &format!("ERR Command '{name}' not found"));
        }
    };
    let object = |at: usize| String::from_utf8_lossy(&asked[at]).into_owned();
    let begin = "This user has no permissions to";
    let text = match user.judge(&request) {
        Ok(()) | Err(Denied::Keys(_) | Denied::Pattern(_)) => return reply::simple(out, "OK"),
        Err(Denied::Command) => format!("{begin} run the '{}' command", request.command.name),
        Err(Denied::Key(at)) => format!("{begin} access the '{}' key", object(at)),
        Err(Denied::Channel(at)) => format!("{begin} access the '{}' channel", object(at)),
    };
    reply::bulk(out, text.as_bytes());
}

/// Answers `ACL LOG [count | RESET]`.
fn log(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let log = context.users.log();
    let count = match args.get(2) {
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            log.clear();
            return reply::simple(out, "OK");
        }
        None => COUNT_DEFAULT,
        Some(word) => match parse_integer(word) {
            Some(count) => usize::try_from(count).unwrap_or(0),
            None => return reply::error(out, super::NOT_AN_INTEGER),
        },
    };
    let entries = log.newest(count);
    reply::array(out, entries.len());
    entries.iter().for_each(|entry| write_entry(entry, context, out));
}

fn write_entry(entry: &Entry, context: &LocalContext, out: &mut Vec<u8>) {
    let protocol = context.identity.protocol;
    protocol.map(out, 7);
    reply::bulk(out, b"count");
    reply::integer(out, entry.count as i64);
    let texts = [
        ("reason", entry.reason.as_str().as_bytes()),
        ("context", entry.place.as_str().as_bytes()),
        ("object", &entry.object),
        ("username", entry.user.as_bytes()),
    ];
    for (name, text) in texts {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, text);
    }
    let age = (context.clock.unix_micros / 1000).saturating_sub(entry.at_unix_millis);
    reply::bulk(out, b"age-seconds");
    protocol.double(out, format!("{}.{:03}", age / 1000, age % 1000).as_bytes());
    reply::bulk(out, b"client-info");
    reply::bulk(out, entry.client.as_bytes());
}

/// Notes a failed login. Its name may be a misplaced password, so it is logged only if a user has
/// it.
pub(super) fn note_failed_login(context: &LocalContext, name: &[u8], command: &str) {
    let user = context.users.get(name).map_or("(unknown)", |user| user.name());
    let happened = Happened {
        reason: Reason::Auth,
        place: Place::Toplevel,
        object: command.as_bytes(),
        user,
        client: &client::own_line(context, command),
    };
    context.users.log().note(&happened, context.clock);
}

/// Answers a request that the client's user may not make, and notes it.
#[cold]
pub fn refuse_denied(
    request: &Request,
    denied: Denied,
    place: Place,
    context: &LocalContext,
    out: &mut Vec<u8>,
) {
    reply::error(out, &denied_words(request, denied, place));
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, request.command.name.as_bytes()),
        Denied::Key(at) => (Reason::Key, &request.args[at]),
        Denied::Channel(at) => (Reason::Channel, &request.args[at]),
        // The request itself is wrong, whatever the user may do.
        Denied::Keys(_) | Denied::Pattern(_) => return,
    };
    let happened = Happened {
        reason,
        place,
        object,
        user: context.identity.user_name(),
        client: &client::own_line(context, request.command.name),
    };
    let clock: Clock = context.clock;
    context.users.log().note(&happened, clock);
}

#[cfg(test)]
mod tests {
    use crate::local::bench::Bench;
    use keyway_users::{User, Users, digest_text};
    use std::sync::Arc;

    fn bench() -> Bench {
        let hash = digest_text(b"sesame");
        let rules = format!("{hash} +@read -@dangerous ~app:* %R~ro:* &n.* (+set ~tmp:*)");
        let users = ["app", "off"].map(|name| Arc::new(User::new(name, &rules).unwrap()));
        let mut bench = Bench::new();
        bench.serve(Users::new(users.to_vec()));
        bench
    }

    #[test]
    fn a_user_is_told_of_without_a_hash() {
        let mut bench = bench();
        assert!(!bench.identity.authenticated, "the default user is off");
        assert_eq!(bench.ask("AUTH app sesame"), "+OK\r\n");
        assert_eq!(bench.ask("ACL WHOAMI"), "$3\r\napp\r\n");
        assert!(bench.ask("CLIENT LIST").contains(" user=app "));
        let text = bench.ask("ACL LIST") + &bench.ask("ACL GETUSER app");
        assert!(!text.contains(&digest_text(b"sesame")[1..]), "{text}");
        let line = "user app on #hidden ~app:* %R~ro:* resetchannels &n.* -@all +@read -@dangerous \
                    (~tmp:* resetchannels -@all +set)";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("user default off resetchannels -@all"), "{text}");
        assert_eq!(bench.ask("ACL GETUSER nobody"), "$-1\r\n");
        assert_eq!(bench.ask("ACL USERS"), "*3\r\n$3\r\napp\r\n$7\r\ndefault\r\n$3\r\noff\r\n");
    }

    #[test]
    fn what_a_user_may_do_can_be_tried_out() {
        let mut bench = bench();
        for (line, reply) in [
            ("ACL DRYRUN app get app:1", "+OK"),
            ("ACL DRYRUN app set tmp:1 x", "+OK"),
            ("ACL DRYRUN app get x", "access the 'x' key"),
            ("ACL DRYRUN app set app:1 x", "access the 'app:1' key"),
            ("ACL DRYRUN app flushall", "run the 'flushall' command"),
            ("ACL DRYRUN app nothing", "-ERR Command 'nothing' not found"),
            ("ACL DRYRUN app get", "-ERR wrong number of arguments for 'get' command"),
            ("ACL DRYRUN bob get x", "-ERR User 'bob' not found"),
            ("ACL CAT nothing", "-ERR Unknown category 'nothing'"),
        ] {
            assert!(bench.ask(line).contains(reply), "{line}: {}", bench.ask(line));
        }
    }

    #[test]
    fn a_failed_login_is_noted_without_what_may_be_a_password() {
        let mut bench = bench();
        bench.ask("AUTH app wrong");
        bench.ask("AUTH sesame app");
        bench.ask("HELLO 3 AUTH sesame app");
        let text = bench.ask("ACL LOG");
        assert!(text.contains("(unknown)") && text.contains("$3\r\napp\r\n"), "{text}");
        assert!(!text.contains("sesame") && !text.contains("wrong"), "{text}");
        assert_eq!(bench.ask("ACL LOG RESET"), "+OK\r\n");
        assert_eq!(bench.ask("ACL LOG"), "*0\r\n");
        assert!(bench.ask("ACL LOG x").starts_with("-ERR value is not"));
    }
}
