//! A subscription to commands: `command/[tenant]/[device]/req/#`, or `c/…/q/#`, with `+` for all devices of a gateway.

/// A client's subscription to commands.
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
pub(super) enum CommandTarget<'a> {
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

    /// The devices whose commands it covers; `own` is the client itself.
    pub(super) fn whom<'a>(&'a self, own: &'a str) -> CommandTarget<'a> {
        match &*self.device {
            "+" => CommandTarget::All,
            "" => CommandTarget::One(own),
            named => CommandTarget::One(named),
        }
    }

    /// The device that listens, where the client itself is `own`.
    pub(super) fn device<'a>(&'a self, own: &'a str) -> &'a str {
        match self.whom(own) {
            CommandTarget::One(device) => device,
            CommandTarget::All => own,
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
    fn row_command_topics_are_spelt_as_their_filter() {
        for (filter, whom, topic) in [
            ("c///q/#", CommandTarget::One("own"), "c///q/R/on"),
            ("command///req/#", CommandTarget::One("own"), "command///req/R/on"),
            ("c/acme//q/#", CommandTarget::One("own"), "c/acme//q/R/on"),
            ("command/acme/d/req/#", CommandTarget::One("d"), "command/acme/d/req/R/on"),
            ("c//d/q/#", CommandTarget::One("d"), "c//d/q/R/on"),
            ("c//+/q/#", CommandTarget::All, "c//d/q/R/on"),
            ("c/acme/+/q/#", CommandTarget::All, "c/acme/d/q/R/on"),
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
