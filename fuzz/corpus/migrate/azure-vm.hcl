# A machine with a managed identity: one file with the token, a local proxy on a port.
pid_file = "/var/run/agent.pid"
log_level = "debug"
log_format = "json"

vault {
  address = "https://secrets.example.com:8200"
  ca_cert = "/etc/ssl/certs/company.pem"
  tls_skip_verify = false
  retry {
    num_retries = 5
  }
}

auto_auth {
  method "azure" {
    mount_path = "auth/azure-prod"
    namespace  = "team-a"
    max_backoff = "2m"
    config = {
      role      = "web"
      resource  = "https://management.azure.com/"
      client_id = "11111111-2222-3333-4444-555555555555"
    }
  }

  sink "file" {
    config = {
      path = "/run/agent/token"
      mode = 0600
    }
  }
  sink "file" {
    wrap_ttl = "5m"
    config = {
      path = "/run/agent/other-token"
      mode = 640
      owner = 1000
      group = 1000
    }
  }
}

api_proxy {
  use_auto_auth_token = true
}

cache {}

listener "tcp" {
  address     = "127.0.0.1:8100"
  tls_disable = true
}

listener "unix" {
  address       = "/run/agent/api.sock"
  socket_mode   = "0660"
  socket_user   = "1000"
  socket_group  = "1000"
  require_request_header = true
  tls_disable   = true
  agent_api {
    enable_quit = true
  }
}

listener "tcp" {
  address = "0.0.0.0:9102"
  role    = "metrics_only"
  tls_disable = true
}

telemetry {
  prometheus_retention_time = "24h"
  statsd_address = "127.0.0.1:8125"
}
