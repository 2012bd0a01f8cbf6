//! The io_uring floor: the cheapest completion loop that still answers correctly.
//!
//! It exists to be measured against. One thread, one ring (SINGLE_ISSUER, DEFER_TASKRUN, its descriptor
//! registered), multishot accept and receive with a provided-buffer ring, and one `io_uring_enter` per turn
//! that submits at most one send per connection, carrying all that the turn produced for it. A send is
//! attempted while it is submitted and completes only if that fails, so that a wait ends with what peers
//! have sent and nothing else. There are no limits, timeouts, counters or abstractions, so the distance
//! between this server and the product is what the product's features cost.
//!
//! The HTTP side answers complete requests without a body and keeps every connection open; that is what
//! the load generators send. Partial heads and short writes are handled, because a floor that is wrong
//! under load would measure nothing. The RPC side is that of the epoll floor.

#[path = "../../floor-epoll/src/rpc.rs"]
mod rpc;

use std::alloc::{Layout, alloc_zeroed};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};
use rpc::{Pattern, Streams};

/// Submission entries; a turn that needs more submits twice.
const SUBMISSIONS: u32 = 1024;
/// Completion entries: a receive and a send of a few thousand connections.
const COMPLETIONS: u32 = 8192;
/// Provided buffers, a power of two. Each is given back as soon as its completion has been handled, so
/// that few are enough and they stay in the cache.
const BUFFERS: u16 = 256;
/// Bytes of a provided buffer. Larger than a pipelined batch of the lab's small requests.
const BUFFER_BYTES: usize = 4096;
const BUFFER_GROUP: u16 = 0;
/// Bytes of messages produced for one send.
const PRODUCE_BYTES: usize = 128 * 1024;

/// What the server answers with.
#[derive(Clone, Copy)]
enum Service {
    Echo,
    Http,
    Rpc,
}

/// The operation that a completion belongs to; user data is the operation above the descriptor.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

