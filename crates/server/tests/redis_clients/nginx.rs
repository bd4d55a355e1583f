//! Debian's nginx in front of the store, as `nginx.conf` has it: its cache revalidates by ETag and serves ranges, and its
//! page cache lies in a bucket.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use millstream_testkit::{Answer, Process, ask, eventually, own_addresses, status};
use tempfile::TempDir;

use crate::server::beside;

/// Names a server that has the store's routes, runs already and is empty. nginx's own `dav_methods PUT DELETE` does for all that is
/// checked here but the end of a page's time (`ttl`).
const OTHER_STORE: &str = "MILLSTREAM_HTTP_ADDRESS";

/// A store with the two buckets of `nginx.conf`, and an nginx in front of it; both end with the test.
struct World {
    store: SocketAddr,
    files: SocketAddr,
    pages: SocketAddr,
    nginx: Child,
    _dir: TempDir,
    own: Option<Process>,
}

impl World {
    /// `changes` are made to the configuration.
    fn start(changes: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, own) = match std::env::var(OTHER_STORE) {
            Ok(address) => (address.parse().unwrap(), None),
            Err(_) => {
                let data = dir.path().join("data");
                std::fs::create_dir(&data).unwrap();
                let process = Process::start(&data);
                (process.applications, Some(process))
            }
        };
        for bucket in ["files", "pages"] {
            let json = [("Content-Type", "application/json")];
            let answer = ask(store, "PUT", &format!("/buckets/{bucket}"), &json, b"{}");
            assert!((200..300).contains(&answer.status), "{bucket}: {} {}", answer.status, answer.text());
        }
        let ([files, pages], [application, _]) = (own_addresses(), own_addresses());
        let mut configuration = std::fs::read_to_string(beside("nginx.conf")).unwrap();
        let addresses = [(8000, store), (8080, files), (8081, pages), (8082, application)];
        for (port, address) in addresses {
            configuration = configuration.replace(&format!("127.0.0.1:{port}"), &address.to_string());
        }
        for (from, to) in changes {
            assert!(configuration.contains(from), "{from}");
            configuration = configuration.replace(from, to);
        }
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        std::fs::create_dir(dir.path().join("temp")).unwrap();
        let mut nginx = start_nginx(dir.path(), &file);
        eventually("nginx to answer", || {
            assert!(nginx.try_wait().unwrap().is_none(), "nginx has ended; what it said stands above");
            status(application, "GET", "/", &[], b"") == Some(200)
        });
        Self { store, files, pages, nginx, _dir: dir, own }
    }

    /// Writes a key; answers its ETag.
    fn put(&self, path: &str, value: &[u8]) -> String {
        let answer = ask(self.store, "PUT", path, &[], value);
        assert!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        let read = ask(self.store, "HEAD", path, &[], b"");
        read.header("ETag").unwrap_or_else(|| panic!("{path} has no ETag: {read:?}")).to_owned()
    }

    fn delete(&self, path: &str) {
        let answer = ask(self.store, "DELETE", path, &[], b"");
        assert!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.nginx.kill();
        let _ = self.nginx.wait();
    }
}

/// One process, so that nothing of it is left when it is ended.
fn start_nginx(dir: &Path, file: &Path) -> Child {
    // Debian keeps it where not everybody's PATH leads.
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap());
    let mut nginx = Command::new("nginx");
    nginx.env("PATH", path).arg("-p").arg(dir).arg("-c").arg(file).args(["-e", "stderr"]);
    nginx.args(["-g", "daemon off; master_process off;"]).stdin(Stdio::null());
    nginx.spawn().expect("nginx is missing: run scripts/setup-clients")
}

fn cache(answer: &Answer) -> &str {
    answer.header("X-Cache").unwrap_or("none")
}

