//! What connects hyper-util's clients, and tonic's channels.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::TcpStream;

/// Connects hyper's clients and tonic's channels: `Endpoint::connect_with_connector(Connector::default())`, or
/// `hyper_util::client::legacy::Client::builder(executor).build(Connector::default())`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connector;

impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Service<Uri> for Connector {
    type Response = TcpStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let host = uri.host().ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{uri} names no host to connect to"),
                )
            })?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            });
            TcpStream::connect((host, port)).await
        })
    }
}
