//! The setting of origins whose pages may call a listener.

use axum::http::HeaderValue;
use millstream_http::Origins;

use crate::Error;

/// The origins that a setting allows.
pub(crate) fn origins(setting: &'static str, value: &str) -> Result<Origins, Error> {
    match value {
        "*" => Ok(Origins::Any),
        origin => match HeaderValue::from_str(origin) {
            Ok(origin) => Ok(Origins::Of(vec![origin])),
            Err(_) => {
                Err(Error::InvalidSetting { setting, value: origin.to_owned(), rule: "use * or scheme://host:port" })
            }
        },
    }
}
