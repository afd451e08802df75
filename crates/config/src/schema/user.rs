use super::key::{Table, key};
use super::kind::{Absent, Kind};
use Absent::{Refused, Unset};
use Kind::{Hashes, Path, PoolName, ReadFrom, Rules, Secret, UserName, Variable};

pub(crate) static USER: Table = Table {
    header: "[[user]]",
    doc: "Who may log in, and what each may do, in the words of Redis's access control lists; each with its own `[[user]]` line ([users.md](users.md)). Without any, every client may do everything that its listener lets in. With some, clients that have not logged in may do nothing, unless the listener has a password, which is that of the user `default`, or a `[[user]]` called `default` says otherwise.",
    keys: &[
        key(
            "name",
            UserName,
            Refused,
            "What clients say with `AUTH name password`. The user `default` is who gives a password alone, and with `nopass` who says nothing.",
        ),
        key(
            "rules",
            Rules,
            Refused,
            "What the user may do, as `ACL SETUSER` and ACL files of Redis 7 have it: commands (`+get`, `-config|set`), categories (`+@read`, `-@dangerous`), keys (`~app:*`, `%R~`, `%W~`), channels (`&news.*`), selectors in brackets, `nopass`, `off`. Nothing is allowed that is not written, and users are on.",
        )
        .known_elsewhere_as(&["acl", "permissions"]),
        key(
            "password",
            Secret,
            Unset("none but those below"),
            "A password of the user.",
        ),
        key(
            "password_file",
            Path,
            Unset("none but the others"),
            "A file that holds it; one newline at its end is ignored.",
        ),
        key(
            "password_env",
            Variable,
            Unset("none but the others"),
            "The variable of the environment that holds it.",
        ),
        key(
            "password_hashes",
            Hashes,
            Unset("none but the others"),
            "Further passwords of the user, hashed: what `keyway hash-password` prints, which is what ACL files of Redis have behind `#`.",
        )
        .known_elsewhere_as(&["password_hash", "hashes"]),
        key(
            "pool",
            PoolName,
            Unset("that of the listener"),
            "The pool that answers this user, at whatever listener it logs in.",
        ),
        key(
            "read_from",
            ReadFrom,
            Unset("the listener's `read_from`, else the pool's"),
            "Which servers answer what this user only reads, in the words of the pool; where it is answered by a pool of kind `\"cluster\"`, `\"replicated\"` or `\"slots\"`, and elsewhere without effect.",
        ),
    ],
};
