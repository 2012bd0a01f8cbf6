//! Memory that is sent without a copy.

use bytes::Bytes;
use quoit::Lease;

use crate::link::Piece;

/// Memory that a stream or socket sends without copying it: made from `Bytes`, `Vec<u8>`, `&'static [u8]` or a
/// [`Lease`](quoit::Lease).
#[derive(Debug)]
pub struct Memory(pub(crate) Piece);

impl From<Bytes> for Memory {
    fn from(bytes: Bytes) -> Self {
        Self(Piece::Bytes(bytes))
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Piece::Bytes(bytes.into()))
    }
}

impl From<&'static [u8]> for Memory {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Piece::Bytes(Bytes::from_static(bytes)))
    }
}

impl<const N: usize> From<&'static [u8; N]> for Memory {
    fn from(bytes: &'static [u8; N]) -> Self {
        Self(Piece::Bytes(Bytes::from_static(bytes)))
    }
}

impl From<Lease> for Memory {
    fn from(lease: Lease) -> Self {
        Self(Piece::Lease(lease))
    }
}
