//! Starting the program, watching it, and speaking to it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Guards against hanging; nothing that works takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program with these arguments, separated by spaces.
pub(crate) fn quoit(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quoit"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &str) -> Output {
    output(quoit(arguments))
}

pub(crate) fn output(mut command: Command) -> Output {
    command.output().expect("the program can be started")
}

/// The one line of a run that failed with this code.
#[track_caller]
pub(crate) fn error_line(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// The engines that this machine has. Where io_uring is denied, that is said, and epoll is tested alone.
pub(crate) fn engines() -> &'static [&'static str] {
    static ENGINES: OnceLock<&[&str]> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let doctor = run("doctor --require uring");
        if doctor.status.success() {
            &["uring", "epoll"]
        } else {
            let said = String::from_utf8_lossy(&doctor.stdout);
            quoit_skipped::skip_engine("uring", "io_uring in all tests of the program", said);
            &["epoll"]
        }
    })
}

/// Lets the command's system calls of io_uring fail with EPERM, as container runtimes do.
pub(crate) fn deny_io_uring(command: &mut Command) {
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    let filter = SeccompFilter::new(
        calls
            .map(|call| (call, Vec::new()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into().expect("a supported processor"),
    );
    let program: BpfProgram = filter
        .and_then(BpfProgram::try_from)
        .expect("the filter is sound");
    // SAFETY: between fork and exec only two system calls are made, with memory that exists already.
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&program).map_err(|_| io::Error::last_os_error()));
    }
}

/// CAP_SYS_RESOURCE of linux/capability.h.
const MAY_RAISE_LIMITS: libc::c_ulong = 24;

