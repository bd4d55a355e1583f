//! Alarms of section 18.3 that are of no notification: the log takes nothing, a client sends what cannot be taken.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_context::ContextConfig;
use millstream_log::{File, Files, Lock, SystemFiles};
use serde_json::{Value, json};

use crate::world::{Served, World, log_has_no_disk};

/// A disk on which nothing can be written while it is full.
#[derive(Default, Clone)]
struct Full(Arc<AtomicBool>);

impl Full {
    fn room(&self) -> io::Result<()> {
        if self.0.load(Ordering::Acquire) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn on_it(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(OnIt { disk: self.clone(), file })
    }
}

impl Files for Full {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.room().and_then(|()| SystemFiles.create_dir_all(dir))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        SystemFiles.list(dir)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.on_it(SystemFiles.open(path)?))
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.room()?;
        Ok(self.on_it(SystemFiles.create(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        SystemFiles.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Lock> {
        SystemFiles.lock(path)
    }
}

struct OnIt {
    disk: Full,
    file: Arc<dyn File>,
}

impl File for OnIt {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }
    fn write_at(&self, parts: &[io::IoSlice<'_>], at: u64) -> io::Result<()> {
        self.disk.room().and_then(|()| self.file.write_at(parts, at))
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.disk.room().and_then(|()| self.file.set_size(bytes))
    }
}

/// Those that are raised, asked for by somebody with whom nothing goes wrong.
async fn alarms(served: &Served) -> Value {
    served.ask("GET /statistics\nx-real-ip: 1.1.1.1", None).await.json()["millstream"]["alarms"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_alarm_until_writing_begins_anew() {
    if log_has_no_disk() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Full::default();
    let open = || World::open_on(dir.path(), Arc::new(disk.clone()), Arc::default(), ContextConfig::default());
    let world = open();
    let served = world.serve().await;
    let create = async |served: &Served, id: &str| {
        let body = json!({"id": id}).to_string();
        served.ask("POST /v2/entities", Some(&body)).await.status
    };
    assert_eq!(create(&served, "a").await, 201);
    assert_eq!(alarms(&served).await, Value::Null);
    disk.0.store(true, Ordering::Release);
    for id in ["b", "c"] {
        assert_eq!(create(&served, id).await, 503);
        assert_eq!(alarms(&served).await, json!(["DatabaseError"]));
    }
    assert_eq!(served.get("/v2/entities/a").await.status, 200);
    assert_eq!(alarms(&served).await, json!(["DatabaseError"]), "a read stores nothing");
    served.stop().await;
    world.abandon();
    disk.0.store(false, Ordering::Release);
    let world = open();
    let served = world.serve().await;
    assert_eq!(create(&served, "b").await, 201);
    assert_eq!(alarms(&served).await, Value::Null);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_requests_cannot_be_taken_is_an_alarm_until_one_can() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let as_client = |head: &str| format!("{head}\nx-real-ip: 9.9.9.9");
    for (head, body) in [
        ("POST /v2/entities", Some("{")),
        ("POST /v2/entities", None),
        ("POST /v2/entities\ncontent-type: text/plain", Some("x")),
        ("GET /v2/entities?options=fast", None),
    ] {
        assert!(served.ask(&as_client(head), body).await.status >= 400, "{head}");
        assert_eq!(alarms(&served).await, json!(["BadInput 9.9.9.9"]), "{head}");
        assert_eq!(served.ask(&as_client("GET /v2/entities/none"), None).await.status, 404);
        assert_eq!(alarms(&served).await, json!(["BadInput 9.9.9.9"]), "what is not there is neither");
        assert_eq!(served.ask(&as_client("GET /v2/entities"), None).await.status, 200);
        assert_eq!(alarms(&served).await, Value::Null, "{head}");
    }
    // Read by the fast head; the client is the other end of the connection.
    assert_eq!(served.ask_kept("POST /v2/entities/e/attrs", Some("{")).await.status, 400);
    assert_eq!(alarms(&served).await, json!(["BadInput 127.0.0.1"]));
    assert_eq!(served.ask_kept("POST /v2/entities?options=keyValues", Some(r#"{"id":"e"}"#)).await.status, 201);
    assert_eq!(alarms(&served).await, Value::Null);
    served.stop().await;
    world.close();
}
