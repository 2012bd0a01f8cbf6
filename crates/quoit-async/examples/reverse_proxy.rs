//! A reverse proxy for HTTP: axum takes the requests, hyper-util's client passes them on and keeps the connections to the server
//! behind. Bodies go through as they come, both ways.
//!
//!     cargo run --example reverse_proxy -- --listen 127.0.0.1:8080 --to http://127.0.0.1:8000

mod common;

use std::io;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use clap::Parser;
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use quoit_async::{Connector, PeerAddr, TcpListener};

#[derive(Debug, Parser)]
struct ProxyArguments {
    #[command(flatten)]
    common: common::Arguments,
    /// The server behind
    #[arg(long, value_name = "URI", value_parser = origin)]
    to: Authority,
}

/// The host and port of `http://host:port`.
fn origin(text: &str) -> Result<Authority, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.path(), uri.authority()) {
        (Some("http"), "/", Some(authority)) => Ok(authority.clone()),
        _ => Err("expected http://HOST or http://HOST:PORT".to_owned()),
    }
}

#[derive(Clone)]
struct Proxy {
    client: Client<Connector, Body>,
    to: Authority,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Takes out what concerns one connection, and not the message (RFC 9110, 7.6.1).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, KEEP_ALIVE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

async fn pass_on(
    State(proxy): State<Proxy>,
    ConnectInfo(PeerAddr(peer)): ConnectInfo<PeerAddr>,
    mut request: Request,
) -> Response {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(proxy.to.clone());
    let Ok(uri) = Uri::from_parts(uri) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    remove_hop_by_hop(request.headers_mut());
    if let Ok(peer) = HeaderValue::try_from(peer.ip().to_string()) {
        request.headers_mut().append(FORWARDED_FOR, peer);
    }
    match proxy.client.request(request).await {
        Ok(mut response) => {
            remove_hop_by_hop(response.headers_mut());
            response.map(Body::new)
        }
        Err(error) => {
            eprintln!("{}: {error}", proxy.to);
            StatusCode::BAD_GATEWAY.into_response()
        }
    }
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let ProxyArguments { common, to } = ProxyArguments::parse();
    let signals = common::signals()?;
    let loops = common.start_loops()?;
    let client = Client::builder(TokioExecutor::new()).build(Connector::new());
    let app = Router::new().fallback(pass_on).with_state(Proxy { client, to });

    let listener = TcpListener::bind(common.listen).await?;
    loops.ready(listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<PeerAddr>())
        .with_graceful_shutdown(signals)
        .await?;
    quoit_async::drain_default(common.patience()).await;
    Ok(())
}