/// Sets the command's limit on open descriptors, and takes from it the capability to raise the hard one.
pub(crate) fn limit_descriptors(command: &mut Command, soft: u64, hard: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: between fork and exec two system calls are made, of which one reads the limit and the other no memory.
    unsafe {
        command.pre_exec(move || {
            // Fails for who is not root, and has nothing to lose then.
            libc::prctl(libc::PR_CAPBSET_DROP, MAY_RAISE_LIMITS, 0, 0, 0);
            match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// A ready line, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) address: String,
    pub(crate) engine: String,
    pub(crate) loops: u32,
    /// Of a rival's framework, or of Quoit.
    pub(crate) version: Option<String>,
}

impl Ready {
    #[track_caller]
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let (address, engine, loops, version) = match words[..] {
            ["listening", "on", address, engine, loops] => (address, engine, loops, None),
            ["listening", "on", address, engine, loops, version] => (address, engine, loops, Some(version)),
            _ => panic!("{line:?} is no ready line"),
        };
        Self {
            address: address.to_owned(),
            engine: engine.strip_prefix("engine=").expect(line).to_owned(),
            loops: loops
                .strip_prefix("loops=")
                .and_then(|loops| loops.parse().ok())
                .expect(line),
            version: version.map(|version| version.strip_prefix("version=").expect(line).to_owned()),
        }
    }
}

/// A running `quoit serve`, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) ready: Vec<Ready>,
    /// Behind a lock, so that threads can share the server.
    messages: Mutex<Receiver<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts `quoit serve` with these arguments and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(arguments: &str) -> Self {
        let server = Self::start_command(quoit(&format!("serve {arguments}")), 1);
        assert_eq!(
            server.ready[0].version.as_deref(),
            Some(env!("CARGO_PKG_VERSION"))
        );
        server
    }

    /// As [`Server::start`], on this engine and a free port of 127.0.0.1.
    #[track_caller]
    pub(crate) fn on(engine: &str, arguments: &str) -> Self {
        let server = Self::start(&format!("{arguments} --engine {engine} --listen 127.0.0.1:0"));
        assert_eq!(server.ready[0].engine, engine);
        server
    }

    /// Starts a command that prints so many ready lines.
    #[track_caller]
    pub(crate) fn start_command(mut command: Command, listeners: usize) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        // What it holds for the child, such as a listener, is the child's alone.
        drop(command);
        let errors = child.stderr.take().expect("piped");
        let (sender, messages) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // Nobody may want it.
                let _ = sender.send(line);
            }
        });
        let mut server = Self {
            child,
            ready: Vec::new(),
            messages: Mutex::new(messages),
            reader: Some(reader),
        };
        let mut lines = BufReader::new(server.child.stdout.take().expect("piped")).lines();
        for _ in 0..listeners {
            match lines.next() {
                Some(line) => server.ready.push(Ready::parse(&line.expect("text"))),
                None => panic!("it ended: {:?}", server.wait()),
            }
        }
        server
    }

    pub(crate) fn address(&self) -> &str {
        &self.ready[0].address
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The rest of the first line of standard error that begins so, from where reading has come to.
    #[track_caller]
    pub(crate) fn message(&self, prefix: &str) -> String {
        loop {
            let messages = self.messages.lock().expect("nobody panics with it");
            let line = messages.recv_timeout(PATIENCE).expect("it says so");
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }

    /// Stops it, and returns when it stands still.
    #[track_caller]
    pub(crate) fn stop(&self) {
        stop(&self.child);
    }

    /// Lets it go on after [`Server::stop`].
    pub(crate) fn go_on(&self) {
        signal(&self.child, libc::SIGCONT);
    }

    pub(crate) fn terminate(&self) {
        signal(&self.child, libc::SIGTERM);
    }

    /// As [`Server::terminate`], with a signal for its first thread: a process's own goes to any of its threads.
    pub(crate) fn terminate_first_thread(&self) {
        let process = self.child.id() as libc::pid_t;
        // SAFETY: as in `terminate`; the first thread has the id of its process.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, process, process, libc::SIGTERM) };
        assert_eq!(result, 0);
    }

    /// Waits for its end, and returns how it ended and what is left of standard error.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> (ExitStatus, String) {
        assert!(self.is_over_within(PATIENCE), "it does not end");
        self.reap()
    }

    fn is_over_within(&self, limit: Duration) -> bool {
        // SAFETY: no memory is passed; the child has not been waited for, so the id is still its own.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0) } as i32;
        assert!(descriptor >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the call has just made this descriptor, and nothing else knows of it.
        let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut poll = libc::pollfd {
            fd: process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which the call may write.
        let ready = unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32) };
        assert!(ready >= 0, "{}", io::Error::last_os_error());
        ready > 0
    }

    fn reap(&mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it can be waited for");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading works");
        }
        let messages = self.messages.get_mut().expect("nobody panics with it");
        (status, messages.try_iter().collect::<Vec<_>>().join("\n"))
    }

    /// Tells it to end, which it does with this code.
    #[track_caller]
    pub(crate) fn ends_with(&mut self, code: i32) -> String {
        let (status, messages) = self.wait();
        assert_eq!(status.code(), Some(code), "{status:?}: {messages}");
        messages
    }

    /// A figure of `/proc/PID/status` in KiB.
    pub(crate) fn status_kib(&self, name: &str) -> u64 {
        let text = self.proc_file("status");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let figure = line.and_then(|rest| rest.split_whitespace().nth(1));
        figure
            .and_then(|figure| figure.parse().ok())
            .expect("the figure is there")
    }

    pub(crate) fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).expect("/proc is there")
    }

    /// What is in a folder of `/proc/PID`: names, and where they are links, what they lead to.
    pub(crate) fn proc_entries(&self, name: &str) -> Vec<String> {
        std::fs::read_dir(format!("/proc/{}/{name}", self.child.id()))
            .expect("/proc is there")
            .map_while(Result::ok)
            .map(|entry| match std::fs::read_link(entry.path()) {
                Ok(target) => format!("{} -> {}", entry.file_name().display(), target.display()),
                Err(_) => entry.file_name().display().to_string(),
            })
            .collect()
    }

    pub(crate) fn connect(&self) -> Client<TcpStream> {
        Client::new(connect(self.address()))
    }
}

