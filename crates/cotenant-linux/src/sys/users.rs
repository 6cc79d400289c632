//! Users by name.

use crate::bounded::{self, Limit};

/// The name of a user in `/etc/passwd`, else the number.
pub fn user_name(uid: u32) -> String {
    name_in(&bounded::text("/etc/passwd", Limit::Machine).unwrap_or_default(), uid)
}

fn name_in(users: &str, uid: u32) -> String {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| cotenant_model::text::name(name.as_bytes()))
    };
    users.lines().find_map(name).unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_where_the_table_has_them() {
        let users = "root:x:0:0::/root:/bin/sh\n:x:7:7::/:/bin/false\nalice:x:1000:1000:Alice:/home/alice:/bin/sh\n";
        assert_eq!([0, 1_000, 7, 1_001].map(|uid| name_in(users, uid)), ["root", "alice", "7", "1001"]);
        assert_eq!(user_name(0), "root");
    }
}
