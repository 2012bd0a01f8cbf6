//! actix-web as its documentation starts it, on its own runtime over tokio.
//!
//! A server a loop, with one worker: actix-web accepts on one thread and serves on another.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use actix_web::http::KeepAlive;
use actix_web::http::header::SERVER;
use actix_web::rt::System;
use actix_web::web::get;
use actix_web::{App, HttpResponse, HttpServer};
use peer::{Loop, PLAINTEXT, Rival, Service};
use serde::Serialize;

fn main() -> ExitCode {
    let rival = Rival {
        name: "actix-web",
        framework: "actix-web",
        services: &[Service::Http],
        engines: &[],
    };
    peer::run(&rival, serve)
}

#[derive(Serialize)]
struct Greeting {
    message: &'static str,
}

async fn plaintext() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((SERVER, "quoit"))
        .content_type("text/plain")
        .body(PLAINTEXT)
}

async fn json() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((SERVER, "quoit"))
        .json(Greeting { message: PLAINTEXT })
}

fn serve(share: Loop) -> io::Result<()> {
    System::new().block_on(async move {
        let server = HttpServer::new(|| {
            App::new()
                .route("/plaintext", get().to(plaintext))
                .route("/json", get().to(json))
        })
        // No deadlines, as the other rivals have none.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .workers(1)
        .disable_signals()
        .listen(share.listener.try_clone()?)?
        .run();
        share.started();
        server.await
    })
}
