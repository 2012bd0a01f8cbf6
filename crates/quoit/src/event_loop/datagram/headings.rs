//! What the kernel reads of each queued send beside its bytes.

use crate::address::SocketAddress;
use crate::datagram::Control;

/// Where a send goes, and the control messages that go with it.
#[derive(Clone, Debug)]
pub(super) struct Heading {
    /// Empty: to the peer that the socket is connected to.
    pub(super) to: SocketAddress,
    pub(super) control: Control,
}

impl Heading {
    const EMPTY: Self = Self {
        to: SocketAddress::empty(),
        control: Control::NONE,
    };
}

/// Those of all that is queued, in a ring.
///
/// Each stays where it was written until its send has ended, and a later one is written over it. So of each no more is
/// written than it has, which is a tenth of its room, and none is moved.
#[derive(Debug)]
pub(super) struct Headings {
    /// As many as were ever in use at once, in memory that is reserved at the beginning: the kernel reads them where
    /// they are.
    all: Vec<Heading>,
    /// Places in all, one more than there are sends: what is refused in the end was written too.
    places: usize,
    /// The place of the oldest.
    first: usize,
}

impl Headings {
    /// For so many sends.
    pub(super) fn new(most: usize) -> Self {
        let places = most + 1;
        Self {
            all: Vec::with_capacity(places),
            places,
            first: 0,
        }
    }

    /// That of the send behind the `queued` ones, with what it had before.
    pub(super) fn next(&mut self, queued: usize) -> &mut Heading {
        if queued == 0 {
            // From the start again, where the memory is still in the processor's caches.
            self.first = 0;
        }
        let place = self.place(queued);
        if place == self.all.len() {
            self.all.push(Heading::EMPTY);
        }
        &mut self.all[place]
    }

    /// That of a queued send, from the oldest.
    pub(super) fn at(&mut self, index: usize) -> &mut Heading {
        let place = self.place(index);
        &mut self.all[place]
    }

    /// The oldest ones are no longer in use.
    pub(super) fn release(&mut self, count: usize) {
        self.first = self.place(count);
    }

    /// Places are taken one after the other, so that there is none behind one that was never in use.
    fn place(&self, index: usize) -> usize {
        let place = self.first + index;
        if place < self.places {
            place
        } else {
            place - self.places
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_stay_where_they_are_and_are_used_again() {
        let mut headings = Headings::new(3);
        let mut address = |queued: usize, port: u16| {
            let heading = headings.next(queued);
            heading.to.set_internet(([127, 0, 0, 1], port).into());
            std::ptr::from_mut(heading)
        };
        let [first, second, third, refused] = [0, 1, 2, 3].map(|queued| address(queued, queued as u16));
        headings.release(1);
        assert_eq!(std::ptr::from_mut(headings.at(0)), second);
        assert_eq!(std::ptr::from_mut(headings.at(1)), third);
        assert_eq!(std::ptr::from_mut(headings.next(2)), refused);
        assert_eq!(std::ptr::from_mut(headings.next(3)), first);
        headings.release(2);
        assert_eq!(std::ptr::from_mut(headings.at(0)), refused);
        assert_eq!(std::ptr::from_mut(headings.next(1)), first);
        // From the start.
        assert_eq!(std::ptr::from_mut(headings.next(0)), first);
        assert_eq!(headings.all.len(), 4);
    }
}
