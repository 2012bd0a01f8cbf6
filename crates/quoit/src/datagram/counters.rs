//! What one datagram socket has done.

/// The counts of one datagram socket since it was opened. [`Loop::datagram_counters`](crate::Loop::datagram_counters)
/// reads them.
///
/// Datagrams that were sent to this socket and not received are in `kernel_drops` (the socket's memory was full when
/// they came: the loop was too slow, or `pauses` says that the handler was) or were lost before they reached it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramCounters {
    /// Datagrams delivered; those that the kernel had joined (GRO) count one by one.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Buffers that they came in: one datagram each, or several joined ones. `received / received_buffers` is the GRO
    /// ratio.
    pub received_buffers: u64,
    /// Turns that brought any. `received_buffers / receive_batches` is the size of a batch.
    pub receive_batches: u64,
    /// The most buffers that one turn brought.
    pub largest_batch: u64,
    /// Buffers that the kernel dropped because the socket's memory was full (`SO_MEMINFO`, before kernel 4.12
    /// `SO_RXQ_OVFL`), since it was opened. With GRO one may hold several datagrams. Known for idle sockets too: the
    /// kernel is asked.
    pub kernel_drops: u64,
    /// Times that receiving paused because the handler held all of the socket's slots.
    pub pauses: u64,
    /// Datagrams that were longer than `max_datagram`, and came cut.
    pub truncated: u64,
    /// Datagrams dropped because their control messages came cut, so that their borders were not known.
    pub control_truncated: u64,
    /// Receives that were armed, the first included.
    pub arms: u64,
    /// Errors that receiving brought, those of earlier sends (ICMP) included.
    pub receive_errors: u64,

    /// Datagrams that the kernel took; the segments of one send count one by one.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Sends that they took. `sent / sends` is the GSO ratio.
    pub sends: u64,
    /// Operations that those sends left in. `sends / send_batches` is the size of a batch.
    pub send_batches: u64,
    /// Sends that were refused because the queue was full.
    pub sends_refused: u64,
    /// Sends that failed.
    pub send_errors: u64,
    /// Sends in segments that the kernel or the device refused, and that were made one by one instead.
    pub segmentation_refused: u64,

    /// Slots of receive memory.
    pub slots: u64,
    /// Slots that the handler holds.
    pub slots_leased: u64,
    /// The fewest slots not leased at any moment.
    pub slots_low_water: u64,
    /// Bytes queued for sending.
    pub queued_bytes: u64,

    /// Of the sends, those that another thread made while the loop slept
    /// ([`Loop::direct_datagram_sender`](crate::Loop::direct_datagram_sender)); each is a system call.
    pub direct_sends: u64,
}
