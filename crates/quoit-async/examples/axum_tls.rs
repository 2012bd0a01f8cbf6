//! axum over TLS: tokio-rustls on the streams, HTTP/2 or HTTP/1.1 as the client prefers (ALPN), and a certificate that signs
//! itself.
//!
//!     cargo run --example axum_tls -- --listen 127.0.0.1:8443
//!     curl --insecure https://127.0.0.1:8443/

mod common;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Version;
use axum::routing::get;
use axum::serve::Listener;
use clap::Parser;
use quoit_async::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

/// A client that has not shaken hands by then has gone, or wants to keep us busy.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Accepts connections whose handshake is done. Many go on at once, so that a slow client keeps nobody waiting.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<io::Result<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            tokio::select! {
                (stream, peer) = Listener::accept(&mut self.listener) => {
                    let handshake = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream));
                    self.handshakes.spawn(async move { Ok((handshake.await??, peer)) });
                }
                // A handshake that failed is over, and of no interest to the others.
                Some(Ok(Ok(accepted))) = self.handshakes.join_next() => return accepted,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A key and its certificate, for as long as the program runs. A service has its own from files.
fn tls() -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.into()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn hello(version: Version) -> String {
    format!("hello over TLS and {version:?}\n")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Router::new().route("/", get(hello));
    let acceptor = TlsAcceptor::from(Arc::new(tls()?));
    common::Arguments::parse().serve(move |mut context| {
        let (app, acceptor) = (app.clone(), acceptor.clone());
        async move {
            let draining = context.draining();
            let listener = TlsListener {
                listener: context.listener()?,
                acceptor,
                handshakes: JoinSet::new(),
            };
            axum::serve(listener, app).with_graceful_shutdown(draining).await
        }
    })?;
    Ok(())
}
