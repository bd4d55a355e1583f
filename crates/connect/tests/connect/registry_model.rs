//! Random changes, compared with a model of a few maps; the registry is restarted in between.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::World;

#[derive(Debug, Clone)]
enum Change {
    CreateTenant(usize),
    ReplaceTenant(usize, i64, Tag),
    DeleteTenant(usize, Tag),
    CreateDevice(usize, usize, i64),
    ReplaceDevice(usize, usize, i64, Tag),
    DeleteDevice(usize, usize, Tag),
    DeleteDevices(usize),
    ReplaceCredentials(usize, usize, Vec<usize>, Tag),
    Restart,
}

/// The `If-Match` header of a change.
#[derive(Debug, Clone, Copy)]
enum Tag {
    None,
    Current,
    Old,
}

#[derive(Default)]
struct Model(BTreeMap<String, Tenant>);

struct Tenant {
    n: i64,
    tag: String,
    devices: BTreeMap<String, Device>,
}

struct Device {
    n: i64,
    tag: String,
    auth_ids: Vec<String>,
    credentials_tag: String,
}

fn tag() -> impl Strategy<Value = Tag> {
    prop_oneof![3 => Just(Tag::None), 2 => Just(Tag::Current), 1 => Just(Tag::Old)]
}

fn change() -> impl Strategy<Value = Change> {
    let (t, d, n) = (0..3_usize, 0..3_usize, 0..100_i64);
    let auth_ids = proptest::sample::subsequence(vec![0, 1, 2, 3], 0..=2);
    prop_oneof![
        3 => t.clone().prop_map(Change::CreateTenant),
        1 => (t.clone(), n.clone(), tag()).prop_map(|(t, n, tag)| Change::ReplaceTenant(t, n, tag)),
        1 => (t.clone(), tag()).prop_map(|(t, tag)| Change::DeleteTenant(t, tag)),
        8 => (t.clone(), d.clone(), n.clone()).prop_map(|(t, d, n)| Change::CreateDevice(t, d, n)),
        3 => (t.clone(), d.clone(), n, tag()).prop_map(|(t, d, n, tag)| Change::ReplaceDevice(t, d, n, tag)),
        2 => (t.clone(), d.clone(), tag()).prop_map(|(t, d, tag)| Change::DeleteDevice(t, d, tag)),
        1 => t.clone().prop_map(Change::DeleteDevices),
        8 => (t, d, auth_ids, tag()).prop_map(|(t, d, ids, tag)| Change::ReplaceCredentials(t, d, ids, tag)),
        1 => Just(Change::Restart),
    ]
}

const OLD: &str = "\"0000000000000000\"";

impl Model {
    /// The status that `tag` leads to, given the resource's version.
    fn checked(tag: Tag, actual: &str) -> (Option<String>, bool) {
        match tag {
            Tag::None => (None, true),
            Tag::Current => (Some(actual.to_owned()), true),
            Tag::Old => (Some(OLD.to_owned()), false),
        }
    }

    async fn apply(&mut self, world: &World, change: &Change) {
        let name = |index: &usize| format!("t{index}");
        match change {
            Change::CreateTenant(t) => self.create_tenant(world, name(t)).await,
            Change::ReplaceTenant(t, n, tag) => {
                let path = format!("/v1/tenants/{}", name(t));
                let Some(tenant) = self.0.get_mut(&name(t)) else { return expect(world, "PUT", &path, 404).await };
                if let Some(new) = change_one(world, "PUT", &path, &body(*n), *tag, &tenant.tag).await {
                    (tenant.n, tenant.tag) = (*n, new);
                }
            }
            Change::DeleteTenant(t, tag) => {
                let path = format!("/v1/tenants/{}", name(t));
                let Some(tenant) = self.0.get(&name(t)) else { return expect(world, "DELETE", &path, 404).await };
                if change_one(world, "DELETE", &path, "", *tag, &tenant.tag).await.is_some() {
                    self.0.remove(&name(t));
                }
            }
            Change::CreateDevice(t, d, n) => self.create_device(world, &name(t), format!("d{d}"), *n).await,
            Change::ReplaceDevice(t, d, n, tag) => {
                let path = format!("/v1/devices/{}/d{d}", name(t));
                let Some(device) = self.device(&name(t), *d) else { return expect(world, "PUT", &path, 404).await };
                if let Some(new) = change_one(world, "PUT", &path, &body(*n), *tag, &device.tag).await {
                    (device.n, device.tag) = (*n, new);
                }
            }
            Change::DeleteDevice(t, d, tag) => {
                let path = format!("/v1/devices/{}/d{d}", name(t));
                let Some(device) = self.device(&name(t), *d) else { return expect(world, "DELETE", &path, 404).await };
                if change_one(world, "DELETE", &path, "", *tag, &device.tag).await.is_some() {
                    self.0.get_mut(&name(t)).unwrap().devices.remove(&format!("d{d}"));
                }
            }
            Change::DeleteDevices(t) => {
                let status = if self.0.contains_key(&name(t)) { 204 } else { 404 };
                expect(world, "DELETE", &format!("/v1/devices/{}", name(t)), status).await;
                self.0.entry(name(t)).and_modify(|tenant| tenant.devices.clear());
            }
            Change::ReplaceCredentials(t, d, ids, tag) => {
                self.replace_credentials(world, &name(t), *d, ids, *tag).await
            }
            Change::Restart => unreachable!("the caller restarts"),
        }
    }

    fn device(&mut self, tenant: &str, device: usize) -> Option<&mut Device> {
        self.0.get_mut(tenant)?.devices.get_mut(&format!("d{device}"))
    }

