//! Owners of minted tokens, and the API paths that create, list and delete their tokens.

/// Owner and kind of minted tokens. Ids and names consist of letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenOwner {
    /// Team tokens with a description; any number.
    Team {
        /// Team id, such as `team-6p5jTwJQXwqZBncC`.
        team: String,
        /// Name of the organization, which lists the tokens.
        organization: String,
    },
    /// Agent pool tokens, by the pool's id; any number. The platform never expires them.
    AgentPool(String),
    /// User tokens, by the user's id; any number. The parent token belongs to the same user.
    User(String),
    /// Organization token, by name; one.
    Organization(String),
    /// Team token without a description, by the team's id; one.
    TeamLegacy(String),
}

impl TokenOwner {
    /// Returns true if the owner has one token, which minting another revokes.
    pub(crate) const fn is_single(&self) -> bool {
        matches!(self, Self::Organization(_) | Self::TeamLegacy(_))
    }

    /// Returns true if the platform expires these tokens at the requested time.
    pub(super) const fn has_expiry(&self) -> bool {
        !matches!(self, Self::AgentPool(_))
    }

    /// Path segments for `POST`; for single tokens also `GET` and `DELETE`.
    pub(super) fn create_path(&self) -> [&str; 5] {
        let (of, id, what) = match self {
            Self::Team { team, .. } => ("teams", team, "authentication-tokens"),
            Self::AgentPool(id) => ("agent-pools", id, "authentication-tokens"),
            Self::User(id) => ("users", id, "authentication-tokens"),
            Self::Organization(name) => ("organizations", name, "authentication-token"),
            Self::TeamLegacy(id) => ("teams", id, "authentication-token"),
        };
        ["api", "v2", of, id, what]
    }

    /// Path segments of the list; `None` for single tokens.
    pub(super) fn list_path(&self) -> Option<[&str; 5]> {
        match self {
            Self::Team { organization, .. } => Some(["api", "v2", "organizations", organization, "team-tokens"]),
            Self::AgentPool(_) | Self::User(_) => Some(self.create_path()),
            Self::Organization(_) | Self::TeamLegacy(_) => None,
        }
    }
}

impl std::fmt::Display for TokenOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Team { team, .. } => write!(f, "team {team}"),
            Self::AgentPool(id) => write!(f, "agent pool {id}"),
            Self::User(id) => write!(f, "user {id}"),
            Self::Organization(name) => write!(f, "organization {name}"),
            Self::TeamLegacy(id) => write!(f, "team {id}, its one token"),
        }
    }
}
