use axum::Router;
use axum::body::Body;
use axum::extract::Request as Received;
use axum::routing::any;
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::net::TcpListener;

use crate::example::on_each_engine;
use crate::http_client::HttpClient;
use crate::nobody::nobody;

/// Answers with the body that came, and says what head came with it.
async fn tell(request: Received) -> (HeaderMap, Body) {
    let mut headers = HeaderMap::new();
    let came = format!("{} {}", request.method(), request.uri());
    headers.insert("came", came.parse().unwrap());
    for name in ["host", "x-forwarded-for", "kept", "dropped"] {
        if let Some(value) = request.headers().get(name) {
            headers.insert(
                format!("came-{name}").parse::<http::HeaderName>().unwrap(),
                value.clone(),
            );
        }
    }
    headers.insert("connection", "gone".parse().unwrap());
    headers.insert("gone", "1".parse().unwrap());
    (headers, request.into_body())
}

#[test]
fn requests_go_through_and_answers_come_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let behind = listener.local_addr().unwrap();
    let to = format!("http://{behind}");
    on_each_engine("reverse_proxy", &["--to", &to], async |example| {
        let listener = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let app = Router::new().route("/tell", any(tell));
        let origin = tokio::spawn(axum::serve(listener, app).into_future());
        let client = HttpClient::new(example.address);
        // More than any buffer holds, both ways at once.
        for size in [0, 1, 8 << 20] {
            let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let request = Request::builder()
                .method(Method::PUT)
                .header("kept", "yes")
                .header("connection", "dropped")
                .header("dropped", "yes");
            let response = client.send("/tell?a=b", request, Body::from(body.clone())).await;
            let came = |name| Some(response.headers().get(name)?.to_str().unwrap());
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(came("came"), Some("PUT /tell?a=b"));
            assert_eq!(came("came-x-forwarded-for"), Some("127.0.0.1"));
            assert_eq!(came("came-kept"), Some("yes"));
            assert_eq!((came("came-dropped"), came("gone")), (None, None));
            assert_eq!(came("came-host"), Some(&*example.address.to_string()));
            assert!(response.body() == &body, "{size} bytes");
        }
        let (status, _) = client.json(Method::GET, "/none", "").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        origin.abort();
        let _ = origin.await;
    });
}

#[test]
fn a_server_that_is_not_there_is_a_bad_gateway() {
    let (_bound, address) = nobody();
    let to = format!("http://{address}");
    on_each_engine("reverse_proxy", &["--to", &to], async |example| {
        let client = HttpClient::new(example.address);
        let (status, _) = client.json(Method::GET, "/", "").await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
    });
}
