//! Restarting without a lost request: `--hand-over`.

use std::fs;
use std::io::{BufRead as _, BufReader, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use tempfile::TempDir;

use crate::manager::with_inherited;
use crate::support::{
    Client, PATIENCE, Server, connect, connect_unix, engines, error_line, quoit, run, signal,
};

/// A folder with the path of a hand-over.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hand-over");
        Self { folder, path }
    }

    /// A server that takes over from the one before, if there is one, and keeps idle connections for as long as it drains.
    #[track_caller]
    fn serve(&self, arguments: &str) -> Server {
        Server::start(&self.arguments(&format!("{arguments} --drain 3600 --keep-idle 3600")))
    }

    pub(crate) fn arguments(&self, arguments: &str) -> String {
        format!("{arguments} --hand-over {}", self.path.display())
    }

    /// The one line of a server that does not come to serve.
    #[track_caller]
    fn refusal(&self, arguments: &str) -> String {
        let arguments = self.arguments(&format!("serve {arguments}"));
        error_line(&run(&arguments), 1)
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

/// Asks until a response says that it is the last on its connection: the loop hears of its drain a little after its
/// successor does.
#[track_caller]
fn is_told(client: &mut Client<TcpStream>) {
    let begin = Instant::now();
    loop {
        let response = client.get("/plaintext");
        assert_eq!((response.status, response.text()), (200, "Hello, World!"));
        match response.field("Connection") {
            Some(said) => break assert_eq!(said, "close"),
            None => assert!(begin.elapsed() < PATIENCE, "it is not told"),
        }
    }
    client.is_ended();
}

/// Connects until the one that serves is the one that does not drain.
#[track_caller]
fn is_served(address: &str) {
    let begin = Instant::now();
    while Client::new(connect(address)).get("/healthz").status != 200 {
        assert!(begin.elapsed() < PATIENCE, "nobody serves");
    }
}

/// Threads of a process that run loops; none if it has ended.
fn loops_of(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    let names = threads.into_iter().flatten().flatten().map(name);
    names.filter(|name| name.starts_with("quoit-loop-")).count()
}

/// Each engine as the predecessor of each other, as a socket that both have is one.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    engines()
        .iter()
        .flat_map(|&old| engines().iter().map(move |&new| (old, new)))
}

#[test]
fn a_successor_takes_over_and_nobody_is_lost() {
    for (old_engine, new_engine) in pairs() {
        let place = Place::new();
        let mut old = place.serve(&format!(
            "http --engine {old_engine} --loops 2 --listen 127.0.0.1:0"
        ));
        let address = old.address().to_owned();
        let (mut idle, mut silent, mut busy) = (old.connect(), old.connect(), old.connect());
        assert_eq!(idle.get("/plaintext").status, 200);
        busy.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
        busy.head();
        let mut new = place.serve(&format!("http --engine {new_engine} --listen {address}"));
        assert_eq!(new.address(), address);
        let process = new.message("quoit serve: took over from process ");
        assert!(process.ends_with(", which drains"), "{process}");
        old.message("quoit serve: process ");
        // One that was between two requests, and one that had not asked yet.
        is_told(&mut idle);
        is_told(&mut silent);
        busy.send("def");
        let mut body = [0; 6];
        busy.stream.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"abcdef");
        is_served(&address);
        drop((idle, silent, busy));
        assert_eq!(old.ends_with(0), "");
        is_served(&address);
        // The file is the successor's, which removes it.
        assert_eq!(place.files(), ["hand-over"]);
        new.terminate();
        new.ends_with(0);
        assert!(place.files().is_empty());
    }
}

/// What stays is closed in order when its time is over, and not reset.
#[test]
fn idle_connections_are_closed_in_order_before_the_end_of_the_drain() {
    for engine in engines() {
        let place = Place::new();
        let arguments = format!("http --engine {engine} --drain 3600 --keep-idle 0");
        let mut old = Server::start(&place.arguments(&format!("{arguments} --listen 127.0.0.1:0")));
        let mut idle = old.connect();
        assert_eq!(idle.get("/plaintext").status, 200);
        let _new = place.serve(&format!("http --listen {}", old.address()));
        idle.is_ended();
        drop(idle);
        old.ends_with(0);
    }
}

