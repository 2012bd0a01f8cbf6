//! tokio without a framework on top: what a careful user writes straight on its TCP streams.
//!
//! One current-thread runtime per loop, each with a listener of its own: no work stealing, and no wake-ups
//! between threads. The runtime's timers stay off, so that a wait needs no clock. A task per connection reads
//! what there is and answers it with one write.

use std::io;
use std::process::ExitCode;

use peer::{ECHO_BYTES, HTTP_BYTES, Loop, Rival, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let rival = Rival {
        name: "tokio-raw",
        framework: "tokio",
        services: &[Service::Echo, Service::Http],
        engines: &[],
    };
    peer::run(&rival, serve)
}

fn serve(share: Loop) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        share.listener.set_nonblocking(true)?;
        share.started();
        let service = share.arguments.service;
        let listener = TcpListener::from_std(share.listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            // A connection that breaks ends alone; its peer knows.
            match service {
                Service::Echo => drop(tokio::spawn(echo(stream))),
                // HTTP: what else there is, the command line refuses.
                _ => drop(tokio::spawn(http(stream))),
            }
        }
    })
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; ECHO_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

async fn http(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; HTTP_BYTES];
    let (mut partial, mut output) = (Vec::new(), Vec::new());
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let valid = peer::answer(&buffer[..count], &mut partial, &mut output);
        stream.write_all(&output).await?;
        if !valid {
            return Ok(());
        }
        output.clear();
    }
}
