//! Receiving.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::BufMut;
use quoit::Datagrams;
#[cfg(feature = "tokio")]
use tokio::io::ReadBuf;

use super::UdpSocket;
use crate::budget::within_budget;
use crate::port::{State, Waiting, look_by, take_by};
#[cfg(feature = "tokio")]
use crate::stream::fill_read_buf;
use crate::stream::{fill_buf, fill_one};

impl UdpSocket {
    async fn recv_with<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> io::Result<R> {
        let mut waiting = Waiting {
            port: &self.port,
            sends: false,
            key: None,
        };
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                self.port.poll_recv(cx, Some(&mut waiting.key), &mut take)
            })
        })
        .await
    }

    /// Waits for a datagram and copies it, with its sender. What does not fit is lost. Cancel safe.
    ///
    /// # Errors
    /// What the network has told of an earlier datagram: `ConnectionRefused` of a connected socket, once.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(take_by(fill_one(buffer))).await
    }

    /// As [`recv_from`](Self::recv_from), without the sender.
    ///
    /// # Errors
    /// As `recv_from`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).await.map(|(length, _)| length)
    }

    /// As [`recv_from`](Self::recv_from), behind what is in a buffer, as much as that has room for.
    ///
    /// # Errors
    /// As `recv_from`.
    pub async fn recv_buf_from(&self, buffer: &mut impl BufMut) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(take_by(fill_buf(buffer))).await
    }

    /// As [`recv_buf_from`](Self::recv_buf_from), without the sender.
    ///
    /// # Errors
    /// As `recv_from`.
    pub async fn recv_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        self.recv_buf_from(buffer).await.map(|(length, _)| length)
    }

    /// Waits for a datagram and copies it, with its sender, and leaves it to be received. Cancel safe.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(look_by(fill_one(buffer))).await
    }

    /// As [`peek_from`](Self::peek_from), without the sender.
    ///
    /// # Errors
    /// As `recv_from`.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.peek_from(buffer).await.map(|(length, _)| length)
    }

    /// Waits for a datagram, tells its sender, and leaves it to be received. Cancel safe.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.peek_from(&mut []).await.map(|(_, sender)| sender)
    }

    /// Waits for datagrams and returns them in the memory that they came in, joined ones together. Cancel safe.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv_datagrams(&self) -> io::Result<Datagrams> {
        self.recv_with(State::take_datagrams).await
    }

    /// As [`recv_from`](Self::recv_from), without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has come; as `recv_from`.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.port.try_recv(&mut take_by(fill_one(buffer)))
    }

    /// As [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_recv_from(buffer).map(|(length, _)| length)
    }

    /// As [`recv_buf_from`](Self::recv_buf_from), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_recv_buf_from(&self, buffer: &mut impl BufMut) -> io::Result<(usize, SocketAddr)> {
        self.port.try_recv(&mut take_by(fill_buf(buffer)))
    }

    /// As [`recv_buf`](Self::recv_buf), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_recv_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        self.try_recv_buf_from(buffer).map(|(length, _)| length)
    }

    /// As [`peek_from`](Self::peek_from), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.port.try_recv(&mut look_by(fill_one(buffer)))
    }

    /// As [`peek`](Self::peek), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_peek_from(buffer).map(|(length, _)| length)
    }

    /// As [`peek_sender`](Self::peek_sender), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.try_peek_from(&mut []).map(|(_, sender)| sender)
    }

    /// As [`recv_from`](Self::recv_from), for who polls.
    ///
    /// # Errors
    /// As `recv_from`.
    #[cfg(feature = "tokio")]
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        self.poll_with(cx, take_by(fill_read_buf(buffer)))
    }

    /// As [`recv`](Self::recv), for who polls.
    ///
    /// # Errors
    /// As `recv_from`.
    #[cfg(feature = "tokio")]
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buffer).map_ok(drop)
    }

    /// As [`peek_from`](Self::peek_from), for who polls.
    ///
    /// # Errors
    /// As `recv_from`.
    #[cfg(feature = "tokio")]
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        self.poll_with(cx, look_by(fill_read_buf(buffer)))
    }

    /// As [`peek`](Self::peek), for who polls.
    ///
    /// # Errors
    /// As `recv_from`.
    #[cfg(feature = "tokio")]
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_peek_from(cx, buffer).map_ok(drop)
    }

    /// As [`peek_sender`](Self::peek_sender), for who polls.
    ///
    /// # Errors
    /// As `recv_from`.
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.poll_with(cx, look_by(fill_one(&mut [])))
    }

    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut State) -> Option<(usize, SocketAddr)>,
    ) -> Poll<io::Result<SocketAddr>> {
        within_budget(cx, |cx| self.port.poll_recv(cx, None, &mut take)).map_ok(|(_, sender)| sender)
    }

    /// As [`recv_datagrams`](Self::recv_datagrams), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_recv_datagrams(&self) -> io::Result<Datagrams> {
        self.port.try_recv(&mut State::take_datagrams)
    }

    /// As [`recv_datagrams`](Self::recv_datagrams), for who polls.
    ///
    /// # Errors
    /// As `recv_datagrams`.
    pub fn poll_recv_datagrams(&self, cx: &mut Context<'_>) -> Poll<io::Result<Datagrams>> {
        within_budget(cx, |cx| self.port.poll_recv(cx, None, &mut State::take_datagrams))
    }

    /// Waits until something has come. Cancel safe.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub async fn readable(&self) -> io::Result<()> {
        self.recv_with(|state| state.is_readable().then_some(())).await
    }

    /// As [`readable`](Self::readable), for who polls.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut readable = |state: &mut State| state.is_readable().then_some(());
        within_budget(cx, |cx| self.port.poll_recv(cx, None, &mut readable))
    }
}
