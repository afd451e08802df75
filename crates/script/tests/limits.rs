//! Tests what scripts may and may not do, without a store.

use keyway_base::Time;
use keyway_command::Request;
use keyway_resp::Protocol;
use keyway_script::{Engine, Host, Kill, Policy, Registry, Run, Script, ScriptLimits, Words};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Meanwhile = Option<(u64, Box<dyn FnOnce()>)>;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
    /// What happens elsewhere, and at which reading of the clock.
    static MEANWHILE: RefCell<Meanwhile> = const { RefCell::new(None) };
}

/// A clock on which each reading takes a millisecond. Code that never reads it takes no time.
fn clock() -> Time {
    LOOKS.set(LOOKS.get() + 1);
    let due = MEANWHILE.with_borrow_mut(|one| one.take_if(|(look, _)| *look <= LOOKS.get()));
    if let Some((_, happens)) = due {
        happens();
    }
    Time(0) + Duration::from_millis(LOOKS.get())
}

/// Makes something happen elsewhere at the `nth` reading from now on.
fn meanwhile(nth: u64, happens: impl FnOnce() + 'static) {
    MEANWHILE.set(Some((LOOKS.get() + nth, Box::new(happens))));
}

/// A host for which every command succeeds.
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

/// Returns an engine in which no script runs for too long.
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
        // This is one string more times than any machine has memory for.
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

fn loading() -> Arc<Run> {
    Arc::new(Run::new(true, "FUNCTION LOAD".to_owned(), Vec::new(), Time(0)))
}

