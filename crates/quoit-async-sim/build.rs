//! Says what differs from `quoit-async`: the loop is any loop, limits are small enough to be reached, and there is the module
//! `simulation`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=quoit_simulated");
    // Features of quoit-async that the simulator has no use for.
    println!(
        "cargo::rustc-check-cfg=cfg(feature, values(\"axum\", \"examples\", \"futures-io\", \"hyper\", \"hyper-util\", \
         \"quinn\", \"tonic\", \"tracing\"))"
    );
}
