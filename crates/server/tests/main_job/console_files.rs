//! The files of the console, as browsers get them.

use std::io::Read as _;

use flate2::read::GzDecoder;
use millstream_testkit::{Server, ask};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; font-src 'self'; \
                      form-action 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; connect-src 'self'";

#[test]
fn every_page_and_file_of_the_console_has_the_headers_that_keep_a_browser_to_this_server() {
    let server = crate::tenant();
    let index = server.get("/").text();
    let beside = index.split('"').filter_map(|part| part.strip_prefix('.'));
    let assets = beside.filter(|part| part.starts_with("/assets/") || *part == "/icon.svg");
    let paths: Vec<&str> =
        ["/", "/devices", "/entities", "/topics", "/query", "/jobs", "/store", "/access", "/login", "/no-such-page"]
            .into_iter()
            .chain(assets)
            .collect();
    assert!(paths.len() > 12, "the console is built before this test, with a script and a style: {index}");
    for path in paths {
        let answer = ask(server.applications(), "GET", path, &[("Accept", "text/html,*/*")], b"");
        assert_eq!(answer.status, if path == "/no-such-page" { 404 } else { 200 }, "{path}");
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        if path.starts_with("/assets/") {
            assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"), "{path}");
        } else {
            assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
        }
    }
}

#[test]
fn the_page_for_an_unknown_path_finds_its_files_at_any_depth_and_below_what_a_proxy_takes_away() {
    let server = crate::tenant();
    let rows = [("/no", "./"), ("/no/", "../"), ("/a/b/c", "../../"), ("/a//b", "../../"), ("/a/b?from=/x/y/", "../")];
    for (path, way) in rows {
        let page = ask(server.applications(), "GET", path, &[("Accept", "text/html")], b"");
        assert_eq!(page.status, 404, "{path}");
        let page = page.text();
        let files: Vec<&str> = page.split('"').filter(|part| part.contains("assets/")).collect();
        assert!(files.len() > 1, "{page}");
        let [first, ..] = files[..] else { panic!("{page}") };
        for file in &files {
            assert!(file.strip_prefix(way).is_some_and(|rest| rest.starts_with("assets/")), "{path}: {file}");
        }
        let file = first.strip_prefix(way).unwrap();
        assert_eq!(server.get(&format!("/{file}")).status, 200, "{path}");
    }
}

#[test]
fn a_file_of_the_console_comes_compressed_to_those_who_take_it() {
    let server = crate::tenant();
    let index = server.get("/").text();
    let script = index.split('"').find(|part| part.starts_with("./assets/") && part.ends_with(".js")).unwrap();
    let script = &script[1..];
    for path in ["/", script] {
        let plain = ask(server.applications(), "GET", path, &[], b"");
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{path}");
        for (takes, gzip) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("deflate;q=1, gzip ; q=1", true),
            ("gzip;q=0, identity", false),
            ("br", false),
            ("", false),
        ] {
            let answer = ask(server.applications(), "GET", path, &[("Accept-Encoding", takes)], b"");
            assert_eq!(answer.status, 200, "{path}: {takes}");
            assert_eq!(answer.header("vary"), Some("accept-encoding"), "{path}: {takes}");
            assert_eq!(answer.header("content-encoding"), gzip.then_some("gzip"), "{path}: {takes}");
            let mut read = Vec::new();
            if gzip {
                GzDecoder::new(&*answer.body).read_to_end(&mut read).unwrap();
            } else {
                read = answer.body;
            }
            assert_eq!(read, plain.body, "{path}: {takes}");
        }
    }
}
