//! hyper on tokio.
//!
//! One current-thread runtime per loop, each with a listener of its own. hyper writes the date, once a second, and the length.

use std::io;
use std::process::ExitCode;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use peer::{Loop, Rival, Service};
use rival_hyper::{http, respond};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let rival = Rival {
        name: "hyper",
        framework: "hyper",
        services: &[Service::Http],
        engines: &[],
    };
    peer::run(&rival, serve)
}

fn serve(share: Loop) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let http = http();
    runtime.block_on(async {
        share.listener.set_nonblocking(true)?;
        share.started();
        let listener = TcpListener::from_std(share.listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            // A connection that breaks ends alone; its peer knows.
            drop(tokio::spawn(
                http.serve_connection(TokioIo::new(stream), service_fn(respond)),
            ));
        }
    })
}
