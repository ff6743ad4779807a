//! The model: lists of all created objects, and simple rules.

use serde_json::{Value, json};

/// Numbers choose among all created objects, in any namespace, deleted or not.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Policy {
        which: Option<u8>,
        name: u8,
        level: u8,
    },
    Role {
        which: Option<u8>,
        name: u8,
        policies: Vec<u8>,
    },
    Token {
        which: Option<u8>,
        policies: Vec<u8>,
        roles: Vec<u8>,
        local: bool,
        more: u8,
    },
    Clone(u8),
    Delete(ObjectKind, u8),
    Read(ObjectKind, u8),
    /// Tokens; with a number only those that link this policy.
    List(Option<u8>),
    ReadSelf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Policy,
    Role,
    Token,
}

/// Expected response: contents, or a status and the start of its text.
pub(super) type Wanted = Result<Value, (u16, String)>;

/// A policy, role or token.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelObject {
    pub(super) id: String,
    /// In namespace `team`; otherwise in `default`.
    pub(super) team: bool,
    there: bool,
    /// Description of a token.
    pub(super) name: String,
    /// Level of a policy.
    level: usize,
    /// Indexes in the model's list.
    policies: Vec<usize>,
    roles: Vec<usize>,
    pub(super) secret: String,
    local: bool,
    /// Expiration, in seconds of the model's clock.
    end: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now: u64,
    policies: Vec<ModelObject>,
    roles: Vec<ModelObject>,
    tokens: Vec<ModelObject>,
    /// Contents of the bootstrap token.
    pub(super) first: Value,
}

/// Level of a policy; the later of two wins.
pub(super) const LEVELS: [&str; 4] = ["", "acl = \"read\"", "acl = \"write\"", "acl = \"deny\""];
pub(super) const NAMES: [&str; 3] = ["one", "two", "three"];

#[derive(Debug, Clone, Copy)]
pub(super) enum Caller {
    First,
    Nobody,
    Holder(usize),
}

/// Lifetime of a new token, and whether it reuses another's accessor.
pub(super) fn lifetime(more: u8) -> (&'static str, Option<u64>) {
    [("0s", None), ("1m", Some(60)), ("5m", Some(300)), ("0s", None), ("30s", Some(30))][usize::from(more % 5)]
}

pub(super) fn takes_accessor(more: u8) -> bool {
    more % 16 == 9
}

impl ObjectKind {
    pub(super) fn as_str(self) -> &'static str {
        ["policy", "role", "token"][self as usize]
    }
}

impl Model {
    pub(super) fn new(first: Value) -> Self {
        Self { first, ..Self::default() }
    }

    pub(super) fn all(&self, kind: ObjectKind) -> &[ModelObject] {
        [&self.policies, &self.roles, &self.tokens][kind as usize]
    }

    fn all_mut(&mut self, kind: ObjectKind) -> &mut Vec<ModelObject> {
        [&mut self.policies, &mut self.roles, &mut self.tokens].into_iter().nth(kind as usize).unwrap()
    }

    /// Returns the chosen object; of several with one id the last.
    pub(super) fn chosen(&self, kind: ObjectKind, which: u8) -> usize {
        let all = self.all(kind);
        let id = &all[usize::from(which) % all.len()].id;
        all.iter().rposition(|thing| thing.id == *id).unwrap()
    }

    /// Returns whether it exists and has not expired.
    fn counts(&self, thing: &ModelObject) -> bool {
        thing.there && thing.end.is_none_or(|end| self.now < end)
    }

    fn find_valid(&self, kind: ObjectKind, which: u8, team: bool, lost: &str) -> Result<usize, (u16, String)> {
        let place = self.chosen(kind, which);
        let thing = &self.all(kind)[place];
        if thing.team == team && self.counts(thing) { Ok(place) } else { Err((404, lost.replace("ID", &thing.id))) }
    }

    fn find_by_name(&self, kind: ObjectKind, team: bool, name: &str) -> Option<usize> {
        self.all(kind).iter().position(|thing| thing.there && thing.team == team && thing.name == name)
    }

    /// Resolves links: odd numbers link by name, even ones by id.
    fn linked(&self, kind: ObjectKind, team: bool, links: &[u8]) -> Result<Vec<usize>, (u16, String)> {
        let mut places = Vec::new();
        for which in links {
            let place = self.chosen(kind, *which);
            let ModelObject { id, name, .. } = &self.all(kind)[place];
            let (found, by, requested_name) = if which % 2 == 1 {
                (self.find_by_name(kind, team, name), "name", name)
            } else {
                let beside = self.all(kind)[place].there && self.all(kind)[place].team == team;
                (Some(place).filter(|_| beside), "ID", id)
            };
            let none = || (400, format!("No such ACL {} with {by} {requested_name:?}", kind.as_str()));
            let place = found.ok_or_else(none)?;
            if !places.contains(&place) {
                places.push(place);
            }
        }
        Ok(places)
    }

