//! axum that is restarted without a lost request: on an inherited socket, with an end that tells idle clients first.
//!
//!     systemd-socket-activate -l 8080 cargo run --example axum_restart
//!
//! The next process is started with the same socket, and then this one is sent SIGTERM.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::map_response_with_state;
use axum::response::Response;
use axum::routing::get;
use clap::Parser;

/// How long connections between two requests are kept when it ends; less than all of the end may take.
const KEEP_IDLE: Duration = Duration::from_secs(5);

/// Set when the program is about to end.
type Ending = Arc<AtomicBool>;

/// From then on each response says that its connection closes. Of HTTP/2, whose clients are told by GOAWAY, hyper takes it off.
async fn last_response(State(ending): State<Ending>, mut response: Response) -> Response {
    if ending.load(Ordering::Relaxed) {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn main() -> std::io::Result<()> {
    let ending = Ending::default();
    let app = Router::new()
        .route("/", get(async || "Hello, World!"))
        .layer(map_response_with_state(Arc::clone(&ending), last_response));
    common::Arguments::parse().serve(move |mut context| {
        let (app, ending) = (app.clone(), Arc::clone(&ending));
        async move {
            let draining = context.draining();
            // A graceful shutdown closes idle connections at once, and with them a request that is on its way. Until then the
            // service goes on with the connections that were accepted; when the last of them has gone, so does the loop.
            let kept = async move {
                draining.await;
                ending.store(true, Ordering::Relaxed);
                tokio::time::sleep(KEEP_IDLE).await;
            };
            axum::serve(context.listener()?, app)
                .with_graceful_shutdown(kept)
                .await
        }
    })
}
