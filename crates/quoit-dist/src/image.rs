//! The container image of the program: nothing but it, for both processors, as the archive that every tool reads.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::archive::{gzip, tar};
use crate::place::Place;
use crate::program::Program;
use crate::tree::Tree;

/// Nobody in particular: no image from scratch has names for its users.
const USER: &str = "65532:65532";

/// Blobs by what they are, and what names them.
#[derive(Default)]
struct Layout {
    tree: Tree,
}

impl Layout {
    /// Adds a blob, and returns what describes it.
    fn blob(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let digest = hex(&bytes);
        let size = bytes.len();
        self.tree.add(format!("blobs/sha256/{digest}"), bytes);
        json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
    }
}

/// The image, as one archive.
pub(crate) fn make(place: &Place, programs: &[Program], papers: &Tree) -> Result<Vec<u8>, String> {
    let created = format!("{}T00:00:00Z", crate::manual::date(place.epoch));
    let labels = json!({
        "org.opencontainers.image.title": "quoit",
        "org.opencontainers.image.description": "Network transport on io_uring: doctor, servers, load generator",
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.version": place.version,
        "org.opencontainers.image.revision": place.revision,
        "org.opencontainers.image.created": created,
    });
    let mut layout = Layout::default();
    let mut manifests = Vec::new();
    for program in programs {
        let mut root = Tree::default();
        root.add_program("usr/bin/quoit", program.bytes.clone());
        root.add_all("usr/share/doc/quoit", papers.clone());
        let files = tar("", &root, place.epoch)?;
        let uncompressed = hex(&files);
        let layer = layout.blob("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&files)?);
        let configuration = json!({
            "created": created,
            "architecture": program.target.oci,
            "os": "linux",
            "config": {
                "User": USER,
                "Env": ["PATH=/usr/bin"],
                "Entrypoint": ["/usr/bin/quoit"],
                "Cmd": ["doctor"],
                "Labels": labels,
                "StopSignal": "SIGTERM",
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{uncompressed}")] },
            "history": [{ "created": created, "created_by": "quoit-dist" }],
        });
        let configuration = layout.blob(
            "application/vnd.oci.image.config.v1+json",
            configuration.to_string().into_bytes(),
        );
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": kind,
            "config": configuration,
            "layers": [layer],
            "annotations": labels,
        });
        let mut described = layout.blob(kind, manifest.to_string().into_bytes());
        described["platform"] = json!({ "architecture": program.target.oci, "os": "linux" });
        manifests.push(described);
    }
    let kind = "application/vnd.oci.image.index.v1+json";
    let index =
        json!({ "schemaVersion": 2, "mediaType": kind, "manifests": manifests, "annotations": labels });
    let mut described = layout.blob(kind, index.to_string().into_bytes());
    // What it is called where it is loaded: with the version alone, Podman takes that for the name.
    let name = format!("quoit:{}", place.version);
    described["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    let top = json!({ "schemaVersion": 2, "mediaType": kind, "manifests": [described] });
    layout.tree.add("index.json", top.to_string());
    layout
        .tree
        .add("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string());
    tar("", &layout.tree, place.epoch)
}

/// The digest of these bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn it_is_loaded_by_the_name_that_the_documents_have() {
        let place = Place::made_up("", "1.2.3");
        let archive = make(&place, &[], &Tree::default()).unwrap();
        let index = crate::archive::open(&gzip(&archive).unwrap()).unwrap().0["index.json"].clone();
        let crate::tree::Entry::File { bytes, .. } = index else {
            panic!("it is a file");
        };
        let index: Value = serde_json::from_slice(&bytes).unwrap();
        let name = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
        assert_eq!(name, "quoit:1.2.3");
    }

    #[test]
    fn digests_are_those_of_sha256sum() {
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
