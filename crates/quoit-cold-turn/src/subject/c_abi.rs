//! A loop of Quoit behind the C ABI, as every front door that is not Rust has it.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};

// Its functions are reached by their names, as from C.
use quoit_capi as _;

use super::{RESPONSE, Turns, Work};

static ANSWER: [u8; RESPONSE] = [9; RESPONSE];

const SEND: u16 = 3;
const SEND_LEASE: u16 = 4;
const RETURN_LEASE: u16 = 16;
const DATA: u16 = 5;

/// `quoit_command` of `quoit.h`.
#[repr(C)]
struct Command {
    kind: u16,
    flags: u16,
    descriptor: c_int,
    target: u64,
    token: u64,
    data: *const c_void,
    length: u32,
    reserved: u32,
    offset: u64,
    lease: u64,
    time_ns: i64,
}
const _: () = assert!(size_of::<Command>() == 64);

impl Command {
    fn new(kind: u16, target: u64) -> Self {
        Self {
            kind,
            flags: 0,
            descriptor: -1,
            target,
            token: 0,
            data: null(),
            length: 0,
            reserved: 0,
            offset: 0,
            lease: 0,
            time_ns: 0,
        }
    }
}

/// `quoit_event`.
#[repr(C)]
struct Event {
    kind: u16,
    reason: u16,
    error: c_int,
    descriptor: c_int,
    length: u32,
    connection: u64,
    listener: u64,
    token: u64,
    data: *const c_void,
    lease: u64,
    reserved: u64,
}
const _: () = assert!(size_of::<Event>() == 64);

/// Room for a `quoit_config`, of which the first two fields are set: its size and the engine.
type Config = [u32; 128];

unsafe extern "C" {
    fn quoit_config_default(config: *mut Config) -> c_int;
    fn quoit_loop_create(config: *const Config, index: u32, out: *mut *mut c_void) -> c_int;
    fn quoit_socket_bind(
        address: *const c_char,
        length: usize,
        options: *const c_void,
        out: *mut *mut c_void,
    ) -> c_int;
    fn quoit_listen(
        event_loop: *mut c_void,
        socket: *mut c_void,
        options: *const c_void,
        listener: *mut u64,
    ) -> c_int;
    fn quoit_listener_address(
        event_loop: *mut c_void,
        listener: u64,
        buffer: *mut c_char,
        capacity: usize,
    ) -> c_int;
    fn quoit_error_text(buffer: *mut c_char, capacity: usize) -> c_int;
    fn quoit_turn(
        event_loop: *mut c_void,
        commands: *const Command,
        count: usize,
        events: *mut Event,
        capacity: usize,
        timeout_ns: i64,
    ) -> c_int;
}

/// What a call writes as text.
fn text(call: impl FnOnce(*mut c_char, usize) -> c_int) -> String {
    let mut buffer = [0_u8; 512];
    let length = call(buffer.as_mut_ptr().cast(), buffer.len());
    let length = usize::try_from(length).unwrap_or(0).min(buffer.len());
    String::from_utf8_lossy(&buffer[..length])
        .trim_end_matches('\0')
        .to_owned()
}

/// What a call has returned, or why it failed.
fn checked(what: &str, returned: c_int) -> Result<usize, String> {
    // SAFETY: the buffer has room for as many bytes as is said.
    let why = || text(|buffer, capacity| unsafe { quoit_error_text(buffer, capacity) });
    usize::try_from(returned).map_err(|_| format!("{what}: {}", why()))
}

/// Never destroyed: the process ends with it.
pub(super) struct Served {
    event_loop: *mut c_void,
    commands: Vec<Command>,
    events: Vec<Event>,
    address: SocketAddr,
    work: Work,
}

impl Served {
    pub(super) fn new(engine: quoit::EngineKind, work: Work) -> Result<Self, String> {
        let mut config: Config = [0; 128];
        config[0] = size_of::<Config>() as u32;
        // SAFETY: it is as large as it says.
        checked("a configuration", unsafe {
            quoit_config_default(&raw mut config)
        })?;
        config[1] = match engine {
            quoit::EngineKind::Uring => 1,
            quoit::EngineKind::Epoll => 2,
        };
        let (mut event_loop, mut socket, mut listener) = (null_mut(), null_mut(), 0);
        let any = "127.0.0.1:0";
        // SAFETY: all that is pointed at is there during each call, and each handle is one that the call before has made.
        let address = unsafe {
            checked(
                "a loop",
                quoit_loop_create(&raw const config, 0, &raw mut event_loop),
            )?;
            checked(
                "a socket",
                quoit_socket_bind(any.as_ptr().cast(), any.len(), null(), &raw mut socket),
            )?;
            checked(
                "a listener",
                quoit_listen(event_loop, socket, null(), &raw mut listener),
            )?;
            text(|buffer, capacity| quoit_listener_address(event_loop, listener, buffer, capacity))
        };
        Ok(Self {
            event_loop,
            commands: Vec::with_capacity(256),
            events: Vec::with_capacity(256),
            address: address.parse().map_err(|error| format!("{address}: {error}"))?,
            work,
        })
    }

    /// The program's part: a command for each request.
    #[inline(never)]
    fn answer(&mut self) -> usize {
        self.commands.clear();
        let mut taken = 0;
        for event in &self.events {
            if event.kind != DATA {
                continue;
            }
            taken += 1;
            let lease = event.lease;
            if self.work == Work::Echo {
                self.commands.push(Command {
                    lease,
                    length: event.length,
                    ..Command::new(SEND_LEASE, event.connection)
                });
            } else {
                self.commands.push(Command {
                    data: ANSWER.as_ptr().cast(),
                    length: RESPONSE as u32,
                    ..Command::new(SEND, event.connection)
                });
                self.commands.push(Command {
                    lease,
                    ..Command::new(RETURN_LEASE, 0)
                });
            }
        }
        taken
    }
}

impl Turns for Served {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn turn(&mut self) -> Result<usize, String> {
        self.events.clear();
        // SAFETY: so many commands are there, and there is room for so many events; the loop is this thread's.
        let count = unsafe {
            quoit_turn(
                self.event_loop,
                self.commands.as_ptr(),
                self.commands.len(),
                self.events.as_mut_ptr(),
                self.events.capacity(),
                -1,
            )
        };
        let count = checked("a turn", count)?;
        // SAFETY: the call has filled in so many, for which there is room.
        unsafe { self.events.set_len(count) };
        Ok(self.answer())
    }
}
