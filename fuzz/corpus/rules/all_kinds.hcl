# Every kind of rule.
acl = "write" operator = "read" keyring = "deny" mesh = "read" peering = "write"
key "a" { policy = "read" }
key_prefix "a/" { policy = "list" }
service "web" { policy = "write" intentions = "read" }
service_prefix "" { policy = "read" }
node "n" { policy = "deny" } node_prefix "" { policy = "read" }
agent "" { policy = "write" } session_prefix "s" { policy = "write" }
event_prefix "" { policy = "read" } query "q" { policy = "write" } identity "i" { policy = "read" }
