//! HTTP/3 by h3 and quinn: over quinn's own sockets first, then over ours on each engine.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/bulk.rs"]
mod bulk;
#[path = "support/quic.rs"]
mod quic;

use std::future::poll_fn;

use bytes::{Buf, Bytes};
use h3_quinn::Connection as OnQuinn;
use http::{Request, Response, StatusCode};

use bulk::Pattern;
use quic::{everywhere, pair};

/// Sends the body of each request back, until the client closes.
async fn echo(connection: quinn::Connection) {
    let mut connection = h3::server::Connection::<_, Bytes>::new(OnQuinn::new(connection))
        .await
        .unwrap();
    while let Ok(Some(resolver)) = connection.accept().await {
        let (request, stream) = resolver.resolve_request().await.unwrap();
        assert_eq!(request.uri().path(), "/echo");
        let (mut to, mut from) = stream.split();
        to.send_response(Response::new(())).await.unwrap();
        while let Some(mut chunk) = from.recv_data().await.unwrap() {
            to.send_data(chunk.copy_to_bytes(chunk.remaining()))
                .await
                .unwrap();
        }
        to.finish().await.unwrap();
    }
}

#[test]
fn much_is_echoed() {
    everywhere(async |runtime| {
        let (server, client, there, here) = pair(&runtime, "127.0.0.1:0", "127.0.0.1").await;
        let (mut driver, mut requests) = h3::client::new(OnQuinn::new(there)).await.unwrap();
        let talk = async {
            for total in [0, 1, bulk::bytes()] {
                let request = Request::post("https://localhost/echo").body(()).unwrap();
                let (mut to, mut from) = requests.send_request(request).await.unwrap().split();
                let send = async {
                    let mut pattern = Pattern::default();
                    while pattern.count() < total {
                        let piece = pattern.next(30_001, total);
                        to.send_data(Bytes::from_static(piece)).await.unwrap();
                    }
                    to.finish().await.unwrap();
                };
                let receive = async {
                    let response = from.recv_response().await.unwrap();
                    assert_eq!(response.status(), StatusCode::OK);
                    let mut pattern = Pattern::default();
                    while let Some(mut chunk) = from.recv_data().await.unwrap() {
                        pattern.check(&chunk.copy_to_bytes(chunk.remaining()));
                    }
                    assert_eq!(pattern.count(), total);
                };
                tokio::join!(send, receive);
            }
            // The connection ends with the last who asks.
            drop(requests);
        };
        let drive = poll_fn(|cx| driver.poll_close(cx));
        let ((), _, ()) = tokio::join!(talk, drive, echo(here));
        drop(driver);
        tokio::join!(server.wait_idle(), client.wait_idle());
    });
}