#[test]
fn the_end_of_a_drain_counts_what_it_resets() {
    for engine in engines() {
        let mut server = Server::on(engine, "http --drain 1 --keep-idle 1");
        let mut busy = server.connect();
        busy.send("GET /bytes/100000000 HTTP/1.1\r\nHost: x\r\n\r\n");
        busy.head();
        server.terminate();
        let messages = server.ends_with(0);
        let expected = "reset 1 open connections; --drain 1 was not enough for them";
        assert!(messages.contains(expected), "{messages}");
    }
}

#[test]
fn two_processes_drain_while_a_third_serves() {
    for engine in engines() {
        let place = Place::new();
        let mut first = place.serve(&format!("http --engine {engine} --listen 127.0.0.1:0"));
        let address = first.address().to_owned();
        let serve = || place.serve(&format!("http --engine {engine} --listen {address}"));
        let mut of_first = first.connect();
        assert_eq!(of_first.get("/plaintext").status, 200);
        let mut second = serve();
        is_told(&mut of_first);
        let mut late = Client::new(connect(&address));
        late.send("GET /healthz HTTP/1.1\r\nHost: x\r\n");
        let mut of_second = Client::new(connect(&address));
        assert_eq!(of_second.get("/plaintext").status, 200);
        let third = serve();
        is_told(&mut of_second);
        late.send("\r\n");
        late.response();
        is_served(&address);
        drop((of_first, of_second, late));
        first.ends_with(0);
        second.ends_with(0);
        is_served(third.address());
    }
}

#[test]
fn a_path_that_was_left_behind_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(&place.path).unwrap());
    let server = place.serve("http --listen 127.0.0.1:0");
    let said = server.message("quoit serve: nobody serves at ");
    assert!(
        said.ends_with("any more: the file was left behind, and is replaced"),
        "{said}"
    );
    let file = fs::symlink_metadata(&place.path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    is_served(server.address());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new();
    fs::write(&place.path, "precious").unwrap();
    let line = place.refusal("http --listen 127.0.0.1:0");
    assert!(line.contains("is no Unix socket, and is left alone"), "{line}");
    assert_eq!(fs::read_to_string(&place.path).unwrap(), "precious");
}

#[test]
fn one_that_drains_hands_nothing_over() {
    let place = Place::new();
    let mut server = place.serve("http --listen 127.0.0.1:0");
    let address = server.address().to_owned();
    let mut client = server.connect();
    assert_eq!(client.get("/plaintext").status, 200);
    server.terminate();
    is_told(&mut client);
    // The client keeps it draining.
    let line = place.refusal(&format!("http --listen {address}"));
    assert!(
        line.contains("hands nothing over: it drains; try again when it has ended"),
        "{line}"
    );
    drop(client);
    server.ends_with(0);
    let server = place.serve(&format!("http --listen {address}"));
    is_served(server.address());
}

/// The one that serves goes on when its successor does not come to serve, whatever that had been given.
#[test]
fn a_successor_that_fails_changes_nothing() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = place.serve("http --listen 127.0.0.1:0");
    let elsewhere = taken.local_addr().unwrap();
    let line = place.refusal(&format!(
        "http --listen {} --listen {elsewhere}",
        server.address()
    ));
    assert!(line.contains(&elsewhere.to_string()), "{line}");
    let said = server.message("quoit serve: process ");
    assert!(
        said.ends_with("was to take over, and has gone; serving goes on"),
        "{said}"
    );
    is_served(server.address());
    let mut client = server.connect();
    assert_eq!(client.get("/plaintext").field("Connection"), None);
    let next = place.serve(&format!("http --listen {}", server.address()));
    is_served(next.address());
}

