//! What connects hyper-util's clients, and tonic's channels.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::TcpStream;

/// Connects hyper's clients and tonic's channels: `Endpoint::connect_with_connector(Connector::new())`, or
/// `hyper_util::client::legacy::Client::builder(executor).build(Connector::new())`.
///
/// It speaks no TLS. As with hyper-util's `HttpConnector`, a URI of another scheme than `http` is an error, so that nothing
/// meant to be secret is sent in the clear; see [`enforce_http`](Self::enforce_http).
#[derive(Clone, Copy, Debug)]
pub struct Connector {
    enforces_http: bool,
}

impl Connector {
    /// One that connects to URIs of the scheme `http` alone.
    #[must_use]
    pub const fn new() -> Self {
        Self { enforces_http: true }
    }

    /// Whether URIs of other schemes than `http` are errors, which they are unless this says otherwise. A layer that does TLS
    /// over what this connects needs `false`: hyper-rustls' and hyper-tls' connectors, and tonic's channels with a
    /// `ClientTlsConfig`. Port 443 is taken for `https` then, where the URI names none.
    pub const fn enforce_http(&mut self, enforced: bool) {
        self.enforces_http = enforced;
    }

    /// Where to connect to.
    ///
    /// # Errors
    /// `InvalidInput` if it is not for this connector, or names no host.
    fn target(self, uri: &Uri) -> io::Result<(String, u16)> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{uri} {what}"));
        match uri.scheme_str() {
            None => return Err(invalid("has no scheme, such as http")),
            Some(scheme) if self.enforces_http && scheme != "http" => {
                return Err(invalid(
                    "is not of the scheme http: Connector speaks no TLS; a layer that does needs its enforce_http(false)",
                ));
            }
            Some(_) => {}
        }
        let host = uri.host().ok_or_else(|| invalid("names no host to connect to"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = uri.scheme_str() == Some("https");
        Ok((host, uri.port_u16().unwrap_or(if secure { 443 } else { 80 })))
    }
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

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
        let target = self.target(&uri);
        Box::pin(async move { TcpStream::connect(target?).await })
    }
}
