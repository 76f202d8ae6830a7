//! `plain`: the message on standard input, as text or JSON, the reply on standard output.

use async_trait::async_trait;
use mayfly_init::protocol::CHUNK;

use super::{Output, Prompt, Protocol};
use crate::sandbox::{Control, ControlError};

/// See the module.
#[derive(Debug)]
pub struct Plain;

#[async_trait]
impl Protocol for Plain {
    async fn prompt(
        &self,
        control: &Control,
        id: u32,
        prompt: &Prompt,
    ) -> Result<(), ControlError> {
        for chunk in prompt.written().as_bytes().chunks(CHUNK) {
            control.stdin(id, chunk.to_vec()).await?;
        }
        control.close_stdin(id).await
    }

    fn reply(&self, output: &Output) -> String {
        output.stdout.text().trim_end().to_owned()
    }
}
