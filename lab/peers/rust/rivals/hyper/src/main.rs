//! hyper on tokio.
//!
//! One current-thread runtime a loop, each with a listener of its own, timers off, as hyper's own benchmark
//! set-up has it. Responses to pipelined requests are gathered before they are written. hyper writes the
//! date, once a second, and the length.

use std::convert::Infallible;
use std::io;
use std::process::ExitCode;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use peer::{JSON, Loop, PLAINTEXT, Rival, Service};
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
    let mut http = http1::Builder::new();
    // Without a timer there is no deadline for a head; asking for none saves hyper the look for one.
    http.pipeline_flush(true).header_read_timeout(None);
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

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/plaintext") => ok("text/plain", Bytes::from_static(PLAINTEXT.as_bytes())),
        (&Method::GET, "/json") => {
            let mut body = Vec::with_capacity(32);
            peer::json(&mut body);
            ok(JSON, Bytes::from(body))
        }
        _ => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    })
}

fn ok(content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("quoit"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
