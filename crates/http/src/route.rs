//! A route as it is declared: method, path, who may call, limits, what the documentation says, and the handler.
//!
//! There is no way to serve a handler without saying all of this, so the OpenAPI document and the checks at the rim
//! cannot drift from the code.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderName, Method};
use axum::response::Response;
use millstream_types::Role;
use percent_encoding::percent_decode_str;

use crate::openapi::{Answer, Docs, Parameter, ParameterPlace};
use crate::plain::{PlainAnswer, PlainRequest, PlainRoute};
use crate::{Content, Cors, ErrorStyle, Observer, Problem, Reason};

/// Most parameters that one path may have.
pub const PATH_PARAMS_MAX: usize = 6;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody; nobody is asked who he is, and the handler gets no caller.
    Public,
    /// Callers with this role in the tenant of the request.
    Role(Role),
    /// Callers with this role in every tenant: for what concerns the whole installation.
    Operator(Role),
    /// Devices that proved themselves.
    Device,
}

impl Access {
    pub(crate) const fn role(self) -> Option<Role> {
        match self {
            Self::Public => None,
            Self::Role(role) | Self::Operator(role) => Some(role),
            Self::Device => Some(Role::Device),
        }
    }
}

/// What one request of a route may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body, bytes; 0 takes none.
    pub body_max_bytes: u64,
    /// The setting that changes it, as the refusal names it.
    pub body_max_setting: &'static str,
    /// Time from the request's head to the head of its answer; a `Request-Timeout` header can only lower it.
    pub timeout: Duration,
}

/// A route and its handler.
pub struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) docs: Docs,
    pub(crate) tenant_param: Option<&'static str>,
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) plain: Option<PlainRoute>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({} {}, {:?})", self.method, self.path, self.access)
    }
}

/// A route that still lacks its handler.
#[derive(Debug)]
#[must_use = "a route serves nothing until it has its handler"]
pub struct RouteDraft {
    method: Method,
    path: String,
    access: Access,
    limits: Limits,
    docs: Docs,
    tenant_param: Option<&'static str>,
}

impl Route {
    /// Begins a route. `path` has parameters in braces, `{tenant}`, the last of which may take the rest, `{*key}`;
    /// `summary` is its line in the documentation. A route for GET also answers HEAD.
    pub fn on(method: Method, path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        RouteDraft { method, path: path.to_owned(), access, limits, docs: Docs::new(summary), tenant_param: None }
    }

    /// Takes plain requests by a function, without the handler: those that have, beside headers that mean nothing here,
    /// only `headers` (in small letters). What it does not pass on it answers as the handler would have.
    #[must_use]
    pub fn plain(
        mut self,
        headers: &'static [&'static str],
        take: impl Fn(&PlainRequest<'_>) -> PlainAnswer + Send + Sync + 'static,
    ) -> Self {
        self.plain = Some(PlainRoute { headers, take: Box::new(take) });
        self
    }

    /// [`Route::on`] for GET.
    pub fn get(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::GET, path, access, limits, summary)
    }

    /// [`Route::on`] for POST.
    pub fn post(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::POST, path, access, limits, summary)
    }

    /// [`Route::on`] for PUT.
    pub fn put(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::PUT, path, access, limits, summary)
    }

    /// [`Route::on`] for PATCH.
    pub fn patch(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::PATCH, path, access, limits, summary)
    }

    /// [`Route::on`] for DELETE.
    pub fn delete(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::DELETE, path, access, limits, summary)
    }
}

impl RouteDraft {
    /// Documents a parameter of the path. Each must be.
    pub fn param(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(ParameterPlace::Path, name, text)
    }

    /// Documents a parameter of the query.
    pub fn query(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(ParameterPlace::Query, name, text)
    }

    /// Documents a header of the request.
    pub fn header(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(ParameterPlace::Header, name, text)
    }

    /// Documents a body that the route takes; one call for each media type.
    pub fn takes(mut self, content: Content) -> Self {
        self.docs.bodies.push(content);
        self
    }

    /// Documents an answer without a body. Each route has at least one answer; those of the rim are added by it.
    pub fn answers(mut self, status: u16, text: &'static str) -> Self {
        self.docs.answers.push(Answer { status, text, content: None });
        self
    }

    /// Documents an answer with a body.
    pub fn answers_with(mut self, status: u16, text: &'static str, content: Content) -> Self {
        self.docs.answers.push(Answer { status, text, content: Some(content) });
        self
    }

    /// The path's parameter `name` is the tenant of the request; headers that name one are not looked at.
    pub fn tenant_in(mut self, name: &'static str) -> Self {
        self.tenant_param = Some(name);
        self
    }

