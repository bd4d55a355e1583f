//! The routes of a listener, put together once at start: found by path, checked for completeness, documented.

use std::sync::Arc;

use axum::http::header::ORIGIN;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::head::Headers;

use crate::openapi::{Operation, document};
use crate::path_params::{PATH_PARAMS_MAX, PathParams};
use crate::problem::PROBLEM_STYLE;
use crate::route::Endpoint;
use crate::route_metrics::RouteMetrics;
use crate::{Access, Content, Cors, Error, ErrorStyle, Limits, Observer, Route, Routes, TraceContext};
use millstream_net::{LogRateLimit, Metrics};

/// All routes of a listener, with their metrics and their OpenAPI document.
pub struct Api {
    paths: matchit::Router<usize>,
    entries: Vec<PathEntry>,
    scopes: Vec<(&'static str, Arc<Group>)>,
    rest: Arc<Group>,
    pub(crate) unmatched: RouteMetrics,
    /// The HTML page for browsers at unknown paths.
    pub(crate) stray_page: Option<StrayPage>,
    /// `true` if the fast head can serve a route.
    pub(crate) has_fast_routes: bool,
    checks_statuses: bool,
    document: Arc<str>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Api({} paths)", self.entries.len())
    }
}

/// Settings that the routes of one [`Routes`] share.
pub(crate) struct Group {
    pub(crate) style: Option<ErrorStyle>,
    pub(crate) cors: Option<Cors>,
    pub(crate) echoed: Option<HeaderName>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Bounds the log lines about requests that the server could not serve (503, 504).
    pub(crate) log_limit: LogRateLimit,
}

impl Group {
    /// The header that every answer of the group carries, if one is configured.
    pub(crate) fn echo(&self, headers: Headers<'_>, trace: TraceContext) -> Option<(HeaderName, HeaderValue)> {
        let name = self.echoed.as_ref()?;
        let given = headers.get(name.as_str()).filter(|value| !value.is_empty());
        let value = given.and_then(|value| HeaderValue::from_bytes(value).ok());
        Some((name.clone(), value.unwrap_or_else(|| trace.id_as_uuid())))
    }

    /// The page whose CORS headers every answer of the group carries, if the group has a rule for pages.
    pub(crate) fn page(&self, headers: Headers<'_>) -> Option<HeaderValue> {
        self.cors.as_ref()?;
        headers.get(ORIGIN.as_str()).and_then(|origin| HeaderValue::from_bytes(origin).ok())
    }
}

/// All methods of one path.
pub(crate) struct PathEntry {
    pub(crate) group: Arc<Group>,
    pub(crate) allow: HeaderValue,
    params: Arc<[String]>,
    methods: Vec<(Method, Arc<MountedRoute>)>,
}

/// A route with its group and metrics.
pub(crate) struct MountedRoute {
    pub(crate) path: String,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) tenant_param: Option<&'static str>,
    pub(crate) keeps_to_scope: bool,
    pub(crate) is_audited: bool,
    pub(crate) stream_memory_bytes: Option<u64>,
    /// The documented statuses; `None` if they are not checked.
    pub(crate) statuses: Option<Vec<u16>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) group: Arc<Group>,
    pub(crate) metrics: RouteMetrics,
}

/// The result of matching a request's path and method.
pub(crate) enum RouteMatch<'a> {
    Route(&'a Arc<MountedRoute>, PathParams),
    MethodNotAllowed(&'a PathEntry),
    NotFound(&'a Arc<Group>),
}

impl Api {
    /// Starts an API. `name` labels its metrics; title and version appear in its OpenAPI document.
    pub fn builder(name: &'static str, title: &str, version: &str) -> ApiBuilder {
        ApiBuilder {
            name,
            title: title.to_owned(),
            version: version.to_owned(),
            groups: Vec::new(),
            document_at: None,
            stray_page: None,
            checks_statuses: false,
        }
    }

    /// The OpenAPI 3.1 document, JSON.
    pub fn openapi(&self) -> &str {
        &self.document
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        let Ok(found) = self.paths.at(path) else { return RouteMatch::NotFound(self.scope(path)) };
        let entry = &self.entries[*found.value];
        match entry.route(method) {
            Some(route) => {
                let values = found.params.iter().map(|(_, value)| value);
                RouteMatch::Route(route, PathParams::new(&entry.params, path, values))
            }
            None => RouteMatch::MethodNotAllowed(entry),
        }
    }

    /// The group whose style answers an unknown path.
    fn scope(&self, path: &str) -> &Arc<Group> {
        let within = self.scopes.iter().filter(|(prefix, _)| path.starts_with(prefix));
        within.max_by_key(|(prefix, _)| prefix.len()).map_or(&self.rest, |(_, group)| group)
    }

    /// Returns `true` if `group` is the default group for paths without a prefix of their own.
    pub(crate) fn is_rest(&self, group: &Arc<Group>) -> bool {
        Arc::ptr_eq(group, &self.rest)
    }
}

impl PathEntry {
    /// Finds the route of a method. A route for GET also answers HEAD; hyper omits the body.
    fn route(&self, method: &Method) -> Option<&Arc<MountedRoute>> {
        let of = |wanted: &Method| self.methods.iter().find(|(known, _)| known == wanted).map(|(_, route)| route);
        of(method).or_else(|| if method == Method::HEAD { of(&Method::GET) } else { None })
    }

    fn render_allow(&mut self) {
        let mut names: Vec<&str> = self.methods.iter().map(|(method, _)| method.as_str()).collect();
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        names.sort_unstable();
        self.allow = HeaderValue::try_from(names.join(", ")).expect("methods are ASCII");
    }
}

/// Collects the routes of all planes that share a listener.
#[derive(Debug)]
#[must_use = "an API answers nothing until it is built"]
pub struct ApiBuilder {
    name: &'static str,
    title: String,
    version: String,
    groups: Vec<Routes>,
    document_at: Option<Limits>,
    stray_page: Option<StrayPage>,
    checks_statuses: bool,
}

/// Makes the page for browsers at unknown paths.
#[derive(Clone)]
pub(crate) struct StrayPage(Arc<dyn Fn(&str) -> Response + Send + Sync>);

impl StrayPage {
    pub(crate) fn answer(&self, path: &str) -> Response {
        (StatusCode::NOT_FOUND, (self.0)(path)).into_response()
    }
}

impl std::fmt::Debug for StrayPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StrayPage")
    }
}

