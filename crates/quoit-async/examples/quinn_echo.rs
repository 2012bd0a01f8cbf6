//! Echo over QUIC, by quinn: each stream that a client opens gets back what it sends.
//!
//!     cargo run --example quinn_echo -- --listen 127.0.0.1:4433

mod common;

use std::net::UdpSocket;
use std::sync::Arc;

use clap::Parser;
use quinn::rustls::pki_types::PrivateKeyDer;
use quinn::{Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, ServerConfig, VarInt};
use quoit_async::QuinnRuntime;

/// Bytes that are taken from a stream at once.
const PIECE: usize = 64 * 1024;

/// With a certificate that signs itself. A service has its own from files.
fn config() -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok(ServerConfig::with_single_cert(vec![made.cert.into()], key)?)
}

async fn echo(mut to: SendStream, mut from: RecvStream) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(chunk) = from.read_chunk(PIECE, true).await? {
        to.write_chunk(chunk.bytes).await?;
    }
    to.finish()?;
    Ok(())
}

async fn serve(incoming: Incoming) {
    let Ok(connection) = incoming.await else { return };
    // Until the client closes, or the endpoint does.
    while let Ok((to, from)) = connection.accept_bi().await {
        tokio::spawn(async move {
            // A stream that was stopped or reset concerns nobody else.
            let _ = echo(to, from).await;
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = common::Arguments::parse();
    let mut signals = std::pin::pin!(common::signals()?);
    let loops = arguments.start_loops()?;
    let socket = UdpSocket::bind(arguments.listen)?;
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config()?),
        socket,
        Arc::new(QuinnRuntime),
    )?;
    loops.ready(endpoint.local_addr()?);
    loop {
        tokio::select! {
            Some(incoming) = endpoint.accept() => drop(tokio::spawn(serve(incoming))),
            () = &mut signals => break,
        }
    }
    endpoint.close(VarInt::from_u32(0), b"the server ends");
    // Peers are told, and have a moment to say that they have heard.
    endpoint.wait_idle().await;
    drop(endpoint);
    quoit_async::drain_default(arguments.patience()).await;
    Ok(())
}
