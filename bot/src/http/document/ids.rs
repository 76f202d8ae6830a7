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
const END_OF_ID: &str = "^[0-9A-Fa-f-]{1,36}$";

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
    OfAgent = end_of_id(), "The agent: its id, or the end of it if no other agent's id ends so.";
    /// Stands in the description of a path below `/v1/ticks/{id}`.
    OfTick = end_of_id(), "The tick: its id, or the end of it if no other tick's id ends so.";
    /// Stands in the description of a path below `/v1/messages/{id}`.
    OfMessage = mayfly_domain::MessageId::schema(), "The message's whole id.";
    /// Of a message that is parked.
    OfParked = end_of_id(), "The message: its id, or the end of it if no other parked message's id ends so.";
}

fn end_of_id() -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(END_OF_ID))
        .build()
        .into()
}
