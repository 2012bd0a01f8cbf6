//! What the servers on hyper answer with, whatever they run on.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use peer::{JSON, PLAINTEXT};

/// HTTP/1.1 as hyper's own benchmark set-up has it: timers off, and responses to pipelined requests gathered before they are
/// written.
#[must_use]
pub fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    // Without a timer there is no deadline for a head; asking for none saves hyper the look for one.
    http.pipeline_flush(true).header_read_timeout(None);
    http
}

/// Answers a request.
///
/// # Errors
/// None.
pub async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
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
