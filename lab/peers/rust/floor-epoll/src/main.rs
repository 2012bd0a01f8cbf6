//! The epoll floor: the cheapest readiness loop that still answers correctly.
//!
//! It exists to be measured against. One thread, one edge-triggered epoll set, one `recv` a readiness and
//! one `send` for all that it produced. There are no limits, timeouts, counters or abstractions, so the
//! distance between this server and the product is what the product's features cost.
//!
//! The HTTP side answers complete requests without a body and keeps every connection open; that is what
//! the load generators send. Partial heads and short writes are handled, because a floor that is wrong
//! under load would measure nothing. The RPC side is in `rpc`.

mod rpc;

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;

use rpc::{Pattern, Streams};

/// Bytes of one receive. Larger than any pipelined batch of the lab's small requests.
const RECEIVE_BYTES: usize = 64 * 1024;
/// Events taken by one `epoll_wait`.
const EVENTS: usize = 512;
/// Bytes of messages produced for one send.
const PRODUCE_BYTES: usize = 128 * 1024;

/// What the server answers with.
#[derive(Clone, Copy)]
enum Service {
    Echo,
    Http,
    Rpc,
}

/// One connection: nothing is allocated while requests arrive whole and writes are taken whole.
#[derive(Default)]
struct Connection {
    /// The head of a request that has not arrived completely.
    partial: Vec<u8>,
    /// Output the kernel did not take; while it is not empty nothing is received.
    pending: Vec<u8>,
    /// Only of RPC.
    streams: Option<Box<Streams>>,
}

/// The outcome of serving one connection.
#[derive(PartialEq)]
enum Served {
    Open,
    Close,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (service, address) = match parse_arguments(&arguments) {
        Ok(parsed) => parsed,
        Err(message) => {
            eprintln!("floor-epoll: {message}");
            return ExitCode::from(2);
        }
    };
    match run(service, address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor-epoll: serving on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_arguments(arguments: &[String]) -> Result<(Service, &str), String> {
    let usage = "usage: floor-epoll echo|http|rpc [--listen ADDR]";
    let service = match arguments.first().map(String::as_str) {
        Some("echo") => Service::Echo,
        Some("http") => Service::Http,
        Some("rpc") => Service::Rpc,
        _ => return Err(usage.to_owned()),
    };
    match &arguments[1..] {
        [] => Ok((service, "127.0.0.1:0")),
        [option, address] if option == "--listen" => Ok((service, address)),
        _ => Err(usage.to_owned()),
    }
}

fn run(service: Service, address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // Accepted sockets inherit the option, which saves a system call each.
    let one: libc::c_int = 1;
    // SAFETY: `one` is a c_int that outlives the call, and its size is passed.
    check(unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    // SAFETY: no memory is passed.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    watch(epoll, listener.as_raw_fd(), libc::EPOLLIN)?;

    println!("listening on {} engine=epoll loops=1", listener.local_addr()?);
    std::io::stdout().flush()?;

    let mut server = Server {
        service,
        epoll,
        connections: Vec::new(),
        received: vec![0; RECEIVE_BYTES],
        output: Vec::with_capacity(RECEIVE_BYTES),
        response: Response::new(),
        pattern: Pattern::new(),
    };
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    loop {
        // SAFETY: `events` has room for EVENTS entries.
        let count = match check(unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS as i32, -1) }) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        server.response.refresh();
        for event in &events[..count] {
            let descriptor = event.u64 as RawFd;
            if descriptor == listener.as_raw_fd() {
                server.accept_all(descriptor)?;
            } else if server.serve(descriptor, event.events & libc::EPOLLRDHUP as u32 != 0) == Served::Close {
                server.connections[descriptor as usize] = None;
                // SAFETY: the descriptor is ours and is not used again; closing removes it from the set.
                unsafe { libc::close(descriptor) };
            }
        }
    }
}

struct Server {
    service: Service,
    epoll: RawFd,
    /// Indexed by descriptor.
    connections: Vec<Option<Box<Connection>>>,
    /// The receive buffer of all connections.
    received: Vec<u8>,
    /// The output of one receive, of whichever connection is being served.
    output: Vec<u8>,
    response: Response,
    pattern: Pattern,
}

impl Server {
    fn accept_all(&mut self, listener: RawFd) -> std::io::Result<()> {
        loop {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: null address pointers are allowed: the peer's address is not wanted.
            let accepted =
                check(unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) });
            let descriptor = match accepted {
                Ok(descriptor) => descriptor,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    Some(libc::EINTR | libc::ECONNABORTED) => continue,
                    _ => return Err(error),
                },
            };
            let index = descriptor as usize;
            if index >= self.connections.len() {
                self.connections.resize_with(index + 1, || None);
            }
            self.connections[index] = Some(Box::new(Connection {
                streams: matches!(self.service, Service::Rpc).then(Box::default),
                ..Connection::default()
            }));
            // EPOLLOUT from the start costs nothing under edge triggering and saves two epoll_ctl a stall.
            watch(
                self.epoll,
                descriptor,
                libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP,
            )?;
        }
    }

    /// Receives until the kernel has no more, answering after every receive. `ended`: the event said that
    /// the peer's end is queued behind the data, so there will be no further edge for it.
    fn serve(&mut self, descriptor: RawFd, ended: bool) -> Served {
        let Some(connection) = &mut self.connections[descriptor as usize] else {
            return Served::Open;
        };
        if !connection.pending.is_empty() {
            let pending = &connection.pending;
            let Ok(sent) = send(descriptor, pending) else {
                return Served::Close;
            };
            connection.pending.drain(..sent);
            if !connection.pending.is_empty() {
                return Served::Open;
            }
            match connection.produce(descriptor, &self.pattern, &mut self.output) {
                Ok(true) => {}
                Ok(false) => return Served::Open,
                Err(_) => return Served::Close,
            }
        }
        loop {
            // SAFETY: `received` has room for RECEIVE_BYTES bytes.
            let count =
                unsafe { libc::recv(descriptor, self.received.as_mut_ptr().cast(), RECEIVE_BYTES, 0) };
            let received = match count {
                0 => return Served::Close,
                1.. => &self.received[..count as usize],
                _ => match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EAGAIN) => return Served::Open,
                    Some(libc::EINTR) => continue,
                    _ => return Served::Close,
                },
            };
            self.output.clear();
            let valid = match self.service {
                Service::Echo => {
                    self.output.extend_from_slice(received);
                    true
                }
                Service::Http => answer(
                    received,
                    &mut connection.partial,
                    &mut self.output,
                    &self.response,
                ),
                Service::Rpc => connection.streams.as_mut().is_some_and(|streams| {
                    streams.receive(received, &mut connection.partial, &mut self.output)
                }),
            };
            let Ok(sent) = send(descriptor, &self.output) else {
                return Served::Close;
            };
            if !valid {
                return Served::Close;
            }
            if sent < self.output.len() {
                connection.pending.extend_from_slice(&self.output[sent..]);
                return Served::Open;
            }
            match connection.produce(descriptor, &self.pattern, &mut self.output) {
                Ok(true) => {}
                Ok(false) => return Served::Open,
                Err(_) => return Served::Close,
            }
            // A short read means that the socket is drained: what comes later is a new edge.
            if received.len() < RECEIVE_BYTES && !ended {
                return Served::Open;
            }
        }
    }
}

