//! The crates, in a project that has nothing else of ours.

use std::collections::BTreeMap;
use std::process::Command;

use super::results::{Cell, Row};
use super::steps::timed;
use crate::archive;
use crate::crates::PUBLISHED;
use crate::place::{self, Place};
use crate::tools;

/// By which it is asked for.
pub(crate) const NAME: &str = "cargo";

/// A server on each of the crates, and a client.
const PROGRAM: &str = r#"
use std::io::{Read as _, Write as _};

struct Echo;

impl quoit::Handler for Echo {
    fn on_data(&mut self, event_loop: &mut quoit::Loop, connection: quoit::ConnectionId, data: quoit::Lease) {
        event_loop.send_or_abort(connection, data, quoit::Token::NONE);
    }
}

fn talk(address: std::net::SocketAddr) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[tokio::main]
async fn main() {
    let listeners = vec![(
        quoit::Listen::Address("127.0.0.1:0".parse().unwrap()),
        quoit::ListenerOptions::default(),
    )];
    let configuration = quoit::RuntimeConfig { listeners, ..quoit::RuntimeConfig::default() };
    let runtime = quoit::Runtime::start(configuration, |_| Echo).unwrap();
    println!("{}", runtime.engine());

    let listener = quoit_async::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || talk(address));
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 5];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut bytes).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await.unwrap();
    client.join().unwrap();
}
"#;

/// Compiles and runs it.
pub(crate) fn tried(place: &Place) -> Row {
    println!("dist-check: a project of cargo's");
    let mut checks: BTreeMap<String, Cell> = BTreeMap::new();
    checks.insert("build".to_owned(), timed(|| compile(place).map(|()| None)));
    checks.insert(
        "run".to_owned(),
        timed(|| {
            let program = folder(place).join("target/release/user");
            let printed = tools::quiet_output(Command::new("timeout").arg("60").arg(program))?;
            Ok(Some(printed.trim().to_owned()))
        }),
    );
    Row {
        distribution: NAME.to_owned(),
        title: "this machine".to_owned(),
        packages: "crates".to_owned(),
        note: Some("The crates as they were packed, in the place of those of the registry.".to_owned()),
        checks,
    }
}

fn folder(place: &Place) -> std::path::PathBuf {
    place.root.join("target/dist-check/cargo")
}

fn compile(place: &Place) -> Result<(), String> {
    let folder = folder(place);
    place::make_empty(&folder)?;
    let mut manifest =
        "[package]\nname = \"user\"\nversion = \"1.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                        [dependencies]\ntokio = { version = \"1\", features = [\"full\"] }\n"
            .to_owned();
    let mut patches = "\n[patch.crates-io]\n".to_owned();
    for name in PUBLISHED {
        let whole = format!("{name}-{}", place.version);
        archive::open(&place::bytes(&place.out().join(format!("{whole}.crate")))?)?.write_to(&folder)?;
        manifest.push_str(&format!("{name} = \"{}\"\n", place.version));
        patches.push_str(&format!("{name} = {{ path = \"{whole}\" }}\n"));
    }
    place::write(&folder.join("Cargo.toml"), manifest + &patches)?;
    place::write(&folder.join("src/main.rs"), PROGRAM)?;
    let mut build = Command::new("cargo");
    build
        .current_dir(&folder)
        .args(["build", "--release", "--quiet", "--target-dir", "target"])
        .env_remove("RUSTFLAGS");
    tools::quiet_output(&mut build).map(drop)
}
