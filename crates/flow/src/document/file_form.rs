//! The form of the file that a node names: by its keys, or else by the file's name.

/// The form of a file's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFormat {
    JsonLines,
    Csv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// The words of the key `format`.
pub(crate) const FILE_FORMATS: [&str; 2] = ["jsonl", "csv"];

/// A fault of a node's `config`: the key, and the fault in words.
type ConfigFault = (&'static str, String);

/// The form of the file that a source or sink names. `has_columns` is for sinks.
///
/// # Errors
/// The keys do not go together.
pub(crate) fn file_form(
    path: &str,
    format: Option<&str>,
    compression: Option<&str>,
    has_columns: Option<bool>,
) -> Result<FileForm, ConfigFault> {
    let form = form_of(path, format, compression).map_err(|fault| ("format", fault))?;
    match (form.0, has_columns) {
        (FileFormat::Csv, Some(false)) => {
            Err(("columns", "CSV has the same columns in every record; name them".to_owned()))
        }
        (FileFormat::JsonLines, Some(true)) => {
            Err(("columns", "columns are for CSV, and the file has JSON lines; leave them out".to_owned()))
        }
        _ => Ok(form),
    }
}

/// The form of a file's bytes.
type FileForm = (FileFormat, Compression);

/// The format and the compression that a node names, or else those that the file's name ends with.
fn form_of(path: &str, format: Option<&str>, compression: Option<&str>) -> Result<(FileFormat, Compression), String> {
    let lower = path.to_ascii_lowercase();
    let (stem, by_name) = match lower.rsplit_once('.') {
        Some((stem, "gz" | "gzip")) => (stem, Compression::Gzip),
        Some((stem, "zst" | "zstd")) => (stem, Compression::Zstd),
        _ => (lower.as_str(), Compression::None),
    };
    let compression = match compression {
        Some("gzip") => Compression::Gzip,
        Some("zstd") => Compression::Zstd,
        Some(_) => Compression::None,
        None => by_name,
    };
    let format = match (format, stem.rsplit_once('.')) {
        (Some("csv"), _) | (None, Some((_, "csv"))) => FileFormat::Csv,
        (Some(_), _) | (None, Some((_, "jsonl" | "ndjson" | "json"))) => FileFormat::JsonLines,
        (None, _) => {
            return Err(format!("the name '{path}' tells no format; write format: {}", FILE_FORMATS.join(" or ")));
        }
    };
    Ok((format, compression))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_tells_its_form_unless_the_node_does() {
        for (path, format, compression, expected) in [
            ("a.jsonl", None, None, Some((FileFormat::JsonLines, Compression::None))),
            ("a.CSV.gz", None, None, Some((FileFormat::Csv, Compression::Gzip))),
            ("a.ndjson.zst", None, None, Some((FileFormat::JsonLines, Compression::Zstd))),
            ("a.csv", Some("jsonl"), Some("gzip"), Some((FileFormat::JsonLines, Compression::Gzip))),
            ("a.gz", Some("csv"), Some("none"), Some((FileFormat::Csv, Compression::None))),
            ("data", Some("csv"), None, Some((FileFormat::Csv, Compression::None))),
            ("data", None, None, None),
            ("data.gz", None, None, None),
        ] {
            assert_eq!(form_of(path, format, compression).ok(), expected, "{path}");
        }
    }
}
