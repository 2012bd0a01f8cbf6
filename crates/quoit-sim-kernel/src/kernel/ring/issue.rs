//! Taking submissions: what each entry asks for.

use std::collections::VecDeque;

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;
use quoit::internals::engine::uring::sys::SubmissionEntry;

use super::super::object::Kind;
use super::super::{FIRST_DESCRIPTOR, Kernel};
use super::request::{Operation, Receive, ReceiveMessage, Request, Send};
use super::{Completion, Effect, RingId};
use crate::memory;

const SELECTS_BUFFER: u8 = 1 << abi::io_uring_sqe_flags_bit::IOSQE_BUFFER_SELECT_BIT as u8;
pub(super) const LINKED: u8 = 1 << abi::io_uring_sqe_flags_bit::IOSQE_IO_LINK_BIT as u8;
const SKIPS_SUCCESS: u8 = 1 << abi::io_uring_sqe_flags_bit::IOSQE_CQE_SKIP_SUCCESS_BIT as u8;

/// The fields of an entry that are unions, read as what the operation makes of them.
struct Fields {
    address: u64,
    offset: u64,
    flags: u32,
    budget: u32,
}

fn fields(entry: &SubmissionEntry) -> Fields {
    // SAFETY: the unions hold integers only, for which all bits are valid.
    unsafe {
        Fields {
            address: entry.__bindgen_anon_2.addr,
            offset: entry.__bindgen_anon_1.off,
            flags: entry.__bindgen_anon_3.msg_flags,
            budget: entry.__bindgen_anon_5.optlen,
        }
    }
}

/// The operations that the simulated kernel lists.
pub(crate) const OPERATIONS: &[Opcode] = &[
    Opcode::IORING_OP_NOP,
    Opcode::IORING_OP_ACCEPT,
    Opcode::IORING_OP_CONNECT,
    Opcode::IORING_OP_SEND,
    Opcode::IORING_OP_SENDMSG,
    Opcode::IORING_OP_SEND_ZC,
    Opcode::IORING_OP_SENDMSG_ZC,
    Opcode::IORING_OP_RECV,
    Opcode::IORING_OP_RECVMSG,
    Opcode::IORING_OP_POLL_ADD,
    Opcode::IORING_OP_READ,
    Opcode::IORING_OP_ASYNC_CANCEL,
    Opcode::IORING_OP_CLOSE,
];

impl Kernel {
    /// Carries an entry out as far as it goes now, and the `chain` that is linked to it when those before have
    /// succeeded.
    pub(super) fn issue(&mut self, id: RingId, entry: &SubmissionEntry, chain: VecDeque<SubmissionEntry>) {
        let opcode = entry.opcode;
        let skips_success = entry.flags & SKIPS_SUCCESS != 0;
        let is = |wanted: Opcode| opcode == wanted as u8;
        let fields = fields(entry);
        self.note(|| {
            let number = entry.fd.wrapping_sub(FIRST_DESCRIPTOR);
            format!(
                "submission {opcode} on {number}, data {:x}, {:x}",
                entry.user_data, fields.address
            )
        });
        let result = if is(Opcode::IORING_OP_NOP) {
            0
        } else if is(Opcode::IORING_OP_CLOSE) {
            self.issue_close(entry.fd)
        } else if is(Opcode::IORING_OP_ASYNC_CANCEL) {
            self.cancel(id, fields.address)
        } else {
            return self.issue_request(id, entry, &fields, chain);
        };
        if result < 0 || !skips_success {
            self.ring(id).post(Completion {
                user_data: entry.user_data,
                result,
                flags: 0,
                effect: Effect::Nothing,
            });
        }
        self.go_on_with_chain(id, chain, result < 0);
    }

    /// What is linked to a request that has ended is issued, or cancelled if that failed.
    pub(super) fn go_on_with_chain(
        &mut self,
        id: RingId,
        mut chain: VecDeque<SubmissionEntry>,
        failed: bool,
    ) {
        if !failed {
            if let Some(next) = chain.pop_front() {
                self.issue(id, &next, chain);
            }
            return;
        }
        for entry in chain {
            self.ring(id).late.push_back(Completion {
                user_data: entry.user_data,
                result: -libc::ECANCELED,
                flags: 0,
                effect: Effect::Nothing,
            });
        }
    }

    fn issue_close(&mut self, descriptor: i32) -> i32 {
        if let Some(object) = self.table.get(descriptor)
            && self.is_in_use(object)
        {
            self.fail(|| {
                let number = descriptor - FIRST_DESCRIPTOR;
                format!("descriptor {number} is closed while operations on it are outstanding")
            });
        }
        self.close(descriptor);
        0
    }

    /// Whether operations on a socket have not ended.
    fn is_in_use(&mut self, object: usize) -> bool {
        match &self.object(object).kind {
            Kind::Stream(stream) => stream.sends > 0 || stream.receives > 0,
            Kind::Datagram(socket) => socket.requests > 0,
            _ => false,
        }
    }

