//! monoio, on io_uring or, for comparison, on epoll.
//!
//! One runtime per loop, each with a listener of its own, timers off. A task per connection receives what there is
//! and answers it with one send. monoio has neither multishot operations nor provided buffers: every
//! connection keeps a buffer while it waits.

use std::io;
use std::process::ExitCode;

use io_uring::IoUring;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
use peer::{ECHO_BYTES, HTTP_BYTES, Loop, Rival, Service};

/// Entries of the submission queue: more than the connections that one turn of the lab's runs finds ready.
const ENTRIES: u32 = 4096;

fn main() -> ExitCode {
    let rival = Rival {
        name: "monoio",
        framework: "monoio",
        services: &[Service::Echo, Service::Http],
        engines: &["uring", "epoll"],
    };
    peer::run(&rival, serve)
}

fn serve(share: Loop) -> io::Result<()> {
    if share.arguments.engine == Some("epoll") {
        share.listener.set_nonblocking(true)?;
        let mut runtime = RuntimeBuilder::<LegacyDriver>::new().build()?;
        runtime.block_on(accept(share))
    } else {
        let mut ring = IoUring::builder();
        // One thread uses the ring, and completions wait until that thread asks for them.
        ring.setup_single_issuer().setup_defer_taskrun();
        let mut runtime = RuntimeBuilder::<IoUringDriver>::new()
            .with_entries(ENTRIES)
            .uring_builder(ring)
            .build()
            .map_err(|error| {
                let text = format!("no io_uring with deferred task work (Linux 6.1 or newer): {error}");
                io::Error::new(error.kind(), text)
            })?;
        runtime.block_on(accept(share))
    }
}

async fn accept(share: Loop) -> io::Result<()> {
    share.started();
    let service = share.arguments.service;
    let listener = TcpListener::from_std(share.listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that breaks ends alone; its peer knows.
        match service {
            Service::Echo => drop(monoio::spawn(echo(stream))),
            // HTTP: what else there is, the command line refuses.
            _ => drop(monoio::spawn(http(stream))),
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(ECHO_BYTES);
    loop {
        let (received, filled) = stream.read(buffer).await;
        if received? == 0 {
            return Ok(());
        }
        let (sent, returned) = stream.write_all(filled).await;
        sent?;
        buffer = returned;
    }
}

async fn http(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(HTTP_BYTES);
    let (mut partial, mut output) = (Vec::new(), Vec::new());
    loop {
        let (received, filled) = stream.read(buffer).await;
        if received? == 0 {
            return Ok(());
        }
        let valid = peer::answer(&filled, &mut partial, &mut output);
        let (sent, returned) = stream.write_all(output).await;
        sent?;
        if !valid {
            return Ok(());
        }
        (buffer, output) = (filled, returned);
        output.clear();
    }
}
