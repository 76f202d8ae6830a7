//! People who are let in by a code.

use super::{Commands, RequestError, not_found};
use crate::{
    db::pairing::Paired,
    inbox::pairing,
    view::{PairedView, PairingView},
};

impl Commands {
    /// Opens a code for a platform that is switched on. The code before is void.
    pub async fn pair(&self, platform: &str) -> Result<PairingView, RequestError> {
        if !self.accesses.contains_key(platform) {
            return Err(RequestError::Conflict(format!(
                "\"{platform}\" is not switched on here: set its token, and restart mayfly serve"
            )));
        }
        let code = pairing::new_code();
        let expires_at = self
            .db
            .open_pairing(platform, &pairing::hash(&code))
            .await?;
        Ok(PairingView {
            platform: platform.to_owned(),
            code,
            expires_at,
        })
    }

    /// Everybody who was let in.
    pub async fn paired(&self) -> Result<Vec<PairedView>, RequestError> {
        Ok(self.db.paired().await?.into_iter().map(view).collect())
    }

    /// Takes the right to speak back, at once.
    pub async fn unpair(&self, platform: &str, person: &str) -> Result<PairedView, RequestError> {
        let gone = self.db.unpair(platform, person).await?.map(view);
        let hint = ": `mayfly pair list` shows all";
        gone.ok_or_else(|| not_found("paired person", person, hint))
    }
}

fn view(paired: Paired) -> PairedView {
    PairedView {
        platform: paired.platform,
        person: paired.person.id,
        name: paired.person.name,
        since: paired.since,
    }
}
