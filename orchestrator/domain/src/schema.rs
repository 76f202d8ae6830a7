//! The words as JSON Schema, for whoever describes an API: what a reader accepts and writes, no more.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, Schema, SchemaFormat, Type},
    },
};

use crate::{AgentId, BlobHash, MessageId, SandboxRef, SnapshotId, TickId};

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
}

fn uuid(description: &str) -> ObjectBuilder {
    text(description).format(Some(SchemaFormat::Custom("uuid".to_owned())))
}

macro_rules! schema {
    ($($name:ident => $schema:expr;)*) => {
        $(
            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.build().into()
                }
            }

            impl ToSchema for $name {}
        )*
    };
}

schema! {
    AgentId => uuid("One agent.");
    TickId => uuid("One tick: one bounded revival of an agent for one message.");
    MessageId => uuid("One message.");
    SnapshotId => uuid("One immutable state of an agent's files.");
    BlobHash => text("The SHA-256 of a content.").pattern(Some("^[0-9a-f]{64}$"));
    SandboxRef => text("An image on this host: `docker:IMAGE`, or `docker:IMAGE@ID` where it has to be exactly that one.")
        .pattern(Some("^docker:[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}(@[A-Za-z0-9][A-Za-z0-9._/:-]{0,254})?$"))
        .examples(["docker:mayfly/base"]);
}
