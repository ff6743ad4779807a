namespace "team" {
  policy = "write"
  acl    = "write"
  key_prefix "" { policy = "write" }
}
namespace_prefix "" { service_prefix "" { policy = "read" } }
partition "default" {
  mesh = "write"
  namespace "other" { node_prefix "" { policy = "read" } }
}
partition_prefix "x" { acl = "read" }