#[derive(Default)]
struct Connection {
    /// The head of a request that has not arrived completely.
    partial: Vec<u8>,
    /// Output that no send carries yet.
    queued: Vec<u8>,
    /// Output of the send in flight; not touched until that has completed.
    sending: Vec<u8>,
    /// Bytes of `sending` that the kernel has taken.
    sent: usize,
    send_in_flight: bool,
    /// A send waits for room and completes: after an attempt that failed, and always in RPC, where more is
    /// produced when one has left.
    waits: bool,
    receive_armed: bool,
    /// Close as soon as nothing is in flight and all output has left.
    closing: bool,
    /// It is in the list of the connections that this turn touched.
    touched: bool,
    /// Only of RPC.
    streams: Option<Box<Streams>>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (service, address) = match parse_arguments(&arguments) {
        Ok(parsed) => parsed,
        Err(message) => {
            eprintln!("floor-uring: {message}");
            return ExitCode::from(2);
        }
    };
    match run(service, address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor-uring: serving on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_arguments(arguments: &[String]) -> Result<(Service, &str), String> {
    let usage = "usage: floor-uring echo|http|rpc [--listen ADDR]";
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
    // Accepted sockets inherit the option, which saves a system call each.
    let one: libc::c_int = 1;
    // SAFETY: `one` is a c_int that outlives the call, and its size is passed.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)?;
    let (mut submitter, submissions, mut completions) = ring.split();
    submitter.register_ring_fd()?;
    let buffers = ProvidedBuffers::register(&submitter)?;

    println!("listening on {} engine=uring loops=1", listener.local_addr()?);
    std::io::stdout().flush()?;

    let mut server = Server {
        service,
        listener: listener.as_raw_fd(),
        submitter,
        submissions,
        buffers,
        connections: Vec::new(),
        touched: Vec::new(),
        attempts: Vec::new(),
        response: Response::new(),
        pattern: Pattern::new(),
    };
    server.arm_accept()?;
    loop {
        server.submissions.sync();
        let entered = server.submitter.submit_and_wait(1);
        match entered {
            Ok(_) => {}
            // EBUSY: completions overflowed and have to be reaped first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        server.submissions.sync();
        if server.submissions.is_empty() {
            server.end_attempts();
        }
        server.response.refresh();
        completions.sync();
        for completion in &mut completions {
            server.complete(&completion)?;
        }
        // Tells the kernel what has been reaped. Without it the next wait would count the same completions
        // again and return at once.
        completions.sync();
        server.buffers.publish();
        server.flush_touched()?;
    }
}

struct Server<'ring> {
    service: Service,
    listener: RawFd,
    submitter: Submitter<'ring>,
    submissions: SubmissionQueue<'ring>,
    buffers: ProvidedBuffers,
    /// Indexed by descriptor. A descriptor is closed only when nothing is in flight on it, so that a
    /// completion never reaches a successor on the same number.
    connections: Vec<Option<Box<Connection>>>,
    /// Connections to look at when all completions of the turn have been handled.
    touched: Vec<RawFd>,
    /// Connections whose sends were pushed as attempts since the last enter.
    attempts: Vec<RawFd>,
    response: Response,
    pattern: Pattern,
}

impl Server<'_> {
    /// The kernel has tried all attempts. Those that failed have completions, which are handled next and say
    /// how far they came; the others have left.
    fn end_attempts(&mut self) {
        for descriptor in self.attempts.drain(..) {
            if let Some(connection) = &mut self.connections[descriptor as usize]
                && !connection.waits
            {
                connection.send_in_flight = false;
                connection.sent = connection.sending.len();
                if connection.closing && !connection.touched {
                    connection.touched = true;
                    self.touched.push(descriptor);
                }
            }
        }
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> std::io::Result<()> {
        let descriptor = completion.user_data() as u32 as RawFd;
        let more = cqueue::more(completion.flags());
        if completion.user_data() >> 32 == ACCEPT {
            if completion.result() >= 0 {
                self.accepted(completion.result())?;
            }
            return if more { Ok(()) } else { self.arm_accept() };
        }
        let Some(connection) = &mut self.connections[descriptor as usize] else {
            return Ok(());
        };
        if completion.user_data() >> 32 == RECEIVE {
            connection.receive_armed = more;
            if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
                let received = self.buffers.contents(buffer, completion.result().max(0) as usize);
                if !connection.closing {
                    let Connection {
                        partial,
                        queued,
                        streams,
                        ..
                    } = &mut **connection;
                    let valid = match self.service {
                        Service::Echo => {
                            queued.extend_from_slice(received);
                            true
                        }
                        Service::Http => answer(received, partial, queued, &self.response),
                        Service::Rpc => streams
                            .as_mut()
                            .is_some_and(|streams| streams.receive(received, partial, queued)),
                    };
                    if !valid {
                        connection.closing = true;
                        // Ends the multishot receive, whose completion is still to come.
                        // SAFETY: no memory is passed; the descriptor is open.
                        unsafe { libc::shutdown(descriptor, libc::SHUT_RD) };
                    }
                }
                self.buffers.give_back(buffer);
            }
            // No buffers: armed again below. Everything else that is not data ends the connection.
            if completion.result() <= 0 && completion.result() != -libc::ENOBUFS {
                connection.closing = true;
            }
        } else {
            connection.send_in_flight = false;
            let attempted = !std::mem::replace(&mut connection.waits, true);
            if attempted {
                connection.sent = 0;
            }
            if attempted && completion.result() == -libc::EAGAIN {
                // It is sent again below.
            } else if completion.result() < 0 {
                connection.closing = true;
                connection.queued.clear();
                connection.sending.clear();
                connection.sent = 0;
                // SAFETY: as above.
                unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
            } else {
                connection.sent += completion.result() as usize;
            }
        }
        if !connection.touched {
            connection.touched = true;
            self.touched.push(descriptor);
        }
        Ok(())
    }

    fn accepted(&mut self, descriptor: RawFd) -> std::io::Result<()> {
        let index = descriptor as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Box::new(Connection {
            receive_armed: true,
            waits: matches!(self.service, Service::Rpc),
            streams: matches!(self.service, Service::Rpc).then(Box::default),
            ..Connection::default()
        }));
        self.arm_receive(descriptor)
    }

