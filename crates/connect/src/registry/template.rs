//! Templates that make an id from the subject of a certificate, such as `sensor-{{subject-cn}}`.

use millstream_net::CertificateFields;

/// The placeholders, each with the attribute of the subject that it stands for; the first stands for the whole subject.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("{{subject-dn}}", ""), ("{{subject-cn}}", "CN"), ("{{subject-ou}}", "OU"), ("{{subject-o}}", "O")];

/// The rule of templates, for refusals.
pub(super) const RULE: &str =
    "a template has {{subject-dn}}, {{subject-cn}}, {{subject-ou}} or {{subject-o}}, and text around it";

/// True if the text has a placeholder, and none that is unknown.
pub(super) fn is_template(text: &str) -> bool {
    let bare = PLACEHOLDERS.iter().fold(text.to_owned(), |text, (name, _)| text.replace(name, ""));
    bare.len() < text.len() && !bare.contains("{{") && !bare.contains("}}")
}

/// The id of a certificate's subject; `None` if the subject lacks an attribute that the template names.
pub(super) fn apply(template: &str, certificate: &CertificateFields) -> Option<String> {
    let mut made = template.to_owned();
    for (placeholder, attribute) in PLACEHOLDERS.iter().filter(|(placeholder, _)| template.contains(placeholder)) {
        let value = match *attribute {
            "" => certificate.subject.clone(),
            attribute => certificate.subject_attribute(attribute)?,
        };
        made = made.replace(placeholder, &value);
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_from_the_subject() {
        let certificate = CertificateFields {
            subject: "CN=t-7,OU=hall,O=Example".to_owned(),
            issuer: String::new(),
            valid_from_s: 0,
            valid_until_s: 0,
            public_key: Vec::new(),
        };
        for (template, expected) in [
            ("{{subject-cn}}", Some("t-7")),
            ("{{subject-o}}.{{subject-ou}}-{{subject-cn}}", Some("Example.hall-t-7")),
            ("{{subject-dn}}", Some("CN=t-7,OU=hall,O=Example")),
        ] {
            assert!(is_template(template), "{template}");
            assert_eq!(apply(template, &certificate).as_deref(), expected);
        }
        let nameless = CertificateFields { subject: "O=Example".to_owned(), ..certificate };
        assert_eq!(apply("{{subject-cn}}", &nameless), None);
        for wrong in ["", "sensor", "{{subject-c}}", "{{subject-cn}}{{x}}", "{{subject-cn}"] {
            assert!(!is_template(wrong), "{wrong}");
        }
    }
}
