//! All manifests against the schemas of one version of Kubernetes, by kubeconform: what needs no server.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::tools::{SERVERS, deploy, fetched, kustomized, printed, program, rendered, repository};

/// Lets a definition take nothing but what it names.
fn close(definition: &mut Value) {
    let Some(object) = definition.as_object_mut() else {
        return;
    };
    if object.contains_key("properties") && !object.contains_key("additionalProperties") {
        object.insert("additionalProperties".to_owned(), json!(false));
    }
    // Both are said to be strings there.
    if object.get("format") == Some(&json!("int-or-string")) {
        *definition = json!({ "type": ["string", "integer"] });
    }
}

/// A folder of schemas as kubeconform reads them, of what the API describes.
fn schemas(description: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut description: Value = serde_json::from_str(&fs::read_to_string(description).unwrap()).unwrap();
    let definitions = description["definitions"].as_object_mut().unwrap();
    definitions.values_mut().for_each(close);
    let quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity";
    definitions[quantity] = json!({ "type": ["string", "number"] });
    for (name, definition) in definitions.iter() {
        let Some(kinds) = definition["x-kubernetes-group-version-kind"].as_array() else {
            continue;
        };
        for kind in kinds {
            let part = |field: &str| kind[field].as_str().unwrap().to_ascii_lowercase();
            let group = part("group");
            let group = group.split('.').next().unwrap();
            let file = [part("kind").as_str(), group, &part("version")]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("-");
            let schema = json!({ "$ref": format!("definitions.json#/definitions/{name}") });
            fs::write(folder.path().join(file + ".json"), schema.to_string()).unwrap();
        }
    }
    let all = json!({ "definitions": definitions });
    fs::write(folder.path().join("definitions.json"), all.to_string()).unwrap();
    folder
}

fn checked(kubeconform: &Path, schemas: &Path, manifests: &str) -> Output {
    let location = format!(
        "{}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json",
        schemas.display()
    );
    let mut child = Command::new(kubeconform)
        // A resource of an operator's is known to the API server alone.
        .args([
            "-strict",
            "-summary",
            "-skip",
            "ServiceMonitor",
            "-schema-location",
            &location,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(manifests.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn every_manifest_is_as_the_schemas_have_it() {
    let (Some(kubeconform), Some(description)) = (program("kubeconform"), fetched("swagger.json")) else {
        return;
    };
    let schemas = schemas(&description);
    let valid = |what: &str, manifests: &str, count: usize| {
        let output = checked(&kubeconform, schemas.path(), manifests);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{what}: {output:?}");
        let expected = format!("Valid: {count}, Invalid: 0, Errors: 0");
        assert!(said.contains(&expected), "{what}: {said}");
    };
    for (server, values) in SERVERS {
        let server = format!("server={server}");
        let mut values = values.to_vec();
        values.extend([
            server.as_str(),
            "autoscaling.enabled=true",
            "autoscaling.metric=cpu",
        ]);
        let Some(output) = rendered(&values) else { return };
        // Those with metrics have a service for these.
        let has_metrics = !["server=axum", "server=kestrel"].contains(&server.as_str());
        valid(&server, &printed(output), 4 + usize::from(has_metrics));
    }
    for (folder, count) in [("base", 4), ("overlay", 5), ("load", 2)] {
        let Some(manifests) = kustomized(&deploy(folder)) else {
            return;
        };
        valid(folder, &manifests, count);
    }
    let pod = fs::read_to_string(repository().join("deploy/seccomp/kubernetes/pod.yaml")).unwrap();
    valid("pod.yaml", &pod, 1);
    // What has no effect is found.
    let wrong = pod.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem");
    assert_ne!(wrong, pod);
    let output = checked(&kubeconform, schemas.path(), &wrong);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && said.contains("readOnlyRootFileSystem"),
        "{said}"
    );
}
