//! What the peers of one siege do, all of them the same.

use serde::{Deserialize, Serialize};

use crate::wire::Service;

/// What they do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    NeverRead,
    Terabyte,
    Pipeline,
    Beginnings,
    SlowHeads,
    FastReaders,
    SlowReaders,
    ByteASecond,
    Resets,
    HalfClosed,
    Vanished,
    Descriptors,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::NeverRead,
        Self::Terabyte,
        Self::Pipeline,
        Self::Beginnings,
        Self::SlowHeads,
        Self::FastReaders,
        Self::SlowReaders,
        Self::ByteASecond,
        Self::Resets,
        Self::HalfClosed,
        Self::Vanished,
        Self::Descriptors,
    ];

    /// The head of its column.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NeverRead => "never read",
            Self::Terabyte => "terabyte",
            Self::Pipeline => "pipeline",
            Self::Beginnings => "beginnings",
            Self::SlowHeads => "slow heads",
            Self::FastReaders => "fast",
            Self::SlowReaders => "slow",
            Self::ByteASecond => "a byte a second",
            Self::Resets => "resets",
            Self::HalfClosed => "half-closed",
            Self::Vanished => "half-open",
            Self::Descriptors => "descriptors",
        }
    }

    /// What such peers do.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::NeverRead => "send large requests, as many as are taken, and never read",
            Self::Terabyte => "ask for a terabyte in 94 bytes, and never read",
            Self::Pipeline => "send small requests one behind the other, and never read",
            Self::Beginnings => "send the beginning of a request, and nothing more",
            Self::SlowHeads => "send a request byte by byte",
            Self::FastReaders => "ask for a terabyte, and read as fast as it comes",
            Self::SlowReaders => "ask for a terabyte, and read a little now and then",
            Self::ByteASecond => "ask for a terabyte, and read one byte a second",
            Self::Resets => "connect and reset in the midst of a request, over and over",
            Self::HalfClosed => "ask for a terabyte, end their direction, and read nothing",
            Self::Vanished => {
                "ask for a terabyte, and vanish with their whole network: no end and no reset comes, and the server's \
                 bytes go nowhere"
            }
            Self::Descriptors => {
                "connect until nothing more is accepted: the client that behaves is one that was there before, and a \
                 connection that waits is served when they have gone"
            }
        }
    }

    /// How many there are; none: as many as the server has descriptors for.
    pub(crate) fn count(self) -> Option<usize> {
        match self {
            Self::FastReaders => Some(8),
            Self::NeverRead | Self::Resets => Some(60),
            Self::SlowReaders | Self::ByteASecond | Self::Vanished => Some(100),
            Self::Terabyte | Self::Pipeline | Self::Beginnings | Self::SlowHeads | Self::HalfClosed => {
                Some(400)
            }
            Self::Descriptors => None,
        }
    }

    /// Whether such peers can do to a server of this what they do.
    pub(crate) fn concerns(self, service: Service) -> bool {
        match self {
            // An echo knows no requests, and sends no more than it gets; a sink sends nothing.
            Self::Terabyte | Self::Pipeline | Self::FastReaders | Self::SlowReaders | Self::ByteASecond => {
                !matches!(service, Service::Echo | Service::Sink)
            }
            Self::Vanished => service != Service::Sink,
            _ => true,
        }
    }
}
