//! Reading and writing by the traits of tokio, hyper and futures.

/// Implements the traits that are enabled for a stream type and its halves.
macro_rules! poll_traits {
    ($stream:ident, $read:ident, $write:ident, $owned_read:ident, $owned_write:ident) => {
        impl $stream {
            fn read_with(
                &mut self,
                cx: &mut std::task::Context<'_>,
                take: &mut dyn FnMut(&[u8]) -> usize,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.reader.poll_read(cx, take)
            }

            fn write_with(
                &self,
                cx: &mut std::task::Context<'_>,
                pieces: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.owner.poll_write(cx, pieces)
            }

            fn end_writing(&self) {
                self.stream.link().shut_down();
            }
        }

        impl $read<'_> {
            fn read_with(
                &mut self,
                cx: &mut std::task::Context<'_>,
                take: &mut dyn FnMut(&[u8]) -> usize,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.stream.reader.poll_read_shared(cx, take)
            }
        }

        impl $write<'_> {
            fn write_with(
                &self,
                cx: &mut std::task::Context<'_>,
                pieces: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.write_with(cx, pieces)
            }

            fn end_writing(&self) {
                self.stream.end_writing();
            }
        }

        impl $owned_read {
            fn read_with(
                &mut self,
                cx: &mut std::task::Context<'_>,
                take: &mut dyn FnMut(&[u8]) -> usize,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.half.reader.poll_read(cx, take)
            }
        }

        impl $owned_write {
            fn write_with(
                &self,
                cx: &mut std::task::Context<'_>,
                pieces: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.half.owner.poll_write(cx, pieces)
            }

            fn end_writing(&self) {
                self.half.owner.link().shut_down();
            }
        }

        #[cfg(feature = "tokio")]
        crate::io_traits::tokio_traits!(
            read($stream, $read<'_>, $owned_read),
            write($stream, $write<'_>, $owned_write)
        );
        #[cfg(feature = "tokio")]
        crate::io_traits::tokio_buffered!($stream, stream);
        #[cfg(feature = "tokio")]
        crate::io_traits::tokio_buffered!($owned_read, half);
        #[cfg(feature = "hyper")]
        crate::io_traits::hyper_traits!($stream);
        #[cfg(feature = "futures-io")]
        crate::io_traits::futures_traits!(read($stream, $owned_read), write($stream, $owned_write));
    };
}

/// tokio's traits. Each poll takes part in tokio's budget, so that a task whose stream is always ready lets others run.
#[cfg(feature = "tokio")]
macro_rules! tokio_traits {
    (read($($read:ty),*), write($($write:ty),*)) => {
        $(
            impl tokio::io::AsyncRead for $read {
                fn poll_read(
                    self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    buffer: &mut tokio::io::ReadBuf<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    // Without room it waits for something to read all the same, as tokio's does.
                    let mut take = crate::stream::fill_read_buf(buffer);
                    crate::budget::within_budget(cx, |cx| self.get_mut().read_with(cx, &mut take)).map_ok(drop)
                }
            }
        )*
        $(
            impl tokio::io::AsyncWrite for $write {
                fn poll_write(
                    self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    bytes: &[u8],
                ) -> std::task::Poll<std::io::Result<usize>> {
                    self.poll_write_vectored(cx, &[std::io::IoSlice::new(bytes)])
                }

                fn poll_write_vectored(
                    self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    pieces: &[std::io::IoSlice<'_>],
                ) -> std::task::Poll<std::io::Result<usize>> {
                    crate::budget::within_budget(cx, |cx| self.write_with(cx, pieces))
                }

                fn is_write_vectored(&self) -> bool {
                    true
                }

                fn poll_flush(
                    self: std::pin::Pin<&mut Self>,
                    _: &mut std::task::Context<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    // What was written leaves by itself, as from a kernel's socket.
                    std::task::Poll::Ready(Ok(()))
                }

                fn poll_shutdown(
                    self: std::pin::Pin<&mut Self>,
                    _: &mut std::task::Context<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    self.end_writing();
                    std::task::Poll::Ready(Ok(()))
                }
            }
        )*
    };
}

#[cfg(feature = "tokio")]
macro_rules! tokio_buffered {
    ($name:ident, $field:ident) => {
        impl tokio::io::AsyncBufRead for $name {
            fn poll_fill_buf(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<&[u8]>> {
                crate::budget::within_budget(cx, |cx| self.get_mut().$field.reader.poll_fill(cx))
            }

            fn consume(self: std::pin::Pin<&mut Self>, count: usize) {
                self.get_mut().$field.reader.consume(count);
            }
        }
    };
}

#[cfg(feature = "hyper")]
macro_rules! hyper_traits {
    ($stream:ident) => {
        impl hyper::rt::Read for $stream {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                mut buffer: hyper::rt::ReadBufCursor<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                if buffer.remaining() == 0 {
                    return std::task::Poll::Ready(Ok(()));
                }
                let mut take = |bytes: &[u8]| {
                    let part = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes[..part]);
                    part
                };
                crate::budget::within_budget(cx, |cx| self.get_mut().read_with(cx, &mut take)).map_ok(drop)
            }
        }

        impl hyper::rt::Write for $stream {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                hyper::rt::Write::poll_write_vectored(self, cx, &[std::io::IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                pieces: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::budget::within_budget(cx, |cx| self.write_with(cx, pieces))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.end_writing();
                std::task::Poll::Ready(Ok(()))
            }
        }
    };
}

#[cfg(feature = "futures-io")]
macro_rules! futures_traits {
    (read($($read:ty),*), write($($write:ty),*)) => {
        $(
            impl futures_io::AsyncRead for $read {
                fn poll_read(
                    self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    buffer: &mut [u8],
                ) -> std::task::Poll<std::io::Result<usize>> {
                    if buffer.is_empty() {
                        return std::task::Poll::Ready(Ok(0));
                    }
                    let mut take = crate::stream::fill_one(buffer);
                    crate::budget::within_budget(cx, |cx| self.get_mut().read_with(cx, &mut take))
                }
            }
        )*
        $(
            impl futures_io::AsyncWrite for $write {
                fn poll_write(
                    self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    bytes: &[u8],
                ) -> std::task::Poll<std::io::Result<usize>> {
                    futures_io::AsyncWrite::poll_write_vectored(self, cx, &[std::io::IoSlice::new(bytes)])
                }

                fn poll_write_vectored(
                    self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    pieces: &[std::io::IoSlice<'_>],
                ) -> std::task::Poll<std::io::Result<usize>> {
                    crate::budget::within_budget(cx, |cx| self.write_with(cx, pieces))
                }

                fn poll_flush(
                    self: std::pin::Pin<&mut Self>,
                    _: &mut std::task::Context<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    std::task::Poll::Ready(Ok(()))
                }

                fn poll_close(
                    self: std::pin::Pin<&mut Self>,
                    _: &mut std::task::Context<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    self.end_writing();
                    std::task::Poll::Ready(Ok(()))
                }
            }
        )*
    };
}

#[cfg(feature = "futures-io")]
pub(crate) use futures_traits;
#[cfg(feature = "hyper")]
pub(crate) use hyper_traits;
pub(crate) use poll_traits;
#[cfg(feature = "tokio")]
pub(crate) use {tokio_buffered, tokio_traits};
