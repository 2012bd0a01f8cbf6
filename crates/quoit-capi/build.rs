//! Gives the shared library its name: programs ask for the ABI's major version, and for nothing else.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libquoit.so.0");
    // Every symbol is found when the library is loaded, or loading fails and says which.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs,-z,now");
}
