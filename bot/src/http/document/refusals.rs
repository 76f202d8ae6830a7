//! The problems that an operation may answer with: most follow from what it takes, the others are
//! named by its description, for example `responses(…, Conflict)`.

use std::collections::BTreeMap;

use serde_json::json;
use utoipa::{
    IntoResponses, PartialSchema,
    openapi::{
        ComponentsBuilder, ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder,
        path::{Operation, ParameterIn},
        schema::{AllOfBuilder, ObjectBuilder, OneOfBuilder, Schema, Type},
    },
};

use super::Door;
use crate::http::{
    gate,
    problem::{KINDS, Problem},
};

macro_rules! refusals {
    ($($name:ident = $kind:literal;)*) => {
        $(
            /// May be answered by an operation whose description has it.
            pub(in crate::http) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    BTreeMap::from([(status($kind), reference($kind))])
                }
            }
        )*
    };
}

refusals! {
    NotFound = "not-found";
    Ambiguous = "ambiguous";
    Conflict = "conflict";
    Unavailable = "unavailable";
}

/// Adds what follows from the operation itself.
pub(super) fn complete(path: &str, operation: &mut Operation, door: Door) {
    let mut kinds = named(operation);
    kinds.extend(implied(path, operation, door));
    let mut of_status = BTreeMap::<String, Vec<&str>>::new();
    for (kind, ..) in KINDS {
        if kinds.contains(&kind) {
            of_status.entry(status(kind)).or_default().push(kind);
        }
    }
    for (status, kinds) in of_status {
        let refused = match kinds[..] {
            [kind] => reference(kind),
            _ => one_of(&kinds).into(),
        };
        operation.responses.responses.insert(status, refused);
    }
}

/// The kinds its description has.
fn named(operation: &Operation) -> Vec<&'static str> {
    let references = operation.responses.responses.values();
    let references = references.filter_map(|response| match response {
        RefOr::Ref(known) => known.ref_location.rsplit('/').next(),
        RefOr::T(_) => None,
    });
    let kind = |name: &str| KINDS.iter().find(|(kind, ..)| *kind == name);
    references
        .filter_map(kind)
        .map(|(kind, ..)| *kind)
        .collect()
}

fn implied(path: &str, operation: &Operation, door: Door) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    let parameters = operation.parameters.iter().flatten();
    let parameters: Vec<_> = parameters
        .filter_map(|parameter| match parameter {
            RefOr::T(parameter) => Some(parameter),
            RefOr::Ref(_) => None,
        })
        .collect();
    if !parameters.is_empty() {
        kinds.push("invalid");
    }
    if parameters
        .iter()
        .any(|one| one.parameter_in == ParameterIn::Path)
    {
        kinds.extend(["not-found", "ambiguous"]);
    }
    if operation.request_body.is_some() {
        kinds.extend(["invalid", "timeout", "too-large", "media-type"]);
    }
    let open = gate::OPEN.contains(&path);
    if !open {
        kinds.push("internal");
    }
    if door == Door::Token {
        kinds.push("forbidden");
        if !open {
            kinds.push("unauthorized");
        }
    }
    kinds
}

/// One response for each kind of problem.
pub(super) fn components(mut components: ComponentsBuilder) -> ComponentsBuilder {
    components = components.schema("Problem", Problem::schema());
    for (kind, ..) in KINDS {
        components = components.response(kind, one(kind));
    }
    components
}

fn one(kind: &str) -> Response {
    let mut response = ResponseBuilder::new()
        .description(title(kind))
        .content("application/problem+json", content(schema(kind)));
    if kind == "unauthorized" {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let header = HeaderBuilder::new().schema(Some(text)).build();
        response = response.header("WWW-Authenticate", header);
    }
    response.build()
}

fn one_of(kinds: &[&str]) -> Response {
    let titles: Vec<&str> = kinds.iter().map(|kind| title(kind)).collect();
    let any = kinds
        .iter()
        .fold(OneOfBuilder::new(), |any, kind| any.item(schema(kind)));
    ResponseBuilder::new()
        .description(titles.join("; "))
        .content("application/problem+json", content(any.build().into()))
        .build()
}

fn content(schema: Schema) -> utoipa::openapi::Content {
    ContentBuilder::new().schema(Some(schema)).build()
}

/// A problem of this kind.
fn schema(kind: &str) -> Schema {
    let only = |of, value| {
        ObjectBuilder::new()
            .schema_type(of)
            .enum_values(Some([value]))
    };
    let known = ObjectBuilder::new()
        .property(
            "type",
            only(Type::String, json!(format!("urn:mayfly:{kind}"))),
        )
        .property("status", only(Type::Integer, json!(code(kind))));
    AllOfBuilder::new()
        .item(Ref::from_schema_name("Problem"))
        .item(known)
        .build()
        .into()
}

fn reference(kind: &str) -> RefOr<Response> {
    Ref::from_response_name(kind).into()
}

fn status(kind: &str) -> String {
    code(kind).to_string()
}

fn code(kind: &str) -> u16 {
    Problem::new(kind, "").status
}

fn title(kind: &str) -> &'static str {
    let known = KINDS.iter().find(|(name, ..)| *name == kind);
    known.map_or("", |(_, title, ..)| title)
}
