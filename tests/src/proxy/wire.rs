//! Where in the bytes of a connection a request's body and its answer begin, in HTTP/1.1 and HTTP/2.
//!
//! In: all that came in one direction. Out: a position. Pure.
//!
//! Source: RFC 9112, section 2.1; RFC 9113, sections 3.4 (preface), 4.1 (frames) and 6.

/// What a client of HTTP/2 says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Where the body of the first request begins, if it has come that far.
pub(super) fn request_body(came: &[u8]) -> Option<usize> {
    if came.starts_with(&PREFACE[..came.len().min(PREFACE.len())]) {
        return frame(came, PREFACE.len(), DATA);
    }
    let end = came.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    (came.len() > end + 4).then_some(end + 4)
}

/// Where the first answer begins, if it has come that far.
pub(super) fn answer(came: &[u8]) -> Option<usize> {
    if came.starts_with(b"H") {
        return Some(0);
    }
    frame(came, 0, HEADERS)
}

/// Where the first frame of `kind` begins from `position` on.
fn frame(came: &[u8], mut position: usize, kind: u8) -> Option<usize> {
    loop {
        let [a, b, c, this] = *came.get(position..)?.first_chunk::<4>()?;
        if this == kind {
            return Some(position);
        }
        position += 9 + u32::from_be_bytes([0, a, b, c]) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that bodies and answers are found behind whatever stands before them, and not before they have come.
    #[test]
    fn bodies_and_answers_are_found() {
        let plain = b"POST / HTTP/1.1\r\nhost: a\r\n\r\nbody";
        assert_eq!((request_body(plain), request_body(&plain[..plain.len() - 4])), (Some(plain.len() - 4), None));
        assert_eq!((answer(b"HTTP/1.1 200 OK"), answer(b"")), (Some(0), None));
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        let headers = [0, 0, 2, HEADERS, 4, 0, 0, 0, 1, 0x88, 0x88];
        let data = [0, 0, 1, DATA, 0, 0, 0, 0, 1, b'x'];
        let request = [PREFACE, &settings, &headers, &data].concat();
        let body = request.len() - data.len();
        assert_eq!((request_body(&request), request_body(&request[..body])), (Some(body), None));
        assert_eq!(request_body(&PREFACE[..3]), None);
        let reply = [&settings[..], &headers, &data].concat();
        assert_eq!((answer(&reply), answer(&settings)), (Some(settings.len()), None));
    }
}
