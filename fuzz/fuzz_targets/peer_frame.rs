//! See the module of the same name.
#![no_main]

#[global_allocator]
static COUNTING: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_fuzz::peer_frame::run(bytes));
