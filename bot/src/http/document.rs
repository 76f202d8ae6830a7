//! The API's description as OpenAPI 3.1. A path comes into the API by [`Routes`] and in no other way,
//! and brings its description with it; each listener serves the document of what it routes.

pub(super) mod ids;
pub(super) mod refusals;

use axum::{
    Extension, Router,
    body::Bytes,
    http::header,
    response::{IntoResponse, Response},
};
use utoipa::openapi::{
    ComponentsBuilder, Info, InfoBuilder, License, OpenApi, OpenApiBuilder, PathItem, RefOr,
    path::{Operation, Parameter},
    schema::{Schema, SchemaType, Type},
    security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};
use utoipa_axum::{router::UtoipaMethodRouter, routes};

use super::{Api, gate};

/// The name of the one security scheme.
const TOKEN: &str = "token";
/// What a handler calls the rest of a path, slashes included.
const REST: &str = "{path}";

/// Who comes in by a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Whoever may open the socket.
    Owner,
    /// Whoever has the token.
    Token,
}

/// Paths with their handlers and descriptions.
#[derive(Clone)]
pub(super) struct Routes {
    router: Router<Api>,
    document: OpenApi,
}

impl Routes {
    pub(super) fn new() -> Routes {
        let document = OpenApiBuilder::new().info(info()).build();
        Routes {
            router: Router::new(),
            document,
        }
    }

    /// Handlers of one path: `routes!(one, another)`.
    pub(super) fn with(self, described: UtoipaMethodRouter<Api>) -> Routes {
        self.at(described, |path| vec![path.to_owned()])
    }

    /// A handler whose path ends in `{path}`, which may hold slashes or be empty.
    pub(super) fn with_rest(self, described: UtoipaMethodRouter<Api>) -> Routes {
        self.at(described, |path| {
            let folder = path.trim_end_matches(REST);
            vec![folder.to_owned(), format!("{folder}{{*path}}")]
        })
    }

    #[allow(clippy::disallowed_methods)]
    fn at(
        mut self,
        (schemas, paths, handlers): UtoipaMethodRouter<Api>,
        routed: impl Fn(&str) -> Vec<String>,
    ) -> Routes {
        for (path, item) in paths.paths {
            for path in routed(&path) {
                self.router = self.router.route(&path, handlers.clone());
            }
            let described = self.document.paths.paths.entry(path);
            described.or_default().merge_operations(item);
        }
        let components = self.document.components.get_or_insert_default();
        components.schemas.extend(schemas);
        self
    }

    /// A value that the handlers so far ask for as an extension.
    pub(super) fn holding<T: Clone + Send + Sync + 'static>(self, value: T) -> Routes {
        Routes {
            router: self.router.layer(Extension(value)),
            ..self
        }
    }

    pub(super) fn merge(mut self, other: Routes) -> Routes {
        self.document.merge(other.document);
        Routes {
            router: self.router.merge(other.router),
            ..self
        }
    }

    /// The router of a listener, which also serves its document.
    pub(super) fn served(self, api: Api, door: Door) -> Router {
        let all = self.merge(Routes::new().with(routes!(openapi)));
        let document = Document(completed(all.document, door));
        all.router.layer(Extension(document)).with_state(api)
    }
}

fn info() -> Info {
    InfoBuilder::new()
        .title("Mayfly")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Every chat thread has its own agent; every message gets its own sandbox. Ids of agents \
             and ticks may be given by their end, as long as no other ends so. Whatever is refused \
             is a problem of RFC 9457: programs decide by its `type`, people read its `detail`.",
        ))
        .license(Some(License::new(env!("CARGO_PKG_LICENSE"))))
        .build()
}

/// JSON of the whole.
#[derive(Clone)]
struct Document(Bytes);

/// What is the same for every path, and who may ask.
fn completed(mut document: OpenApi, door: Door) -> Bytes {
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            without_null(operation);
            refusals::complete(path, operation, door);
            if door == Door::Token && gate::OPEN.contains(&path.as_str()) {
                operation.security = Some(Vec::new());
            }
        }
    }
    let mut components = ComponentsBuilder::from(document.components.unwrap_or_default());
    components = refusals::components(components);
    if door == Door::Token {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The content of the data dir's file `token`."));
        let scheme = SecurityScheme::Http(scheme.build());
        components = components.security_scheme(TOKEN, scheme);
        let wanted = SecurityRequirement::new::<_, [&str; 0], &str>(TOKEN, []);
        document.security = Some(vec![wanted]);
    }
    document.components = Some(components.build());
    Bytes::from(serde_json::to_vec(&document).expect("plain data"))
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.patch,
    ];
    all.into_iter().flatten()
}

/// A parameter that is not there is left out; `null` would be a text.
fn without_null(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(Parameter {
            schema: Some(RefOr::T(Schema::Object(schema))),
            ..
        }) = parameter
        else {
            continue;
        };
        if let SchemaType::Array(types) = &mut schema.schema_type {
            types.retain(|kind| *kind != Type::Null);
        }
    }
}

/// This document.
///
/// On the socket it also has what only the owner of this host may ask for.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "service",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object, content_type = "application/json"))
)]
async fn openapi(Extension(Document(json)): Extension<Document>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}
