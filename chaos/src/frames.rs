//! HTTP/2 by hand, so that what no library would send can be sent.

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kind of a frame that carries a body.
pub const DATA: u8 = 0;
/// Kind of a frame that opens a stream.
pub const HEADERS: u8 = 1;
/// Kind of a frame that gives a stream up.
pub const RST_STREAM: u8 = 3;
/// Kind of a frame that says how its sender wants to be spoken to.
pub const SETTINGS: u8 = 4;
/// Kind of a frame that wants an echo.
pub const PING: u8 = 6;
/// Kind of a frame that allows more bytes.
pub const WINDOW_UPDATE: u8 = 8;
/// Kind of a frame that goes on with headers.
pub const CONTINUATION: u8 = 9;

/// Flag: the last frame of its side of a stream. In settings and pings: an answer.
pub const END_STREAM: u8 = 1;
/// Flag: no more headers follow.
pub const END_HEADERS: u8 = 4;

/// Setting: bytes that may be sent in a stream before more are allowed.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// One frame. Its length is told as it is, up to what three bytes hold.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    framed(length, kind, flags, stream, payload)
}

/// One frame that tells another length than it has.
pub fn framed(length: u32, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = length.to_be_bytes();
    let mut bytes = vec![high, middle, low, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// One setting, as the payload of its frame.
pub fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// One header as HPACK writes it without any table. Names and values of up to 126 bytes.
pub fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX).min(126);
        let mut bytes = vec![length];
        bytes.extend(text.bytes().take(usize::from(length)));
        bytes
    };
    [vec![0], text(name), text(value)].concat()
}

/// The headers of a gRPC call to `path`, and `more`.
pub fn call_headers(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let all = usual.iter().chain(more);
    all.flat_map(|(name, value)| header(name, value)).collect()
}

/// A gRPC message: compressed or not, its length as told, its bytes.
pub fn message(compressed: bool, length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![u8::from(compressed)];
    message.extend(length.to_be_bytes());
    message.extend(bytes);
    message
}

/// A whole unary call: headers, and one message that ends the stream.
pub fn call(stream: u32, path: &str, more: &[(&str, &str)], message: &[u8]) -> Vec<u8> {
    let headers = call_headers(path, more);
    [
        frame(HEADERS, END_HEADERS, stream, &headers),
        frame(DATA, END_STREAM, stream, message),
    ]
    .concat()
}
