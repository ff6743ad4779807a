key "a" {
  policy = <<EOF
read
EOF
}
/* c */ service = { "web" = { policy = "read" } } // d