#[test]
fn only_one_takes_over_at_a_time() {
    let place = Place::new();
    let server = place.serve("http --listen 127.0.0.1:0");
    let taking = UnixStream::connect(&place.path).unwrap();
    let mut hello = String::new();
    BufReader::new(&taking).read_line(&mut hello).unwrap();
    assert_eq!(hello, "quoit-hand-over 1 connections\n");
    let line = place.refusal(&format!("http --listen {}", server.address()));
    let expected = format!("process {} is taking over already", std::process::id());
    assert!(line.contains(&expected), "{line}");
}

/// Sends a line, and descriptors with it.
pub(crate) fn give(stream: &UnixStream, line: &str, descriptors: &[BorrowedFd<'_>]) {
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    let mut space = vec![MaybeUninit::uninit(); rights.size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(rights));
    }
    let bytes = IoSlice::new(line.as_bytes());
    sendmsg(stream, &[bytes], &mut control, SendFlags::empty()).unwrap();
}

/// A predecessor that hands over what the test says.
fn hand_over(place: &Place, line: &str, descriptors: &[BorrowedFd<'_>], arguments: &str) -> String {
    let listener = UnixListener::bind(&place.path).unwrap();
    std::thread::scope(|scope| {
        let refusal = scope.spawn(|| place.refusal(arguments));
        let (stream, _) = listener.accept().unwrap();
        give(&stream, line, descriptors);
        drop(stream);
        refusal.join().unwrap()
    })
}

#[test]
fn what_is_handed_over_must_be_a_listening_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let file = tempfile::tempfile().unwrap();
    let (listener, connected, file) = (listener.as_fd(), connected.as_fd(), file.as_fd());
    let one = "quoit-hand-over 1 connections\n";
    let cases: &[(&str, &[BorrowedFd<'_>], &str)] = &[
        (one, &[connected], "handed over what cannot be used: "),
        (one, &[connected], "the socket does not listen"),
        (one, &[file], "handed over what cannot be used: "),
        (one, &[], "named 1 sockets and handed 0 over"),
        (
            "quoit-hand-over 1\n",
            &[listener],
            "named 0 sockets and handed 1 over",
        ),
        (
            "quoit-hand-over 1 tea\n",
            &[listener],
            "handed over a socket for `tea`, which is unknown",
        ),
        (
            "220 ready for mail\n",
            &[],
            "does not hand sockets over: it said `220 ready for mail`",
        ),
        ("", &[], "ended without handing anything over; try again"),
    ];
    for (line, descriptors, expected) in cases {
        let place = Place::new();
        let said = hand_over(&place, line, descriptors, "http --listen 127.0.0.1:0");
        assert!(said.contains(expected), "{said}");
        assert!(
            said.contains(&format!("process {}", std::process::id())),
            "{said}"
        );
    }
}

/// The user `nobody` of every system.
const NOBODY: u32 = 65_534;

#[test]
fn sockets_are_for_processes_of_the_same_user() {
    if !rustix::process::geteuid().is_root() {
        return quoit_skipped::skip("a successor of another user", "only root can start one");
    }
    let place = Place::new();
    let server = place.serve("http --listen 127.0.0.1:0");
    // As if somebody had opened it to all.
    for (path, mode) in [(place.folder.path(), 0o755), (&place.path, 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut said = String::new();
    let stream = connect_as(NOBODY, &place.path);
    BufReader::new(stream).read_line(&mut said).unwrap();
    assert_eq!(
        said,
        "quoit-hand-over 1 refused the sockets are for processes of the same user\n"
    );
    is_served(server.address());
}

/// A connection whose other end takes it for one of that user.
fn connect_as(user: u32, path: &Path) -> UnixStream {
    let path = path.to_owned();
    // A thread's user is its own, and so are the credentials of what it connects.
    let connected = std::thread::spawn(move || {
        // SAFETY: no memory is passed, and the thread ends with that user; the other threads keep theirs.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(result, 0);
        UnixStream::connect(path).unwrap()
    });
    connected.join().unwrap()
}

#[test]
fn a_unix_socket_keeps_its_file() {
    for engine in engines() {
        let place = Place::new();
        let address = format!("unix:{}", place.folder.path().join("http").display());
        let arguments = format!("http --engine {engine} --listen {address}");
        let mut old = place.serve(&arguments);
        let mut client = Client::new(connect_unix(&address));
        assert_eq!(client.get("/plaintext").status, 200);
        let new = place.serve(&arguments);
        drop(client);
        old.ends_with(0);
        let mut client = Client::new(connect_unix(&address));
        assert_eq!(client.get("/healthz").text(), "ok");
        drop(new);
    }
}

#[test]
fn the_socket_of_the_metrics_is_handed_over_too() {
    let place = Place::new();
    let old = place.serve("http --listen 127.0.0.1:0 --metrics 127.0.0.1:0");
    let metrics = old.message("metrics on ");
    let new = place.serve(&format!("http --listen {} --metrics {metrics}", old.address()));
    assert_eq!(new.message("metrics on "), metrics);
    is_served(&metrics);
}

/// Who has connected to the old process's metrics is answered, although nothing else keeps that process.
#[test]
fn who_asks_for_metrics_is_answered_by_who_goes() {
    let place = Place::new();
    let old = place.serve("http --listen 127.0.0.1:0 --metrics 127.0.0.1:0");
    let metrics = old.message("metrics on ");
    let mut asking = Client::new(connect(&metrics));
    asking.send("GET /metrics HTTP/1.1\r\n");
    let new = place.serve(&format!("http --listen {} --metrics {metrics}", old.address()));
    // The metrics' loop alone is left.
    let begin = Instant::now();
    while loops_of(old.id()) > 1 {
        assert!(begin.elapsed() < PATIENCE, "it does not drain");
    }
    // A process that did not wait for it would be gone by the end of these.
    for _ in 0..100 {
        is_served(new.address());
    }
    asking.send("Host: x\r\n\r\n");
    assert_eq!(asking.response().status, 200);
}

#[test]
fn without_an_address_all_that_is_handed_over_is_served() {
    let place = Place::new();
    let command = || quoit(&place.arguments("serve http --listen 127.0.0.1:0 --listen [::1]:0"));
    let old = Server::start_command(command(), 2);
    let new = Server::start_command(quoit(&place.arguments("serve http")), 2);
    for (old, new) in old.ready.iter().zip(&new.ready) {
        assert_eq!(old.address, new.address);
        is_served(&new.address);
    }
    // One of them alone is asked for: the other's queue is lost, which is said.
    let last = place.serve(&format!("http --listen {}", new.ready[0].address));
    let said = last.message("quoit serve: warning: process ");
    assert!(said.contains(&new.ready[1].address), "{said}");
}

/// The quick form of `make restarts`: a load by a timetable, through one restart after another.
#[test]
fn restarts_under_load_lose_no_request() {
    const CONNECTIONS: u64 = 32;
    const RESTARTS: u64 = 3;
    for (first, second) in pairs() {
        let place = Place::new();
        let mut old = place.serve(&format!("http --loops 2 --engine {first} --listen 127.0.0.1:0"));
        let address = old.address().to_owned();
        let arguments = format!(
            "load http --connect {address} --connections {CONNECTIONS} --rate 3000 --warmup 0 --seconds 3600 --announce --json"
        );
        let mut load = quoit(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut announced = String::new();
        // Its connections are open.
        let mut errors = BufReader::new(load.stderr.take().unwrap());
        errors.read_line(&mut announced).unwrap();
        assert!(announced.starts_with("window"), "{announced}");
        for restart in 0..RESTARTS {
            let engine = if restart % 2 == 0 { second } else { first };
            let new = place.serve(&format!("http --loops 2 --engine {engine} --listen {address}"));
            // It ends when each of its connections has been told.
            let messages = old.ends_with(0);
            assert!(!messages.contains("reset"), "{messages}");
            old = new;
        }
        signal(&load, libc::SIGINT);
        let mut report = String::new();
        load.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        load.wait().unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        for count in report["errors"].as_object().unwrap().values() {
            assert_eq!(count, 0, "{report:#}");
        }
        assert_eq!(report["sent_requests"], report["received_replies"], "{report:#}");
        assert_eq!(report["repeated_requests"], 0, "{report:#}");
        let reconnects = report["reconnects"].as_u64().unwrap();
        assert!(reconnects >= CONNECTIONS, "{report:#}");
    }
}

/// Where one of the sockets is a Unix socket, its file is the last process's to remove, whoever has made it.
#[test]
fn the_file_of_a_unix_socket_goes_with_the_last_process_that_serves() {
    let place = Place::new();
    let at = |name: &str| format!("unix:{}/{name}", place.folder.path().display());
    let listen = format!("http --listen {} --metrics {}", at("served"), at("metrics"));
    let mut first = place.serve(&listen);
    let mut second = place.serve(&listen);
    first.ends_with(0);
    let mut third = place.serve(&listen);
    second.ends_with(0);
    for name in ["served", "metrics"] {
        let mut client = Client::new(connect_unix(&at(name)));
        assert_eq!(client.get("/healthz").status, 200);
    }
    let mut files = place.files();
    files.sort();
    assert_eq!(files, ["hand-over", "metrics", "served"]);
    // Nobody listens there any more where the next one does not want to.
    let mut last = place.serve(&format!("http --listen {}", at("served")));
    last.message("quoit serve: took over from process ");
    third.ends_with(0);
    let mut files = place.files();
    files.sort();
    assert_eq!(files, ["hand-over", "served"]);
    last.terminate();
    last.ends_with(0);
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// It is the predecessor's for as long as that serves; and one that a service manager has made is nobody's here.
#[test]
fn the_file_of_a_unix_socket_stays_where_another_has_it() {
    let place = Place::new();
    let path = place.folder.path().join("served");
    let listen = format!("http --listen unix:{}", path.display());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut first = place.serve(&listen);
    let second = place.serve(&listen);
    first.ends_with(0);
    place.refusal(&format!("{listen} --listen {}", taken.local_addr().unwrap()));
    second.message("quoit serve: process ");
    let mut client = Client::new(connect_unix(&format!("unix:{}", path.display())));
    assert_eq!(client.get("/healthz").status, 200);
    drop((client, second));

    let place = Place::new();
    let path = place.folder.path().join("activated");
    let activated = UnixListener::bind(&path).unwrap();
    let command = with_inherited(activated, "1", &place.arguments("http"));
    let mut first = Server::start_command(command, 1);
    let mut second = place.serve("http");
    first.ends_with(0);
    second.terminate();
    second.ends_with(0);
    assert_eq!(place.files(), ["activated"]);
}

/// It may have heard that it is to drain, and stand still. Who gave up then would leave nobody to serve.
#[test]
fn a_predecessor_that_does_not_say_that_it_drains_is_no_reason_not_to_serve() {
    let place = Place::new();
    let served = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = served.local_addr().unwrap().to_string();
    let old = UnixListener::bind(&place.path).unwrap();
    let (stream, mut new) = std::thread::scope(|scope| {
        let new = scope.spawn(|| place.serve(&format!("http --listen {address}")));
        let (stream, _) = old.accept().unwrap();
        give(&stream, "quoit-hand-over 1 connections\n", &[served.as_fd()]);
        let mut said = String::new();
        BufReader::new(&stream).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        (stream, new.join().unwrap())
    });
    let said = new.message("quoit serve: warning: process ");
    assert!(said.ends_with("; this one serves beside it"), "{said}");
    is_served(&address);
    drop((stream, old));
    new.terminate();
    new.ends_with(0);
    assert!(place.files().is_empty(), "{:?}", place.files());
}
