//! A program in C, compiled with the header and linked with the library, talks to a real server.

use keyway_ring::{HELLO_LEN, Refusal, refuse};
use keyway_testkit::{RedisServer, TempDir};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
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

#[test]
fn a_program_in_c_is_told_once_that_no_memory_is_shared() {
    let directory = TempDir::new();
    let path = directory.path().join("refuses.shm");
    let server = UnixListener::bind(&path).expect("a free path");
    let serving = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = server.accept().expect("a program that connects");
            socket.read_exact(&mut [0; HELLO_LEN]).expect("a hello");
            refuse(&socket, Refusal::User).expect("a socket that is open");
            socket.read_exact(&mut [0; 14]).expect("a PING");
            socket.write_all(b"+PONG\r\n").expect("a socket that is open");
        }
    });
    let found = format!("-L{}", libraries().display());
    let program = compile(&directory, &[&found, "-lkeyway_client_c"]);
    assert_eq!(run(&program, &[&format!("shm://{}", path.display())]), "");
    serving.join().expect("a server that was asked twice");
}