    /// Returns the level of a caller in a namespace, as an index in [`LEVELS`].
    fn level(&self, caller: Caller, team: bool) -> usize {
        let Caller::Holder(holder) = caller else { return if matches!(caller, Caller::First) { 2 } else { 0 } };
        let token = &self.tokens[holder];
        let roles = token.roles.iter().map(|role| &self.roles[*role]).filter(|role| role.there);
        let policies = roles.flat_map(|role| &role.policies).chain(&token.policies);
        let levels = policies.map(|policy| &self.policies[*policy]).filter(|policy| policy.there);
        levels.map(|policy| policy.level).filter(|_| token.team == team).max().unwrap_or(0)
    }

    /// Returns the expected response and applies the change; `chosen_id` and `secret` are those that the service
    /// generated.
    pub(super) fn expected(&mut self, does: &Action, team: bool, caller: Caller, new: (&str, &str)) -> Wanted {
        if let Caller::Holder(holder) = caller
            && !self.counts(&self.tokens[holder])
        {
            let of_own = matches!(does, Action::ReadSelf);
            return Err(if of_own { no_token() } else { (403, "ACL not found".to_owned()) });
        }
        let needed = match does {
            Action::ReadSelf => {
                return match caller {
                    Caller::First => Ok(self.first.clone()),
                    Caller::Nobody => Err(no_token()),
                    Caller::Holder(holder) => Ok(self.token(&self.tokens[holder], true)),
                };
            }
            Action::Read(..) | Action::List(_) => 1,
            _ => 2,
        };
        let level = self.level(caller, team);
        if level < needed || level == 3 {
            let who = match caller {
                Caller::Holder(holder) => format!("token with AccessorID '{}'", self.tokens[holder].id),
                _ => "anonymous token".to_owned(),
            };
            let permission = ["acl:read", "acl:write"][needed - 1];
            return Err((403, format!("Permission denied: {who} lacks permission '{permission}'")));
        }
        let (id, secret) = (new.0.to_owned(), new.1.to_owned());
        let fresh = ModelObject { id, secret, team, there: true, ..ModelObject::default() };
        match does {
            Action::Policy { which, name, level } => {
                let level = usize::from(*level) % LEVELS.len();
                let before =
                    which.map(|which| self.find_valid(ObjectKind::Policy, which, team, "cannot find policy ID"));
                let before = before.transpose()?;
                let name = NAMES[usize::from(*name) % NAMES.len()].to_owned();
                self.free(ObjectKind::Policy, team, &name, before, "Invalid Policy: A Policy with Name")?;
                let place =
                    self.put(ObjectKind::Policy, before, fresh, |policy| (policy.name, policy.level) = (name, level));
                Ok(Self::policy(&self.policies[place]))
            }
            Action::Role { which, name, policies } => {
                let before = which.map(|which| self.find_valid(ObjectKind::Role, which, team, "cannot find role ID"));
                let before = before.transpose()?;
                let name = NAMES[usize::from(*name) % NAMES.len()].to_owned();
                let word = "Invalid Role: A Role with Name";
                if before.is_none() {
                    self.free(ObjectKind::Role, team, &name, None, word)?;
                }
                let policies = self.linked(ObjectKind::Policy, team, policies)?;
                self.free(ObjectKind::Role, team, &name, before, &word.replace("Role with Name", "role with name"))?;
                let place =
                    self.put(ObjectKind::Role, before, fresh, |role| (role.name, role.policies) = (name, policies));
                Ok(self.role(&self.roles[place]))
            }
            Action::Token { which, policies, roles, local, more } => {
                let (life, mut fresh) = (lifetime(*more).1, fresh);
                let before =
                    which.map(|which| self.find_valid(ObjectKind::Token, which, team, "Cannot find token \"ID\""));
                let before = before.transpose()?;
                match before {
                    Some(place) if self.tokens[place].local != *local => {
                        return Err((400, format!("Cannot toggle local mode of {}", self.tokens[place].id)));
                    }
                    None if takes_accessor(*more) => {
                        let other = &self.tokens[self.chosen(ObjectKind::Token, *more)];
                        if other.there {
                            return Err((409, "Invalid Token: AccessorID is already in use".to_owned()));
                        }
                        fresh.id.clone_from(&other.id);
                    }
                    _ => {}
                }
                if before.is_none() && life == Some(30) {
                    return Err((400, "ExpirationTime cannot be less than 1m0s in the future (was 30s)".to_owned()));
                }
                let policies = self.linked(ObjectKind::Policy, team, policies)?;
                let roles = self.linked(ObjectKind::Role, team, roles)?;
                fresh = ModelObject { local: *local, end: life.map(|life| self.now + life), ..fresh };
                let place = self.put(ObjectKind::Token, before, fresh, |token| {
                    (token.name, token.policies, token.roles) = (more.to_string(), policies, roles);
                });
                Ok(self.token(&self.tokens[place], true))
            }
            Action::Clone(which) => {
                let lost = "Requested token does not exist: ACL not found";
                let source = self.tokens[self.find_valid(ObjectKind::Token, *which, team, lost)?].clone();
                // Part of the last minute has passed.
                if source.end.is_some_and(|end| end - self.now <= 60) {
                    return Err((400, "ExpirationTime cannot be less than 1m0s in the future (was ".to_owned()));
                }
                let ModelObject { id, secret, .. } = fresh;
                let place = self.put(ObjectKind::Token, None, ModelObject { id, secret, ..source }, |_| ());
                Ok(self.token(&self.tokens[place], true))
            }
            Action::Delete(kind, which) => {
                let place = self.chosen(*kind, *which);
                if *kind == ObjectKind::Token && matches!(caller, Caller::Holder(holder) if holder == place) {
                    let text = "Deletion of the request's authorization token is not permitted";
                    return Err((400, text.to_owned()));
                }
                let thing = &mut self.all_mut(*kind)[place];
                let found = thing.there && thing.team == team;
                thing.there &= !found;
                Ok(json!(found))
            }
            Action::Read(kind, which) => {
                let lost = format!("Requested {} does not exist: ACL not found", kind.as_str());
                let thing = &self.all(*kind)[self.find_valid(*kind, *which, team, &lost)?];
                Ok(match kind {
                    ObjectKind::Policy => Self::policy(thing),
                    ObjectKind::Role => self.role(thing),
                    ObjectKind::Token => self.token(thing, level == 2),
                })
            }
            Action::List(policy) => {
                let policy = policy.map(|policy| self.chosen(ObjectKind::Policy, policy));
                let fits = |token: &&ModelObject| policy.is_none_or(|policy| token.policies.contains(&policy));
                let counting = self.tokens.iter().filter(|token| token.team == team && self.counts(token));
                let mut tokens: Vec<&ModelObject> = counting.filter(fits).collect();
                tokens.sort_by_key(|token| &token.id);
                Ok(tokens.into_iter().map(|token| self.token(token, level == 2)).collect())
            }
            Action::ReadSelf => Ok(Value::Null),
        }
    }

