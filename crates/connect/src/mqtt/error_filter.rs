//! A subscription to the error topic: `error/[tenant]/[device]/#`, or `e/…`, with `+` for all devices of a gateway.

/// A client's subscription to the error topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorFilter {
    pub(super) filter: Box<str>,
    word: Box<str>,
    tenant: Box<str>,
    device: Box<str>,
}

impl ErrorFilter {
    /// Reads a filter, if it is one of these and names the client's tenant, or none.
    pub(super) fn parse(filter: &str, own_tenant: &str) -> Option<Self> {
        let mut segments = filter.split('/');
        let (word, tenant, device) = (segments.next()?, segments.next()?, segments.next()?);
        let ends_well = segments.next() == Some("#") && segments.next().is_none();
        let is_ours = matches!(word, "e" | "error") && (tenant.is_empty() || tenant == own_tenant);
        let is_plain = device == "+" || !device.contains(['+', '#']);
        (ends_well && is_ours && is_plain).then(|| Self {
            filter: filter.into(),
            word: word.into(),
            tenant: tenant.into(),
            device: device.into(),
        })
    }

    /// True if it covers messages of `device` of `tenant`; `own` is the client itself.
    pub(super) fn is_about(&self, tenant: &str, device: &str, own: &str) -> bool {
        match &*self.device {
            _ if !self.tenant.is_empty() && *self.tenant != *tenant => false,
            "+" => true,
            "" => device == own,
            named => named == device,
        }
    }

    /// The topic of an error; its spelling mirrors the filter's.
    pub(super) fn topic(&self, device: &str, endpoint: &str, correlation_id: &str, status: u16) -> String {
        let device = if &*self.device == "+" { device } else { &*self.device };
        format!("{}/{}/{device}/{endpoint}/{correlation_id}/{status}", self.word, self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_error_topic_is_subscribed_to_by_device_or_gateway_and_its_spelling_is_mirrored() {
        for (filter, device, topic) in [
            ("error///#", "own", Some("error///telemetry/7/400")),
            ("e//own/#", "own", Some("e//own/telemetry/7/400")),
            ("e/acme/+/#", "other", Some("e/acme/other/telemetry/7/400")),
            ("error/acme/other/#", "own", None),
            ("error///#", "other", None),
        ] {
            let parsed = ErrorFilter::parse(filter, "acme").unwrap();
            let told = parsed.is_about("acme", device, "own").then(|| parsed.topic(device, "telemetry", "7", 400));
            assert_eq!(told.as_deref(), topic, "{filter}");
        }
        for wrong in ["error/#", "error/other/d/#", "e//d", "e//a/b/#", "t//d/#", "event//d/#", "e//a+/#"] {
            assert_eq!(ErrorFilter::parse(wrong, "acme"), None, "{wrong}");
        }
    }
}
