//! Notifications of zero-copy sends: when the memory is free, and that nobody wrote to it before.

use linux_raw_sys::io_uring as abi;

use super::super::Kernel;
use super::super::agenda::Action;
use super::super::object::ObjectId;
use super::request::{Request, Send};
use super::{Completion, Effect, RingId};
use crate::faults::Fault;
use crate::memory;

/// The notification that a zero-copy send's memory is free, still to come.
#[derive(Debug)]
pub(super) struct Notification {
    user_data: u64,
    socket: ObjectId,
    copied: bool,
    /// The memory, and what it held.
    memory: Vec<(usize, Vec<u8>)>,
}

impl Kernel {
    /// Answers the flags of the completion that goes before the notification.
    pub(super) fn plan_notification(
        &mut self,
        id: RingId,
        request: &Request,
        send: &Send,
        result: i32,
    ) -> u32 {
        if result < 0 && self.random.chance(512) {
            // It failed before the memory was of any concern.
            return 0;
        }
        let late = self.strikes(Fault::LateNotification);
        let after = self.random.magnitude(if late { 20_000_000 } else { 20_000 });
        let copied = self.strikes(Fault::Copied);
        let mut left = send.done;
        let mut held = Vec::new();
        for &(address, length) in &send.pieces {
            let length = length.min(left);
            left -= length;
            held.push((address, memory::read(address, length).to_vec()));
        }
        let ring = self.ring(id);
        let number = ring.next_notification;
        ring.next_notification += 1;
        ring.notifications.insert(
            number,
            Notification {
                user_data: request.user_data,
                socket: request.object,
                copied,
                memory: held,
            },
        );
        if let Some(stream) = self.stream(request.object) {
            stream.held += 1;
        }
        self.plan(after, Action::Notify(id, number));
        abi::IORING_CQE_F_MORE
    }

    /// The memory of a zero-copy send is free.
    pub(in crate::kernel) fn notify(&mut self, id: RingId, number: u64) {
        let Some(ring) = &mut self.rings[id] else { return };
        let Some(notification) = ring.notifications.remove(&number) else {
            return;
        };
        let copied = if notification.copied {
            abi::IORING_NOTIF_USAGE_ZC_COPIED as i32
        } else {
            0
        };
        ring.late.push_back(Completion {
            user_data: notification.user_data,
            result: copied,
            flags: abi::IORING_CQE_F_NOTIF,
            effect: Effect::Release(notification.socket),
        });
        let changed = notification
            .memory
            .iter()
            .any(|(address, held)| memory::read(*address, held.len()) != &held[..]);
        if changed {
            self.fail(|| "the memory of a zero-copy send changed before its notification".to_owned());
        }
    }
}