impl ApiBuilder {
    /// Adds the routes of a plane to the API.
    pub fn with(mut self, routes: Routes) -> Self {
        self.groups.push(routes);
        self
    }

    /// Sends the page that this makes for an unknown path, with its headers and status 404, to a client that asks for HTML
    /// there; other clients get a problem.
    pub fn with_stray_page(mut self, page: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        self.stray_page = Some(StrayPage(Arc::new(page)));
        self
    }

    /// Answers 500 in place of a status that a route does not document. For tests.
    pub fn checking_statuses(mut self, checks_statuses: bool) -> Self {
        self.checks_statuses = checks_statuses;
        self
    }

    /// Serves the OpenAPI document at `/openapi.json`, without authentication.
    pub fn with_openapi(mut self, limits: Limits) -> Self {
        self.document_at = Some(limits);
        self
    }

    /// Checks the routes and builds the API.
    ///
    /// # Errors
    /// [`Error::DuplicateRoute`], [`Error::InvalidPath`] or [`Error::Undocumented`], if a route breaks a rule.
    ///
    /// # Panics
    /// If an API of the same name counts into the same metrics.
    pub fn build(mut self, metrics: &Metrics) -> Result<Api, Error> {
        let text = Arc::new(std::sync::OnceLock::<Arc<str>>::new());
        if let Some(limits) = self.document_at {
            self.groups.push(Routes::new("documentation").route(document_route(limits, text.clone())));
        }
        let document: Arc<str> = self.render()?.into();
        // The route is new, so its text is still unset.
        let _ = text.set(document.clone());
        let mut api = Api {
            paths: matchit::Router::new(),
            entries: Vec::new(),
            scopes: Vec::new(),
            rest: Arc::new(Group {
                style: None,
                cors: None,
                echoed: None,
                observer: None,
                log_limit: LogRateLimit::default(),
            }),
            unmatched: RouteMetrics::new(metrics, self.name, "(none)", "(any)"),
            stray_page: self.stray_page,
            has_fast_routes: false,
            checks_statuses: self.checks_statuses,
            document,
        };
        for routes in self.groups {
            api.add(routes, self.name, metrics)?;
        }
        api.entries.iter_mut().for_each(PathEntry::render_allow);
        Ok(api)
    }

    fn render(&self) -> Result<String, Error> {
        let mut operations = Vec::new();
        for group in &self.groups {
            for route in &group.routes {
                check_documented(group.name, route)?;
                operations.push(Operation {
                    group: group.name,
                    style: group.style.as_ref().unwrap_or(&PROBLEM_STYLE),
                    method: &route.method,
                    path: &route.path,
                    access: route.access,
                    keeps_to_scope: route.keeps_to_scope,
                    limits: &route.limits,
                    docs: &route.docs,
                });
            }
        }
        Ok(document(&self.title, &self.version, &operations).to_string())
    }
}