    /// One send a connection for all that the turn produced; closes what is finished.
    fn flush_touched(&mut self) -> std::io::Result<()> {
        let mut touched = std::mem::take(&mut self.touched);
        for descriptor in touched.drain(..) {
            let Some(connection) = &mut self.connections[descriptor as usize] else {
                continue;
            };
            connection.touched = false;
            if !connection.send_in_flight {
                if connection.sent == connection.sending.len() {
                    connection.sending.clear();
                    connection.sent = 0;
                    connection.waits = connection.streams.is_some();
                    if let Some(streams) = &mut connection.streams
                        && !connection.closing
                    {
                        streams.produce(&self.pattern, PRODUCE_BYTES, &mut connection.queued);
                    }
                    std::mem::swap(&mut connection.sending, &mut connection.queued);
                }
                let rest = &connection.sending[connection.sent..];
                if !rest.is_empty() {
                    connection.send_in_flight = true;
                    let (how, told) = if connection.waits {
                        (0, squeue::Flags::empty())
                    } else {
                        self.attempts.push(descriptor);
                        // Whatever is less than all of it fails, and so has a completion.
                        (libc::MSG_DONTWAIT, squeue::Flags::SKIP_SUCCESS)
                    };
                    let send = opcode::Send::new(Fd(descriptor), rest.as_ptr(), rest.len() as u32)
                        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | how)
                        .build()
                        .flags(told)
                        .user_data(SEND << 32 | descriptor as u64);
                    self.push(&send)?;
                    continue;
                }
            }
            if connection.closing {
                if !connection.receive_armed && !connection.send_in_flight {
                    self.connections[descriptor as usize] = None;
                    // SAFETY: the descriptor is ours, nothing is in flight on it, it is not used again.
                    unsafe { libc::close(descriptor) };
                }
            } else if !connection.receive_armed {
                connection.receive_armed = true;
                self.arm_receive(descriptor)?;
            }
        }
        self.touched = touched;
        Ok(())
    }

    fn arm_accept(&mut self) -> std::io::Result<()> {
        let accept = opcode::AcceptMulti::new(Fd(self.listener))
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data(ACCEPT << 32 | self.listener as u64);
        self.push(&accept)
    }

    fn arm_receive(&mut self, descriptor: RawFd) -> std::io::Result<()> {
        let receive = opcode::RecvMulti::new(Fd(descriptor), BUFFER_GROUP)
            .build()
            .user_data(RECEIVE << 32 | descriptor as u64);
        self.push(&receive)
    }

    fn push(&mut self, entry: &squeue::Entry) -> std::io::Result<()> {
        // SAFETY: a send's memory is the connection's `sending`, which is neither changed nor freed while
        // `send_in_flight`; receives use the registered buffers; accept passes no memory.
        while unsafe { self.submissions.push(entry) }.is_err() {
            self.submissions.sync();
            self.submitter.submit()?;
            self.submissions.sync();
        }
        Ok(())
    }
}

/// The provided-buffer ring and its memory, which live as long as the process.
struct ProvidedBuffers {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

impl ProvidedBuffers {
    fn register(submitter: &Submitter<'_>) -> std::io::Result<Self> {
        let out_of_memory = || std::io::Error::from_raw_os_error(libc::ENOMEM);
        let entries_bytes = BUFFERS as usize * size_of::<BufRingEntry>();
        let aligned = |bytes| Layout::from_size_align(bytes, 4096).map_err(std::io::Error::other);
        // SAFETY: neither size is zero.
        let (entries, memory) = unsafe {
            let entries = alloc_zeroed(aligned(entries_bytes)?).cast::<BufRingEntry>();
            (entries, alloc_zeroed(aligned(BUFFERS as usize * BUFFER_BYTES)?))
        };
        if entries.is_null() || memory.is_null() {
            return Err(out_of_memory());
        }
        // SAFETY: the memory is page-aligned, large enough for the entries and never freed.
        unsafe { submitter.register_buf_ring_with_flags(entries as u64, BUFFERS, BUFFER_GROUP, 0)? };
        let mut buffers = Self {
            entries,
            memory,
            tail: 0,
        };
        (0..BUFFERS).for_each(|buffer| buffers.give_back(buffer));
        buffers.publish();
        Ok(buffers)
    }

    /// The first `length` bytes of a buffer that a completion has handed to us.
    fn contents(&self, buffer: u16, length: usize) -> &[u8] {
        assert!(buffer < BUFFERS && length <= BUFFER_BYTES);
        // SAFETY: within the allocation by the assertion; the kernel does not write to a buffer between
        // its completion and its return, and returns are published after the turn's last use.
        unsafe { std::slice::from_raw_parts(self.memory.add(buffer as usize * BUFFER_BYTES), length) }
    }

    /// Writes the ring entry of a free buffer; the kernel sees it with the next `publish`.
    fn give_back(&mut self, buffer: u16) {
        let index = (self.tail & (BUFFERS - 1)) as usize;
        // SAFETY: the index is masked to the ring, and only the kernel's reader sees entries below the
        // published tail, of which this one is not.
        unsafe {
            let entry = &mut *self.entries.add(index);
            entry.set_addr(self.memory.add(buffer as usize * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies in the first entry, two-byte aligned, and the kernel only reads it.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
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
