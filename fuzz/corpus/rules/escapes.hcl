key <<-EOF
  a
  EOF
{ policy = "write" }
key "\u00e9\x41\101${b("c")}" { "policy" = "read" }