    async fn create_tenant(&mut self, world: &World, tenant: String) {
        let answer = world.registry(&format!("POST /v1/tenants/{tenant}"), &[], &body(0)).await;
        if self.0.contains_key(&tenant) {
            return assert_eq!(answer.status, 409);
        }
        assert_eq!(answer.status, 201);
        self.0.insert(tenant, Tenant { n: 0, tag: answer.etag().to_owned(), devices: BTreeMap::new() });
    }

    async fn create_device(&mut self, world: &World, tenant: &str, device: String, n: i64) {
        let answer = world.registry(&format!("POST /v1/devices/{tenant}/{device}"), &[], &body(n)).await;
        let Some(known) = self.0.get_mut(tenant) else { return assert_eq!(answer.status, 404) };
        if known.devices.contains_key(&device) {
            return assert_eq!(answer.status, 409);
        }
        assert_eq!(answer.status, 201);
        let tag = answer.etag().to_owned();
        known.devices.insert(device, Device { n, tag: tag.clone(), auth_ids: Vec::new(), credentials_tag: tag });
    }

    async fn replace_credentials(&mut self, world: &World, tenant: &str, device: usize, ids: &[usize], tag: Tag) {
        let auth_ids: Vec<String> = ids.iter().map(|id| format!("a{id}")).collect();
        let credentials = auth_ids.iter().map(|id| json!({"type": "hashed-password", "auth-id": id}));
        let body = Value::Array(credentials.collect()).to_string();
        let path = format!("/v1/credentials/{tenant}/d{device}");
        let taken = self.0.get(tenant).is_some_and(|known| {
            let others = known.devices.iter().filter(|(other, _)| **other != format!("d{device}"));
            others.flat_map(|(_, other)| &other.auth_ids).any(|id| auth_ids.contains(id))
        });
        let Some(known) = self.device(tenant, device) else {
            return assert_eq!(world.registry(&format!("PUT {path}"), &[], &body).await.status, 404);
        };
        if taken && Self::checked(tag, &known.credentials_tag).1 {
            return assert_eq!(world.registry(&format!("PUT {path}"), &[], &body).await.status, 409);
        }
        if let Some(new) = change_one(world, "PUT", &path, &body, tag, &known.credentials_tag).await {
            (known.auth_ids, known.credentials_tag) = (auth_ids, new);
        }
    }

    /// Compares the whole registry with the model.
    async fn compare(&self, world: &World) {
        for tenant in (0..3).map(|t| format!("t{t}")) {
            let Some(known) = self.0.get(&tenant) else {
                expect(world, "GET", &format!("/v1/tenants/{tenant}"), 404).await;
                continue;
            };
            let read = world.do_registry(&format!("GET /v1/tenants/{tenant}"), "", 200).await;
            assert_eq!((read.etag(), &read.json()["ext"]["n"]), (known.tag.as_str(), &json!(known.n)));
            for device in (0..3).map(|d| format!("d{d}")) {
                let path = format!("/v1/devices/{tenant}/{device}");
                let Some(known) = known.devices.get(&device) else {
                    expect(world, "GET", &path, 404).await;
                    continue;
                };
                let read = world.do_registry(&format!("GET {path}"), "", 200).await;
                assert_eq!((read.etag(), &read.json()["ext"]["n"]), (known.tag.as_str(), &json!(known.n)));
                let read = world.do_registry(&format!("GET /v1/credentials/{tenant}/{device}"), "", 200).await;
                let shown = read.json();
                let ids: Vec<_> =
                    shown.as_array().unwrap().iter().map(|one| one["auth-id"].as_str().unwrap()).collect();
                assert_eq!(
                    (read.etag(), ids),
                    (known.credentials_tag.as_str(), known.auth_ids.iter().map(String::as_str).collect())
                );
            }
        }
        let devices = self.0.values().map(|tenant| tenant.devices.len()).sum::<usize>();
        let stats = world.connect.stats();
        assert_eq!((stats.tenants, stats.devices), (self.0.len() + 1, devices), "and the tenant 'default'");
    }
}

fn body(n: i64) -> String {
    json!({"ext": {"n": n}}).to_string()
}

async fn expect(world: &World, method: &str, path: &str, status: u16) {
    let body = if method == "PUT" { body(1) } else { String::new() };
    let answer = world.registry(&format!("{method} {path}"), &[], &body).await;
    assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
}

/// Changes an existing resource and returns its new version if the condition holds.
async fn change_one(world: &World, method: &str, path: &str, body: &str, tag: Tag, actual: &str) -> Option<String> {
    let (if_match, holds) = Model::checked(tag, actual);
    let headers: Vec<_> = if_match.iter().map(|tag| ("if-match", tag.as_str())).collect();
    let answer = world.registry(&format!("{method} {path}"), &headers, body).await;
    assert_eq!(answer.status, if holds { 204 } else { 412 }, "{method} {path}: {answer:?}");
    holds.then(|| answer.header("etag").unwrap_or_default().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_registry_is_a_few_maps_that_survive_restarts(changes in proptest::collection::vec(change(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut model = Model::default();
            let mut world = World::open(dir.path()).await;
            for change in &changes {
                if let Change::Restart = change {
                    world.stop().await;
                    world = World::open(dir.path()).await;
                    model.compare(&world).await;
                } else {
                    model.apply(&world, change).await;
                }
            }
            model.compare(&world).await;
            world.stop().await;
            let world = World::open(dir.path()).await;
            model.compare(&world).await;
            world.stop().await;
        });
    }
}
