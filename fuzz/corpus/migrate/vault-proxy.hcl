# Vault Proxy with both caches.
pid_file = "/run/proxy/pid"

vault {
  address     = "https://secrets.example.com:8200"
  client_cert = "/etc/proxy/client.pem"
  client_key  = "/etc/proxy/client.key"
  retry {
    num_retries = 3
  }
}

auto_auth {
  method "kubernetes" {
    mount_path = "auth/cluster-1"
    config = {
      role       = "web"
      token_path = "/var/run/secrets/tokens/vault"
    }
  }
}

api_proxy {
  use_auto_auth_token = "force"
  enforce_consistency = "always"
  when_inconsistent   = "retry"
}

cache {
  cache_static_secrets            = true
  static_secret_token_capability_refresh_interval = "10m"
  persist "kubernetes" {
    path = "/vault/cache"
  }
}

listener "unix" {
  address      = "/run/proxy/proxy.sock"
  socket_mode  = "0660"
  tls_disable  = true
  role         = "metrics_only"
}

listener "tcp" {
  address                = "127.0.0.1:8200"
  tls_disable            = true
  require_request_header = true
}
