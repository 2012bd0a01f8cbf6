//! HTTP as clients speak it: hyper-util's on tokio's own sockets, and by hand.

use std::net::SocketAddr;

use axum::body::{Body, Bytes, to_bytes};
use http::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A client of one server, with its connections.
pub(crate) struct HttpClient {
    client: Client<HttpConnector, Body>,
    address: SocketAddr,
}

impl HttpClient {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, address }
    }

    pub(crate) async fn send(
        &self,
        path: &str,
        request: http::request::Builder,
        body: Body,
    ) -> Response<Bytes> {
        let uri = format!("http://{}{path}", self.address);
        let request = request.uri(uri).body(body).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await.unwrap();
        Response::from_parts(head, body)
    }

    /// The status and the body that a request of JSON gets.
    pub(crate) async fn json(&self, method: Method, path: &str, json: &str) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .header("content-type", "application/json");
        let response = self.send(path, request, Body::from(json.to_owned())).await;
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status(), text)
    }
}

/// What comes on a connection until its end, in answer to this.
pub(crate) async fn by_hand(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