#[track_caller]
pub(crate) fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: no memory is passed; the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Stops a child, and returns when it stands still.
#[track_caller]
pub(crate) fn stop(child: &Child) {
    signal(child, libc::SIGSTOP);
    let id = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: the call writes to `status` alone.
    let stopped = unsafe { libc::waitpid(id, &raw mut status, libc::WUNTRACED) };
    assert_eq!(stopped, id);
    assert!(libc::WIFSTOPPED(status), "{status:x}");
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let (status, messages) = self.reap();
        if std::thread::panicking() {
            eprintln!("the server ({status}) has said: {messages}");
        }
    }
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("it can be set");
    stream.set_nodelay(true).expect("it can be set");
    stream
}

/// Connects to `unix:/path` or `unix:@name`.
pub(crate) fn connect_unix(address: &str) -> UnixStream {
    let name = address.strip_prefix("unix:").expect(address);
    let stream = match name.strip_prefix('@') {
        Some(name) => UnixAddress::from_abstract_name(name)
            .and_then(|address| UnixStream::connect_addr(&address))
            .expect("it listens"),
        None => UnixStream::connect(name).expect("it listens"),
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("it can be set");
    stream
}

/// One HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Status line and fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(": ")?;
        field.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Closes with a linger time of zero, which sends a reset (`socket(7)`, `SO_LINGER`).
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("any socket takes it");
}

/// One end of a connection.
pub(crate) struct Client<S: Read + Write> {
    pub(crate) stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream: BufReader::with_capacity(256 * 1024, stream),
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .expect("it takes bytes");
    }

    /// Status line and fields of a response.
    #[track_caller]
    pub(crate) fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = self.stream.read_line(&mut head).expect("a line arrives");
            assert!(length > 0, "it closed after {head:?}");
        }
        head
    }

    /// A whole response; the body is as long as Content-Length or its chunks say.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        let head = self.head();
        let mut body = Vec::new();
        if let Some(length) = field(&head, "Content-Length") {
            body.resize(length.parse().expect("a number"), 0);
            self.stream.read_exact(&mut body).expect("the body arrives");
        } else if field(&head, "Transfer-Encoding") == Some("chunked") {
            while self.chunk(&mut body) {}
        }
        Response {
            status: head
                .split(' ')
                .nth(1)
                .and_then(|code| code.parse().ok())
                .expect("a status"),
            head,
            body,
        }
    }

    /// Reads one chunk; false at the last one.
    fn chunk(&mut self, body: &mut Vec<u8>) -> bool {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a chunk's size arrives");
        let size = usize::from_str_radix(line.trim_end(), 16).expect("a size");
        let begin = body.len();
        body.resize(begin + size + 2, 0);
        self.stream
            .read_exact(&mut body[begin..])
            .expect("the chunk arrives");
        assert!(body.ends_with(b"\r\n"));
        body.truncate(begin + size);
        size > 0
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        self.response()
    }

    /// What arrives until the server ends the connection.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).expect("an orderly end");
        rest
    }

    #[track_caller]
    pub(crate) fn is_ended(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
    }
}

/// The content of `/bytes/N` from a position on.
pub(crate) struct Pattern {
    position: u64,
    expected: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        Self {
            position: 0,
            // Any piece of up to 1 MiB is a part of it.
            expected: (0..(1 << 20) + 251)
                .map(|position| (position % 251) as u8)
                .collect(),
        }
    }

    /// Reads so many bytes more, and checks each.
    #[track_caller]
    pub(crate) fn read(&mut self, stream: &mut impl Read, count: u64) {
        let mut buffer = vec![0; 256 * 1024];
        let mut left = count;
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let length = stream.read(&mut buffer[..most]).expect("bytes arrive");
            assert!(length > 0, "it ended {left} bytes early");
            let begin = (self.position % 251) as usize;
            assert!(
                buffer[..length] == self.expected[begin..begin + length],
                "wrong content after {} bytes",
                self.position
            );
            self.position += length as u64;
            left -= length as u64;
        }
    }
}