fn fcall(engine: &mut Engine, name: &str) -> String {
    let run = Arc::new(Run::new(true, name.to_owned(), Vec::new(), Time(0)));
    let (words, mut out) = (Words { keys: &[], args: &[] }, Vec::new());
    let host = Rc::new(Fine);
    engine.call(name.as_bytes(), &words, (host, run), false, Protocol::Resp2, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn library(nth: usize, text: &str) -> Vec<u8> {
    let name = format!("#!lua name=lib{nth}\n");
    format!("{name}{text} redis.register_function('f{nth}', function() return {nth} end)").into()
}

#[test]
fn a_function_that_is_replaced_while_it_is_compiled_is_the_new_one_the_next_time() {
    let mut engine = patient();
    let registry = Arc::clone(engine.registry());
    let keep = |engine: &mut Engine, body: &str| {
        let code = format!("#!lua name=l\nredis.register_function('f', {body})");
        engine.load_library(code.as_bytes(), Policy::Replace, &loading()).unwrap()
    };
    let old = keep(&mut engine, "function() return 'old' end");
    let new = keep(&mut engine, "function() return 'new' end");
    // The first reading is for the deadline of the call, the second happens while it is loaded.
    let (other, new) = (Arc::clone(&registry), new);
    registry.keep_libraries(vec![old], Policy::Replace).unwrap();
    meanwhile(2, move || other.keep_libraries(vec![new], Policy::Replace).unwrap());
    assert_eq!(fcall(&mut engine, "f"), "$3\r\nold\r\n");
    assert_eq!(fcall(&mut engine, "f"), "$3\r\nnew\r\n");
}

#[test]
fn libraries_are_loaded_in_the_time_of_one_script_and_not_at_all_when_there_are_too_many() {
    let mut engine = engine(Duration::from_millis(100));
    let load = |engine: &mut Engine, count: usize| {
        let codes: Vec<Vec<u8>> = (0..count).map(|nth| library(nth, "")).collect();
        let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
        engine.load_libraries(&codes, &loading()).map(|all| all.len())
    };
    assert_eq!(load(&mut engine, 20), Ok(20));
    assert_eq!(load(&mut engine, 200), Err("ERR FUNCTION LOAD timeout".to_owned()));
    let before = LOOKS.get();
    assert!(load(&mut engine, 1001).unwrap_err().contains("as many libraries"));
    assert_eq!(LOOKS.get(), before, "none was tried");
}

#[test]
fn what_loads_functions_is_killed_as_a_function_is() {
    const KILLED: &str = "ERR Script killed by user with FUNCTION KILL.";
    let mut engine = patient();
    let registry = Arc::clone(engine.registry());
    let kill = move || {
        let other = Arc::clone(&registry);
        meanwhile(10, move || {
            assert_eq!(other.kill(false), Kill::OtherKind);
            assert_eq!(other.kill(true), Kill::Killed);
        });
    };
    kill();
    let endless = library(1, "while true do end");
    assert_eq!(engine.load_libraries(&[&endless], &loading()).unwrap_err(), KILLED);
    // The function is compiled for a call. A library that is loaded may use its whole time again.
    let slow = library(1, "for i = 1, 1e5 do end");
    let loaded = engine.load_library(&slow, Policy::Append, &loading()).unwrap();
    engine.registry().keep_libraries(vec![loaded], Policy::Append).unwrap();
    kill();
    assert_eq!(fcall(&mut engine, "f1"), format!("-{KILLED}\r\n"));
    assert_eq!(fcall(&mut engine, "f1"), ":1\r\n");
    assert_eq!(engine.registry().kill(true), Kill::NotBusy);
}

#[test]
fn what_the_host_keeps_of_a_script_ends_it_at_its_memory() {
    struct Keeps(Cell<usize>);
    impl Host for Keeps {
        fn execute(&self, _: &Request<'_>, _: Protocol, _: bool, out: &mut Vec<u8>) {
            self.0.set(self.0.get() + (1 << 20));
            out.extend_from_slice(b"+OK\r\n");
        }

        fn kept_len(&self) -> usize {
            self.0.get()
        }

        fn log(&self, _: u8, _: &str) {}
    }
    let mut engine = patient();
    let text = b"while true do pcall(redis.call, 'publish', 'a', 'b') end";
    let script = engine.load(text, false).unwrap();
    let run = Arc::new(Run::new(false, "name".to_owned(), Vec::new(), Time(0)));
    let host = Rc::new(Keeps(Cell::new(0)));
    let (words, mut out) = (Words { keys: &[], args: &[] }, Vec::new());
    engine.run(&script, &words, (host.clone(), run), false, Protocol::Resp2, &mut out);
    let reply = String::from_utf8_lossy(&out);
    assert!(reply.contains("more than script_memory_max (64 MiB)"), "{reply}");
    assert_eq!(host.0.get(), 65 << 20);
}

#[test]
fn short_replies_that_a_script_keeps_end_it_at_its_memory() {
    const LEN: usize = 3500;
    /// A host that gives a different reply each time.
    struct Tells(Cell<usize>);
    impl Host for Tells {
        fn execute(&self, _: &Request<'_>, _: Protocol, _: bool, out: &mut Vec<u8>) {
            self.0.set(self.0.get() + 1);
            let text = format!("${LEN}\r\n{:01$}\r\n", self.0.get(), LEN);
            out.extend_from_slice(text.as_bytes());
        }

        fn log(&self, _: u8, _: &str) {}
    }
    let (time_max, memory_max) = (Duration::from_secs(1 << 30), 8 << 20);
    let limits = ScriptLimits { time_max, memory_max, ..ScriptLimits::default() };
    let mut engine = Engine::new(Arc::new(Registry::new(limits, clock)));
    for kept in
        ["kept[#kept + 1] = redis.call('get', 'k')", "kept = {kept, redis.call('get', 'k')}"]
    {
        let text = format!("local kept = {{}} while true do {kept} end");
        let script = engine.load(text.as_bytes(), false).unwrap();
        let run = Arc::new(Run::new(false, "name".to_owned(), Vec::new(), Time(0)));
        let host = Rc::new(Tells(Cell::new(0)));
        let (words, mut out) = (Words { keys: &[], args: &[b"an argument"] }, Vec::new());
        engine.run(&script, &words, (host.clone(), run), false, Protocol::Resp2, &mut out);
        let reply = String::from_utf8_lossy(&out);
        assert!(reply.contains("more than script_memory_max (8 MiB)"), "{reply}");
        let kept_len = host.0.get() * LEN;
        assert!(kept_len < memory_max && kept_len > memory_max / 2, "{kept_len} bytes were kept");
    }
}
