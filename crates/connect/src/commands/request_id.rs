//! How a device names the command that it answers: the command's correlation id, in a form that fits a segment of a URL
//! and a level of an MQTT topic.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::command::{CORRELATION_ID_MAX_BYTES, is_correlation_id};

/// What ids of this form begin with.
const VERSION: char = '1';
/// Longest id that can be right.
const MAX_BYTES: usize = 1 + CORRELATION_ID_MAX_BYTES.div_ceil(3) * 4;

/// The id under which a device answers.
pub(crate) fn request_id(correlation_id: &str) -> String {
    let mut id = String::from(VERSION);
    URL_SAFE_NO_PAD.encode_string(correlation_id, &mut id);
    id
}

/// The correlation id of a request id; `None` if this server cannot have given it to a device.
pub(crate) fn correlation_of(request_id: &str) -> Option<String> {
    let encoded = request_id.strip_prefix(VERSION).filter(|_| request_id.len() <= MAX_BYTES)?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
    is_correlation_id(&text).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_that_was_not_given_out_leads_nowhere() {
        for wrong in ["", "1", "2YQ", "YQ", "1Y", "1YQ==", "1+/", "1_w", "1AA", &"1".repeat(MAX_BYTES + 1)] {
            assert_eq!(correlation_of(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn an_id_leads_back_and_fits_a_url_and_a_topic(id in "\\PC{1,64}") {
            let request_id = request_id(&id);
            prop_assert!(request_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
            prop_assert_eq!(correlation_of(&request_id).unwrap(), id);
        }
    }
}
