//! How a function of JNI is written: by name, types and body. The symbol's name is that of the method in Java's class, and the
//! signature is what Java compares.

use std::ffi::c_void;

/// `int` of Java.
pub(crate) type Int = i32;
/// `long` of Java.
pub(crate) type Long = i64;
/// A direct `ByteBuffer`, or Java's `null`.
pub(crate) type Buffer = *mut c_void;
/// No result.
pub(crate) type Void = ();
/// The class whose method is called, which no function looks at.
pub(crate) type Class = *mut c_void;

/// The letters that Java has for a type.
macro_rules! letter {
    (Int) => {
        "I"
    };
    (Long) => {
        "J"
    };
    (Buffer) => {
        "Ljava/nio/ByteBuffer;"
    };
    (Void) => {
        "V"
    };
}

/// Exports functions to `io.quoit.netty.JniCalls`, and lists their signatures under the first name. Between bars stands the name
/// that bodies have for the virtual machine's environment.
///
/// # Safety
///
/// The functions are called by Java, which passes addresses of memory that is alive and as long as the call needs.
macro_rules! natives {
    ($signatures:ident |$environment:ident| $(
        $(#[$about:meta])*
        $name:ident($($argument:ident: $type:ident),*) -> $result:ident $body:block
    )*) => {
        pub(crate) const $signatures: &[&str] = &[
            $(concat!(stringify!($name), "(", $(letter!($type),)* ")", letter!($result), "\0")),*
        ];
        $(
            $(#[$about])*
            // SAFETY: no other library has symbols with the name of this class.
            #[unsafe(export_name = concat!("Java_io_quoit_netty_JniCalls_", stringify!($name)))]
            #[allow(non_snake_case, reason = "the names are those of Java")]
            #[allow(unused_variables, reason = "few functions need the environment")]
            unsafe extern "system" fn $name(
                $environment: crate::environment::Environment,
                _class: crate::native::Class,
                $($argument: $type),*
            ) -> $result $body
        )*
    };
}
