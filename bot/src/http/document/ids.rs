//! The names in paths.

use utoipa::{
    IntoParams, PartialSchema,
    openapi::{
        Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::{ObjectBuilder, Schema, Type},
    },
};

/// An id or the end of one.
const END_OF_ID: &str = "^-*([0-9A-Fa-f]-*){1,32}$";
/// As much of it as a change wants.
const ENOUGH_OF_ID: &str = "^-*([0-9A-Fa-f]-*){4,32}$";

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $schema:expr, $description:literal;)*) => {
        $(
            $(#[$doc])*
            pub(in crate::http) struct $name;

            impl IntoParams for $name {
                fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                    let parameter = ParameterBuilder::new()
                        .name("id")
                        .parameter_in(ParameterIn::Path)
                        .required(Required::True)
                        .description(Some($description))
                        .schema(Some($schema));
                    vec![parameter.build()]
                }
            }
        )*
    };
}

ids! {
    /// Stands in the description of a path below `/v1/agents/{id}`.
    OfAgent = like(END_OF_ID), "The agent: its id, or the end of it if no other agent's id ends so.";
    /// As `OfAgent`, where something is changed.
    OfAgentToChange = like(ENOUGH_OF_ID), "The agent: its id, or at least the last four digits of it if no other agent's id ends so.";
    /// Stands in the description of a path below `/v1/ticks/{id}`.
    OfTick = like(END_OF_ID), "The tick: its id, or the end of it if no other tick's id ends so.";
    /// Stands in the description of a path below `/v1/messages/{id}`.
    OfMessage = mayfly_domain::MessageId::schema(), "The message's whole id.";
    /// Of a message that is parked.
    OfParked = like(ENOUGH_OF_ID), "The message: its id, or at least the last four digits of it if no other parked message's id ends so.";
}

fn like(pattern: &str) -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .build()
        .into()
}
