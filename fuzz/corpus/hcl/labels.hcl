service "web" { policy = "read" }
service { "api" { policy = "write" } }
