//! Whose tokens are made, and where the platform makes, lists and ends them.

/// Whose tokens are made, and of which kind. Ids and names are made of letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenOwner {
    /// A team's described tokens: any number.
    Team {
        /// The team's id, such as `team-6p5jTwJQXwqZBncC`.
        team: String,
        /// The name of its organization, which lists them.
        organization: String,
    },
    /// An agent pool's, by the pool's id: any number. The platform ends none of them by itself.
    AgentPool(String),
    /// A user's, by the user's id: any number. The parent token is that user's too.
    User(String),
    /// An organization's, by its name: one.
    Organization(String),
    /// A team's without a description, by the team's id: one.
    TeamLegacy(String),
}

impl TokenOwner {
    /// Whether it has one token, which ends when another is made.
    pub const fn is_single(&self) -> bool {
        matches!(self, Self::Organization(_) | Self::TeamLegacy(_))
    }

    /// Whether the platform ends its tokens at the time that it is told.
    pub(super) const fn has_expiry(&self) -> bool {
        !matches!(self, Self::AgentPool(_))
    }

    /// The segments of the path where one is made: `POST`, and of single ones `GET` and `DELETE` too.
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

    /// The segments of the path where they are listed; `None` where there is one.
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
