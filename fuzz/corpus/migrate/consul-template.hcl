# A machine with consul-template: one file, and a program with a variable.
log_level = "info"
kill_signal = "SIGINT"
max_stale = "10m"
default_left_delimiter = "<<"
default_right_delimiter = ">>"

consul {
  address = "127.0.0.1:8500"
}

vault {
  address = "https://secrets.example.com:8200"
  token = "hvs.canary"
  renew_token = true
  default_lease_duration = "60s"
  ssl {
    enabled = true
    verify = true
    ca_cert = "/etc/ssl/company.pem"
  }
  retry {
    attempts = 5
    backoff = "250ms"
  }
}

wait {
  min = "5s"
  max = "10s"
}

template {
  contents = "<< with secret \"secret/data/app\" >><< .Data.data.password >><< end >>"
  destination = "/run/app/app.conf"
  perms = 0600
  backup = true
  error_fatal = true
}

exec {
  command = ["/usr/bin/app", "--serve"]
  kill_signal = "SIGTERM"
  kill_timeout = "20s"
  reload_signal = "SIGHUP"
  splay = "5s"
  env {
    pristine = true
    custom = ["MODE=fast"]
    allowlist = ["HTTP_*"]
  }
}
