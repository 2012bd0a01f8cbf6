//! A take-over that does not come about: the process is told to end meanwhile, or its predecessor keeps its sockets. And Unix
//! sockets whose paths begin in the folder of a process.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Output, Stdio};

use crate::hand_over::{Place, give};
use crate::support::{Client, Server, connect, connect_unix, engines, error_line, quoit, signal, stop};

/// A predecessor that says and hands over what the test wants, and the process that is to take over from it.
struct TakeOver {
    place: Place,
    _path: UnixListener,
    stream: UnixStream,
    served: TcpListener,
    new: Child,
}

impl TakeOver {
    /// It has connected, and waits for the sockets.
    fn begin(engine: &str) -> Self {
        let place = Place::new();
        let path = UnixListener::bind(&place.path).unwrap();
        let served = TcpListener::bind("127.0.0.1:0").unwrap();
        let arguments = format!(
            "serve http --engine {engine} --drain 3600 --listen {}",
            served.local_addr().unwrap()
        );
        let new = quoit(&place.arguments(&arguments))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stream, _) = path.accept().unwrap();
        Self {
            place,
            _path: path,
            stream,
            served,
            new,
        }
    }

    fn hand_over(&self) {
        give(
            &self.stream,
            "quoit-hand-over 1 connections\n",
            &[self.served.as_fd()],
        );
    }

    /// What the new process has said to its predecessor.
    fn line(&self) -> String {
        let mut line = String::new();
        BufReader::new(&self.stream).read_line(&mut line).unwrap();
        line
    }

    /// How the new process has ended. Nothing of it is left.
    #[track_caller]
    fn end(self) -> Output {
        let output = self.new.wait_with_output().unwrap();
        assert_eq!(self.place.files(), ["hand-over"]);
        output
    }
}

#[test]
fn a_signal_is_heard_while_nothing_is_handed_over() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let take_over = TakeOver::begin("epoll");
        signal(&take_over.new, number);
        let line = error_line(&take_over.end(), 1);
        let expected = format!(
            "process {} serves on: this one was told to end before it had the sockets",
            std::process::id()
        );
        assert!(line.contains(&expected), "{line}");
    }
}

/// Who has begun to take over and is told to end would drain at once: nobody would serve any more.
#[test]
fn who_is_told_to_end_does_not_take_over() {
    for engine in engines() {
        let take_over = TakeOver::begin(engine);
        // The sockets come first, and the signal before anything can be made of them.
        stop(&take_over.new);
        take_over.hand_over();
        signal(&take_over.new, libc::SIGTERM);
        signal(&take_over.new, libc::SIGCONT);
        assert_eq!(take_over.line(), "");
        let line = error_line(&take_over.end(), 1);
        let expected = format!(
            "process {} serves on: this one was told to end before it had taken over",
            std::process::id()
        );
        assert!(line.contains(&expected), "{line}");
    }
}

#[test]
fn a_signal_is_heard_while_a_predecessor_does_not_say_that_it_drains() {
    for engine in engines() {
        let take_over = TakeOver::begin(engine);
        take_over.hand_over();
        assert_eq!(take_over.line(), "ready\n");
        signal(&take_over.new, libc::SIGINT);
        // It has the path by then, and removes its own file from there.
        let output = take_over.new.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(
            take_over.place.files().is_empty(),
            "{:?}",
            take_over.place.files()
        );
        let line = error_line(&output, 0);
        let expected = format!(
            "process {} has not said that it drains, and this one was told to end",
            std::process::id()
        );
        assert!(line.contains(&expected), "{line}");
    }
}

/// The loops of the new process accept before the old one knows of them.
#[test]
fn whom_a_process_has_accepted_is_served_where_its_predecessor_keeps_the_sockets() {
    for engine in engines() {
        let mut take_over = TakeOver::begin(engine);
        take_over.hand_over();
        assert_eq!(take_over.line(), "ready\n");
        let address = take_over.served.local_addr().unwrap().to_string();
        let mut client = Client::new(connect(&address));
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
        client.head();
        (&take_over.stream)
            .write_all(b"refused it took more than 60 s\n")
            .unwrap();
        let mut said = String::new();
        BufReader::new(take_over.new.stderr.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        let expected = "keeps its sockets, and goes on serving: it said `refused it took more than 60 s`";
        assert!(said.contains(expected), "{said}");
        client.send("def");
        let mut body = [0; 6];
        client.stream.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"abcdef");
        drop(client);
        let output = take_over.end();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

/// A server that is started in a folder, and names its Unix socket from there.
fn serve_in(folder: &std::path::Path, place: &Place) -> Server {
    let arguments = place.arguments("serve http --listen unix:served --drain 3600");
    let mut command = quoit(&arguments);
    command.current_dir(folder);
    Server::start_command(command, 1)
}

#[test]
fn the_file_of_a_relative_path_goes_with_the_last_process_too() {
    let place = Place::new();
    let folder = place.folder.path();
    let mut first = serve_in(folder, &place);
    let mut second = serve_in(folder, &place);
    first.ends_with(0);
    let at = format!("unix:{}", folder.join("served").display());
    let mut client = Client::new(connect_unix(&at));
    assert_eq!(client.get("/healthz").status, 200);
    drop(client);
    second.terminate();
    second.ends_with(0);
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// The same words name another file there, which clients of that folder look for.
#[test]
fn a_relative_path_is_that_of_the_folder_that_a_process_was_started_in() {
    let place = Place::new();
    let (old, new) = (place.folder.path().join("old"), place.folder.path().join("new"));
    fs::create_dir(&old).unwrap();
    fs::create_dir(&new).unwrap();
    let mut first = serve_in(&old, &place);
    let second = serve_in(&new, &place);
    first.ends_with(0);
    let mut client = Client::new(connect_unix(&format!("unix:{}", new.join("served").display())));
    assert_eq!(client.get("/healthz").status, 200);
    let said = second.message("quoit serve: warning: process ");
    assert!(said.contains("which is not asked for"), "{said}");
    assert!(!old.join("served").exists());
}
