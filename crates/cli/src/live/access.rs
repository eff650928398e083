//! Access to the live view: viewers of the program's own user and of root are accepted, others need a token.

use std::fs;
use std::path::PathBuf;

use heaptide_control::token::{self, Token};

use crate::control::control_client;
use crate::control::running_processes;

/// Returns the folder of the token that this user's server at a port creates.
pub(super) fn token_folder(port: u16) -> PathBuf {
    let name = port.to_string();
    running_processes::own_folder().join("live").join(name)
}

/// The token of one live server.
pub(super) struct ServerToken {
    token: Option<Token>,
    created: Option<PathBuf>,
}

impl ServerToken {
    /// Takes the token from the environment, or creates one. If neither works, only viewers of the same user are accepted.
    pub(super) fn new(port: u16) -> ServerToken {
        if let Ok(Some(chosen)) = control_client::token_of_environment() {
            let token = Some(Token::chosen(chosen));
            return ServerToken {
                token,
                created: None,
            };
        }
        let folder = token_folder(port);
        let created = heaptide_files::private_folder(&folder)
            .is_ok()
            .then_some(folder);
        let token = created.as_ref().and_then(|folder| {
            // An earlier server at this port may have left a token that another program knows by now.
            let _ = fs::remove_file(folder.join(token::FILE));
            Token::in_folder(folder).ok()
        });
        ServerToken { token, created }
    }

    pub(super) fn matches(&self, given: &[u8]) -> bool {
        self.token
            .as_ref()
            .is_some_and(|token| token.matches(given))
    }

    /// Removes the token that was created.
    pub(super) fn remove(&self) {
        if let Some(folder) = &self.created {
            // A failure is ignored: a folder that remains does no harm.
            let _ = fs::remove_dir_all(folder);
        }
    }
}
