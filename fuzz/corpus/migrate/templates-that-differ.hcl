vault {
  address = "https://secrets.example.com:8200"
}
auto_auth {
  method "azure" {
    config = {
      role     = "web"
      resource = "https://management.azure.com/"
    }
  }
}
template {
  contents             = "[[ key \"service/web\" ]][[ with secret \"secret/app\" ]][[ .Data.password ]][[ end ]]"
  destination          = "/run/app/app.conf"
  error_on_missing_key = false
  left_delimiter       = "[["
  right_delimiter      = "]]"
  sandbox_path         = "/etc/app"
  create_dest_dirs     = true
  group                = "app"
}
template {
  source      = "/etc/app/other.ctmpl"
  destination = "/run/app/other.conf"
  command     = ["/usr/bin/reload", "app"]
  perms       = 416
}
