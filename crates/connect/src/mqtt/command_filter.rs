//! A subscription to commands: `command/[tenant]/[device]/req/#`, or `c/…/q/#`, with `+` for all devices of a gateway.

/// What a client that takes commands has subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandFilter {
    pub(super) text: Box<str>,
    word: Box<str>,
    tenant: Box<str>,
    device: Box<str>,
    request: Box<str>,
}

/// The devices whose commands a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom<'a> {
    /// This one.
    One(&'a str),
    /// The client itself and all that are behind it.
    All,
}

impl CommandFilter {
    /// Reads a filter, if it is one of these and names the client's tenant, or none.
    pub(super) fn parse(text: &str, own_tenant: &str) -> Option<Self> {
        let mut levels = text.split('/');
        let (word, tenant, device) = (levels.next()?, levels.next()?, levels.next()?);
        let request = levels.next()?;
        let ends_well = levels.next() == Some("#") && levels.next().is_none();
        let is_ours = matches!(word, "c" | "command") && (tenant.is_empty() || tenant == own_tenant);
        let is_plain = device == "+" || !device.contains(['+', '#']);
        (ends_well && is_ours && is_plain && matches!(request, "q" | "req")).then(|| Self {
            text: text.into(),
            word: word.into(),
            tenant: tenant.into(),
            device: device.into(),
            request: request.into(),
        })
    }

    /// Whose commands it is about, where the client itself is `own`.
    pub(super) fn whom<'a>(&'a self, own: &'a str) -> Whom<'a> {
        match &*self.device {
            "+" => Whom::All,
            "" => Whom::One(own),
            named => Whom::One(named),
        }
    }

    /// The device that listens, where the client itself is `own`.
    pub(super) fn device<'a>(&'a self, own: &'a str) -> &'a str {
        match self.whom(own) {
            Whom::One(device) => device,
            Whom::All => own,
        }
    }

    /// The topic of a command to `device`; its spelling mirrors the filter's. Without request id no answer is wanted.
    pub(super) fn topic(&self, device: &str, request_id: Option<&str>, name: &str) -> String {
        let device = if &*self.device == "+" { device } else { &*self.device };
        let request_id = request_id.unwrap_or_default();
        format!("{}/{}/{device}/{}/{request_id}/{name}", self.word, self.tenant, self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_subscribe_to_commands_the_spelling_of_the_filter_is_that_of_the_topic() {
        for (filter, whom, topic) in [
            ("c///q/#", Whom::One("own"), "c///q/R/on"),
            ("command///req/#", Whom::One("own"), "command///req/R/on"),
            ("c/acme//q/#", Whom::One("own"), "c/acme//q/R/on"),
            ("command/acme/d/req/#", Whom::One("d"), "command/acme/d/req/R/on"),
            ("c//d/q/#", Whom::One("d"), "c//d/q/R/on"),
            ("c//+/q/#", Whom::All, "c//d/q/R/on"),
            ("c/acme/+/q/#", Whom::All, "c/acme/d/q/R/on"),
        ] {
            let parsed = CommandFilter::parse(filter, "acme").unwrap();
            assert_eq!(parsed.whom("own"), whom, "{filter}");
            assert_eq!(parsed.topic("d", Some("R"), "on"), topic, "{filter}");
        }
        let one_way = CommandFilter::parse("c///q/#", "acme").unwrap();
        assert_eq!(one_way.topic("d", None, "on"), "c///q//on");
        for wrong in
            ["c/#", "c///q", "c///q/+", "c///s/#", "c/other//q/#", "c//a+/q/#", "c//#/q/#", "c///q/#/x", "t///q/#"]
        {
            assert_eq!(CommandFilter::parse(wrong, "acme"), None, "{wrong}");
        }
    }
}
