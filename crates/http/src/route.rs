//! The declaration of a route: method, path, access, limits, documentation and handler.
//!
//! A handler is served only with all of these, so the OpenAPI document and the pipeline's checks match the code.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request as AxumRequest;
use axum::handler::Handler as AxumHandler;
use axum::http::{HeaderName, Method};
use axum::response::Response;

use crate::openapi::{Docs, Parameter, ParameterPlace, ResponseDoc};
use crate::request::{Answer, Handler, Request};
use crate::{Access, Content, Cors, ErrorStyle, Limits, Observer};

/// A route and its handler.
pub struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) docs: Docs,
    pub(crate) tenant_param: Option<&'static str>,
    pub(crate) keeps_to_scope: bool,
    pub(crate) is_audited: bool,
    /// Most bytes of a body that the handler holds, if it takes bodies as streams.
    pub(crate) stream_memory_bytes: Option<u64>,
    pub(crate) endpoint: Endpoint,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({} {}, {:?})", self.method, self.path, self.access)
    }
}

/// A route without its handler.
#[derive(Debug)]
#[must_use = "a route serves nothing until it has its handler"]
pub struct RouteDraft {
    method: Method,
    path: String,
    access: Access,
    limits: Limits,
    docs: Docs,
    tenant_param: Option<&'static str>,
    keeps_to_scope: bool,
    is_audited: bool,
    stream_memory_bytes: Option<u64>,
}

impl Route {
    /// Starts a route. `path` has parameters in braces, such as `{tenant}`; the last may match the rest of the path,
    /// `{*key}`. `summary` is its line in the documentation. A route for GET also answers HEAD.
    pub fn on(method: Method, path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        RouteDraft {
            method,
            path: path.to_owned(),
            access,
            limits,
            docs: Docs::new(summary),
            tenant_param: None,
            keeps_to_scope: false,
            is_audited: false,
            stream_memory_bytes: None,
        }
    }

    /// Calls [`Route::on`] for the method GET.
    pub fn get(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::GET, path, access, limits, summary)
    }

    /// Calls [`Route::on`] for the method POST.
    pub fn post(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::POST, path, access, limits, summary)
    }

    /// Calls [`Route::on`] for the method PUT.
    pub fn put(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::PUT, path, access, limits, summary)
    }

    /// Calls [`Route::on`] for the method PATCH.
    pub fn patch(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::PATCH, path, access, limits, summary)
    }

    /// Calls [`Route::on`] for the method DELETE.
    pub fn delete(path: &str, access: Access, limits: Limits, summary: &'static str) -> RouteDraft {
        Self::on(Method::DELETE, path, access, limits, summary)
    }
}

impl RouteDraft {
    /// Documents a parameter of the path. Every parameter needs this.
    pub fn param(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(ParameterPlace::Path, name, text)
    }

    /// Documents a parameter of the query.
    pub fn query(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(ParameterPlace::Query, name, text)
    }

    /// Documents a parameter of the query without which the route refuses a request.
    pub fn required_query(mut self, name: &'static str, text: &'static str) -> Self {
        self.docs.parameters.push(Parameter { place: ParameterPlace::Query, name, text, is_required: true });
        self
    }

    /// Documents a header of the request.
    pub fn header(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(ParameterPlace::Header, name, text)
    }

    /// Documents a body of one media type.
    pub fn takes(mut self, content: Content) -> Self {
        self.docs.bodies.push(content);
        self
    }

    /// Documents an answer, one without a body below status 400, above with the body of the group's [`ErrorStyle`]. Every
    /// route needs one answer. The pipeline's refusals (400, 401, 403, 408, 413, 414, 415, 429, 431, 500, 501, 503) are
    /// added as the route's access and bodies imply them; a route repeats one only to say more. A server that
    /// [checks statuses](crate::ApiBuilder::checking_statuses) answers 500 in place of one that is not documented.
    pub fn answers(mut self, status: u16, text: &'static str) -> Self {
        self.docs.answers.push(ResponseDoc { status, text, content: None });
        self
    }

