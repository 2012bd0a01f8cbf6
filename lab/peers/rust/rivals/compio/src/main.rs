//! axum on compio, by `cyper_axum::serve` in the place of `axum::serve`.
//!
//! One runtime on io_uring a loop, each with a listener of its own.

use std::io;
use std::process::ExitCode;

use axum::Router;
use axum::http::header::{CONTENT_TYPE, HeaderName, SERVER};
use axum::response::{IntoResponse, Json};
use axum::routing::get;
use compio::driver::ProactorBuilder;
use compio::net::TcpListener;
use compio::runtime::Runtime;
use peer::{Loop, PLAINTEXT, Rival, Service};
use serde::Serialize;

fn main() -> ExitCode {
    let rival = Rival {
        name: "compio",
        framework: "compio",
        services: &[Service::Http],
        engines: &[],
    };
    peer::run(&rival, serve)
}

#[derive(Serialize)]
struct Greeting {
    message: &'static str,
}

const NAME: [(HeaderName, &str); 1] = [(SERVER, "quoit")];

async fn plaintext() -> impl IntoResponse {
    (NAME, [(CONTENT_TYPE, "text/plain")], PLAINTEXT)
}

async fn json() -> impl IntoResponse {
    (NAME, Json(Greeting { message: PLAINTEXT }))
}

fn serve(share: Loop) -> io::Result<()> {
    let mut ring = ProactorBuilder::new();
    // One thread uses the ring, and completions wait until that thread asks for them.
    ring.single_issuer(true).defer_taskrun(true);
    let runtime = Runtime::builder().with_proactor(ring).build().map_err(|error| {
        let text = format!("no io_uring with deferred task work (Linux 6.1 or newer): {error}");
        io::Error::new(error.kind(), text)
    })?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(share.listener.try_clone()?)?;
        let app = Router::new()
            .route("/plaintext", get(plaintext))
            .route("/json", get(json));
        share.started();
        cyper_axum::serve(listener, app).await
    })
}