impl Api {
    fn add(&mut self, routes: Routes, api: &'static str, metrics: &Metrics) -> Result<(), Error> {
        let Routes { style, cors, echoed, observer, .. } = &routes;
        let (cors, echoed, observer) = (cors.clone(), echoed.clone(), observer.clone());
        let group = Group { style: *style, cors, echoed, observer, log_limit: LogRateLimit::default() };
        let group = Arc::new(group);
        self.scopes.extend(routes.prefix.map(|prefix| (prefix, group.clone())));
        for route in routes.routes {
            let with_slash =
                Some(format!("{}/", route.path)).filter(|path| routes.takes_trailing_slash && !path.contains("{*"));
            let at = self.add_route(route, routes.name, &group, |route| {
                RouteMetrics::new(metrics, api, &route.path, route.method.as_str())
            })?;
            // Another method of the path may have inserted it already.
            with_slash.into_iter().for_each(|path| drop(self.paths.insert(path, at)));
        }
        Ok(())
    }

    fn add_route(
        &mut self,
        route: Route,
        name: &'static str,
        group: &Arc<Group>,
        metrics: impl FnOnce(&Route) -> RouteMetrics,
    ) -> Result<usize, Error> {
        let duplicate =
            || Error::DuplicateRoute { method: route.method.clone(), path: route.path.clone(), group: name };
        let params: Arc<[String]> = path_params(&route.path).into();
        let known = self
            .entries
            .iter()
            .position(|entry| entry.methods.first().is_some_and(|(_, first)| shape(&first.path) == shape(&route.path)));
        let at = match known {
            Some(at) if *self.entries[at].params != *params => {
                let rule = "another route has the same path with other names of parameters; use the same".to_owned();
                return Err(Error::InvalidPath { path: route.path, group: name, rule });
            }
            Some(at) => at,
            None => {
                if let Err(error) = self.paths.insert(route.path.as_str(), self.entries.len()) {
                    return Err(match error {
                        matchit::InsertError::Conflict { .. } => duplicate(),
                        other => Error::InvalidPath { path: route.path, group: name, rule: other.to_string() },
                    });
                }
                let allow = HeaderValue::from_static("");
                self.entries.push(PathEntry { group: group.clone(), allow, params, methods: Vec::new() });
                self.entries.len() - 1
            }
        };
        if self.entries[at].methods.iter().any(|(method, _)| *method == route.method) {
            return Err(duplicate());
        }
        let metrics = metrics(&route);
        let Route {
            method,
            path,
            access,
            limits,
            tenant_param,
            keeps_to_scope,
            is_audited,
            stream_memory_bytes,
            endpoint,
            docs,
        } = route;
        let statuses = self.checks_statuses.then(|| docs.statuses(access));
        let is_audited = is_audited || access.administers(&method);
        self.has_fast_routes |= matches!(endpoint, Endpoint::Handler(_));
        let group = group.clone();
        let served = MountedRoute {
            path,
            access,
            limits,
            tenant_param,
            keeps_to_scope,
            is_audited,
            stream_memory_bytes,
            statuses,
            endpoint,
            group,
            metrics,
        };
        self.entries[at].methods.push((method, Arc::new(served)));
        Ok(at)
    }
}

fn check_documented(group: &'static str, route: &Route) -> Result<(), Error> {
    let params = path_params(&route.path);
    let invalid = |rule: String| Err(Error::InvalidPath { path: route.path.clone(), group, rule });
    if params.len() > PATH_PARAMS_MAX {
        return invalid(format!("it has more than {PATH_PARAMS_MAX} parameters"));
    }
    if let Some(name) = route.tenant_param.filter(|name| !params.iter().any(|param| param == name)) {
        return invalid(format!("its tenant is said to be in '{name}', which is none of its parameters"));
    }
    match route.docs.missing(&params) {
        Some(missing) => {
            Err(Error::Undocumented { method: route.method.clone(), path: route.path.clone(), group, missing })
        }
        None => Ok(()),
    }
}

/// Names of the parameters in `path`, in order.
fn path_params(path: &str) -> Vec<String> {
    let parts = path.split('{').skip(1).filter_map(|part| part.split_once('}'));
    parts.map(|(name, _)| name.trim_start_matches('*').to_owned()).collect()
}

/// The path without the names of its parameters. Two paths of one shape match the same requests.
fn shape(path: &str) -> String {
    let mut shape = String::with_capacity(path.len());
    let mut in_name = false;
    for c in path.chars() {
        match c {
            '}' => in_name = false,
            '{' => {
                in_name = true;
                shape.push('{');
            }
            '*' if in_name => shape.push('*'),
            c if !in_name => shape.push(c),
            _ => {}
        }
    }
    shape
}

fn document_route(limits: Limits, text: Arc<std::sync::OnceLock<Arc<str>>>) -> Route {
    use axum::extract::State;
    use axum::http::header::CONTENT_TYPE;
    async fn show(State(text): State<Arc<std::sync::OnceLock<Arc<str>>>>) -> impl axum::response::IntoResponse {
        let text: String = text.get().map(|text| text.to_string()).unwrap_or_default();
        ([(CONTENT_TYPE, "application/json")], text)
    }
    Route::get("/openapi.json", Access::Public, limits, "This document")
        .answers_with(200, "OpenAPI 3.1.", Content::json(serde_json::json!({"type": "object"})))
        .to(show, text)
}
