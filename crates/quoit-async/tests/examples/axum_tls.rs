use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::example::on_each_engine;
use crate::http_client::by_hand;
use crate::tls_client;

async fn connect(address: SocketAddr, protocols: &[&str]) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(tls_client::config(protocols)));
    connector
        .connect("localhost".try_into().unwrap(), stream)
        .await
        .unwrap()
}

fn chosen(stream: &TlsStream<TcpStream>) -> Option<&[u8]> {
    stream.get_ref().1.alpn_protocol()
}

#[test]
fn both_versions_of_http_are_spoken_over_tls() {
    on_each_engine("axum_tls", &[], async |example| {
        // Clients that never say anything keep no others waiting.
        let _silent = [
            TcpStream::connect(example.address).await.unwrap(),
            TcpStream::connect(example.address).await.unwrap(),
        ];
        for protocols in [&["http/1.1"][..], &[]] {
            let stream = connect(example.address, protocols).await;
            assert_eq!(chosen(&stream), protocols.first().map(|name| name.as_bytes()));
            // The answer ends with close_notify: without it reading to the end would fail.
            let answer = by_hand(
                stream,
                "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            )
            .await;
            assert!(
                answer.ends_with("\r\n\r\nhello over TLS and HTTP/1.1\n"),
                "{answer}"
            );
        }
        let stream = connect(example.address, &["h2", "http/1.1"]).await;
        assert_eq!(chosen(&stream), Some(&b"h2"[..]));
        let (mut requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get("https://localhost/").body(Body::empty()).unwrap();
        let response = requests.send_request(request).await.unwrap();
        let body = to_bytes(Body::new(response.into_body()), 100).await.unwrap();
        assert_eq!(body, "hello over TLS and HTTP/2.0\n");
        drop(requests);
        connection.await.unwrap().unwrap();
    });
}
