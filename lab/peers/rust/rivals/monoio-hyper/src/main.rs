//! hyper on monoio, on io_uring or, for comparison, on epoll.
//!
//! One runtime per loop, each with a listener of its own, timers off. hyper wants to be told of readiness, so monoio's poll-io
//! reads and writes by system calls once epoll says so, and on io_uring the ring waits for epoll: that is the way to hyper that
//! monoio documents. Only connections are accepted by the ring itself.

use std::io;
use std::process::ExitCode;

use hyper::service::service_fn;
use io_uring::IoUring;
use monoio::io::IntoPollIo;
use monoio::net::TcpListener;
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
use monoio_compat::hyper::MonoioIo;
use peer::{Loop, Rival, Service};
use rival_hyper::{http, respond};

/// Entries of the submission queue, as the rival on monoio alone has them.
const ENTRIES: u32 = 4096;

fn main() -> ExitCode {
    let rival = Rival {
        name: "monoio-hyper",
        framework: "monoio",
        services: &[Service::Http],
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
    let http = http();
    let listener = TcpListener::from_std(share.listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let stream = MonoioIo::new(stream.into_poll_io()?);
        // A connection that breaks ends alone; its peer knows.
        drop(monoio::spawn(http.serve_connection(stream, service_fn(respond))));
    }
}
