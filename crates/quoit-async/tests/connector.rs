//! Which URIs `Connector` connects to: those that hyper-util's own connector does.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::error::Error;
use std::io::ErrorKind;
use std::net::TcpListener;

use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use quoit_async::Connector;
use tower::ServiceExt;

/// Whether something is connected, which is so in a moment or never: by what the caller was told.
fn is_connected(listener: &TcpListener, told: bool) -> bool {
    listener.set_nonblocking(!told).unwrap();
    match listener.accept() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    }
}

#[tokio::test]
async fn connects_to_what_hypers_own_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for enforced in [true, false] {
        for form in [
            "http://HERE/path",
            "HTTP://HERE",
            "https://HERE/",
            "ftp://HERE/file",
            "HERE",
            "/path",
        ] {
            let uri: Uri = form.replace("HERE", &address.to_string()).parse().unwrap();
            let mut stock = HttpConnector::new();
            stock.enforce_http(enforced);
            let connects = stock.oneshot(uri.clone()).await.is_ok();
            assert_eq!(is_connected(&listener, connects), connects, "stock, {uri}");

            let mut ours = Connector::new();
            ours.enforce_http(enforced);
            let told = ours.oneshot(uri.clone()).await;
            assert_eq!(told.is_ok(), connects, "{uri}, enforced {enforced}: {told:?}");
            assert_eq!(is_connected(&listener, connects), connects, "{uri}");
            if let Err(error) = told {
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().starts_with(&uri.to_string()), "{error}");
            }
        }
    }
}

/// Not even the head of the request goes out, which has the secrets.
#[tokio::test]
async fn a_client_sends_nothing_that_was_to_be_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri: Uri = format!("https://{}/", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let client: Client<_, String> = Client::builder(TokioExecutor::new()).build(Connector::default());
    let error = client.get(uri).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("enforce_http"), "{cause}");
    assert!(!is_connected(&listener, false));
}
