//! Epoll instances.

use std::collections::VecDeque;

use super::Kernel;
use super::object::{Kind, ObjectId};
use crate::faults::Fault;

/// One epoll instance.
#[derive(Debug, Default)]
pub(crate) struct PollSet {
    items: Vec<Item>,
    /// Indices of items that something happened to, or that are level-triggered and were ready.
    ready: VecDeque<ObjectId>,
    /// Something has happened since who watches the instance itself, edge-triggered, has looked.
    news: bool,
}

#[derive(Debug)]
struct Item {
    object: ObjectId,
    events: u32,
    value: u64,
}

const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl PollSet {
    fn item(&self, object: ObjectId) -> Option<&Item> {
        self.items.iter().find(|item| item.object == object)
    }

    pub(super) fn happened(&mut self, object: ObjectId, events: u32) {
        let interested = self
            .item(object)
            .is_some_and(|item| events & (item.events | ALWAYS) != 0);
        if interested {
            // Whether it is listed already or not (`ep_poll_callback`).
            self.news = true;
            if !self.ready.contains(&object) {
                self.ready.push_back(object);
            }
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.items.retain(|item| item.object != object);
        self.ready.retain(|&ready| ready != object);
    }
}

impl Kernel {
    /// `epoll_create1(2)`.
    pub(crate) fn add_poll(&mut self) -> usize {
        self.polls.push(Some(PollSet::default()));
        self.polls.len() - 1
    }

    fn poll_set(&mut self, poll: usize) -> &mut PollSet {
        self.polls[poll]
            .as_mut()
            .expect("an instance is used while it is open")
    }

    /// `EPOLL_CTL_ADD`.
    pub(crate) fn poll_add(
        &mut self,
        poll: usize,
        object: ObjectId,
        events: u32,
        value: u64,
    ) -> Result<(), i32> {
        if self.poll_set(poll).item(object).is_some() {
            return Err(libc::EEXIST);
        }
        if matches!(self.object(object).kind, Kind::Stream(_) | Kind::Datagram(_))
            && self.strikes(Fault::TransferFails)
        {
            self.excuse_unix(object);
            return Err(*self.random.choose(&[libc::ENOMEM, libc::ENOSPC]));
        }
        self.poll_set(poll).items.push(Item {
            object,
            events,
            value,
        });
        self.object(object).polls.push(poll);
        let mask = self.mask(object);
        self.poll_set(poll).happened(object, mask);
        Ok(())
    }

    /// `EPOLL_CTL_MOD`, which fails for no reason of a socket's.
    pub(crate) fn poll_modify(
        &mut self,
        poll: usize,
        object: ObjectId,
        events: u32,
        value: u64,
    ) -> Result<(), i32> {
        let items = &mut self.poll_set(poll).items;
        let item = items.iter_mut().find(|item| item.object == object);
        let item = item.ok_or(libc::ENOENT)?;
        (item.events, item.value) = (events, value);
        let mask = self.mask(object);
        self.poll_set(poll).happened(object, mask);
        Ok(())
    }

    /// `EPOLL_CTL_DEL`.
    pub(crate) fn poll_remove(&mut self, poll: usize, object: ObjectId) -> Result<(), i32> {
        if self.poll_set(poll).item(object).is_none() {
            return Err(libc::ENOENT);
        }
        self.poll_set(poll).forget(object);
        self.object(object).polls.retain(|&watching| watching != poll);
        Ok(())
    }

    /// The events that are there, at most `room` of them, each given to `tell` with its value.
    pub(crate) fn poll_events(
        &mut self,
        poll: usize,
        room: usize,
        mut report: impl FnMut(u32, u64),
    ) -> usize {
        if self.strikes(Fault::SpuriousWake) && !self.poll_set(poll).items.is_empty() {
            let count = self.poll_set(poll).items.len() as u64;
            let index = self.random.below(count) as usize;
            let object = self.poll_set(poll).items[index].object;
            self.poll_set(poll).happened(object, u32::MAX);
        }
        let mut reported = 0;
        for _ in 0..self.poll_set(poll).ready.len() {
            if reported == room {
                break;
            }
            let Some(object) = self.poll_set(poll).ready.pop_front() else {
                break;
            };
            if self.strikes(Fault::Delay) || self.strikes(Fault::Reorder) {
                // As if it had happened a moment later.
                self.poll_set(poll).ready.push_back(object);
                self.poll_set(poll).news = true;
                continue;
            }
            let Some(&Item { events, value, .. }) = self.poll_set(poll).item(object) else {
                continue;
            };
            let mask = self.mask(object) & (events | ALWAYS);
            if mask == 0 {
                continue;
            }
            if events & libc::EPOLLET as u32 == 0 {
                self.poll_set(poll).ready.push_back(object);
            }
            report(mask, value);
            reported += 1;
        }
        reported
    }

    /// As [`Self::has_events`], once for what has happened since it was asked before: what an edge-triggered watch of the
    /// instance is told.
    pub(super) fn has_new_events(&mut self, poll: usize) -> bool {
        let news = std::mem::take(&mut self.poll_set(poll).news);
        news && self.has_events(poll)
    }

    /// Whether something is there to be told.
    pub(crate) fn has_events(&mut self, poll: usize) -> bool {
        !self.poll_set(poll).ready.is_empty()
    }
}
