use axum::http::{Method, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::example::on_each_engine;
use crate::http_client::{HttpClient, by_hand};

#[test]
fn notes_are_kept_shown_and_removed() {
    on_each_engine("axum_rest", &[], async |example| {
        let client = HttpClient::new(example.address);
        let made = client
            .json(Method::POST, "/notes", r#"{"text":"buy milk"}"#)
            .await;
        let note = r#"{"id":1,"text":"buy milk"}"#;
        assert_eq!(made, (StatusCode::CREATED, note.to_owned()));
        // Other connections, and so other loops, have the same notes.
        for _ in 0..8 {
            let other = HttpClient::new(example.address);
            let all = other.json(Method::GET, "/notes", "").await;
            assert_eq!(all, (StatusCode::OK, format!("[{note}]")));
        }
        assert_eq!(client.json(Method::GET, "/notes/1", "").await.1, note);
        let (refused, _) = client.json(Method::POST, "/notes", r#"{"text":7}"#).await;
        assert_eq!(refused, StatusCode::UNPROCESSABLE_ENTITY);
        let (removed, _) = client.json(Method::DELETE, "/notes/1", "").await;
        assert_eq!(removed, StatusCode::NO_CONTENT);
        let (gone, _) = client.json(Method::GET, "/notes/1", "").await;
        assert_eq!(gone, StatusCode::NOT_FOUND);
    });
}

#[test]
fn a_client_is_known_by_its_address() {
    on_each_engine("axum_rest", &[], async |example| {
        let stream = TcpStream::connect(example.address).await.unwrap();
        let address = stream.local_addr().unwrap();
        let answer = by_hand(
            stream,
            "GET /whoami HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{address}")), "{answer}");
    });
}

/// As the chart of deploy/kubernetes starts it; while it drains, a probe finds nobody.
#[test]
fn a_pod_is_ready_until_it_drains() {
    let arguments = ["--loops=2", "--connections=64", "--drain=60"];
    on_each_engine("axum_rest", &arguments, async |example| {
        for path in ["/readyz", "/livez"] {
            let probe = TcpStream::connect(example.address).await.unwrap();
            let answer = by_hand(
                probe,
                &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
            )
            .await;
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"),
                "{answer}"
            );
        }
        example.terminate();
        example.wait_draining();
        let refused = TcpStream::connect(example.address).await;
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn what_was_begun_before_the_end_is_answered() {
    on_each_engine("axum_rest", &[], async |example| {
        let mut begun = TcpStream::connect(example.address).await.unwrap();
        let idle = HttpClient::new(example.address);
        // It has been accepted: an answer came on it.
        idle.json(Method::GET, "/notes", "").await;
        let head = "POST /notes HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n\
                    content-length: 12\r\n\r\n";
        begun.write_all(head.as_bytes()).await.unwrap();
        // The handler waits for the rest.
        let mut go_on = [0; 25];
        tokio::io::AsyncReadExt::read_exact(&mut begun, &mut go_on)
            .await
            .unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        example.terminate();
        example.wait_draining();
        let answer = by_hand(begun, r#"{"text":"x"}"#).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        assert!(answer.ends_with(r#"{"id":1,"text":"x"}"#), "{answer}");
    });
}
