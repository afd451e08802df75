//! A program in C, compiled with the header and linked with the library, talks to a real server.

use keyway_testkit::{RedisServer, TempDir};
use std::path::PathBuf;
use std::process::Command;

/// Where cargo has put the libraries: beside the tests.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a running test");
    test.parent().expect("a directory").to_owned()
}

fn compile(directory: &TempDir, how: &[&str]) -> PathBuf {
    let program = directory.path().join("talk");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude", "tests/talk.c", "-o"])
        .arg(&program)
        .args(how)
        .output()
        .expect("a C compiler, which the toolchain needs too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &PathBuf, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", libraries())
        .output()
        .expect("a program that was just made");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_program_in_c_talks_to_a_server() {
    let directory = TempDir::new();
    let socket = format!("{}/redis.sock", directory.path().display());
    let server = RedisServer::start_with(&["--unixsocket", &socket]);
    let at = libraries();
    let found = format!("-L{}", at.display());
    let program = compile(&directory, &[&found, "-lkeyway_client_c"]);
    assert_eq!(run(&program, &[&format!("tcp://{}", server.address())]), "transport 0\n");
    assert_eq!(run(&program, &[&format!("unix://{socket}"), "2"]), "transport 1\n");
    let whole = at.join("libkeyway_client_c.a");
    let program = compile(&directory, &[whole.to_str().unwrap(), "-lpthread", "-ldl", "-lm"]);
    assert_eq!(run(&program, &[&format!("tcp://{}", server.address())]), "transport 0\n");
}