    fn issue_request(
        &mut self,
        id: RingId,
        entry: &SubmissionEntry,
        fields: &Fields,
        chain: VecDeque<SubmissionEntry>,
    ) {
        let skips_success = entry.flags & SKIPS_SUCCESS != 0;
        let number = entry.fd - FIRST_DESCRIPTOR;
        let Some(object) = self.table.get(entry.fd) else {
            return self.fail(|| {
                format!(
                    "operation {} on descriptor {number}, which is not open",
                    entry.opcode
                )
            });
        };
        let is_datagram = matches!(self.object(object).kind, Kind::Datagram(_));
        let operation = if is_datagram {
            read_datagram_operation(entry, fields)
        } else {
            read_operation(entry, fields)
        };
        let Some(operation) = operation else {
            return self.fail(|| format!("operation {} is not known to the simulated kernel", entry.opcode));
        };
        if let Some(stream) = self.stream(object) {
            let outstanding = match &operation {
                Operation::Send(_) => &mut stream.sends,
                Operation::Receive(_) => &mut stream.receives,
                _ => &mut 0,
            };
            *outstanding += 1;
            if *outstanding > 1 {
                self.fail(|| format!("two sends or receives at once on descriptor {number}: {operation:?}"));
            }
        }
        if let Some(socket) = self.datagram(object) {
            socket.requests += 1;
            if matches!(operation, Operation::ReceiveMessage(_)) {
                socket.receives += 1;
                if socket.receives > 1 {
                    self.fail(|| format!("two receives at once on descriptor {number}: {operation:?}"));
                }
            }
        }
        self.refer(object);
        let number = self.ring(id).requests.insert(Request {
            user_data: entry.user_data,
            object,
            operation,
            chain,
            skips_success,
            at_once: fields.flags & libc::MSG_DONTWAIT as u32 != 0
                && entry.opcode != Opcode::IORING_OP_POLL_ADD as u8
                && entry.opcode != Opcode::IORING_OP_ACCEPT as u8,
            queued: false,
            waits: false,
        });
        self.go_on(id, number);
    }
}

fn read_operation(entry: &SubmissionEntry, fields: &Fields) -> Option<Operation> {
    let address = fields.address as usize;
    let is = |wanted: Opcode| entry.opcode == wanted as u8;
    let single = |zero_copy| {
        Operation::Send(Send {
            pieces: vec![(address, entry.len as usize)],
            total: entry.len as usize,
            done: 0,
            zero_copy,
        })
    };
    let vectored = |zero_copy| {
        let pieces = memory::pieces(address);
        let total = pieces.iter().map(|&(_, length)| length).sum();
        Operation::Send(Send {
            pieces,
            total,
            done: 0,
            zero_copy,
        })
    };
    let operation = if is(Opcode::IORING_OP_ACCEPT) {
        Operation::Accept {
            multishot: entry.ioprio & abi::IORING_ACCEPT_MULTISHOT as u16 != 0,
        }
    } else if is(Opcode::IORING_OP_CONNECT) {
        Operation::Connect {
            address: (address, fields.offset as usize),
            begun: false,
        }
    } else if is(Opcode::IORING_OP_RECV) {
        // SAFETY: the union holds integers only, for which all bits are valid.
        let group = unsafe { entry.__bindgen_anon_4.buf_group };
        Operation::Receive(Receive {
            group,
            multishot: entry.ioprio & abi::IORING_RECV_MULTISHOT as u16 != 0,
            budget: u64::from(fields.budget),
            received: 0,
            selects: entry.flags & SELECTS_BUFFER != 0,
            address,
            length: entry.len as usize,
        })
    } else if is(Opcode::IORING_OP_SEND) {
        single(false)
    } else if is(Opcode::IORING_OP_SEND_ZC) {
        single(true)
    } else if is(Opcode::IORING_OP_SENDMSG) {
        vectored(false)
    } else if is(Opcode::IORING_OP_SENDMSG_ZC) {
        vectored(true)
    } else if is(Opcode::IORING_OP_POLL_ADD) {
        read_poll(entry, fields)
    } else if is(Opcode::IORING_OP_READ) {
        Operation::ReadCounter { address }
    } else {
        return None;
    };
    Some(operation)
}

fn read_poll(entry: &SubmissionEntry, fields: &Fields) -> Operation {
    Operation::Poll {
        // The two halves come in the other order on machines whose high byte comes first.
        events: if cfg!(target_endian = "big") {
            fields.flags.rotate_left(16)
        } else {
            fields.flags
        },
        multishot: entry.len & abi::IORING_POLL_ADD_MULTI != 0,
    }
}

/// What an entry asks of a datagram socket.
fn read_datagram_operation(entry: &SubmissionEntry, fields: &Fields) -> Option<Operation> {
    let header = fields.address as usize;
    let is = |wanted: Opcode| entry.opcode == wanted as u8;
    if is(Opcode::IORING_OP_SENDMSG) {
        return Some(Operation::SendMessage { header, spent: false });
    }
    if is(Opcode::IORING_OP_POLL_ADD) {
        return Some(read_poll(entry, fields));
    }
    is(Opcode::IORING_OP_RECVMSG).then(|| {
        // SAFETY: the union holds integers only, for which all bits are valid.
        let group = unsafe { entry.__bindgen_anon_4.buf_group };
        let room = memory::header(header);
        Operation::ReceiveMessage(ReceiveMessage {
            header,
            group: (entry.flags & SELECTS_BUFFER != 0).then_some(group),
            multishot: entry.ioprio & abi::IORING_RECV_MULTISHOT as u16 != 0,
            name_room: room.name.1,
            control_room: room.control.1,
        })
    })
}
