//! `quoit load` against `quoit serve`.

use serde_json::Value;

use crate::support::{Server, engines, run};

/// Has the load generator make so many requests, all of which must be answered rightly.
#[track_caller]
pub(crate) fn load(arguments: &str, requests: u64) {
    let output = run(&format!(
        "load {arguments} --warmup 0 --requests {requests} --json"
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["requests"], requests, "{report:#}");
    let errors = report["errors"].as_object().unwrap();
    assert!(errors.values().all(|count| count == 0), "{report:#}");
    assert_eq!(report["reconnects"], 0, "{report:#}");
    assert_eq!(report["invalid"], Value::Null, "{report:#}");
}

#[test]
fn echo_is_right_under_load() {
    let folder = tempfile::tempdir().unwrap();
    for engine in engines() {
        let server = Server::on(engine, "echo --loops 2");
        let address = server.address();
        load(&format!("echo --connect {address} --connections 64"), 20_000);
        load(
            &format!("echo --connect {address} --connections 8 --pipeline 16 --size 100"),
            50_000,
        );
        load(
            &format!("echo --connect {address} --connections 4 --pipeline 2 --size 1000000"),
            200,
        );

        let path = format!("unix:{}", folder.path().join(engine).display());
        let _server = Server::start(&format!("echo --engine {engine} --listen {path}"));
        load(
            &format!("echo --connect {path} --connections 16 --pipeline 4"),
            20_000,
        );
    }
}

#[test]
fn http_is_right_under_load() {
    for engine in engines() {
        let name = format!("unix:@quoit-load-{}-{engine}", std::process::id());
        let server = Server::on(engine, "http");
        let _unix = Server::start(&format!("http --engine {engine} --listen {name}"));
        for target in [server.address(), &name] {
            load(&format!("http --connect {target} --connections 64"), 20_000);
            load(
                &format!("http --connect {target} --connections 16 --pipeline 16 --path /json"),
                50_000,
            );
            load(
                &format!("http --connect {target} --connections 4 --pipeline 4 --path /bytes/300000"),
                500,
            );
            load(
                &format!("http --connect {target} --connections 4 --pipeline 2 --path /echo --body 300000"),
                500,
            );
        }
    }
}
