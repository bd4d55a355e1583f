//! Looks for secrets in files, in all forms in which a program may write them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The places where a secret may be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nowhere: at most a hash of it is stored.
    Nowhere,
    /// On the disk, in the document that it was given in, and in no answer.
    OnDisk,
    /// In the document that it was given in, which those who may read it are shown.
    InDocument,
}

pub(crate) struct Secret {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) kept: Kept,
}

impl Secret {
    /// The forms in which it may stand in a text: plain, in hexadecimal, escaped for a URL, and in base64, alone and as
    /// a part of a longer text.
    fn forms(&self) -> Vec<String> {
        let mut forms = vec![self.text.clone()];
        let (mut hex, mut url) = (String::new(), String::new());
        for byte in self.text.bytes() {
            write!(hex, "{byte:02x}").unwrap();
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => url.push(char::from(byte)),
                _ => write!(url, "%{byte:02X}").unwrap(),
            }
        }
        forms.extend([hex, url]);
        for before in 0..3 {
            let bytes = [&b"xx"[..before], self.text.as_bytes()].concat();
            // Characters that bits of neighbours are in are left out.
            let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
            forms.extend(
                [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)].map(|all| all[first..end].to_owned()),
            );
        }
        forms
    }
}

/// The files below `dir` that have a secret: which of the secrets, the file, and its form.
pub(crate) fn search<'a>(dir: &Path, secrets: &'a [Secret]) -> Vec<(&'a Secret, String, String)> {
    let forms: Vec<(&Secret, String)> =
        secrets.iter().flat_map(|secret| secret.forms().into_iter().map(move |form| (secret, form))).collect();
    let mut patterns = tempfile::NamedTempFile::new().unwrap();
    forms.iter().for_each(|(_, form)| writeln!(patterns, "{form}").unwrap());
    // The journal's files are large.
    let grep = Command::new("grep").args(["-raoFH", "--null", "-f"]).arg(patterns.path()).arg(dir).output().unwrap();
    assert!(grep.stderr.is_empty(), "{}", String::from_utf8_lossy(&grep.stderr));
    let said = String::from_utf8_lossy(&grep.stdout);
    let mut found = Vec::new();
    for (file, text) in said.lines().filter_map(|line| line.split_once('\0')) {
        let of = forms.iter().filter(|(_, form)| form == text);
        found.extend(of.map(|(secret, form)| (*secret, file.to_owned(), form.clone())));
    }
    found
}