#[test]
fn nginx_revalidates_a_cached_file_by_its_etag() {
    let world = World::start(&[]);
    let path = "/kv/files/firmware/2.1.bin";
    let (old, new): (Vec<u8>, Vec<u8>) = ((0..=255).cycle().take(300_000).collect(), b"new".to_vec());
    let etag = world.put(path, &old);
    let get = |headers: &[(&str, &str)]| ask(world.files, "GET", path, headers, b"");
    let first = get(&[]);
    assert_eq!((first.status, cache(&first), first.header("ETag")), (200, "MISS", Some(&*etag)));
    assert_eq!(first.body, old);
    // It is good for a second. Then the store says that it is the same, and its value does not travel again.
    let mut seen = Vec::new();
    eventually("nginx to revalidate the file", || {
        let answer = get(&[]);
        assert_eq!((answer.status, answer.header("ETag")), (200, Some(&*etag)));
        assert_eq!(answer.body, old);
        seen.push(cache(&answer).to_owned());
        seen.last().is_some_and(|last| last == "REVALIDATED")
    });
    assert!(seen.iter().all(|one| ["HIT", "REVALIDATED"].contains(&one.as_str())), "{seen:?}");
    let same = get(&[("If-None-Match", &etag)]);
    assert_eq!((same.status, same.body.len()), (304, 0));

    let changed = world.put(path, &new);
    assert_ne!(changed, etag);
    eventually("nginx to have the new file", || {
        let answer = get(&[("If-None-Match", &etag)]);
        answer.status == 200 && answer.body == new && answer.header("ETag") == Some(&*changed)
    });
    world.delete(path);
    eventually("nginx to hear that the file is gone", || get(&[]).status == 404);
}

#[test]
fn nginx_serves_ranges_of_a_file() {
    let world = World::start(&[]);
    let path = "/kv/files/map.bin";
    let value: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let etag = world.put(path, &value);
    let range =
        |range: &str, more: &[(&str, &str)]| ask(world.files, "GET", path, &[&[("Range", range)], more].concat(), b"");
    for (asked, from, to) in
        [("bytes=100-199", 100, 199), ("bytes=-4", 399_996, 399_999), ("bytes=399990-", 399_990, 399_999)]
    {
        let answer = range(asked, &[]);
        let expected = format!("bytes {from}-{to}/400000");
        assert_eq!((answer.status, answer.header("Content-Range")), (206, Some(&*expected)), "{asked}");
        assert_eq!(answer.body, value[from..=to], "{asked}");
    }
    let several = range("bytes=0-3,8-11", &[]);
    assert_eq!(several.status, 206);
    assert!(several.header("Content-Type").unwrap().starts_with("multipart/byteranges"), "{several:?}");
    assert!(several.body.windows(4).any(|part| part == &value[8..12]), "{several:?}");
    assert_eq!(range("bytes=400000-", &[]).status, 416);
    assert_eq!(range("bytes=0-3", &[("If-Range", &etag)]).status, 206);
    assert_eq!(range("bytes=0-3", &[("If-Range", "\"another\"")]).status, 200);
}

#[test]
fn nginxs_page_cache_lies_in_a_bucket() {
    let world = World::start(&[]);
    let get = |path: &str| ask(world.pages, "GET", path, &[], b"");
    let kept = |answer: &Answer| answer.header("X-Page-Cache").unwrap_or("none").to_owned();
    for page in ["/", "/guide/first steps.html".replace(' ', "%20").as_str()] {
        let path = if page == "/" { "/index.html" } else { page };
        let first = get(path);
        assert_eq!((first.status, &*kept(&first)), (200, "MISS"), "{path}");
        eventually("the page to be kept", || kept(&get(path)) == "HIT");
        let again = get(path);
        assert_eq!((again.text(), again.header("Content-Type")), (first.text(), first.header("Content-Type")));
        let stored = ask(world.store, "GET", &format!("/kv/pages{path}"), &[], b"");
        let text = stored.text();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(&first.text()), "{path}: {text}");
        // A browser that asks for a part gets it from the page, not from the bucket's value.
        let conditional = ask(world.pages, "GET", path, &[("If-None-Match", stored.header("ETag").unwrap())], b"");
        assert_eq!((conditional.status, conditional.text()), (200, first.text()), "{path}");

        world.delete(&format!("/kv/pages{path}"));
        assert_ne!(get(path).text(), first.text(), "{path}");
    }
    for never in ["/private/account", "/search?q=bolt"] {
        let (first, second) = (get(never), get(never));
        assert!(kept(&second) != "HIT" && first.text() != second.text(), "{never}");
    }
}

#[test]
fn a_page_is_kept_for_its_time() {
    let world = World::start(&[("ttl=60000", "ttl=1500")]);
    if world.own.is_none() {
        return;
    }
    let get = || ask(world.pages, "GET", "/news.html", &[], b"").text();
    let first = get();
    eventually("the page to be kept", || get() == get());
    eventually("the page's time to end", || get() != first);
}