    /// Rejects a name that is taken.
    fn free(
        &self,
        kind: ObjectKind,
        team: bool,
        name: &str,
        but: Option<usize>,
        taken: &str,
    ) -> Result<(), (u16, String)> {
        match self.find_by_name(kind, team, name) {
            Some(other) if but != Some(other) => Err((409, format!("{taken} {name:?} already exists"))),
            _ => Ok(()),
        }
    }

    fn put(
        &mut self,
        kind: ObjectKind,
        before: Option<usize>,
        fresh: ModelObject,
        change: impl FnOnce(&mut ModelObject),
    ) -> usize {
        let all = self.all_mut(kind);
        let place = before.unwrap_or_else(|| {
            all.push(fresh);
            all.len() - 1
        });
        change(&mut all[place]);
        place
    }

    fn links(&self, kind: ObjectKind, places: &[usize]) -> Value {
        let linked = places.iter().map(|place| &self.all(kind)[*place]).filter(|thing| thing.there);
        linked.map(|thing| json!({"ID": thing.id, "Name": thing.name})).collect()
    }

    fn policy(policy: &ModelObject) -> Value {
        let rules = LEVELS[policy.level];
        json!({"ID": policy.id, "Name": policy.name, "Rules": rules, "Namespace": namespace(policy.team)})
    }

    fn role(&self, role: &ModelObject) -> Value {
        let policies = self.links(ObjectKind::Policy, &role.policies);
        json!({"ID": role.id, "Name": role.name, "Policies": policies, "Namespace": namespace(role.team)})
    }

    fn token(&self, token: &ModelObject, with_secret: bool) -> Value {
        json!({
            "AccessorID": token.id, "SecretID": if with_secret { &token.secret } else { "<hidden>" },
            "Description": token.name, "Local": token.local, "Namespace": namespace(token.team),
            "Policies": self.links(ObjectKind::Policy, &token.policies), "Roles": self.links(ObjectKind::Role, &token.roles),
            "ExpirationTime": token.end.is_some(),
        })
    }
}

pub(super) fn namespace(team: bool) -> &'static str {
    if team { "team" } else { "default" }
}

fn no_token() -> (u16, String) {
    (404, "Supplied token does not exist".to_owned())
}
