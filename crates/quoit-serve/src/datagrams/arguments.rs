//! The options of servers of datagrams.

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use quoit::datagram::MAX_UDP_PAYLOAD;
use quoit::{DatagramOptions, Gro, Steering};

/// How the sockets are set up.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DatagramArguments {
    /// Let the kernel join datagrams of one sender (GRO): a receive then brings up to 64 KiB of them
    #[arg(long)]
    gro: bool,
    /// Bytes of the longest datagram; longer ones come cut. With --gro it has no effect
    #[arg(long, value_name = "BYTES", default_value_t = MAX_UDP_PAYLOAD,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=u64::from(MAX_UDP_PAYLOAD)))]
    max_datagram: u32,
    /// Receive buffers of each loop, each for one datagram, or for what was joined
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=32_768))]
    slots: u32,
    /// Bytes that the kernel keeps while a loop is busy: beyond net.core.rmem_max where this process may
    /// (CAP_NET_ADMIN); the kernel doubles it [default: net.core.rmem_default]
    #[arg(long, value_name = "BYTES", value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 30))]
    receive_buffer: Option<u32>,
    /// Which of several loops gets a datagram
    #[arg(long, value_enum, default_value = "hash")]
    steer: SteeringName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SteeringName {
    /// By addresses and ports: each peer always reaches the same loop
    Hash,
    /// By the processor that received it, for loops pinned to processors
    Cpu,
}

impl DatagramArguments {
    pub(crate) fn options(self) -> DatagramOptions {
        DatagramOptions {
            gro: if self.gro { Gro::Transparent } else { Gro::Off },
            max_datagram: self.max_datagram,
            slots: self.slots,
            receive_buffer: self.receive_buffer,
            // Where that is not permitted, the cap stays.
            force_receive_buffer: self.receive_buffer.is_some(),
            ..DatagramOptions::default()
        }
    }

    pub(crate) fn steering(self) -> Steering {
        match self.steer {
            SteeringName::Hash => Steering::Hash,
            SteeringName::Cpu => Steering::Cpu,
        }
    }

    pub(crate) fn joins(self) -> bool {
        self.gro
    }

    /// The receive buffer that is asked for, in bytes.
    pub(crate) fn receive_buffer(self) -> Option<u64> {
        self.receive_buffer.map(u64::from)
    }

    /// Bytes that a socket receives into.
    pub(crate) fn pool_bytes(self) -> u64 {
        let room = if self.gro { 1 << 16 } else { self.max_datagram };
        u64::from(self.slots) * u64::from(room)
    }
}
