//! What io_uring can do here, feature by feature, and why not.

use std::ffi::{CString, c_char, c_int};

use quoit::Missing;
use quoit::{Feature, try_uring};

use crate::error::{Failure, return_code_int};
use crate::memory::{check_store, read_sized, reference, store, write_sized, write_text};
use crate::numbers::feature_bit;
use crate::options::{config, config_for_c};
use crate::types::{self, Capability};

/// One feature, with texts that C can read.
#[derive(Debug)]
struct Entry {
    feature: Feature,
    usable: bool,
    name: CString,
    about: CString,
    minimum_kernel: CString,
    reason: CString,
}

/// `quoit_capabilities`: opaque to C.
#[derive(Debug)]
pub(super) struct Capabilities {
    usable: bool,
    reason: String,
    entries: Vec<Entry>,
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("what would end it early was taken out")
}

impl Capabilities {
    fn find(config: &quoit::Config) -> Self {
        let (usable, reason, found) = match try_uring(config) {
            Ok(capabilities) => (true, "io_uring is usable here".to_owned(), Some(capabilities)),
            Err(diagnosis) => (false, diagnosis.to_string(), None),
        };
        let entry = |&feature: &Feature| {
            let missing = found.as_ref().and_then(|found| {
                let entry = found.missing.iter().find(|(missing, _)| *missing == feature);
                entry.map(|(_, why): &(Feature, Missing)| why.to_string())
            });
            let usable = found
                .as_ref()
                .is_some_and(|found| found.features.contains(feature));
            let reason = match missing {
                Some(why) => why,
                None if usable => "usable".to_owned(),
                None => "io_uring is not usable here".to_owned(),
            };
            Entry {
                feature,
                usable,
                name: c_text(feature.name()),
                about: c_text(feature.about()),
                minimum_kernel: c_text(feature.minimum_kernel()),
                reason: c_text(&reason),
            }
        };
        Self {
            usable,
            reason,
            entries: Feature::ALL.iter().map(entry).collect(),
        }
    }
}

/// Finds out what io_uring can do here.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_capabilities_probe(
    configuration: *const types::Config,
    out: *mut *mut Capabilities,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        let configuration = if configuration.is_null() {
            quoit::Config::default()
        } else {
            let base = config_for_c(&quoit::Config::default());
            // SAFETY: promised by the caller.
            config(&unsafe { read_sized(configuration, base, "config") }?)?
        };
        configuration.validate().map_err(Failure::invalid)?;
        let found = Box::new(Capabilities::find(&configuration));
        // SAFETY: checked, and promised by the caller.
        unsafe { store(out, Box::into_raw(found), "out") }?;
        Ok(0)
    })
}

/// Whether a loop so configured can run on io_uring: 1 or 0.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_capabilities_usable(capabilities: *const Capabilities) -> c_int {
    // SAFETY: promised by the caller.
    return_code_int(|| Ok(unsafe { reference(capabilities, "capabilities") }?.usable.into()))
}

/// Why, or why not.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_capabilities_reason(
    capabilities: *const Capabilities,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let capabilities = unsafe { reference(capabilities, "capabilities") }?;
        // SAFETY: promised by the caller.
        unsafe { write_text(&capabilities.reason, buffer, capacity) }
    })
}

/// One feature.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_capabilities_get(
    capabilities: *const Capabilities,
    index: u32,
    capability: *mut Capability,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let capabilities = unsafe { reference(capabilities, "capabilities") }?;
        let entry = capabilities
            .entries
            .get(index as usize)
            .ok_or_else(|| Failure::new(libc::ENOENT, "there are no more features"))?;
        let value = Capability {
            size: size_of::<Capability>() as u32,
            usable: entry.usable.into(),
            bit: feature_bit(entry.feature),
            name: entry.name.as_ptr(),
            about: entry.about.as_ptr(),
            minimum_kernel: entry.minimum_kernel.as_ptr(),
            reason: entry.reason.as_ptr(),
        };
        // SAFETY: promised by the caller.
        unsafe { write_sized(capability, &value, "capability") }?;
        Ok(0)
    })
}

/// Frees what was found.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_capabilities_free(capabilities: *mut Capabilities) {
    return_code_int(|| {
        if !capabilities.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and the caller promises to use it no more.
            drop(unsafe { Box::from_raw(capabilities) });
        }
        Ok(0)
    });
}
