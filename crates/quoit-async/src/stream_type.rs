//! What TCP's and Unix's streams have in common, as public types.

/// A public stream type over `stream::Stream`, with its halves.
macro_rules! stream_type {
    (
        $(#[$doc:meta])*
        $stream:ident, halves $read:ident, $write:ident, $owned_read:ident, $owned_write:ident, $reunite:ident,
        addresses $address:ty, by $convert:path
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $stream {
            pub(crate) stream: crate::stream::Stream,
        }

        impl $stream {
            pub(crate) fn of(link: std::sync::Arc<crate::link::Link>) -> Self {
                Self {
                    stream: crate::stream::Stream::new(link),
                }
            }

            /// Waits until a read would not wait. It may all the same, if somebody else reads first. Cancel safe.
            ///
            /// # Errors
            /// None; a `Result` as tokio's is.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.stream.reader.readable().await;
                Ok(())
            }

            /// Waits until a write would not wait. Cancel safe.
            ///
            /// # Errors
            /// None; a `Result` as tokio's is.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.stream.owner.writable().await;
                Ok(())
            }

            /// As [`readable`](Self::readable), for who polls.
            ///
            /// # Errors
            /// None; a `Result` as tokio's is.
            pub fn poll_read_ready(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                crate::budget::within_budget(cx, |cx| self.stream.reader.poll_readable(cx, None)).map(Ok)
            }

            /// As [`writable`](Self::writable), for who polls.
            ///
            /// # Errors
            /// None; a `Result` as tokio's is.
            pub fn poll_write_ready(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                crate::budget::within_budget(cx, |cx| self.stream.owner.poll_writable(cx)).map(Ok)
            }

            /// Reads what has come, at most a buffer full. 0: the peer has ended its direction.
            ///
            /// # Errors
            /// `WouldBlock` if nothing has come; what ended the connection.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.stream.reader.try_read(&mut crate::stream::fill_one(buffer))
            }

            /// As [`try_read`](Self::try_read), into several buffers in turn.
            ///
            /// # Errors
            /// As `try_read`.
            pub fn try_read_vectored(
                &self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.stream.reader.try_read(&mut crate::stream::fill(buffers))
            }

            /// As [`try_read`](Self::try_read), behind what is in a buffer, as much as that has room for.
            ///
            /// # Errors
            /// As `try_read`.
            pub fn try_read_buf(&self, buffer: &mut impl bytes::BufMut) -> std::io::Result<usize> {
                self.stream.reader.try_read(&mut crate::stream::fill_buf(buffer))
            }

            /// Writes as much as there is room for.
            ///
            /// # Errors
            /// `WouldBlock` if there is none; `BrokenPipe` once the sending direction has ended; what ended the connection.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                self.stream.owner.try_write(&[std::io::IoSlice::new(bytes)])
            }

            /// As [`try_write`](Self::try_write), of several buffers in turn.
            ///
            /// # Errors
            /// As `try_write`.
            pub fn try_write_vectored(&self, pieces: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.stream.owner.try_write(pieces)
            }

            /// Waits for bytes, copies as many as fit and leaves them to be read. 0: the peer has ended its direction. Cancel
            /// safe.
            ///
            /// # Errors
            /// What ended the connection.
            pub async fn peek(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.stream.reader.peek(buffer).await
            }

            /// As [`peek`](Self::peek), for who polls.
            ///
            /// # Errors
            /// As `peek`.
            #[cfg(feature = "tokio")]
            pub fn poll_peek(
                &self,
                cx: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.reader.poll_peek(cx, buffer)
            }

            /// Waits for bytes and returns them in the memory that they came in, without a copy: at least one, at most
            /// [`Config::receive_slot_size`](quoit::Config::receive_slot_size). `None`: the peer has ended its direction.
            /// Cancel safe. Drop the lease soon: a stream that holds many is received for no further.
            ///
            /// # Errors
            /// What ended the connection.
            pub async fn recv(&mut self) -> std::io::Result<Option<quoit::Lease>> {
                self.stream.reader.recv().await
            }

            /// Sends memory without copying it: `Bytes`, a `Vec<u8>`, or a lease that was received. It waits for room, not for
            /// the bytes to be sent. Not cancel safe as to whether it was taken: all of it was or nothing.
            ///
            /// # Errors
            /// `BrokenPipe` once the sending direction has ended; what ended the connection.
            pub async fn send(&self, memory: impl Into<crate::Memory>) -> std::io::Result<()> {
                self.stream.owner.send(memory.into().0).await
            }

            /// Sends a range of a file by `sendfile(2)`, and waits until the kernel has taken it. Returns how much that is:
            /// less than `length` if the file ends before.
            ///
            /// # Errors
            /// As [`send`](Self::send); what reading the file failed with.
            pub async fn send_file(&self, file: std::fs::File, offset: u64, length: u64) -> std::io::Result<u64> {
                self.stream.owner.send_file(file, offset, length).await
            }

            /// Waits until the kernel has taken everything that was written before. Cancel safe.
            ///
            /// # Errors
            /// What ended the connection.
            pub async fn flushed(&self) -> std::io::Result<()> {
                self.stream.owner.flushed().await
            }

            /// Ends the connection at once: what is queued is dropped, and the peer sees a reset.
            pub fn abort(self) {
                self.stream.link().drop_stream(true);
            }

            /// Has `f` called with the socket on the loop's thread, and waits for it: for options that this type has no
            /// method for. Do not read, write, shut down or close it, nor change whether it blocks.
            ///
            /// # Errors
            /// Those of `f`; `NotConnected` once the connection is gone; `Deadlock` in another such closure, whose loop waits for it.
            pub fn with_socket<R: Send + 'static>(
                &self,
                f: impl FnOnce(socket2::SockRef<'_>) -> std::io::Result<R> + Send + 'static,
            ) -> std::io::Result<R> {
                self.stream.with_socket(f)
            }

            /// The engine of the loop that serves this stream.
            #[must_use]
            pub fn engine(&self) -> quoit::EngineKind {
                self.stream.link().home.engine
            }

            /// Two halves that borrow the stream, for one task that reads and writes at once.
            pub fn split(&mut self) -> ($read<'_>, $write<'_>) {
                ($read { stream: self }, $write { stream: self })
            }

            /// Two halves that can go to different tasks. Dropping the sending half ends that direction; the connection ends
            /// with the second.
            #[must_use]
            pub fn into_split(self) -> ($owned_read, $owned_write) {
                let (read, write) = self.stream.into_split();
                ($owned_read { half: read }, $owned_write { half: write })
            }
        }

        #[doc = concat!("The receiving half of a borrowed [`", stringify!($stream), "`].")]
        #[derive(Debug)]
        pub struct $read<'a> {
            pub(crate) stream: &'a $stream,
        }

        #[doc = concat!("The sending half of a borrowed [`", stringify!($stream), "`].")]
        #[derive(Debug)]
        pub struct $write<'a> {
            pub(crate) stream: &'a $stream,
        }

        impl $read<'_> {
            #[doc = concat!("As [`", stringify!($stream), "::readable`].")]
            ///
            /// # Errors
            /// None.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.stream.readable().await
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_read`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.stream.try_read(buffer)
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_read_vectored`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_read_vectored(
                &self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.stream.try_read_vectored(buffers)
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_read_buf`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_read_buf(&self, buffer: &mut impl bytes::BufMut) -> std::io::Result<usize> {
                self.stream.try_read_buf(buffer)
            }

            #[doc = concat!("As [`", stringify!($stream), "::peek`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn peek(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.stream.peek(buffer).await
            }

            #[doc = concat!("As [`", stringify!($stream), "::poll_peek`].")]
            ///
            /// # Errors
            /// As there.
            #[cfg(feature = "tokio")]
            pub fn poll_peek(
                &mut self,
                cx: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.poll_peek(cx, buffer)
            }
        }

        impl $write<'_> {
            #[doc = concat!("As [`", stringify!($stream), "::writable`].")]
            ///
            /// # Errors
            /// None.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.stream.writable().await
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_write`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                self.stream.try_write(bytes)
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_write_vectored`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_write_vectored(&self, pieces: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.stream.try_write_vectored(pieces)
            }

            #[doc = concat!("As [`", stringify!($stream), "::send`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn send(&self, memory: impl Into<crate::Memory>) -> std::io::Result<()> {
                self.stream.send(memory).await
            }
        }

        #[doc = concat!("The receiving half of a [`", stringify!($stream), "`] that was taken apart.")]
        #[derive(Debug)]
        pub struct $owned_read {
            pub(crate) half: crate::stream::OwnedReader,
        }

        #[doc = concat!("The sending half of a [`", stringify!($stream), "`] that was taken apart. Dropping it ends its direction.")]
        #[derive(Debug)]
        pub struct $owned_write {
            pub(crate) half: crate::stream::OwnedWriter,
        }

        #[doc = concat!("The two halves are not of one [`", stringify!($stream), "`]. They come back.")]
        #[derive(Debug)]
        pub struct $reunite(pub $owned_read, pub $owned_write);

        impl std::fmt::Display for $reunite {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("tried to reunite halves that are not from the same socket")
            }
        }

        impl std::error::Error for $reunite {}

        impl $owned_read {
            /// Puts the halves together again.
            ///
            /// # Errors
            /// The halves, if they are of two streams.
            pub fn reunite(self, write: $owned_write) -> Result<$stream, $reunite> {
                match crate::stream::reunite(self.half, write.half) {
                    Ok(stream) => Ok($stream { stream }),
                    Err((read, write)) => Err($reunite($owned_read { half: read }, $owned_write { half: write })),
                }
            }

            #[doc = concat!("As [`", stringify!($stream), "::readable`].")]
            ///
            /// # Errors
            /// None.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.half.reader.readable().await;
                Ok(())
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_read`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.half.reader.try_read(&mut crate::stream::fill_one(buffer))
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_read_vectored`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_read_vectored(
                &self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.half.reader.try_read(&mut crate::stream::fill(buffers))
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_read_buf`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_read_buf(&self, buffer: &mut impl bytes::BufMut) -> std::io::Result<usize> {
                self.half.reader.try_read(&mut crate::stream::fill_buf(buffer))
            }

            #[doc = concat!("As [`", stringify!($stream), "::peek`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn peek(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.half.reader.peek(buffer).await
            }

            #[doc = concat!("As [`", stringify!($stream), "::poll_peek`].")]
            ///
            /// # Errors
            /// As there.
            #[cfg(feature = "tokio")]
            pub fn poll_peek(
                &mut self,
                cx: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.half.reader.poll_peek(cx, buffer)
            }

            #[doc = concat!("As [`", stringify!($stream), "::recv`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn recv(&mut self) -> std::io::Result<Option<quoit::Lease>> {
                self.half.reader.recv().await
            }
        }

        impl $owned_write {
            /// Puts the halves together again.
            ///
            /// # Errors
            /// The halves, if they are of two streams.
            pub fn reunite(self, read: $owned_read) -> Result<$stream, $reunite> {
                read.reunite(self)
            }

            /// Lets go of the half without ending its direction: the connection ends with the other.
            pub fn forget(self) {
                self.half.forget();
            }

            #[doc = concat!("As [`", stringify!($stream), "::writable`].")]
            ///
            /// # Errors
            /// None.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.half.owner.writable().await;
                Ok(())
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_write`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                self.half.owner.try_write(&[std::io::IoSlice::new(bytes)])
            }

            #[doc = concat!("As [`", stringify!($stream), "::try_write_vectored`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_write_vectored(&self, pieces: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.half.owner.try_write(pieces)
            }

            #[doc = concat!("As [`", stringify!($stream), "::send`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn send(&self, memory: impl Into<crate::Memory>) -> std::io::Result<()> {
                self.half.owner.send(memory.into().0).await
            }

            #[doc = concat!("As [`", stringify!($stream), "::send_file`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn send_file(&self, file: std::fs::File, offset: u64, length: u64) -> std::io::Result<u64> {
                self.half.owner.send_file(file, offset, length).await
            }

            #[doc = concat!("As [`", stringify!($stream), "::flushed`].")]
            ///
            /// # Errors
            /// As there.
            pub async fn flushed(&self) -> std::io::Result<()> {
                self.half.owner.flushed().await
            }
        }

        crate::stream_type::of_both_directions! {
            $stream, $address, $convert, this => &this.stream.owner, Some(&this.stream.reader);
            $read<'_>, $address, $convert, this => &this.stream.stream.owner, Some(&this.stream.stream.reader);
            $write<'_>, $address, $convert, this => &this.stream.stream.owner, Some(&this.stream.stream.reader);
            $owned_read, $address, $convert, this => &this.half.owner, Some(&this.half.reader);
            $owned_write, $address, $convert, this => &this.half.owner, None;
        }
        crate::io_traits::poll_traits!($stream, $read, $write, $owned_read, $owned_write);
    };
}

/// What a stream and each of its halves tell of the whole.
macro_rules! of_both_directions {
    ($($type:ty, $address:ty, $convert:path, $this:ident => $owner:expr, $reader:expr;)*) => {
        $(
            impl $type {
                /// The address of this end.
                ///
                /// # Errors
                /// `NotConnected` once the connection is gone, unless it was asked for before.
                pub fn local_addr(&self) -> std::io::Result<$address> {
                    let $this = self;
                    $convert(&($owner).link().local()?)
                }

                /// The address of the peer, also once it has reset the connection. On Unix it mostly has none.
                ///
                /// # Errors
                /// `NotConnected` if the kernel never knew it.
                pub fn peer_addr(&self) -> std::io::Result<$address> {
                    let $this = self;
                    $convert(&($owner).peer()?)
                }

                /// Waits until a read or a write would not wait, as `interest` asks for. What it returns says which of them, and
                /// whether the peer has ended its direction. Cancel safe.
                ///
                /// # Errors
                /// None; a `Result` as tokio's is.
                #[cfg(feature = "tokio")]
                pub async fn ready(&self, interest: tokio::io::Interest) -> std::io::Result<tokio::io::Ready> {
                    let $this = self;
                    Ok(($owner).ready(interest, $reader).await)
                }
            }
        )*
    };
}

pub(crate) use {of_both_directions, stream_type};
