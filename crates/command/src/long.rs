//! Commands whose amount of work shows neither in the request nor in its reply.

use crate::Verb;

/// Returns whether the embedded store may work long on a request of this command although the
/// request and its reply are small. Then the data that it reads, changes or frees is as large as
/// what is stored, or as a number in the request. For other commands the number of bytes received
/// or sent shows the work.
pub(crate) const fn may_take_long(verb: Verb) -> bool {
    use Verb::*;
    matches!(
        verb,
        Keys | Scan
            | Flushdb
            | Flushall
            | Swapdb
            | Sort
            | SortRo
            | Del
            | Unlink
            | Rename
            | Renamenx
            | Copy
            | MemoryUsage
            | Lcs
            | Setrange
            | Setbit
            | Bitcount
            | Bitpos
            | Bitop
            | Bitfield
            | Lrem
            | Linsert
            | Lpos
            | Lindex
            | Lset
            | Ltrim
            | Sscan
            | Sdiff
            | Sdiffstore
            | Sinter
            | Sinterstore
            | Sintercard
            | Sunion
            | Sunionstore
            | Hscan
            | Zscan
            | Zdiff
            | Zdiffstore
            | Zinter
            | Zinterstore
            | Zintercard
            | Zunion
            | Zunionstore
            | Zrangestore
            | Zremrangebyrank
            | Zremrangebyscore
            | Zremrangebylex
            | Georadius
            | GeoradiusRo
            | Georadiusbymember
            | GeoradiusbymemberRo
            | Geosearch
            | Geosearchstore
            | Pfcount
            | Pfmerge
            | Xtrim
            | Xpending
            | Xautoclaim
            | XinfoStream
            | XgroupDestroy
            | Eval
            | EvalRo
            | Evalsha
            | EvalshaRo
            | Fcall
            | FcallRo
            | FunctionLoad
            | FunctionRestore
    )
}

#[cfg(test)]
mod tests {
    use crate::{COMMANDS, Command, store_scripts, store_serves};

    #[test]
    fn only_what_the_store_executes_is_timed_there() {
        let all = || COMMANDS.iter().flat_map(|one| [one].into_iter().chain(one.subcommands));
        let timed: Vec<&Command> = all().filter(|command| command.may_take_long).collect();
        assert!(timed.len() > 50);
        for command in timed {
            let is_here = store_serves(command.verb) || store_scripts(command.verb);
            assert!(is_here, "{}", command.name);
        }
    }

    #[test]
    fn what_is_dangerous_for_being_slow_is_timed_and_what_costs_the_same_always_is_not() {
        let of = |name: &str| crate::lookup(name.as_bytes()).expect("a command");
        for name in ["keys", "sort", "sort_ro", "flushall", "flushdb", "swapdb", "eval", "zunion"] {
            assert!(of(name).may_take_long, "{name}");
        }
        for name in ["get", "set", "incr", "hset", "hget", "lpush", "sadd", "zadd", "expire"] {
            assert!(!of(name).may_take_long, "{name}");
        }
    }
}
