//! Notes over HTTP and JSON, by axum: a loop and a runtime on each thread, with an end that finishes what was begun.
//!
//!     cargo run --example axum_rest -- --listen 127.0.0.1:8080
//!     curl -H 'content-type: application/json' -d '{"text":"buy milk"}' 127.0.0.1:8080/notes

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use quoit_async::PeerAddr;
use serde::{Deserialize, Serialize};

/// The notes, by number. What all threads share is shared as in any program.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeMap<u64, String>>>);

#[derive(Deserialize)]
struct NewNote {
    text: String,
}

#[derive(Serialize)]
struct Note {
    id: u64,
    text: String,
}

impl Notes {
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<u64, String>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn add(State(notes): State<Notes>, Json(NewNote { text }): Json<NewNote>) -> (StatusCode, Json<Note>) {
    let note = notes.with(|notes| {
        let id = notes.last_key_value().map_or(1, |(last, _)| last + 1);
        notes.insert(id, text.clone());
        Note { id, text }
    });
    (StatusCode::CREATED, Json(note))
}

async fn list(State(notes): State<Notes>) -> Json<Vec<Note>> {
    let all = |(&id, text): (&u64, &String)| Note {
        id,
        text: text.clone(),
    };
    Json(notes.with(|notes| notes.iter().map(all).collect()))
}

async fn show(State(notes): State<Notes>, Path(id): Path<u64>) -> Result<Json<Note>, StatusCode> {
    let text = notes.with(|notes| notes.get(&id).cloned());
    text.map(|text| Json(Note { id, text }))
        .ok_or(StatusCode::NOT_FOUND)
}

async fn remove(State(notes): State<Notes>, Path(id): Path<u64>) -> StatusCode {
    match notes.with(|notes| notes.remove(&id)) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

async fn whoami(ConnectInfo(PeerAddr(address)): ConnectInfo<PeerAddr>) -> String {
    address.to_string()
}

fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/notes", get(list).post(add))
        .route("/notes/{id}", get(show).delete(remove))
        .route("/whoami", get(whoami))
        // For the probes of a cluster. Once it drains, nobody connects any more, so that these are refused.
        .route("/readyz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .with_state(Notes::default());
    common::Arguments::parse().serve(move |mut context| {
        let app = app.clone().into_make_service_with_connect_info::<PeerAddr>();
        async move {
            // Requests that have begun are answered; connections that have none end.
            let draining = context.draining();
            axum::serve(context.listener()?, app)
                .with_graceful_shutdown(draining)
                .await
        }
    })
}
