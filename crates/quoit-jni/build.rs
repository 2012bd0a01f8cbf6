//! Every symbol is found when the library is loaded, or loading fails and says which.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs,-z,now");
}
