//! The functions of JNI by which the Netty transport calls libquoit where Java has no foreign function interface: on Java 17 to 21.
//! Their Java side is `JniCalls.java` in `java/quoit-netty`.
//!
//! This library is not linked with libquoit. Java names the file that it has found, as it does for the foreign function interface,
//! and `open` takes the functions out of that. So both ways of calling run the same libquoit, and this library knows nothing of its
//! structures.
//!
//! Each function takes and returns numbers; addresses are numbers, too. Java compares what it declares with the signatures here
//! before it calls anything else, so that classes and library of different versions are one clear error.
//!
//! | module | what it holds | unsafe |
//! |---|---|---|
//! | `native` | how a function of JNI is written, and its signature as Java writes it | exports |
//! | `environment` | the two functions of the virtual machine that are needed | yes |
//! | `library` | opening libquoit, and its functions | yes |
//! | `memory` | native memory, for Java without Unsafe | yes |
//! | `system` | calls of the C library, which return a negative errno | yes |
//!
//! No function panics: none indexes, unwraps or allocates. Were one to, Rust would end the process, and not unwind into Java.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("libquoit is for 64-bit Linux");

#[macro_use]
mod native;
mod environment;
mod library;
mod memory;
mod system;

use native::{Int, Long};

/// Those of each module.
const SIGNATURES: [&[&str]; 4] = [OWN, library::SIGNATURES, memory::SIGNATURES, system::SIGNATURES];

natives! {
    OWN |environment|

    /// The address of the signature with this index, as Java writes name and type; 0 past the last.
    signature(index: Int) -> Long {
        signature_at(index).map_or(0, |text| text.as_ptr() as Long)
    }
}

/// Ends with a NUL.
fn signature_at(index: Int) -> Option<&'static str> {
    let index = usize::try_from(index).ok()?;
    SIGNATURES.iter().copied().flatten().copied().nth(index)
}

#[cfg(test)]
mod tests {
    use super::signature_at;

    #[test]
    fn signatures_are_as_java_writes_them() {
        let all: Vec<&str> = (0..).map_while(signature_at).collect();
        for expected in [
            "signature(I)J\0",
            "turn(JJJJJJ)I\0",
            "capabilitiesFree(J)V\0",
            "view(JI)Ljava/nio/ByteBuffer;\0",
            "getOption(IIIJJ)I\0",
        ] {
            assert!(all.contains(&expected), "{expected} is not among {all:?}");
        }
        assert_eq!(signature_at(-1), None);
    }
}
