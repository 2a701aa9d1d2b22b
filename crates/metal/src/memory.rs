//! The functions that compiled code calls for memory. `rep movsq` and its like, or they would call themselves: words, since the emulator takes
//! as long for a byte as for a word.

use core::arch::asm;

/// As in C.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's. The direction flag is clear by the ABI.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) n % 8,
            inout("rcx") n / 8 => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    };
    to
}

/// As in C.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= n {
        // SAFETY: going up, no byte is overwritten before it is read.
        return unsafe { memcpy(to, from, n) };
    }
    let (last_to, last_from) = (to.wrapping_add(n).wrapping_sub(1), from.wrapping_add(n).wrapping_sub(1));
    // SAFETY: the caller's; going down for the same reason, and the flag is put back.
    unsafe {
        asm!("std", "rep movsb", "sub rdi, 7", "sub rsi, 7", "mov rcx, {words}", "rep movsq", "cld", words = in(reg) n / 8,
            inout("rcx") n % 8 => _, inout("rdi") last_to => _, inout("rsi") last_from => _, options(nostack));
    };
    to
}

/// As in C.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe {
        asm!("rep stosq", "mov rcx, {rest}", "rep stosb", rest = in(reg) n % 8,
            inout("rcx") n / 8 => _, inout("rdi") to => _, in("rax") u64::from(byte as u8) * 0x0101_0101_0101_0101,
            options(nostack, preserves_flags));
    };
    to
}

/// As in C.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: the caller's. Volatile, or the loop would be taken for a `memcmp`.
        let (a, b) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// As in C.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { memcmp(a, b, n) }
}

/// As in C.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: the caller's. Volatile for the same reason.
    while unsafe { text.add(n).read_volatile() } != 0 {
        n += 1;
    }
    n
}
