//! The virtual machine's functions, of which two are needed. The specification of JNI fixes their places in its table.

use std::ffi::c_void;

use crate::native::{Buffer, Int, Long};

/// `JNIEnv *`, which is the calling thread's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Environment(*const *const Functions);

type NewDirectByteBuffer = unsafe extern "system" fn(Environment, *mut c_void, Long) -> Buffer;
type GetDirectBufferAddress = unsafe extern "system" fn(Environment, Buffer) -> *mut c_void;

/// `struct JNINativeInterface_`, up to what is needed.
#[repr(C)]
struct Functions {
    before: [*const c_void; 229],
    new_direct_byte_buffer: NewDirectByteBuffer,
    get_direct_buffer_address: GetDirectBufferAddress,
}

impl Environment {
    /// A buffer over native memory; null with an exception pending if Java has no memory for it.
    ///
    /// # Safety
    ///
    /// The virtual machine passed this environment to the call that is under way.
    pub(crate) unsafe fn new_direct_byte_buffer(self, address: Long, length: Int) -> Buffer {
        // SAFETY: the environment points to the table for as long as the call lasts.
        unsafe { ((**self.0).new_direct_byte_buffer)(self, address as *mut c_void, length.into()) }
    }

    /// The address of a buffer's first byte; 0 if it is not a direct one.
    ///
    /// # Safety
    ///
    /// The same, and the buffer is a reference that it passed as well.
    pub(crate) unsafe fn direct_buffer_address(self, buffer: Buffer) -> Long {
        // SAFETY: as above.
        unsafe { ((**self.0).get_direct_buffer_address)(self, buffer) as Long }
    }
}
