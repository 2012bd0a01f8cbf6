//! What is built for.

/// The C library that a target stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Libc {
    Gnu,
    Musl,
}

/// A target, by the names that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Rust's.
    pub(crate) triple: &'static str,
    pub(crate) libc: Libc,
    /// Of ELF files.
    pub(crate) machine: object::Architecture,
    /// The kernel's, and that of RPM.
    pub(crate) arch: &'static str,
    /// Debian's.
    pub(crate) deb: &'static str,
    /// Debian's, of the folder for libraries.
    pub(crate) multiarch: &'static str,
    /// Of container images.
    pub(crate) oci: &'static str,
}

/// The oldest glibc that the library runs on: RHEL 7, Debian 8, Ubuntu 14.04.
pub(crate) const GLIBC: (u32, u32) = (2, 17);

const X86_64: Target = Target {
    triple: "x86_64-unknown-linux-gnu",
    libc: Libc::Gnu,
    machine: object::Architecture::X86_64,
    arch: "x86_64",
    deb: "amd64",
    multiarch: "x86_64-linux-gnu",
    oci: "amd64",
};

const AARCH64: Target = Target {
    triple: "aarch64-unknown-linux-gnu",
    libc: Libc::Gnu,
    machine: object::Architecture::Aarch64,
    arch: "aarch64",
    deb: "arm64",
    multiarch: "aarch64-linux-gnu",
    oci: "arm64",
};

/// What the library is built for.
pub(crate) const ALL: [Target; 4] = [
    X86_64,
    AARCH64,
    Target {
        triple: "x86_64-unknown-linux-musl",
        libc: Libc::Musl,
        ..X86_64
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        libc: Libc::Musl,
        ..AARCH64
    },
];

/// Those of one C library.
pub(crate) fn of(libc: Libc) -> impl Iterator<Item = Target> {
    ALL.into_iter().filter(move |target| target.libc == libc)
}

impl Target {
    /// As cargo-zigbuild wants it: with the glibc that is linked against.
    pub(crate) fn zig(self) -> String {
        match self.libc {
            Libc::Gnu => format!("{}.{}.{}", self.triple, GLIBC.0, GLIBC.1),
            Libc::Musl => self.triple.to_owned(),
        }
    }
}