impl Connection {
    /// Sends messages of streams until there are no more. False: the kernel took less.
    fn produce(
        &mut self,
        descriptor: RawFd,
        pattern: &Pattern,
        output: &mut Vec<u8>,
    ) -> std::io::Result<bool> {
        let Some(streams) = &mut self.streams else {
            return Ok(true);
        };
        loop {
            output.clear();
            let more = streams.produce(pattern, PRODUCE_BYTES, output);
            let sent = send(descriptor, output)?;
            if sent < output.len() {
                self.pending.extend_from_slice(&output[sent..]);
                return Ok(false);
            }
            if !more {
                return Ok(true);
            }
        }
    }
}

/// Answers all complete requests of `received`, with what `partial` holds in front of it, and leaves the
/// incomplete rest in `partial`. False when a request cannot be parsed.
fn answer(received: &[u8], partial: &mut Vec<u8>, output: &mut Vec<u8>, response: &Response) -> bool {
    if partial.is_empty() {
        let Some(used) = answer_complete(received, output, response) else {
            return false;
        };
        partial.extend_from_slice(&received[used..]);
    } else {
        partial.extend_from_slice(received);
        let Some(used) = answer_complete(partial, output, response) else {
            return false;
        };
        partial.drain(..used);
    }
    true
}

/// Bytes of the complete requests at the start of `input`, which have been answered.
fn answer_complete(input: &[u8], output: &mut Vec<u8>, response: &Response) -> Option<usize> {
    let mut used = 0;
    while used < input.len() {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&input[used..]) {
            Ok(httparse::Status::Complete(length)) => used += length,
            Ok(httparse::Status::Partial) => break,
            Err(_) => {
                output.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                return None;
            }
        }
        output.extend_from_slice(match (request.method, request.path) {
            (Some("GET"), Some("/plaintext")) => &response.bytes,
            _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        });
    }
    Some(used)
}

/// The whole response, with a date that is formatted once a second.
struct Response {
    second: libc::time_t,
    bytes: Vec<u8>,
}

impl Response {
    fn new() -> Self {
        let mut response = Self {
            second: 0,
            bytes: Vec::new(),
        };
        response.refresh();
        response
    }

    /// Formats the date again if the second has changed; reading the coarse clock is no system call.
    fn refresh(&mut self) {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is valid for the write.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
        if now.tv_sec == self.second {
            return;
        }
        self.second = now.tv_sec;
        let mut date = [0_u8; 30];
        // SAFETY: `tm` is plain data, all zeroes is a valid value, and both calls write within the sizes
        // given. The locale is C, because setlocale was never called, so the names are those of RFC 9110.
        let length = unsafe {
            let mut broken_down: libc::tm = std::mem::zeroed();
            libc::gmtime_r(&now.tv_sec, &mut broken_down);
            let format = c"%a, %d %b %Y %H:%M:%S GMT";
            libc::strftime(
                date.as_mut_ptr().cast(),
                date.len(),
                format.as_ptr(),
                &broken_down,
            )
        };
        self.bytes.clear();
        self.bytes
            .extend_from_slice(b"HTTP/1.1 200 OK\r\nServer: quoit\r\nDate: ");
        self.bytes.extend_from_slice(&date[..length]);
        self.bytes
            .extend_from_slice(b"\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!");
    }
}

/// Sends what the kernel takes at once; the number of bytes taken.
fn send(descriptor: RawFd, bytes: &[u8]) -> std::io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    // SAFETY: `bytes` is readable for its length during the call.
    let count = unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if count >= 0 {
        return Ok(count as usize);
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EAGAIN) {
        Ok(0)
    } else {
        Err(error)
    }
}

/// Adds a descriptor to the set, edge-triggered.
fn watch(epoll: RawFd, descriptor: RawFd, interest: i32) -> std::io::Result<()> {
    let mut event = libc::epoll_event {
        events: (interest | libc::EPOLLET) as u32,
        u64: descriptor as u64,
    };
    // SAFETY: `event` is valid for the read.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &mut event) }).map(drop)
}

fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