    /// Completes the route with an async function of extractors and the state that it is called with.
    pub fn to<H, T, S>(self, handler: H, state: S) -> Route
    where
        H: Handler<T, S, Future = HandlerFuture>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        let Self { method, path, access, limits, docs, tenant_param } = self;
        let endpoint = Box::new(Bound { handler, state, arguments: PhantomData });
        Route { method, path, access, limits, docs, tenant_param, endpoint, plain: None }
    }

    fn parameter(mut self, place: ParameterPlace, name: &'static str, text: &'static str) -> Self {
        self.docs.parameters.push(Parameter { place, name, text });
        self
    }
}

/// The future of a handler that is an async function.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler whose extractors are out of sight.
pub(crate) trait Endpoint: Send + Sync {
    fn call(&self, request: Request) -> HandlerFuture;
}

struct Bound<H, T, S> {
    handler: H,
    state: S,
    arguments: PhantomData<fn() -> T>,
}

impl<H, T, S> Endpoint for Bound<H, T, S>
where
    H: Handler<T, S, Future = HandlerFuture>,
    S: Clone + Send + Sync + 'static,
{
    fn call(&self, request: Request) -> HandlerFuture {
        self.handler.clone().call(request, self.state.clone())
    }
}

/// Routes of one plane that share an error style and a CORS rule.
pub struct Routes {
    pub(crate) name: &'static str,
    pub(crate) prefix: Option<&'static str>,
    pub(crate) style: Option<ErrorStyle>,
    pub(crate) cors: Option<Cors>,
    pub(crate) echoed: Option<HeaderName>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) takes_trailing_slash: bool,
    pub(crate) routes: Vec<Route>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Routes({}, {:?})", self.name, self.routes)
    }
}

impl Routes {
    /// No routes yet. `name` groups them in the documentation.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            prefix: None,
            style: None,
            cors: None,
            echoed: None,
            observer: None,
            takes_trailing_slash: false,
            routes: Vec::new(),
        }
    }

    /// Renders every problem of these routes by `style`, and those of unknown paths that begin with `prefix`.
    #[must_use]
    pub fn errors(mut self, prefix: &'static str, style: ErrorStyle) -> Self {
        self.prefix = Some(prefix);
        self.style = Some(style);
        self
    }

    /// Lets pages of other origins call these routes.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = Some(cors);
        self
    }

    /// Every answer carries the request's `header`, refusals of the rim included; the trace id if it has none.
    #[must_use]
    pub fn echo(mut self, header: HeaderName) -> Self {
        self.echoed = Some(header);
        self
    }

    /// Tells `observer` of every request of these routes whose caller is known.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// A path that ends in no parameter may end in a slash as well.
    #[must_use]
    pub fn trailing_slash(mut self) -> Self {
        self.takes_trailing_slash = true;
        self
    }

    /// Adds a route.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }
}

/// Where the parameters of a request's path lie in it; found once, decoded when asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathParams {
    names: Arc<[String]>,
    ranges: [(u16, u16); PATH_PARAMS_MAX],
}

impl PathParams {
    /// `values` are slices of `path`, in the order of `names`.
    pub(crate) fn new<'p>(names: &Arc<[String]>, path: &'p str, values: impl Iterator<Item = &'p str>) -> Self {
        let mut ranges = [(0, 0); PATH_PARAMS_MAX];
        for (range, value) in ranges.iter_mut().zip(values) {
            let start = value.as_ptr() as usize - path.as_ptr() as usize;
            *range = (start as u16, (start + value.len()) as u16);
        }
        Self { names: names.clone(), ranges }
    }

    /// Name and decoded value of the parameter at `index`.
    pub(crate) fn at<'a>(&'a self, path: &'a str, index: usize) -> Result<(&'a str, Cow<'a, str>), Problem> {
        let name =
            self.names.get(index).ok_or_else(|| Problem::internal("the path has fewer parameters than asked for"))?;
        let raw = self.raw(path, index);
        let value = percent_decode_str(raw).decode_utf8().map_err(|_| {
            Problem::new(Reason::MalformedParameter, format!("path parameter '{name}' is not UTF-8 once decoded"))
                .value(raw)
                .remedy("percent-encode UTF-8")
        })?;
        Ok((name, value))
    }

    /// The parameter at `index` as it stands in the path; empty if there is none.
    pub(crate) fn raw<'a>(&self, path: &'a str, index: usize) -> &'a str {
        let (start, end) = self.ranges.get(index).copied().unwrap_or_default();
        path.get(start as usize..end as usize).unwrap_or_default()
    }

    pub(crate) fn get<'a>(&'a self, path: &'a str, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        match self.names.iter().position(|known| known == name) {
            Some(index) => self.at(path, index).map(|(_, value)| Some(value)),
            None => Ok(None),
        }
    }
}
