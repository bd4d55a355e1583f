//! A client of the device registry: it creates tenants, devices and credentials.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use crate::Error;
use crate::client::{HttpConnection, HttpResponse};
use crate::target::ServerTarget;

/// Highest cost that the registry accepts by default.
const BCRYPT_COST: u32 = 10;

/// Form in which a device's password is sent to the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum SecretForm {
    /// `hash-function: sha-256` with four random bytes of salt.
    #[value(name = "sha-256")]
    Sha256,
    /// `hash-function: sha-512` with four random bytes of salt: cheap for both sides, fit for load tests.
    #[value(name = "sha-512")]
    Sha512,
    /// `hash-function: bcrypt` at a cost of 10.
    Bcrypt,
    /// `pwd-plain`: the registry hashes it with its own, slower function.
    Plain,
}

/// A client of the registry's management API over one connection.
pub(crate) struct RegistryClient {
    connection: HttpConnection,
    token: Option<String>,
}

impl RegistryClient {
    pub(crate) fn new(target: ServerTarget, token: Option<String>) -> Self {
        Self { connection: HttpConnection::to(target), token }
    }

    /// Creates the tenant, unless it exists.
    pub(crate) async fn tenant(&mut self, tenant: &str) -> Result<(), Error> {
        self.create(format!("/v1/tenants/{tenant}"), json!({})).await
    }

    /// Creates the device with the given body, unless it exists.
    pub(crate) async fn device(&mut self, tenant: &str, device: &str, body: Value) -> Result<(), Error> {
        self.create(format!("/v1/devices/{tenant}/{device}"), body).await
    }

    /// Makes `password` the device's only credential, under its device id as `auth-id`.
    pub(crate) async fn password(
        &mut self,
        tenant: &str,
        device: &str,
        password: &str,
        form: SecretForm,
    ) -> Result<(), Error> {
        let secret = match form {
            SecretForm::Sha256 => salted::<Sha256>("sha-256", fastrand::u32(..).to_le_bytes(), password),
            SecretForm::Sha512 => salted::<Sha512>("sha-512", fastrand::u32(..).to_le_bytes(), password),
            SecretForm::Bcrypt => bcrypt_secret(password)?,
            SecretForm::Plain => json!({ "pwd-plain": password }),
        };
        let body = json!([{ "type": "hashed-password", "auth-id": device, "secrets": [secret] }]);
        let path = format!("/v1/credentials/{tenant}/{device}");
        let answer = self.call("PUT", &path, body).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(refused("PUT", path, &answer)) }
    }

    async fn create(&mut self, path: String, body: Value) -> Result<(), Error> {
        let answer = self.call("POST", &path, body).await?;
        match answer.status {
            StatusCode::CREATED | StatusCode::CONFLICT => Ok(()),
            _ => Err(refused("POST", path, &answer)),
        }
    }

    async fn call(&mut self, method: &'static str, path: &str, body: Value) -> Result<HttpResponse, Error> {
        let address = self.connection.target().address.clone();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.connection.target().host())
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).map_err(|error| Error::Option {
            option: "registry-token",
            value: path.to_owned(),
            rule: error.to_string(),
        })?;
        let answer = self.connection.send(request).await;
        answer.map_err(|source| Error::NoAnswer { address, method, path: path.to_owned(), source })
    }
}

impl fmt::Debug for RegistryClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryClient").field("connection", &self.connection).finish_non_exhaustive()
    }
}

fn refused(method: &'static str, path: String, answer: &HttpResponse) -> Error {
    Error::Registry { method, path, status: answer.status.as_u16(), body: answer.excerpt() }
}

/// Hashes the bytes of the salt, then those of the password.
fn salted<D: Digest>(function: &str, salt: [u8; 4], password: &str) -> Value {
    let mut hash = D::new();
    hash.update(salt);
    hash.update(password.as_bytes());
    json!({ "hash-function": function, "salt": BASE64.encode(salt), "pwd-hash": BASE64.encode(hash.finalize()) })
}

fn bcrypt_secret(password: &str) -> Result<Value, Error> {
    let hash = bcrypt::hash(password, BCRYPT_COST).map_err(|error| Error::Option {
        option: "password",
        value: format!("{} bytes", password.len()),
        rule: error.to_string(),
    })?;
    Ok(json!({ "hash-function": "bcrypt", "pwd-hash": hash }))
}

/// Builds the `Authorization` header of `auth-id@tenant` with a password.
pub(crate) fn authorization(auth_id: &str, tenant: &str, password: &str) -> HeaderValue {
    let text = format!("Basic {}", BASE64.encode(format!("{auth_id}@{tenant}:{password}")));
    HeaderValue::from_str(&text).expect("base64 is legal in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salted_sha512_secret_matches_that_of_other_tools() {
        // printf '\x01\x02\x03\x04secret' | openssl dgst -sha512 -binary | base64 -w0
        let hash = "+FMfYvkcZgHUtY6uf5im+5CZU5coaqCy6IlEhlMgtGgS9uVImj9YCzKbchlN+5ohorkpHajkrAV9O/oqzF8wgQ==";
        let expected = json!({ "hash-function": "sha-512", "salt": "AQIDBA==", "pwd-hash": hash });
        assert_eq!(salted::<Sha512>("sha-512", [1, 2, 3, 4], "secret"), expected);
    }

    #[test]
    fn the_header_joins_auth_id_tenant_and_password() {
        assert_eq!(authorization("d1", "acme", "pw"), "Basic ZDFAYWNtZTpwdw==");
    }
}
