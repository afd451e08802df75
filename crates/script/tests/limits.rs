//! What scripts may and may not do, without a store.

use keyway_base::Time;
use keyway_command::Request;
use keyway_resp::Protocol;
use keyway_script::{Engine, Host, Registry, Run, Script, ScriptLimits, Words};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// A clock on which each look takes a millisecond: what never looks takes no
/// time.
fn clock() -> Time {
    LOOKS.set(LOOKS.get() + 1);
    Time(0) + Duration::from_millis(LOOKS.get())
}

/// A world in which every command is fine.
struct Fine;

impl Host for Fine {
    fn execute(&self, _: &Request<'_>, _: Protocol, _: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"+OK\r\n");
    }

    fn log(&self, _: u8, _: &str) {}
}

fn engine(time_max: Duration) -> Engine {
    let limits = ScriptLimits { time_max, ..ScriptLimits::default() };
    Engine::new(Arc::new(Registry::new(limits, clock)))
}

/// An engine in which no script runs for too long.
fn patient() -> Engine {
    engine(Duration::from_secs(1 << 30))
}

fn run(engine: &mut Engine, script: &Script) -> String {
    let run = Arc::new(Run::new(false, "name".to_owned(), Vec::new(), Time(0)));
    let (words, mut out) = (Words { keys: &[], args: &[] }, Vec::new());
    engine.run(script, &words, (Rc::new(Fine), run), false, Protocol::Resp2, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn eval(engine: &mut Engine, text: &str) -> String {
    let script = engine.load(text.as_bytes(), false).unwrap();
    run(engine, &script)
}

#[test]
fn no_command_is_longer_than_its_bound_whoever_is_asked_about_it() {
    let mut engine = patient();
    for ask in ["redis.call", "redis.acl_check_cmd"] {
        // As many times one string as no machine has memory for.
        let text = format!(
            "local s = string.rep('x', 2e7) local all = {{}} for i = 1, 7000 do all[i] = s end \
             return {ask}('mset', unpack(all))"
        );
        let reply = eval(&mut engine, &text);
        assert!(reply.starts_with("-ERR the command is longer than 512 MiB"), "{ask}: {reply}");
    }
}

#[test]
fn sorting_looks_at_the_time_whatever_is_sorted_and_however_little() {
    for elements in
        ["string.rep('x', 1000)", "i % 7", "setmetatable({}, {__lt = function() return false end})"]
    {
        let mut engine = engine(Duration::from_millis(300));
        let text = format!(
            "local t = {{}} for i = 1, 4000 do t[i] = {elements} end table.sort(t) return #t"
        );
        let reply = eval(&mut engine, &text);
        assert!(reply.contains("script_time_max"), "{elements}: {reply}");
    }
}

#[test]
fn what_scripts_see_of_protected_tables_they_cannot_change_for_others() {
    let mut engine = patient();
    for of in ["redis", "_G", "string", "''", "getmetatable(redis)", "getmetatable('')"] {
        for change in [
            "rawset(m, 'leak', 1)",
            "m.leak = 1",
            "table.insert(m, 'leak')",
            "setmetatable(m, {__index = {leak = 1}})",
        ] {
            eval(&mut engine, &format!("local m = getmetatable({of}) {change}"));
            let look = format!("local m = getmetatable({of}) return {{rawget(m, 'leak'), m[1]}}");
            let reply = eval(&mut engine, &look);
            assert_eq!(reply, "*0\r\n", "{change} of {of}");
        }
    }
}

#[test]
fn what_is_forgotten_before_its_turn_runs_all_the_same() {
    let mut engine = patient();
    let script = engine.load(b"return 'here'", false).unwrap();
    engine.registry().flush();
    assert_eq!(run(&mut engine, &script), "$4\r\nhere\r\n");
    assert_eq!(engine.registry().kept(), (0, 0));
}

#[test]
fn messages_hold_maps_of_any_size() {
    let mut engine = patient();
    let reply = eval(
        &mut engine,
        "local t = {} for i = 1, 100000 do t['k' .. i] = i end
         local again = cmsgpack.unpack(cmsgpack.pack(t))
         local count = 0 for key, value in pairs(again) do
           if t[key] == value then count = count + 1 end
         end return count",
    );
    assert_eq!(reply, ":100000\r\n");
}