    /// Documents an answer with a body of its own. Several answers of one status are documented as one.
    pub fn answers_with(mut self, status: u16, text: &'static str, content: Content) -> Self {
        self.docs.answers.push(ResponseDoc { status, text, content: Some(content) });
        self
    }

    /// Takes the tenant from the path parameter `name` instead of the headers.
    pub fn tenant_in(mut self, name: &'static str) -> Self {
        self.tenant_param = Some(name);
        self
    }

    /// Admits callers with a limited [`AccessScope`](millstream_types::AccessScope), to which the handler keeps. Other
    /// routes refuse them.
    pub fn keeps_to_scope(mut self) -> Self {
        self.keeps_to_scope = true;
        self
    }

    /// Keeps requests in the listener's audit trail. Requests that change something and take the role of an administrator
    /// are in it without this.
    pub fn audited(mut self) -> Self {
        self.is_audited = true;
        self
    }

    /// Charges a request for at most `memory_bytes` of its body, as the handler takes larger bodies as streams
    /// ([`Answer::Stream`]) and never holds more of one.
    pub fn streams(mut self, memory_bytes: u64) -> Self {
        self.stream_memory_bytes = Some(memory_bytes);
        self
    }

    /// Adds the handler, an async function of extractors, and its state.
    pub fn to<H, T, S>(self, handler: H, state: S) -> Route
    where
        H: AxumHandler<T, S, Future = HandlerFuture>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        self.ending_in(Endpoint::Extractors(Box::new(Bound { handler, state, arguments: PhantomData })))
    }

    /// Adds the handler, a function of the request. The fast head serves such a route, unless hyper has to read the
    /// request. A handler that needs the body asks for it with [`Request::body`] after it has checked the head: hyper
    /// reads the body then and calls the handler again.
    pub fn answered_by(self, handler: impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static) -> Route {
        self.ending_in(Endpoint::Handler(Box::new(handler)))
    }

    fn ending_in(self, endpoint: Endpoint) -> Route {
        let Self { method, path, access, limits, docs, tenant_param, keeps_to_scope, is_audited, stream_memory_bytes } =
            self;
        Route {
            method,
            path,
            access,
            limits,
            docs,
            tenant_param,
            keeps_to_scope,
            is_audited,
            stream_memory_bytes,
            endpoint,
        }
    }

    fn parameter(mut self, place: ParameterPlace, name: &'static str, text: &'static str) -> Self {
        self.docs.parameters.push(Parameter { place, name, text, is_required: place == ParameterPlace::Path });
        self
    }
}

/// The future of a handler that is an async function.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The end of a route.
pub(crate) enum Endpoint {
    /// A handler that both heads call.
    Handler(Handler),
    /// A handler of axum's extractors, which need hyper.
    Extractors(Box<dyn Extractors>),
}

/// A handler of extractors without its generic types.
pub(crate) trait Extractors: Send + Sync {
    fn call(&self, request: AxumRequest) -> HandlerFuture;
}

struct Bound<H, T, S> {
    handler: H,
    state: S,
    arguments: PhantomData<fn() -> T>,
}

impl<H, T, S> Extractors for Bound<H, T, S>
where
    H: AxumHandler<T, S, Future = HandlerFuture>,
    S: Clone + Send + Sync + 'static,
{
    fn call(&self, request: AxumRequest) -> HandlerFuture {
        self.handler.clone().call(request, self.state.clone())
    }
}

/// Routes of one plane with a common error style and CORS rule.
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
    /// Starts an empty set of routes. `name` is their tag in the documentation.
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

    /// Renders the problems of these routes, and of unknown paths that begin with `prefix`, in `style`.
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

    /// Copies the request's `header` to every answer, refusals included; without one, the answer carries the trace id.
    #[must_use]
    pub fn echo(mut self, header: HeaderName) -> Self {
        self.echoed = Some(header);
        self
    }

    /// Reports every authenticated request of these routes to `observer`.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Allows a slash at the end of every path, but for those whose last parameter takes slashes.
    #[must_use]
    pub fn trailing_slash(mut self) -> Self {
        self.takes_trailing_slash = true;
        self
    }

    /// Adds a route to the group.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }
}
