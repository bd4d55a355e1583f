//! The reference page and the JSON Schema come from the model.

use std::path::Path;

use millstream_flow::{json_schema, reference_page};

use crate::catalogue::context;

#[test]
fn the_reference_page_is_that_of_the_model() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/flow-reference.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference_page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written == reference_page(), "run UPDATE_DOCS=1 cargo test -p millstream-flow --test documents");
}

#[test]
fn the_json_schema_has_every_definition_that_it_refers_to() {
    let schema = json_schema(&context().catalogue);
    let text = schema.to_string();
    let references: Vec<&str> = text.split("\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(references.len() > 10);
    for name in references {
        assert!(schema["$defs"][name].is_object(), "{name}");
    }
    assert_eq!(schema["$defs"]["job"]["properties"]["mode"]["default"], "streaming");
    assert_eq!(schema["$defs"]["job"]["additionalProperties"], false);
    let source_types = schema["$defs"]["source"]["properties"]["type"]["enum"].as_array().unwrap();
    assert_eq!(source_types.len(), 4);
    let stream = &schema["$defs"]["source"]["allOf"][0]["then"]["properties"]["config"];
    assert_eq!(stream["properties"]["start"]["enum"][0], "earliest");
    assert_eq!(stream["required"][0], "topic");
}
