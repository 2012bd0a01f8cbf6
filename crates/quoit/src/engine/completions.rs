//! What an engine has taken in, on its way to the loop.

use super::Completion;
use crate::id::Slot;

/// A buffer of a datagram socket's that was received into, and now belongs to the loop: it is laid out as
/// `datagram/view.rs` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilledBuffer {
    /// Its id.
    pub id: u16,
    /// Bytes in it, the headers included; 0 if the kernel took it for nothing.
    pub length: u32,
}

/// Room for quiet sends from the start, as for what is attempted.
const FIRST_QUIET: usize = 128;

/// Completions in their order. Datagrams that came one behind the other are one of them, as there are many and of each
/// only its buffer is of interest: the loop looks up their socket once, and goes through a list of plain values.
#[derive(Default, Debug)]
pub struct Completions {
    /// The completions.
    pub list: Vec<Completion>,
    /// The buffers of every [`Completion::DatagramsFilled`], one run behind the other.
    pub filled: Vec<FilledBuffer>,
    /// Of the list those that stand for buffers.
    runs: usize,
    /// Sends from one piece of memory, for which nobody waited, that were taken whole: the connection, and the bytes. They come
    /// behind the list.
    pub quiet: Vec<(Slot, u32)>,
}

impl Completions {
    /// Room for so many, and as many buffers as come.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            list: Vec::with_capacity(capacity),
            quiet: Vec::with_capacity(FIRST_QUIET),
            ..Self::default()
        }
    }

    /// How many there are, every buffer counted as one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len() - self.runs + self.filled.len() + self.quiet.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.quiet.is_empty()
    }

    /// Adds one that is no [`Completion::DatagramsFilled`].
    pub fn push(&mut self, completion: Completion) {
        debug_assert!(!matches!(completion, Completion::DatagramsFilled { .. }));
        self.list.push(completion);
    }

    /// A send from one piece of memory, for which nobody waits, was taken whole.
    #[inline]
    pub(super) fn push_quiet(&mut self, connection: Slot, bytes: u32) {
        self.quiet.push((connection, bytes));
    }

    /// The list, with quiet sends behind it as what they stand for.
    #[cfg(test)]
    pub(super) fn into_list(self) -> impl Iterator<Item = Completion> {
        let quiet = self
            .quiet
            .into_iter()
            .map(|(connection, bytes)| Completion::Sent {
                connection,
                result: Ok(bytes as usize),
                gather: None,
                held: false,
            });
        self.list.into_iter().chain(quiet)
    }

    /// A socket has received into a buffer, after which receiving goes on if there is `more`.
    // Inlined, as what comes many times in a row ends at its beginning.
    #[inline(always)]
    pub fn push_filled(&mut self, socket: Slot, buffer: FilledBuffer, more: bool) {
        self.filled.push(buffer);
        if let Some(Completion::DatagramsFilled {
            socket: last,
            count,
            more: goes_on,
        }) = self.list.last_mut()
            && *last == socket
            && *goes_on
        {
            *count += 1;
            *goes_on = more;
            return;
        }
        self.runs += 1;
        self.list.push(Completion::DatagramsFilled {
            socket,
            count: 1,
            more,
        });
    }

    /// Forgets all of them; the memory is kept.
    pub fn clear(&mut self) {
        self.list.clear();
        self.filled.clear();
        self.quiet.clear();
        self.runs = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(id: u16) -> FilledBuffer {
        FilledBuffer { id, length: 200 }
    }

    #[test]
    fn what_came_in_a_row_for_one_socket_is_one_completion() {
        let (first, second) = (Slot::new(1), Slot::new(2));
        let mut completions = Completions::default();
        completions.push_filled(first, filled(1), true);
        completions.push_filled(first, filled(2), true);
        completions.push_filled(second, filled(1), true);
        completions.push(Completion::Woken);
        completions.push_filled(second, filled(2), true);
        // Terminal: whatever follows belongs to another receive.
        completions.push_filled(second, filled(3), false);
        completions.push_filled(second, filled(4), true);
        let runs: Vec<_> = completions
            .list
            .iter()
            .map(|completion| match completion {
                Completion::DatagramsFilled { socket, count, more } => Some((*socket, *count, *more)),
                _ => None,
            })
            .collect();
        let expected = [
            Some((first, 2, true)),
            Some((second, 1, true)),
            None,
            Some((second, 2, false)),
            Some((second, 1, true)),
        ];
        assert_eq!(runs, expected);
        let ids: Vec<_> = completions.filled.iter().map(|buffer| buffer.id).collect();
        assert_eq!(ids, [1, 2, 1, 2, 3, 4]);
        assert_eq!(completions.len(), 7);
        completions.clear();
        assert_eq!((completions.len(), completions.is_empty()), (0, true));
    }
}
